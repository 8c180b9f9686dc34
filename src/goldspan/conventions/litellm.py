"""LiteLLM's OpenTelemetry callback: provider requests and responses, also on spans of other families.

If a span is active when a model is called, LiteLLM creates no span for the call. It writes its attributes on the active
span, where each call overwrites the previous one, and writes the provider's request and response on a child span
`raw_gen_ai_request`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan import semconv
from goldspan.content import literals, messages
from goldspan.content.tools import tool_definitions
from goldspan.conventions.convention import Convention
from goldspan.conventions.span_facts import Messages, Role, SpanFacts
from goldspan.model import SpanRecord

_CALL_ID = "litellm.call_id"
_OWN_SPAN_NAME = "litellm_request"
_PROVIDERS = (
    *("openai", "azure", "azure_ai", "anthropic", "bedrock", "vertex_ai", "gemini", "mistral", "groq", "cohere"),
    *("cohere_chat", "deepseek", "xai", "openrouter", "together_ai", "fireworks_ai", "databricks", "perplexity"),
    *("ollama", "ollama_chat", "hosted_vllm", "custom_openai", "litellm_proxy"),
)
_INPUT_KEYS = {
    **{f"llm.{provider}.messages": provider for provider in _PROVIDERS},
    **{f"llm.{provider}.contents": provider for provider in ("gemini", "vertex_ai")},
}
_OUTPUT_KEYS = ("choices", "candidates", "output", "message")
_KINDS: dict[str, Mapping[str, Role]] = {
    "traceloop.span.kind": {"workflow": "entry", "agent": "agent", "tool": "tool"},
    "openinference.span.kind": {"agent": "agent", "tool": "tool"},
    "langfuse.observation.type": {"agent": "agent", "tool": "tool"},
}
"""Roles by the kind that another instrumentation wrote on a span before LiteLLM added its attributes."""
_ROLE_BY_NAME_PREFIX: Mapping[str, Role] = {f"{semconv.INVOKE_AGENT} ": "agent", f"{semconv.EXECUTE_TOOL} ": "tool"}
"""Roles by the span's name, because LiteLLM overwrites the operation."""


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    attributes = span.attributes
    request = next((key for key in _INPUT_KEYS if key in attributes), None)
    if request is not None:
        prefix = f"llm.{_INPUT_KEYS[request]}."
        facts.role = "model"
        facts.input_messages = (partial(messages.from_json, attributes[request]),)
        facts.output_messages = (partial(_output_messages, attributes, prefix),)
        facts.tool_definitions = (partial(tool_definitions, attributes.get(f"{prefix}tools")),)
        return facts
    if span.name == _OWN_SPAN_NAME or any(event.name.startswith("gen_ai.") for event in span.events):
        return None
    facts.role = _original_role(span)
    return facts


def _output_messages(attributes: Mapping[str, Any], prefix: str) -> Messages:
    response = next((attributes[prefix + key] for key in _OUTPUT_KEYS if prefix + key in attributes), None)
    if response is None:  # Anthropic's response is a single message
        response = [{"role": "assistant", "content": literals.plain_value(attributes.get(f"{prefix}content"))}]
    return messages.from_json(response)


def _original_role(span: SpanRecord) -> Role:
    """Return the role of a span before LiteLLM added its attributes."""
    for key, roles in _KINDS.items():
        role = roles.get(str(span.attributes.get(key)).lower())
        if role is not None:
            return role
    return next((role for prefix, role in _ROLE_BY_NAME_PREFIX.items() if span.name.startswith(prefix)), "aside")


CONVENTION = Convention(
    name="litellm",
    title="LiteLLM",
    source="https://docs.litellm.ai/docs/observability/opentelemetry_integration",
    versions="1.106",
    marker_attributes=(_CALL_ID, *_INPUT_KEYS),
    postprocess=_postprocess,
    notes=(
        "A span with `llm.<provider>.messages` is a model call. The same span holds the model's answer.",
        "Any other span with a `litellm.call_id`, except `litellm_request`, keeps the role of its own instrumentation.",
    ),
    capture_setting="litellm.turn_off_message_logging=False, or "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT",
)
