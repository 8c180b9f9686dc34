"""Draft goldens: what a run did, as what is expected of the next one like it, for a person to look over."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from goldspan.errors import GoldenError
from goldspan.goldens.schema.expected_tools import MAX_CALLS
from goldspan.goldens.schema.matchers import parse_matchers
from goldspan.goldens.tool_names import tool_name_matcher
from goldspan.model import (
    ABSENT,
    COUNTED_TOOL_KINDS,
    NO_VOCABULARY,
    AnyOf,
    ExpectedItem,
    ExpectedTool,
    Golden,
    Parallel,
    Run,
    Times,
    ToolCall,
    When,
)
from goldspan.model.telemetry import content_digest
from goldspan.model.value_matchers import MATCHER_KEYS, MATCHERS, Anything, Contains, Equal, Matcher

_MAX_LINE_WIDTH = 90
"""What fits into so many characters stands in one line."""
_MAX_LEVELS = 60
"""Lists and mappings inside each other; the reader takes a few more."""
_MAX_KEY_LENGTH = 1000
"""Characters of a key: YAML takes no longer ones in this form."""


class UnwritableError(ValueError):
    """YAML has no way to say a value: halves of surrogate pairs, keys without end, objects that are no data."""


def goldens_to_yaml(*goldens: Golden) -> str:
    """Goldens as the items of a list, indented as beneath `goldens:`; they can also be a file of their own.

    What the vocabulary says of tools stands beside each call, and nothing hidden is in the text: what cannot be seen is
    told by its number. Keys of the author's own inside `tools` are left out. Raises `UnwritableError`.
    """
    lines = _list_lines(_mapping_lines(golden_to_mapping(golden), _MAX_LEVELS) for golden in goldens)
    return "".join(f"  {line}\n" for line in lines)


def golden_to_mapping(golden: Golden) -> dict[str, Any]:
    """A golden as the mapping that a file holds; what is as everywhere is not said."""
    said: dict[str, Any] = {"id": golden.id}
    if golden.input is not None:
        said["input"] = golden.input
    if golden.when is not None:
        said["when"] = _when_to_mapping(golden.when)
    if golden.component is not None:
        said["component"] = golden.component
    rules = {
        name: _value_to_plain(value) for name in _RULE_KEYS if (value := getattr(golden, name)) != _DEFAULT_RULES[name]
    }
    said |= {name: rules.pop(name) for name in ("order",) if name in rules}
    if golden.policy:
        said["policy"] = True
    else:
        said["tools"] = [_item_to_plain(item) for item in golden.tools]
    return said | rules | {key: value for key, value in golden.metadata.items() if "]." not in key}


_RULE_KEYS = (
    *("order", "forbid", "max_calls", "attempts", "duplicates", "extra", "depth", "mode"),
    *("threshold", "thresholds", "unknown", "metrics", "write_tools"),
)
_DEFAULT_RULES = {each.name: getattr(Golden(""), each.name) for each in fields(Golden)}
_TOOL_DEFAULTS = {each.name: getattr(ExpectedTool(""), each.name) for each in fields(ExpectedTool)}


def _when_to_mapping(when: When) -> dict[str, Any]:
    told = {each.name: getattr(when, each.name) for each in fields(when)}
    return {name: _value_to_plain(value) for name, value in told.items() if value is not None and value != {}}


def _item_to_plain(item: ExpectedItem) -> Any:
    if isinstance(item, Parallel):
        return {"parallel": [_item_to_plain(each) for each in item.items]}
    if isinstance(item, AnyOf):
        options = [
            _item_to_plain(option[0]) if len(option) == 1 else [*map(_item_to_plain, option)] for option in item.options
        ]
        return {"any_of": options, **_times_to_mapping(item.times)}
    said = {
        name: _value_to_plain(value) for name in _TOOL_KEYS if (value := getattr(item, name)) != _TOOL_DEFAULTS[name]
    }
    if item.result is not ABSENT:
        said["result"] = _value_to_plain(item.result)
    said |= _times_to_mapping(item.times)
    return {"name": item.name, **said} if said else item.name


_TOOL_KEYS = ("server", "agent", "arguments", "match", "ignore", "defaults")


def _times_to_mapping(times: Times) -> dict[str, Any]:
    if not times.stated:
        return {"optional": True} if times.least == 0 else {}
    if times.least == times.most:
        return {"times": times.least}
    return {"times": {"min": times.least} | ({} if times.most is None else {"max": times.most})}


def _value_to_plain(value: Any, levels: int = _MAX_LEVELS) -> Any:
    """A value with the mappings of the golden language in place of matchers."""
    if not levels:
        raise UnwritableError("it is nested too deeply")
    if isinstance(value, MATCHERS):
        return _matcher_to_mapping(value, levels)
    if isinstance(value, Mapping):
        return {key: _value_to_plain(part, levels - 1) for key, part in value.items()}
    return [_value_to_plain(part, levels - 1) for part in value] if isinstance(value, list | tuple) else value


def _matcher_to_mapping(matcher: Matcher, levels: int) -> dict[str, Any]:
    if isinstance(matcher, Anything):
        return {MATCHER_KEYS[Anything]: True}
    said = [(each.name, getattr(matcher, each.name)) for each in fields(matcher)]
    word, value = MATCHER_KEYS[type(matcher)], said[0][1]
    told = {word: value if isinstance(matcher, Equal) else _value_to_plain(value, levels - 1)}
    return told | {name: option for name, option in said[1:] if option is not None}


# --- YAML -------------------------------------------------------------------------------------------------------------


def _yaml_lines(value: Any, levels: int) -> Iterator[str]:
    """A value on one line where that is short, else on one or more for each of its parts."""
    brief = _flow_style(value, levels)
    if not _needs_block_style(value, brief):
        yield brief
    elif isinstance(value, Mapping):
        yield from _mapping_lines(value, levels - 1)
    else:
        yield from _list_lines(_yaml_lines(part, levels - 1) for part in value)


def _mapping_lines(value: Mapping[str, Any], levels: int) -> Iterator[str]:
    """The entries of a mapping, each beginning on a line of its own."""
    for key, part in value.items():
        brief = _flow_style(part, levels)
        if _needs_block_style(part, brief):
            yield f"{_yaml_key(key)}:"
            yield from (f"  {line}" for line in _yaml_lines(part, levels))
        else:
            yield f"{_yaml_key(key)}: {brief}"


def _needs_block_style(value: Any, brief: str) -> bool:
    return len(brief) > _MAX_LINE_WIDTH and isinstance(value, Mapping | list | tuple)


def _list_lines(parts: Iterable[Iterable[str]]) -> Iterator[str]:
    """The lines of the parts of a list, each part behind a dash."""
    for lines in parts:
        begins = "- "
        for line in lines:
            yield begins + line
            begins = "  "


def _flow_style(value: Any, levels: int) -> str:
    """A value on one line."""
    if not levels:
        raise UnwritableError("it is nested too deeply")
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_yaml_key(key)}: {_flow_style(part, levels - 1)}' for key, part in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_flow_style(part, levels - 1) for part in value)}]"
    return _yaml_scalar(value)


def _yaml_scalar(value: Any) -> str:
    if isinstance(value, str):
        return value if _PLAIN_SCALAR.fullmatch(value) and value.lower() not in _RESERVED_WORDS else _quote(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return repr(value).replace("inf", ".inf").replace("nan", ".nan")
    if isinstance(value, int):
        try:
            return str(value)
        except ValueError:
            raise UnwritableError("it is a number of thousands of digits") from None
    raise UnwritableError(f"it is a {type(value).__name__}")


def _yaml_key(key: Any) -> str:
    if not isinstance(key, str):
        raise UnwritableError("a key is no text")
    written = _yaml_scalar(key)
    if len(written) > _MAX_KEY_LENGTH:
        raise UnwritableError("a key is too long")
    return written


_PLAIN_SCALAR = re.compile(r"[A-Za-z](?:[A-Za-z0-9 .'?!()/_-]*[A-Za-z0-9.'?!()/_-])?")
"""A text that means itself without quotes wherever it stands."""
_RESERVED_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""What some reader of YAML takes for something else than text."""
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _quote(text: str) -> str:
    return f'"{"".join(map(_escape_character, text))}"'


