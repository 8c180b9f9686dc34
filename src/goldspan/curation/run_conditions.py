"""Parses conditions on runs, such as `verdict=pass` and `reward>=1`, and selects runs by them."""

from __future__ import annotations

import csv
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from goldspan.errors import ConfigurationError
from goldspan.goldens.spelling import short_repr
from goldspan.model import Run
from goldspan.model.name_folding import fold_name
from goldspan.store import RunFilter, Store
from goldspan.store.query_parameters import FILTER_PARAMETERS, filter_from_query, parse_parameter
from goldspan.store.run_records import run_from_document

_CONDITION = re.compile(r"\s*([^\s=<>!]+)\s*(>=|<=|!=|=|<|>)\s*(.*?)\s*", re.DOTALL)
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_STORE_ONLY = ("verdict", "metric", "below", "covered", "tool_role")
"""Parameters of a filter that need an evaluation; trace files have none."""


@dataclass(frozen=True, slots=True)
class ValueCondition:
    """A condition on a score, on an attribute or metadata of a run, or on a column of a results file."""

    name: str
    operation: str
    text: str

    def is_met(self, values: Mapping[str, Any]) -> bool:
        """Whether the values have that name and meet the condition. Texts that are numbers are compared as numbers."""
        if self.name not in values:
            return False
        value, compare = values[self.name], _OPERATORS[self.operation]
        number, wanted = _number(value), _number(self.text)
        if number is not None and wanted is not None:
            return compare(number, wanted)
        text = str(value).lower() if isinstance(value, bool) or value is None else str(value)
        return self.operation in ("=", "!=") and compare(text, self.text)


@dataclass(frozen=True, slots=True)
class RunConditions:
    """Conditions that a run must meet, all of them."""

    run_filter: RunFilter
    values: tuple[ValueCondition, ...] = ()


def parse_conditions(texts: Iterable[str]) -> RunConditions:
    """Parse conditions: a filter of the API with `=`, or any other name with `=`, `!=`, `<`, `<=`, `>` or `>=`.

    Raises `ConfigurationError` for text that is no condition, and for a repeated or invalid parameter.
    """
    parameters = {parameter.name: parameter for parameter in FILTER_PARAMETERS}
    query: dict[str, Any] = {}
    values: list[ValueCondition] = []
    for text in texts:
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                f"{short_repr(text)} is not a condition; write it as verdict=pass or as tool_recall>=0.8"
            )
        name, operation, value = match.groups()
        if operation != "=" or name not in parameters:
            values.append(ValueCondition(name, operation, value))
        elif name in query:
            raise ConfigurationError(f"the condition on {name!r} is given twice")
        else:
            query[name] = parse_parameter(parameters[name], value)
    return RunConditions(filter_from_query(query), tuple(values))


# --- runs of a store --------------------------------------------------------------------------------------------------


def stored_runs(store: Store, conditions: RunConditions) -> Iterator[Run]:
    """Yield the stored runs that meet the conditions, newest first.

    A name in a condition is a metric, whose score is compared, or a key of the metadata.
    """
    for stored in store.iter_runs(conditions.run_filter):
        document = stored.current.document
        values = dict(document.get("metadata") or {})
        values |= {score["metric"]: score["value"] for score in document["scores"] if score["value"] is not None}
        if all(condition.is_met(values) for condition in conditions.values):
            yield run_from_document(document)


# --- runs of trace files ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunResults:
    """Rows of a results file, by run id and by trace id."""

    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def of(self, run: Run) -> Mapping[str, Any]:
        """Return the row of a run; without one an empty row."""
        return next((self.rows[key] for key in (run.run_id, *run.trace_ids) if key in self.rows), {})


