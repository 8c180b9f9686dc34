"""`goldspan serve`: receives OTLP from agents, exports it to back ends and scores the runs in it.

The gateway acknowledges a request once the request is in the journal. It exports and scores the request afterwards.
Needs the extra `server`.

Read in this order:

- ``server``: opens the components of one worker, serves, and shuts down in order.
- ``worker_components``: creates the judge, the pipeline and the Kafka clients of a worker.
- ``supervisor``: starts, watches and restarts the worker processes.
- ``settings``: reads goldspan.yaml, environment variables and flags.
- ``resource_limits``: the signals, partitions and limits that the whole gateway shares.
- ``receivers``: receives OTLP over HTTP and gRPC, and authorizes requests.
- ``decoding``: decompresses and validates requests, and builds responses.
- ``journal``: stores acknowledged requests until every consumer has processed them.
- ``exporting``: exports journal entries to back ends, with retries.
- ``scoring``: groups spans by trace, evaluates the runs and stores the results.
- ``kafka``: scores what the Collector writes to a Kafka topic, and writes results to another.
- ``api_routes``: the HTTP API over the store.
- ``openapi``: the operations of the API and their OpenAPI document.
- ``gateway_counters``: the counters of the gateway.
- ``internal_telemetry``: logging, gauges, `/metrics` and the gateway's metrics over OTLP.
"""
