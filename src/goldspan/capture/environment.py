"""Every `GOLDSPAN_*` variable in one table: what it is called, how it is read, what it means.

Nothing is loaded here that an application without goldens would have to pay for.
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
"""Whose argument a setting stands in for: of `Goldens`, `ScoringProcessor`, `Limits` or `JudgeSettings`."""


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
    """A row of the table. The variable is called as the setting is, unless it is told. A secret is never shown."""
    row = {"read": parse, "meaning": meaning, "default": default, "of": owner, "variable": variable}
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
    def read_word(text: str) -> str:
        if text not in known:
            raise ValueError(f"{text!r} is none of {', '.join(known)}")
        return text

    return read_word


_BOOLEANS = {
    **dict.fromkeys(("on", "true", "1", "yes"), True),
    **dict.fromkeys(("off", "false", "0", "no"), False),
}
_OFF_WORDS = ("off", "false", "no")


def _parse_boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError(f"{text!r} is neither on nor off")
    return _BOOLEANS[text.lower()]


def _number_or_off_parser(read: _Parser) -> _Parser:
    """A number, or `False`: off. Zero is a number here."""

    def read_or_off(text: str) -> float | Literal[False]:
        if text.lower() in _OFF_WORDS:
            return False
        try:
            number: float = read(text)
        except ValueError as error:
            raise ValueError(f"{error}, nor off") from None
        return number

    return read_or_off


def _parse_capture(text: str) -> bool | tuple[str, ...]:
    return _BOOLEANS[text.lower()] if text.lower() in _BOOLEANS else _parse_list(text)


@dataclass(frozen=True, slots=True)
class EnvironmentSettings:
    """What the environment says. `None`: nothing."""

    goldens: tuple[str, ...] | None = _setting(_parse_list, "golden files, separated by commas", "none")
    reload: float | Literal[False] | None = _processor_setting(
        _number_or_off_parser(_parse_seconds),
        "seconds between two looks at whether golden files have changed; or `off`",
        "1",
    )
    near: float | Literal[False] | None = _goldens_setting(
        _number_or_off_parser(_parse_similarity),
        "from which similarity on, 0 to 100, a request's text is that of a golden; or `off`",
        "90",
    )
    margin: float | None = _goldens_setting(_parse_number, "how much nearer that golden must be than any other", "3")
    golden_id_attributes: tuple[str, ...] | None = _processor_setting(
        _parse_list,
        "span attributes that name a golden, separated by commas, in the order tried",
        "`goldspan.golden.id`, `test.case.name`",
        variable="GOLDEN_ID_ATTRIBUTE",
    )
    metrics: tuple[str, ...] | None = _processor_setting(_parse_list, "names of metrics, separated by commas", "all")
    thresholds: Mapping[str, float] | None = _processor_setting(
        _parse_thresholds, "`metric=number`, separated by commas", "those of the goldens"
    )
    unknown: Literal["not_evaluated", "ignore", "fail"] | None = _processor_setting(
        _parse_unknown,
        "what becomes of a run of which something that its golden states cannot be judged: `not_evaluated`, `ignore` "
        "(the rest decides), `fail`",
        "as the goldens say",
    )
    units: tuple[str, ...] | None = _processor_setting(
        _parse_units,
        "what is scored: `request`, `component`, `conversation`, separated by commas",
        "`request,component`",
    )
    sinks: tuple[str, ...] | None = _setting(
        _parse_list,
        "where results go, separated by commas: `attributes` of the run's own span, `events`, `metrics`, `figures`, "
        "`spans`, `jsonl:PATH`, `store:PATH`",
        "`attributes,events,metrics,figures`",
    )
    capture_arguments: bool | tuple[str, ...] | None = _setting(
        _parse_capture,
        "what `@goldspan.trace` captures where it is not told: `on`, `off` for neither arguments nor results, or the "
        "names of the only arguments that may be captured, separated by commas, and no results",
        "on",
    )
    threads: bool | None = _processor_setting(
        _parse_boolean, "whether threads and thread pools keep the request they were started in", "on"
    )
    sample: float | None = _setting(_parse_rate, "which share of the traces is scored, 0 to 1", "1")
    sample_rules: str | None = _setting(str, "other shares by rule, as `environment=test:0, agent=support:1`", "none")
    export_sample: float | None = _setting(
        _parse_rate, "which share of the traces is handed on, 0 to 1; all are scored", "1"
    )
    budget: float | None = _processor_setting(
        _parse_seconds, "seconds that the metrics of one run may take", "no limit"
    )
    background: bool | None = _processor_setting(
        _parse_boolean, "whether runs are scored by a thread of their own", "on where spans are exported in batches"
    )
    max_traces: int | None = _limits_setting(
        _parse_positive_int, "traces in flight before the one idle for longest is scored as it is", "10000"
    )
    max_spans: int | None = _limits_setting(_parse_positive_int, "spans in flight before that", "100000")
    max_spans_per_trace: int | None = _limits_setting(
        _parse_positive_int, "spans of one trace in flight beyond which it is not scored", "10000"
    )
    max_bytes: int | None = _limits_setting(_parse_positive_int, "bytes of ended spans kept before that", "67108864")
    max_queue: int | None = _limits_setting(
        _parse_positive_int,
        "spans that wait to be scored in the background; the traces of those beyond are not scored",
        "50000",
    )
    idle: float | None = _limits_setting(
        _parse_seconds, "seconds without a span after which a run is scored as it is", "300"
    )
    lifetime: float | None = _limits_setting(_parse_seconds, "seconds after which it is, however busy", "3600")
    late: float | None = _limits_setting(
        _parse_number, "seconds for which late spans can change a run that was scored", "60"
    )
    settle: float | None = _limits_setting(
        _parse_number, "seconds without a further late span before such a run is scored again", "1"
    )
    judge_model: str | None = _judge_setting(
        str, "the model that is asked whether the tools were the best choice; it turns the [judge](judge.md) on", "none"
    )
    judge_url: str | None = _judge_setting(
        str, "base URL of the OpenAI-compatible endpoint where that model is", "`https://api.openai.com/v1`"
    )
    judge_api_key: str | None = _judge_setting(
        str, "its key", "`OPENAI_API_KEY` for OpenAI's own, else none", secret=True
    )
    judge_sample: float | None = _judge_setting(_parse_rate, "which share of the runs it is asked about, 0 to 1", "0.1")
    judge_combination: str | None = _judge_setting(
        _choice_parser("apart", "min"),
        "`min`: `tool_correctness` becomes the lower of both; `apart`: it stays",
        "`apart`",
    )
    judge_threshold: float | None = _judge_setting(
        _parse_rate, "what `tool_selection` must reach", "those of the goldens"
    )
    judge_votes: int | None = _judge_setting(
        _parse_positive_int, "how often it is asked about a run; the median counts", "1"
    )
    judge_temperature: float | Literal[False] | None = _judge_setting(
        _number_or_off_parser(_parse_number), "the temperature it is asked with; or `off`: none is sent", "0"
    )
    judge_seed: float | Literal[False] | None = _judge_setting(
        _number_or_off_parser(_parse_non_negative_int), "the seed it is asked with; or `off`: none is sent", "0"
    )
    judge_show: str | None = _judge_setting(
        _choice_parser("names", "arguments", "all"),
        "what it is shown of calls: `all` has arguments and results",
        "`all`",
    )
    judge_explain: bool | None = _judge_setting(
        _parse_boolean, "whether reasons have the model's own words, which may repeat what is in the run", "off"
    )
    judge_timeout: float | None = _judge_setting(_parse_seconds, "seconds that all votes about a run may take", "30")
    judge_concurrency: int | None = _judge_setting(_parse_positive_int, "runs that it is asked about at once", "4")
    judge_daily_tokens: int | Literal[False] | None = _judge_setting(
        _number_or_off_parser(_parse_non_negative_int),
        "tokens that may be spent within 24 hours; or `off`: no limit",
        "1000000",
    )
    judge_daily_cost: float | None = _judge_setting(
        _parse_number, "US dollars that may be; needs the prices", "no limit"
    )
    judge_prices: tuple[float, float] | None = _judge_setting(
        _parse_prices, "US dollars for a million tokens of questions and of answers: `0.25,2`", "none"
    )
    judge_cache: str | None = _judge_setting(
        str, "SQLite file in which answers, and what was spent, are kept", "both last as long as the process"
    )
    judge_answer_form: str | None = _judge_setting(
        _choice_parser("json_schema", "json_object", "text"),
        "how the form of an answer is asked for, where an endpoint does not know schemas",
        "`json_schema`",
    )
    judge_max_tokens: int | None = _judge_setting(_parse_positive_int, "how many tokens an answer may have", "1000")
    judge_extra: Mapping[str, Any] | None = _judge_setting(
        _parse_json_object, 'further members of each request, in JSON: `{"reasoning_effort": "low"}`', "none"
    )
    then_exporter: tuple[str, ...] | None = _setting(
        _parse_list,
        "where `OTEL_TRACES_EXPORTER=goldspan` hands the spans on: names of exporters, separated by commas, or `none`",
        "`otlp` where an end point is set, else `none`",
    )
    enabled: bool | None = _setting(
        _parse_boolean,
        "`on`: score under `opentelemetry-instrument` also without any goldens; `off`: do not score there at all",
        "on with goldens or `OTEL_TRACES_EXPORTER=goldspan`",
    )
    disabled: bool | None = _setting(
        _parse_boolean, "whether `instrument()` and the ways without code do nothing", "off"
    )
    strict: bool | None = _setting(
        _parse_boolean, "`1`: failures of goldspan's own are raised, for its own tests", "off"
    )

    def arguments_for(self, owner: SettingOwner) -> dict[str, Any]:
        """What is said of the arguments of somebody; `None` for a number: off."""
        prefix = "judge_" if owner == "judge" else ""
        rows = [row for row in fields(self) if row.metadata["of"] == owner]
        named = {row.name.removeprefix(prefix): getattr(self, row.name) for row in rows}
        numbers = {"near", "reload", "temperature", "seed", "daily_tokens"}
        return {
            name: None if value is False and name in numbers else value
            for name, value in named.items()
            if value is not None
        }


@dataclass(frozen=True, slots=True)
class EnvironmentVariable:
    """One row of the table, for people."""

    name: str
    meaning: str
    default: str


def variable_name(setting: str) -> str:
    """The variable that says a setting."""
    return _PREFIX + (_setting_metadata(setting)["variable"] or setting.upper())


def _setting_metadata(setting: str) -> Mapping[str, Any]:
    return EnvironmentSettings.__dataclass_fields__[setting].metadata


VARIABLES = tuple(
    EnvironmentVariable(variable_name(row.name), row.metadata["meaning"], row.metadata["default"])
    for row in fields(EnvironmentSettings)
)


def read_environment(environment: Mapping[str, str] = os.environ) -> EnvironmentSettings:
    """Read the variables. Raises `ConfigurationError`, naming the variable, for what cannot be understood."""
    return EnvironmentSettings(
        **{row.name: _read_variable(environment, row.name) for row in fields(EnvironmentSettings)}
    )


def captured_arguments(environment: Mapping[str, str] = os.environ) -> bool | tuple[str, ...]:
    """What decorated functions capture where they are not told; names: of the arguments only those called so."""
    said: bool | tuple[str, ...] | None = _read_variable(environment, "capture_arguments")
    return True if said is None else said


def downstream_exporter_names(environment: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
    """The exporters to which spans are handed on. No other setting, if it is wrong, may keep spans from these."""
    names: tuple[str, ...] | None = _read_variable(environment, "then_exporter")
    return names


def misspelled_variables(environment: Mapping[str, str] = os.environ) -> list[str]:
    """A sentence about every variable that is nearly one of ours, and so says nothing."""
    known = {variable.name.removeprefix(_PREFIX) for variable in VARIABLES}
    odd = [name.removeprefix(_PREFIX) for name in environment if name.startswith(_PREFIX)]
    odd = [name for name in odd if name not in known]
    if not odd:
        return []
    from goldspan.goldens.spelling import is_typo, nearest_word  # only mistakes need it

    meant = {name: nearest_word(name, known) for name in sorted(odd) if is_typo(name, known)}
    return [f"there is no setting {_PREFIX}{name}; did you mean {_PREFIX}{word}?" for name, word in meant.items()]


def _read_variable(environment: Mapping[str, str], setting: str) -> Any:
    variable = variable_name(setting)
    text = environment.get(variable, "").strip()
    if not text:
        return None
    try:
        value = _setting_metadata(setting)["read"](text)
    except ValueError as error:
        raise ConfigurationError(f"{variable}: {error}") from None
    return None if value == () else value
