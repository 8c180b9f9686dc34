"""Live evaluations of any application equal the evaluations of the spans that it exports."""

from __future__ import annotations

import random
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import context
from opentelemetry.sdk.trace import Span
from opentelemetry.trace import StatusCode, Tracer, set_span_in_context

from goldspan import Evaluation, ExpectedTool, Golden
from goldspan.online import AssemblyCounts
from live.programs import AGENT, TOOL, Program, place_of
from support.laws import examples

GOLDENS = [
    Golden("team", tools=(ExpectedTool("search"), ExpectedTool("book"))),
    Golden("helper", tools=(ExpectedTool("search", {"n": 1}),)),
    Golden("ranking", component="ranking", tools=(ExpectedTool("book"),)),
    Golden("careful", forbid=("delete",), policy=True),
]
ROLES: dict[str, dict[str, Any]] = {
    "agent": {**AGENT, "gen_ai.agent.name": "helper"},
    "agent with a golden": {**AGENT, "gen_ai.agent.name": "team", "goldspan.golden.id": "team"},
    "component": {"goldspan.component.name": "ranking"},
    "bare": {},
    "search": {**TOOL, "gen_ai.tool.name": "search", "gen_ai.tool.call.arguments": '{"n": 1}'},
    "book": {**TOOL, "gen_ai.tool.name": "book"},
    "delete": {**TOOL, "gen_ai.tool.name": "delete"},
    "aside": {"gen_ai.operation.name": "create_agent"},
}


@dataclass(frozen=True)
class Step:
    """A step of a program: a span and the steps inside it."""

    role: str
    inside: tuple[Step, ...] = ()
    threaded: bool = False
    """It runs on its own thread, concurrently with the following steps, possibly after the enclosing span ended."""
    late: bool = False
    """Its span ends after all other spans."""
    fails: bool = False


def _steps(inside: st.SearchStrategy[tuple[Step, ...]]) -> st.SearchStrategy[Step]:
    return st.builds(
        Step,
        st.sampled_from(sorted(ROLES)),
        inside,
        threaded=st.booleans(),
        late=st.sampled_from([False, False, False, True]),
        fails=st.sampled_from([False, False, True]),
    )


steps = st.recursive(_steps(st.just(())), lambda inner: _steps(st.lists(inner, max_size=4).map(tuple)), max_leaves=10)
programs = st.lists(steps, min_size=1, max_size=3)


class StepRunner:
    """Runs steps and keeps the spans that have not ended."""

    def __init__(self, tracer: Tracer, chance: random.Random) -> None:
        self._tracer = tracer
        self._chance = chance
        self._late: list[Span] = []
        self._threads: list[threading.Thread] = []

    def do(self, step: Step, around: context.Context) -> None:
        """Run a step and the steps inside it."""
        span: Any = self._tracer.start_span(step.role, around, attributes=ROLES[step.role])
        here = set_span_in_context(span, around)
        for inner in step.inside:
            if inner.threaded:
                thread = threading.Thread(target=self.do, args=(inner, here))
                thread.start()
                self._threads.append(thread)
            else:
                self.do(inner, here)
        if step.fails:
            span.set_status(StatusCode.ERROR, "out of order")
        if step.late:
            self._late.append(span)
        else:
            span.end()

    def finish(self) -> None:
        """Wait for the threads, and end the remaining spans."""
        while self._threads:  # each may start more
            self._threads.pop().join()
        self._chance.shuffle(self._late)
        for span in self._late:
            span.end()


@pytest.mark.parametrize("background", [True, False], ids=["in the background", "on the thread"])
@examples(0.6)
@given(steps=programs, seed=st.integers(0, 2**32))
def test_the_last_revision_of_each_run_equals_the_evaluation_of_its_exported_spans(
    background: bool, steps: list[Step], seed: int
) -> None:
    chance = random.Random(seed)
    program = Program(GOLDENS, background=background)
    runner = StepRunner(program.tracer, chance)
    for step in steps:
        runner.do(step, context.Context())
    runner.finish()
    latest = program.latest()
    with tempfile.TemporaryDirectory() as folder:
        filed = program.from_file(Path(folder) / "traces.pb", shuffled=chance)
    # A run of its own may become part of another run when the spans of other threads arrive.
    live = {place: _comparable(each) for place, each in latest.items() if place in filed}
    assert live == {place: _comparable(each) for place, each in filed.items()}
    _revisions_are_numbered(program.evaluations)
    counts = program.processor._scorer.counts
    assert counts == AssemblyCounts(late=counts.late)
    assert len(program.processor._scorer) == 0
    program.close()


def _comparable(evaluation: Evaluation) -> tuple[Any, ...]:
    """The compared parts of an evaluation: golden, calls, verdict, scores and digest."""
    calls = [call.span_id for call in evaluation.run.tool_calls]
    golden = evaluation.golden.id if evaluation.golden else None
    return golden, calls, evaluation.passed, evaluation.scores, evaluation.digest


def _revisions_are_numbered(evaluations: list[Evaluation]) -> None:
    """Checks that the revisions of each run count from 1; concurrent threads may submit them in any order."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for each in evaluations:
        numbers.setdefault(place_of(each), []).append(each.revision)
    for found in numbers.values():
        assert sorted(found) == list(range(1, len(found) + 1))
