"""Defines the query parameters of the API: their JSON schemas, and how their values are parsed."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, get_args

from goldspan.errors import ConfigurationError
from goldspan.goldens.spelling import did_you_mean, join_words, short_repr
from goldspan.model import RunUnit
from goldspan.store import RunFilter
from goldspan.store.filter_conditions import CURSOR_PATTERN
from goldspan.store.store_protocol import MAX_PAGE_SIZE, ToolRole, Verdict

AGO_PATTERN = r"[0-9]{1,6}[smhdw]"
"""A duration before now, such as `24h` or `7d`."""
DATE_TIME_PATTERN = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?([Zz]|[+-][0-9]{2}:[0-9]{2})?)?"
)
"""A date, or a date and time (RFC 3339, section 5.6) in which seconds and time zone are optional."""

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the time zone is added separately: in the first and
# the last year it can exceed the range of a datetime
_SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def duration_seconds(text: str) -> int | None:
    """Return the seconds of a duration such as `30s`, `10m`, `2h`, `7d` or `4w`; `None` for any other text."""
    return int(text[:-1]) * _SECONDS_PER_UNIT[text[-1]] if re.fullmatch(AGO_PATTERN, text) else None


def parse_time(text: str, now_ns: int) -> int:
    """Return nanoseconds since the Unix epoch from a date, a date and time, or a duration before now.

    Without a time zone it is UTC. Raises `ConfigurationError` for anything else.
    """
    if (seconds := duration_seconds(text)) is not None:
        return now_ns - seconds * 10**9
    try:
        return _parse_date_time(text)
    except ValueError:
        raise ConfigurationError(
            f"{text[:60]!r} is not a time; write it as 2026-01-31, 2026-01-31T08:00 or 7d"
        ) from None


def format_time(time_ns: int) -> str:
    """Return a time in RFC 3339 format, in UTC, with nanoseconds."""
    seconds, nanoseconds = divmod(time_ns, 10**9)
    whole_seconds = datetime.fromtimestamp(seconds, timezone.utc)
    return f"{whole_seconds:%Y-%m-%dT%H:%M:%S}.{nanoseconds:09}Z"


def _parse_date_time(text: str) -> int:
    match = re.fullmatch(DATE_TIME_PATTERN, text)
    if match is None:
        raise ValueError(text)
    zone = match[4] or "Z"
    offset = timedelta() if zone in "Zz" else timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
    if offset >= timedelta(days=1):
        raise ValueError(text)
    local = text.removesuffix(zone) if match[4] else text
    fraction = match[3] or ""
    local_time = datetime.fromisoformat(local.removesuffix(fraction).upper())
    seconds = (local_time - _EPOCH) // timedelta(seconds=1) - (-1 if zone[0] == "-" else 1) * (
        offset // timedelta(seconds=1)
    )
    return seconds * 10**9 + int(f"{fraction[1:]:0<9}")


JsonSchema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a URL."""

    name: str
    description: str
    schema: JsonSchema
    parse: Callable[[str], Any]
    """Parses the text of the URL. Raises `ValueError` with a description of valid values."""


