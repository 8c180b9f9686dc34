"""What may be asked of the API in a URL: the parameters, each with its JSON schema and how it is read."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from goldspan.errors import ConfigurationError
from goldspan.goldens.words import did_you_mean, listed, shown
from goldspan.model import Unit
from goldspan.store import RunFilter
from goldspan.store.instants import AGO, DATE_TIME, instant
from goldspan.store.protocol import MOST_AT_ONCE, ToolRole, Verdict
from goldspan.store.queries import CURSOR as PLACE

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One thing that may be said in a URL."""

    name: str
    meaning: str
    schema: Schema
    read: Callable[[str], Any]
    """Its value, from the text in the URL; raises `ValueError`, with what it must be, for anything else."""


def read_query(pairs: Iterable[tuple[str, str]], known: Sequence[Parameter]) -> dict[str, Any]:
    """The values of what is said in a query.

    Raises `ConfigurationError` for what nobody knows, for what is said twice and for values that mean nothing: passing
    over a slip would answer another question than the one that was asked.
    """
    by_name = {parameter.name: parameter for parameter in known}
    said: dict[str, Any] = {}
    for name, text in pairs:
        if name not in by_name:
            raise ConfigurationError(f"There is no parameter {shown(name)} here.{did_you_mean(name, by_name)}")
        if name in said:
            raise ConfigurationError(f"The parameter {name!r} is given twice.")
        said[name] = read_value(by_name[name], text)
    return said


def read_value(parameter: Parameter, text: str) -> Any:
    """What a parameter says. Raises `ConfigurationError`."""
    try:
        return parameter.read(text)
    except ValueError as error:
        raise ConfigurationError(f"{parameter.name} must be {error}, not {shown(text)}.") from None


def filter_of(said: Mapping[str, Any]) -> RunFilter:
    """The runs that are meant. Raises `ConfigurationError` for what contradicts itself."""
    renamed = {"since": "since_ns", "until": "until_ns"}
    fields = {renamed.get(name, name): value for name, value in said.items() if name not in ("limit", "cursor")}
    return RunFilter(**fields)


# --- kinds of values --------------------------------------------------------------------------------------------------


def _text(name: str, meaning: str) -> Parameter:
    return Parameter(name, meaning, {"type": "string"}, str)


def _word(name: str, meaning: str, words: Sequence[str]) -> Parameter:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(listed(words, last="or"))
        return text

    return Parameter(name, meaning, {"type": "string", "enum": list(words)}, read)


def _integer(name: str, meaning: str, least: int, most: int, default: int) -> Parameter:
    def read(text: str) -> int:
        if not _INTEGER.fullmatch(text) or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return Parameter(name, meaning, {"type": "integer", "minimum": least, "maximum": most, "default": default}, read)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("a number")
    return value


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def _time(text: str) -> int:
    try:
        return instant(text, time.time_ns())
    except ConfigurationError:
        raise ValueError(
            "a time such as 2026-01-31T08:00:00Z (in a URL + is %2B), or how long ago, such as 7d"
        ) from None


def _trace_id(text: str) -> str:
    if not _TRACE_ID.fullmatch(text):
        raise ValueError("32 hexadecimal digits")
    return text.lower()


_INTEGER = re.compile(r"[0-9]{1,19}")
_TRACE_ID = re.compile(r"[0-9A-Fa-f]{32}")
_TIMES: Schema = {"type": "string", "pattern": f"^({DATE_TIME}|{AGO})$", "examples": ["2026-01-31T08:00:00Z", "7d"]}

# --- the parameters ---------------------------------------------------------------------------------------------------

TRACE_ID = Parameter(
    "trace_id", "A trace that the run has spans in.", {"type": "string", "pattern": f"^{_TRACE_ID.pattern}$"}, _trace_id
)
RUN_ID = Parameter("run_id", "The id of a run, percent-encoded.", {"type": "string", "minLength": 1}, str)
LIMIT = _integer("limit", "So many at most; where they are large, fewer may come.", 1, MOST_AT_ONCE, 50)

FILTER = (
    _word("verdict", "Runs that came out so.", get_args(Verdict)),
    _text("metric", "Runs with a score of that metric."),
    Parameter("below", "Runs whose score of `metric` is known and less than that.", {"type": "number"}, _number),
    _text("agent", "Runs of that agent."),
    _text("golden", "Runs judged by the golden of that id."),
    Parameter("covered", "Runs for which there was a golden, or was none.", {"type": "boolean"}, _boolean),
    _text("tool", "Runs in which that tool was what `tool_role` says; case and separators do not matter."),
    _word("tool_role", "What `tool` was in the run: `called`, unless said otherwise.", get_args(ToolRole)),
    _text("service", "Runs of that service."),
    _text("environment", "Runs of that deployment environment."),
    _word("unit", "Runs of that kind.", get_args(Unit)),
    _text("session_id", "Runs of that session."),
    TRACE_ID,
    _text("text", "Runs with that text in their input; case does not matter."),
    Parameter("since", "Runs from then on: a time of RFC 3339, or how long ago.", _TIMES, _time),
    Parameter("until", "Runs before then.", _TIMES, _time),
)
CURSOR = Parameter(
    "cursor", "The `next_cursor` of the page before.", {"type": "string", "pattern": f"^{PLACE.pattern}$"}, str
)
PAGE = (*FILTER, LIMIT, CURSOR)
ARRIVALS = (
    _integer("after", "The `next_after` of the answer before; 0 to begin with.", 0, 2**63 - 1, 0),
    LIMIT,
)
