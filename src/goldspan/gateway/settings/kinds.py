"""The kinds of values that settings have: how each is written in a file, in a variable or behind a flag."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args

from goldspan.errors import ConfigurationError
from goldspan.gateway.extra import needed
from goldspan.gateway.forwarding.backends import Compression, Protocol, parse_backends
from goldspan.gateway.limits import Limits
from goldspan.gateway.signals import Signal
from goldspan.model import Unit

with needed():
    from pydantic import (
        BeforeValidator,
        ConfigDict,
        Field,
        TypeAdapter,
        ValidatorFunctionWrapHandler,
        WithJsonSchema,
        WrapValidator,
    )
    from pydantic_core import PydanticCustomError
    from typing_extensions import Required, TypedDict  # pydantic reads those of `typing` from Python 3.12 on

Outlet = Literal["events", "metrics", "spans", "attributes"]
OUTLETS: tuple[Outlet, ...] = get_args(Outlet)

T = TypeVar("T")
MISTAKE = "mistake"
"""The type of our own pydantic errors: `sentence` is what is wrong, `field` the field it is about if not their own."""


def mistake(sentence: str, field: str = "") -> PydanticCustomError:
    """What is raised for a value that cannot be, about the field itself or another one."""
    return PydanticCustomError(MISTAKE, "{sentence}", {"sentence": sentence, "field": field})


def _said(read: Callable[[], T]) -> T:
    try:
        return read()
    except ConfigurationError as error:
        raise mistake(str(error)) from None


def _list(given: Any) -> Any:
    if isinstance(given, str):
        return [item for item in map(str.strip, given.split(",")) if item]
    return given


def _thresholds(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    pairs = [item.partition("=") for item in _list(given)]
    if not all(sign for _, sign, _ in pairs):
        raise mistake("is written as tool_correctness=0.8, several separated by commas")
    return {metric.strip(): number.strip() for metric, _, number in pairs}


def _back_ends(given: Any) -> Any:
    """Back ends as they are written: URLs separated by commas, JSON, or a list of either, which are tried out."""
    if isinstance(given, str) and given.lstrip().startswith(("[", "{")):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise mistake("is no JSON") from None
    given = [given] if isinstance(given, Mapping) else _list(given)
    if isinstance(given, list | tuple):
        _said(lambda: parse_backends(given, where=""))
    return given


def _limits(given: Any, read: ValidatorFunctionWrapHandler) -> Limits:
    limits: Limits = _said(lambda: read(given))
    return limits


def _or_off(given: Any) -> Any:
    return None if given is False or (isinstance(given, str) and given.lower() in ("off", "false", "no")) else given


def _prices(given: Any) -> Any:
    prices = _list(given)
    if isinstance(prices, list | tuple) and len(prices) != 2:
        raise mistake("is two prices, for a million tokens of questions and of answers: 0.25,2")
    return prices


def _members(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        members = json.loads(given)
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict):
        raise mistake("is no JSON object")
    return members


class BackEndAsWritten(TypedDict, total=False):
    """A back end as a mapping. `${NAME}` in the value of a header is that variable of the environment."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    endpoint: Required[str]
    name: str
    protocol: Protocol
    headers: dict[str, str]
    compression: Compression
    ca_file: str
    certificate_file: str
    key_file: str
    timeout_seconds: float
    signals: list[Signal]


Texts = Annotated[tuple[str, ...], BeforeValidator(_list, json_schema_input_type=str | list[str])]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
PerhapsNoSeconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Port = Annotated[int, Field(ge=0, le=65535)]
_TEXT = {"type": "string"}
_BACK_ENDS = {"type": "array", "items": {"anyOf": [_TEXT, TypeAdapter(BackEndAsWritten).json_schema()]}}
BackEnds = Annotated[
    tuple[str | dict[str, Any], ...],
    BeforeValidator(_back_ends),
    WithJsonSchema({"anyOf": [_TEXT, _BACK_ENDS]}),
    Field(repr=False),
]
Outlets = Annotated[tuple[Outlet, ...], BeforeValidator(_list, json_schema_input_type=str | list[Outlet])]
Units = Annotated[tuple[Unit, ...], BeforeValidator(_list, json_schema_input_type=str | list[Unit])]
PerhapsTexts = Annotated[tuple[str, ...] | None, BeforeValidator(_list, json_schema_input_type=str | list[str] | None)]
Thresholds = Annotated[
    dict[str, Annotated[float, Field(allow_inf_nan=False)]],
    BeforeValidator(_thresholds, json_schema_input_type=str | dict[str, float]),
]
Similarity = Annotated[
    Annotated[float, Field(ge=0, le=100)] | None,
    BeforeValidator(_or_off, json_schema_input_type=float | Literal["off"] | None),
]
PerhapsNoNumber = Annotated[
    Annotated[float, Field(ge=0, allow_inf_nan=False)] | None,
    BeforeValidator(_or_off, json_schema_input_type=float | Literal["off"] | None),
]
PerhapsCount = Annotated[
    Annotated[int, Field(ge=0)] | None,
    BeforeValidator(_or_off, json_schema_input_type=int | Literal["off"] | None),
]
Prices = Annotated[
    tuple[PerhapsNoSeconds, PerhapsNoSeconds] | None,
    BeforeValidator(_prices, json_schema_input_type=str | tuple[float, float] | None),
]
Members = Annotated[
    dict[str, Any] | None, BeforeValidator(_members, json_schema_input_type=str | dict[str, Any] | None)
]
Bounds = Annotated[Limits, WrapValidator(_limits)]
