"""The spans of a case are captured beside any tracer provider, and become a run as in a trace file."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry import trace as otel_trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import goldspan
from goldspan import ExpectedTool, Golden, Goldens, Run, evaluate, extract
from goldspan.capture.sdk_spans import to_span_record
from goldspan.testing.span_capture import CaseSpans, SpanCapture, call_in_case, span_capture


@goldspan.trace
def search() -> None: ...


@goldspan.trace
def book() -> None: ...


@goldspan.trace(kind="agent")
def planner(text: str) -> None:
    search()


@pytest.fixture
def capture() -> Iterator[SpanCapture]:
    found = span_capture()
    yield found
    assert found._running == []


def run_case(capture: SpanCapture, agent: Callable[[], Any], grace: float = 1.0) -> Run:
    case = capture.begin_case("example", golden_id="example")
    try:
        call_in_case(case, agent)
        case.end_root()
        case.wait_for_spans(grace)
        return case.build_run("example", "Do it.")
    finally:
        capture.finish_case(case)


def test_a_process_has_one_capture() -> None:
    assert span_capture() is span_capture()


def test_decorated_tools_without_an_agent_are_one_request(capture: SpanCapture) -> None:
    run = run_case(capture, lambda: (search(), book()))
    assert run.unit == "request"
    assert run.tools_used == ("search", "book")
    assert (run.golden_id, run.input) == ("example", "Do it.")
    assert run.health.is_clean


def test_the_outermost_agent_is_the_request(capture: SpanCapture) -> None:
    run = run_case(capture, lambda: planner("Plan it."))
    assert (run.agent, run.input, run.golden_id) == ("planner", "Plan it.", "example")
    assert run.tools_used == ("search",)


def test_several_agents_one_after_the_other_are_merged_as_a_conversation_is(capture: SpanCapture) -> None:
    run = run_case(capture, lambda: (planner("Plan it."), book(), planner("Again.")))
    assert run.unit == "conversation"
    assert run.tools_used == ("search", "book", "search")
    assert run.session_id is None


def test_without_calls_the_run_is_the_case_itself(capture: SpanCapture) -> None:
    run = run_case(capture, lambda: None)
    assert run.tools_used == ()
    assert run.input == "Do it."
    assert not run.health.calls_invisible


NO_TOOLS = """
import goldspan
from goldspan import Golden
def agent(text): pass
(case,) = goldspan.evaluate_agent(agent, [Golden("a", "Hi.")]).cases
print(case.outcome, case.reason)
@goldspan.trace
def tool(): pass
(case,) = goldspan.evaluate_agent(agent, [Golden("a", "Hi.")]).cases
print(case.outcome)
"""


def run_program(code: str, **environment: str) -> list[str]:
    variables = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", env=variables, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_that_no_tool_was_called_is_known_only_if_tools_are_decorated() -> None:
    without, with_tool = run_program(NO_TOOLS)
    assert without.startswith("not_evaluated")
    assert with_tool == "passed"


def test_spans_in_traces_of_their_own_belong_to_the_case(capture: SpanCapture) -> None:
    def agent() -> None:
        tracer = otel_trace.get_tracer("framework")
        for name in ("search", "book"):
            attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
            tracer.start_span(name, context=Context(), attributes=attributes).end()

    assert run_case(capture, agent).tools_used == ("search", "book")


def in_thread_without_context(function: Callable[[], None]) -> None:
    """Run a function in a thread that has no OpenTelemetry context, as a pool does that was started before."""
    token = attach(Context())
    try:
        thread = threading.Thread(target=function)
        thread.start()
    finally:
        detach(token)
    thread.join(10)


def test_a_span_without_context_belongs_to_the_only_case(capture: SpanCapture) -> None:
    run = run_case(capture, lambda: in_thread_without_context(search))
    assert run.tools_used == ("search",)


def test_a_span_without_context_belongs_to_none_of_several_cases_and_is_counted(capture: SpanCapture) -> None:
    first, second = capture.begin_case("first"), capture.begin_case("second")
    try:
        call_in_case(first, lambda: in_thread_without_context(search))
        assert (first.unattributed, second.unattributed) == (1, 1)
        for case in (first, second):
            case.end_root()
            assert case.build_run().tools_used == ()
    finally:
        capture.finish_case(first)
        capture.finish_case(second)


def test_a_span_without_context_in_a_known_trace_belongs_to_the_case_of_the_trace(capture: SpanCapture) -> None:
    first, second = capture.begin_case("first"), capture.begin_case("second")
    parent: list[Context] = []

    def remember() -> None:
        span = otel_trace.get_tracer("app").start_span("parent")
        parent.append(otel_trace.set_span_in_context(span, Context()))
        span.end()

    try:
        call_in_case(first, remember)
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "late"}
        otel_trace.get_tracer("app").start_span("late", context=parent[0], attributes=attributes).end()
        assert first.build_run().tools_used == ("late",)
        assert second.build_run().tools_used == ()
        assert first.unattributed == 0
    finally:
        for case in (first, second):
            case.end_root()
            capture.finish_case(case)


def test_while_an_abandoned_agent_runs_no_span_is_attributed_without_proof(capture: SpanCapture) -> None:
    still_runs = [True]
    capture.finish_case(capture.begin_case("abandoned"), still_runs=lambda: still_runs[0])
    assert run_case(capture, lambda: in_thread_without_context(search)).tools_used == ()
    still_runs[0] = False
    assert run_case(capture, lambda: in_thread_without_context(search)).tools_used == ("search",)


def test_spans_outside_of_all_cases_are_ignored(capture: SpanCapture) -> None:
    search()
    assert run_case(capture, book).tools_used == ("book",)


def test_late_spans_of_a_finished_case_are_counted_and_reach_no_other_case(capture: SpanCapture) -> None:
    first = capture.begin_case("first")
    span = call_in_case(first, lambda: otel_trace.get_tracer("app").start_span("slow"))
    first.end_root()
    first.wait_for_spans(0.01)
    assert first.has_open_spans
    capture.finish_case(first)
    before = capture.late_spans
    span.end()
    assert run_case(capture, lambda: call_in_case(first, search)).tools_used == ()
    assert capture.late_spans == before + 2


def test_a_span_that_does_not_end_makes_the_run_unended(capture: SpanCapture) -> None:
    def agent() -> None:
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
        otel_trace.get_tracer("app").start_span("search", attributes=attributes)

    run = run_case(capture, agent, grace=0.01)
    assert run.tools_used == ("search",)
    assert run.health.unended == 1


# --- providers --------------------------------------------------------------------------------------------------------


def test_a_provider_that_the_agent_creates_is_captured_once(capture: SpanCapture) -> None:
    def agent() -> None:
        provider = TracerProvider()
        capture.attach_to(provider)
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
        provider.get_tracer("framework").start_span("search", attributes=attributes).end()

    assert run_case(capture, agent).tools_used == ("search",)


def test_two_providers_that_share_a_span_processor_count_a_span_once(capture: SpanCapture) -> None:
    case = capture.begin_case("twice")
    provider: Any = otel_trace.get_tracer_provider()
    provider.add_span_processor(capture)  # as a wrapper of a provider does, which forwards `add_span_processor`
    try:
        call_in_case(case, search)
        case.end_root()
        assert case.build_run().tools_used == ("search",)
        assert not case.has_open_spans
    finally:
        capture.finish_case(case)


@pytest.mark.parametrize("slots", [(), ("__dict__", "__weakref__")], ids=["slots", "no slots"])
def test_a_wrapper_of_a_provider_may_be_unhashable(capture: SpanCapture, slots: tuple[str, ...]) -> None:
    added: list[object] = []
    members = {"__slots__": slots, "__eq__": lambda *_: True, "add_span_processor": lambda _, each: added.append(each)}
    wrapper_type = type("Wrapper", (), members)
    first, second = wrapper_type(), wrapper_type()
    for provider in (first, second, first, second):
        capture.attach_to(provider)
    assert added == [capture, capture]


EXISTING = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import goldspan
from goldspan import ExpectedTool, Golden

exporter = InMemorySpanExporter()
def configure():
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)

@goldspan.trace
def search(): ...

def agent(text):
    if WHEN == "in the agent":
        configure()
    search()

if WHEN == "before":
    configure()
(case,) = goldspan.evaluate_agent(agent, [Golden("a", "Hi.", (ExpectedTool("search"),))]).cases
print(case.outcome)
print(sorted(span.name for span in exporter.get_finished_spans()))
"""


