"""Imports eval sets of the Google ADK, and the older test files with a list of queries.

Format: `EvalSet`, `EvalCase`, `Invocation` and `IntermediateData` in `src/google/adk/evaluation/eval_case.py` of
google/adk-python; keys in snake case or camel case. Old files are lists of `query`, `expected_tool_use` (`tool_name`,
`tool_input`) and `reference`. `TrajectoryEvaluator` compares calls in order, without further calls: `order: exact`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from goldspan.curation.importing.expected_calls import parse_expected_call
from goldspan.curation.importing.imported_goldens import GoldenCollector
from goldspan.errors import GoldenError
from goldspan.model.name_folding import fold_name

_OLD_KEYS = ("reference", "expected_intermediate_agent_responses")


def is_adk_eval_set(document: Any) -> bool:
    """Whether a document is an eval set, or a list of queries in the older format."""
    if isinstance(document, Mapping):
        return "evalcases" in map(fold_name, map(str, document))
    return isinstance(document, list) and any(
        isinstance(row, Mapping) and ("expected_tool_use" in row or ("query" in row and "reference" in row))
        for row in document
    )


def import_adk(document: Any, collector: GoldenCollector) -> None:
    """Add a golden for each turn that states its tool calls."""
    if isinstance(document, list):
        for number, row in enumerate(document, start=1):
            if isinstance(row, Mapping) and "data" in row:  # a list of sessions, the oldest format
                import_adk(list(row["data"]), collector)
            else:
                _import_query(row, collector, f"query {number}")
        return
    for number, case in enumerate(_field(document, "eval_cases") or (), start=1):
        if isinstance(case, Mapping):
            _import_case(case, collector, f"case {number}")


def _import_query(row: Any, collector: GoldenCollector, where: str) -> None:
    if not isinstance(row, Mapping) or not isinstance(row.get("expected_tool_use"), list):
        collector.lose("queries without expected_tool_use", where)
        return
    collector.lose_keys(row, _OLD_KEYS, where, "an answer")
    _add_turn(None, row.get("query"), row["expected_tool_use"], collector, where)


def _import_case(case: Mapping[Any, Any], collector: GoldenCollector, where: str) -> None:
    eval_id = _field(case, "eval_id")
    turns = _field(case, "conversation")
    if not isinstance(turns, list):
        collector.lose("conversation scenarios (a model plays the user)", f"{where} ({eval_id})")
        return
    for key in ("session_input", "rubrics", "final_session_state"):
        if _field(case, key):
            collector.lose(key, f"{where} ({eval_id})")
    for number, turn in enumerate(turns, start=1):
        name = eval_id if len(turns) == 1 or eval_id is None else f"{eval_id}-{number}"
        place = f"{where} ({eval_id}), turn {number}"
        data = _field(turn, "intermediate_data")
        if not isinstance(data, Mapping):
            collector.lose("turns without intermediate_data", place)
            continue
        if _field(turn, "final_response"):
            collector.lose("final_response (an answer)", place)
        if _field(data, "intermediate_responses"):
            collector.lose("intermediate_responses (answers of sub-agents)", place)
        _add_turn(name, _content_text(_field(turn, "user_content")), list(_tool_uses(data)), collector, place)


def _tool_uses(data: Mapping[Any, Any]) -> Iterator[Any]:
    """Yield the calls of the intermediate data, which has a list of calls or a list of events."""
    yield from _field(data, "tool_uses") or ()
    for event in _field(data, "invocation_events") or ():
        for part in _field(_field(event, "content"), "parts") or ():
            if (call := _field(part, "function_call")) is not None:
                yield call


def _add_turn(name: Any, text: Any, calls: list[Any], collector: GoldenCollector, where: str) -> None:
    try:
        tools = [parse_expected_call(call) for call in calls]
    except GoldenError as error:
        collector.lose(f"turns whose tool calls cannot be read ({error})", where)
        return
    if not isinstance(text, str) or not text.strip():
        collector.lose("turns without a text of the user", where)
        return
    collector.add(name, text, tools, order="exact" if tools else "any")


def _content_text(content: Any) -> str | None:
    parts = [_field(part, "text") for part in _field(content, "parts") or ()]
    texts = [part for part in parts if isinstance(part, str)]
    return "\n".join(texts) if texts else None


def _field(value: Any, name: str) -> Any:
    """Return the value of a key in snake case or in camel case."""
    if not isinstance(value, Mapping):
        return None
    if name in value:
        return value[name]
    first, *others = name.split("_")
    return value.get(first + "".join(map(str.capitalize, others)))
