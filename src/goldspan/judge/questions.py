"""A run as it is shown to a judge: as data that cannot be taken for anything else, and never more than so much of it.

What stands in a run was written by anybody. So it is JSON in which no `<` occurs, which therefore cannot end the place
where data stands, and no character that people do not see: controls, marks of direction, tags.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Any, Literal, TypeAlias, get_args

from goldspan.extraction.names import fold
from goldspan.judge.rubric import INSTRUCTIONS, REMINDER, SCHEMA
from goldspan.model import Run, ToolCall, ToolDefinition

Shown: TypeAlias = Literal["names", "arguments", "all"]
"""What is shown of calls: their tools alone, also the arguments, or results as well."""
SHOWN: tuple[Shown, ...] = get_args(Shown)

LONGEST_EVIDENCE = 48_000
"""Characters of all the data, at most: some 12,000 tokens."""
_LONGEST_TEXTS = (8_000, 4_000, 2_000, 1_000, 500, 250, 120)
"""Characters of one text, at most: the first of these with which all of it fits."""
_MOST_TOOLS = 200
_MOST_CALLS = 200
_MOST_ITEMS = 100
_DEEPEST = 8
_LONGEST_NUMBER = 1 << 64
_CHARACTERS_AN_ITEM = 4
"""A value has no more items, on all its levels together, than would fit into so many times the longest text."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a judge about one run."""

    evidence: str
    """The run: JSON between `<run>` and `</run>`."""
    tools: tuple[str, ...]
    """The names of the tools that were offered. `T1` in the data, and in an answer, is the first of them."""
    temperature: float | None = None
    """`None`: whatever is usual for the model."""
    seed: int | None = None
    max_tokens: int = 1000
    """How long the answer may be."""
    instructions: str = INSTRUCTIONS
    schema: Mapping[str, Any] = field(default_factory=lambda: SCHEMA)
    """The JSON schema of the answer."""

    @property
    def messages(self) -> list[dict[str, str]]:
        """The question as a chat. Nothing of the run is in the instructions."""
        return [
            {"role": "system", "content": self.instructions},
            {"role": "user", "content": f"{self.evidence}\n\n{REMINDER}"},
        ]


def evidence_of(
    run: Run, tools: Sequence[ToolDefinition], shown: Shown = "all", *, further_tools: int = 0
) -> str | None:
    """A run as data for a judge, who is told of `further_tools` that are not among these.

    What is too long is cut, and says so; `None`: not even the names fit.
    """
    for longest, names, what, schemas in _WAYS:
        room = _Room(longest, names, LONGEST_EVIDENCE)
        try:
            data = _written(_document(run, tools, min(shown, what, key=SHOWN.index), room, schemas, further_tools))
        except _TooLongError:
            continue
        if len(data) <= LONGEST_EVIDENCE:
            return f"<run>\n{data}\n</run>"
    return None


def offered(tools: Sequence[ToolDefinition], run: Run) -> tuple[ToolDefinition, ...]:
    """The tools that are shown: all of them, or where they are too many, those that were called and then the others."""
    if len(tools) <= _MOST_TOOLS:
        return tuple(tools)
    called = {fold(call.name) for call in run.tool_calls}
    return tuple(sorted(tools, key=lambda tool: fold(tool.name) not in called)[:_MOST_TOOLS])


# --- the data ---------------------------------------------------------------------------------------------------------


_WAYS: tuple[tuple[int, int, Shown, bool], ...] = (
    *((longest, 200, "all", True) for longest in _LONGEST_TEXTS),
    (60, 200, "names", False),
    (30, 60, "names", False),
)
"""Ways to show a run, each with less than the one before: longest text, longest name, what of calls, schemas."""


class _TooLongError(Exception):
    """Written down, the run would not fit."""


