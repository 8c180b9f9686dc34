"""Defines the arguments of the assistant tools: their JSON Schemas, and how values are parsed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

from goldspan.errors import ConfigurationError
from goldspan.goldens.spelling import did_you_mean, join_words, short_repr
from goldspan.model import ArgumentsMatch, CallOrder, ExtraCalls
from goldspan.store.query_parameters import CURSOR, FILTER_PARAMETERS, Parameter, parse_parameter
from goldspan.web.display_text import unescape_invisible
from goldspan.web.golden_status import GoldenState

MAX_PAGE_SIZE = 100
MAX_CALLS = 500
"""Calls, and expected tools, that `evaluate` accepts."""
MAX_LIST_LENGTH = 200_000
"""Characters of the JSON of a list of calls."""
_ALL_STATES = "all"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a tool."""

    name: str
    description: str
    schema: Mapping[str, Any]
    parse: Callable[[Any], Any]
    """Returns the parsed value. Raises `ConfigurationError` for a value that is not valid."""
    is_required: bool = False


def input_schema(arguments: Iterable[Argument]) -> dict[str, Any]:
    """Return the JSON Schema of the arguments of a tool."""
    listed = list(arguments)
    return {
        "type": "object",
        "properties": {argument.name: {**argument.schema, "description": argument.description} for argument in listed},
        "required": [argument.name for argument in listed if argument.is_required],
        "additionalProperties": False,
    }


def parse_arguments(tool: str, arguments: Iterable[Argument], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parsed values of the arguments that are given.

    `None` and empty text count as not given, because some models send them. Raises `ConfigurationError` for an argument
    that is unknown, missing or not valid.
    """
    by_name = {argument.name: argument for argument in arguments}
    for name in given:
        if name not in by_name:
            hint = did_you_mean(name, by_name) or f" Its arguments are {join_words(by_name)}."
            raise ConfigurationError(f"{tool} has no argument {short_repr(name)}.{hint}")
    values: dict[str, Any] = {}
    for name, argument in by_name.items():
        value = given.get(name)
        if value is not None and value != "":
            values[name] = argument.parse(value)
        elif argument.is_required:
            raise ConfigurationError(f"{tool} needs the argument {name}.")
    return values


# --- types of values --------------------------------------------------------------------------------------------------


def _parse_text(name: str, value: Any) -> str:
    """Return a text, in which invisible characters may be escaped as in results."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be text, not {short_repr(value)}.")
    return unescape_invisible(value)


def _parse_choice(name: str, choices: tuple[str, ...], value: Any) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ConfigurationError(f"{name} must be {join_words(choices, last='or')}, not {short_repr(value)}.")
    return value


def _parse_integer(name: str, least: int, most: int, value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,10}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigurationError(f"{name} must be a whole number from {least} to {most}, not {short_repr(value)}.")
    return value


def _parse_offset(value: Any) -> int:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,9}", value):
        raise ConfigurationError(f"cursor must be the next_cursor of the previous page, not {short_repr(value)}.")
    return int(value)


def _parse_state(value: Any) -> str | None:
    state = _parse_choice("state", (*get_args(GoldenState), _ALL_STATES), value)
    return None if state == _ALL_STATES else state


def _parse_query_value(parameter: Parameter, value: Any) -> Any:
    """Return the value of a parameter of the API, which can be a number or a boolean in JSON."""
    if isinstance(value, str):
        text = value.strip()  # before unescaping, which can add white space of the recorded text
    else:
        text = json.dumps(value) if isinstance(value, bool | int | float) else value
    return parse_parameter(parameter, _parse_text(parameter.name, text))


def _parse_tool_list(name: str, value: Any) -> Any:
    """Return a list of calls or expected tools, which may be pasted as text, if it is not too large."""
    if not isinstance(value, str | list):
        raise ConfigurationError(f"{name} must be a list of tools, not {short_repr(value)}.")
    try:
        length = len(value) if isinstance(value, str) else len(json.dumps(value))
    except RecursionError:
        raise ConfigurationError(f"{name} is nested too deeply.") from None
    if length > MAX_LIST_LENGTH:
        raise ConfigurationError(f"{name} may have {MAX_LIST_LENGTH} characters of JSON, and has {length}.")
    return value


