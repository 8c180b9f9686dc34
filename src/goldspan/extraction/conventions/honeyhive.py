"""HoneyHive's decorators: `honeyhive_event_type`, with one attribute for each argument.

Since 1.0 the SDK's span processor calls *every* span without a type of its own a tool, or a model by the words in its
name. Only what the decorator, or a person, wrote on a span besides tells that it is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan.extraction import flattened, values
from goldspan.extraction.convention import Convention, Places
from goldspan.extraction.reading import Reading, Written
from goldspan.model import SpanRecord

_TYPE = "honeyhive_event_type"
_NAME = "honeyhive_event_name"
_INPUTS = "honeyhive_inputs"
_OUTPUTS = "honeyhive_outputs"
_DECORATED = ("honeyhive_metadata.event_type", "honeyhive_duration_ms")
_FAILED = "honeyhive_error_type"
_PROCESSOR = "honeyhive."
_SELF = ("self", "cls")


def _refine(span: SpanRecord, reading: Reading) -> Reading:
    attributes = span.attributes
    given, gave = _grouped(attributes, _INPUTS), _grouped(attributes, _OUTPUTS)
    if _FAILED in attributes and given is None:
        # A failing function gets a second span, `{name}_error`, beside its own.
        return Reading("aside", reading.by, session_id=reading.session_id)
    if reading.role is not None and given is None and gave is None and _is_guess(attributes):
        reading.role = None
    arguments = _arguments(given)
    result = gave.get("result", gave) if isinstance(gave, dict) else gave
    if reading.role == "tool":
        reading.span_name = _function(span)
        reading.arguments = Written(arguments)
        reading.result = None if result is None else Written(result, values.result)
    elif reading.role is None:
        reading.input, reading.output = arguments or None, result
    return reading


def _grouped(attributes: Mapping[str, Any], prefix: str) -> Any:
    """What was spread over attributes that begin alike; `None` where none does."""
    item: flattened.Flat = {
        key.removeprefix(f"{prefix}."): value for key, value in attributes.items() if key.startswith(f"{prefix}.")
    }
    return flattened.nested(item) if item else None


def _is_guess(attributes: Mapping[str, Any]) -> bool:
    """Whether a span's type may be the processor's guess."""
    own = _NAME in attributes or any(key in attributes for key in _DECORATED)
    return not own and any(key.startswith(_PROCESSOR) for key in attributes)


def _arguments(given: Any) -> dict[str, Any]:
    """Arguments by name. Lists and objects among them are JSON texts."""
    named = given.get("_params_", given) if isinstance(given, dict) else None
    if not isinstance(named, dict):
        return {}
    return {key: _decoded(value) for key, value in named.items() if key not in _SELF}


def _decoded(value: Any) -> Any:
    return values.plain(value) if isinstance(value, str) and value[:1] in ("{", "[") else value


def _function(span: SpanRecord) -> str:
    """The name of a span or, where that is the decorator's `{module}.{function}`, of the function."""
    plain = _NAME in span.attributes or not any(key in span.attributes for key in _DECORATED)
    return span.name if plain else span.name.rpartition(".")[2]


CONVENTION = Convention(
    name="honeyhive",
    title="HoneyHive",
    source="https://github.com/honeyhiveai/python-sdk",
    versions="0.2 and 1.0 to 1.7",
    roles={_TYPE: {"tool": "tool", "model": "model"}},
    signs=("honeyhive.session_id", _FAILED),
    of={"tool": Places(name=(_NAME,))},
    everywhere=Places(session_id=("honeyhive.session_id", "traceloop.association.properties.session_id")),
    refine=_refine,
    notes=(
        "Arguments are `honeyhive_inputs.X`, in 0.2 `honeyhive_inputs._params_.X`, except `self` and `cls`.",
        "The result is `honeyhive_outputs.result`, or else all of `honeyhive_outputs.*`.",
        "A tool without `honeyhive_event_name` is named by its span, `{module}.{function}` since 1.0.",
        "Since 1.0 every span gets a type: it counts only where the span has something else of the decorator's.",
        "The span `{name}_error` that a failing function gets beside its own is no call.",
    ),
)
