"""`ScoringProcessor` scores each run when its span ends and exports each span once, even after errors."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, StatusCode, TraceFlags, set_span_in_context

import goldspan
from capture.telemetry import Exported, Install
from goldspan import Evaluation, ExpectedTool, Golden, Goldens, Limits, _guard
from goldspan.capture.sdk_spans import to_span_record
from goldspan.online import AssemblyCounts
from support.forked_children import fork, forking

GOLDENS = [
    Golden("book", tools=(ExpectedTool("search", {"city": "Paris"}), ExpectedTool("book"))),
    Golden("rank", tools=(ExpectedTool("search"),)),
    Golden("hello", input="Hello!"),
]


@goldspan.trace
def search(city: str) -> str:
    return f"hotels in {city}"


@goldspan.trace
def book(hotel: str) -> str:
    return hotel


@goldspan.trace(kind="agent", golden="book")
def booking(question: str, *tools: Callable[[str], str]) -> str:
    for tool in tools:
        tool("Paris")
    return "done"


class RecordingSink:
    """A sink that records evaluations."""

    def __init__(self) -> None:
        self.evaluations: list[Evaluation] = []

    def submit(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)


@pytest.fixture
def scored(exported: Exported, install: Install) -> Exported:
    """An exporter behind a scoring processor."""
    install(goldspan.ScoringProcessor(GOLDENS, then=exported.processor()))
    return exported


# --- results on the run's span ----------------------------------------------------------------------------------------


def test_the_results_of_a_request_are_on_the_span_of_its_agent(scored: Exported) -> None:
    booking("A hotel!", search)
    assert scored.names == ["execute_tool search", "invoke_agent booking"]
    results = {
        key: value for key, value in scored.attributes("invoke_agent booking").items() if key.startswith("goldspan.")
    }
    assert results["goldspan.tools_used"] == ("search",) or results["goldspan.tools_used"] == ["search"]
    assert results["goldspan.golden.id"] == "book"
    assert results["goldspan.golden.match"] == "id"
    assert results["goldspan.score.tool_correctness"] == 0.5
    assert results["goldspan.score.argument_correctness"] == 1.0
    assert results["goldspan.passed"] is False
    assert results["goldspan.revision"] == 1
    assert "book" in results["goldspan.reason"]


def test_a_golden_is_found_by_the_input_of_the_agent(scored: Exported) -> None:
    @goldspan.trace(kind="agent")
    def greeter(question: str) -> str:
        return "Hi."

    greeter("  HELLO! ")
    attributes = scored.attributes("invoke_agent greeter")
    assert (attributes["goldspan.golden.id"], attributes["goldspan.golden.match"]) == ("hello", "input")
    assert attributes["goldspan.passed"] is True


def test_the_used_tools_are_exported_without_a_golden(exported: Exported, install: Install) -> None:
    install(goldspan.ScoringProcessor(then=exported.processor()))
    booking("A hotel!", search, book)
    attributes = exported.attributes("invoke_agent booking")
    assert list(attributes["goldspan.tools_used"]) == ["search", "book"]
    assert "goldspan.passed" not in attributes
    assert "goldspan.score.tool_correctness" not in attributes


def test_other_spans_are_forwarded_unchanged_and_in_order(exported: Exported, install: Install) -> None:
    first, behind = InMemorySpanExporter(), exported.processor()
    provider = install(SimpleSpanProcessor(first), goldspan.ScoringProcessor(GOLDENS, then=behind))
    with provider.get_tracer("web").start_as_current_span("GET /", links=[Link(_elsewhere())]):
        booking("A hotel!", search, book)
    untouched = list(first.get_finished_spans())
    assert exported.names == [span.name for span in untouched]
    for before, after in zip(untouched, exported.spans, strict=True):
        if after.name == "invoke_agent booking":
            added = set(after.attributes or {}) - set(before.attributes or {})
            assert added
            assert all(key.startswith("goldspan.") for key in added)
            assert _but_attributes(before) == _but_attributes(after)
        else:
            assert after is before or after.to_json() == before.to_json()


def _elsewhere() -> SpanContext:
    return SpanContext(0xA, 0xB, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _but_attributes(span: ReadableSpan) -> tuple[Any, ...]:
    return (
        span.name, span.context, span.parent, span.kind, span.status, tuple(span.events), tuple(span.links),
        span.start_time, span.end_time, span.resource, span.instrumentation_scope,
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "otlp"), [(kind, number) for number, kind in enumerate(trace.SpanKind, start=1)])
def test_a_live_span_has_the_kind_that_otlp_gives_it(
    install: Install, exported: Exported, kind: trace.SpanKind, otlp: int
) -> None:
    install(exported.processor())
    trace.get_tracer("test").start_span("work", kind=kind).end()
    (span,) = exported.spans
    (encoded,) = encode_spans([span]).resource_spans[0].scope_spans[0].spans
    assert to_span_record(span).kind == encoded.kind == otlp


@pytest.mark.parametrize("description", [None, "no hotel"])
def test_a_live_span_has_the_message_of_its_status(
    install: Install, exported: Exported, description: str | None
) -> None:
    install(exported.processor())
    span = trace.get_tracer("test").start_span("work")
    span.set_status(StatusCode.ERROR, description)
    span.end()
    record = to_span_record(exported.spans[0])
    assert (record.status, record.status_message) == ("error", description or "")


def test_a_component_and_its_request_are_each_scored_on_their_own_span(scored: Exported) -> None:
    @goldspan.trace(kind="component", golden="rank")
    def ranking(question: str) -> str:
        return search(question)

    @goldspan.trace(kind="agent", golden="book")
    def agent(question: str) -> None:
        ranking(question)
        book("Ritz")

    agent("A hotel!")
    component, request = scored.attributes("ranking"), scored.attributes("invoke_agent agent")
    assert (component["goldspan.golden.id"], list(component["goldspan.tools_used"])) == ("rank", ["search"])
    assert (request["goldspan.golden.id"], list(request["goldspan.tools_used"])) == ("book", ["search", "book"])
    assert component["goldspan.score.tool_recall"] == request["goldspan.score.tool_recall"] == 1.0


def test_the_outermost_agent_is_the_request_and_inner_agents_are_components(
    exported: Exported, install: Install
) -> None:
    @goldspan.trace(kind="agent", golden="book")
    def manager(question: str) -> None:
        booking(question, search)
        book("Ritz")

    kept = RecordingSink()
    install(goldspan.ScoringProcessor(GOLDENS, then=exported.processor(), sinks=[kept]))
    manager("A hotel!")
    assert [(one.run.unit, one.run.agent, one.passed) for one in kept.evaluations] == [
        ("component", "booking", False),
        ("request", "manager", True),
    ]
    assert list(exported.attributes("invoke_agent booking")["goldspan.tools_used"]) == ["search"]
    assert list(exported.attributes("invoke_agent manager")["goldspan.tools_used"]) == ["search", "book"]


def test_several_requests_below_one_plain_root_are_scored_separately(scored: Exported) -> None:
    with trace.get_tracer("worker").start_as_current_span("poll"):
        for tools in ((search,), (search, book), ()):
            booking("A hotel!", *tools)
            used = (scored.spans[-1].attributes or {})["goldspan.tools_used"]
            assert list(used) == [tool.__name__ for tool in tools]
    assert "goldspan.tools_used" not in scored.attributes("poll")


def test_a_tool_beside_the_only_agent_counts_for_the_request_of_that_agent(scored: Exported) -> None:
    with trace.get_tracer("web").start_as_current_span("GET /"):
        search("Paris")
        booking("A hotel!", book)
    assert list(scored.attributes("invoke_agent booking")["goldspan.tools_used"]) == ["search", "book"]


def test_a_trace_without_an_agent_is_scored_at_its_local_root(scored: Exported) -> None:
    with trace.get_tracer("web").start_as_current_span("GET /", attributes={"goldspan.golden.id": "book"}):
        search("Paris")
        book("Ritz")
    assert scored.attributes("GET /")["goldspan.score.tool_recall"] == 1.0


def test_a_span_with_a_remote_parent_is_a_local_root(scored: Exported) -> None:
    remote = set_span_in_context(NonRecordingSpan(_elsewhere()))
    with trace.get_tracer("web").start_as_current_span("POST /tools", context=remote):
        search("Paris")
    assert list(scored.attributes("POST /tools")["goldspan.tools_used"]) == ["search"]


def test_live_runs_equal_the_runs_extracted_from_the_whole_trace(exported: Exported, install: Install) -> None:
    kept = RecordingSink()
    install(goldspan.ScoringProcessor(GOLDENS, sinks=[kept]), exported.processor())

    @goldspan.trace(kind="component", golden="rank")
    def ranking(question: str) -> str:
        return search(question)

    with trace.get_tracer("web").start_as_current_span("GET /"):
        search("Rome")
        booking("one", ranking, book)
        booking("two", search)
    records = [to_span_record(span) for span in exported.spans]
    from_file = [*goldspan.extract(records), *goldspan.extract(records, unit="component")]
    assert sorted((e.run for e in kept.evaluations), key=str) == sorted(from_file, key=str)


# --- concurrency ------------------------------------------------------------------------------------------------------


def _expected_tools(number: int) -> list[str]:
    return ["search", "book"] if number % 2 else ["search"]


def _assert_each_exact(exported: Exported, requests: int) -> None:
    agents = [span for span in exported.spans if span.name == "invoke_agent agent"]
    assert len(agents) == requests
    seen = Counter(span.context.span_id for span in exported.spans)
    assert set(seen.values()) == {1}
    for span in agents:
        attributes = span.attributes or {}
        number = int(str(attributes["gen_ai.output.messages"]).split("#")[1])
        assert list(attributes["goldspan.tools_used"]) == _expected_tools(number)  # type: ignore[call-overload]


def test_requests_on_many_threads_have_exactly_their_tool_calls(scored: Exported) -> None:
    @goldspan.trace(kind="agent", golden="book")
    def agent(number: int) -> str:
        for name in _expected_tools(number):
            {"search": search, "book": book}[name]("Paris")
        return f"#{number}#"

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(agent, range(200)))
    _assert_each_exact(scored, 200)


def test_requests_in_many_tasks_below_one_root_have_exactly_their_tool_calls(scored: Exported) -> None:
    @goldspan.trace
    async def fetch(name: str) -> None:
        await asyncio.sleep(0)

    @goldspan.trace(kind="agent", golden="book")
    async def agent(number: int) -> str:
        for name in _expected_tools(number):
            await goldspan.trace(name=name)(_nothing)(name)
            await asyncio.sleep(0)
        return f"#{number}#"

    async def serve() -> None:
        with trace.get_tracer("worker").start_as_current_span("serve"):
            await asyncio.gather(*map(agent, range(100)))

    asyncio.run(serve())
    _assert_each_exact(scored, 100)


async def _nothing(name: str) -> None:
    await asyncio.sleep(0)


# --- beside other processors ------------------------------------------------------------------------------------------


def test_results_are_on_decorated_spans_if_another_processor_exports(exported: Exported, install: Install) -> None:
    kept = RecordingSink()
    install(exported.processor(), goldspan.ScoringProcessor(GOLDENS, sinks=[kept]))

    @goldspan.trace(kind="component", golden="rank")
    def ranking(question: str) -> str:
        return search(question)

    booking("A hotel!", ranking, book)
    assert list(exported.attributes("invoke_agent booking")["goldspan.tools_used"]) == ["search", "book"]
    assert exported.attributes("ranking")["goldspan.golden.id"] == "rank"
    assert [evaluation.run.unit for evaluation in kept.evaluations] == ["component", "request"]
    assert [e.run.end_ns for e in kept.evaluations] == [
        exported.one(name).end_time for name in ("ranking", "invoke_agent booking")
    ]


def test_requests_of_other_instrumentations_reach_only_the_sinks_if_another_processor_exports(
    exported: Exported, install: Install
) -> None:
    kept = RecordingSink()
    provider = install(exported.processor(), goldspan.ScoringProcessor(GOLDENS, sinks=[kept]))
    agent = {"gen_ai.operation.name": "invoke_agent", "goldspan.golden.id": "book"}
    with provider.get_tracer("other").start_as_current_span("agent", attributes=agent):
        search("Paris")
    (evaluation,) = kept.evaluations
    assert evaluation.run.tools_used == ("search",)
    assert "goldspan.tools_used" not in exported.attributes("agent")


def test_a_request_that_ends_while_another_one_ends_is_scored_too(install: Install) -> None:
    other = {"gen_ai.operation.name": "invoke_agent", "goldspan.golden.id": "rank"}

    class EndingAnother(SpanProcessor):
        """Ends the request of another instrumentation between the results and the end of a decorated request."""

        def on_end(self, span: ReadableSpan) -> None:
            if span.name == "invoke_agent booking":
                trace.get_tracer("other").start_span("other agent", context=Context(), attributes=other).end()

    kept = RecordingSink()
    install(EndingAnother(), goldspan.ScoringProcessor(GOLDENS, sinks=[kept]))
    booking("A hotel!", search)
    assert [evaluation.run.golden_id for evaluation in kept.evaluations] == ["book", "rank"]


def test_a_processor_ignores_spans_of_another_provider(exported: Exported, install: Install) -> None:
    kept = RecordingSink()
    goldspan.ScoringProcessor(GOLDENS, sinks=[kept])
    install(exported.processor())
    booking("A hotel!", search)
    assert kept.evaluations == []
    assert "goldspan.tools_used" not in exported.attributes("invoke_agent booking")


class RecordOnly(Sampler):
    """Records everything and samples nothing."""

    def should_sample(self, *args: Any, **kwargs: Any) -> SamplingResult:
        return SamplingResult(Decision.RECORD_ONLY, args[4] if len(args) > 4 else kwargs.get("attributes"))

    def get_description(self) -> str:
        return "record only"


def test_spans_that_are_recorded_but_not_sampled_are_scored_and_not_exported(install: Install) -> None:
    kept, exporter = RecordingSink(), InMemorySpanExporter()
    install(goldspan.ScoringProcessor(GOLDENS, sinks=[kept], then=SimpleSpanProcessor(exporter)), sampler=RecordOnly())
    booking("A hotel!", search, book)
    (evaluation,) = kept.evaluations
    assert evaluation.passed
    assert exporter.get_finished_spans() == ()


# --- errors stay internal ---------------------------------------------------------------------------------------------


class Raising:
    def submit(self, evaluation: Evaluation) -> None:
        raise OSError("disk full")


def _broken_metric(seen: object) -> float:
    raise KeyError("city")


class BrokenGoldens(Goldens):
    def find_with_reason(self, run: goldspan.Run) -> Any:
        if run.span_id is not None:
            raise RuntimeError("no lookup")
        return None, ""


@pytest.mark.parametrize(
    ("options", "tells"),
    [
        pytest.param({"goldens": GOLDENS, "sinks": [Raising()]}, "submit to Raising", id="sink"),
        pytest.param({"goldens": BrokenGoldens(), "sinks": []}, "score", id="golden"),
    ],
)
@pytest.mark.parametrize("wrapping", [True, False])
def test_internal_errors_are_logged_once_and_do_not_reach_the_application(
    exported: Exported,
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
    tells: str,
    wrapping: bool,
) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    if wrapping:
        install(goldspan.ScoringProcessor(**options, then=exported.processor()))
    else:
        install(exported.processor(), goldspan.ScoringProcessor(**options))
    for _ in range(3):
        assert booking("A hotel!", search) == "done"
    assert exported.names == ["execute_tool search", "invoke_agent booking"] * 3
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert tells in record.getMessage()
    assert sum(_guard.failure_counts.values()) == 3


def test_a_failing_metric_yields_a_score_with_an_error(exported: Exported, install: Install) -> None:
    kept = RecordingSink()
    metrics = [("broken", _broken_metric), "tool_recall"]
    install(goldspan.ScoringProcessor(GOLDENS, metrics=metrics, sinks=[kept], then=exported.processor()))
    booking("A hotel!", search, book)
    (evaluation,) = kept.evaluations
    broken, recall = evaluation.scores
    assert (broken.value, recall.value) == (None, 1.0)
    assert "KeyError" in str(broken.error)
    assert exported.attributes("invoke_agent booking")["goldspan.score.tool_recall"] == 1.0


class RaisingProcessor(SpanProcessor):
    def on_start(self, span: Span, parent_context: object = None) -> None:
        raise OSError("start")


def test_a_provider_that_fails_to_start_spans_does_not_stop_the_function(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    install(RaisingProcessor())
    assert search("Paris") == "hotels in Paris"
    assert _guard.failure_counts["open a span for a decorated function"] == 1


# --- the span processor interface -------------------------------------------------------------------------------------


class RecordingProcessor(SpanProcessor):
    """Records the calls that it receives."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_start(self, span: Span, parent_context: object = None) -> None:
        self.calls.append("start")

    def _on_ending(self, span: Span) -> None:
        self.calls.append("ending")

    def on_end(self, span: ReadableSpan) -> None:
        self.calls.append("end")

    def shutdown(self) -> None:
        self.calls.append("shutdown")

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        self.calls.append(f"flush {timeout_millis}")
        return False


