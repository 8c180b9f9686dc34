"""Vercel AI SDK: its own spans with `ai.operationId`, `ai.toolCall.*`, `ai.prompt` and `ai.response`.

Version 7 also has an integration that follows the GenAI conventions. Its legacy integration writes the attributes that
this module reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from goldspan.content import literals, messages
from goldspan.conventions.convention import AttributeMap, Convention, FromJson
from goldspan.conventions.span_facts import Messages
from goldspan.model import SpanRecord

_SESSION_NAMES = (
    *("sessionId", "session_id", "session.id"),
    *("threadId", "thread_id", "conversationId", "conversation_id", "chatId", "chat_id"),
)


@dataclass(frozen=True, slots=True)
class _FromPrompt:
    """Reads the application's input: `{"system", "prompt"}` or `{"system", "messages"}`; a prompt may hold messages."""

    attribute: str = "ai.prompt"

    def __call__(self, span: SpanRecord) -> Messages:
        decoded = literals.plain_value(span.attributes.get(self.attribute))
        if not isinstance(decoded, Mapping):
            return messages.from_json(decoded)
        system, prompt = decoded.get("system"), decoded.get("messages") or decoded.get("prompt")
        history = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        return messages.from_json([*([{"role": "system", "content": system}] if system else ()), *history])

    def __str__(self) -> str:
        return f"`{self.attribute}`"


@dataclass(frozen=True, slots=True)
class _FromResponse:
    """Reads the model's output: a text and a list of calls."""

    prefix: str

    def __call__(self, span: SpanRecord) -> Messages:
        text = span.attributes.get(f"{self.prefix}.text")
        calls = literals.plain_value(span.attributes.get(f"{self.prefix}.toolCalls"))
        if not text and not calls:
            return ()
        return messages.from_json([{"role": "assistant", "content": text, "tool_calls": calls}])

    def __str__(self) -> str:
        return f"`{self.prefix}.text`, `{self.prefix}.toolCalls`"


CONVENTION = Convention(
    name="vercel",
    title="Vercel AI SDK",
    source="https://ai-sdk.dev/docs/ai-sdk-core/telemetry",
    versions="3 to 7",
    roles={
        "ai.operationId": {
            "ai.toolcall": "tool",
            **dict.fromkeys(("ai.generatetext", "ai.streamtext", "ai.generateobject", "ai.streamobject"), "entry"),
            **dict.fromkeys(("ai.generatetext.dogenerate", "ai.streamtext.dostream"), "model"),
            **dict.fromkeys(("ai.generateobject.dogenerate", "ai.streamobject.dostream"), "model"),
        }
    },
    attributes_by_role={
        "tool": AttributeMap(
            name=("ai.toolCall.name",),
            call_id=("ai.toolCall.id",),
            arguments=("ai.toolCall.args", "ai.toolCall.input"),
            result=("ai.toolCall.result", "ai.toolCall.output"),
        ),
        "entry": AttributeMap(
            name=("ai.telemetry.functionId",),
            output=("ai.response.text", "ai.response.object", "ai.result.text", "ai.result.object"),
            input_messages=(_FromPrompt(),),
        ),
        "model": AttributeMap(
            tool_definitions=("ai.prompt.tools",),
            finish_reason=("ai.response.finishReason",),
            input_messages=(FromJson("ai.prompt.messages"), _FromPrompt()),
            output_messages=(_FromResponse("ai.response"), _FromResponse("ai.result")),
        ),
    },
    common_attributes=AttributeMap(
        agent=("ai.telemetry.functionId",),
        session_id=(
            *(f"ai.telemetry.metadata.{name}" for name in _SESSION_NAMES),
            *(f"ai.settings.context.{name}" for name in _SESSION_NAMES),
        ),
    ),
    notes=(
        "`generateText` and similar functions are requests. A nested request is part of the outer request.",
        "`ai.telemetry.functionId` names the agent.",
        f"The session id is the first of these keys in the telemetry metadata: {', '.join(_SESSION_NAMES)}.",
    ),
    capture_setting="experimental_telemetry: { isEnabled: true, recordInputs: true, recordOutputs: true }",
)
