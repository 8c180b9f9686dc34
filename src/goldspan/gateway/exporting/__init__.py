"""Exports acknowledged requests from the journal to OTLP back ends, with retries.

`backends`: the configuration of a back end.
`backend_exporter`: exports the journal to one back end; each signal has its own cursor.
`backoff`: when a failing back end is retried.
`outgoing_requests`: pending requests, and their conversion and splitting.
`senders`: sends a request over HTTP or gRPC and classifies the response.
"""
