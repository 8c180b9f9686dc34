"""Checks that PromQL queries and their legends name only existing metrics, labels and values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import promql_parser as promql
from prometheus_client.parser import text_string_to_metric_families

Known: TypeAlias = Mapping[str, Mapping[str, set[str]]]
"""The labels of each metric, and their values."""

OF_THE_TARGET = ("job", "instance")
"""Labels that Prometheus adds to everything that it scrapes."""

_WORDS = re.compile(r"[\w|.]+")
"""Matches a regular expression that consists of words only."""


def scraped(text: str, *, job: str) -> dict[str, dict[str, set[str]]]:
    """Return the metrics of a scraped page with their labels, and `up`, which Prometheus adds."""
    known: dict[str, dict[str, set[str]]] = {}
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    for name, labels in [("up", {}), *((sample.name, sample.labels) for sample in samples)]:
        kept = known.setdefault(name, {label: set() for label in OF_THE_TARGET})
        kept["job"].add(job)
        for label, value in labels.items():
            if value:  # Prometheus treats an empty label as a missing one
                kept.setdefault(label, set()).add(value)
    return known


def faults_of(query: str, known: Known, *, around: Iterable[str] = ()) -> list[str]:
    """Return the unknown names in a query. `around` are the labels of its result that a legend or a text uses."""
    try:
        parsed = promql.parse(query)
    except ValueError as error:
        return [f"{query}: {error}"]
    faults: list[str] = []
    there = _labels(parsed, known, faults)
    faults += [f"its result has no label {label!r}" for label in around if label not in there]
    return [f"{query}: {fault}" for fault in faults]


def metrics_in(query: str) -> set[str]:
    """Return the names of the metrics that a query reads."""
    return {selector.name for selector in _selectors(promql.parse(query))}


def label_values(query: str) -> str:
    """Translate Grafana's `label_values(SELECTOR, LABEL)` into a PromQL query that reads the same."""
    found = re.fullmatch(r"label_values\((.+),\s*(\w+)\)", query)
    assert found, query
    return f"group by ({found[2]}) ({found[1]})"


def _selectors(expression: Any) -> Iterator[Any]:
    if isinstance(expression, promql.VectorSelector):
        yield expression
    for inner in _parts(expression):
        yield from _selectors(inner)


def _parts(expression: Any) -> list[Any]:
    if isinstance(expression, promql.BinaryExpr):
        return [expression.lhs, expression.rhs]
    if isinstance(expression, promql.Call):
        return list(expression.args)
    if isinstance(expression, promql.MatrixSelector):
        return [expression.vector_selector]
    return [expression.expr] if hasattr(expression, "expr") else []


def _labels(expression: Any, known: Known, faults: list[str]) -> set[str]:
    """Return the labels of the result of an expression, and append its faults."""
    if isinstance(expression, promql.VectorSelector):
        return _selected(expression, known, faults)
    inner = [_labels(part, known, faults) for part in _parts(expression)]
    if isinstance(expression, promql.AggregateExpr):
        return _aggregated(expression, inner[0], faults)
    if isinstance(expression, promql.BinaryExpr):
        return _combined(expression, *inner, faults)
    if isinstance(expression, promql.Call) and expression.func.name == "absent":
        return {matcher.name for matcher in expression.args[0].matchers.matchers if matcher.op == promql.MatchOp.Equal}
    return set().union(*inner)


def _selected(selector: Any, known: Known, faults: list[str]) -> set[str]:
    if selector.name not in known:
        faults.append(f"there is no metric {selector.name!r}")
        return set()
    labels = known[selector.name]
    for matcher in selector.matchers.matchers:
        if matcher.name not in labels:
            faults.append(f"{selector.name} has no label {matcher.name!r}")
        elif "$" not in matcher.value and _WORDS.fullmatch(matcher.value):
            alternatives = set(matcher.value.split("|") if "Re" in str(matcher.op) else [matcher.value])
            faults.extend(
                f"{selector.name} never has {matcher.name}={value!r}" for value in alternatives - labels[matcher.name]
            )
    return set(labels)


def _aggregated(expression: Any, inner: set[str], faults: list[str]) -> set[str]:
    if str(expression.op) in ("topk", "bottomk"):
        return inner
    if expression.modifier is None:
        return set()
    named = set(expression.modifier.labels)
    faults.extend(f"there is no label {label!r} to group by" for label in sorted(named - inner))
    by = expression.modifier.type == promql.AggModifierType.By
    return named if by else inner - named


def _combined(expression: Any, left: set[str], right: set[str], faults: list[str]) -> set[str]:
    matching = expression.modifier.matching if expression.modifier else None
    if matching is not None:
        faults.extend(f"there is no label {label!r} to match on" for label in set(matching.labels) - (left & right))
    if str(expression.op) == "or":
        return left & right if left and right else left | right
    return left or right
