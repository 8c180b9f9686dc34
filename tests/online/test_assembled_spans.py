"""Packing spans into rows and unpacking them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.model import SpanEvent, SpanRecord
from goldspan.online import assembled_spans
from goldspan.online.assembled_spans import SpanPacker, contains_span, count_spans, iter_span_ids
from support.laws import examples

TRACE = "0" * 31 + "1"
KEYS = st.sampled_from(["gen_ai.tool.name", "gen_ai.operation.name", "city", "", "gen_ai.tool.call.arguments"])
TEXTS = st.text(st.characters(exclude_categories=()), max_size=150)
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS, st.binary(max_size=20))
VALUES = st.recursive(
    PLAIN, lambda inner: st.one_of(st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(TEXTS, inner)),
    max_leaves=8,
)  # fmt: skip
TIMES = st.one_of(st.none(), st.integers(0, 2**63))
EVENTS = st.builds(SpanEvent, TEXTS, st.dictionaries(KEYS, VALUES), TIMES)
IDS = st.integers(1, 2**64 - 1).map(lambda number: f"{number:016x}")


@st.composite
def records(draw: st.DrawFn) -> SpanRecord:
    start = draw(TIMES)
    return SpanRecord(
        trace_id=TRACE,
        span_id=draw(IDS),
        parent_id=draw(st.none() | IDS),
        name=draw(TEXTS),
        attributes=draw(st.dictionaries(KEYS, VALUES)),
        start_ns=start,
        end_ns=draw(TIMES | st.integers(0, 10**7).map(lambda length: (start or 0) + length)),
        status=draw(st.sampled_from(["unset", "ok", "error"])),
        status_message=draw(TEXTS),
        events=tuple(draw(st.lists(EVENTS, max_size=2))),
        kind=draw(st.integers(0, 5)),
        scope=draw(TEXTS),
        resource=draw(st.sampled_from([{}, {"service.name": "a"}, {"service.name": "b"}])),
        dropped_attributes=draw(st.integers(0, 3)),
    )


@examples(0.3)  # a list of spans takes as long to draw as ten other examples
@given(spans=st.lists(records(), max_size=6), shared=st.integers(0, 4))
def test_packed_spans_are_unpacked_unchanged(spans: list[SpanRecord], shared: int) -> None:
    before, assembled_spans._MAX_SHAPES = assembled_spans._MAX_SHAPES, shared
    try:
        packer = SpanPacker()
        rows = b"".join(packer.pack(span) for span in spans)
        assert list(packer.unpack(TRACE, rows)) == spans
        assert [f"{span_id:016x}" for span_id in iter_span_ids(rows)] == [span.span_id for span in spans]
        assert count_spans(rows) == len(spans)
        assert all(contains_span(rows, int(span.span_id, 16)) for span in spans)
        assert not contains_span(rows, 0)
    finally:
        assembled_spans._MAX_SHAPES = before


def test_values_outside_the_types_of_telemetry_cannot_be_packed() -> None:
    odd: Any = object()
    span = SpanRecord(TRACE, "0" * 15 + "1", None, "a", {"what": odd}, 1, 2)
    with pytest.raises(ValueError, match="unmarshallable"):
        SpanPacker().pack(span)
    assert SpanPacker().try_pack(span) == b""
    assert SpanPacker().try_pack(SpanRecord(TRACE, "0" * 15 + "1", None, "a", {}, -1, 2)) == b""
