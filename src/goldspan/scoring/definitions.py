"""What is known of the tool that was called: the JSON schema of its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goldspan.extraction.names import fold
from goldspan.goldens.naming import Naming
from goldspan.model import Golden, Run, ToolCall
from goldspan.scoring.pairing.merits import Schemas


def schemas_of(run: Run, golden: Golden, names: Naming) -> Schemas:
    """Looks schemas up: what the vocabulary of the golden declares, else what the agent was offered."""
    if not golden.vocabulary.tools and not run.available_tools:
        return _unknown
    declared = any(tool.parameters is not None for tool in golden.vocabulary.tools)
    offered: dict[str, Mapping[str, Any]] = {}

    def schema(call: ToolCall) -> Mapping[str, Any] | None:
        if declared and (tool := names.declaration(call)) and tool.parameters is not None:
            return tool.parameters
        if run.available_tools and not offered:
            offered.update(_offered(run))
        written = call.raw_name, call.name, fold(call.raw_name), fold(call.name)
        return next((offered[name] for name in written if name in offered), None)

    return schema


def _offered(run: Run) -> dict[str, Mapping[str, Any]]:
    """The schemas of the tools that the agent was offered, by their names as written and folded."""
    known = [(tool.name, tool.parameters) for tool in run.available_tools if tool.parameters is not None]
    return {**{fold(name): schema for name, schema in known}, **dict(known)}


def _unknown(call: ToolCall) -> None:
    """Nothing is known of any tool."""
