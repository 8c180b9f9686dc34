"""What a table says of a run, column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

from goldspan.store.protocol import StoredRun

Kind = Literal["text", "texts", "number", "integer", "boolean", "time"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table of runs."""

    name: str
    kind: Kind
    read: Callable[[StoredRun], Any]


def columns_with(metrics: Iterable[str]) -> tuple[Column, ...]:
    """All columns: those of every table, and one for the score of each metric."""
    return (*COLUMNS, *(Column(f"score.{metric}", "number", _score_of(metric)) for metric in metrics))


def _told(name: str, kind: Kind = "text") -> Column:
    return Column(name, kind, lambda run: run.current.document.get(name))


def _called(name: str, verdict: str) -> Column:
    """The tools of the rows of one verdict."""

    def read(run: StoredRun) -> list[str]:
        document = run.current.document
        calls = document["tool_calls"]
        rows = (row for row in document["rows"] if row["verdict"] == verdict)
        return [row["expected"] or calls[row["called_at"]]["name"] for row in rows]

    return Column(name, "texts", read)


def _how(run: StoredRun) -> Mapping[str, Any]:
    return run.current.document["golden_match"] or {}


def _began(run: StoredRun) -> datetime:
    seconds, nanoseconds = divmod(run.time_ns, 10**9)
    return datetime.fromtimestamp(seconds, timezone.utc).replace(microsecond=nanoseconds // 1000)


def _score_of(metric: str) -> Callable[[StoredRun], float | None]:
    def read(run: StoredRun) -> float | None:
        scores = run.current.document["scores"]
        value = next((score["value"] for score in scores if score["metric"] == metric), None)
        return None if value is None else float(value)

    return read


COLUMNS = (
    Column("run_id", "text", lambda run: run.run_id),
    Column("time", "time", _began),
    _told("unit"),
    _told("trace_ids", "texts"),
    _told("service"),
    _told("environment"),
    _told("agent"),
    _told("component"),
    _told("session_id"),
    _told("input"),
    _told("golden_id"),
    Column("golden_match", "text", lambda run: _how(run).get("how")),
    Column("similarity", "number", lambda run: _how(run).get("similarity")),
    _told("passed", "boolean"),
    _told("reason"),
    _told("tools_used", "texts"),
    _told("expected_tools", "texts"),
    _called("missing", "missing"),
    _called("unexpected", "unexpected"),
    _called("forbidden", "forbidden"),
    Column("revision", "integer", lambda run: run.current.revision),
    Column("evaluations", "integer", lambda run: run.evaluations),
)
"""What a table says of each run, before the scores."""
