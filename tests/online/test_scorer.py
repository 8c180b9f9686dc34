"""`Scorer`: spans of a live process become evaluations and counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goldspan import Evaluation, Run, extract
from goldspan.model import SpanRecord
from goldspan.online import AssemblyCounts, BackgroundWorker, Limits, Pipeline, Scorer
from goldspan.online.sampling import Sampling, SamplingRule
from goldspan.otlp import read_records
from goldspan.sinks import DropCounters
from support.metric_readers import Meter
from support.span_builders import agent, inside, span, tool, trace_id

FIXTURES = Path(__file__).parent.parent / "fixtures"
STITCHED = {
    "copilot-cli-async",
    "langfuse-openai-one-trace",
    "traceloop-cohere-retry",
    "traceloop-langgraph-js-parallel",
}
"""Requests joined only by their messages: ended spans cannot be joined live."""


def _recorded() -> dict[str, Path]:
    """Recordings that need no logs, by name."""
    found = [*(FIXTURES / "families").glob("*.pb.gz"), *(FIXTURES / "families").glob("*.jsonl.gz")]
    found += (FIXTURES / "captures").iterdir()
    logs = {path.name.partition(".")[0] for path in found if ".logs." in path.name}
    names = {path.name.partition(".")[0]: path for path in sorted(found)}
    return {name: path for name, path in names.items() if name not in logs | STITCHED}


RECORDED = _recorded()


class Live:
    """A scorer with its evaluations and counters."""

    def __init__(self, *, limits: Limits | None = None, **options: Any) -> None:
        self.meter = Meter()
        self.evaluations: list[Evaluation] = []
        self.pipeline = Pipeline(sinks=[self], **options)
        self.scorer: Scorer[SpanRecord] = Scorer(
            self.pipeline, lambda live: live, limits or Limits(), DropCounters(self.meter.provider)
        )

    def submit(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)

    def start(self, record: SpanRecord) -> None:
        parent = None if record.parent_id is None else int(record.parent_id, 16)
        live = replace(record, end_ns=None)
        self.scorer.start_span(int(record.trace_id, 16), int(record.span_id, 16), parent, live)

    def end(self, record: SpanRecord) -> list[Evaluation]:
        return self.scorer.end_span(int(record.trace_id, 16), int(record.span_id, 16), record)

    def replay(self, records: Iterable[SpanRecord]) -> None:
        """Start and end spans in the order of their times; at one time, parents start first and end last."""
        by_id = {record.span_id: record for record in records}
        moments: list[tuple[int, bool, int, str]] = []
        for record in by_id.values():
            depth = _depth(record, by_id)
            moments.append((record.start_ns or 0, False, depth, record.span_id))
            moments.append((record.end_ns or 0, True, -depth, record.span_id))
        for _, is_end, _, span_id in sorted(moments):
            if is_end:
                self.end(by_id[span_id])
            else:
                self.start(by_id[span_id])

    @property
    def latest(self) -> list[Run]:
        return list({evaluation.run.run_id: evaluation.run for evaluation in self.evaluations}.values())


def _depth(record: SpanRecord, by_id: dict[str, SpanRecord]) -> int:
    parent = by_id.get(record.parent_id or "")
    return 0 if parent is None else 1 + _depth(parent, by_id)


# --- recorded applications --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECORDED)
def test_replayed_recordings_yield_the_same_runs_live_as_from_the_file(name: str) -> None:
    live, records = Live(units=("request",)), list(read_records([RECORDED[name]]))
    live.replay([record for record in records if isinstance(record, SpanRecord)])
    live.scorer.release_all()
    from_file = {run.run_id: (run.tool_calls, run.input, run.output) for run in extract(records)}
    assert {run.run_id: (run.tool_calls, run.input, run.output) for run in live.latest} == from_file
    counts = live.scorer.counts
    assert counts == AssemblyCounts(late=counts.late)


def handoff_spans() -> list[SpanRecord]:
    """Two sibling agents; the first hands over to the second."""
    root = span("workflow")
    first = agent("triage", **inside(root))
    asked = tool("search", **inside(first))
    handoff = span("handoff", gen_ai__operation__name="handoff", gen_ai__handoff__to_agent="billing", **inside(first))
    second = agent("billing", **inside(root))
    paid = tool("pay", **inside(second))
    ends = {each.span_id: each for each in (root, first, second)}
    last = (paid.end_ns or 0) + 3
    ends[root.span_id] = replace(root, end_ns=last)
    ends[first.span_id] = replace(first, end_ns=(handoff.end_ns or 0) + 1)
    ends[second.span_id] = replace(second, end_ns=last - 1)
    return [*ends.values(), asked, handoff, paid]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="scored"),
        pytest.param({"redact": lambda _: None}, id="nothing may leave"),
        pytest.param({"sampling": Sampling(0)}, id="not sampled"),
    ],
)
def test_a_handoff_is_recognized_even_if_the_run_is_redacted_or_not_sampled(options: dict[str, Any]) -> None:
    seen: list[Run] = []
    live, spans = Live(units=("request",), **options), handoff_spans()
    conclude = live.pipeline.evaluate_spans

    def listening(assembled: Any, tell: Callable[[Run], object]) -> list[Evaluation]:
        return conclude(assembled, lambda run: (tell(run), seen.append(run)))

    live.pipeline.evaluate_spans = listening  # type: ignore[method-assign,assignment]
    live.replay(spans)
    (whole,) = extract(spans)
    assert {run.run_id for run in seen} == {whole.run_id}
    assert [evaluation.revision for evaluation in live.evaluations] == ([1, 2] if not options else [])
    if not options:
        assert live.evaluations[-1].run.tool_calls == whole.tool_calls


# --- counters ---------------------------------------------------------------------------------------------------------


def test_each_dropped_or_irregular_span_is_counted_once() -> None:
    sampling = Sampling(1, [SamplingRule(0, agent="tester")])
    live = Live(limits=Limits(max_spans=4, settle=0), sampling=sampling)
    root = agent()
    late = tool("search", **inside(root))
    live.start(root)
    live.start(late)
    live.end(root)
    live.end(late)  # late
    live.end(late)  # a duplicate
    live.end(tool("search", trace_id=trace_id(9)))  # its start was never seen
    tested = agent("tester", trace_id=trace_id(1))
    live.start(tested)
    live.end(tested)  # sampled out
    live.scorer.record_shed(int(trace_id(2), 16))  # unscored
    live.scorer.check_deadlines()
    for number in range(3, 8):  # one too many
        live.start(agent(trace_id=trace_id(number)))
    live.scorer.check_deadlines(everything=True)
    expected = {
        "goldspan.spans.late": 1,
        "goldspan.spans.duplicate": 1,
        "goldspan.spans.too_late": 1,
        "goldspan.runs.sampled_out": 1,
        "goldspan.spans.unscored": 1,
        "goldspan.traces.evicted": 1,
        "goldspan.runs.calls_invisible": 1,
    }
    for _ in range(2):
        assert {name: live.meter.counts(name)[()] for name in expected} == expected
        assert set(live.meter.metrics()) == set(expected)
        live.scorer.check_deadlines(everything=True)
    assert live.scorer.counts.late == 1
    assert len(live.scorer) == 4
    live.scorer.release_all()
    assert live.meter.counts("goldspan.runs.unended") == {(): 4}
    assert len(live.scorer) == 0


def test_the_first_and_the_last_traces_with_dropped_spans_are_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goldspan.online.scorer._MAX_SHED_TRACES", 3)
    live = Live()
    for number in range(1, 11):
        live.scorer.record_shed(int(trace_id(number), 16))
        live.scorer.record_shed(int(trace_id(number), 16), spans=0)
    for number in (1, 2, 3, 9, 10, 11):
        live.start(record := agent(trace_id=trace_id(number)))
        live.end(record)
    live.scorer.release_all()
    assert [evaluation.run.trace_ids for evaluation in live.evaluations] == [(trace_id(11),)]
    assert live.meter.counts("goldspan.spans.unscored") == {(): 15}  # 10 dropped, 5 of the same traces


def test_reset_clears_all_state_for_a_forked_child() -> None:
    live = Live(units=("conversation",))
    request = agent(gen_ai__conversation__id="c")
    live.start(request)
    assert live.scorer.is_in_flight(int(request.trace_id, 16), int(request.span_id, 16))
    with live.scorer._lock, live.pipeline._reload_lock, live.pipeline._sessions._lock:  # type: ignore[union-attr]
        live.scorer.reset()  # as in a forked child whose parent held the locks
    assert not live.scorer.is_in_flight(int(request.trace_id, 16), int(request.span_id, 16))
    live.start(request)
    live.end(request)
    assert [evaluation.revision for evaluation in live.evaluations] == [1]


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_run_that_never_ends_is_scored_when_its_deadline_is_checked() -> None:
    live = Live(limits=Limits(idle=0.2))
    evaluated = threading.Event()
    live.submit = lambda evaluation: (live.evaluations.append(evaluation), evaluated.set())  # type: ignore[method-assign,assignment,func-returns-value]
    worker: BackgroundWorker[SpanRecord] = BackgroundWorker(live.start, live.scorer.check_deadlines)
    request = agent()
    worker.put(request)
    worker.put(tool("search", **inside(request)))
    assert evaluated.wait(60)
    (evaluation,) = live.evaluations
    assert (evaluation.run.tools_used, evaluation.run.health.unended) == (("search",), 2)
    for _ in range(6_000):
        if live.meter.counts("goldspan.runs.unended"):
            break
        time.sleep(0.01)
    assert live.meter.counts("goldspan.runs.unended") == {(): 1}
    worker.stop(60)
