"""`SpanSink`: evaluations as separate spans that never become part of a run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

from goldspan import Evaluation, Golden, Goldens, Run, ScoringProcessor, evaluate, extract, load_runs, semconv
from goldspan.model import SpanRecord
from goldspan.sinks import SpanSink
from support.evaluation_builders import evaluation
from support.span_builders import TRACE, agent, inside, model, tool, user


def emitted(evaluations: Iterable[Evaluation], **options: object) -> Sequence[ReadableSpan]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(**options)  # type: ignore[arg-type]
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    sink = SpanSink(provider)
    for one in evaluations:
        sink.submit(one)
    provider.shutdown()
    return exporter.get_finished_spans()


def test_an_evaluation_span_is_a_child_of_the_span_of_the_run_without_duration() -> None:
    (span,) = emitted([evaluation(7, "search", "book")])
    assert (span.name, span.start_time, span.end_time) == ("evaluate request", 1_000, 1_000)
    assert (span.context.trace_id, span.parent and span.parent.span_id) == (7, 7)
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "goldspan"
    assert span.attributes is not None
    assert span.attributes["goldspan.evaluation"] is True
    assert span.attributes["goldspan.passed"] is True
    assert span.attributes["goldspan.score.tool_precision"] == 0.5
    assert span.attributes["goldspan.run.id"] == f"{7:032x}:{7:016x}"
    assert span.attributes["goldspan.unit"] == "request"


def test_every_score_is_an_event_of_the_evaluation_span() -> None:
    one = evaluation(7)
    (span,) = emitted([one])
    assert {event.name for event in span.events} == {"gen_ai.evaluation.result"}
    assert {event.timestamp for event in span.events} == {1_000}
    attributes_by_metric = {
        (event.attributes or {})["gen_ai.evaluation.name"]: event.attributes for event in span.events
    }
    assert set(attributes_by_metric) == {score.metric for score in one.scores}
    correctness = attributes_by_metric["tool_correctness"]
    assert correctness is not None
    assert correctness["gen_ai.evaluation.score.value"] == 1.0
    assert correctness["gen_ai.evaluation.score.label"] == "pass"


def test_every_revision_has_its_own_evaluation_span() -> None:
    spans = emitted([evaluation(), replace(evaluation(), revision=2)])
    assert [(span.attributes or {})["goldspan.revision"] for span in spans] == [1, 2]


def test_the_evaluation_span_of_a_run_without_a_span_starts_a_new_trace() -> None:
    with TracerProvider().get_tracer("app").start_as_current_span("something else"):
        (span,) = emitted([evaluate(Run("conversation-1", unit="conversation"), ["search"])])
    assert span.parent is None
    assert span.name == "evaluate conversation"
    assert (span.start_time, span.end_time) > (0, 0)


def test_the_evaluation_span_of_a_run_without_an_end_has_the_start_time_of_the_run() -> None:
    one = evaluation()
    (span,) = emitted([replace(one, run=replace(one.run, start_ns=5, end_ns=None))])
    assert (span.start_time, span.end_time) == (5, 5)


def test_the_evaluation_attribute_is_kept_under_a_low_attribute_limit() -> None:
    (span,) = emitted([evaluation()], span_limits=SpanLimits(max_span_attributes=2))
    assert "goldspan.evaluation" in (span.attributes or {})


# --- not part of any run ----------------------------------------------------------------------------------------------


def _as_record(span: ReadableSpan) -> SpanRecord:
    attributes = dict(span.attributes or {})
    return SpanRecord(
        trace_id=f"{span.context.trace_id:032x}",
        span_id=f"{span.context.span_id:016x}",
        parent_id=f"{span.parent.span_id:016x}" if span.parent else None,
        name=span.name,
        attributes=attributes,
        start_ns=span.start_time,
        end_ns=span.end_time,
        scope="goldspan",
        dropped_attributes=span.dropped_attributes,
    )


def _trace() -> list[SpanRecord]:
    root = agent(asked="Find me a flight", golden_id="flight")
    inner = model(asked=[user("Find me a flight")], **inside(root))
    return [root, inner, tool("search", {"to": "Oslo"}, **inside(inner)), tool("book", **inside(root))]


UNMARKED = [tool("search", parent_id="00000000000000aa", trace_id=TRACE)]


@pytest.mark.parametrize("records", [_trace(), UNMARKED, _trace()[1:]], ids=["whole", "one tool", "no root"])
@pytest.mark.parametrize("few", [128, 2])
def test_extraction_ignores_evaluation_spans_in_a_trace(records: list[SpanRecord], few: int) -> None:
    runs = extract(records)
    goldens = Goldens([Golden("flight", input="Find me a flight")])
    judged = [evaluate(run, goldens) for run in runs]
    spans = emitted([*judged, *judged], span_limits=SpanLimits(max_span_attributes=few))
    made = [_as_record(span) for span in spans]
    assert len(made) == 2 * len(runs) > 0
    for order in itertools.islice(itertools.permutations([*records, *made]), 0, 5_000, 617):
        assert extract(order) == runs
    assert extract([*records, *made], unit="component") == extract(records, unit="component")
    assert extract([*records, *made], unit="conversation") == extract(records, unit="conversation")


def test_evaluation_spans_alone_yield_no_run() -> None:
    for unit in ("request", "component", "conversation"):
        assert extract(map(_as_record, emitted([evaluation()])), unit=unit) == []  # type: ignore[arg-type]


def test_extraction_ignores_evaluation_spans_in_a_file(tmp_path: Path) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("app")
    with tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}):
        used = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
        tracer.start_span("execute_tool search", attributes=used).end()
    own = exporter.get_finished_spans()
    (run,) = load_runs(_written(tmp_path / "own.pb", own))
    SpanSink(provider).submit(evaluate(run, ["search"]))
    everything = exporter.get_finished_spans()
    assert len(everything) == len(own) + 1
    assert list(load_runs(_written(tmp_path / "all.pb", everything))) == [run]


def _written(path: Path, spans: Sequence[ReadableSpan]) -> Path:
    path.write_bytes(encode_spans(spans).SerializeToString())
    return path


def test_evaluation_spans_of_a_live_process_are_exported_and_never_scored() -> None:
    """The sink creates its spans through the provider whose runs are scored."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    judged: list[Evaluation] = []
    sinks = [SpanSink(provider), judged.append]
    provider.add_span_processor(ScoringProcessor(then=SimpleSpanProcessor(exporter), sinks=sinks))
    tracer = provider.get_tracer("app")
    for _ in range(3):
        with tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}):
            used = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
            tracer.start_span("execute_tool search", attributes=used).end()
    provider.shutdown()
    spans = exporter.get_finished_spans()
    runs: dict[int, SpanContext] = {span.context.span_id: span.context for span in spans if span.name == "invoke_agent"}
    evaluations = [span for span in spans if semconv.IS_EVALUATION in (span.attributes or {})]
    assert len(runs) == len(evaluations) == len(judged) == 3
    for span in evaluations:
        assert span.parent is not None
        assert runs[span.parent.span_id].trace_id == span.context.trace_id
    assert {one.revision for one in judged} == {1}
