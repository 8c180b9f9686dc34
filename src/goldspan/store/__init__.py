"""Where evaluations are kept: a file that answers which runs failed, by what, and since when."""

from __future__ import annotations

from goldspan.store.sqlite import SqliteStore, open_store
from goldspan.store.store_protocol import (
    EvaluationPage,
    GroupCounts,
    Page,
    Retention,
    RunFilter,
    Store,
    StoredEvaluation,
    StoredRun,
    Substitution,
    TimeBucket,
    ToolCounts,
    VerdictCounts,
)

__all__ = [
    "EvaluationPage",
    "GroupCounts",
    "Page",
    "Retention",
    "RunFilter",
    "SqliteStore",
    "Store",
    "StoredEvaluation",
    "StoredRun",
    "Substitution",
    "TimeBucket",
    "ToolCounts",
    "VerdictCounts",
    "open_store",
]
