"""Random scored runs, and a fixed one, for the tests of products."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from goldspan.integrations.scored_runs import VERDICT_NAME, RunScore, ScoredRun, _key

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN_ID = "00f067aa0ba902b7"
_hex = "0123456789abcdef"
_comments = st.none() | st.sampled_from(
    ("missing call: book_hotel", "x" * 6000, "Ünïcode ß 予約 🙂", "line\r\nbreak \x00 \u202eevil")
)
_metrics = ("tool_f1", "args_match", "größe", "custom metric.v2")


def a_score(run_id: str, name: str, value: float | None, label: str | None, comment: str | None = None) -> RunScore:
    """Return a score with the key that it has in a real run."""
    return RunScore(name=name, value=value, label=label, comment=comment, key=_key(run_id, name))


def a_run(run_id: str = "run-1", **changes: Any) -> ScoredRun:
    """Return a run that failed, with a score above its threshold, one without a threshold, and an unknown one."""
    run = ScoredRun(
        run_id=run_id,
        trace_id=TRACE_ID,
        span_id=SPAN_ID,
        start_ns=1_760_000_000_123_456_789,
        end_ns=1_760_000_001_000_000_000,
        revision=1,
        expected_tools=("search", "book_hotel"),
        scores=(
            a_score(run_id, VERDICT_NAME, 0.0, "fail", "missing call: book_hotel"),
            a_score(run_id, "goldspan.tool_f1", 0.666666666666, "pass", "missing call: book_hotel"),
            a_score(run_id, "goldspan.args_match", 1.0, None),
            a_score(run_id, "goldspan.order", None, "not_evaluated", "no_golden"),
        ),
        metadata={"goldspan.run.id": run_id, "goldspan.revision": 1},
    )
    return replace(run, **changes)


@st.composite
def _verdicts(draw: st.DrawFn, run_id: str) -> RunScore:
    value, label = draw(st.sampled_from(((1.0, "pass"), (0.0, "fail"), (None, "not_evaluated"))))
    return a_score(run_id, VERDICT_NAME, value, label, draw(_comments))


@st.composite
def _scores(draw: st.DrawFn, run_id: str, metric: str) -> RunScore:
    value = draw(st.none() | st.floats(0, 1))
    label = "not_evaluated" if value is None else draw(st.sampled_from(("pass", "fail", None)))
    return a_score(run_id, f"goldspan.{metric}", value, label, draw(_comments))


@st.composite
def scored_runs(draw: st.DrawFn) -> ScoredRun:
    """Draw a run as `scored_run` can return it."""
    run_id = draw(st.sampled_from([f"run-{number}" for number in range(50)] + ["lauf ß/1", "x" * 300]))
    metrics = draw(st.lists(st.sampled_from(_metrics), unique=True, max_size=4))
    revision = draw(st.integers(1, 3))
    golden_id = draw(st.none() | st.sampled_from(("trip", "größe")))
    span_id = draw(st.none() | st.text(_hex, min_size=16, max_size=16).filter(lambda text: text.strip("0")))
    return ScoredRun(
        run_id=run_id,
        trace_id=draw(st.text(_hex, min_size=32, max_size=32).filter(lambda text: text.strip("0"))),
        span_id=span_id,
        start_ns=draw(st.none() | st.integers(0, 2**63 - 1) | st.just(2**64 - 1)),
        end_ns=draw(st.none() | st.integers(0, 2**63 - 1)),
        revision=revision,
        expected_tools=None if golden_id is None else ("search",),
        scores=(draw(_verdicts(run_id)), *(draw(_scores(run_id, metric)) for metric in metrics)),
        metadata={"goldspan.run.id": run_id, "goldspan.unit": "request", "goldspan.revision": revision},
    )
