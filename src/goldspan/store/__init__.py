"""Stores evaluations in SQLite or PostgreSQL; queries them by verdict, metric, tool, golden, time.

`store_protocol`: the `Store` interface, filters and the values that queries return.
`store_location`: `open_store`, which opens a file or the database of a URL.
`base_store`: the methods that are the same in every store.
`filter_conditions`: the conditions of a filter in SQL, for every back end.
`query_results`: converts rows of queries to the values of the interface.
`retention`: when runs that exceed the retention are deleted.
`run_records`: converts an evaluation to its document and rows, and a document back to a run.
`run_export`: writes runs as CSV, Parquet or JSON lines.
`data_frames`: evaluations and stored runs as data frames of pandas and polars.
`query_parameters`: parses the filters of a URL or a command line.
`sqlite`: `SqliteStore`, a store in one file.
`queries`: SQL for filters, pages and aggregates in SQLite.
`migrations`: the tables in SQLite, as the steps from each version to the next.
`connection_pool`: the writing and the reading connections of a file.
`sqlite_files`: opens and migrates any SQLite file of goldspan; also used by the journal and the judge's cache.
`postgres`: `PostgresStore`, a store in a PostgreSQL database that several gateways share.
"""

from __future__ import annotations

from goldspan.store.sqlite import SqliteStore
from goldspan.store.store_location import open_store
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
