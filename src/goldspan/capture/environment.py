"""Defines every `GOLDSPAN_*` environment variable in one table and reads their values.

Imports no module that only applications with goldens need.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from goldspan.errors import ConfigurationError

SettingOwner = Literal["goldens", "processor", "limits", "judge"]
"""The class whose argument a setting supplies: `Goldens`, `ScoringProcessor`, `Limits` or `JudgeSettings`."""


_PREFIX = "GOLDSPAN_"
_Parser: TypeAlias = Callable[[str], Any]


def _setting(
    parse: _Parser,
    meaning: str,
    default: str,
    *,
    owner: SettingOwner | None = None,
    variable: str | None = None,
    secret: bool = False,
) -> Any:
    """Return a row of the table. `variable` defaults to the setting's name. `repr` omits a secret."""
    row = {"parse": parse, "meaning": meaning, "default": default, "owner": owner, "variable": variable}
    return field(default=None, metadata=row, repr=not secret)


_goldens_setting = functools.partial(_setting, owner="goldens")
_processor_setting = functools.partial(_setting, owner="processor")
_limits_setting = functools.partial(_setting, owner="limits")
_judge_setting = functools.partial(_setting, owner="judge")


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(item for item in map(str.strip, text.split(",")) if item)


def _parse_units(text: str) -> tuple[str, ...]:
    units = _parse_list(text)
    for unit in units:
        if unit not in ("request", "component", "conversation"):
            raise ValueError(f"{unit!r} is none of request, component, conversation")
    return units


def _parse_unknown(text: str) -> Literal["not_evaluated", "ignore", "fail"]:
    words: tuple[Literal["not_evaluated", "ignore", "fail"], ...] = ("not_evaluated", "ignore", "fail")
    for word in words:
        if word == text.strip():
            return word
    raise ValueError(f"{text!r} is none of {', '.join(words)}")


def _parse_thresholds(text: str) -> dict[str, float]:
    return dict(map(_parse_threshold, _parse_list(text)))


def _parse_threshold(item: str) -> tuple[str, float]:
    metric, _, number = item.partition("=")
    try:
        return metric.strip(), float(number)
    except ValueError:
        raise ValueError(f"{item!r} is not of the form tool_correctness=0.8") from None


