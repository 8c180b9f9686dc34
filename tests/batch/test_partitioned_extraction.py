"""Runs extracted from parts of the records are those of all records together."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.batch.partitioned_extraction import ExtractionOptions, extract_spills
from goldspan.batch.record_rows import record_to_row
from goldspan.batch.spill import SpillWriter
from goldspan.batch.task_runner import TaskRunner
from goldspan.extraction import extract
from goldspan.model import Run, RunUnit, SpanRecord, TelemetryRecord
from goldspan.otlp import read_records
from support.laws import examples
from support.random_traces import HOW, asked, tell
from support.span_builders import agent, trace_id

FIXTURES = Path(__file__).parents[1] / "fixtures"
UNITS: tuple[RunUnit, ...] = ("request", "component", "conversation")

ways = st.sampled_from(list(HOW.values()))


def extract_in_parts(
    records: list[TelemetryRecord], unit: RunUnit, *, parts: int = 1, bucket_bytes: int = 1
) -> list[Run]:
    """The runs of records that are spilled in several files; buckets hold hardly more than a trace."""
    with tempfile.TemporaryDirectory() as folder:
        spills = []
        for part in range(parts):
            writer = SpillWriter(Path(folder) / f"records-{part}", buffer_bytes=5)
            for position, record in enumerate(records):
                row = record_to_row(record, position)
                if position * parts // len(records) == part and row is not None:
                    writer.add(row, 1)
            spills.append(writer.finish())
        options = ExtractionOptions(unit, None, (), bucket_bytes)
        return list(extract_spills(spills, options, TaskRunner(), Path(folder)))


def tell_all(requests: list[Any], *, together: bool) -> list[TelemetryRecord]:
    """The records of several requests: one after the other, or all at the same time; the last one may be a twin."""
    records = []
    for number, (request, how, is_twin) in enumerate(requests):
        begin = 0 if together else 1_000 * number
        records += tell(request, how, begin=begin, label="abcd"[number]).records
        if is_twin:  # a second instrumentation records the same request
            records += tell(request, how, begin=begin, label="abcd"[number], scope="f").records
    return records


@examples(1)
@given(
    st.lists(st.tuples(asked, ways, st.booleans()), min_size=1, max_size=4),
    st.booleans(),
    st.randoms(use_true_random=False),
    st.sampled_from(UNITS),
    st.integers(1, 3),
)
def test_the_division_into_parts_changes_no_run(
    requests: list[Any], together: bool, shuffle: Any, unit: RunUnit, parts: int
) -> None:
    records = tell_all(requests, together=together)
    shuffle.shuffle(records)
    assert extract_in_parts(records, unit, parts=parts) == extract(records, unit=unit)


def readable(folder: str) -> list[Path]:
    return [path for path in sorted((FIXTURES / folder).rglob("*.gz")) if "otlp" not in path.parts]


@pytest.mark.parametrize("unit", UNITS)
def test_the_division_of_all_captures_changes_no_run(unit):
    records = list(read_records(readable("captures")))
    assert extract_in_parts(records, unit, parts=2, bucket_bytes=10_000) == extract(records, unit=unit)


@pytest.mark.parametrize("unit", ["request", *(pytest.param(unit, marks=pytest.mark.e2e) for unit in UNITS[1:])])
def test_the_division_of_all_families_changes_no_run(unit):
    records = list(read_records([FIXTURES / "families"], on_loss=lambda loss: None))
    random.Random(unit).shuffle(records)
    assert extract_in_parts(records, unit, parts=3) == extract(records, unit=unit)


def model_span(trace: int, number: int, *, asked: str, answered: str, at: int) -> SpanRecord:
    """A model span with these messages, as JSON, in a trace with an agent."""
    return SpanRecord(
        f"{trace:032x}",
        f"{trace:08x}{number:08x}",
        f"{trace:08x}{0:08x}",
        "chat",
        {"gen_ai.operation.name": "chat", "gen_ai.input.messages": asked, "gen_ai.output.messages": answered},
        at,
        at + 10,
    )


def test_results_of_calls_that_another_trace_made_are_known_in_parts_too() -> None:
    """A run repeats the result of a call; whether the call is unknown depends on all other traces."""
    call = '{"type": "tool_call", "id": "call_%s", "name": "search", "arguments": {}}'
    result = '{"type": "tool_call_response", "id": "call_%s", "response": "ok"}'
    user = '{"role": "user", "parts": [{"type": "text", "content": "Find %s."}]}'
    answer = '[{"role": "assistant", "parts": [{"type": "text", "content": "Done."}]}]'

    def agent(trace: int, at: int) -> SpanRecord:
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
        return SpanRecord(f"{trace:032x}", f"{trace:08x}{0:08x}", None, "agent", attributes, at, at + 100)

    def repeating(trace: int, call_id: str, at: int) -> list[TelemetryRecord]:
        asked = f'[{user % trace}, {{"role": "tool", "parts": [{result % call_id}]}}]'
        return [agent(trace, at), model_span(trace, 1, asked=asked, answered=answer, at=at + 10)]

    made = f'[{{"role": "assistant", "parts": [{call % "a"}]}}]'
    making = [agent(1, 0), model_span(1, 1, asked=f"[{user % 1}]", answered=made, at=10)]
    records = [*making, *repeating(2, "a", 10_000), *repeating(3, "b", 20_000)]
    runs = extract(records)
    assert [run.health.results_unknown for run in runs] == [0, 0, 1]
    assert extract_in_parts(records, "request") == runs


def test_runs_that_start_together_are_in_the_order_of_their_first_spans() -> None:
    at = {"start_ns": 5, "end_ns": 6}
    records = [agent(trace_id=trace_id(number), **at) for number in (3, 1, 2, 9, 4)]
    for order in (records, records[::-1]):
        wanted = [(record.trace_id,) for record in order]
        assert [run.trace_ids for run in extract(order)] == wanted
        assert [run.trace_ids for run in extract_in_parts(order, "request", parts=2)] == wanted
