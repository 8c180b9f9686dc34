"""Builds evaluations for the tests of sinks and stores."""

from __future__ import annotations

from goldspan import Evaluation, Run, ToolCall, evaluate


def evaluation(number: int = 1, *called: str) -> Evaluation:
    """Build the evaluation of a run whose trace id and span id are `number`."""
    run = Run(
        f"{number:032x}:{number:016x}",
        trace_ids=(f"{number:032x}",),
        span_id=f"{number:016x}",
        tool_calls=tuple(map(ToolCall, called or ("search",))),
        end_ns=1_000,
    )
    return evaluate(run, ["search"])
