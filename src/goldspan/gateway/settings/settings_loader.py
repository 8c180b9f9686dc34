"""Loads and validates the gateway's settings: goldspan.yaml, environment variables, flags.

Every mistake raises a `ConfigurationError` with one sentence that begins with the file, the variable or the flag.
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from opentelemetry.metrics import NoOpMeterProvider

from goldspan._extras import require_extra
from goldspan.errors import ConfigurationError, GoldspanWarning
from goldspan.gateway.kafka.kafka_settings import KafkaSettings
from goldspan.gateway.resource_limits import ResourceLimits
from goldspan.gateway.settings.gateway_settings import GatewaySettings, JudgeConfig, TelemetryConfig
from goldspan.gateway.settings.kafka_config import KafkaConfig
from goldspan.gateway.settings.setting_types import DEFAULT_ORIGIN, VALIDATION_ERROR, SettingOrigin
from goldspan.goldens.golden_files import golden_formats
from goldspan.goldens.spelling import is_typo, join_words, nearest_word, short_repr

with require_extra("server"):
    from pydantic import ValidationError
    from pydantic_settings import EnvSettingsSource

DEFAULT_FILE = "goldspan.yaml"
"""The file that is read if no other file is named and it exists."""
VARIABLE_PREFIX = "GOLDSPAN_"

FieldPath: TypeAlias = tuple[str, ...]
ValuesByPath: TypeAlias = dict[FieldPath, tuple[Any, SettingOrigin]]
"""Values by field, such as `("limits", "max_spans")`, each with its origin."""

_SECTION_FIELDS: Mapping[str, Sequence[str]] = {
    "limits": tuple(ResourceLimits.__dataclass_fields__),
    "judge": tuple(JudgeConfig.model_fields),
    "kafka": tuple(KafkaConfig.model_fields),
    "telemetry": tuple(TelemetryConfig.model_fields),
}
_ONE_UNDERSCORE = ("judge", "kafka")
"""Sections whose variables have one underscore after the name of the section. The others have two."""
_FIELD_PATHS: tuple[FieldPath, ...] = tuple(
    path
    for name in GatewaySettings.model_fields
    for path in ([(name, inner) for inner in _SECTION_FIELDS[name]] if name in _SECTION_FIELDS else [(name,)])
)
_LIBRARY_VARIABLES = frozenset(
    {"CAPTURE_ARGUMENTS", "SINKS", "RELOAD", "THREADS", "SAMPLE", "SAMPLE_RULES", "EXPORT_SAMPLE", "BACKGROUND"}
    | {"MAX_TRACES", "MAX_SPANS", "MAX_SPANS_PER_TRACE", "MAX_BYTES", "MAX_QUEUE", "SETTLE", "THEN_EXPORTER"}
    | {"ENABLED", "DISABLED", "STRICT"}
)
"""Variables that goldspan reads in the process of an agent. The gateway ignores them."""
_FLAG_NAMES = {"allowed_hosts": "--allowed-host", "allowed_origins": "--allowed-origin", "products": "--product"}


def variable_name(path: str) -> str:
    """Returns the variable of a field: `GOLDSPAN_LIMITS__MAX_SPANS` for `limits.max_spans`.

    The variables of the judge and of `golden_id_attributes` have the same names as in the processor. Those of the judge
    and of Kafka have one underscore: `GOLDSPAN_KAFKA_TOPIC` for `kafka.topic`.
    """
    if path == "golden_id_attributes":
        return f"{VARIABLE_PREFIX}GOLDEN_ID_ATTRIBUTE"
    return VARIABLE_PREFIX + path.replace(".", "_" if path.partition(".")[0] in _ONE_UNDERSCORE else "__").upper()


def load_settings(
    path: str | os.PathLike[str] | None = None, flags: Mapping[str, Any] | None = None
) -> GatewaySettings:
    """Returns the settings of `path` (default: goldspan.yaml in the working directory), the environment and flags.

    Later sources override earlier ones. Flags have the names of the fields, such as `kafka.topic`. Warns about files
    with secrets that other users may read. Raises `ConfigurationError` for every mistake.
    """
    values: ValuesByPath = {}
    if path is not None or Path(DEFAULT_FILE).exists():
        values |= _read_file(Path(path or DEFAULT_FILE))
    values |= _read_environment()
    for name, value in (flags or {}).items():
        flag = _FLAG_NAMES.get(name, f"--{name.replace('.', '-').replace('_', '-')}")
        values[tuple(name.split("."))] = value, SettingOrigin("flag", flag)
    settings = _validate(values)
    _validate_files(settings)
    _validate_judge(settings)
    _validate_kafka(settings)
    return settings


def _read_file(path: Path) -> ValuesByPath:
    try:
        content = golden_formats.parse_yaml(path.read_text("utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8 text") from None
    except golden_formats.YamlError as error:
        raise ConfigurationError(f"{path}{f', line {error.line}' if error.line else ''}: {error.problem}") from None
    if content is golden_formats.EMPTY_DOCUMENT or content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path}: must contain settings, such as `workers: 2`, not {short_repr(content)}")
    origin = SettingOrigin("file", str(path))
    values = {field_path: (value, origin) for field_path, value in _flatten(content)}
    for field_path in values:
        if field_path not in _FIELD_PATHS and field_path[:1] not in _FIELD_PATHS:
            _raise_unknown_key(field_path, str(path))
    return values


def _flatten(content: Mapping[Any, Any]) -> Iterator[tuple[FieldPath, Any]]:
    for key, value in content.items():
        if key in _SECTION_FIELDS and isinstance(value, Mapping):
            yield from (((key, str(inner_key)), inner_value) for inner_key, inner_value in value.items())
        elif key not in _SECTION_FIELDS or value is not None:  # an empty section sets nothing
            yield (str(key),), value


def _raise_unknown_key(unknown: FieldPath, source: str) -> None:
    """Raise an error for an unknown key, with the most similar known key."""
    if len(unknown) == 1 and unknown[0] in _SECTION_FIELDS:
        return  # pydantic reports that it must be a mapping
    names = [".".join(path) for path in _FIELD_PATHS]
    inner = {path[-1]: ".".join(path) for path in _FIELD_PATHS if len(path) == 2}
    key = ".".join(unknown)
    similar = nearest_word(key, [*names, *_SECTION_FIELDS]) or inner.get(nearest_word(unknown[-1], inner) or "")
    known = [path[-1] for path in _FIELD_PATHS if path[:-1] == unknown[:-1]]
    hint = f"did you mean {similar!r}?" if similar else f"the settings are {join_words(known)}"
    raise ConfigurationError(f"{source}: unknown setting {short_repr(key)}; {hint}")


def _read_environment() -> ValuesByPath:
    found = EnvSettingsSource(GatewaySettings)()
    plural, variable = VARIABLE_PREFIX + "GOLDEN_ID_ATTRIBUTES", variable_name("golden_id_attributes")
    found.pop("golden_id_attributes", None)
    if os.environ.get(variable):
        found["golden_id_attributes"] = os.environ[variable]
    values = {
        path: (value, SettingOrigin("environment", variable_name(".".join(path)))) for path, value in _flatten(found)
    }
    known = {variable_name(".".join(path)).removeprefix(VARIABLE_PREFIX) for path in _FIELD_PATHS}
    for section in _ONE_UNDERSCORE:
        for path in [path for path in values if path[0] == section and len(path) > 1]:
            _raise_unknown_variable(
                f"{VARIABLE_PREFIX}{section.upper()}__{path[1].upper()}", known
            )  # written with two underscores, as in other sections
        for name in _SECTION_FIELDS[section]:
            variable = variable_name(f"{section}.{name}")
            if os.environ.get(variable):
                values[section, name] = os.environ[variable], SettingOrigin("environment", variable)
    for path in values:
        if path not in _FIELD_PATHS and path[0] in _SECTION_FIELDS and len(path) > 1:
            _raise_unknown_variable(variable_name(".".join(path)), known)
    for name in sorted(os.environ):
        word = name.removeprefix(VARIABLE_PREFIX)
        if name != word and word not in known | _LIBRARY_VARIABLES and (name == plural or _is_misspelled(word, known)):
            _raise_unknown_variable(name, known)
    return values


def _is_misspelled(word: str, known: set[str]) -> bool:
    """Whether an unknown variable is probably a misspelled variable of the gateway.

    Not every unknown variable is a mistake: for a service named goldspan, Kubernetes sets GOLDSPAN_PORT_4318_TCP_ADDR.
    """
    return f"LIMITS__{word}" in known or (is_typo(word, known) and not is_typo(word, _LIBRARY_VARIABLES))


def _raise_unknown_variable(name: str, known: set[str]) -> None:
    word = name.removeprefix(VARIABLE_PREFIX)
    similar = f"LIMITS__{word}" if f"LIMITS__{word}" in known else nearest_word(word, known)
    hint = f"; did you mean {VARIABLE_PREFIX}{similar}?" if similar else ""
    raise ConfigurationError(f"unknown setting {name}{hint}")


# --- validation --------------------------------------------------------------------------------------------------

_TYPE_MESSAGES = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dataclass_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_from_float": "must be an integer",
    "int_parsing": "must be an integer",
    "int_type": "must be an integer",
    "model_type": "must be a mapping",
    "path_type": "must be a path",
    "string_type": "must be text",
    "tuple_type": "must be a list",
}
_BOUND_WORDS = {"greater_than": "above", "greater_than_equal": "at least", "less_than_equal": "at most"}
_SECRET_FIELDS = frozenset(
    {"token", "read_token", "forward", "headers", "api_key", "extra", "password", "options", "store"}
)


def _validate(values_by_path: ValuesByPath) -> GatewaySettings:
    values: dict[str, Any] = {}
    for path, (value, _) in values_by_path.items():
        if len(path) == 1:
            values[path[0]] = value
        else:
            values.setdefault(path[0], {})[path[1]] = value
    origins = {".".join(path): origin for path, (_, origin) in values_by_path.items()}
    try:
        settings = GatewaySettings(**values)
    except ValidationError as error:
        raise ConfigurationError(_error_message(error, origins)) from None
    settings._origins.update(origins)
    return settings


def _error_message(error: ValidationError, origins: Mapping[str, SettingOrigin]) -> str:
    """Returns the first of pydantic's errors as a sentence."""
    problem: Any = error.errors(include_url=False)[0]
    steps = list(problem["loc"])
    context = problem.get("ctx", {})
    if problem["type"] == VALIDATION_ERROR:
        field, sentence = context["field"], context["sentence"]
        if steps == ["limits"]:  # the sentence begins with the name of the limit
            field, _, sentence = sentence.partition(" ")
        steps += [field] if field else []
    path = ".".join(map(str, steps[: 2 if steps[0] in _SECTION_FIELDS else 1]))
    inner = "".join(f"[{step}]" if isinstance(step, int) else f" {step}" for step in steps[path.count(".") + 1 :])
    place = origins.get(path, DEFAULT_ORIGIN).describe_location(path) + inner
    if problem["type"] == VALIDATION_ERROR:
        return f"{place}{'' if sentence.startswith('[') else ': '}{sentence}"
    value = problem["input"]
    is_shown = isinstance(value, str | int | float) and _SECRET_FIELDS.isdisjoint(steps)
    return f"{place}: {_expectation(problem)}{f', not {short_repr(value)}' if is_shown else ''}"


