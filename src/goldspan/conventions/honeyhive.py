"""HoneyHive's decorators: `honeyhive_event_type`, with one attribute for each argument.

Since 1.0 the SDK's span processor sets a type on *every* span that has none: it guesses `model` from words in the name
of the span and otherwise sets `tool`. goldspan therefore accepts the type only if the decorator or the application
wrote another attribute on the span.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan.content import envelopes, flat_attributes, literals
from goldspan.conventions.convention import AttributeMap, Convention
from goldspan.conventions.span_facts import RawValue, SpanFacts
from goldspan.model import SpanRecord

_TYPE = "honeyhive_event_type"
_NAME = "honeyhive_event_name"
_INPUTS = "honeyhive_inputs"
_OUTPUTS = "honeyhive_outputs"
_DECORATOR_ATTRIBUTES = ("honeyhive_metadata.event_type", "honeyhive_duration_ms")
_ERROR_TYPE = "honeyhive_error_type"
_PROCESSOR_PREFIX = "honeyhive."
_SELF_PARAMETERS = ("self", "cls")


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    attributes = span.attributes
    input_value, outputs = _unflatten(attributes, _INPUTS), _unflatten(attributes, _OUTPUTS)
    if _ERROR_TYPE in attributes and input_value is None:
        # The SDK writes a second span, `{name}_error`, for a function that failed.
        return SpanFacts("aside", facts.conventions, session_id=facts.session_id)
    if facts.role is not None and input_value is None and outputs is None and _is_guessed_type(attributes):
        facts.role = None
    arguments = _unwrap_arguments(input_value)
    result = outputs.get("result", outputs) if isinstance(outputs, dict) else outputs
    if facts.role == "tool":
        facts.span_name = _function_name(span)
        facts.arguments = RawValue(arguments)
        facts.result = None if result is None else RawValue(result, envelopes.unwrap_result)
    elif facts.role is None:
        facts.input, facts.output = arguments or None, result
    return facts


def _unflatten(attributes: Mapping[str, Any], prefix: str) -> Any:
    """Return the nested value of all attributes with the prefix, or `None` if there are none."""
    item: flat_attributes.FlatItem = {
        key.removeprefix(f"{prefix}."): value for key, value in attributes.items() if key.startswith(f"{prefix}.")
    }
    return flat_attributes.nest_item(item) if item else None


def _is_guessed_type(attributes: Mapping[str, Any]) -> bool:
    """Whether the span's type may be a guess of the span processor."""
    is_decorated = _NAME in attributes or any(key in attributes for key in _DECORATOR_ATTRIBUTES)
    return not is_decorated and any(key.startswith(_PROCESSOR_PREFIX) for key in attributes)


def _unwrap_arguments(inputs: Any) -> dict[str, Any]:
    """Return the arguments by name. Lists and objects are JSON text."""
    parameters = inputs.get("_params_", inputs) if isinstance(inputs, dict) else None
    if not isinstance(parameters, dict):
        return {}
    return {key: _decode_json(value) for key, value in parameters.items() if key not in _SELF_PARAMETERS}


def _decode_json(value: Any) -> Any:
    return literals.plain_value(value) if isinstance(value, str) and value[:1] in ("{", "[") else value


def _function_name(span: SpanRecord) -> str:
    """Return the span's name, without the module if the decorator wrote `{module}.{function}`."""
    is_plain_name = _NAME in span.attributes or not any(key in span.attributes for key in _DECORATOR_ATTRIBUTES)
    return span.name if is_plain_name else span.name.rpartition(".")[2]


CONVENTION = Convention(
    name="honeyhive",
    title="HoneyHive",
    source="https://github.com/honeyhiveai/python-sdk",
    versions="0.2 and 1.0 to 1.7",
    roles={_TYPE: {"tool": "tool", "model": "model"}},
    marker_attributes=("honeyhive.session_id", _ERROR_TYPE),
    attributes_by_role={"tool": AttributeMap(name=(_NAME,))},
    common_attributes=AttributeMap(session_id=("honeyhive.session_id", "traceloop.association.properties.session_id")),
    postprocess=_postprocess,
    notes=(
        "Arguments are `honeyhive_inputs.X`, in 0.2 `honeyhive_inputs._params_.X`, except `self` and `cls`.",
        "The result is `honeyhive_outputs.result`, or all of `honeyhive_outputs.*` if that is missing.",
        "A tool without `honeyhive_event_name` has the name of its span, which is `{module}.{function}` since 1.0.",
        "Since 1.0 every span has a type. goldspan uses it only if the span has another attribute of the decorator.",
        "The additional span `{name}_error` of a function that failed is not a call.",
    ),
)
