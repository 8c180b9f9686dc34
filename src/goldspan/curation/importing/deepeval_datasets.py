"""Imports datasets of deepeval: JSON, JSON Lines and CSV, as `EvaluationDataset.save_as` writes them.

Format: `save_as` and `add_goldens_from_csv_file` in `deepeval/dataset/dataset.py` of confident-ai/deepeval. A golden
has `input` and `expected_tools`, a list of calls with `name` and `inputParameters`, formerly `input_parameters`. In CSV
the list is JSON, or names with `;` between them. A golden with `scenario` and `turns` is a conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from goldspan.curation.importing.expected_calls import parse_expected_call, parse_list
from goldspan.curation.importing.imported_goldens import GoldenCollector
from goldspan.errors import GoldenError

_ANSWER_KEYS = ("expected_output", "expectedOutput", "context", "retrieval_context", "retrievalContext")
_OTHER_KEYS = ("comments", "additional_metadata", "additionalMetadata", "custom_column_key_values")


def is_deepeval_dataset(document: Any) -> bool:
    """Whether a document is a list of rows with the keys of deepeval's goldens."""
    keys = {"expected_tools", "expectedTools", "retrieval_context", "scenario"}
    return isinstance(document, list) and any(isinstance(row, Mapping) and keys & row.keys() for row in document)


def import_deepeval(document: Any, collector: GoldenCollector) -> None:
    """Add a golden for each golden of the dataset that states its tools."""
    rows = document if isinstance(document, list) else document.get("goldens", ())
    for number, row in enumerate(rows, start=1):
        where = f"golden {number}"
        if not isinstance(row, Mapping):
            collector.lose("rows that are not goldens", where)
        elif row.get("input") in (None, "") and ("scenario" in row or "turns" in row):
            collector.lose("conversational goldens (a golden has one request)", where)
        else:
            _import_golden(row, collector, where)


def _import_golden(row: Mapping[Any, Any], collector: GoldenCollector, where: str) -> None:
    stated = row.get("expected_tools", row.get("expectedTools"))
    calls = None if stated in (None, "") else parse_list(stated)
    if calls is None:
        collector.lose("goldens without expected_tools", where)
        return
    try:
        tools = [parse_expected_call(call) for call in calls]
    except GoldenError as error:
        collector.lose(f"goldens whose expected_tools cannot be read ({error})", where)
        return
    _lose_call_details(calls, collector, where)
    collector.lose_keys(row, _ANSWER_KEYS, where, "an answer")
    collector.lose_keys(row, _OTHER_KEYS, where)
    collector.add(row.get("name"), str(row["input"]) if row.get("input") is not None else None, tools)


def _lose_call_details(calls: Sequence[Any], collector: GoldenCollector, where: str) -> None:
    for call in calls:
        if isinstance(call, Mapping):
            collector.lose_keys(call, ("output",), where, "deepeval compares it only on request")
            collector.lose_keys(call, ("description", "reasoning"), where)
