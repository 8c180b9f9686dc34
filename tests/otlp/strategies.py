"""Strategies that generate requests, for the property tests of the decoders."""

from __future__ import annotations

from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from otlp.payloads import TRACE_ID, add, any_value

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
values = st.recursive(
    st.none() | texts | st.booleans() | numbers | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
attributes = st.dictionaries(texts, values, max_size=4)
times = st.integers(0, 2**64 - 1)
trace_ids = st.just(TRACE_ID) | st.binary(min_size=16, max_size=16)
span_ids = st.binary(min_size=8, max_size=8)

keys = st.sampled_from(["gen_ai.tool.name", "input", "tries", "größe"])
plain_attributes = st.dictionaries(keys, texts | st.booleans() | numbers | st.binary(max_size=8), max_size=4)
microseconds = st.integers(1, 2**50).map(lambda count: count * 1000)


@st.composite
def spans(draw):
    """Any span that OTLP can encode, with valid or invalid ids."""
    span = Span(
        trace_id=draw(trace_ids | st.binary(max_size=17)),
        span_id=draw(span_ids | st.binary(max_size=9)),
        parent_span_id=draw(st.just(b"") | st.just(bytes(8)) | span_ids),
        name=draw(texts),
        kind=draw(st.integers(0, 5)),
        start_time_unix_nano=draw(times),
        end_time_unix_nano=draw(times),
        dropped_attributes_count=draw(st.integers(0, 2**32 - 1)),
    )
    add(span, draw(attributes))
    if draw(st.booleans()):
        span.status.CopyFrom(Status(code=draw(st.sampled_from([0, 1, 2])), message=draw(texts)))
    for _ in range(draw(st.integers(0, 2))):
        add(span.events.add(name=draw(texts), time_unix_nano=draw(times)), draw(attributes))
    return span


@st.composite
def plain_spans(draw):
    """Valid spans that every format encodes without loss: scalar values, whole microseconds, an end after the start."""
    start = draw(microseconds)
    span = Span(
        trace_id=draw(trace_ids.filter(any)),
        span_id=draw(span_ids.filter(any)),
        parent_span_id=draw(st.just(b"") | span_ids.filter(any)),
        name=draw(texts),
        kind=draw(st.integers(0, 5)),
        start_time_unix_nano=start,
        end_time_unix_nano=start + draw(microseconds),
        dropped_attributes_count=draw(st.integers(0, 9)),
    )
    add(span, draw(plain_attributes))
    if code := draw(st.sampled_from([0, 1, 2])):
        span.status.CopyFrom(Status(code=code, message=draw(texts)))
    for _ in range(draw(st.integers(0, 2))):
        add(span.events.add(name=draw(texts.filter(bool)), time_unix_nano=draw(microseconds)), draw(plain_attributes))
    return span


@st.composite
def requests(draw, *, plain=False):
    """Requests with such spans."""
    made = ExportTraceServiceRequest()
    for _ in range(draw(st.integers(1, 2))):
        outer = made.resource_spans.add()
        add(outer.resource, draw(plain_attributes if plain else attributes))
        for _ in range(draw(st.integers(0, 2))):
            inner = outer.scope_spans.add()
            inner.scope.name = draw(texts)
            inner.spans.extend(draw(st.lists(plain_spans() if plain else spans(), max_size=2)))
    return made


@st.composite
def logs_requests(draw):
    """Requests with any log records, with valid or invalid ids."""
    made = ExportLogsServiceRequest()
    outer = made.resource_logs.add()
    add(outer.resource, draw(attributes))
    inner = outer.scope_logs.add()
    inner.scope.name = draw(texts)
    for _ in range(draw(st.integers(0, 3))):
        log = LogRecord(
            trace_id=draw(st.just(b"") | st.just(bytes(16)) | trace_ids | st.binary(max_size=17)),
            span_id=draw(st.just(b"") | st.just(bytes(8)) | span_ids | st.binary(max_size=9)),
            event_name=draw(st.just("") | texts),
            severity_number=draw(st.integers(0, 24)),
            severity_text=draw(st.just("") | texts),
            time_unix_nano=draw(st.just(0) | times),
            observed_time_unix_nano=draw(st.just(0) | times),
        )
        add(log, draw(attributes | st.builds(lambda name: {"event.name": name}, values)))
        if draw(st.booleans()):
            log.body.CopyFrom(any_value(draw(values)))
        inner.log_records.append(log)
    return made
