"""Tools that lost the context of their request find it by the id of its conversation, as they do in files."""

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
from goldspan.capture.processor import to_span_record


class Application:
    """Starts agents and tools, none of which knows of the others."""

    def __init__(self, **limits: float) -> None:
        self.exporter, self.told = InMemorySpanExporter(), list[Evaluation]()
        self.processor = goldspan.ScoringProcessor(
            then=SimpleSpanProcessor(self.exporter),
            sinks=[self.told.append],
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
        """The runs as they were given out last, in order: agent, tools, traces that were joined, revision."""
        latest = {evaluation.run.run_id: evaluation for evaluation in self.told}.values()
        ordered = sorted(latest, key=lambda evaluation: evaluation.run.start_ns or 0)
        return [(str(each.run.agent), each.run.tools_used, each.health.stitched, each.revision) for each in ordered]

    @property
    def filed(self) -> list[tuple[str, tuple[str, ...], int]]:
        """The same as a file of all its spans shows it."""
        runs = goldspan.extract([to_span_record(span) for span in self.exporter.get_finished_spans()])
        return [(str(run.agent), run.tools_used, run.health.stitched) for run in runs]


@pytest.fixture
def application() -> Iterator[Application]:
    made = Application()
    yield made
    made.provider.shutdown()


def test_a_tool_of_the_same_conversation_is_part_of_the_request_that_was_at_work(application: Application) -> None:
    agent = application.begin("agent", "talk")
    application.call("search", "talk")
    application.call("book", "talk")
    assert application.told == []
    agent.end()
    assert application.latest == [("a", ("search", "book"), 2, 1)]
    assert [told[:3] for told in application.latest] == application.filed


def test_a_tool_that_ends_after_its_request_changes_it(application: Application) -> None:
    agent = application.begin("agent", "talk")
    search = application.begin("search", "talk")
    agent.end()
    assert application.latest == [("a", (), 0, 1)]
    search.end()
    assert application.latest == [("a", ("search",), 1, 2)]
    assert [told[:3] for told in application.latest] == application.filed


def test_what_else_comes_late_leaves_the_tools_where_they_are(application: Application) -> None:
    agent = application.begin("agent", "talk")
    application.call("search", "talk")
    agent.end()
    from opentelemetry.trace import set_span_in_context

    attributes = {semconv.OPERATION: semconv.EXECUTE_TOOL, semconv.TOOL_NAME: "notify"}
    application.provider.get_tracer("app").start_span("n", set_span_in_context(agent), attributes=attributes).end()
    application.processor.force_flush()
    assert application.latest == [("a", ("search", "notify"), 1, 2)]
    assert [told[:3] for told in application.latest] == application.filed


def test_of_the_requests_of_a_conversation_it_is_the_one_at_work(application: Application) -> None:
    for tools in (("search",), ("book", "pay"), ()):
        agent = application.begin("agent", "talk")
        for tool in tools:
            application.call(tool, "talk")
        agent.end()
    assert [told[1] for told in application.latest] == [("search",), ("book", "pay"), ()]
    assert [told[:3] for told in application.latest] == application.filed


@pytest.mark.parametrize("session", [None, "another"])
def test_a_tool_of_no_request_known_is_a_request_of_its_own(session: str | None) -> None:
    application = Application(idle=0.2)
    agent = application.begin("agent", "talk")
    application.call("search", session)
    agent.end()
    until = time.monotonic() + 30
    while len(application.told) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    assert sorted(told[1] for told in application.latest) == [(), ("search",)]
    assert sorted(told[:3] for told in application.latest) == sorted(application.filed)
    application.provider.shutdown()


def test_what_waits_for_a_request_is_scored_before_a_shutdown(application: Application) -> None:
    application.call("search", "talk")
    assert application.told == []
    application.provider.shutdown()
    assert [told[1] for told in application.latest] == [("search",)]
