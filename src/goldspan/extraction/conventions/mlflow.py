"""MLflow Tracing: `mlflow.spanType` with `mlflow.spanInputs` and `mlflow.spanOutputs`.

MLflow writes every attribute as JSON, texts included, so the type of a tool's span may be `TOOL` or `"TOOL"`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from goldspan import semconv
from goldspan.extraction import values
from goldspan.extraction.convention import Convention, FromJson, Places
from goldspan.extraction.reading import Reading, Role
from goldspan.model import SpanRecord

_TYPE = "mlflow.spanType"
_INPUTS = "mlflow.spanInputs"
_OUTPUTS = "mlflow.spanOutputs"
_AGENT_RUN = "mlflow.openai.agent_run_root"
_RUNNER = "AgentRunner.run"
_RETURNED = (_OUTPUTS, semconv.TOOL_CALL_RESULT)
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
        _refine_dspy(span.name, reading, span.attributes)
        if str(_unquoted(span.attributes.get(_TYPE))).lower() == "retriever":
            reading.kind = "retrieval"
    elif _AGENT_RUN in span.attributes:
        reading.role = "entry"
        reading.session_id = reading.session_id or _group(span.attributes.get("kwargs"))
    elif reading.role == "agent":
        reading.name = reading.agent = span.name
    return reading


def _refine_genai(span: SpanRecord, reading: Reading) -> Reading | None:
    attributes = span.attributes
    operation = attributes.get(semconv.OPERATION)
    if operation == semconv.EXECUTE_TOOL:
        _refine_dspy(str(attributes.get(semconv.TOOL_NAME)), reading, attributes)
        return reading if reading.name is not None else None
    if operation == semconv.INVOKE_AGENT and attributes.get(semconv.AGENT_NAME) == _RUNNER:
        reading.role, reading.name, reading.agent = "entry", "", ""
        reading.session_id = _group(attributes.get("kwargs"))
        return reading
    return None


def _refine_dspy(called: str, reading: Reading, attributes: Mapping[str, Any]) -> None:
    """A tool of DSPy is called `Tool.X`; `finish` is the pseudo-tool of `dspy.ReAct`."""
    name = _unquoted(attributes.get("name"))
    if name is None or called != f"Tool.{name}":
        return
    reading.name = name
    returned = next((attributes[key] for key in _RETURNED if key in attributes), None)
    if name == "finish" and _unquoted(returned) == "Completed.":
        reading.kind = "answer"


def _group(given: Any) -> str | None:
    """What the OpenAI Agents SDK was told to group traces by: the conversation."""
    read = values.plain(given)
    options = read.get("run_config") if isinstance(read, Mapping) else None
    group = options.get("group_id") if isinstance(options, Mapping) else None
    return group if isinstance(group, str) and group else None


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
        "DSPy: a tool called `Tool.X` is `X`, and `finish` a pseudo-tool.",
        "`AgentRunner.run` of the OpenAI Agents SDK is where a request is entered; the agents are inside it.",
        "Values may be JSON texts, quotation marks included.",
    ),
)
GENAI = Convention(
    name="mlflow_genai",
    title="MLflow Tracing in GenAI attributes",
    source="https://mlflow.org/docs/latest/genai/tracing/",
    versions="3.17",
    signs=("name", "kwargs"),
    refine=_refine_genai,
    notes=(
        "`MLFLOW_ENABLE_OTEL_GENAI_SEMCONV` gives attributes of the GenAI conventions; `name` and `kwargs` stay.",
        "DSPy: a tool called `Tool.X` is `X`, and `finish` a pseudo-tool.",
        "`AgentRunner.run` of the OpenAI Agents SDK is where a request is entered; the agents are inside it.",
    ),
)
"""A dialect of the GenAI conventions."""
