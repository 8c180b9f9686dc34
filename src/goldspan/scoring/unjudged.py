"""What of a golden cannot be judged of a run, because the telemetry does not show it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from goldspan.goldens.naming import naming, stated_server
from goldspan.model import ABSENT, Agreement, Comparison, ExpectedTool, Golden, Row, Statement, ToolCall
from goldspan.scoring.breaches import calls_too_many, differs, has_result
from goldspan.scoring.metrics import tools

INVISIBLE = "no tool call was seen, and nothing shows that one would have been"
"""Why nothing can be said of a run whose telemetry would show no call."""

_REPEATED = "whether {tool} was called again with the same arguments is not known"


def is_invisible(seen: Comparison) -> bool:
    """Whether the telemetry of the run, or of a request of a conversation, does not tell no call from calls unseen."""
    return seen.run.health.calls_invisible


def unjudged(seen: Comparison, golden: Golden) -> Iterator[Statement]:
    """Each thing that the golden states and the telemetry does not tell."""
    if golden.policy:
        return
    answers, names = tools.answers(seen), naming(golden.vocabulary)
    for row in answers:
        expected, called = row.expected, row.called
        if called is None or not isinstance(expected, ExpectedTool):
            continue
        if expected.arguments is not None and (why := _why(row.agreement, "arguments", bool(called.raw_arguments))):
            yield _left("arguments", row, why)
        if expected.result is not ABSENT and (why := _why_no_result(row)):
            yield _left("result", row, why)
        if expected.agent is not None and called.agent is None:
            yield _left("agent", row, "which agent called {tool} is not known")
        if stated_server(expected) is not None and not names.tells_server(expected, called):
            why = f"the server of {called.name} is not known; declare it under tools, or expect it of any server"
            yield Statement("server", why, row.expected_at, row.called_at)
    for row, allowed in calls_too_many(seen, golden):
        if allowed is None:
            yield _left("times", row, _REPEATED)


def doubtful_tool(seen: Comparison, golden: Golden) -> str | None:
    """A tool of which it matters, and is not known, whether two calls of it had the same arguments; `None`: there is
    none.

    Under `attempts: effective` a failed call that is made once more does not count, and under `duplicates: ignore` no
    call that was made before.
    """
    if golden.policy or not (golden.attempts == "effective" or golden.duplicates == "ignore"):
        return None
    calls = [row.called for row in seen.rows if row.called is not None and row.called.made]
    if golden.duplicates != "ignore" and all(call.error is None for call in calls):
        return None
    names = naming(golden.vocabulary)
    by_tool: dict[Hashable, list[ToolCall]] = {}
    for call in calls:
        by_tool.setdefault(names.tool(call), []).append(call)
    for same in by_tool.values():
        counts = golden.duplicates == "ignore" or any(call.error is not None for call in same[:-1])
        if len(same) > 1 and counts and any(call.arguments is None for call in same):
            return same[0].name
    return None


def in_doubt(tool: str) -> Statement:
    """That the verdict depends on whether two calls of a tool had the same arguments."""
    return Statement("repeats", f"whether {tool} was called again with the same arguments is not known")


def _left(about: str, row: Row, why: str) -> Statement:
    tool = row.expected or row.called
    return Statement(about, why.format(tool=tool.name if tool else ""), row.expected_at, row.called_at)


def _why(agreement: Agreement | None, what: str, unread: bool = False) -> str | None:
    """Why what is stated of a call could not be judged; `None`: it was."""
    was = "was" if what == "result" else "were"
    if agreement is None:
        return f"the {what} of {{tool}} {was} not {'readable' if unread else 'captured'}"
    if agreement.differences and not differs(agreement):
        note = next(iter(agreement.differences)).note or ""
        return f"the {what} of {{tool}} could not be compared, because {note.replace('{', '{{').replace('}', '}}')}"
    return None


def _why_no_result(row: Row) -> str | None:
    agreement = row.result_agreement
    lacks = agreement is not None and agreement.differences and not has_result(row)
    return _why(None if lacks else agreement, "result")