def test_all_processor_calls_are_forwarded_to_the_downstream_processor(install: Install) -> None:
    behind = RecordingProcessor()
    processor = goldspan.ScoringProcessor(then=behind)
    provider = install(processor)
    search("Paris")
    assert processor.force_flush(5) is False
    provider.shutdown()
    assert [call.split()[0] for call in behind.calls] == ["start", "ending", "end", "flush", "shutdown"]


def test_force_flush_succeeds_without_a_downstream_processor(install: Install) -> None:
    processor = goldspan.ScoringProcessor()
    install(processor)
    search("Paris")
    assert processor.force_flush() is True


def test_decorated_spans_are_unchanged_after_shutdown(exported: Exported, install: Install) -> None:
    processor = goldspan.ScoringProcessor(GOLDENS)
    install(exported.processor(), processor)
    processor.shutdown()
    booking("A hotel!", search)
    assert "goldspan.tools_used" not in exported.attributes("invoke_agent booking")


@pytest.mark.parametrize("background", [True, False])
def test_no_run_is_scored_after_shutdown(install: Install, background: bool) -> None:
    evaluations: list[Evaluation] = []
    processor = goldspan.ScoringProcessor(GOLDENS, sinks=[evaluations.append], background=background)
    install(processor)
    booking("A hotel!", search)
    processor.shutdown()
    assert len(evaluations) == 1
    booking("A hotel!", search)
    processor.renew()  # as in a child that was forked afterwards
    booking("A hotel!", search)
    assert processor.force_flush()
    processor.shutdown()
    assert len(evaluations) == 1
    assert len(processor._scorer) == 0


