"""Which calls of a run take part in the pairing, and which are set aside beforehand, and why.

Under `attempts: effective` a failure is weighed against what came after it. Where the same call was made once more,
with the same arguments, that one stands for both. Any other failure takes part, but a success is preferred to it, and
after a later success of its tool it answers only what must be called and nobody else answers. Where it answers nothing
it counts only as the last attempt at its tool. So a right call more never lowers recall, and an unexpected one never
raises precision, whichever failures it makes good.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from goldspan.goldens.naming import Naming
from goldspan.model import COUNTED_KINDS, Golden, Row, Run, ToolCall, Verdict, drafted
from goldspan.scoring.agreement.multisets import equality_keys
from goldspan.scoring.identity import is_forbidden
from goldspan.scoring.pairing.merits import NO_FAILURES, Failures
from goldspan.scoring.plan import Layout

SUB_AGENT = "sub-agent"
"""The note beside the call of another agent than the run's own, where only its own count."""

FAILED = "failed"
"""The note beside a failure where failures never count."""

MADE_GOOD = "made good by a later call"
"""The note beside a failure after which the tool was called with success."""

TRIED_AGAIN = "tried again"
"""The note beside a failure after which the tool failed again, and no more."""

_Row = drafted(Row)


class Attendance(NamedTuple):
    """The calls that take no part, and what is known of those that do and failed; all by position."""

    aside: Mapping[int, Row]
    """The rows of the calls that take no part."""
    failures: Failures = NO_FAILURES
    """The calls that take part and failed, where a success is preferred to them."""
    excused: Mapping[int, str] = MappingProxyType({})
    """Those of them that do not count where they answer nothing, each with the note that says why."""


def attendance(run: Run, golden: Golden, asked: Layout, alike: bool | None = None) -> Attendance:
    """Tell which calls of a run take part; `alike` is that of a `Reading`.

    Denied and deferred calls were never made. What is forbidden is forbidden whoever calls it, and however it ends.
    """
    aside: dict[int, Row] = {}
    failed: list[int] = []
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
            failed.append(at)
    if not failed or golden.attempts == "all":
        return Attendance(aside)
    if golden.attempts == "effective":
        return _effective(run.tool_calls, failed, aside, asked.names, alike)
    for at in failed:
        aside[at] = row_of_call("superseded", at, run.tool_calls[at], FAILED)
    return Attendance(aside)


def row_of_call(verdict: Verdict, at: int, call: ToolCall, note: str | None = None) -> Row:
    """The row of a call that nothing stands beside."""
    return _Row(verdict, None, call, None, at, None, None, None, note)


def _effective(
    calls: Sequence[ToolCall], failed: Iterable[int], aside: Mapping[int, Row], names: Naming, alike: bool | None
) -> Attendance:
    attempts: dict[Hashable, list[int]] = {names.tool(calls[at]): [] for at in failed}
    for at, call in enumerate(calls):
        if at not in aside and (tool := names.tool(call)) in attempts:
            attempts[tool].append(at)
    superseded: dict[int, Row] = {}
    standing: set[int] = set()
    excused: dict[int, str] = {}
    for of_tool in attempts.values():
        keys = equality_keys([calls[at].arguments for at in of_tool])
        made: set[Hashable] = set()
        later, unknown = None, False
        for at, key in zip(reversed(of_tool), reversed(keys), strict=True):
            same = ("no other", at) if key is None else key
            if calls[at].error is None:
                later = MADE_GOOD
            elif later is not None and _is_repeated(same in made, unknown or calls[at].arguments is None, alike):
                superseded[at] = row_of_call("superseded", at, calls[at], later)
            else:
                standing.add(at)
                if later is not None:
                    excused[at] = later
                later = later or TRIED_AGAIN
            made.add(same)
            unknown = unknown or calls[at].arguments is None
    made_good = frozenset([at for at, why in excused.items() if why == MADE_GOOD])
    return Attendance({**aside, **superseded}, Failures(frozenset(standing), made_good), excused)


def _is_repeated(is_equal: bool, is_unknown: bool, alike: bool | None) -> bool:
    """Whether a later call repeats a failed one; `is_unknown`: arguments of either were not captured."""
    return is_equal if alike is None or not is_unknown else alike