def test_an_existing_provider_keeps_its_exporters_and_exports_the_case_too() -> None:
    assert run_program(f"WHEN = 'before'\n{EXISTING}") == ["passed", "['case a', 'execute_tool search']"]


def test_a_provider_that_the_agent_sets_later_does_not_hide_its_tools() -> None:
    assert run_program(f"WHEN = 'in the agent'\n{EXISTING}")[0] == "passed"


NOT_RECORDING = """
import goldspan
from goldspan import Golden, GoldspanError
try:
    goldspan.evaluate_agent(print, [Golden("a", "Hi.")])
except GoldspanError as error:
    print(error)
"""
SAMPLER = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
trace.set_tracer_provider(TracerProvider(sampler=ALWAYS_OFF))
"""
FOREIGN = """
from opentelemetry import trace
trace.set_tracer_provider(trace.NoOpTracerProvider())
"""


@pytest.mark.parametrize(
    ("code", "environment", "complaint"),
    [
        (SAMPLER, {}, "the tracer provider does not record spans"),
        ("", {"OTEL_SDK_DISABLED": "true"}, "unset OTEL_SDK_DISABLED"),
        (FOREIGN, {}, "NoOpTracerProvider accepts no span processors"),
    ],
)
def test_a_provider_that_records_nothing_is_an_error(code: str, environment: dict[str, str], complaint: str) -> None:
    (line,) = run_program(code + NOT_RECORDING, **environment)
    assert complaint in line


def test_the_environment_of_exporters_does_not_sample_cases_out() -> None:
    assert run_program(f"WHEN = ''\n{EXISTING}", OTEL_TRACES_SAMPLER="always_off")[0] == "passed"


def test_a_processor_that_fails_never_reaches_the_agent(capture: SpanCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    case = capture.begin_case("broken")
    try:
        with monkeypatch.context() as broken:
            broken.setattr(CaseSpans, "add_open", fail)
            broken.setattr(CaseSpans, "add_ended", fail)
            call_in_case(case, search)
        case.end_root()
    finally:
        capture.finish_case(case)


FORKING = """
import os, signal, threading
import goldspan
from goldspan import ExpectedTool, Golden
from goldspan.testing.span_capture import span_capture

