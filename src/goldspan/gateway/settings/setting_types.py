"""The kinds of values that settings have: how each is written in a file, in a variable or behind a flag."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args

from goldspan._extras import require_server_extra
from goldspan.errors import ConfigurationError
from goldspan.gateway.exporting.backends import Compression, OtlpProtocol, parse_backends
from goldspan.gateway.resource_limits import ResourceLimits, Signal
from goldspan.model import RunUnit


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """Where a value was said."""

    kind: Literal["default", "file", "environment", "flag"]
    name: str = ""
    """The file, the variable or the flag."""

    def describe_location(self, path: str) -> str:
        """How an error names the field at a path such as `limits.max_spans`."""
        return f"{self.name}, {path}" if self.kind == "file" else self.name or path

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


DEFAULT_ORIGIN = SettingOrigin("default")


with require_server_extra():
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

ResultOutput = Literal["events", "metrics", "spans", "attributes"]
RESULT_OUTPUTS: tuple[ResultOutput, ...] = get_args(ResultOutput)

ParsedT = TypeVar("ParsedT")
VALIDATION_ERROR = "mistake"
"""The type of our own pydantic errors: `sentence` is what is wrong, `field` the field it is about if not their own."""


def validation_error(sentence: str, field: str = "") -> PydanticCustomError:
    """What is raised for a value that cannot be, about the field itself or another one."""
    return PydanticCustomError(VALIDATION_ERROR, "{sentence}", {"sentence": sentence, "field": field})


def _convert_errors(read: Callable[[], ParsedT]) -> ParsedT:
    try:
        return read()
    except ConfigurationError as error:
        raise validation_error(str(error)) from None


def _split_list(given: Any) -> Any:
    if isinstance(given, str):
        return [item for item in map(str.strip, given.split(",")) if item]
    return given


def _parse_thresholds(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    pairs = [item.partition("=") for item in _split_list(given)]
    if not all(sign for _, sign, _ in pairs):
        raise validation_error("is written as tool_correctness=0.8, several separated by commas")
    return {metric.strip(): number.strip() for metric, _, number in pairs}


def _parse_back_ends(given: Any) -> Any:
    """Back ends as they are written: URLs separated by commas, JSON, or a list of either, which are tried out."""
    if isinstance(given, str) and given.lstrip().startswith(("[", "{")):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise validation_error("is no JSON") from None
    given = [given] if isinstance(given, Mapping) else _split_list(given)
    if isinstance(given, list | tuple):
        _convert_errors(lambda: parse_backends(given, location=""))
    return given


def _parse_limits(given: Any, read: ValidatorFunctionWrapHandler) -> ResourceLimits:
    limits: ResourceLimits = _convert_errors(lambda: read(given))
    return limits


def _parse_off(given: Any) -> Any:
    return None if given is False or (isinstance(given, str) and given.lower() in ("off", "false", "no")) else given


def _parse_prices(given: Any) -> Any:
    prices = _split_list(given)
    if isinstance(prices, list | tuple) and len(prices) != 2:
        raise validation_error("is two prices, for a million tokens of questions and of answers: 0.25,2")
    return prices


def _parse_json_object(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        members = json.loads(given)
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict):
        raise validation_error("is no JSON object")
    return members


class BackEndEntry(TypedDict, total=False):
    """A back end as a mapping. `${NAME}` in the value of a header is that variable of the environment."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    endpoint: Required[str]
    name: str
    protocol: OtlpProtocol
    headers: dict[str, str]
    compression: Compression
    ca_file: str
    certificate_file: str
    key_file: str
    timeout_seconds: float
    signals: list[Signal]


TextList = Annotated[tuple[str, ...], BeforeValidator(_split_list, json_schema_input_type=str | list[str])]
PositiveSeconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegativeSeconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
PortNumber = Annotated[int, Field(ge=0, le=65535)]
_TEXT_SCHEMA = {"type": "string"}
_BACK_ENDS_SCHEMA = {"type": "array", "items": {"anyOf": [_TEXT_SCHEMA, TypeAdapter(BackEndEntry).json_schema()]}}
BackEndList = Annotated[
    tuple[str | dict[str, Any], ...],
    BeforeValidator(_parse_back_ends),
    WithJsonSchema({"anyOf": [_TEXT_SCHEMA, _BACK_ENDS_SCHEMA]}),
    Field(repr=False),
]
ResultOutputList = Annotated[
    tuple[ResultOutput, ...], BeforeValidator(_split_list, json_schema_input_type=str | list[ResultOutput])
]
UnitList = Annotated[tuple[RunUnit, ...], BeforeValidator(_split_list, json_schema_input_type=str | list[RunUnit])]
OptionalTextList = Annotated[
    tuple[str, ...] | None, BeforeValidator(_split_list, json_schema_input_type=str | list[str] | None)
]
ThresholdMap = Annotated[
    dict[str, Annotated[float, Field(allow_inf_nan=False)]],
    BeforeValidator(_parse_thresholds, json_schema_input_type=str | dict[str, float]),
]
SimilarityOrOff = Annotated[
    Annotated[float, Field(ge=0, le=100)] | None,
    BeforeValidator(_parse_off, json_schema_input_type=float | Literal["off"] | None),
]
NumberOrOff = Annotated[
    Annotated[float, Field(ge=0, allow_inf_nan=False)] | None,
    BeforeValidator(_parse_off, json_schema_input_type=float | Literal["off"] | None),
]
CountOrOff = Annotated[
    Annotated[int, Field(ge=0)] | None,
    BeforeValidator(_parse_off, json_schema_input_type=int | Literal["off"] | None),
]
PricePair = Annotated[
    tuple[NonNegativeSeconds, NonNegativeSeconds] | None,
    BeforeValidator(_parse_prices, json_schema_input_type=str | tuple[float, float] | None),
]
JsonObject = Annotated[
    dict[str, Any] | None, BeforeValidator(_parse_json_object, json_schema_input_type=str | dict[str, Any] | None)
]
LimitsSection = Annotated[ResourceLimits, WrapValidator(_parse_limits)]