def read_results(path: Path) -> RunResults:
    """Read a results file: CSV, JSON Lines or a JSON list of rows with a `run_id` or a `trace_id`.

    The output of `goldspan score --json` is such a file: its scores are columns too. Raises `ConfigurationError` for a
    file that cannot be read and for a row without an id.
    """
    rows: dict[str, Mapping[str, Any]] = {}
    for number, row in enumerate(_read_rows(path), start=1):
        keys = [row.get("run_id"), row.get("trace_id"), *(row.get("trace_ids") or ())]
        values = dict(row)
        for score in row["scores"] if isinstance(row.get("scores"), list) else ():
            if isinstance(score, Mapping) and isinstance(score.get("metric"), str):
                values.setdefault(score["metric"], score.get("value"))
        if not any(isinstance(key, str) for key in keys):
            raise ConfigurationError(f"{path}, row {number}: it has neither run_id nor trace_id")
        rows.update((key, values) for key in keys if isinstance(key, str))
    return RunResults(rows)


def _read_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if path.suffix.lower() == ".csv":
        yield from csv.DictReader(text.splitlines())
        return
    try:
        rows = (
            json.loads(text)
            if text.lstrip().startswith("[")
            else list(map(json.loads, filter(str.strip, text.splitlines())))
        )
    except ValueError as error:
        raise ConfigurationError(f"{path}: not JSON Lines, a JSON list or a .csv file: {error}") from None
    for row in rows:
        if not isinstance(row, Mapping):
            raise ConfigurationError(f"{path}: each row must be an object, not {short_repr(row)}")
        yield row


def select_runs(runs: Iterable[Run], conditions: RunConditions, results: RunResults | None = None) -> Iterator[Run]:
    """Yield the runs of trace files that meet the conditions.

    A name in a condition is a column of the results file, an attribute of the run's span, or a key of the metadata.
    Raises `ConfigurationError` for a condition that needs an evaluation.
    """
    run_filter = conditions.run_filter
    stated = [name for name in _STORE_ONLY if getattr(run_filter, name) != getattr(RunFilter(), name)]
    if stated and not (results is not None and stated == ["verdict"]):
        raise ConfigurationError(
            f"a condition on {stated[0]!r} needs evaluations: name a store, or a results file with --results"
        )
    for run in runs:
        row = results.of(run) if results is not None else {}
        values = {**run.metadata, **run.attributes, **row}
        if (
            _meets_filter(run, run_filter)
            and (run_filter.verdict is None or _verdict(row) == run_filter.verdict)
            and all(condition.is_met(values) for condition in conditions.values)
        ):
            yield run


def _verdict(row: Mapping[str, Any]) -> str:
    passed = str(row.get("passed", "")).lower()
    return {"true": "pass", "1": "pass", "false": "fail", "0": "fail"}.get(passed, "not_evaluated")


def _meets_filter(run: Run, run_filter: RunFilter) -> bool:
    """Whether a run meets the fields of a filter that need no evaluation."""
    time_ns = run.start_ns or run.end_ns or 0
    tests: Mapping[str, Callable[[Any], bool]] = {
        "agent": lambda wanted: run.agent == wanted,
        "golden": lambda wanted: run.golden_id == wanted,
        "tool": lambda wanted: fold_name(wanted) in map(fold_name, run.tools_used),
        "service": lambda wanted: run.service == wanted,
        "environment": lambda wanted: run.environment == wanted,
        "unit": lambda wanted: run.unit == wanted,
        "session_id": lambda wanted: run.session_id == wanted,
        "trace_id": lambda wanted: wanted in run.trace_ids,
        "text": lambda wanted: wanted.casefold() in (run.input or "").casefold(),
        "since_ns": lambda wanted: time_ns >= wanted,
        "until_ns": lambda wanted: time_ns < wanted,
    }
    stated = {each.name: getattr(run_filter, each.name) for each in fields(run_filter) if each.name in tests}
    return all(tests[name](wanted) for name, wanted in stated.items() if wanted is not None)


def tools_of(runs: Sequence[Run]) -> set[str]:
    """Return the tools that the runs called or were offered."""
    return {name for run in runs for name in (*run.tools_used, *(tool.name for tool in run.available_tools))}


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    try:
        return float(value)
    except (TypeError, ValueError):
        return {"true": 1.0, "false": 0.0}.get(value.lower()) if isinstance(value, str) else None