def test_an_exporter_is_wrapped_in_a_batch_processor(exported: Exported, install: Install) -> None:
    processor = goldspan.ScoringProcessor(GOLDENS, then=exported.exporter)
    assert isinstance(processor._downstream, BatchSpanProcessor)
    install(processor)
    booking("A hotel!", search)
    assert exported.names == []
    assert processor.force_flush()
    assert exported.names == ["execute_tool search", "invoke_agent booking"]


@forking
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_starts_with_an_empty_scorer(exported: Exported, install: Install) -> None:
    processor = goldspan.ScoringProcessor(GOLDENS, then=exported.processor())
    install(processor)
    with trace.get_tracer("app").start_as_current_span("open in the parent"):
        scorer = processor._scorer
        scorer._lock.acquire()  # as if another thread held it
        child_is_fresh = fork(lambda: len(scorer) == 0 and scorer._lock.acquire(timeout=1))
        scorer._lock.release()
        assert child_is_fresh()
        assert len(scorer) == 1


def test_spans_of_evicted_traces_are_still_exported(exported: Exported, install: Install) -> None:
    provider = install(goldspan.ScoringProcessor(GOLDENS, then=exported.processor(), limits=Limits(max_traces=1)))
    tracer = provider.get_tracer("app")
    first = tracer.start_span("first")
    booking("A hotel!", search)
    first.end()
    assert exported.names == ["execute_tool search", "invoke_agent booking", "first"]
    assert exported.one("first").status.status_code is StatusCode.UNSET


