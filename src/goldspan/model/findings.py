"""What went wrong in a run, and whose fault it is: read off the rows of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal, TypeAlias

from goldspan.model.goldens import AnyOf, ExpectedTool, iter_expected_calls
from goldspan.model.runs import Run, ToolCall

RowVerdict = Literal["paired", "missing", "unexpected", "superseded", "tolerated", "forbidden"]
ScoreLabel = Literal["pass", "fail", "not_evaluated"]

NO_GOLDEN_NOTE = "no golden"
"""The note beside a call of which nothing was expected."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One argument in which a call differs from what was expected. A missing side is `ABSENT`."""

    key: str
    expected: Any
    called: Any
    note: str | None = None
    """Why the two could not be compared; `None`: they were, and differ."""
    hint: str | None = None
    """What would have accepted the called value, where a matcher would have: `differs only in case: {folded: ...}
    accepts it`. It holds no value."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the arguments, or the result, of a paired call agree with what was expected."""

    share: float
    """From 0 (nothing agrees) to 1 (all equal)."""
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One line of a comparison: a call, an expectation, or both side by side."""

    verdict: RowVerdict
    expected: ExpectedTool | AnyOf | None = None
    """Of alternative calls the one that was made; all of them where none was."""
    called: ToolCall | None = None
    expected_at: int | None = None
    """The expectation's position among all of the golden; of alternative trajectories only the one that was taken
    counts, and what is expected several times takes several positions."""
    called_at: int | None = None
    """The call's position in the run."""
    agreement: Agreement | None = None
    """For pairs whose arguments were judged; `None`: not stated by the golden, or not captured."""
    result_agreement: Agreement | None = None
    """The same for results."""
    in_order: bool | None = None
    """For pairs: whether the call came where the golden's order wants it."""
    note: str | None = None
    """Why a call or an expectation was tolerated, or a call superseded."""


@dataclass(frozen=True, slots=True)
class RequirementResult:
    """One thing that a golden states, and why it is broken or cannot be judged. It holds names, and no values."""

    about: str
    """`missing`, `unexpected`, `times`, `order`, `arguments`, `result`, `agent`, `repeats`, `outcome`, `forbidden`,
    `max_calls`; the name of a metric, for its threshold; `calls` where no call can be judged."""
    text: str
    """What became of it, in words: `book was not called`."""
    expected_at: int | None = None
    """The position of the expectation, as in the row."""
    called_at: int | None = None
    """The position of the call in the run."""


FaultKind = Literal[
    "missing", "extra", "wrong_tool", "wrong_agent", "arguments", "result", "failed", "forbidden", "order"
]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that went wrong, and whose it is. It holds names only, and never a value.

    Each missing expectation and each unexpected call is in exactly one fault. An expected call that was made may be in
    several: it may come too late, and with wrong arguments.
    """

    kind: FaultKind
    """`wrong_tool`: an unexpected call stands where a missing one was due. `wrong_agent`: the right tool was called, by
    another agent than the expected one. `extra`: any other unexpected call."""
    tool: str
    """The tool that was expected; where nothing was, the one that was called."""
    agent: str | None = None
    """The agent that made the call, or should have made it; `None`: not known."""
    instead: str | None = None
    """The tool, or the agent, that stood in its place."""
    detail: str | None = None
    """The arguments, or the parts of the result, that differ: their names."""
    expected_at: int | None = None
    """The expectation's position, as in the row."""
    called_at: int | None = None
    """The call's position in the run."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a model was asked for a score, and what it said."""

    model: str
    """As the endpoint names it, else as it was asked for."""
    votes: tuple[float, ...] = ()
    """What it said each time it was asked; the score is their median."""
    agreement: float | None = None
    """The share of the votes that stand on the score's side of the threshold; `None`: there is only one."""
    better_tool: str | None = None
    """The tool that would have been better, in the run's own spelling; `None`: none."""
    words: str | None = None
    """Why, in the words of the model. They may repeat anything that is in the run."""
    temperature: float | None = None
    """What it was asked with; `None`: the model's own."""
    seed: int | None = None
    """That of the first vote; the next one has the next number. `None`: none was sent."""
    rubric: int = 1
    """The version of what was asked."""
    cached: int = 0
    """How many of the votes were known from before, and cost nothing."""
    input_tokens: int | None = None
    """Tokens that it took; `None`: the endpoint does not say."""
    output_tokens: int | None = None
    cost: float | None = None
    """In US dollars; `None`: there are no prices, or the tokens are not known."""


@dataclass(frozen=True, slots=True)
class Score:
    """One number that a metric read off a comparison."""

    metric: str
    value: float | None = None
    """Usually 0 to 1; `None` where it cannot be known, and `reason` says why."""
    passed: bool | None = None
    """Whether the threshold is met; `None` where there is no threshold or no value, or where what is not known would
    decide it, which `reason` says."""
    threshold: float | None = None
    label: ScoreLabel | None = None
    reason: str | None = None
    error: str | None = None
    """The metric itself failed: an exception, as text."""
    steps: tuple[str, ...] = ()
    """How the value came about, where that was asked for."""
    judgement: Judgement | None = None
    """Where a model gave the number: how it was asked, and what it said."""


WrongAgentPairs: TypeAlias = "Sequence[tuple[ComparisonRow, ComparisonRow]]"
"""Missing expectations, each with the unexpected call of its tool that another agent made."""

_ALL_ARGUMENTS_DETAIL = "all its arguments"


