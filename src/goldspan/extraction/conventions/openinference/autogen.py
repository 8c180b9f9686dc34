"""AutoGen AgentChat, as its OpenInference instrumentation shows it: much is Python's `repr` of messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from goldspan.extraction import values
from goldspan.extraction.reading import Answer, Message

NOTES = ("AutoGen: the results of tools stand as JSON in `llm.input_messages.N.function.N`, with an `is_error`.",)
_PREFIX = "llm.input_messages."


def results(attributes: Mapping[str, Any]) -> Iterator[Message]:
    """The messages with results of tools, which are not flattened as others are."""
    for key, value in attributes.items():
        if key.startswith(_PREFIX) and ".function." in key:
            told = values.plain(value)
            if isinstance(told, Mapping) and "call_id" in told:
                said = values.result(told)
                yield Message("tool", answers=(Answer(said.call_id, said.value, said.is_error),))
