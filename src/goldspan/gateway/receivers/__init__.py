"""Receives OTLP over HTTP and gRPC, authorizes clients, and limits connections, requests and bytes.

`ingest`: reads, validates and commits one export request, for both protocols.
`http`: the ASGI application: export endpoints, probes, browser login, and the routes of the API.
`http_server`: listening sockets, TLS and the connection limit.
`http_protocol`: one HTTP connection: its deadlines, header limits and protocol upgrades.
`grpc`: the OTLP services, and the admission of concurrent messages.
`authorization`: tokens, hosts and origins, for both protocols.
"""
