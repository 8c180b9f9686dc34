"""The two sides of a case as peers read them: names as written, arguments, outputs, column by column.

A profile that looks at names alone reads names alone, so that it costs no more than the peer's own loop.
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
"""A call or an expectation: a name, a dictionary with `name` and perhaps `args`, `output`, `type`, or the value."""

SIDE_ARGUMENT_KEYS = ("args", "arguments", "input_parameters")
FUNCTION_TYPE = "function"


class CaseSide:
    """One side of a case. Its columns are as long as it has items; each is read when it is first looked at."""

    __slots__ = ("_arguments", "_only_dict_arguments", "_outputs", "items", "keys", "names")

    def __init__(self, items: list[Any], names: list[str], arguments: Sequence[Any] | None = None) -> None:
        self.items = items
        self.names = names
        """As written, decoration and all."""
        self.keys: list[Any] = names
        """What of the names is compared: the formula's rule for names puts it here."""
        self._arguments = arguments
        self._only_dict_arguments = False  # whether all arguments are known to be dictionaries
        self._outputs: Sequence[Any] | None = None

    @property
    def arguments(self) -> Sequence[Any]:
        """Usually dictionaries; `None` where none were given."""
        if self._arguments is None:
            given = [args for item in self.items if type(item) is dict and type(args := item.get("args")) is dict]
            self._only_dict_arguments = len(given) == len(self.items)  # nearly always, and then there is no more to do
            self._arguments = given if self._only_dict_arguments else list(map(_arguments, self.items))
        return self._arguments

    @property
    def has_only_dict_arguments(self) -> bool:
        """Whether all arguments are dictionaries."""
        return self._only_dict_arguments or all(type(arguments) is dict for arguments in self.arguments)

    @property
    def outputs(self) -> Sequence[Any]:
        """What came back, or what should have; `None` where it is not given."""
        if self._outputs is None:
            self._outputs = [_output(item) for item in self.items]
        return self._outputs

    @property
    def types(self) -> Sequence[str] | None:
        """`function` or `mcp`, in lower case; `None` where nothing says what it is: all are functions."""
        for item in self.items:
            if isinstance(item, dict) and "type" in item:
                return [_tool_type(item) for item in self.items]
        return None

    @property
    def failed(self) -> Sequence[bool]:
        """Whether each call is known to have failed."""
        return [_error_of(item) not in (None, False) for item in self.items]

    def has_same_content(self, one: int, other: int) -> bool:
        """Whether two items of one name say the same, apart from their types."""
        if self.items[one] == self.items[other]:  # most that say the same are the same
            return True
        return bool(self.arguments[one] == self.arguments[other] and self.outputs[one] == self.outputs[other])

    def with_arguments(self, arguments: Sequence[Any]) -> CaseSide:
        """The same items with other arguments."""
        side = CaseSide(self.items, self.names, arguments)
        side.keys = self.keys
        return side

    def select(self, positions: Sequence[int]) -> CaseSide:
        """Some of the items, in that order."""
        arguments = None if self._arguments is None else [self._arguments[at] for at in positions]
        side = CaseSide([self.items[at] for at in positions], [self.names[at] for at in positions], arguments)
        side.keys = [self.keys[at] for at in positions]
        return side


def read_side(given: Iterable[SideItem], side_name: str) -> CaseSide:
    """Read one side. `what` says which one, for errors. Raises `GoldspanError`, naming the item that is wrong."""
    items = given if type(given) is list else _as_list(given, side_name)
    return CaseSide(items, read_side_names(items, side_name))


def read_side_names(given: Iterable[SideItem], side_name: str) -> list[str]:
    """Read only the names of one side, as `read` does."""
    items = given if type(given) is list else _as_list(given, side_name)
    try:  # most often all are names, or all are dictionaries
        names = items if items and type(items[0]) is str else list(map(_get_name, items))
        "".join(names)  # the quickest way to learn that every one of them is text
    except (KeyError, TypeError):
        return _checked_names(items, side_name)
    return names


_get_name = itemgetter("name")


def _as_list(given: Any, what: str) -> list[Any]:
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise GoldspanError(f"{what} must be a list, not {short_repr(given)}.")
    return list(given)


def _checked_names(items: Iterable[Any], what: str) -> list[str]:
    names = [_name(item) for item in items]
    if not all(isinstance(name, str) for name in names):
        raise _invalid_item_error(items, what)
    return names


def _name(item: Any) -> Any:
    if isinstance(item, ToolCall):
        return item.raw_name  # a peer sees what the instrumentation wrote
    if isinstance(item, ExpectedTool):
        return item.name
    return item.get("name") if isinstance(item, Mapping) else item


def _invalid_item_error(items: Iterable[Any], what: str) -> GoldspanError:
    for index, item in enumerate(items):
        if isinstance(item, Mapping):
            if not isinstance(item.get("name"), str):
                return GoldspanError(f"{what}[{index}]: has no name: {short_repr(item)}.")
        elif not isinstance(item, str | ToolCall | ExpectedTool):
            wanted = "the name of a tool or a dictionary with its name"
            return GoldspanError(f"{what}[{index}]: must be {wanted}, not {short_repr(item)}.")
    return GoldspanError(f"{what}: the name of a tool must be text.")


def _arguments(item: Any) -> Any:
    if type(item) is dict and type(given := item.get("arguments")) is dict and item.get("args") is None:
        return given
    if isinstance(item, str):
        return None
    if not isinstance(item, Mapping):
        return item.arguments
    given = next((item[key] for key in SIDE_ARGUMENT_KEYS if item.get(key) is not None), None)
    return _parse_json_arguments(given) if isinstance(given, str) else given


def _parse_json_arguments(text: str) -> Any:
    """Arguments as models write them, a JSON object in a text; any other text as it is."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return read if isinstance(read, dict) else text


def _output(item: Any) -> Any:
    if type(item) is dict or isinstance(item, Mapping):
        given = item.get("output")
        return item.get("result") if given is None else given
    if isinstance(item, str):
        return None
    return None if item.result is ABSENT else item.result


def _tool_type(item: Any) -> str:
    given = item.get("type") if isinstance(item, Mapping) else None
    return FUNCTION_TYPE if given is None else str(getattr(given, "value", given)).lower()


def _error_of(item: Any) -> Any:
    return item.get("error") if isinstance(item, Mapping) else getattr(item, "error", None)