def parse_query(pairs: Iterable[tuple[str, str]], parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Return the values of the parameters in a query.

    Raises `ConfigurationError` for an unknown or repeated parameter and for an invalid value: ignoring a mistake would
    return the result of a different query.
    """
    by_name = {parameter.name: parameter for parameter in parameters}
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name not in by_name:
            raise ConfigurationError(f"There is no parameter {short_repr(name)} here.{did_you_mean(name, by_name)}")
        if name in values:
            raise ConfigurationError(f"The parameter {name!r} is given twice.")
        values[name] = parse_parameter(by_name[name], text)
    return values


def parse_parameter(parameter: Parameter, text: str) -> Any:
    """Return the value of a parameter. Raises `ConfigurationError` if it is invalid."""
    try:
        return parameter.parse(text)
    except ValueError as error:
        raise ConfigurationError(f"{parameter.name} must be {error}, not {short_repr(text)}.") from None


def filter_from_query(values: Mapping[str, Any]) -> RunFilter:
    """Return the filter for parsed parameters. Raises `ConfigurationError` for contradictory ones."""
    renamed = {"since": "since_ns", "until": "until_ns"}
    fields = {renamed.get(name, name): value for name, value in values.items() if name not in ("limit", "cursor")}
    return RunFilter(**fields)


# --- types of values --------------------------------------------------------------------------------------------------


def _text_parameter(name: str, description: str) -> Parameter:
    return Parameter(name, description, {"type": "string"}, str)


def _enum_parameter(name: str, description: str, choices: Sequence[str]) -> Parameter:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(join_words(choices, last="or"))
        return text

    return Parameter(name, description, {"type": "string", "enum": list(choices)}, read)


def _integer_parameter(name: str, description: str, least: int, most: int, default: int) -> Parameter:
    def read(text: str) -> int:
        if not _INTEGER_PATTERN.fullmatch(text) or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return Parameter(
        name, description, {"type": "integer", "minimum": least, "maximum": most, "default": default}, read
    )


def _parse_number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("a number")
    return value


def _parse_boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def _parse_time_parameter(text: str) -> int:
    try:
        return parse_time(text, time.time_ns())
    except ConfigurationError:
        raise ValueError(
            "a time such as 2026-01-31T08:00:00Z (in a URL + is %2B), or a duration before now, such as 7d"
        ) from None


def _parse_trace_id(text: str) -> str:
    if not _TRACE_ID_PATTERN.fullmatch(text):
        raise ValueError("32 hexadecimal digits")
    return text.lower()


_INTEGER_PATTERN = re.compile(r"[0-9]{1,19}")
_TRACE_ID_PATTERN = re.compile(r"[0-9A-Fa-f]{32}")
_TIME_SCHEMA: JsonSchema = {
    "type": "string",
    "pattern": f"^({DATE_TIME_PATTERN}|{AGO_PATTERN})$",
    "examples": ["2026-01-31T08:00:00Z", "7d"],
}

# --- the parameters ---------------------------------------------------------------------------------------------------

TRACE_ID = Parameter(
    "trace_id",
    "Runs that have spans in that trace.",
    {"type": "string", "pattern": f"^{_TRACE_ID_PATTERN.pattern}$"},
    _parse_trace_id,
)
RUN_ID = Parameter("run_id", "The id of a run, percent-encoded.", {"type": "string", "minLength": 1}, str)
LIMIT = _integer_parameter(
    "limit", "The maximum number to return; fewer are returned if they are large.", 1, MAX_PAGE_SIZE, 50
)

FILTER_PARAMETERS = (
    _enum_parameter("verdict", "Runs with that verdict.", get_args(Verdict)),
    _text_parameter("metric", "Runs with a score of that metric."),
    Parameter("below", "Runs whose score of `metric` is known and less than that.", {"type": "number"}, _parse_number),
    _text_parameter("agent", "Runs of that agent."),
    _text_parameter("golden", "Runs that were evaluated against the golden with that id."),
    Parameter("covered", "Runs with a golden (true), or without one (false).", {"type": "boolean"}, _parse_boolean),
    _text_parameter("tool", "Runs in which that tool has the role `tool_role`; case and separators do not matter."),
    _enum_parameter("tool_role", "The role of `tool` in the run; `called` by default.", get_args(ToolRole)),
    _text_parameter("service", "Runs of that service."),
    _text_parameter("environment", "Runs of that deployment environment."),
    _enum_parameter("unit", "Runs of that unit.", get_args(RunUnit)),
    _text_parameter("session_id", "Runs of that session."),
    TRACE_ID,
    _text_parameter("text", "Runs whose input contains that text; case does not matter."),
    Parameter(
        "since",
        "Runs at or after that time: an RFC 3339 time, or a duration before now.",
        _TIME_SCHEMA,
        _parse_time_parameter,
    ),
    Parameter("until", "Runs before that time.", _TIME_SCHEMA, _parse_time_parameter),
)
CURSOR = Parameter(
    "cursor",
    "The `next_cursor` of the previous page.",
    {"type": "string", "pattern": f"^{CURSOR_PATTERN.pattern}$"},
    str,
)
PAGE_PARAMETERS = (*FILTER_PARAMETERS, LIMIT, CURSOR)
ARRIVAL_PARAMETERS = (
    _integer_parameter("after", "The `next_after` of the previous page; 0 at first.", 0, 2**63 - 1, 0),
    LIMIT,
)
