"""Reads the called and the expected tools of a case as columns: names, arguments and outputs.

A profile that compares only names reads only names, so that it costs no more than the loop of the peer itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

from goldspan.errors import GoldspanError
from goldspan.goldens.spelling import short_repr
from goldspan.model import ABSENT, ExpectedTool, ToolCall

SideItem: TypeAlias = "str | Mapping[str, Any] | ToolCall | ExpectedTool"
"""A call or an expectation: a name, a dictionary (`name`, optionally `args`, `output`, `type`), or a model value."""

SIDE_ARGUMENT_KEYS = ("args", "arguments", "input_parameters")
FUNCTION_TYPE = "function"


class CaseSide:
    """One side of a case as columns of equal length. Each column is computed at its first use."""

    __slots__ = ("_arguments", "_only_dict_arguments", "_outputs", "items", "keys", "names")

    def __init__(self, items: list[Any], names: list[str], arguments: Sequence[Any] | None = None) -> None:
        self.items = items
        self.names = names
        """The original names, with prefixes."""
        self.keys: list[Any] = names
        """The compared form of the names, which the name rule of the formula sets."""
        self._arguments = arguments
        self._only_dict_arguments = False  # whether all arguments are known to be dictionaries
        self._outputs: Sequence[Any] | None = None

    @property
    def arguments(self) -> Sequence[Any]:
        """The arguments of each item: usually a dictionary, `None` if none are stated."""
        if self._arguments is None:
            # The fast path for the most frequent form of items.
            arguments = [args for item in self.items if type(item) is dict and type(args := item.get("args")) is dict]
            self._only_dict_arguments = len(arguments) == len(self.items)
            self._arguments = arguments if self._only_dict_arguments else list(map(_arguments, self.items))
        return self._arguments

    @property
    def has_only_dict_arguments(self) -> bool:
        """Whether all arguments are dictionaries."""
        return self._only_dict_arguments or all(type(arguments) is dict for arguments in self.arguments)

    @property
    def outputs(self) -> Sequence[Any]:
        """The actual or expected output of each item; `None` if none is stated."""
        if self._outputs is None:
            self._outputs = [_output(item) for item in self.items]
        return self._outputs

    @property
    def types(self) -> Sequence[str] | None:
        """The type of each item, such as `function` or `mcp`; `None` if no item states one: all are functions."""
        for item in self.items:
            if isinstance(item, dict) and "type" in item:
                return [_tool_type(item) for item in self.items]
        return None

    @property
    def failed(self) -> Sequence[bool]:
        """Whether each call is known to have failed."""
        return [_error_of(item) not in (None, False) for item in self.items]

    def has_same_content(self, first: int, second: int) -> bool:
        """Whether two items with the same name have equal arguments and outputs."""
        if self.items[first] == self.items[second]:  # the fast path
            return True
        return bool(self.arguments[first] == self.arguments[second] and self.outputs[first] == self.outputs[second])

    def with_arguments(self, arguments: Sequence[Any]) -> CaseSide:
        """Returns the same items with other arguments."""
        side = CaseSide(self.items, self.names, arguments)
        side.keys = self.keys
        return side

    def select(self, positions: Sequence[int]) -> CaseSide:
        """Returns the items at the positions, in that order."""
        arguments = None if self._arguments is None else [self._arguments[position] for position in positions]
        side = CaseSide(
            [self.items[position] for position in positions],
            [self.names[position] for position in positions],
            arguments,
        )
        side.keys = [self.keys[position] for position in positions]
        return side


def read_side(side: Iterable[SideItem], side_name: str) -> CaseSide:
    """Reads one side. Raises `GoldspanError` that names the side and the invalid item."""
    items = side if type(side) is list else _as_list(side, side_name)
    return CaseSide(items, read_side_names(items, side_name))


def read_side_names(side: Iterable[SideItem], side_name: str) -> list[str]:
    """Reads only the names of one side. Raises `GoldspanError` like `read_side`."""
    items = side if type(side) is list else _as_list(side, side_name)
    try:  # the fast path: all items are names, or all are dictionaries
        names = items if items and type(items[0]) is str else list(map(_get_name, items))
        "".join(names)  # the fastest check that all of them are text
    except (KeyError, TypeError):
        return _checked_names(items, side_name)
    return names


_get_name = itemgetter("name")


def _as_list(side: Any, side_name: str) -> list[Any]:
    if isinstance(side, str | Mapping) or not isinstance(side, Iterable):
        raise GoldspanError(f"{side_name} must be a list, not {short_repr(side)}.")
    return list(side)


def _checked_names(items: Iterable[Any], side_name: str) -> list[str]:
    names = [_name(item) for item in items]
    if not all(isinstance(name, str) for name in names):
        raise _invalid_item_error(items, side_name)
    return names


def _name(item: Any) -> Any:
    if isinstance(item, ToolCall):
        return item.raw_name  # peers compare the recorded names
    if isinstance(item, ExpectedTool):
        return item.name
    return item.get("name") if isinstance(item, Mapping) else item


def _invalid_item_error(items: Iterable[Any], side_name: str) -> GoldspanError:
    for index, item in enumerate(items):
        if isinstance(item, Mapping):
            if not isinstance(item.get("name"), str):
                return GoldspanError(f"{side_name}[{index}]: has no name: {short_repr(item)}.")
        elif not isinstance(item, str | ToolCall | ExpectedTool):
            accepted = "the name of a tool or a dictionary with its name"
            return GoldspanError(f"{side_name}[{index}]: must be {accepted}, not {short_repr(item)}.")
    return GoldspanError(f"{side_name}: the name of a tool must be text.")


def _arguments(item: Any) -> Any:
    if type(item) is dict and type(arguments := item.get("arguments")) is dict and item.get("args") is None:
        return arguments
    if isinstance(item, str):
        return None
    if not isinstance(item, Mapping):
        return item.arguments
    arguments = next((item[key] for key in SIDE_ARGUMENT_KEYS if item.get(key) is not None), None)
    return _parse_json_arguments(arguments) if isinstance(arguments, str) else arguments


def _parse_json_arguments(text: str) -> Any:
    """Parses arguments that are a JSON object in a text; returns any other text unchanged."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return arguments if isinstance(arguments, dict) else text


def _output(item: Any) -> Any:
    if type(item) is dict or isinstance(item, Mapping):
        output = item.get("output")
        return item.get("result") if output is None else output
    if isinstance(item, str):
        return None
    return None if item.result is ABSENT else item.result


def _tool_type(item: Any) -> str:
    tool_type = item.get("type") if isinstance(item, Mapping) else None
    return FUNCTION_TYPE if tool_type is None else str(getattr(tool_type, "value", tool_type)).lower()


def _error_of(item: Any) -> Any:
    return item.get("error") if isinstance(item, Mapping) else getattr(item, "error", None)
