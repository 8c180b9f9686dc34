"""Background scoring: the application queues spans, and the results are the same as without a thread."""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, SynchronousMultiSpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, set_span_in_context

import goldspan
from capture.telemetry import Exported, Install
from goldspan import Evaluation, ExpectedTool, Golden, Limits
from goldspan.online import AssemblyCounts
from goldspan.online.sampling import ExportSampling

GOLDENS = [Golden("book", "A hotel!", tools=(ExpectedTool("search"), ExpectedTool("book")), threshold=1)]


@goldspan.trace
def search(city: str) -> str:
    return f"hotels in {city}"


@goldspan.trace
def book(hotel: str) -> str:
    return hotel


@goldspan.trace(kind="agent")
def booking(question: str) -> str:
    search("Paris")
    book("Ritz")
    return "done"


class RecordingSink:
    """A sink that records evaluations and the threads that submit them."""

    def __init__(self) -> None:
        self.evaluations: list[Evaluation] = []
        self.threads: set[str] = set()
        self.waiting = threading.Event()
        self.waiting.set()

    def submit(self, evaluation: Evaluation) -> None:
        self.waiting.wait(30)
        self.threads.add(threading.current_thread().name)
        self.evaluations.append(evaluation)


def test_spans_exported_in_batches_are_scored_on_the_background_thread(exported: Exported, install: Install) -> None:
    kept = RecordingSink()
    processor = goldspan.ScoringProcessor(GOLDENS, then=exported.exporter, sinks=[kept])
    install(processor)
    assert booking("A hotel!") == "done"
    assert processor.force_flush()
    assert kept.threads == {"goldspan"}
    assert [evaluation.passed for evaluation in kept.evaluations] == [True]
    assert exported.names == ["execute_tool search", "execute_tool book", "invoke_agent booking"]
    assert exported.attributes("invoke_agent booking")["goldspan.passed"] is True
    assert processor._scorer.counts == AssemblyCounts()


@pytest.mark.parametrize("background", [True, False, None])
def test_background_scoring_can_be_enabled_and_disabled(
    exported: Exported, install: Install, background: bool | None
) -> None:
    kept = RecordingSink()
    then = SimpleSpanProcessor(exported.exporter)
    processor = goldspan.ScoringProcessor(GOLDENS, then=then, sinks=[kept], background=background)
    install(processor)
    booking("A hotel!")
    assert processor.force_flush()
    assert kept.threads == {"goldspan" if background else threading.current_thread().name}
    assert exported.attributes("invoke_agent booking")["goldspan.passed"] is True


def test_scoring_is_in_the_background_only_if_all_downstream_processors_are_batching(exported: Exported) -> None:
    both = SynchronousMultiSpanProcessor()
    both.add_span_processor(BatchSpanProcessor(exported.exporter))
    for simple in (False, True):
        if simple:
            both.add_span_processor(SimpleSpanProcessor(exported.exporter))
        processor = goldspan.ScoringProcessor(then=both)
        assert processor._in_background is not simple
    processor.shutdown()


def test_the_application_never_waits_for_a_slow_sink(exported: Exported, install: Install) -> None:
    kept = RecordingSink()
    kept.waiting.clear()
    processor = goldspan.ScoringProcessor(GOLDENS, then=exported.exporter, sinks=[kept])
    install(processor)
    for _ in range(20):
        assert booking("A hotel!") == "done"
    assert not processor.force_flush(10)
    kept.waiting.set()
    assert processor.force_flush()
    assert len(kept.evaluations) == 20


