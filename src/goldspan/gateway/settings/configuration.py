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

from goldspan.errors import ConfigurationError, GoldspanWarning
from goldspan.gateway.extra import needed
from goldspan.gateway.limits import Limits
from goldspan.gateway.settings.fields import Settings, Telemetry
from goldspan.gateway.settings.judging import Judge
from goldspan.gateway.settings.kinds import MISTAKE
from goldspan.gateway.settings.origins import DEFAULT, Origin
from goldspan.goldens import yaml_values
from goldspan.goldens.words import is_slip, listed, nearest, shown

with needed():
    from pydantic import ValidationError
    from pydantic_settings import EnvSettingsSource

FILE = "goldspan.yaml"
"""What is read where no other file is named, if it is there."""
PREFIX = "GOLDSPAN_"

Steps: TypeAlias = tuple[str, ...]
Said: TypeAlias = dict[Steps, tuple[Any, Origin]]
"""Values by field, such as `("limits", "max_spans")`, and where each was said."""

_NESTED: Mapping[str, Sequence[str]] = {
    "limits": tuple(Limits.__dataclass_fields__),
    "judge": tuple(Judge.model_fields),
    "telemetry": tuple(Telemetry.model_fields),
}
_PATHS: tuple[Steps, ...] = tuple(
    path
    for name in Settings.model_fields
    for path in ([(name, inner) for inner in _NESTED[name]] if name in _NESTED else [(name,)])
)
_OF_LIBRARY = frozenset(
    {"CAPTURE_ARGUMENTS", "SINKS", "RELOAD", "THREADS", "SAMPLE", "SAMPLE_RULES", "EXPORT_SAMPLE", "BACKGROUND"}
    | {"MAX_TRACES", "MAX_SPANS", "MAX_SPANS_PER_TRACE", "MAX_BYTES", "MAX_QUEUE", "SETTLE", "THEN_EXPORTER"}
    | {"ENABLED", "DISABLED", "STRICT"}
)
"""Variables that mean something to goldspan in an agent's process, and nothing here."""
_FLAGS = {"allowed_hosts": "--allowed-host", "allowed_origins": "--allowed-origin"}


def variable_of(path: str) -> str:
    """The variable of a field: `GOLDSPAN_LIMITS__MAX_SPANS` of `limits.max_spans`.

    Some are called as in the processor: those of the judge, and one that names one attribute or several.
    """
    if path == "golden_id_attributes":
        return f"{PREFIX}GOLDEN_ID_ATTRIBUTE"
    return PREFIX + path.replace(".", "_" if path.startswith("judge.") else "__").upper()