def _escape_character(character: str) -> str:
    if escape := _ESCAPES.get(character):
        return escape
    if character.isprintable():
        return character
    number = ord(character)
    if 0xD800 <= number <= 0xDFFF:
        raise UnwritableError("half of a surrogate pair is in it")
    return f"\\x{number:02X}" if number < 0x100 else f"\\u{number:04X}" if number < 0x10000 else f"\\U{number:08X}"


_MAX_ID_LENGTH = 48


def draft_golden(run: Run, *, arguments: bool = False, is_input_truncated: bool = False) -> Golden:
    """A golden that expects the tools that a run called, in their order, and that the run passes.

    A failed attempt after which the tool was called again is not expected once more. With `arguments` those of each
    call are expected as well, as far as a file can say them. `cut_off`: only the beginning of the run's input is known.
    What no file can say, such as a call without a name or half of a surrogate pair, is left out or replaced.
    """
    asked = None if run.input is None or not run.input.strip() else replace_lone_surrogates(run.input)
    return Golden(
        id=golden_id_for_text(asked or "", run.run_id, is_truncated=is_input_truncated),
        input=None if is_input_truncated else asked,
        when=When(input=Contains(asked)) if is_input_truncated and asked is not None else None,
        component=replace_lone_surrogates(run.component) if run.unit == "component" and run.component else None,
        tools=tuple(_expected_tool(call, arguments) for call in _effective_calls(run.tool_calls)[:MAX_CALLS]),
    )