def test_spans_beyond_the_queue_limit_are_exported_and_their_requests_are_not_scored(
    exported: Exported, install: Install
) -> None:
    kept = RecordingSink()
    kept.waiting.clear()
    then = BatchSpanProcessor(exported.exporter, max_queue_size=10_000)
    processor = goldspan.ScoringProcessor(GOLDENS, then=then, sinks=[kept], limits=Limits(max_queue=30))
    install(processor)
    for _ in range(50):
        booking("A hotel!")
    kept.waiting.set()
    assert processor.force_flush()
    assert len(exported.spans) == 150
    scored = len(kept.evaluations)
    assert 1 <= scored < 50
    assert all(evaluation.run.tools_used == ("search", "book") for evaluation in kept.evaluations)
    assert processor._scorer.counts.unscored == 150 - 3 * scored
    booking("A hotel!")
    assert processor.force_flush()
    assert len(kept.evaluations) == scored + 1


def test_a_request_that_was_queued_only_in_part_is_never_scored(
    exported: Exported, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goldspan.online.scorer._MAX_SHED_TRACES", 3)
    kept = RecordingSink()
    kept.waiting.clear()
    then = BatchSpanProcessor(exported.exporter, max_queue_size=10_000)
    processor = goldspan.ScoringProcessor(GOLDENS, then=then, sinks=[kept], limits=Limits(max_queue=33))
    install(processor)
    for _ in range(100):
        booking("A hotel!")
    kept.waiting.set()
    processor.shutdown()  # pending runs are scored unfinished
    assert {evaluation.run.tools_used for evaluation in kept.evaluations} == {("search", "book")}
    assert processor._scorer.counts.unscored == 300 - 3 * len(kept.evaluations)


def test_a_request_whose_end_was_not_queued_is_exported_and_never_scored(exported: Exported, install: Install) -> None:
    kept = RecordingSink()
    kept.waiting.clear()
    then = BatchSpanProcessor(exported.exporter, max_queue_size=10_000)
    processor = goldspan.ScoringProcessor(GOLDENS, then=then, sinks=[kept], limits=Limits(max_queue=30))
    install(processor)
    span = trace.get_tracer("app").start_span("invoke_agent x", attributes={"gen_ai.operation.name": "invoke_agent"})
    for _ in range(50):
        booking("A hotel!")
    span.end()
    kept.waiting.set()
    processor.shutdown()
    assert "invoke_agent x" in exported.names
    assert {evaluation.run.agent for evaluation in kept.evaluations} == {"booking"}


def test_pending_and_unfinished_requests_are_scored_at_shutdown(exported: Exported, install: Install) -> None:
    kept = RecordingSink()
    provider = install(goldspan.ScoringProcessor(GOLDENS, then=exported.exporter, sinks=[kept]))
    booking("A hotel!")
    unended = trace.get_tracer("app").start_span("invoke_agent x", attributes={"gen_ai.operation.name": "invoke_agent"})
    provider.shutdown()
    provider.shutdown()
    assert [(one.passed, one.health.unended) for one in kept.evaluations] == [(True, 0), (None, 1)]
    assert exported.attributes("invoke_agent booking")["goldspan.passed"] is True
    unended.end()


def test_a_late_span_creates_a_revision_at_the_next_flush(exported: Exported, install: Install) -> None:
    kept = RecordingSink()
    processor = goldspan.ScoringProcessor(GOLDENS, then=exported.exporter, sinks=[kept])
    install(processor)
    agents: list[SpanContext] = []

    @goldspan.trace(kind="agent")
    def hasty(question: str) -> None:
        search("Paris")
        agents.append(trace.get_current_span().get_span_context())

    hasty("A hotel!")
    here = set_span_in_context(NonRecordingSpan(agents[0]))
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "book"}
    trace.get_tracer("app").start_span("execute_tool book", here, attributes=tool).end()
    assert processor.force_flush()
    assert [(one.revision, one.passed) for one in kept.evaluations] == [(1, False), (2, True)]
    assert len({one.digest for one in kept.evaluations}) == 2
    assert processor._scorer.counts == AssemblyCounts(late=1)


