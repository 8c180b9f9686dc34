"""HoneyHive's decorators: `honeyhive_event_type`, with one attribute for each argument.

The name of a tool is the name of its event, else of its span.
"""

from __future__ import annotations

from goldspan.extraction.convention import Convention, Places
from goldspan.extraction.reading import Reading, Written
from goldspan.model import SpanRecord

_TYPE = "honeyhive_event_type"
_ARGUMENT = "honeyhive_inputs._params_."
_SELF = ("self", "cls")


def _refine(span: SpanRecord, reading: Reading) -> Reading:
    if reading.role == "tool":
        given = {
            key.removeprefix(_ARGUMENT): value for key, value in span.attributes.items() if key.startswith(_ARGUMENT)
        }
        reading.arguments = Written({key: value for key, value in given.items() if key not in _SELF})
    return reading


CONVENTION = Convention(
    name="honeyhive",
    title="HoneyHive",
    source="https://github.com/honeyhiveai/python-sdk",
    versions="0.2 and 1.0",
    roles={_TYPE: {"tool": "tool", "model": "model"}},
    signs=("honeyhive.session_id",),
    of={"tool": Places(name=("honeyhive_event_name",), result=("honeyhive_outputs.result",))},
    everywhere=Places(session_id=("honeyhive.session_id", "traceloop.association.properties.session_id")),
    span_names={"tool": ("{name}",)},
    refine=_refine,
    notes=("Arguments are the attributes `honeyhive_inputs._params_.X`, except `self` and `cls`.",),
)
