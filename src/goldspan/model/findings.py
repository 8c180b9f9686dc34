"""Defines the rows of a comparison and the scores, and finds the faults in rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from goldspan.model.goldens import AnyOf, ExpectedTool, iter_expected_calls
from goldspan.model.name_folding import fold_name
from goldspan.model.runs import Run, ToolCall

RowVerdict = Literal["paired", "missing", "unexpected", "superseded", "tolerated", "forbidden"]
ScoreLabel = Literal["pass", "fail", "not_evaluated"]

NO_GOLDEN_NOTE = "no golden"
"""The note of a call in a run without a golden."""


class _DifferenceSlots:
    """Holds what is not a field of a difference."""

    __slots__ = ("_suggest",)
    _suggest: Callable[[Any, Any], str | None] | None


@dataclass(frozen=True, slots=True)
class Difference(_DifferenceSlots):
    """One argument whose called value differs from the expected one. A missing value is `ABSENT`."""

    key: str
    expected: Any
    called: Any
    note: str | None = None
    """Why the values could not be compared; `None`: they were compared and differ."""
    hint: str | None = None
    """The matcher that would accept the called value, if there is one: `differs only in case: {folded: ...}
    accepts it`. It does not contain a value. `with_deferred_hint` computes it when it is first read."""

    def with_deferred_hint(self, suggest: Callable[[Any, Any], str | None]) -> Difference:
        """Let `suggest`, which never raises, find the hint of the two values when it is first read.

        Return this difference, which is new. Most hints are never read, and finding that of two dates takes two thirds
        of the time of comparing the arguments of a call.
        """
        object.__delattr__(self, "hint")
        object.__setattr__(self, "_suggest", suggest)
        return self

    if not TYPE_CHECKING:  # a type checker would accept every attribute name

        def __getattr__(self, name: str) -> str | None:
            """Compute the deferred hint. Python calls this only for an attribute that the object does not have."""
            if name == "hint" and (suggest := getattr(self, "_suggest", None)) is not None:
                object.__setattr__(self, "hint", suggest(self.expected, self.called))
                object.__setattr__(self, "_suggest", None)
            # Another thread may have stored the hint since Python looked for it.
            return object.__getattribute__(self, name)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the arguments or the result of a paired call agree with the expected ones."""

    share: float
    """From 0 (nothing agrees) to 1 (all equal)."""
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One row of a comparison: a call, an expectation, or a pair of both."""

    verdict: RowVerdict
    expected: ExpectedTool | AnyOf | None = None
    """The expected call. Of alternative calls it is the one that was made, or all of them if none was made."""
    called: ToolCall | None = None
    expected_at: int | None = None
    """The position of the expectation in the golden. Only the chosen one of alternative trajectories has positions, and
    a call that is expected several times has several."""
    called_at: int | None = None
    """The call's position in the run."""
    agreement: Agreement | None = None
    """The agreement of a pair's arguments; `None`: the golden does not state arguments, or they were not captured."""
    result_agreement: Agreement | None = None
    """The same for the result."""
    in_order: bool | None = None
    """For pairs: whether the call has the position that the golden's `order` requires."""
    note: str | None = None
    """Why a call or an expectation is tolerated, or a call is superseded."""


@dataclass(frozen=True, slots=True)
class RequirementResult:
    """A requirement of a golden, and why it is broken or cannot be evaluated. It contains names and no values."""

    about: str
    """`missing`, `unexpected`, `times`, `order`, `arguments`, `result`, `agent`, `repeats`, `outcome`, `forbidden`,
    `max_calls`; the name of a metric, for its threshold; `calls` if no call of the run could have been captured."""
    text: str
    """The result as a clause: `book was not called`."""
    expected_at: int | None = None
    """The position of the expectation, as in the row."""
    called_at: int | None = None
    """The position of the call in the run."""


