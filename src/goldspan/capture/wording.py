"""Expectations and definitions of tools in the words in which they are written down: plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from goldspan.errors import ConfigurationError
from goldspan.goldens.words import shown
from goldspan.model import ABSENT, ONCE, AnyOf, ExpectedTool, Item, Parallel, Times, ToolDefinition
from goldspan.model.matchers import MATCHERS, Equal
from goldspan.model.values import MATCHER_WORDS

_WORDS = frozenset(MATCHER_WORDS.values())


def expected_words(expected: object) -> list[Any]:
    """A list of expected tools as a golden's `tools` has it. Raises `ConfigurationError` for what is none.

    What dictionaries say is not looked at: whoever finds the golden of a run says what is wrong with them.
    """
    return [_expected(item) for item in _listed(expected, "expected tools")]


def definition_words(tools: object) -> list[Any]:
    """A list of tools that are offered, each a name or a definition. Raises `ConfigurationError` for what is none."""
    return [_definition(tool) for tool in _listed(tools, "available tools")]


def _listed(given: object, what: str) -> Iterable[Any]:
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ConfigurationError(f"{what} are a list, not {shown(given)}")
    return given


def _expected(item: object) -> Any:
    if isinstance(item, ExpectedTool | AnyOf | Parallel):
        return _item(item)
    if isinstance(item, Mapping):
        return _values(item)
    if isinstance(item, str) and item:
        return item
    raise ConfigurationError(f"an expected tool is a name, a dictionary or an ExpectedTool, not {shown(item)}")


def _item(item: Item) -> Any:
    if isinstance(item, Parallel):
        return {"parallel": [_item(each) for each in item.items]}
    if isinstance(item, AnyOf):
        options = [[_item(each) for each in option] for option in item.options]
        return {"any_of": [option[0] if len(option) == 1 else option for option in options], **_times(item.times)}
    said = {
        "arguments": None if item.arguments is None else {key: _value(value) for key, value in item.arguments.items()},
        "server": item.server,
        "match": item.match if item.match != "exact" else None,
        "ignore": list(item.ignore) or None,
        "defaults": dict(item.defaults) or None,
        "agent": item.agent,
    }
    words = {key: value for key, value in said.items() if value is not None} | _times(item.times)
    if item.result is not ABSENT:
        words["result"] = _value(item.result)
    return {"name": item.name, **words} if words else item.name


def _times(times: Times) -> dict[str, Any]:
    if times == ONCE:
        return {}
    if times == Times(0, 1):
        return {"optional": True}
    if times.least == times.most:
        return {"times": times.most}
    return {"times": {"min": times.least} if times.most is None else {"min": times.least, "max": times.most}}


def _value(value: Any) -> Any:
    """A value that is meant as it is, unless it is a matcher; data that look like one are marked as data."""
    if isinstance(value, MATCHERS):
        return _values(value)
    if isinstance(value, Mapping):
        return {"equal": dict(value)} if _WORDS & value.keys() else {key: _value(each) for key, each in value.items()}
    return [_value(each) for each in value] if isinstance(value, list | tuple) else value


def _values(value: Any) -> Any:
    """A value with matchers in it as a golden file writes them."""
    if isinstance(value, ExpectedTool | AnyOf | Parallel):
        return _item(value)
    if isinstance(value, MATCHERS):
        said = {field.name: getattr(value, field.name) for field in fields(value)}
        word, *options = said or {"": True}
        inner = said.get(word, True)
        told = {MATCHER_WORDS[type(value)]: inner if isinstance(value, Equal) else _value(inner)}
        return told | {option: said[option] for option in options if said[option] is not None}
    if isinstance(value, Mapping):
        return {key: _values(each) for key, each in value.items()}
    return [_values(each) for each in value] if isinstance(value, list | tuple) else value


def _definition(tool: object) -> Any:
    if isinstance(tool, str) and tool:
        return {"type": "function", "name": tool}
    if isinstance(tool, Mapping):
        return tool
    if isinstance(tool, ToolDefinition):
        said = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        hints = {} if tool.read_only is None else {"annotations": {"readOnlyHint": tool.read_only}}
        return {"type": "function", **{key: value for key, value in said.items() if value is not None}, **hints}
    raise ConfigurationError(f"an available tool is a name, a dictionary or a ToolDefinition, not {shown(tool)}")