@goldspan.trace
def search(): ...

def agent(text):
    (case,) = span_capture()._running
    held, release = threading.Event(), threading.Event()

    def hold():
        with case._all_ended:
            held.set()
            release.wait(30)

    threading.Thread(target=hold).start()
    held.wait(30)
    child = os.fork()
    if not child:
        signal.alarm(20)  # ends the child if it waits for the lock that its parent holds
        search()
        os._exit(7)
    release.set()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    search()

(case,) = goldspan.evaluate_agent(agent, [Golden("a", "Hi.", (ExpectedTool("search"),), extra="penalize")]).cases
print(case.outcome)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_neither_blocks_nor_adds_spans_to_the_case() -> None:
    assert run_program(FORKING) == ["7", "passed"]


# --- one verdict ------------------------------------------------------------------------------------------------------


AGENTS: dict[str, Callable[[], Any]] = {
    "tools": lambda: (search(), book()),
    "agent": lambda: planner("Plan it."),
    "agent and tool": lambda: (planner("Plan it."), book()),
}


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
def test_exported_spans_are_evaluated_with_the_same_result_as_the_case(
    capture: SpanCapture, agent: Callable[[], Any]
) -> None:
    goldens = Goldens([Golden("example", "Do it.", (ExpectedTool("search"), ExpectedTool("pay")), order="in_order")])
    run_case(capture, agent)  # sets a tracer provider in a process that has none
    exporter = InMemorySpanExporter()
    provider: Any = otel_trace.get_tracer_provider()
    processor = SimpleSpanProcessor(exporter)
    provider.add_span_processor(processor)
    case_evaluation = evaluate(run_case(capture, agent), goldens)
    processor.shutdown()
    spans: tuple[ReadableSpan, ...] = exporter.get_finished_spans()
    (run,) = extract(map(to_span_record, spans))
    file_evaluation = evaluate(run, goldens)
    assert run.golden_id == "example"
    assert file_evaluation.match == case_evaluation.match
    assert (file_evaluation.digest, file_evaluation.scores) == (case_evaluation.digest, case_evaluation.scores)
    assert file_evaluation.reason == case_evaluation.reason
    assert replace(file_evaluation.run, input=case_evaluation.run.input) == case_evaluation.run