# --- configuration ----------------------------------------------------------------------------------------------------


def _numbers() -> Iterator[Any]:
    yield 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"then": "http://localhost"}, "not str", id="then is no exporter"),
        pytest.param({"metrics": ["tool_corectness"]}, "tool_corectness", id="unknown metric"),
        pytest.param({"thresholds": {"tool_recal": 1.0}}, "tool_recal", id="threshold of an unknown metric"),
        pytest.param({"goldens": "no/such/file.yaml"}, "no/such/file.yaml", id="missing file"),
        pytest.param({"goldens": 3}, "not int", id="goldens of a wrong type"),
        pytest.param({"goldens": _numbers()}, "not int", id="goldens of a wrong type, listed"),
        pytest.param({"goldens": [GOLDENS[0], "goldens.yaml"]}, "not a mixture", id="goldens of two types"),
        pytest.param({"goldens": b"goldens.yaml"}, "not bytes", id="a path as bytes"),
        pytest.param({"sinks": ["events"]}, "the sink 'events' is a name", id="a sink that cannot take anything"),
        pytest.param({"units": ["trace"]}, "'trace'", id="an unknown unit"),
        pytest.param({"units": []}, "none", id="no unit"),
        pytest.param({"units": "request"}, "units= must be a list, not 'request'", id="a unit that is no list"),
        pytest.param({"metrics": "tool_recall"}, "metrics= must be a list, not 'tool_recall'", id="a metric"),
        pytest.param({"golden_id_attributes": "id"}, "golden_id_attributes= must be a list", id="an attribute"),
        pytest.param({"thresholds": 1}, "thresholds= must be a mapping of metrics to numbers, not 1", id="a threshold"),
        pytest.param(
            {"unknown": 1}, "unknown= must be 'not_evaluated' or 'ignore' or 'fail', not 1", id="unknown, a number"
        ),
        pytest.param({"unknown": "pass"}, "or 'fail', not 'pass'", id="unknown, another word"),
        pytest.param({"sinks": print}, "sinks= must be a list, not <built-in", id="a sink that is no list"),
        pytest.param({"redact": True}, "redact= must be a function of an evaluation, not True", id="no redaction"),
        pytest.param({"sampling": 0.1}, "sampling= must be a Sampling, not 0.1", id="a rate for a sampling"),
        pytest.param(
            {"export": 0.1, "then": SimpleSpanProcessor(InMemorySpanExporter())},
            "export= must be an ExportSampling, not 0.1",
            id="a rate for what is exported",
        ),
        pytest.param({"limits": {"idle": 1}}, "limits= must be a Limits", id="limits as a mapping"),
        pytest.param({"limits": None}, "limits= must be a Limits, not None", id="no limits"),
        pytest.param({"logger_provider": 5}, "logger_provider= must be a logger provider, not 5", id="no logger"),
        pytest.param({"meter_provider": 5}, "meter_provider= must be a meter provider, not 5", id="no meter"),
        pytest.param({"background": "x"}, "background= must be True or False, not 'x'", id="no switch"),
        pytest.param({"threads": 3}, "threads= must be True or False, not 3", id="a number for a switch"),
        pytest.param({"attributes": "no"}, "attributes= must be True or False, not 'no'", id="a word for a switch"),
        pytest.param({"budget": 0}, "budget= must be a number of seconds above 0, not 0", id="no time"),
        pytest.param({"reload": "1s"}, "reload= must be a number of seconds above 0, not '1s'", id="a time as text"),
    ],
)
def test_an_invalid_argument_of_the_processor_is_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(goldspan.GoldspanError, match=message):
        goldspan.ScoringProcessor(**options)