FaultKind = Literal[
    "missing", "extra", "wrong_tool", "wrong_agent", "arguments", "result", "failed", "forbidden", "order"
]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, and the agent that is responsible for it. It contains names and no values.

    Each missing expectation and each unexpected call is in exactly one fault. An expected call that was made can be in
    several, for example if it is out of order and has wrong arguments.
    """

    kind: FaultKind
    """`wrong_tool`: an unexpected call was made in place of a missing one, and not by another agent than the expected
    one. `wrong_agent`: the expected tool was called by another agent. `extra`: any other unexpected call."""
    tool: str
    """The expected tool; for a call that was not expected, the called tool."""
    agent: str | None = None
    """The agent that made the call, or should have made it; `None`: not known."""
    instead: str | None = None
    """The tool that was called, or the agent that called, in place of the expected one."""
    detail: str | None = None
    """The names of the arguments, or of the parts of the result, that differ."""
    expected_at: int | None = None
    """The expectation's position, as in the row."""
    called_at: int | None = None
    """The call's position in the run."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a model was asked for a score, and its reply."""

    model: str
    """The name that the endpoint returns, else the requested name."""
    votes: tuple[float, ...] = ()
    """The number in each reply; the score is their median."""
    agreement: float | None = None
    """The share of the votes on the same side of the threshold as the score; `None`: there is only one vote."""
    better_tool: str | None = None
    """The tool that the model prefers, as the run spells it; `None`: the model names none."""
    words: str | None = None
    """The explanation by the model. It can repeat any content of the run."""
    temperature: float | None = None
    """The requested temperature; `None`: the model's default."""
    seed: int | None = None
    """The seed of the first vote; each further vote adds 1. `None`: no seed was sent."""
    rubric: int = 1
    """The version of the prompt."""
    cached: int = 0
    """The number of votes that were read from the cache and cost nothing."""
    input_tokens: int | None = None
    """The tokens of the request; `None`: the endpoint does not report them."""
    output_tokens: int | None = None
    cost: float | None = None
    """The cost in US dollars; `None`: no prices are configured, or the tokens are not known."""


class _ScoreSlots:
    """Holds what is not a field of a score, because the fields of a slotted dataclass are all that it has."""

    __slots__ = ("_explain",)
    _explain: Callable[[], str | None] | None


@dataclass(frozen=True, slots=True)
class Score(_ScoreSlots):
    """The number that a metric computed from a comparison."""

    metric: str
    value: float | None = None
    """A number, usually from 0 to 1; `None`: it could not be computed, and `reason` says why."""
    passed: bool | None = None
    """Whether the value reaches the threshold; `None`: there is no threshold or no value, or values that were not
    captured decide it, and `reason` says which."""
    threshold: float | None = None
    label: ScoreLabel | None = None
    reason: str | None = None
    """What keeps the value below 1, or why there is none. `with_deferred_reason` computes it when it is first read."""
    error: str | None = None
    """The exception that the metric raised, as text."""
    steps: tuple[str, ...] = ()
    """The steps of the computation, if the evaluation was `verbose`."""
    judgement: Judgement | None = None
    """The request to the model and its reply, if a model gave the number."""

    def with_deferred_reason(self, explain: Callable[[], str | None]) -> Score:
        """Let `explain`, which never raises, write the reason when it is first read; return this score, which is new.

        Most reasons are never read.
        """
        object.__delattr__(self, "reason")
        object.__setattr__(self, "_explain", explain)
        return self

    if not TYPE_CHECKING:  # a type checker would accept every attribute name

        def __getattr__(self, name: str) -> str | None:
            """Compute the deferred reason. Python calls this only for an attribute that the object does not have."""
            if name == "reason" and (explain := getattr(self, "_explain", None)) is not None:
                object.__setattr__(self, "reason", explain())
                object.__setattr__(self, "_explain", None)
            # Another thread may have stored the reason since Python looked for it.
            return object.__getattribute__(self, name)


WrongAgentPairs: TypeAlias = "Sequence[tuple[ComparisonRow, ComparisonRow]]"
"""Missing expectations, each with the unexpected call of the same tool by another agent."""

_ALL_ARGUMENTS_DETAIL = "all its arguments"


def find_faults(
    rows: Sequence[ComparisonRow], run: Run, wrong_agent_pairs: WrongAgentPairs, *, is_ordered: bool
) -> tuple[Fault, ...]:
    """Returns the faults in the order of the rows. `is_ordered`: whether the golden requires an order.

    A missing call and an unexpected one in its place are one fault: the wrong agent or the wrong tool.
    """
    sole_agent = _sole_agent(run)
    found = [
        (at, fault)
        for at, row in enumerate(rows)
        if _has_fault(row, is_ordered=is_ordered)
        for fault in _call_faults(row, _calling_agent(row) or sole_agent, is_ordered=is_ordered)
    ]
    found += _unpaired_faults(rows, wrong_agent_pairs, sole_agent)
    return tuple([fault for _, fault in sorted(found, key=itemgetter(0))])


# --- calls that were expected, or forbidden ---------------------------------------------------------------------------


