"""Captures runs while the application serves them, and scores them when their spans end.

Modules in reading order:

- ``decorator``: `@goldspan.trace` creates a span for each call of a function.
- ``call_spans``: wraps a function so that each call has a span.
- ``span_attributes``: the attributes of that span; arguments and results as JSON text of limited length.
- ``annotations``: `goldspan.update_current_span` and `goldspan.expect`.
- ``threads``: propagates the OpenTelemetry context into threads and thread pools.
- ``sdk_spans``: converts spans of the SDK to records, and copies them with results.
- ``processor``: `ScoringProcessor`, the span processor that scores runs.
- ``processor_options``: validates the processor's arguments, and builds its pipeline and downstream processor.
- ``setup``: `goldspan.instrument()` configures providers, sinks and the processor.
- ``environment``: the table of `GOLDSPAN_*` environment variables.
- ``providers``: builds OpenTelemetry providers from the `OTEL_*` variables.
- ``exporter``: the span exporter behind `OTEL_TRACES_EXPORTER=goldspan`.
- ``zero_code``: the hook that `opentelemetry-instrument` calls.

The package imports none of its modules, so that an application that only decorates its tools loads the decorator alone.
"""