@pytest.mark.parametrize("many", [False, True])
def test_goldens_can_be_given_as_file_paths(exported: Exported, install: Install, tmp_path: Path, many: bool) -> None:
    path = tmp_path / "goldens.yaml"
    path.write_text("goldens: [{id: book, tools: [search, book]}]")
    install(goldspan.ScoringProcessor([path] if many else str(path), then=exported.processor()))
    booking("A hotel!", search, book)
    assert exported.attributes("invoke_agent booking")["goldspan.score.tool_recall"] == 1.0


def test_goldens_from_code_do_not_need_the_module_for_file_reloading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half = ModuleType("goldspan.goldens.golden_files.hot_reload")  # as during its import
    monkeypatch.setitem(sys.modules, half.__name__, half)
    goldspan.ScoringProcessor(GOLDENS).shutdown()


def test_evaluation_spans_are_forwarded_and_not_scored(exported: Exported, install: Install) -> None:
    processor = goldspan.ScoringProcessor(GOLDENS, then=exported.processor(), sinks=[goldspan.sinks.SpanSink()])
    install(processor)
    booking("A hotel!", search)
    assert exported.names == ["execute_tool search", "evaluate request", "invoke_agent booking"]
    assert processor._scorer.counts == AssemblyCounts()
    assert len(processor._scorer) == 0