def load(path: str | os.PathLike[str] | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings that hold: those of `path`, or of goldspan.yaml in the working directory if there is one, then those
    of the environment, then those of flags, which are named as the fields are.

    Warns of secrets that others may read. Raises `ConfigurationError` for whatever is wrong.
    """
    said: Said = {}
    if path is not None or Path(FILE).exists():
        said |= _of_file(Path(path or FILE))
    said |= _of_environment()
    for name, value in (flags or {}).items():
        said[name,] = value, Origin("flag", _FLAGS.get(name, f"--{name.replace('_', '-')}"))
    settings = _checked(said)
    _check_files(settings)
    _check_judge(settings)
    return settings


def _of_file(path: Path) -> Said:
    try:
        content = yaml_values.values(path.read_text("utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8 text") from None
    except yaml_values.YamlError as error:
        raise ConfigurationError(f"{path}{f', line {error.line}' if error.line else ''}: {error.problem}") from None
    if content is yaml_values.EMPTY or content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path}: holds {shown(content)} where settings were expected, such as `workers: 2`")
    origin = Origin("file", str(path))
    said = {path: (value, origin) for path, value in _leaves(content)}
    for each in said:
        if each not in _PATHS and each[:1] not in _PATHS:
            _refuse(each, str(path))
    return said


def _leaves(given: Mapping[Any, Any]) -> Iterator[tuple[Steps, Any]]:
    for key, value in given.items():
        if key in _NESTED and isinstance(value, Mapping):
            yield from (((key, str(inner)), each) for inner, each in value.items())
        elif key not in _NESTED or value is not None:  # nothing stands below it: nothing was said
            yield (str(key),), value


def _refuse(unknown: Steps, where: str) -> None:
    """Raise an error for a key that nobody knows, with the one that was probably meant."""
    if len(unknown) == 1 and unknown[0] in _NESTED:
        return  # pydantic says that it must be a mapping
    names = [".".join(path) for path in _PATHS]
    inner = {path[-1]: ".".join(path) for path in _PATHS if len(path) == 2}
    key = ".".join(unknown)
    meant = nearest(key, [*names, *_NESTED]) or inner.get(nearest(unknown[-1], inner) or "")
    known = [path[-1] for path in _PATHS if path[:-1] == unknown[:-1]]
    hint = f"did you mean {meant!r}?" if meant else f"there are {listed(known)}"
    raise ConfigurationError(f"{where}: there is no setting {shown(key)}; {hint}")


def _of_environment() -> Said:
    found = EnvSettingsSource(Settings)()
    plural, variable = PREFIX + "GOLDEN_ID_ATTRIBUTES", variable_of("golden_id_attributes")
    found.pop("golden_id_attributes", None)
    if os.environ.get(variable):
        found["golden_id_attributes"] = os.environ[variable]
    said = {path: (value, Origin("environment", variable_of(".".join(path)))) for path, value in _leaves(found)}
    known = {variable_of(".".join(path)).removeprefix(PREFIX) for path in _PATHS}
    for path in [path for path in said if path[0] == "judge" and len(path) > 1]:
        _refuse_variable(f"{PREFIX}JUDGE__{path[1].upper()}", known)  # with two underscores, as in other sections
    for name in _NESTED["judge"]:
        variable = variable_of(f"judge.{name}")
        if os.environ.get(variable):
            said["judge", name] = os.environ[variable], Origin("environment", variable)
    for path in said:
        if path not in _PATHS and path[0] in _NESTED and len(path) > 1:
            _refuse_variable(variable_of(".".join(path)), known)
    for name in sorted(os.environ):
        word = name.removeprefix(PREFIX)
        if name != word and word not in known | _OF_LIBRARY and (name == plural or _is_ours(word, known)):
            _refuse_variable(name, known)
    return said


def _is_ours(word: str, known: set[str]) -> bool:
    """Whether a variable that nobody knows is one of the gateway's with a slip of the pen.

    It need not be anybody's mistake: Kubernetes tells of a service called goldspan in GOLDSPAN_PORT_4318_TCP_ADDR.
    """
    return f"LIMITS__{word}" in known or (is_slip(word, known) and not is_slip(word, _OF_LIBRARY))


def _refuse_variable(name: str, known: set[str]) -> None:
    word = name.removeprefix(PREFIX)
    meant = f"LIMITS__{word}" if f"LIMITS__{word}" in known else nearest(word, known)
    hint = f"; did you mean {PREFIX}{meant}?" if meant else ""
    raise ConfigurationError(f"there is no setting {name}{hint}")


# --- what is wrong, in words for people -------------------------------------------------------------------------------

_MUST_BE = {
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
_BOUNDS = {"greater_than": "above", "greater_than_equal": "at least", "less_than_equal": "at most"}
_SECRETS = frozenset({"token", "read_token", "forward", "headers", "api_key", "extra"})


def _checked(said: Said) -> Settings:
    values: dict[str, Any] = {}
    for path, (value, _) in said.items():
        if len(path) == 1:
            values[path[0]] = value
        else:
            values.setdefault(path[0], {})[path[1]] = value
    origins = {".".join(path): origin for path, (_, origin) in said.items()}
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise ConfigurationError(_sentence(error, origins)) from None
    settings._origins.update(origins)
    return settings


def _sentence(error: ValidationError, origins: Mapping[str, Origin]) -> str:
    """The first of pydantic's errors as a sentence."""
    problem: Any = error.errors(include_url=False)[0]
    steps = list(problem["loc"])
    context = problem.get("ctx", {})
    if problem["type"] == MISTAKE:
        field, sentence = context["field"], context["sentence"]
        if steps == ["limits"]:  # what is wrong with one begins with its name
            field, _, sentence = sentence.partition(" ")
        steps += [field] if field else []
    path = ".".join(map(str, steps[: 2 if steps[0] in _NESTED else 1]))
    inner = "".join(f"[{step}]" if isinstance(step, int) else f" {step}" for step in steps[path.count(".") + 1 :])
    place = origins.get(path, DEFAULT).place(path) + inner
    if problem["type"] == MISTAKE:
        return f"{place}{'' if sentence.startswith('[') else ': '}{sentence}"
    given = problem["input"]
    told = isinstance(given, str | int | float) and _SECRETS.isdisjoint(steps)
    return f"{place}: {_wanted(problem)}{f', not {shown(given)}' if told else ''}"


def _wanted(problem: Mapping[str, Any]) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    if kind in _BOUNDS:
        bound = next(context[key] for key in ("gt", "ge", "le") if key in context)
        return f"must be {_BOUNDS[kind]} {bound:g}"
    if kind == "literal_error":
        return f"must be {context['expected'].replace(chr(39), '')}"
    if kind == "string_too_short":
        return "must not be empty"
    return _MUST_BE.get(kind) or str(problem["msg"]).lower()


# --- the judge --------------------------------------------------------------------------------------------------------


def _check_judge(settings: Settings) -> None:
    """Whether a model could be asked, as far as that is known without asking. Opens no file."""
    told = settings.judge.told(settings.data)
    if told is not None:
        try:
            replace(told, cache=None).judge(meter_provider=NoOpMeterProvider()).close()
        except ConfigurationError as error:
            raise ConfigurationError(f"{settings.place('judge.model')}: {error}") from None


# --- files ------------------------------------------------------------------------------------------------------------


def _check_files(settings: Settings) -> None:
    """Whether the files that are named can be read now; warns where others may read secrets."""
    _ = settings.ingest_tokens, settings.read_tokens
    for field in ("tls_cert", "tls_key"):
        path: Path | None = getattr(settings, field)
        if path is not None:
            try:
                path.open("rb").close()
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                raise ConfigurationError(f"{settings.place(field)}: {path} cannot be read: {why}") from None
    for secret in (settings.token_file, settings.read_token_file, settings.tls_key):
        if secret is not None and os.name == "posix" and secret.stat().st_mode & stat.S_IROTH:
            told = f"{secret} holds secrets, and everybody on this machine may read it: chmod o-r {secret}"
            warnings.warn(told, GoldspanWarning, stacklevel=3)
