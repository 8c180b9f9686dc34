"""What may be asked of the API in a URL: the parameters, each with its JSON schema and how it is read."""

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
from goldspan.store.queries import CURSOR_PATTERN as PLACE
from goldspan.store.store_protocol import MAX_PAGE_SIZE, ToolRole, Verdict

AGO_PATTERN = r"[0-9]{1,6}[smhdw]"
"""How long ago, as a regular expression: `24h`, `7d`."""
DATE_TIME_PATTERN = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?([Zz]|[+-][0-9]{2}:[0-9]{2})?)?"
)
"""A date, or a date and a time of RFC 3339, section 5.6, whose seconds and zone may be left out."""

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the zone is reckoned with by hand: in the first and the last year it may
# lead out of what a datetime can say
_SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_time(text: str, now_ns: int) -> int:
    """A point in time in nanoseconds since the Unix epoch, from a date, a date with a time, or how long ago.

    Without a zone it is UTC. Raises `ConfigurationError` for anything else.
    """
    if re.fullmatch(AGO_PATTERN, text):
        return now_ns - int(text[:-1]) * _SECONDS_PER_UNIT[text[-1]] * 10**9
    try:
        return _parse_date_time(text)
    except ValueError:
        told = f"{text[:60]!r} is no time; write it as 2026-01-31, 2026-01-31T08:00 or 7d"
        raise ConfigurationError(told) from None


def format_time(time_ns: int) -> str:
    """A point in time as RFC 3339 has it, in UTC and to the nanosecond."""
    seconds, nanoseconds = divmod(time_ns, 10**9)
    told = datetime.fromtimestamp(seconds, timezone.utc)
    return f"{told:%Y-%m-%dT%H:%M:%S}.{nanoseconds:09}Z"


def _parse_date_time(text: str) -> int:
    found = re.fullmatch(DATE_TIME_PATTERN, text)
    if found is None:
        raise ValueError(text)
    zone = found[4] or "Z"
    ahead = timedelta() if zone in "Zz" else timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
    if ahead >= timedelta(days=1):
        raise ValueError(text)
    written = text.removesuffix(zone) if found[4] else text
    fraction = found[3] or ""
    told = datetime.fromisoformat(written.removesuffix(fraction).upper())
    seconds = (told - _EPOCH) // timedelta(seconds=1) - (-1 if zone[0] == "-" else 1) * (ahead // timedelta(seconds=1))
    return seconds * 10**9 + int(f"{fraction[1:]:0<9}")


JsonSchema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One thing that may be said in a URL."""

    name: str
    description: str
    schema: JsonSchema
    parse: Callable[[str], Any]
    """Its value, from the text in the URL; raises `ValueError`, with what it must be, for anything else."""


def parse_query(pairs: Iterable[tuple[str, str]], parameters: Sequence[Parameter]) -> dict[str, Any]:
    """The values of what is said in a query.

    Raises `ConfigurationError` for what nobody knows, for what is said twice and for values that mean nothing: passing
    over a slip would answer another question than the one that was asked.
    """
    by_name = {parameter.name: parameter for parameter in parameters}
    said: dict[str, Any] = {}
    for name, text in pairs:
        if name not in by_name:
            raise ConfigurationError(f"There is no parameter {short_repr(name)} here.{did_you_mean(name, by_name)}")
        if name in said:
            raise ConfigurationError(f"The parameter {name!r} is given twice.")
        said[name] = parse_parameter(by_name[name], text)
    return said


def parse_parameter(parameter: Parameter, text: str) -> Any:
    """What a parameter says. Raises `ConfigurationError`."""
    try:
        return parameter.parse(text)
    except ValueError as error:
        raise ConfigurationError(f"{parameter.name} must be {error}, not {short_repr(text)}.") from None


def filter_from_query(values: Mapping[str, Any]) -> RunFilter:
    """The runs that are meant. Raises `ConfigurationError` for what contradicts itself."""
    renamed = {"since": "since_ns", "until": "until_ns"}
    fields = {renamed.get(name, name): value for name, value in values.items() if name not in ("limit", "cursor")}
    return RunFilter(**fields)


# --- kinds of values --------------------------------------------------------------------------------------------------


def _text_parameter(name: str, meaning: str) -> Parameter:
    return Parameter(name, meaning, {"type": "string"}, str)


def _enum_parameter(name: str, meaning: str, choices: Sequence[str]) -> Parameter:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(join_words(choices, last="or"))
        return text

    return Parameter(name, meaning, {"type": "string", "enum": list(choices)}, read)


def _integer_parameter(name: str, meaning: str, least: int, most: int, default: int) -> Parameter:
    def read(text: str) -> int:
        if not _INTEGER_PATTERN.fullmatch(text) or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return Parameter(name, meaning, {"type": "integer", "minimum": least, "maximum": most, "default": default}, read)


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
            "a time such as 2026-01-31T08:00:00Z (in a URL + is %2B), or how long ago, such as 7d"
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
    "A trace that the run has spans in.",
    {"type": "string", "pattern": f"^{_TRACE_ID_PATTERN.pattern}$"},
    _parse_trace_id,
)
RUN_ID = Parameter("run_id", "The id of a run, percent-encoded.", {"type": "string", "minLength": 1}, str)
LIMIT = _integer_parameter("limit", "So many at most; where they are large, fewer may come.", 1, MAX_PAGE_SIZE, 50)

FILTER_PARAMETERS = (
    _enum_parameter("verdict", "Runs that came out so.", get_args(Verdict)),
    _text_parameter("metric", "Runs with a score of that metric."),
    Parameter("below", "Runs whose score of `metric` is known and less than that.", {"type": "number"}, _parse_number),
    _text_parameter("agent", "Runs of that agent."),
    _text_parameter("golden", "Runs judged by the golden of that id."),
    Parameter("covered", "Runs for which there was a golden, or was none.", {"type": "boolean"}, _parse_boolean),
    _text_parameter("tool", "Runs in which that tool was what `tool_role` says; case and separators do not matter."),
    _enum_parameter("tool_role", "What `tool` was in the run: `called`, unless said otherwise.", get_args(ToolRole)),
    _text_parameter("service", "Runs of that service."),
    _text_parameter("environment", "Runs of that deployment environment."),
    _enum_parameter("unit", "Runs of that kind.", get_args(RunUnit)),
    _text_parameter("session_id", "Runs of that session."),
    TRACE_ID,
    _text_parameter("text", "Runs with that text in their input; case does not matter."),
    Parameter("since", "Runs from then on: a time of RFC 3339, or how long ago.", _TIME_SCHEMA, _parse_time_parameter),
    Parameter("until", "Runs before then.", _TIME_SCHEMA, _parse_time_parameter),
)
CURSOR = Parameter(
    "cursor", "The `next_cursor` of the page before.", {"type": "string", "pattern": f"^{PLACE.pattern}$"}, str
)
PAGE_PARAMETERS = (*FILTER_PARAMETERS, LIMIT, CURSOR)
ARRIVAL_PARAMETERS = (
    _integer_parameter("after", "The `next_after` of the answer before; 0 to begin with.", 0, 2**63 - 1, 0),
    LIMIT,
)
