"""Calls that may have failed: nothing but the text of their results reads like an error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from goldspan.model import Comparison, Statement, ToolCall
from goldspan.scoring.matching import compare_run


def if_failed(seen: Comparison) -> Comparison | None:
    """The comparison as it would be if all calls that may have failed had; `None`: there are none, or no golden."""
    if seen.golden is None or not any(map(_may_have_failed, seen.run.tool_calls)):
        return None
    calls = [
        replace(call, error=call.error_guess, outcome="error") if _may_have_failed(call) else call
        for call in seen.run.tool_calls
    ]
    return compare_run(replace(seen.run, tool_calls=tuple(calls)), seen.golden)


def failures_in_doubt(seen: Comparison) -> Iterator[Statement]:
    """That the verdict depends on whether calls failed, one statement for each of them."""
    for at, call in enumerate(seen.run.tool_calls):
        if _may_have_failed(call):
            yield Statement("outcome", f"whether {call.name} failed is not known", called_at=at)


def _may_have_failed(call: ToolCall) -> bool:
    return call.error is None and call.error_guess is not None and call.made
