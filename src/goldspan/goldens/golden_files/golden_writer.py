"""Writes goldens as YAML, and drafts a golden from a run for a person to review."""

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
    Vocabulary,
    When,
)
from goldspan.model.telemetry import content_digest
from goldspan.model.value_matchers import MATCHER_KEYS, MATCHERS, Anything, Contains, Equal, Matcher

_MAX_LINE_WIDTH = 90
"""The greatest width of a value on one line, in characters."""
_MAX_LEVELS = 60
"""The greatest nesting depth; the loader accepts a few more levels."""
_MAX_KEY_LENGTH = 1000
"""The greatest length of a key in characters; YAML accepts no longer keys in this form."""


class UnwritableError(ValueError):
    """YAML cannot express a value: a lone surrogate, a very long key, or an object that is not plain data."""


def goldens_to_yaml(*goldens: Golden) -> str:
    """Returns goldens as items of a YAML list, indented for use below `goldens:`; also valid as a file.

    Declared defaults of tools are written with each call. Unprintable characters are written as escapes. Undefined keys
    inside `tools` are omitted. Raises `UnwritableError`.
    """
    lines = _list_lines(_mapping_lines(golden_to_mapping(golden), _MAX_LEVELS) for golden in goldens)
    return "".join(f"  {line}\n" for line in lines)


def golden_with_comments_to_yaml(
    golden: Golden, comments: Sequence[str], item_comments: Sequence[Sequence[str]]
) -> str:
    """Returns a golden as `goldens_to_yaml` does, with comments above it and above each item of its `tools`."""
    lines: list[str] = [f"# {_comment_text(comment)}" for comment in comments]
    mapping = golden_to_mapping(golden)
    items = mapping.pop("tools", [])
    golden_lines = [
        *_mapping_lines(mapping, _MAX_LEVELS),
        *(["tools:"] if items else [] if golden.policy else ["tools: []"]),
    ]
    for item, notes in zip(items, item_comments, strict=True):
        golden_lines += [f"  # {_comment_text(note)}" for note in notes]
        golden_lines += [f"  {line}" for line in _list_lines([_yaml_lines(item, _MAX_LEVELS)])]
    lines += _list_lines([golden_lines])
    return "".join(f"  {line}\n" for line in lines)


def _comment_text(text: str) -> str:
    """Returns a text on one line of printable characters."""
    return "".join(character if character.isprintable() else " " for character in replace_lone_surrogates(text))


def golden_to_mapping(golden: Golden) -> dict[str, Any]:
    """Returns a golden as the mapping of a golden file, without default values."""
    mapping: dict[str, Any] = {"id": golden.id}
    if golden.input is not None:
        mapping["input"] = golden.input
    if golden.when is not None:
        mapping["when"] = _when_to_mapping(golden.when)
    if golden.component is not None:
        mapping["component"] = golden.component
    rules = {
        name: _value_to_plain(value) for name in _RULE_KEYS if (value := getattr(golden, name)) != _DEFAULT_RULES[name]
    }
    mapping |= {name: rules.pop(name) for name in ("order",) if name in rules}
    if golden.policy:
        mapping["policy"] = True
    else:
        mapping["tools"] = [_item_to_plain(item) for item in golden.tools]
    return mapping | rules | {key: value for key, value in golden.metadata.items() if "]." not in key}


_RULE_KEYS = (
    *("order", "forbid", "max_calls", "attempts", "duplicates", "extra", "depth", "mode"),
    *("threshold", "thresholds", "unknown", "metrics", "write_tools"),
)
_DEFAULT_RULES = {rule.name: getattr(Golden(""), rule.name) for rule in fields(Golden)}
_TOOL_DEFAULTS = {key.name: getattr(ExpectedTool(""), key.name) for key in fields(ExpectedTool)}


def _when_to_mapping(when: When) -> dict[str, Any]:
    conditions = {condition.name: getattr(when, condition.name) for condition in fields(when)}
    return {name: _value_to_plain(value) for name, value in conditions.items() if value is not None and value != {}}


def _item_to_plain(item: ExpectedItem) -> Any:
    if isinstance(item, Parallel):
        return {"parallel": [_item_to_plain(inner) for inner in item.items]}
    if isinstance(item, AnyOf):
        options = [
            _item_to_plain(option[0]) if len(option) == 1 else [*map(_item_to_plain, option)] for option in item.options
        ]
        return {"any_of": options, **_times_to_mapping(item.times)}
    entry = {
        name: _value_to_plain(value) for name in _TOOL_KEYS if (value := getattr(item, name)) != _TOOL_DEFAULTS[name]
    }
    if item.result is not ABSENT:
        entry["result"] = _value_to_plain(item.result)
    entry |= _times_to_mapping(item.times)
    return {"name": item.name, **entry} if entry else item.name


_TOOL_KEYS = ("server", "agent", "arguments", "match", "ignore", "defaults")


def _times_to_mapping(times: Times) -> dict[str, Any]:
    if not times.stated:
        return {"optional": True} if times.least == 0 else {}
    if times.least == times.most:
        return {"times": times.least}
    return {"times": {"min": times.least} | ({} if times.most is None else {"max": times.most})}


