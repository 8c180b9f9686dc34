"""MLflow Tracing: `mlflow.spanType` with `mlflow.spanInputs` and `mlflow.spanOutputs`.

MLflow writes every attribute as JSON, including text, so the type of a tool's span may be `TOOL` or `"TOOL"`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from goldspan import semconv
from goldspan.content import literals
from goldspan.conventions.convention import AttributeMap, Convention, FromJson
from goldspan.conventions.span_facts import Role, SpanFacts
from goldspan.model import SpanRecord

_TYPE = "mlflow.spanType"
_INPUTS = "mlflow.spanInputs"
_OUTPUTS = "mlflow.spanOutputs"
_AGENT_RUN = "mlflow.openai.agent_run_root"
_RUNNER_SPAN_NAME = "AgentRunner.run"
_RESULT_ATTRIBUTES = (_OUTPUTS, semconv.TOOL_CALL_RESULT)
_SESSION = ("mlflow.trace.session", "session.id")
_TYPES: dict[str, Role] = {
    "tool": "tool",
    "retriever": "tool",
    "agent": "agent",
    "workflow": "entry",
    "llm": "model",
    "chat_model": "model",
}


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    facts.session_id = _unquote(facts.session_id)
    if facts.role == "tool":
        facts.span_name = _unnumbered_name(span)
        _postprocess_dspy(span.name, facts, span.attributes)
        if str(_unquote(span.attributes.get(_TYPE))).lower() == "retriever":
            facts.kind = "retrieval"
    elif _AGENT_RUN in span.attributes:
        facts.role = "entry"
        facts.session_id = facts.session_id or _group_id(span.attributes.get("kwargs"))
    elif facts.role == "agent":
        facts.name = facts.agent = span.name
    return facts


def _postprocess_genai(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    attributes = span.attributes
    operation = attributes.get(semconv.OPERATION)
    if operation == semconv.EXECUTE_TOOL:
        _postprocess_dspy(str(attributes.get(semconv.TOOL_NAME)), facts, attributes)
        return facts if facts.name is not None else None
    if operation == semconv.INVOKE_AGENT and attributes.get(semconv.AGENT_NAME) == _RUNNER_SPAN_NAME:
        facts.role, facts.name, facts.agent = "entry", "", ""
        facts.session_id = _group_id(attributes.get("kwargs"))
        return facts
    return None


def _postprocess_dspy(function_name: str, facts: SpanFacts, attributes: Mapping[str, Any]) -> None:
    """Set the name of a DSPy tool, whose span is named `Tool.X`; `finish` is the pseudo-tool of `dspy.ReAct`."""
    name = _unquote(attributes.get("name"))
    if name is None or function_name != f"Tool.{name}":
        return
    facts.name = name
    result = next((attributes[key] for key in _RESULT_ATTRIBUTES if key in attributes), None)
    if name == "finish" and _unquote(result) == "Completed.":
        facts.kind = "answer"


def _group_id(inputs: Any) -> str | None:
    """Return the OpenAI Agents SDK's `group_id`, which identifies the conversation."""
    decoded = literals.plain_value(inputs)
    options = decoded.get("run_config") if isinstance(decoded, Mapping) else None
    group = options.get("group_id") if isinstance(options, Mapping) else None
    return group if isinstance(group, str) and group else None


def _unnumbered_name(span: SpanRecord) -> str:
    """Return the span's name without the number that MLflow appends if several spans have the same name."""
    function = _unquote(span.attributes.get("mlflow.spanFunctionName"))
    is_numbered = isinstance(function, str) and re.fullmatch(rf"{re.escape(function)}_\d+", span.name)
    return function if is_numbered and function is not None else span.name


def _unquote(value: Any) -> str | None:
    decoded = literals.plain_value(value) if isinstance(value, str) and value.startswith('"') else value
    return decoded if isinstance(decoded, str) else None


CONVENTION = Convention(
    name="mlflow",
    title="MLflow Tracing",
    source="https://mlflow.org/docs/latest/genai/tracing/",
    versions="2.14 to 3",
    roles={_TYPE: {**_TYPES, **{f'"{kind}"': role for kind, role in _TYPES.items()}}},
    marker_attributes=("mlflow.trace.session",),
    attributes_by_role={
        "tool": AttributeMap(arguments=(_INPUTS,), result=(_OUTPUTS,)),
        "model": AttributeMap(
            tool_definitions=("mlflow.chat.tools",),
            input_messages=(FromJson(_INPUTS), FromJson("mlflow.chat.messages")),
            output_messages=(FromJson(_OUTPUTS),),
        ),
    },
    common_attributes=AttributeMap(input=(_INPUTS,), output=(_OUTPUTS,), session_id=_SESSION),
    postprocess=_postprocess,
    notes=(
        "A tool has the name of its span, without the number that MLflow appends to repeated names.",
        "DSPy: a tool named `Tool.X` is `X`. `finish` is a pseudo-tool.",
        "`AgentRunner.run` of the OpenAI Agents SDK starts a request and contains the agents.",
        "Values may be JSON text, including the quotation marks.",
    ),
)
GENAI_CONVENTION = Convention(
    name="mlflow_genai",
    title="MLflow Tracing in GenAI attributes",
    source="https://mlflow.org/docs/latest/genai/tracing/",
    versions="3.17",
    marker_attributes=("name", "kwargs"),
    postprocess=_postprocess_genai,
    notes=(
        "With `MLFLOW_ENABLE_OTEL_GENAI_SEMCONV`, MLflow writes GenAI attributes and keeps `name` and `kwargs`.",
        "DSPy: a tool named `Tool.X` is `X`. `finish` is a pseudo-tool.",
        "`AgentRunner.run` of the OpenAI Agents SDK starts a request and contains the agents.",
    ),
)
"""Reads the spans of MLflow that follow the GenAI conventions."""