@dataclass(slots=True)
class _Room:
    """How much of a run fits. What it is written from may be endless, so it is counted while it is looked at."""

    longest: int
    """Characters of a text."""
    names: int
    """Characters of a name."""
    left: int
    """Characters of all of it: too few, as escapes and punctuation come on top."""
    items: int = 0
    """Items that the value has left that is looked at."""

    def text(self, text: str, longest: int | None = None) -> str:
        """A text, cut."""
        cut = _cut(text, self.longest if longest is None else min(longest, self.longest))
        self.use(len(cut))
        return cut

    def name(self, name: str) -> str:
        """A name, cut."""
        cut = _cut(name, self.names)
        self.use(len(cut))
        return cut

    def value(self, value: Any, longest: int | None = None) -> Any:
        """A value, as JSON can say it."""
        self.items = max(10, self.longest // _CHARACTERS_AN_ITEM)
        return _plain(value, self, self.longest if longest is None else min(longest, self.longest))

    def use(self, characters: int) -> None:
        """Take note that so many are used."""
        self.left -= characters
        if self.left < 0:
            raise _TooLongError


def _document(
    run: Run, tools: Sequence[ToolDefinition], shown: Shown, room: _Room, schemas: bool, further_tools: int
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "request": room.text(run.input or ""),
        "answer": None if run.output is None else room.text(run.output),
        "tools": [dict(_tool(number, tool, room, schemas)) for number, tool in enumerate(tools, start=1)],
        "calls": [dict(_call(call, shown, room)) for call in run.tool_calls[:_MOST_CALLS]],
    }
    left = {"further_tools": further_tools, "further_calls": len(run.tool_calls) - _MOST_CALLS}
    return document | {name: number for name, number in left.items() if number > 0}


def _tool(number: int, tool: ToolDefinition, room: _Room, schemas: bool) -> Iterator[tuple[str, Any]]:
    yield "id", f"T{number}"
    yield "name", room.name(tool.name)
    if tool.description:
        yield "description", room.text(tool.description, 2_000)
    if tool.parameters and schemas:
        yield "parameters", room.value(tool.parameters, 500)


def _call(call: ToolCall, shown: Shown, room: _Room) -> Iterator[tuple[str, Any]]:
    yield "tool", room.name(call.name)
    if call.kind != "tool":
        yield "kind", call.kind
    if call.agent:
        yield "agent", room.name(call.agent)
    if call.outcome in ("denied", "deferred"):
        yield "outcome", call.outcome
    elif call.error is not None:
        yield "outcome", "failed"
    if shown != "names":
        arguments = call.arguments if call.arguments is not None else call.raw_arguments
        if arguments is not None:
            yield "arguments", room.value(arguments)
    if shown == "all":
        if call.error is not None:
            yield "error", room.text(call.error)
        elif call.result is not None:
            yield "result", room.value(call.result)


# --- values -----------------------------------------------------------------------------------------------------------


def _plain(value: Any, room: _Room, longest: int, depth: int = 0) -> Any:
    """A value as JSON can say it, however it was made: objects of the application may do anything when looked at."""
    room.use(1)
    room.items -= 1
    if value is None or isinstance(value, bool):
        return value
    try:
        if isinstance(value, str):
            return room.text(value, longest)
        if isinstance(value, int):
            return int(value) if abs(value) < _LONGEST_NUMBER else "[a number of many digits]"
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else str(float(value))
        if isinstance(value, bytes | bytearray | memoryview):
            return f"[{len(value)} bytes]"
        if depth >= _DEEPEST or room.items <= 0:
            return "[more levels]" if depth >= _DEEPEST else "[more items]"
        if isinstance(value, Mapping):
            return dict(_entries(value, room, longest, depth))
        if isinstance(value, list | tuple | set | frozenset):
            return list(_items(value, room, longest, depth))
        return room.text(_ADDRESS.sub("", repr(value)), longest)
    except _TooLongError:
        raise
    except Exception:  # noqa: BLE001 - it is not our code that runs there
        return "[cannot be shown]"


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""Where an object lies in memory. Nobody needs to know, and the same question would be another one each time."""


def _items(value: Any, room: _Room, longest: int, depth: int) -> Iterator[Any]:
    # Sets have another order in every process.
    items: Iterable[Any] = (
        nsmallest(_MOST_ITEMS, value, key=repr)
        if isinstance(value, set | frozenset)
        else islice(value, min(_MOST_ITEMS, room.items))
    )
    shown = 0
    for item in items:
        if room.items <= 0:
            break
        yield _plain(item, room, longest, depth + 1)
        shown += 1
    if more := len(value) - shown:
        yield f"[{more} more items]"


def _entries(value: Mapping[Any, Any], room: _Room, longest: int, depth: int) -> Iterator[tuple[str, Any]]:
    for place, (key, item) in enumerate(value.items()):
        if place == _MOST_ITEMS or room.items <= 0:
            yield "...", f"[{len(value) - place} more keys]"
            return
        yield room.name(str(key)), _plain(item, room, longest, depth + 1)


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    head = longest * 3 // 4
    tail = longest - head
    return f"{text[:head]} [... {len(text) - longest} characters ...] {text[-tail:]}"


def _written(document: Mapping[str, Any]) -> str:
    """JSON in which what is not to be seen, and what may begin a mark of a model's own, is written as its number."""
    text = json.dumps(document, ensure_ascii=False, separators=(", ", ": "))
    return _SUSPECT.sub(_visible, text)


_SUSPECT = re.compile(r"[<\x7f]|\[(?=/?[A-Z_]+\])|[^\x00-\x7f]")
"""`[INST]` is such a mark, and nothing that JSON itself may hold."""
_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})


def _visible(found: re.Match[str]) -> str:
    character = found[0]
    if character.isascii():
        return f"\\u{ord(character):04x}"
    return json.dumps(character)[1:-1] if unicodedata.category(character) in _UNSEEN else character
