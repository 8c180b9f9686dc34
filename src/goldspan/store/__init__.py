"""Where evaluations are kept: a file that answers which runs failed, by what, and since when."""

from __future__ import annotations

from goldspan.store.protocol import (
    Arrivals,
    Bucket,
    Counts,
    Page,
    Retention,
    RunFilter,
    Store,
    StoredEvaluation,
    StoredRun,
    Substitution,
    Tally,
    ToolTally,
)
from goldspan.store.sqlite import SqliteStore, open_store

__all__ = [
    "Arrivals",
    "Bucket",
    "Counts",
    "Page",
    "Retention",
    "RunFilter",
    "SqliteStore",
    "Store",
    "StoredEvaluation",
    "StoredRun",
    "Substitution",
    "Tally",
    "ToolTally",
    "open_store",
]