def test_a_late_span_creates_a_revision_without_a_flush(exported: Exported, install: Install) -> None:
    kept = RecordingSink()
    processor = goldspan.ScoringProcessor(GOLDENS, then=exported.processor(), sinks=[kept], limits=Limits(settle=0.05))
    install(processor)
    tracer = trace.get_tracer("app")
    agent = tracer.start_span("invoke_agent x", attributes={"gen_ai.operation.name": "invoke_agent"})
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "book"}
    agent.end()
    tracer.start_span("execute_tool book", set_span_in_context(agent), attributes=tool).end()
    for _ in range(1_000):
        if len(kept.evaluations) == 2:
            break
        time.sleep(0.01)
    assert [(one.revision, one.run.tools_used) for one in kept.evaluations] == [(1, ()), (2, ("book",))]


def test_requests_on_concurrent_threads_are_scored_separately(exported: Exported, install: Install) -> None:
    kept = RecordingSink()
    processor = goldspan.ScoringProcessor(GOLDENS, then=exported.exporter, sinks=[kept])
    install(processor)

    @goldspan.trace(kind="agent")
    def serve(question: str, calls: int) -> None:
        for _ in range(calls):
            search("Paris")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: serve(f"request {number}", number % 7), range(200)))
    assert processor.force_flush()
    assert {one.run.input: len(one.run.tools_used) for one in kept.evaluations} == {
        f"request {number}": number % 7 for number in range(200)
    }
    assert len(exported.spans) == len(kept.evaluations) + sum(number % 7 for number in range(200))


class Raising(SpanProcessor):
    """Raises in `on_end`."""

    def on_end(self, span: ReadableSpan) -> None:
        raise OSError("no room")


def test_a_failing_downstream_processor_does_not_stop_background_scoring(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    kept = RecordingSink()
    processor = goldspan.ScoringProcessor(GOLDENS, then=Raising(), sinks=[kept], background=True)
    install(processor)
    for _ in range(3):
        booking("A hotel!")
    processor.force_flush()
    assert len(kept.evaluations) == 3


def test_results_reach_only_the_sinks_without_a_downstream_processor(exported: Exported, install: Install) -> None:
    kept = RecordingSink()
    processor = goldspan.ScoringProcessor(GOLDENS, sinks=[kept], background=True)
    install(exported.processor(), processor)
    booking("A hotel!")
    assert processor.force_flush()
    assert len(kept.evaluations) == 1
    assert "goldspan.passed" not in exported.attributes("invoke_agent booking")


SERVING = """
import os, sys, threading
import goldspan
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter, evaluations = InMemorySpanExporter(), []
provider = TracerProvider()
processor = goldspan.ScoringProcessor(then=exporter, sinks=[evaluations.append])
provider.add_span_processor(processor)
trace.set_tracer_provider(provider)

@goldspan.trace
def search(city): return city

@goldspan.trace(kind="agent")
def agent(question): return search("Paris")

agent("in the parent, before")
processor.force_flush()
open_in_the_parent = provider.get_tracer("app").start_span("open")
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        evaluations.clear()
        exporter.clear()
        for _ in range(5):
            agent(f"in child {number}")
        done = processor.force_flush()
        fine = done and len(evaluations) == 5 and {each.run.input for each in evaluations} == {f"in child {number}"}
        os._exit(0 if fine and len(exporter.get_finished_spans()) == 10 and len(processor._scorer) == 0 else 1)
    children.append(child)
agent("in the parent, after")
assert all(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 for child in children)
assert processor.force_flush()
assert [each.run.input for each in evaluations] == ["in the parent, before", "in the parent, after"]
print("fine")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_processes_forked_by_a_server_score_their_own_requests(tmp_path: Path) -> None:
    program = tmp_path / "serving.py"
    program.write_text(SERVING)
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", program], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "fine\n", done.stderr


ENDING = """
import goldspan
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

provider = TracerProvider()
provider.add_span_processor(
    goldspan.ScoringProcessor(then=BatchSpanProcessor(ConsoleSpanExporter(formatter=lambda span: span.name + "\\n")),
                              sinks=[lambda evaluation: print("scored", evaluation.run.input)]))
trace.set_tracer_provider(provider)

@goldspan.trace(kind="agent")
def agent(question): return "done"

agent("the last thing that is asked")
"""


def test_a_program_that_ends_without_a_shutdown_loses_no_span_or_result(tmp_path: Path) -> None:
    program = tmp_path / "ending.py"
    program.write_text(ENDING)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, check=True)
    assert sorted(done.stdout.splitlines()) == ["invoke_agent agent", "scored the last thing that is asked"]
    assert done.stderr == ""


LOSING = """
import sys
import goldspan
from opentelemetry import _logs, metrics, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import ConsoleLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

provider = TracerProvider()
provider.add_span_processor(goldspan.ScoringProcessor(then=SpanProcessor(), background=sys.argv[1] == "True"))
trace.set_tracer_provider(provider)
logs = LoggerProvider()
logs.add_log_record_processor(SimpleLogRecordProcessor(ConsoleLogRecordExporter()))
_logs.set_logger_provider(logs)
metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(ConsoleMetricExporter())]))

