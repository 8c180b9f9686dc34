"""Stores evaluations in one SQLite file and queries them by verdict, metric, tool, golden and time.

`store_protocol`: the `Store` interface, filters and the values that queries return.
`sqlite`: `SqliteStore`, which implements the interface, and `open_store`.
`queries`: SQL for filters, pages and aggregates.
`run_records`: converts an evaluation to its document and rows, and a document back to a run.
`run_export`: writes runs as CSV, Parquet or JSON lines.
`data_frames`: evaluations and stored runs as data frames of pandas and polars.
`query_parameters`: parses the filters of a URL or a command line.
`migrations`: the tables, as the steps from each version to the next.
`connection_pool`: the writing and the reading connections of a store.
`sqlite_files`: opens and migrates any SQLite file of goldspan; also used by the journal and the judge's cache.
"""

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
