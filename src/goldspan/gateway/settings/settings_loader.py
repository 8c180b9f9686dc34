"""Settings put together: goldspan.yaml, below variables of the environment, below flags; and what is wrong with them.

Every mistake is a `ConfigurationError` of one sentence that begins with the file, the variable or the flag.
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

from goldspan._extras import require_server_extra
from goldspan.errors import ConfigurationError, GoldspanWarning
from goldspan.gateway.resource_limits import ResourceLimits
from goldspan.gateway.settings.gateway_settings import GatewaySettings, JudgeConfig, TelemetryConfig
from goldspan.gateway.settings.setting_types import DEFAULT_ORIGIN, VALIDATION_ERROR, SettingOrigin
from goldspan.goldens.golden_files import golden_formats
from goldspan.goldens.spelling import is_typo, join_words, nearest_word, short_repr

with require_server_extra():
    from pydantic import ValidationError
    from pydantic_settings import EnvSettingsSource

DEFAULT_FILE = "goldspan.yaml"
"""What is read where no other file is named, if it is there."""
VARIABLE_PREFIX = "GOLDSPAN_"

FieldPath: TypeAlias = tuple[str, ...]
ValuesByPath: TypeAlias = dict[FieldPath, tuple[Any, SettingOrigin]]
"""Values by field, such as `("limits", "max_spans")`, and where each was said."""

_SECTION_FIELDS: Mapping[str, Sequence[str]] = {
    "limits": tuple(ResourceLimits.__dataclass_fields__),
    "judge": tuple(JudgeConfig.model_fields),
    "telemetry": tuple(TelemetryConfig.model_fields),
}
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
"""Variables that mean something to goldspan in an agent's process, and nothing here."""
_FLAG_NAMES = {"allowed_hosts": "--allowed-host", "allowed_origins": "--allowed-origin"}


def variable_name(path: str) -> str:
    """The variable of a field: `GOLDSPAN_LIMITS__MAX_SPANS` of `limits.max_spans`.

    Some are called as in the processor: those of the judge, and one that names one attribute or several.
    """
    if path == "golden_id_attributes":
        return f"{VARIABLE_PREFIX}GOLDEN_ID_ATTRIBUTE"
    return VARIABLE_PREFIX + path.replace(".", "_" if path.startswith("judge.") else "__").upper()


def load_settings(
    path: str | os.PathLike[str] | None = None, flags: Mapping[str, Any] | None = None
) -> GatewaySettings:
    """The settings that hold: those of `path`, or of goldspan.yaml in the working directory if there is one, then those
    of the environment, then those of flags, which are named as the fields are.

    Warns of secrets that others may read. Raises `ConfigurationError` for whatever is wrong.
    """
    said: ValuesByPath = {}
    if path is not None or Path(DEFAULT_FILE).exists():
        said |= _read_file(Path(path or DEFAULT_FILE))
    said |= _read_environment()
    for name, value in (flags or {}).items():
        said[name,] = value, SettingOrigin("flag", _FLAG_NAMES.get(name, f"--{name.replace('_', '-')}"))
    settings = _validate(said)
    _validate_files(settings)
    _validate_judge(settings)
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
        raise ConfigurationError(
            f"{path}: holds {short_repr(content)} where settings were expected, such as `workers: 2`"
        )
    origin = SettingOrigin("file", str(path))
    said = {path: (value, origin) for path, value in _flatten(content)}
    for each in said:
        if each not in _FIELD_PATHS and each[:1] not in _FIELD_PATHS:
            _raise_unknown_key(each, str(path))
    return said


def _flatten(given: Mapping[Any, Any]) -> Iterator[tuple[FieldPath, Any]]:
    for key, value in given.items():
        if key in _SECTION_FIELDS and isinstance(value, Mapping):
            yield from (((key, str(inner)), each) for inner, each in value.items())
        elif key not in _SECTION_FIELDS or value is not None:  # nothing stands below it: nothing was said
            yield (str(key),), value


def _raise_unknown_key(unknown: FieldPath, source: str) -> None:
    """Raise an error for a key that nobody knows, with the one that was probably meant."""
    if len(unknown) == 1 and unknown[0] in _SECTION_FIELDS:
        return  # pydantic says that it must be a mapping
    names = [".".join(path) for path in _FIELD_PATHS]
    inner = {path[-1]: ".".join(path) for path in _FIELD_PATHS if len(path) == 2}
    key = ".".join(unknown)
    meant = nearest_word(key, [*names, *_SECTION_FIELDS]) or inner.get(nearest_word(unknown[-1], inner) or "")
    known = [path[-1] for path in _FIELD_PATHS if path[:-1] == unknown[:-1]]
    hint = f"did you mean {meant!r}?" if meant else f"there are {join_words(known)}"
    raise ConfigurationError(f"{source}: there is no setting {short_repr(key)}; {hint}")