@goldspan.trace
def search(city): return city

@goldspan.trace(kind="agent")
def agent(question): return search("Paris")

agent("the last thing that is asked")
if sys.argv[2] == "True":
    unended = trace.get_tracer("app").start_span("invoke_agent x", attributes={"gen_ai.operation.name": "invoke_agent"})
    trace.get_tracer("app").start_span("execute_tool y", trace.set_span_in_context(unended), attributes={
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "y"}).end()
"""


@pytest.mark.e2e
@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("unended", [True, False])
def test_the_last_results_reach_providers_that_were_created_later(
    tmp_path: Path, background: bool, unended: bool
) -> None:
    """At exit, providers are shut down in the reverse order of their creation."""
    program = tmp_path / "losing.py"
    program.write_text(LOSING)
    done = subprocess.run(
        [sys.executable, program, str(background), str(unended)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.count('"gen_ai.evaluation.result"') > 0
    runs = re.findall(r'"goldspan.run.id": "([^"]+)"', done.stdout)
    assert len(set(runs)) == 1 + unended
    (count,) = re.findall(r'"goldspan.evaluations".*?"value": (\d+)', done.stdout, re.DOTALL)
    assert int(count) == 1 + unended
    assert done.stderr == ""


def test_a_processor_that_was_shut_down_has_no_exit_handler(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[object] = []
    monkeypatch.setattr(atexit, "register", registered.append)
    monkeypatch.setattr(atexit, "unregister", registered.remove)
    processor = goldspan.ScoringProcessor(sinks=[])
    provider = install(processor)
    assert registered == [provider.shutdown]
    for _ in range(2):
        booking("A hotel!")
    assert registered == [provider.shutdown, processor._finish_at_exit]
    provider.shutdown()
    assert registered == [provider.shutdown]


@pytest.mark.parametrize("background", [True, False])
def test_export_sampling_exports_whole_traces_and_all_runs_are_scored(install: Install, background: bool) -> None:
    """A trace exported at a lower rate is also exported at a higher rate."""
    exported = {rate: Exported() for rate in (0.0, 0.3, 0.7, 1.0)}
    kept = {rate: RecordingSink() for rate in exported}
    processors = [
        goldspan.ScoringProcessor(
            GOLDENS,
            then=exported[rate].processor(),
            sinks=[kept[rate]],
            export=ExportSampling(rate),
            background=background,
        )
        for rate in exported
    ]
    provider = install(*processors)
    for _ in range(100):
        booking("A hotel!")
    provider.force_flush()
    traces = {rate: {span.context.trace_id for span in each.spans} for rate, each in exported.items()}
    assert set() == traces[0.0] < traces[0.3] < traces[0.7] < traces[1.0]
    for rate, each in exported.items():
        assert len(each.spans) == 3 * len(traces[rate])
        assert [one.passed for one in kept[rate].evaluations] == [True] * 100
        assert sum("goldspan.passed" in (span.attributes or {}) for span in each.spans) == len(traces[rate])


class RecordingProcessor(SpanProcessor):
    """Records the calls that it receives."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.calls.append("start")

    def _on_ending(self, span: Span) -> None:
        self.calls.append("ending")

    def on_end(self, span: ReadableSpan) -> None:
        self.calls.append("end")

    def force_flush(self, timeout_millis: int = 0) -> bool:
        self.calls.append("flush")
        return True

    def shutdown(self) -> None:
        self.calls.append("shutdown")


