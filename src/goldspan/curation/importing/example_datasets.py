"""Imports dataset exports of LangSmith and Phoenix: examples with inputs, outputs and metadata.

LangSmith (docs.langchain.com, "Manage datasets"; schema `Example` in langchain-ai/langsmith-sdk): JSON or JSON Lines
with `inputs`, `outputs` and `metadata`, and CSV. Phoenix (`src/phoenix/server/api/routers/v1/datasets.py` of
Arize-ai/phoenix): CSV with `example_id` and columns `input_*`, `output_*` and `metadata_*`, JSON with `input`, `output`
and `metadata`, and JSON Lines with `messages` for fine-tuning. Neither defines where expected tools are; this module
looks under the names that their guides use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from goldspan.curation.importing.expected_calls import (
    calls_of_messages,
    parse_expected_call,
    parse_list,
    request_text,
)
from goldspan.curation.importing.imported_goldens import GoldenCollector
from goldspan.errors import GoldenError
from goldspan.model import CallOrder

_TOOL_KEYS: Mapping[str, CallOrder] = {
    "expected_tools": "any",
    "expected_tool_calls": "any",
    "reference_tool_calls": "any",
    "tool_calls": "any",
    "tools": "any",
    "tools_called": "any",
    "expected_trajectory": "in_order",
    "reference_trajectory": "in_order",
    "trajectory": "in_order",
    "expected_steps": "in_order",
}
"""The names of expected tools in the outputs, each with the order that it states."""
_SIDES = {"inputs": "inputs", "input": "inputs", "outputs": "outputs", "output": "outputs", "metadata": "metadata"}


def is_langsmith_dataset(document: Any) -> bool:
    """Whether the examples have `inputs`, the key of LangSmith."""
    return _has_keys(document, ("inputs",))


def is_phoenix_dataset(document: Any) -> bool:
    """Whether the examples have the keys or columns of Phoenix."""
    return _has_keys(document, ("example_id", "messages")) or (
        _has_keys(document, ("input",)) and _has_keys(document, ("output",))
    )


def import_examples(document: Any, collector: GoldenCollector) -> None:
    """Add a golden for each example that states its tools."""
    for number, row in enumerate(_examples(document), start=1):
        where = f"example {number}"
        if not isinstance(row, Mapping):
            collector.lose("rows that are not examples", where)
        else:
            _import_example(row, collector, where)


def _examples(document: Any) -> list[Any]:
    if isinstance(document, Mapping):
        data = document.get("data", document)
        document = data.get("examples", []) if isinstance(data, Mapping) else data
    return document if isinstance(document, list) else []


def _has_keys(document: Any, keys: tuple[str, ...]) -> bool:
    return any(isinstance(row, Mapping) and any(key in row for key in keys) for row in _examples(document))


def _import_example(row: Mapping[Any, Any], collector: GoldenCollector, where: str) -> None:
    sides = _split_columns(row)
    messages = row.get("messages")
    text = request_text(messages if isinstance(messages, list) else sides["inputs"])
    found = _expected_calls(sides["outputs"]) or _expected_calls(sides["metadata"])
    if found is None and isinstance(messages, list) and (calls := list(calls_of_messages(messages))):
        found = "messages", calls, "in_order"
    if found is None:
        collector.lose("examples without expected tools", where)
        return
    key, calls, order = found
    try:
        tools = [parse_expected_call(call) for call in calls]
    except GoldenError as error:
        collector.lose(f"examples whose {key} cannot be read ({error})", where)
        return
    if text is None:
        collector.lose("examples whose inputs have no single text", where)
        return
    for name in sides["outputs"]:
        if name != key:
            collector.lose(f"outputs.{name} (an answer)", where)
    for name in sides["metadata"]:
        if name != key:
            collector.lose(f"metadata.{name}", where)
    collector.add(row.get("example_id") or row.get("id"), text, tools, order=order if len(tools) > 1 else "any")


def _split_columns(row: Mapping[Any, Any]) -> dict[str, dict[str, Any]]:
    """Return inputs, outputs and metadata of a row with nested values or with columns such as `input_question`."""
    sides: dict[str, dict[str, Any]] = {"inputs": {}, "outputs": {}, "metadata": {}}
    for key, value in row.items():
        value = _parse_json(value)
        if value in (None, ""):
            continue
        side = _SIDES.get(key)
        if side is not None:
            sides[side] |= value if isinstance(value, Mapping) else {str(key): value}
            continue
        for separator in ("_", "."):
            prefix, found, rest = str(key).partition(separator)
            if found and prefix in _SIDES and rest:
                sides[_SIDES[prefix]][rest] = value
                break
        else:
            if key in _TOOL_KEYS:  # a CSV file of LangSmith has the keys of the outputs as columns
                sides["outputs"][key] = value
            elif key not in (
                "id",
                "example_id",
                "messages",
                "created_at",
                "modified_at",
                "dataset_id",
                "source_run_id",
            ):
                sides["inputs"].setdefault(str(key), value)
    return sides


def _parse_json(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _expected_calls(values: Mapping[str, Any]) -> tuple[str, list[Any], CallOrder] | None:
    """Return the key of the expected calls, the calls, and their order."""
    for key, order in _TOOL_KEYS.items():
        if key in values and (calls := parse_list(values[key])) is not None:
            return key, calls, order
    calls = list(calls_of_messages(values.get("messages")))
    return ("messages", calls, "in_order") if calls else None