def draft_to_yaml(golden: Golden) -> str:
    """A draft as YAML; an argument that YAML cannot say is left out with the others of its call."""
    try:
        return goldens_to_yaml(golden)
    except UnwritableError:
        return goldens_to_yaml(replace(golden, tools=tuple(map(_drop_unwritable_arguments, golden.expected_calls))))


def golden_id_for_text(text: str, run_id: str, *, is_truncated: bool = False) -> str:
    """An id made of the words of a request: ASCII, and different for texts of which only the end differs."""
    folded = unicodedata.normalize("NFKD", text[:1000].casefold()).encode("ascii", "ignore").decode()
    words = "-".join(_ID_WORDS.findall(folded))
    if not words:
        return f"run-{content_digest([run_id])[:8]}"
    if len(words) <= _MAX_ID_LENGTH and len(text) <= 1000 and not is_truncated:
        return words
    kept = words[:_MAX_ID_LENGTH].rpartition("-")[0] or words[:_MAX_ID_LENGTH]
    return f"{kept}-{content_digest([text])[:6]}"


_ID_WORDS = re.compile(r"[a-z0-9]+")


def replace_lone_surrogates(text: str) -> str:
    """A text of whole characters: half of a surrogate pair becomes the replacement character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _effective_calls(calls: Sequence[ToolCall]) -> list[ToolCall]:
    """The calls of tools that were made, without failures after which their tool was called again.

    An agent by the name of a tool counts as well, whatever server the tool is of: a golden that names the tool names
    both.
    """
    same = tool_name_matcher(NO_VOCABULARY).tool_identity
    made = [call for call in calls if call.was_made and call.name]
    tools = {same(replace(call, server=None)) for call in made if call.kind in COUNTED_TOOL_KINDS}
    again: set[Hashable] = set()
    counted: list[ToolCall] = []
    for call in reversed([call for call in made if same(replace(call, server=None)) in tools]):
        tool = same(call)
        if call.error is None or tool not in again:
            counted.append(call)
        again.add(tool)
    return counted[::-1]


def _expected_tool(call: ToolCall, with_arguments: bool) -> ExpectedTool:
    stated = call.arguments if with_arguments and isinstance(call.arguments, Mapping) else None
    try:
        return ExpectedTool(
            replace_lone_surrogates(call.name),
            None if stated is None else {key: _literal_value(stated[key]) for key in stated},
        )
    except GoldenError:
        return ExpectedTool(replace_lone_surrogates(call.name))


def _literal_value(value: Any) -> Any:
    """A value so that it means itself in a golden, though something in it may look like a matcher."""
    try:
        if parse_matchers(value, "draft", "result") is value:
            return value
    except GoldenError:
        pass
    parse_matchers({"equal": value}, "draft", "result")  # what no golden can say at all is refused here
    return Equal(value)


def _drop_unwritable_arguments(tool: ExpectedTool) -> ExpectedTool:
    try:
        goldens_to_yaml(Golden("draft", tools=(tool,)))
    except UnwritableError:
        return replace(tool, arguments=None)
    return tool
