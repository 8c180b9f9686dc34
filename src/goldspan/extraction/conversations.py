"""Conversations: the requests that share a session, as one run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from goldspan.model import Health, Run, ToolCall, ToolDefinition


def conversations(requests: Iterable[Run]) -> list[Run]:
    """One run for all requests of a session, by time of start; a request without a session is one by itself.

    Its input is what opened the conversation, its output the last answer, its calls those of all requests in order.
    Which golden and metrics it is for says the first request that says so; what is expected, all of them together.
    """
    of_session: dict[tuple[str | None, str], list[Run]] = {}
    for run in sorted(requests, key=lambda run: (run.start_ns or 0, run.run_id)):
        key = (run.service, run.session_id) if run.session_id is not None else (None, run.run_id)
        of_session.setdefault(key, []).append(run)
    return [_conversation(runs) for runs in of_session.values()]


def _conversation(runs: list[Run]) -> Run:
    first = runs[0]
    ends = [run.end_ns for run in runs if run.end_ns is not None]
    offered = {tool.name: tool for run in runs for tool in run.available_tools}
    return replace(
        first,
        run_id=f"{first.run_id}:conversation"
        if first.session_id is None
        else ":".join(filter(None, ("session", first.service, first.session_id))),
        unit="conversation",
        trace_ids=tuple(dict.fromkeys(trace_id for run in runs for trace_id in run.trace_ids)),
        span_id=None if first.session_id is not None else first.span_id,
        output=next((run.output for run in reversed(runs) if run.output), None),
        tool_calls=_calls(runs),
        available_tools=_in_order(offered),
        golden_id=next((run.golden_id for run in runs if run.golden_id), None),
        conventions=tuple(sorted({name for run in runs for name in run.conventions})),
        health=_health([run.health for run in runs]),
        end_ns=max(ends, default=None),
        expected_tools=_expected(runs),
        metrics=next((run.metrics for run in runs if run.metrics), None),
        metadata={key: value for run in reversed(runs) for key, value in run.metadata.items()},
    )


def _expected(runs: list[Run]) -> tuple[Any, ...] | None:
    """What is expected of a conversation: as long as one request does not say what is expected of it, nobody knows."""
    expected: list[Any] = []
    for run in runs:
        if run.expected_tools is None:
            return None
        expected += run.expected_tools
    return tuple(expected)


def _calls(runs: list[Run]) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    for run in runs:
        before = len(calls)
        calls += [
            replace(call, concurrent_with=tuple(before + other for other in call.concurrent_with))
            for call in run.tool_calls
        ]
    return tuple(calls)


def _in_order(offered: dict[str, ToolDefinition]) -> tuple[ToolDefinition, ...]:
    return tuple(offered[name] for name in sorted(offered))


def _health(parts: list[Health]) -> Health:
    """Counts add up, lists are joined, and what holds of one request holds of the conversation.

    So one request whose calls are invisible is enough: of the conversation, nobody knows what was not called.
    """
    joined: dict[str, Any] = {}
    for each in fields(Health):
        found = [getattr(part, each.name) for part in parts]
        if isinstance(found[0], bool):
            joined[each.name] = any(found)
        elif isinstance(found[0], int):
            joined[each.name] = sum(found)
        else:
            joined[each.name] = tuple(sorted({name for names in found for name in names}))
    return Health(**joined)
