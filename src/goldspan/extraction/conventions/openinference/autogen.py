"""AutoGen AgentChat, as its OpenInference instrumentation shows it. What is its own there, `messages` reads."""

from __future__ import annotations

NOTES = ("AutoGen: the results of tools stand as JSON in `llm.input_messages.N.function.N`, with an `is_error`.",)
