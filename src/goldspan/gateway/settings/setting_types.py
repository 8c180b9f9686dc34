"""The types of setting fields, and how each is written in a file, a variable or a flag."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, get_args

from goldspan._extras import require_extra
from goldspan.errors import ConfigurationError
from goldspan.gateway.exporting.backends import Compression, OtlpProtocol, parse_backends
from goldspan.gateway.resource_limits import ResourceLimits, Signal
from goldspan.integrations.catalog import create_product
from goldspan.integrations.http_client import ProductClient
from goldspan.model import RunUnit


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """Where the value of a setting comes from."""

    kind: Literal["default", "file", "environment", "flag"]
    name: str = ""
    """The file, the variable or the flag."""

    def describe_location(self, path: str) -> str:
        """Returns the location of a field such as `limits.max_spans` for error messages."""
        return f"{self.name}, {path}" if self.kind == "file" else self.name or path

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


DEFAULT_ORIGIN = SettingOrigin("default")


with require_extra("server"):
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
"""The type of goldspan's pydantic errors: `sentence` is the problem; `field` names the field if it is another one."""


def validation_error(sentence: str, field: str = "") -> PydanticCustomError:
    """Returns the error to raise for an invalid value of the validated field or of `field`."""
    return PydanticCustomError(VALIDATION_ERROR, "{sentence}", {"sentence": sentence, "field": field})


def _convert_errors(read: Callable[[], ParsedT]) -> ParsedT:
    try:
        return read()
    except ConfigurationError as error:
        raise validation_error(str(error)) from None


def _split_list(value: Any) -> Any:
    if isinstance(value, str):
        return [item for item in map(str.strip, value.split(",")) if item]
    return value


def _parse_thresholds(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    pairs = [item.partition("=") for item in _split_list(value)]
    if not all(sign for _, sign, _ in pairs):
        raise validation_error("must look like tool_correctness=0.8, several separated by commas")
    return {metric.strip(): number.strip() for metric, _, number in pairs}


def _parse_back_ends(value: Any) -> Any:
    """Splits and validates back ends: comma-separated URLs, JSON, or a list of URLs and mappings."""
    if isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise validation_error("is not valid JSON") from None
    entries = [value] if isinstance(value, Mapping) else _split_list(value)
    if isinstance(entries, list | tuple):
        _convert_errors(lambda: parse_backends(entries, location=""))
    return entries


def _parse_products(value: Any) -> Any:
    """Splits names of products, and validates their addresses and tokens."""
    names = _split_list(value)
    for name in names if isinstance(names, list | tuple) else ():
        if isinstance(name, str):
            _convert_errors(partial(_check_product, name))
    return names


def _check_product(name: str) -> None:
    ProductClient(create_product(name))


def _parse_limits(value: Any, validate: ValidatorFunctionWrapHandler) -> ResourceLimits:
    limits: ResourceLimits = _convert_errors(lambda: validate(value))
    return limits


def _parse_off(value: Any) -> Any:
    return None if value is False or (isinstance(value, str) and value.lower() in ("off", "false", "no")) else value


def _parse_prices(value: Any) -> Any:
    prices = _split_list(value)
    if isinstance(prices, list | tuple) and len(prices) != 2:
        raise validation_error("must be two prices, for one million input tokens and output tokens: 0.25,2")
    return prices


def _parse_json_object(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        members = json.loads(value)
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict):
        raise validation_error("must be a JSON object")
    return members


def _parse_options(value: Any) -> Any:
    """Converts the values of options to text, as librdkafka writes them."""
    options = _parse_json_object(value)
    if not isinstance(options, Mapping):
        return options
    return {str(name): str(item).lower() if isinstance(item, bool) else str(item) for name, item in options.items()}


class BackEndEntry(TypedDict, total=False):
    """A back end as a mapping. `${NAME}` in the value of a header refers to an environment variable."""

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
ProductList = Annotated[tuple[str, ...], BeforeValidator(_parse_products, json_schema_input_type=str | list[str])]
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
OptionMap = Annotated[dict[str, str], BeforeValidator(_parse_options, json_schema_input_type=str | dict[str, Any])]
OptionalName = Annotated[
    Annotated[str, Field(min_length=1)] | None,
    BeforeValidator(_parse_off, json_schema_input_type=str | Literal["off"] | None),
]
LimitsSection = Annotated[ResourceLimits, WrapValidator(_parse_limits)]
