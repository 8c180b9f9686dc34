"""MLflow Tracing: `mlflow.spanType` with `mlflow.spanInputs` and `mlflow.spanOutputs`.

MLflow writes every attribute as JSON, texts included, so the type of a tool's span may be `TOOL` or `"TOOL"`.
"""

from __future__ import annotations

import re
from typing import Any

from goldspan.extraction import values
from goldspan.extraction.convention import Convention, FromJson, Places
from goldspan.extraction.reading import Reading, Role
from goldspan.model import SpanRecord

_TYPE = "mlflow.spanType"
_INPUTS = "mlflow.spanInputs"
_OUTPUTS = "mlflow.spanOutputs"
_SESSION = ("mlflow.trace.session", "session.id")
_TYPES: dict[str, Role] = {
    "tool": "tool",
    "retriever": "tool",
    "agent": "agent",
    "workflow": "entry",
    "llm": "model",
    "chat_model": "model",
}


def _refine(span: SpanRecord, reading: Reading) -> Reading:
    reading.session_id = _unquoted(reading.session_id)
    if reading.role == "tool":
        reading.span_name = _name(span)
        if str(_unquoted(span.attributes.get(_TYPE))).lower() == "retriever":
            reading.kind = "retrieval"
    elif reading.role == "agent":
        reading.name = reading.agent = span.name
    return reading


def _name(span: SpanRecord) -> str:
    """The name of a span; MLflow numbers those of equal name, which only the function's name tells."""
    function = _unquoted(span.attributes.get("mlflow.spanFunctionName"))
    numbered = isinstance(function, str) and re.fullmatch(rf"{re.escape(function)}_\d+", span.name)
    return function if numbered and function is not None else span.name


def _unquoted(value: Any) -> str | None:
    read = values.plain(value) if isinstance(value, str) and value.startswith('"') else value
    return read if isinstance(read, str) else None


CONVENTION = Convention(
    name="mlflow",
    title="MLflow Tracing",
    source="https://mlflow.org/docs/latest/genai/tracing/",
    versions="2.14 to 3",
    roles={_TYPE: {**_TYPES, **{f'"{kind}"': role for kind, role in _TYPES.items()}}},
    signs=("mlflow.trace.session",),
    of={
        "tool": Places(arguments=(_INPUTS,), result=(_OUTPUTS,)),
        "model": Places(
            tools=("mlflow.chat.tools",),
            asked=(FromJson(_INPUTS), FromJson("mlflow.chat.messages")),
            answered=(FromJson(_OUTPUTS),),
        ),
    },
    everywhere=Places(input=(_INPUTS,), output=(_OUTPUTS,), session_id=_SESSION),
    refine=_refine,
    notes=(
        "A tool is named by its span, without the number that MLflow puts behind names that repeat.",
        "Values may be JSON texts, quotation marks included.",
    ),
)
