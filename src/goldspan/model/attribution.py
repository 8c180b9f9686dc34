"""What went wrong in a run, and whose fault it is: read off the rows of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import TypeAlias

from goldspan.model.findings import Fault, FaultKind, Row
from goldspan.model.goldens import expected_calls
from goldspan.model.runs import Run

ByOthers: TypeAlias = "Sequence[tuple[Row, Row]]"
"""Missing expectations, each with the unexpected call of its tool that another agent made."""

_ALL_ARGUMENTS = "all its arguments"


def find_faults(rows: Sequence[Row], run: Run, by_others: ByOthers, *, ordered: bool) -> tuple[Fault, ...]:
    """Everything that went wrong, in the order of the rows. `ordered`: whether the golden wants an order.

    A call that was missing beside one that was not expected is one fault: the wrong agent, or the wrong tool.
    """
    only = _only_agent(run)
    found = [
        (at, fault)
        for at, row in enumerate(rows)
        if _is_odd(row, ordered=ordered)
        for fault in _of_call(row, _caller(row) or only, ordered=ordered)
    ]
    found += _of_no_pair(rows, by_others, only)
    return tuple([fault for _, fault in sorted(found, key=itemgetter(0))])


# --- calls that were expected, or forbidden ---------------------------------------------------------------------------


def _is_odd(row: Row, *, ordered: bool) -> bool:
    """Whether there is something wrong with a call that was expected, or is forbidden. Mostly there is not."""
    if row.expected is None or row.called is None:
        return row.verdict == "forbidden"
    arguments, result = row.agreement, row.result_agreement
    return (
        row.called.error is not None
        or (ordered and row.in_order is False)
        or (arguments is not None and arguments.differences != ())
        or (result is not None and result.differences != ())
    )


def _of_call(row: Row, agent: str | None, *, ordered: bool) -> Iterator[Fault]:
    """What is wrong with a call that was expected, or is forbidden."""

    def fault(kind: FaultKind, detail: str | None = None) -> Fault:
        return Fault(kind, _tool(row), agent, None, detail, row.expected_at, row.called_at)

    if row.verdict == "forbidden":
        yield fault("forbidden")
        return
    if row.called is not None and row.called.error is not None:
        yield fault("failed")
    if row.agreement is not None and row.agreement.differences:
        keys = [difference.key for difference in row.agreement.differences]
        yield fault("arguments", ", ".join(keys) if all(keys) else _ALL_ARGUMENTS)
    if row.result_agreement is not None and row.result_agreement.differences:
        keys = [difference.key for difference in row.result_agreement.differences]
        yield fault("result", ", ".join(keys) if all(keys) else None)
    if ordered and row.in_order is False:
        yield fault("order")


# --- expectations without a call, and calls without an expectation ----------------------------------------------------


def _of_no_pair(rows: Sequence[Row], by_others: ByOthers, only: str | None) -> Iterator[tuple[int, Fault]]:
    """One fault for each of them, or for one of both together, with the place of its row."""
    place = {_place(row): at for at, row in enumerate(rows)}
    taken = {_place(row) for pair in by_others for row in pair}
    in_place = _in_place([row for row in rows if _place(row) not in taken])
    taken.update(_place(row) for pair in in_place for row in pair)
    for missing, call in by_others:
        yield place[_place(missing)], _together("wrong_agent", missing, call, _due_agent(missing), _caller(call))
    for missing, call in in_place:
        agent = _caller(call) or _due_agent(missing) or only
        yield place[_place(missing)], _together("wrong_tool", missing, call, agent, _tool(call))
    for row in rows:
        if row.verdict in ("missing", "unexpected") and _place(row) not in taken:
            kind: FaultKind = "missing" if row.called is None else "extra"
            agent = _caller(row) or _due_agent(row) or only
            yield place[_place(row)], Fault(kind, _tool(row), agent, None, None, row.expected_at, row.called_at)


def _together(kind: FaultKind, missing: Row, call: Row, agent: str | None, instead: str | None) -> Fault:
    return Fault(kind, _tool(missing), agent, instead, None, missing.expected_at, call.called_at)


def _in_place(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Missing expectations, each with the unexpected call that stands between the same expected calls, in sequence."""
    found: list[tuple[Row, Row]] = []
    missing: list[Row] = []
    unexpected: list[Row] = []
    for row in rows:
        if row.verdict == "missing":
            missing.append(row)
        elif row.verdict == "unexpected":
            unexpected.append(row)
        elif row.expected is not None and row.called is not None:
            found += zip(missing, unexpected, strict=False)
            missing, unexpected = [], []
    return [*found, *zip(missing, unexpected, strict=False)]


def _place(row: Row) -> tuple[int | None, int | None]:
    """What tells rows apart."""
    return row.expected_at, row.called_at


# --- names ------------------------------------------------------------------------------------------------------------


def _tool(row: Row) -> str:
    tool = row.expected or row.called
    return tool.name if tool else ""


def _caller(row: Row) -> str | None:
    return row.called.agent if row.called is not None else None


def _due_agent(row: Row) -> str | None:
    """The agent that should have made the call, where one is expected."""
    agents = {tool.agent for tool in expected_calls([row.expected] if row.expected else [])}
    return agents.pop() if len(agents) == 1 else None


def _only_agent(run: Run) -> str | None:
    """The agent of a run in which there is no other."""
    agents = {agent for agent in (run.agent, *[call.agent for call in run.tool_calls]) if agent is not None}
    return agents.pop() if len(agents) == 1 else None
