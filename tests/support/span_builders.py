"""Builds spans and messages for tests, one attribute at a time."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from goldspan.model import SpanEvent, SpanRecord

TRACE = "0" * 31 + "1"
_numbers = count(1)


def span(name: str = "work", **attributes: Any) -> SpanRecord:
    """Build a span of one millisecond. Each span starts 10 ms after the one built before it.

    Keywords that are not fields of a span become attributes, with `__` for each dot: `gen_ai__tool__name="search"`.
    """
    number = next(_numbers)
    fields = {key: attributes.pop(key) for key in SpanRecord.__dataclass_fields__ if key in attributes}
    start = fields.pop("start_ns", number * 10_000_000)
    return SpanRecord(
        trace_id=fields.pop("trace_id", TRACE),
        span_id=fields.pop("span_id", f"{number:016x}"),
        parent_id=fields.pop("parent_id", None),
        name=name,
        attributes={key.replace("__", "."): value for key, value in attributes.items()},
        start_ns=start,
        end_ns=fields.pop("end_ns", None if start is None else start + 1_000_000),
        **fields,
    )


def trace_id(number: int) -> str:
    """Return the id of one of several traces."""
    return f"{number + 2:032x}"


def agent(name: str = "helper", *, asked: str | None = None, **more: Any) -> SpanRecord:
    """Build the span of an agent."""
    if asked is not None:
        more["gen_ai__input__messages"] = messages({"role": "user", "content": asked})
    return span(f"invoke_agent {name}", gen_ai__operation__name="invoke_agent", gen_ai__agent__name=name, **more)


def tool(name: str, arguments: Any = None, *, failed: str | None = None, **more: Any) -> SpanRecord:
    """Build the span of a tool's execution, with its arguments as JSON."""
    if arguments is not None:
        more["gen_ai__tool__call__arguments"] = json.dumps(arguments)
    if failed is not None:
        more |= {
            "status": "error",
            "events": (SpanEvent("exception", {"exception.type": "ValueError", "exception.message": failed}),),
        }
    return span(f"execute_tool {name}", gen_ai__operation__name="execute_tool", gen_ai__tool__name=name, **more)


def model(*, asked: list[Any] | None = None, answered: list[Any] | None = None, **more: Any) -> SpanRecord:
    """Build the span of a model call, with its messages as JSON."""
    return span(
        "chat",
        gen_ai__operation__name="chat",
        gen_ai__input__messages=messages(*(asked or ())),
        gen_ai__output__messages=messages(*(answered or ())),
        **more,
    )


def messages(*items: Any) -> str:
    """Encode messages as instrumentations do."""
    return json.dumps(list(items))


def asks_for(name: str, arguments: Any, call_id: str | None = None) -> dict[str, Any]:
    """An assistant's message with one tool call."""
    part = {"type": "tool_call", "name": name, "arguments": arguments}
    return {"role": "assistant", "parts": [part if call_id is None else {**part, "id": call_id}]}


def answers(call_id: str, result: Any, **more: Any) -> dict[str, Any]:
    """A tool's message with the result of one call."""
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "response": result, **more}]}


def user(words: str) -> dict[str, Any]:
    """A message of the user."""
    return {"role": "user", "content": words}


def says(words: str) -> dict[str, Any]:
    """A message of the model without any call."""
    return {"role": "assistant", "content": words}


def system(words: str) -> dict[str, Any]:
    """A system message."""
    return {"role": "system", "content": words}


def ask_for(*calls: tuple[str, Any] | tuple[str, Any, str]) -> dict[str, Any]:
    """An assistant's message with several tool calls, each with name, arguments and optionally an id."""
    return {"role": "assistant", "parts": [asks_for(*call)["parts"][0] for call in calls]}


def made(call_id: str) -> dict[str, Any]:
    """Return the attribute of a tool's span that holds the id of its call."""
    return {"gen_ai__tool__call__id": call_id}


def inside(parent: SpanRecord) -> dict[str, Any]:
    """Return the fields that make a span a child of another one."""
    return {"parent_id": parent.span_id, "trace_id": parent.trace_id}


def in_trace(number: int) -> dict[str, Any]:
    """Return the field that puts a span into one of several traces."""
    return {"trace_id": trace_id(number)}
