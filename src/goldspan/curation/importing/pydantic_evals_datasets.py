"""Imports datasets of pydantic-evals: YAML or JSON with cases, and evaluators of tool calls.

Format: `_DatasetModel` and `_CaseModel` in `pydantic_evals/dataset.py`, evaluators in `evaluators/agentic.py` of
pydantic/pydantic-ai. An evaluator is a name, `{Name: argument}` or `{Name: {key: value}}`. `ToolCorrectness`,
`TrajectoryMatch`, `ArgumentCorrectness`, `MaxToolCalls` and `HasMatchingSpan` on a tool's span become rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from goldspan.curation.importing.expected_calls import parse_arguments, parse_expected_call, request_text
from goldspan.curation.importing.imported_goldens import GoldenCollector
from goldspan.errors import GoldenError
from goldspan.model import ExpectedTool

_SPAN_PREFIXES = ("execute_tool ", "running tool: ")


def is_pydantic_evals_dataset(document: Any) -> bool:
    """Whether a document is a mapping with a list of cases that have inputs."""
    cases = document.get("cases") if isinstance(document, Mapping) else None
    return isinstance(cases, list) and any(isinstance(case, Mapping) and "inputs" in case for case in cases)


@dataclass(slots=True)
class _Rules:
    """What the evaluators of one case state."""

    tools: list[ExpectedTool] | None = None
    keys: dict[str, Any] = field(default_factory=dict)
    forbid: list[str] = field(default_factory=list)

    def require(self, tool: ExpectedTool) -> None:
        """Expect a call; a call without arguments is not expected twice."""
        self.tools = self.tools if self.tools is not None else []
        position = next((at for at, each in enumerate(self.tools) if each.name == tool.name), None)
        if position is None:
            self.tools.append(tool)
        elif tool.arguments is not None:
            self.tools[position] = replace(self.tools[position], arguments=tool.arguments, match=tool.match)


def import_pydantic_evals(document: Any, collector: GoldenCollector) -> None:
    """Add a golden for each case with an evaluator of tool calls, its own or one of the dataset."""
    shared = document.get("evaluators") or []
    for number, case in enumerate(document.get("cases") or (), start=1):
        where = f"case {number}"
        if not isinstance(case, Mapping):
            collector.lose("entries that are not cases", where)
            continue
        where = f"{where} ({case['name']})" if case.get("name") else where
        rules = _Rules()
        for evaluator in (*shared, *(case.get("evaluators") or ())):
            _apply_evaluator(evaluator, rules, collector, where)
        collector.lose_keys(case, ("expected_output",), where, "an answer")
        collector.lose_keys(case, ("metadata",), where)
        _add_case(case, rules, collector, where)


def _add_case(case: Mapping[Any, Any], rules: _Rules, collector: GoldenCollector, where: str) -> None:
    text = request_text(case.get("inputs"))
    if rules.tools is None and not rules.forbid and "max_calls" not in rules.keys:
        collector.lose("cases without an evaluator of tool calls", where)
    elif text is None:
        collector.lose("cases whose inputs have no single text", where)
    elif rules.tools is None:
        collector.add_policy(case.get("name"), text, forbid=tuple(rules.forbid), **rules.keys)
    else:
        collector.add(case.get("name"), text, rules.tools, forbid=tuple(rules.forbid), **rules.keys)


def _apply_evaluator(evaluator: Any, rules: _Rules, collector: GoldenCollector, where: str) -> None:
    name, arguments = _evaluator_parts(evaluator)
    apply = _EVALUATORS.get(name)
    if apply is None:
        collector.lose(f"the evaluator {name}", where)
        return
    try:
        apply(arguments, rules, collector, where)
    except GoldenError as error:
        collector.lose(f"the evaluator {name} ({error})", where)


def _evaluator_parts(evaluator: Any) -> tuple[str, Any]:
    if isinstance(evaluator, Mapping) and len(evaluator) == 1:
        ((name, arguments),) = evaluator.items()
        return str(name), arguments
    if isinstance(evaluator, Mapping) and "name" in evaluator:
        return str(evaluator["name"]), evaluator.get("arguments")
    return str(evaluator), None


def _names(arguments: Any, key: str) -> list[ExpectedTool]:
    values = arguments.get(key) if isinstance(arguments, Mapping) else arguments
    if not isinstance(values, list):
        raise GoldenError(f"{key} is missing")
    return [parse_expected_call(value) for value in values]


def _option(arguments: Any, key: str, default: Any) -> Any:
    return arguments.get(key, default) if isinstance(arguments, Mapping) else default


def _tool_correctness(arguments: Any, rules: _Rules, collector: GoldenCollector, where: str) -> None:
    rules.tools = [*(rules.tools or ()), *_names(arguments, "expected_tools")]
    if not _option(arguments, "allow_extra", False):
        rules.keys["extra"] = "penalize"
    if not _option(arguments, "include_failed", False):
        rules.keys["attempts"] = "succeeded"


def _trajectory_match(arguments: Any, rules: _Rules, collector: GoldenCollector, where: str) -> None:
    rules.tools = _names(arguments, "expected_trajectory")
    order = _option(arguments, "order", "in_order")
    rules.keys["order"] = "any" if order == "any_order" else order
    if order not in ("exact", "in_order", "any_order"):
        raise GoldenError(f"the order {order!r} is unknown")
    if order != "exact":
        # Its score is F1, and a case has no threshold for it: the whole trajectory is expected.
        collector.lose("the partial score of TrajectoryMatch", where)
    if not _option(arguments, "include_failed", False):
        rules.keys["attempts"] = "succeeded"


def _argument_correctness(arguments: Any, rules: _Rules, collector: GoldenCollector, where: str) -> None:
    if not isinstance(arguments, Mapping):
        raise GoldenError("tool_name is missing")
    expected = parse_arguments(arguments.get("expected_arguments"))
    match = "exact" if arguments.get("match_mode") == "exact" else "subset"
    tool = parse_expected_call(arguments.get("tool_name"))
    rules.require(replace(tool, arguments=expected, match=match))  # type: ignore[arg-type]
    if arguments.get("occurrence", "first") != "first":
        collector.lose("occurrence of ArgumentCorrectness (any call may match)", where)


def _max_tool_calls(arguments: Any, rules: _Rules, collector: GoldenCollector, where: str) -> None:
    limit = _option(arguments, "max_calls", None) if isinstance(arguments, Mapping) else arguments
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise GoldenError("max_calls is no number")
    rules.keys["max_calls"] = limit


def _has_matching_span(arguments: Any, rules: _Rules, collector: GoldenCollector, where: str) -> None:
    query = arguments.get("query", arguments) if isinstance(arguments, Mapping) else None
    if not isinstance(query, Mapping):
        raise GoldenError("query is missing")
    if set(query) == {"not_"} and isinstance(query["not_"], Mapping):
        rules.forbid.append(_tool_of_query(query["not_"]))
    else:
        rules.require(ExpectedTool(_tool_of_query(query)))


def _tool_of_query(query: Mapping[Any, Any]) -> str:
    """Return the tool that a query about one span names."""
    attributes = query.get("has_attributes")
    if set(query) == {"has_attributes"} and isinstance(attributes, Mapping) and set(attributes) == {"gen_ai.tool.name"}:
        return str(attributes["gen_ai.tool.name"])
    name = query.get("name_equals")
    if set(query) == {"name_equals"} and isinstance(name, str) and name.startswith(_SPAN_PREFIXES):
        return name.partition("tool")[2].lstrip(": ")
    raise GoldenError("the query is not about the name of a tool")


_EVALUATORS: Mapping[str, Callable[[Any, _Rules, GoldenCollector, str], None]] = {
    "ToolCorrectness": _tool_correctness,
    "TrajectoryMatch": _trajectory_match,
    "ArgumentCorrectness": _argument_correctness,
    "MaxToolCalls": _max_tool_calls,
    "HasMatchingSpan": _has_matching_span,
}