def _read_environment() -> ValuesByPath:
    found = EnvSettingsSource(GatewaySettings)()
    plural, variable = VARIABLE_PREFIX + "GOLDEN_ID_ATTRIBUTES", variable_name("golden_id_attributes")
    found.pop("golden_id_attributes", None)
    if os.environ.get(variable):
        found["golden_id_attributes"] = os.environ[variable]
    said = {
        path: (value, SettingOrigin("environment", variable_name(".".join(path)))) for path, value in _flatten(found)
    }
    known = {variable_name(".".join(path)).removeprefix(VARIABLE_PREFIX) for path in _FIELD_PATHS}
    for path in [path for path in said if path[0] == "judge" and len(path) > 1]:
        _raise_unknown_variable(
            f"{VARIABLE_PREFIX}JUDGE__{path[1].upper()}", known
        )  # with two underscores, as in other sections
    for name in _SECTION_FIELDS["judge"]:
        variable = variable_name(f"judge.{name}")
        if os.environ.get(variable):
            said["judge", name] = os.environ[variable], SettingOrigin("environment", variable)
    for path in said:
        if path not in _FIELD_PATHS and path[0] in _SECTION_FIELDS and len(path) > 1:
            _raise_unknown_variable(variable_name(".".join(path)), known)
    for name in sorted(os.environ):
        word = name.removeprefix(VARIABLE_PREFIX)
        if name != word and word not in known | _LIBRARY_VARIABLES and (name == plural or _is_misspelled(word, known)):
            _raise_unknown_variable(name, known)
    return said


def _is_misspelled(word: str, known: set[str]) -> bool:
    """Whether a variable that nobody knows is one of the gateway's with a slip of the pen.

    It need not be anybody's mistake: Kubernetes tells of a service called goldspan in GOLDSPAN_PORT_4318_TCP_ADDR.
    """
    return f"LIMITS__{word}" in known or (is_typo(word, known) and not is_typo(word, _LIBRARY_VARIABLES))


def _raise_unknown_variable(name: str, known: set[str]) -> None:
    word = name.removeprefix(VARIABLE_PREFIX)
    meant = f"LIMITS__{word}" if f"LIMITS__{word}" in known else nearest_word(word, known)
    hint = f"; did you mean {VARIABLE_PREFIX}{meant}?" if meant else ""
    raise ConfigurationError(f"there is no setting {name}{hint}")


# --- what is wrong, in words for people -------------------------------------------------------------------------------

_TYPE_MESSAGES = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dataclass_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "model_type": "must be a mapping",
    "path_type": "must be a path",
    "string_type": "must be text",
    "tuple_type": "must be a list",
}
_BOUND_WORDS = {"greater_than": "above", "greater_than_equal": "at least", "less_than_equal": "at most"}
_SECRET_FIELDS = frozenset({"token", "read_token", "forward", "headers", "api_key", "extra"})


def _validate(said: ValuesByPath) -> GatewaySettings:
    values: dict[str, Any] = {}
    for path, (value, _) in said.items():
        if len(path) == 1:
            values[path[0]] = value
        else:
            values.setdefault(path[0], {})[path[1]] = value
    origins = {".".join(path): origin for path, (_, origin) in said.items()}
    try:
        settings = GatewaySettings(**values)
    except ValidationError as error:
        raise ConfigurationError(_error_message(error, origins)) from None
    settings._origins.update(origins)
    return settings


def _error_message(error: ValidationError, origins: Mapping[str, SettingOrigin]) -> str:
    """The first of pydantic's errors as a sentence."""
    problem: Any = error.errors(include_url=False)[0]
    steps = list(problem["loc"])
    context = problem.get("ctx", {})
    if problem["type"] == VALIDATION_ERROR:
        field, sentence = context["field"], context["sentence"]
        if steps == ["limits"]:  # what is wrong with one begins with its name
            field, _, sentence = sentence.partition(" ")
        steps += [field] if field else []
    path = ".".join(map(str, steps[: 2 if steps[0] in _SECTION_FIELDS else 1]))
    inner = "".join(f"[{step}]" if isinstance(step, int) else f" {step}" for step in steps[path.count(".") + 1 :])
    place = origins.get(path, DEFAULT_ORIGIN).describe_location(path) + inner
    if problem["type"] == VALIDATION_ERROR:
        return f"{place}{'' if sentence.startswith('[') else ': '}{sentence}"
    given = problem["input"]
    told = isinstance(given, str | int | float) and _SECRET_FIELDS.isdisjoint(steps)
    return f"{place}: {_expectation(problem)}{f', not {short_repr(given)}' if told else ''}"


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
    """Whether a model could be asked, as far as that is known without asking. Opens no file."""
    told = settings.judge.to_judge_settings(settings.data)
    if told is not None:
        try:
            replace(told, cache=None).create_judge(meter_provider=NoOpMeterProvider()).close()
        except ConfigurationError as error:
            raise ConfigurationError(f"{settings.location_of('judge.model')}: {error}") from None


# --- files ------------------------------------------------------------------------------------------------------------


def _validate_files(settings: GatewaySettings) -> None:
    """Whether the files that are named can be read now; warns where others may read secrets."""
    _ = settings.ingest_tokens, settings.read_tokens
    for field in ("tls_cert", "tls_key"):
        path: Path | None = getattr(settings, field)
        if path is not None:
            try:
                path.open("rb").close()
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                raise ConfigurationError(f"{settings.location_of(field)}: {path} cannot be read: {why}") from None
    for secret in (settings.token_file, settings.read_token_file, settings.tls_key):
        if secret is not None and os.name == "posix" and secret.stat().st_mode & stat.S_IROTH:
            told = f"{secret} holds secrets, and everybody on this machine may read it: chmod o-r {secret}"
            warnings.warn(told, GoldspanWarning, stacklevel=3)
