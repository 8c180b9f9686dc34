"""Tools without the context of their request are joined to it by conversation id, live as in files."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Span

import goldspan
from goldspan import Evaluation, Limits, semconv
from goldspan.capture.sdk_spans import to_span_record


class Application:
    """Starts agents and tools in unrelated traces."""

    def __init__(self, **limits: float) -> None:
        self.exporter, self.evaluations = InMemorySpanExporter(), list[Evaluation]()
        self.processor = goldspan.ScoringProcessor(
            then=SimpleSpanProcessor(self.exporter),
            sinks=[self.evaluations.append],
            limits=Limits(**limits),  # type: ignore[arg-type]
        )
        self.provider = TracerProvider()
        self.provider.add_span_processor(self.processor)

    def begin(self, name: str, session: str | None) -> Span:
        operation = semconv.INVOKE_AGENT if name == "agent" else semconv.EXECUTE_TOOL
        attributes = {semconv.OPERATION: operation, semconv.AGENT_NAME: "a", semconv.TOOL_NAME: name}
        if session is not None:
            attributes[semconv.CONVERSATION_ID] = session
        return self.provider.get_tracer("app").start_span(name, Context(), attributes=attributes)

    def call(self, tool: str, session: str | None) -> None:
        self.begin(tool, session).end()

    @property
    def latest(self) -> list[tuple[str, tuple[str, ...], int, int]]:
        """The latest revision of each run, in order: agent, tools, joined traces, revision."""
        latest = {evaluation.run.run_id: evaluation for evaluation in self.evaluations}.values()
        ordered = sorted(latest, key=lambda evaluation: evaluation.run.start_ns or 0)
        return [(str(each.run.agent), each.run.tools_used, each.health.stitched, each.revision) for each in ordered]

    @property
    def from_file(self) -> list[tuple[str, tuple[str, ...], int]]:
        """The same, extracted from a file of all spans."""
        runs = goldspan.extract([to_span_record(span) for span in self.exporter.get_finished_spans()])
        return [(str(run.agent), run.tools_used, run.health.stitched) for run in runs]


@pytest.fixture
def application() -> Iterator[Application]:
    made = Application()
    yield made
    made.provider.shutdown()


def test_a_detached_tool_joins_the_request_of_its_conversation_that_is_in_progress(application: Application) -> None:
    agent = application.begin("agent", "talk")
    application.call("search", "talk")
    application.call("book", "talk")
    assert application.evaluations == []
    agent.end()
    assert application.latest == [("a", ("search", "book"), 2, 1)]
    assert [run[:3] for run in application.latest] == application.from_file


def test_a_detached_tool_that_ends_after_its_request_creates_a_revision(application: Application) -> None:
    agent = application.begin("agent", "talk")
    search = application.begin("search", "talk")
    agent.end()
    assert application.latest == [("a", (), 0, 1)]
    search.end()
    assert application.latest == [("a", ("search",), 1, 2)]
    assert [run[:3] for run in application.latest] == application.from_file


def test_a_late_span_of_the_request_keeps_its_detached_tools(application: Application) -> None:
    agent = application.begin("agent", "talk")
    application.call("search", "talk")
    agent.end()
    from opentelemetry.trace import set_span_in_context

    attributes = {semconv.OPERATION: semconv.EXECUTE_TOOL, semconv.TOOL_NAME: "notify"}
    application.provider.get_tracer("app").start_span("n", set_span_in_context(agent), attributes=attributes).end()
    application.processor.force_flush()
    assert application.latest == [("a", ("search", "notify"), 1, 2)]
    assert [run[:3] for run in application.latest] == application.from_file


def test_a_detached_tool_joins_only_the_active_request_of_several_in_a_conversation(application: Application) -> None:
    for tools in (("search",), ("book", "pay"), ()):
        agent = application.begin("agent", "talk")
        for tool in tools:
            application.call(tool, "talk")
        agent.end()
    assert [run[1] for run in application.latest] == [("search",), ("book", "pay"), ()]
    assert [run[:3] for run in application.latest] == application.from_file


@pytest.mark.parametrize("session", [None, "another"])
def test_a_detached_tool_without_a_matching_request_is_a_separate_request(session: str | None) -> None:
    application = Application(idle=0.2)
    agent = application.begin("agent", "talk")
    application.call("search", session)
    agent.end()
    until = time.monotonic() + 30
    while len(application.evaluations) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    assert sorted(run[1] for run in application.latest) == [(), ("search",)]
    assert sorted(run[:3] for run in application.latest) == sorted(application.from_file)
    application.provider.shutdown()


def test_a_detached_tool_that_waits_for_a_request_is_scored_at_shutdown(application: Application) -> None:
    application.call("search", "talk")
    assert application.evaluations == []
    application.provider.shutdown()
    assert [run[1] for run in application.latest] == [("search",)]
