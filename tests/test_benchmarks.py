"""The benchmarks run; their figures are for `make bench` on a quiet machine."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from payloads import CAPTURES, payload_a, payload_b

from goldspan.extraction import extract
from goldspan.model import SpanRecord
from goldspan.otlp import read_records
from goldspan.otlp.protobuf import decode_traces

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_overhead_is_given_for_every_variant_as_a_ratio_to_bare_spans() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "overhead.py", "--rounds", "1"], capture_output=True, text=True, check=True
    )
    lines = [line.split(" us a span ") for line in done.stdout.splitlines()[1:]]
    ratios = {name.rsplit(maxsplit=1)[0].strip(): float(ratio) for name, ratio in lines}
    assert list(ratios) == ["bare spans", "@goldspan.trace", "bare spans, scored", "@goldspan.trace, scored"]
    assert ratios["bare spans"] == 1


def test_extraction_is_given_for_both_payloads_as_a_ratio_to_parsing() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "extraction.py", "--rounds", "1"], capture_output=True, text=True, check=True
    )
    lines = [line.split(" us a span ") for line in done.stdout.splitlines() if " us a span " in line]
    ratios = [(name.rsplit(maxsplit=1)[0].strip(), float(ratio)) for name, ratio in lines]
    assert [name for name, _ in ratios] == ["parse", "read", "decode", "decode and extract"] * 2
    assert [ratio for name, ratio in ratios if name == "parse"] == [1, 1]


def test_payload_a_is_an_application_in_which_one_span_in_six_is_a_tool_call() -> None:
    data = payload_a()
    spans = decode_traces(data).spans
    assert len(spans) == 512
    assert 900 < len(data) / len(spans) < 1300
    assert len([span for span in spans if "gen_ai.tool.name" in span.attributes]) == round(512 / 6)
    models = [span for span in spans if span.attributes.get("gen_ai.operation.name") == "chat"]
    assert Counter(Counter(span.trace_id for span in models).values()) == {4: 16}
    for span in models:
        messages = span.attributes["gen_ai.input.messages"] + span.attributes["gen_ai.output.messages"]
        assert 1900 < len(messages) < 2100
        assert "tool_call" not in messages
    assert sum(len(run.tool_calls) for run in extract(spans)) == round(512 / 6)


def test_payload_b_holds_every_recorded_capture_and_each_repeat_is_another_trace() -> None:
    requests = [decode_traces(data).spans for data in payload_b()]
    recorded = [record for path in CAPTURES.glob("*.pb.gz") for record in read_records([path])]
    names = {record.name for record in recorded if isinstance(record, SpanRecord)}
    assert names == {span.name for spans in requests for span in spans}
    assert all(400 < len(spans) <= 512 for spans in requests)
    ids = [(span.trace_id, span.span_id) for spans in requests for span in spans]
    assert len(ids) == len(set(ids))


def test_payloads_are_the_same_each_time() -> None:
    assert payload_a() == payload_a()
    assert payload_b() == payload_b()
