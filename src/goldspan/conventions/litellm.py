"""LiteLLM's OpenTelemetry callback: the provider's own request and response, and attributes on spans of others.

Where a span is at work around a call, LiteLLM makes none for the call: it writes what it knows on that span, each call
over the one before, and puts what it sent and received on a span `raw_gen_ai_request` below.
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
"""What other instrumentations call a span that LiteLLM found."""
_ROLE_BY_NAME_PREFIX: Mapping[str, Role] = {f"{semconv.INVOKE_AGENT} ": "agent", f"{semconv.EXECUTE_TOOL} ": "tool"}
"""The same by its name, since LiteLLM has overwritten its operation."""


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    attributes = span.attributes
    asked = next((key for key in _INPUT_KEYS if key in attributes), None)
    if asked is not None:
        prefix = f"llm.{_INPUT_KEYS[asked]}."
        facts.role = "model"
        facts.input_messages = (partial(messages.from_json, attributes[asked]),)
        facts.output_messages = (partial(_output_messages, attributes, prefix),)
        facts.tool_definitions = (partial(tool_definitions, attributes.get(f"{prefix}tools")),)
        return facts
    if span.name == _OWN_SPAN_NAME or any(event.name.startswith("gen_ai.") for event in span.events):
        return None
    facts.role = _role_from_span_name(span)
    return facts


def _output_messages(attributes: Mapping[str, Any], prefix: str) -> Messages:
    said = next((attributes[prefix + key] for key in _OUTPUT_KEYS if prefix + key in attributes), None)
    if said is None:  # Anthropic's response is the message itself
        said = [{"role": "assistant", "content": literals.plain_value(attributes.get(f"{prefix}content"))}]
    return messages.from_json(said)


def _role_from_span_name(span: SpanRecord) -> Role:
    """What a span was before LiteLLM wrote on it."""
    for key, roles in _KINDS.items():
        role = roles.get(str(span.attributes.get(key)).lower())
        if role is not None:
            return role
    return next((role for beginning, role in _ROLE_BY_NAME_PREFIX.items() if span.name.startswith(beginning)), "aside")


CONVENTION = Convention(
    name="litellm",
    title="LiteLLM",
    source="https://docs.litellm.ai/docs/observability/opentelemetry_integration",
    versions="1.106",
    marker_attributes=(_CALL_ID, *_INPUT_KEYS),
    postprocess=_postprocess,
    notes=(
        "A span with `llm.<provider>.messages` is a call of a model; its answer stands beside them.",
        "Any other span with a `litellm.call_id`, except `litellm_request`, is what it was before LiteLLM wrote on it.",
    ),
    capture_setting="litellm.turn_off_message_logging=False, or "
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_AND_EVENT",
)