def find_faults(
    rows: Sequence[ComparisonRow], run: Run, wrong_agent_pairs: WrongAgentPairs, *, is_ordered: bool
) -> tuple[Fault, ...]:
    """Everything that went wrong, in the order of the rows. `ordered`: whether the golden wants an order.

    A call that was missing beside one that was not expected is one fault: the wrong agent, or the wrong tool.
    """
    only = _sole_agent(run)
    found = [
        (at, fault)
        for at, row in enumerate(rows)
        if _has_fault(row, is_ordered=is_ordered)
        for fault in _call_faults(row, _calling_agent(row) or only, is_ordered=is_ordered)
    ]
    found += _unpaired_faults(rows, wrong_agent_pairs, only)
    return tuple([fault for _, fault in sorted(found, key=itemgetter(0))])


# --- calls that were expected, or forbidden ---------------------------------------------------------------------------


def _has_fault(row: ComparisonRow, *, is_ordered: bool) -> bool:
    """Whether there is something wrong with a call that was expected, or is forbidden. Mostly there is not."""
    if row.expected is None or row.called is None:
        return row.verdict == "forbidden"
    arguments, result = row.agreement, row.result_agreement
    return (
        row.called.error is not None
        or (is_ordered and row.in_order is False)
        or (arguments is not None and arguments.differences != ())
        or (result is not None and result.differences != ())
    )


def _call_faults(row: ComparisonRow, agent: str | None, *, is_ordered: bool) -> Iterator[Fault]:
    """What is wrong with a call that was expected, or is forbidden."""

    def fault(kind: FaultKind, detail: str | None = None) -> Fault:
        return Fault(kind, _tool_name(row), agent, None, detail, row.expected_at, row.called_at)

    if row.verdict == "forbidden":
        yield fault("forbidden")
        return
    if row.called is not None and row.called.error is not None:
        yield fault("failed")
    if row.agreement is not None and row.agreement.differences:
        keys = [difference.key for difference in row.agreement.differences]
        yield fault("arguments", ", ".join(keys) if all(keys) else _ALL_ARGUMENTS_DETAIL)
    if row.result_agreement is not None and row.result_agreement.differences:
        keys = [difference.key for difference in row.result_agreement.differences]
        yield fault("result", ", ".join(keys) if all(keys) else None)
    if is_ordered and row.in_order is False:
        yield fault("order")


# --- expectations without a call, and calls without an expectation ----------------------------------------------------


def _unpaired_faults(
    rows: Sequence[ComparisonRow], wrong_agent_pairs: WrongAgentPairs, sole_agent: str | None
) -> Iterator[tuple[int, Fault]]:
    """One fault for each of them, or for one of both together, with the place of its row."""
    place = {_row_key(row): at for at, row in enumerate(rows)}
    taken = {_row_key(row) for pair in wrong_agent_pairs for row in pair}
    in_place = _substituted_calls([row for row in rows if _row_key(row) not in taken])
    taken.update(_row_key(row) for pair in in_place for row in pair)
    for missing, call in wrong_agent_pairs:
        yield (
            place[_row_key(missing)],
            _substitution_fault("wrong_agent", missing, call, _expected_agent(missing), _calling_agent(call)),
        )
    for missing, call in in_place:
        agent = _calling_agent(call) or _expected_agent(missing) or sole_agent
        yield place[_row_key(missing)], _substitution_fault("wrong_tool", missing, call, agent, _tool_name(call))
    for row in rows:
        if row.verdict in ("missing", "unexpected") and _row_key(row) not in taken:
            kind: FaultKind = "missing" if row.called is None else "extra"
            agent = _calling_agent(row) or _expected_agent(row) or sole_agent
            yield place[_row_key(row)], Fault(kind, _tool_name(row), agent, None, None, row.expected_at, row.called_at)


def _substitution_fault(
    kind: FaultKind, missing: ComparisonRow, call: ComparisonRow, agent: str | None, instead: str | None
) -> Fault:
    return Fault(kind, _tool_name(missing), agent, instead, None, missing.expected_at, call.called_at)


def _substituted_calls(rows: Sequence[ComparisonRow]) -> list[tuple[ComparisonRow, ComparisonRow]]:
    """Missing expectations, each with the unexpected call that stands between the same expected calls, in sequence."""
    found: list[tuple[ComparisonRow, ComparisonRow]] = []
    missing: list[ComparisonRow] = []
    unexpected: list[ComparisonRow] = []
    for row in rows:
        if row.verdict == "missing":
            missing.append(row)
        elif row.verdict == "unexpected":
            unexpected.append(row)
        elif row.expected is not None and row.called is not None:
            found += zip(missing, unexpected, strict=False)
            missing, unexpected = [], []
    return [*found, *zip(missing, unexpected, strict=False)]


def _row_key(row: ComparisonRow) -> tuple[int | None, int | None]:
    """What tells rows apart."""
    return row.expected_at, row.called_at


# --- names ------------------------------------------------------------------------------------------------------------


def _tool_name(row: ComparisonRow) -> str:
    tool = row.expected or row.called
    return tool.name if tool else ""


def _calling_agent(row: ComparisonRow) -> str | None:
    return row.called.agent if row.called is not None else None


def _expected_agent(row: ComparisonRow) -> str | None:
    """The agent that should have made the call, where one is expected."""
    agents = {tool.agent for tool in iter_expected_calls([row.expected] if row.expected else [])}
    return agents.pop() if len(agents) == 1 else None


def _sole_agent(run: Run) -> str | None:
    """The agent of a run in which there is no other."""
    agents = {agent for agent in (run.agent, *[call.agent for call in run.tool_calls]) if agent is not None}
    return agents.pop() if len(agents) == 1 else None
