"""Which calls of a run take part in the pairing, and which are set aside beforehand, and why."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from goldspan.model import COUNTED_KINDS, Attempts, Golden, Row, Run, ToolCall, Verdict, drafted
from goldspan.scoring.identity import is_forbidden
from goldspan.scoring.plan import Layout

SUB_AGENT = "sub-agent"
"""The note beside the call of another agent than the run's own, where only its own count."""

_Row = drafted(Row)


def set_aside(run: Run, golden: Golden, asked: Layout) -> Mapping[int, Row]:
    """The rows of the calls that take no part, by position.

    Denied and deferred calls were never made. What is forbidden is forbidden whoever calls it, and however it ends.
    """
    aside: dict[int, Row] = {}
    failed = False
    own = run.agent if golden.depth == "own" else None
    for at, call in enumerate(run.tool_calls):
        if not call.made:
            aside[at] = row_of_call("tolerated", at, call, call.outcome)
        elif golden.forbid and is_forbidden(call, golden.forbid, asked.names):
            aside[at] = row_of_call("forbidden", at, call)
        elif own is not None and call.agent is not None and call.agent != own:
            aside[at] = row_of_call("tolerated", at, call, SUB_AGENT)
        elif call.kind not in COUNTED_KINDS and not asked.names_call(call):
            aside[at] = row_of_call("tolerated", at, call, call.kind)
        elif call.error is not None:
            failed = True
    if failed and golden.attempts != "all":
        _set_failures_aside(run.tool_calls, golden.attempts, aside, asked)
    return aside


def row_of_call(verdict: Verdict, at: int, call: ToolCall, note: str | None = None) -> Row:
    """The row of a call that nothing stands beside."""
    return _Row(verdict, None, call, None, at, None, None, None, note)


def _set_failures_aside(calls: Sequence[ToolCall], attempts: Attempts, aside: dict[int, Row], asked: Layout) -> None:
    succeeded: set[Hashable] = set()
    for at in reversed(range(len(calls))):
        call = calls[at]
        if at in aside:
            continue
        tool = asked.names.tool(call)
        if call.error is None:
            succeeded.add(tool)
        elif attempts == "succeeded":
            aside[at] = row_of_call("superseded", at, call, "failed")
        elif tool in succeeded:
            aside[at] = row_of_call("superseded", at, call, "made good by a later call")
