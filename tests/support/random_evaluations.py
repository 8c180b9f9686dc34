"""Random evaluations for the tests of stores, and a reference implementation of filters over a list."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from goldspan import AnyOf, Evaluation, ExpectedTool, Golden, Parallel, Run, ToolCall, evaluate
from goldspan.store import RunFilter

HOSTILE = (
    "=1+1",
    "a\x00b",
    "\ud800half",
    "\u202eevil",
    "Ünïcode ǅ ß",
    'quo"te',
    "line\r\nbreak",
    "', 1); DROP TABLE runs; --",
)
TOOLS = ("search", "book_hotel", "bookHotel", "mail", "pay;drop", "\udc00tool")
NAMES = ("support", "travel", *HOSTILE[:4])
GOLDENS = (
    None,
    Golden("g1", tools=(ExpectedTool("search", {"q": 1}), ExpectedTool("mail"))),
    Golden("g2", tools=(AnyOf(((ExpectedTool("mail"),), (ExpectedTool("pay;drop"),))),), forbid=("book*",)),
    Golden("=g3", tools=(Parallel((ExpectedTool("Search"), ExpectedTool("book_hotel"))),), max_calls=1),
)

_calls = st.builds(
    ToolCall,
    st.sampled_from(TOOLS),
    arguments=st.none() | st.dictionaries(st.sampled_from(("q", "r")), st.integers(0, 2), max_size=2),
    result=st.none() | st.sampled_from(HOSTILE),
    error=st.none() | st.sampled_from(("KeyError: 'city'", "no room for Mr. Smith")),
    kind=st.sampled_from(("tool", "tool", "agent")),
    outcome=st.none() | st.sampled_from(("ok", "denied")),
)
_names = st.none() | st.sampled_from(NAMES)
_runs = st.builds(
    Run,
    st.sampled_from([f"run-{number}" for number in range(6)] + ["\ud800:1"]),
    unit=st.sampled_from(("request", "component")),
    trace_ids=st.lists(st.sampled_from(("a1", "b2", "c3")), max_size=3).map(tuple),
    input=st.none() | st.sampled_from(HOSTILE) | st.text(max_size=8) | st.just("x" * 1999 + "MORE"),
    session_id=_names,
    agent=_names,
    service=_names,
    environment=_names,
    tool_calls=st.lists(_calls, max_size=3).map(tuple),
    start_ns=st.none() | st.integers(0, 5) | st.just(2**64 - 1),
    end_ns=st.none() | st.integers(1, 9),
)


@st.composite
def evaluations(draw: st.DrawFn) -> Evaluation:
    """Draw an evaluation with a random revision."""
    return replace(evaluate(draw(_runs), draw(st.sampled_from(GOLDENS))), revision=draw(st.integers(1, 3)))


_roles = st.sampled_from(("called", "expected", "missing", "unexpected", "forbidden", "failed"))
filters = st.builds(
    lambda tool, **fields: RunFilter(**tool, **fields),
    tool=st.just({}) | st.fixed_dictionaries({"tool": st.sampled_from(TOOLS), "tool_role": _roles}),
    covered=st.none() | st.booleans(),
    verdict=st.none() | st.sampled_from(("pass", "fail", "not_evaluated")),
    agent=_names,
    golden=st.none() | st.sampled_from(("g1", "=g3", "no such")),
    service=_names,
    unit=st.none() | st.sampled_from(("request", "component")),
    environment=_names,
    session_id=_names,
    trace_id=st.none() | st.sampled_from(("a1", "b2", "nowhere")),
    text=st.none() | st.sampled_from(("", "UNI", "ü", "ss", "\x00", "\ud800", "xm", "%", "_")),
    since_ns=st.none() | st.integers(0, 9) | st.just(2**70),
    until_ns=st.none() | st.integers(0, 9) | st.just(2**70),
    metric=st.none() | st.sampled_from(("tool_recall", "tool_correctness", "no_such_metric")),
) | st.builds(
    RunFilter, metric=st.sampled_from(("tool_recall", "tool_f1")), below=st.sampled_from((0.0, 0.6, 1.0, 2.0))
)


@dataclass
class Kept:
    """The expected content of a store for one run."""

    time_ns: int
    evaluations: dict[tuple[int, str], Evaluation] = field(default_factory=dict)
    current: Evaluation | None = None


class Listed:
    """A reference store that keeps its runs in a list."""

    def __init__(self, now_ns: int) -> None:
        self.runs: dict[str, Kept] = {}
        self._now_ns = now_ns

    def submit(self, evaluation: Evaluation) -> None:
        run = evaluation.run
        time_ns = min(run.start_ns or run.end_ns or self._now_ns, self._now_ns)
        kept = self.runs.setdefault(utf8(run.run_id), Kept(time_ns))
        same = (evaluation.revision, evaluation.digest)
        if same in kept.evaluations:
            return
        kept.evaluations[same] = evaluation
        if kept.current is None or evaluation.revision >= kept.current.revision:
            kept.current = evaluation

    def meant(self, wanted: RunFilter) -> list[str]:
        """Return the ids of the runs that a filter selects, newest first; of equal times, the last stored first."""
        order = list(self.runs)
        found = [run_id for run_id, kept in self.runs.items() if _is_meant(kept, wanted)]
        return sorted(found, key=lambda run_id: (-self.runs[run_id].time_ns, -order.index(run_id)))


def utf8(text: str) -> str:
    """Return the text with U+FFFD for each surrogate, which UTF-8 cannot encode."""
    return "".join("\ufffd" if "\ud800" <= each <= "\udfff" else each for each in text)


def _is_meant(kept: Kept, wanted: RunFilter) -> bool:
    evaluation = kept.current
    assert evaluation is not None
    run, match = evaluation.run, evaluation.match
    score = evaluation.score(wanted.metric) if wanted.metric else None
    value = score.value if score else None
    asked = utf8((run.input or "")[:2000]).casefold()
    verdict = {True: "pass", False: "fail", None: "not_evaluated"}[evaluation.passed]
    checks: list[tuple[Any, bool]] = [
        (wanted.verdict, verdict == wanted.verdict),
        (wanted.agent, run.agent == wanted.agent),
        (wanted.service, run.service == wanted.service),
        (wanted.environment, run.environment == wanted.environment),
        (wanted.session_id, run.session_id == wanted.session_id),
        (wanted.unit, run.unit == wanted.unit),
        (wanted.golden, match is not None and match.golden.id == wanted.golden),
        (wanted.covered, (match is not None) == wanted.covered),
        (wanted.trace_id, wanted.trace_id in run.trace_ids),
        (wanted.metric, score is not None),
        (wanted.below, value is not None and wanted.below is not None and value < wanted.below),
        (wanted.since_ns, wanted.since_ns is not None and kept.time_ns >= wanted.since_ns),
        (wanted.until_ns, wanted.until_ns is not None and kept.time_ns < wanted.until_ns),
        (wanted.text or None, utf8(wanted.text or "").casefold() in asked),
        (wanted.tool, _same(wanted.tool) in map(_same, _tools(evaluation, wanted.tool_role))),
    ]
    return all(holds for value, holds in checks if value is not None)


def _same(name: str | None) -> str:
    return (name or "").lower().replace("_", "")


def _tools(evaluation: Evaluation, role: str) -> list[str]:
    seen = evaluation.comparison
    expecting = {"expected": seen.pairs + seen.missing, "missing": seen.missing}
    if role in expecting:
        return [name for row in expecting[role] for name in row.expected.name.split(" or ")]  # type: ignore[union-attr]
    if role == "called":
        return list(evaluation.run.tools_used)
    rows = {"unexpected": seen.unexpected, "forbidden": seen.forbidden, "failed": seen.rows}[role]
    called = [row.called for row in rows if row.called is not None]
    return [call.name for call in called if role != "failed" or call.error is not None]