def _value_to_plain(value: Any, levels: int = _MAX_LEVELS) -> Any:
    """Returns a value in which the mappings of golden files replace matchers."""
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
    (_, value), *options = [(field.name, getattr(matcher, field.name)) for field in fields(matcher)]
    plain_value = value if isinstance(matcher, Equal) else _value_to_plain(value, levels - 1)
    stated_options = {name: option for name, option in options if option is not None}
    return {MATCHER_KEYS[type(matcher)]: plain_value, **stated_options}


# --- YAML -------------------------------------------------------------------------------------------------------------


def _yaml_lines(value: Any, levels: int) -> Iterator[str]:
    """Yields a value on one line if it is short, else with each part on its own lines."""
    brief = _flow_style(value, levels)
    if not _needs_block_style(value, brief):
        yield brief
    elif isinstance(value, Mapping):
        yield from _mapping_lines(value, levels - 1)
    else:
        yield from _list_lines(_yaml_lines(part, levels - 1) for part in value)


def _mapping_lines(value: Mapping[str, Any], levels: int) -> Iterator[str]:
    """Yields the entries of a mapping, each starting on a new line."""
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
    """Yields the lines of the items of a list, each item after a dash."""
    for lines in parts:
        indent = "- "
        for line in lines:
            yield indent + line
            indent = "  "


def _flow_style(value: Any, levels: int) -> str:
    """Returns a value in YAML flow style, on one line."""
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
    scalar = _yaml_scalar(key)
    if len(scalar) > _MAX_KEY_LENGTH:
        raise UnwritableError("a key is too long")
    return scalar


_PLAIN_SCALAR = re.compile(r"[A-Za-z](?:[A-Za-z0-9 .'?!()/_-]*[A-Za-z0-9.'?!()/_-])?")
"""Texts that need no quotes at any place of a YAML file."""
_RESERVED_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""Words that some YAML parsers do not read as text."""
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
    """Returns a golden that expects the tools that a run called, in order; the run passes it.

    A failed attempt before another call of the same tool is not expected. With `arguments`, the arguments of the calls
    are expected as well, if a file can express them. With `is_input_truncated`, only the start of the input of the run
    is known. What a file cannot express, such as a call without a name or a lone surrogate, is omitted or replaced.
    """
    input_text = None if run.input is None or not run.input.strip() else replace_lone_surrogates(run.input)
    return Golden(
        id=golden_id_for_text(input_text or "", run.run_id, is_truncated=is_input_truncated),
        input=None if is_input_truncated else input_text,
        when=When(input=Contains(input_text)) if is_input_truncated and input_text is not None else None,
        component=replace_lone_surrogates(run.component) if run.unit == "component" and run.component else None,
        tools=tuple(_expected_tool(call, arguments) for call in effective_calls(run.tool_calls)[:MAX_CALLS]),
    )


def draft_to_yaml(golden: Golden) -> str:
    """Returns a draft as YAML. If YAML cannot express an argument of a call, all arguments of the call are omitted."""
    try:
        return goldens_to_yaml(golden)
    except UnwritableError:
        return goldens_to_yaml(replace(golden, tools=tuple(map(_drop_unwritable_arguments, golden.expected_calls))))


def golden_id_for_text(text: str, run_id: str, *, is_truncated: bool = False) -> str:
    """Returns an ASCII id from the words of a request; a digest distinguishes long texts with the same start."""
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
    """Replaces lone surrogates in a text by the replacement character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def effective_calls(calls: Sequence[ToolCall], vocabulary: Vocabulary = NO_VOCABULARY) -> list[ToolCall]:
    """Returns the calls of tools, without failed attempts before another call of the same tool.

    Calls of an agent with the name of a tool count as well, whatever the server of the tool, because a golden that
    names the tool matches both.
    """
    tool_identity = tool_name_matcher(vocabulary).tool_identity
    made = [call for call in calls if call.was_made and call.name]
    tools = {tool_identity(replace(call, server=None)) for call in made if call.kind in COUNTED_TOOL_KINDS}
    called_later: set[Hashable] = set()
    effective: list[ToolCall] = []
    for call in reversed([call for call in made if tool_identity(replace(call, server=None)) in tools]):
        tool = tool_identity(call)
        if call.error is None or tool not in called_later:
            effective.append(call)
        called_later.add(tool)
    return effective[::-1]


def _expected_tool(call: ToolCall, with_arguments: bool) -> ExpectedTool:
    arguments = call.arguments if with_arguments and isinstance(call.arguments, Mapping) else None
    try:
        return ExpectedTool(
            replace_lone_surrogates(call.name),
            None if arguments is None else {key: literal_value(arguments[key]) for key in arguments},
        )
    except GoldenError:
        return ExpectedTool(replace_lone_surrogates(call.name))


def literal_value(value: Any) -> Any:
    """Returns a value that a golden compares literally, wrapped in `Equal` if it looks like a matcher."""
    try:
        if parse_matchers(value, "draft", "result") is value:
            return value
    except GoldenError:
        pass
    parse_matchers({"equal": value}, "draft", "result")  # raises if no golden can express the value
    return Equal(value)


def _drop_unwritable_arguments(tool: ExpectedTool) -> ExpectedTool:
    try:
        goldens_to_yaml(Golden("draft", tools=(tool,)))
    except UnwritableError:
        return replace(tool, arguments=None)
    return tool