def _has_fault(row: ComparisonRow, *, is_ordered: bool) -> bool:
    """Whether a row is an expected call with a fault, or a forbidden call."""
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
    """Yield the faults of an expected or a forbidden call."""

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
    """Yield a fault for each missing expectation, unexpected call, or pair of both, with the position of its row."""
    positions = {_row_key(row): at for at, row in enumerate(rows)}
    used = {_row_key(row) for pair in wrong_agent_pairs for row in pair}
    substituted = _substituted_calls([row for row in rows if _row_key(row) not in used])
    used.update(_row_key(row) for pair in substituted for row in pair)
    for missing, call in wrong_agent_pairs:
        yield (
            positions[_row_key(missing)],
            _substitution_fault("wrong_agent", missing, call, _expected_agent(missing), _calling_agent(call)),
        )
    for missing, call in substituted:
        agent = _calling_agent(call) or _expected_agent(missing) or sole_agent
        yield positions[_row_key(missing)], _substitution_fault("wrong_tool", missing, call, agent, _tool_name(call))
    for row in rows:
        if row.verdict in ("missing", "unexpected") and _row_key(row) not in used:
            kind: FaultKind = "missing" if row.called is None else "extra"
            agent = _calling_agent(row) or _expected_agent(row) or sole_agent
            fault = Fault(kind, _tool_name(row), agent, None, None, row.expected_at, row.called_at)
            yield positions[_row_key(row)], fault


def _substitution_fault(
    kind: FaultKind, missing: ComparisonRow, call: ComparisonRow, agent: str | None, instead: str | None
) -> Fault:
    return Fault(kind, _tool_name(missing), agent, instead, None, missing.expected_at, call.called_at)


def _substituted_calls(rows: Sequence[ComparisonRow]) -> list[tuple[ComparisonRow, ComparisonRow]]:
    """Returns missing expectations, each with the unexpected call of its agent between the same two expected calls."""
    found: list[tuple[ComparisonRow, ComparisonRow]] = []
    missing: list[ComparisonRow] = []
    unexpected: list[ComparisonRow] = []
    for row in rows:
        if row.verdict == "missing":
            missing.append(row)
        elif row.verdict == "unexpected":
            unexpected.append(row)
        elif row.expected is not None and row.called is not None:
            found += _pairs_of_one_agent(missing, unexpected)
            missing, unexpected = [], []
    return [*found, *_pairs_of_one_agent(missing, unexpected)]


def _pairs_of_one_agent(
    missing: Sequence[ComparisonRow], unexpected: Sequence[ComparisonRow]
) -> Iterator[tuple[ComparisonRow, ComparisonRow]]:
    """Yield each missing expectation with the first free call that its agent made, or that an unknown agent made.

    An expectation that names no agent takes the first free call.
    """
    calls_by_agent: dict[str | None, list[int]] = {}  # positions in reverse order, so that the first is popped first
    for at in reversed(range(len(unexpected))):
        agent = _calling_agent(unexpected[at])
        calls_by_agent.setdefault(agent and fold_name(agent), []).append(at)
    for row in missing:
        agents = {agent and fold_name(agent) for agent in _expected_agents(row)}
        accepted = calls_by_agent.keys() if None in agents else {*agents, None}
        if free := [calls for agent in accepted if (calls := calls_by_agent.get(agent))]:
            yield row, unexpected[min(free, key=itemgetter(-1)).pop()]


def _row_key(row: ComparisonRow) -> tuple[int | None, int | None]:
    """Identifies a row within its comparison."""
    return row.expected_at, row.called_at


# --- names ------------------------------------------------------------------------------------------------------------


def _tool_name(row: ComparisonRow) -> str:
    tool = row.expected or row.called
    return tool.name if tool else ""


def _calling_agent(row: ComparisonRow) -> str | None:
    return row.called.agent if row.called is not None else None


def _expected_agent(row: ComparisonRow) -> str | None:
    """Returns the agent that should have made the call, if the golden names exactly one."""
    agents = _expected_agents(row)
    return agents.pop() if len(agents) == 1 else None


def _expected_agents(row: ComparisonRow) -> set[str | None]:
    """Returns the agents that may make the call; `None`: any."""
    return {tool.agent for tool in iter_expected_calls([row.expected] if row.expected else [])}


def _sole_agent(run: Run) -> str | None:
    """Returns the agent of a run that has only one."""
    agents = {agent for agent in (run.agent, *[call.agent for call in run.tool_calls]) if agent is not None}
    return agents.pop() if len(agents) == 1 else None