def _parse_names(name: str, value: Any) -> list[str]:
    if not isinstance(value, list) or len(value) > MAX_CALLS or not all(isinstance(item, str) for item in value):
        raise ConfigurationError(f"{name} must be a list of at most {MAX_CALLS} names, not {short_repr(value)}.")
    return value


def text_argument(name: str, description: str, *, is_required: bool = False) -> Argument:
    """Return an argument that is text."""
    return Argument(name, description, {"type": "string"}, partial(_parse_text, name), is_required)


def limit_argument(default: int) -> Argument:
    """Return the argument that limits the items on a page."""
    schema = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": default}
    description = "The maximum number of items on the page."
    return Argument("limit", description, schema, partial(_parse_integer, "limit", 1, MAX_PAGE_SIZE))


def _choice_argument(name: str, description: str, choices: tuple[str, ...]) -> Argument:
    schema = {"type": "string", "enum": list(choices)}
    return Argument(name, description, schema, partial(_parse_choice, name, choices))


def _tool_list_argument(name: str, description: str, *, is_required: bool = False) -> Argument:
    schema = {"type": ["array", "string"], "items": {"type": ["string", "object"]}}
    return Argument(name, description, schema, partial(_parse_tool_list, name), is_required)


def _query_argument(parameter: Parameter) -> Argument:
    description = parameter.description.replace("`", "")
    return Argument(parameter.name, description, parameter.schema, partial(_parse_query_value, parameter))


# --- the arguments ----------------------------------------------------------------------------------------------------

RUN_FILTERS = tuple(map(_query_argument, FILTER_PARAMETERS))
SCOPE_FILTERS = tuple(
    argument for argument in RUN_FILTERS if argument.name in ("agent", "service", "environment", "since", "until")
)
"""The filters of lists that are not lists of runs."""
RUN_CURSOR = _query_argument(CURSOR)
OFFSET = Argument(
    "cursor",
    "The next_cursor of the previous page. Runs that are stored between two pages can change the order.",
    {"type": "string", "pattern": "^[0-9]{1,9}$"},
    _parse_offset,
)
GOLDEN_STATE = Argument(
    "state",
    f"The state of the goldens, or {_ALL_STATES}.",
    {"type": "string", "enum": [*get_args(GoldenState), _ALL_STATES], "default": "failing"},
    _parse_state,
)
RUN_ID = text_argument("run_id", "The id of the run.", is_required=True)
REVISION = Argument(
    "revision",
    "The revision of the evaluation; by default the newest one.",
    {"type": "integer", "minimum": 1},
    partial(_parse_integer, "revision", 1, 2**31),
)
EVALUATE_ARGUMENTS = (
    _tool_list_argument(
        "called",
        "The called tools in their order: names, or objects with name, arguments and optionally result and error.",
        is_required=True,
    ),
    _tool_list_argument(
        "expected", "The expected tools, in the same forms or as in a golden file. Either this or golden_id is needed."
    ),
    text_argument("golden_id", "The id of a golden in the loaded golden files, in place of expected."),
    text_argument("request", "The text of the request."),
    _choice_argument("order", "Whether the order matters, in place of the golden's rule.", get_args(CallOrder)),
    _choice_argument("match", "How arguments are compared, in place of the golden's rule.", get_args(ArgumentsMatch)),
    _choice_argument("extra", "How unexpected calls count, in place of the golden's rule.", get_args(ExtraCalls)),
    Argument(
        "forbid",
        "Names or patterns of tools that must not be called, in place of the golden's.",
        {"type": "array", "items": {"type": "string"}},
        partial(_parse_names, "forbid"),
    ),
)
