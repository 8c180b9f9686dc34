"""Draft goldens: what a run did, as what is expected of the next one like it, for a person to look over."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from goldspan.errors import GoldenError
from goldspan.goldens.expectations import MAX_CALLS
from goldspan.goldens.matchers import read
from goldspan.goldens.naming import naming
from goldspan.goldens.writing import UnwritableError, as_yaml
from goldspan.model import COUNTED_KINDS, NO_VOCABULARY, ExpectedTool, Golden, Run, ToolCall, When
from goldspan.model.digests import content_digest
from goldspan.model.matchers import Contains, Equal

_LONGEST_ID = 48


def draft_of_run(run: Run, *, arguments: bool = False, cut_off: bool = False) -> Golden:
    """A golden that expects the tools that a run called, in their order, and that the run passes.

    A failed attempt after which the tool was called again is not expected once more. With `arguments` those of each
    call are expected as well, as far as a file can say them. `cut_off`: only the beginning of the run's input is known.
    What no file can say, such as a call without a name or half of a surrogate pair, is left out or replaced.
    """
    asked = None if run.input is None or not run.input.strip() else whole(run.input)
    return Golden(
        id=slug(asked or "", run.run_id, cut_off=cut_off),
        input=None if cut_off else asked,
        when=When(input=Contains(asked)) if cut_off and asked is not None else None,
        component=whole(run.component) if run.unit == "component" and run.component else None,
        tools=tuple(_expected(call, arguments) for call in _counted(run.tool_calls)[:MAX_CALLS]),
    )


def written(golden: Golden) -> str:
    """A draft as YAML; an argument that YAML cannot say is left out with the others of its call."""
    try:
        return as_yaml(golden)
    except UnwritableError:
        return as_yaml(replace(golden, tools=tuple(map(_sayable, golden.calls))))


def slug(text: str, run_id: str, *, cut_off: bool = False) -> str:
    """An id made of the words of a request: ASCII, and different for texts of which only the end differs."""
    folded = unicodedata.normalize("NFKD", text[:1000].casefold()).encode("ascii", "ignore").decode()
    words = "-".join(_WORDS.findall(folded))
    if not words:
        return f"run-{content_digest([run_id])[:8]}"
    if len(words) <= _LONGEST_ID and len(text) <= 1000 and not cut_off:
        return words
    kept = words[:_LONGEST_ID].rpartition("-")[0] or words[:_LONGEST_ID]
    return f"{kept}-{content_digest([text])[:6]}"


_WORDS = re.compile(r"[a-z0-9]+")


def whole(text: str) -> str:
    """A text of whole characters: half of a surrogate pair becomes the replacement character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _counted(calls: Sequence[ToolCall]) -> list[ToolCall]:
    """The calls of tools that were made, without failures after which their tool was called again.

    An agent by the name of a tool counts as well, whatever server the tool is of: a golden that names the tool names
    both.
    """
    same = naming(NO_VOCABULARY).tool
    made = [call for call in calls if call.made and call.name]
    tools = {same(replace(call, server=None)) for call in made if call.kind in COUNTED_KINDS}
    again: set[Hashable] = set()
    counted: list[ToolCall] = []
    for call in reversed([call for call in made if same(replace(call, server=None)) in tools]):
        tool = same(call)
        if call.error is None or tool not in again:
            counted.append(call)
        again.add(tool)
    return counted[::-1]


def _expected(call: ToolCall, arguments: bool) -> ExpectedTool:
    stated = call.arguments if arguments and isinstance(call.arguments, Mapping) else None
    try:
        return ExpectedTool(whole(call.name), None if stated is None else {key: _value(stated[key]) for key in stated})
    except GoldenError:
        return ExpectedTool(whole(call.name))


def _value(value: Any) -> Any:
    """A value so that it means itself in a golden, though something in it may look like a matcher."""
    try:
        if read(value, "draft", "result") is value:
            return value
    except GoldenError:
        pass
    read({"equal": value}, "draft", "result")  # what no golden can say at all is refused here
    return Equal(value)


def _sayable(tool: ExpectedTool) -> ExpectedTool:
    try:
        as_yaml(Golden("draft", tools=(tool,)))
    except UnwritableError:
        return replace(tool, arguments=None)
    return tool
