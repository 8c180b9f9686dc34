"""Exports acknowledged requests from the journal to OTLP back ends, with retries.

`backends`: the configuration of a back end.
`backend_exporter`: exports the journal to one back end; each signal has its own cursor.
`outgoing_requests`: pending requests, the backoff of a failing back end, conversion and splitting.
`senders`: sends a request over HTTP or gRPC and classifies the response.
"""
