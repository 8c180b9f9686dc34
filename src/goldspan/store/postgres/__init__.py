"""Stores evaluations in a PostgreSQL database, which several gateways share.

`sessions`: connections from a pool; work is repeated when its connection is lost.
`postgres_tables`: the tables, as the steps from each version to the next.
`partitions`: the partition of each week, which is created ahead and dropped as a whole.
`run_writer`: stores and deletes runs with their index rows and counts.
`run_selection`: SQL for the runs that match a filter, from the counts of hours and days where they suffice.
`postgres_store`: `PostgresStore`, which implements the interface, and `open_postgres`.
"""

from __future__ import annotations

from goldspan.store.postgres.postgres_store import PostgresStore, open_postgres

__all__ = ["PostgresStore", "open_postgres"]