def _expectation(problem: Mapping[str, Any]) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    if kind in _BOUND_WORDS:
        bound = next(context[key] for key in ("gt", "ge", "le") if key in context)
        return f"must be {_BOUND_WORDS[kind]} {bound:g}"
    if kind == "literal_error":
        return f"must be {context['expected'].replace(chr(39), '')}"
    if kind == "string_too_short":
        return "must not be empty"
    return _TYPE_MESSAGES.get(kind) or str(problem["msg"]).lower()


# --- the judge --------------------------------------------------------------------------------------------------------


def _validate_judge(settings: GatewaySettings) -> None:
    """Raise an error if the judge cannot be created. Sends no request and opens no file."""
    judge_settings = settings.judge.to_judge_settings(settings.data)
    if judge_settings is not None:
        try:
            replace(judge_settings, cache=None).create_judge(meter_provider=NoOpMeterProvider()).close()
        except ConfigurationError as error:
            raise ConfigurationError(f"{settings.location_of('judge.model')}: {error}") from None


# --- Kafka ------------------------------------------------------------------------------------------------------------


def _validate_kafka(settings: GatewaySettings) -> None:
    """Raise an error if the clients cannot be created, or their extra is missing. Connects to no broker."""
    if settings.kafka.brokers:
        from goldspan.gateway.kafka.kafka_clients import check_kafka_settings  # deferred: the extra is optional

        place = settings.location_of("kafka.options_file" if settings.kafka.options_file else "kafka.options")
        try:
            check_kafka_settings(settings.kafka.to_kafka_settings() or KafkaSettings(brokers=""))
        except ConfigurationError as error:
            raise ConfigurationError(f"{place}: {error}") from None


# --- files ------------------------------------------------------------------------------------------------------------


def _validate_files(settings: GatewaySettings) -> None:
    """Raise an error if a configured file cannot be read; warn if other users may read a file with secrets."""
    _ = settings.ingest_tokens, settings.read_tokens, settings.kafka.to_kafka_settings()
    for field in ("tls_cert", "tls_key"):
        path: Path | None = getattr(settings, field)
        if path is not None:
            try:
                path.open("rb").close()
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                raise ConfigurationError(f"{settings.location_of(field)}: {path} cannot be read: {reason}") from None
    secret_files = (settings.token_file, settings.read_token_file, settings.tls_key, settings.kafka.options_file)
    for secret in secret_files:
        if secret is not None and os.name == "posix" and secret.stat().st_mode & stat.S_IROTH:
            warning = f"{secret} contains secrets and is readable by every user of this machine: chmod o-r {secret}"
            warnings.warn(warning, GoldspanWarning, stacklevel=3)