def _parse_positive_int(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _parse_non_negative_int(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def _parse_number(text: str) -> float:
    number = _parse_float(text)
    if not 0 <= number < math.inf:
        raise ValueError(f"{text!r} is not a number of at least 0")
    return number


def _parse_seconds(text: str) -> float:
    seconds = _parse_float(text)
    if not 0 < seconds < math.inf:
        raise ValueError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _parse_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _parse_rate(text: str) -> float:
    rate = _parse_float(text)
    if not 0 <= rate <= 1:
        raise ValueError(f"{text!r} is not a share from 0 to 1")
    return rate


def _parse_similarity(text: str) -> float:
    similarity = _parse_float(text)
    if not 0 <= similarity <= 100:
        raise ValueError(f"{text!r} is not a number from 0 to 100")
    return similarity


def _parse_prices(text: str) -> tuple[float, float]:
    numbers = [_parse_float(part) for part in text.split(",")]
    if len(numbers) != 2 or not all(0 <= number < math.inf for number in numbers):
        raise ValueError(f"{text!r} is not two prices, for a million tokens of questions and of answers: 0.25,2")
    return numbers[0], numbers[1]


def _parse_json_object(text: str) -> dict[str, Any]:
    try:
        members = json.loads(text)
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict):
        raise ValueError(f"{text!r} is no JSON object")
    return members


def _choice_parser(*known: str) -> _Parser:
    def parse_choice(text: str) -> str:
        if text not in known:
            raise ValueError(f"{text!r} is none of {', '.join(known)}")
        return text

    return parse_choice


_BOOLEANS = {
    **dict.fromkeys(("on", "true", "1", "yes"), True),
    **dict.fromkeys(("off", "false", "0", "no"), False),
}
_OFF_WORDS = ("off", "false", "no")


def _parse_boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError(f"{text!r} is neither on nor off")
    return _BOOLEANS[text.lower()]


def _number_or_off_parser(parse: _Parser) -> _Parser:
    """Return a parser that also accepts `off` and returns `False` for it. It parses "0" as a number."""

    def parse_or_off(text: str) -> float | Literal[False]:
        if text.lower() in _OFF_WORDS:
            return False
        try:
            number: float = parse(text)
        except ValueError as error:
            raise ValueError(f"{error}, nor off") from None
        return number

    return parse_or_off


def _parse_capture(text: str) -> bool | tuple[str, ...]:
    return _BOOLEANS[text.lower()] if text.lower() in _BOOLEANS else _parse_list(text)


@dataclass(frozen=True, slots=True)
class EnvironmentSettings:
    """The values of the environment variables; `None` for a variable that is not set."""

    goldens: tuple[str, ...] | None = _setting(_parse_list, "golden files, separated by commas", "none")
    reload: float | Literal[False] | None = _processor_setting(
        _number_or_off_parser(_parse_seconds),
        "seconds between two checks for changed golden files; or `off`",
        "1",
    )
    near: float | Literal[False] | None = _goldens_setting(
        _number_or_off_parser(_parse_similarity),
        "minimum similarity, 0 to 100, for a request's text to match a golden; or `off`",
        "90",
    )
    margin: float | None = _goldens_setting(
        _parse_number, "minimum lead of that golden's similarity over the next best", "3"
    )
    golden_id_attributes: tuple[str, ...] | None = _processor_setting(
        _parse_list,
        "span attributes that name a golden, separated by commas, in the order tried",
        "`goldspan.golden.id`, `test.case.name`",
        variable="GOLDEN_ID_ATTRIBUTE",
    )
    metrics: tuple[str, ...] | None = _processor_setting(_parse_list, "names of metrics, separated by commas", "all")
    thresholds: Mapping[str, float] | None = _processor_setting(
        _parse_thresholds, "`metric=number`, separated by commas", "as in the goldens"
    )
    unknown: Literal["not_evaluated", "ignore", "fail"] | None = _processor_setting(
        _parse_unknown,
        "verdict of a run when part of its golden cannot be evaluated: `not_evaluated`, `ignore` (the rest decides), "
        "`fail`",
        "as in the goldens",
    )
    units: tuple[str, ...] | None = _processor_setting(
        _parse_units,
        "units to score: `request`, `component`, `conversation`, separated by commas",
        "`request,component`",
    )
    sinks: tuple[str, ...] | None = _setting(
        _parse_list,
        "sinks, separated by commas: `attributes` of the run's own span, `events`, `metrics`, `figures`, "
        "`spans`, `jsonl:PATH`, `store:PATH`, and [products](integrations.md) such as `phoenix` or `phoenix:URL`",
        "`attributes,events,metrics,figures`",
    )
    capture_arguments: bool | tuple[str, ...] | None = _setting(
        _parse_capture,
        "what `@goldspan.trace` captures by default: `on` for arguments and results, `off` for neither, or names of "
        "arguments, separated by commas, to capture only those and no results",
        "on",
    )
    threads: bool | None = _processor_setting(
        _parse_boolean, "whether threads and thread pools keep the context of the request that started them", "on"
    )
    sample: float | None = _setting(_parse_rate, "share of traces to score, 0 to 1", "1")
    sample_rules: str | None = _setting(
        str, "shares for matching traces, for example `environment=test:0, agent=support:1`", "none"
    )
    export_sample: float | None = _setting(_parse_rate, "share of traces to forward, 0 to 1; all are scored", "1")
    budget: float | None = _processor_setting(_parse_seconds, "maximum seconds for the metrics of one run", "no limit")
    background: bool | None = _processor_setting(
        _parse_boolean, "whether a background thread scores runs", "on where spans are exported in batches"
    )
    max_traces: int | None = _limits_setting(
        _parse_positive_int, "maximum traces in flight; above it, the trace idle longest is scored as it is", "10000"
    )
    max_spans: int | None = _limits_setting(
        _parse_positive_int, "maximum spans in flight, with the same effect as `GOLDSPAN_MAX_TRACES`", "100000"
    )
    max_spans_per_trace: int | None = _limits_setting(
        _parse_positive_int, "maximum spans in flight of one trace; a trace with more is not scored", "10000"
    )
    max_bytes: int | None = _limits_setting(
        _parse_positive_int,
        "maximum bytes of retained ended spans, with the same effect as `GOLDSPAN_MAX_TRACES`",
        "67108864",
    )
    max_queue: int | None = _limits_setting(
        _parse_positive_int,
        "maximum spans in the queue for background scoring; traces of further spans are not scored",
        "50000",
    )
    idle: float | None = _limits_setting(
        _parse_seconds, "seconds without a span after which a run is scored as it is", "300"
    )
    lifetime: float | None = _limits_setting(
        _parse_seconds, "seconds after which a run is scored as it is, even if it is active", "3600"
    )
    late: float | None = _limits_setting(_parse_number, "seconds during which late spans can change a scored run", "60")
    settle: float | None = _limits_setting(
        _parse_number, "seconds without a further late span before a run is scored again", "1"
    )
    judge_model: str | None = _judge_setting(
        str, "model that rates whether the tools were the best choice; setting it enables the [judge](judge.md)", "none"
    )
    judge_url: str | None = _judge_setting(
        str, "base URL of the model's OpenAI-compatible endpoint", "`https://api.openai.com/v1`"
    )
    judge_api_key: str | None = _judge_setting(
        str, "API key of the endpoint", "`OPENAI_API_KEY` for OpenAI's endpoint, else none", secret=True
    )
    judge_sample: float | None = _judge_setting(_parse_rate, "share of runs to judge, 0 to 1", "0.1")
    judge_combination: str | None = _judge_setting(
        _choice_parser("apart", "min"),
        "`min`: `tool_correctness` becomes the lower of the two scores; `apart`: it stays unchanged",
        "`apart`",
    )
    judge_threshold: float | None = _judge_setting(_parse_rate, "threshold of `tool_selection`", "as in the goldens")
    judge_votes: int | None = _judge_setting(
        _parse_positive_int, "requests to the model per run; the median score counts", "1"
    )
    judge_temperature: float | Literal[False] | None = _judge_setting(
        _number_or_off_parser(_parse_number), "temperature of the requests; or `off` to send none", "0"
    )
    judge_seed: float | Literal[False] | None = _judge_setting(
        _number_or_off_parser(_parse_non_negative_int), "seed of the requests; or `off` to send none", "0"
    )
    judge_show: str | None = _judge_setting(
        _choice_parser("names", "arguments", "all"),
        "what the model sees of calls: `names`, `arguments` (names and arguments), or `all` (also results)",
        "`all`",
    )
    judge_explain: bool | None = _judge_setting(
        _parse_boolean, "whether reasons contain the model's own words, which can repeat content of the run", "off"
    )
    judge_timeout: float | None = _judge_setting(_parse_seconds, "maximum seconds for all votes about one run", "30")
    judge_concurrency: int | None = _judge_setting(_parse_positive_int, "maximum runs to judge at the same time", "4")
    judge_daily_tokens: int | Literal[False] | None = _judge_setting(
        _number_or_off_parser(_parse_non_negative_int),
        "maximum tokens to spend within 24 hours; or `off` for no limit",
        "1000000",
    )
    judge_daily_cost: float | None = _judge_setting(
        _parse_number, "maximum US dollars to spend within 24 hours; needs `GOLDSPAN_JUDGE_PRICES`", "no limit"
    )
    judge_prices: tuple[float, float] | None = _judge_setting(
        _parse_prices, "US dollars per million input tokens and per million output tokens, for example `0.25,2`", "none"
    )
    judge_cache: str | None = _judge_setting(
        str, "SQLite file that stores verdicts and the spent budget", "memory of the process"
    )
    judge_answer_form: str | None = _judge_setting(
        _choice_parser("json_schema", "json_object", "text"),
        "response format to request: `json_schema`, or `json_object` or `text` for endpoints without schemas",
        "`json_schema`",
    )
    judge_max_tokens: int | None = _judge_setting(_parse_positive_int, "maximum tokens of a reply", "1000")
    judge_extra: Mapping[str, Any] | None = _judge_setting(
        _parse_json_object,
        'additional members of each request, in JSON, for example `{"reasoning_effort": "low"}`',
        "none",
    )
    then_exporter: tuple[str, ...] | None = _setting(
        _parse_list,
        "exporters to which `OTEL_TRACES_EXPORTER=goldspan` forwards spans, separated by commas, or `none`",
        "`otlp` if an endpoint is set, else `none`",
    )
    enabled: bool | None = _setting(
        _parse_boolean,
        "`on`: score under `opentelemetry-instrument` even without goldens; `off`: do not score there",
        "on with goldens or with `OTEL_TRACES_EXPORTER=goldspan`",
    )
    disabled: bool | None = _setting(_parse_boolean, "`on`: `instrument()` and the zero-code setup do nothing", "off")
    strict: bool | None = _setting(
        _parse_boolean, "`on`: raise internal failures of goldspan; for its own tests", "off"
    )

    def arguments_for(self, owner: SettingOwner) -> dict[str, Any]:
        """Return the arguments that the variables set for `owner`; the value `None` turns a number off."""
        prefix = "judge_" if owner == "judge" else ""
        rows = [row for row in fields(self) if row.metadata["owner"] == owner]
        named = {row.name.removeprefix(prefix): getattr(self, row.name) for row in rows}
        numbers = {"near", "reload", "temperature", "seed", "daily_tokens"}
        return {
            name: None if value is False and name in numbers else value
            for name, value in named.items()
            if value is not None
        }


@dataclass(frozen=True, slots=True)
class EnvironmentVariable:
    """One row of the table, for the documentation."""

    name: str
    meaning: str
    default: str


def variable_name(setting: str) -> str:
    """Return the name of the environment variable of a setting."""
    return _PREFIX + (_setting_metadata(setting)["variable"] or setting.upper())


def _setting_metadata(setting: str) -> Mapping[str, Any]:
    return EnvironmentSettings.__dataclass_fields__[setting].metadata


VARIABLES = tuple(
    EnvironmentVariable(variable_name(row.name), row.metadata["meaning"], row.metadata["default"])
    for row in fields(EnvironmentSettings)
)


def read_environment(environment: Mapping[str, str] = os.environ) -> EnvironmentSettings:
    """Read all variables. Raises `ConfigurationError`, which names the variable, for an invalid value."""
    return EnvironmentSettings(
        **{row.name: _read_variable(environment, row.name) for row in fields(EnvironmentSettings)}
    )


def captured_arguments(environment: Mapping[str, str] = os.environ) -> bool | tuple[str, ...]:
    """Return what decorated functions capture by default; names: only the arguments with these names."""
    captured: bool | tuple[str, ...] | None = _read_variable(environment, "capture_arguments")
    return True if captured is None else captured


def downstream_exporter_names(environment: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
    """Return the exporters to which spans are forwarded.

    Reads only this variable, so that an invalid value of another one does not stop the forwarding.
    """
    names: tuple[str, ...] | None = _read_variable(environment, "then_exporter")
    return names


def misspelled_variables(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return a warning for each unknown `GOLDSPAN_*` variable whose name resembles a known one."""
    known = {variable.name.removeprefix(_PREFIX) for variable in VARIABLES}
    names = [name.removeprefix(_PREFIX) for name in environment if name.startswith(_PREFIX)]
    unknown = sorted(name for name in names if name not in known)
    if not unknown:
        return []
    from goldspan.goldens.spelling import is_typo, nearest_word  # imported only for unknown names: import time

    suggestions = {name: nearest_word(name, known) for name in unknown if is_typo(name, known)}
    return [f"there is no setting {_PREFIX}{name}; did you mean {_PREFIX}{word}?" for name, word in suggestions.items()]


def _read_variable(environment: Mapping[str, str], setting: str) -> Any:
    variable = variable_name(setting)
    text = environment.get(variable, "").strip()
    if not text:
        return None
    try:
        value = _setting_metadata(setting)["parse"](text)
    except ValueError as error:
        raise ConfigurationError(f"{variable}: {error}") from None
    return None if value == () else value