@pytest.mark.parametrize(("rate", "heard"), [(0.0, []), (0.999999, ["start", "ending", "end"])])
def test_the_downstream_processor_receives_no_calls_for_spans_that_are_not_exported(
    install: Install, rate: float, heard: list[str]
) -> None:
    then = RecordingProcessor()
    processor = goldspan.ScoringProcessor(then=then, sinks=[], export=ExportSampling(rate))
    provider = install(processor)
    search("Paris")
    assert processor.force_flush()
    provider.shutdown()
    assert then.calls == [*heard, "flush", "shutdown"]


def test_export_sampling_without_a_downstream_exporter_is_rejected() -> None:
    with pytest.raises(goldspan.ConfigurationError, match="needs then="):
        goldspan.ScoringProcessor(export=ExportSampling(0.5))


@pytest.mark.parametrize("behind", [True, False])
def test_spans_are_unchanged_if_attributes_is_disabled(exported: Exported, install: Install, behind: bool) -> None:
    kept = RecordingSink()
    then = exported.processor() if behind else None
    processor = goldspan.ScoringProcessor(GOLDENS, then=then, sinks=[kept], attributes=False)
    install(processor) if behind else install(processor, exported.processor())
    booking("A hotel!")
    assert len(kept.evaluations) == 1
    assert len(exported.spans) == 3
    assert not any(key.startswith("goldspan.") for span in exported.spans for key in span.attributes or {})


def test_changed_golden_files_are_reloaded_and_invalid_ones_are_ignored(
    exported: Exported, install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    path, kept = tmp_path / "goldens.yaml", RecordingSink()

    def write(text: str) -> None:
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").replace(path)
        assert processor._scorer.pipeline._reloading is not None
        processor._scorer.pipeline._reloading.check_now()

    path.write_text("goldens: [{id: book, input: A hotel!, tools: [search]}]")
    processor = goldspan.ScoringProcessor(path, then=exported.processor(), sinks=[kept], reload=3_600)
    install(processor)
    booking("A hotel!")
    write("goldens: [{id: book, input: A hotel!, tools: [search, cancel]}]")
    booking("A hotel!")
    for broken in ("goldens: [{id: book, tols: []}]", "goldens: [{id: b, tools: [], metrics: [no_such_metric]}]"):
        write(broken)
        booking("A hotel!")
    recall = [evaluation.score("tool_recall") for evaluation in kept.evaluations]
    assert [score.value if score else None for score in recall] == [1.0, 0.5, 0.5, 0.5]
    assert processor._scorer.pipeline.reload_failures == 2
    assert [golden.id for golden in processor.goldens] == ["book"]


def test_golden_files_are_not_reloaded_if_reload_is_none(exported: Exported, install: Install, tmp_path: Path) -> None:
    path, kept = tmp_path / "goldens.yaml", RecordingSink()
    path.write_text("goldens: [{id: book, input: A hotel!, tools: [search, book]}]")
    processor = goldspan.ScoringProcessor(path, then=exported.processor(), sinks=[kept], reload=None)
    install(processor)
    path.write_text("goldens: []")
    booking("A hotel!")
    assert [golden.id for golden in processor.goldens] == ["book"]
    assert kept.evaluations[0].match is not None


def test_an_internal_error_in_on_start_does_not_propagate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    then = RecordingProcessor()
    goldspan.ScoringProcessor(then=then, sinks=[]).on_start(object())  # type: ignore[arg-type]
    assert then.calls == ["start"]
