"""Defines the tables in PostgreSQL as migrations from each version to the next.

All migrations run in one transaction under an advisory lock, so that gateways which start together do not disturb each
other, and an upgrade that fails changes nothing. Writers hold a lock on the row of `store`, so a migration waits for
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from goldspan.errors import StoreError
from goldspan.store.postgres.sessions import SCHEMA, Session

WEEK_NS = 7 * 24 * 3600 * 10**9
HISTORY_WEEKS = 104
"""Runs that are older than this when the tables are created share one partition."""

PARTITIONED_TABLES = ("runs", "evaluations", "traces", "run_counts")
"""The tables with a partition for each week of the runs' time."""

MIN_SERVER_VERSION = 140000
_MIGRATION_LOCK = 0x676F6C64  # `gold` in ASCII

Migration: TypeAlias = "str | Callable[[Session, int], None]"
"""An SQL statement, or a function of the session and the current time in nanoseconds."""


def _create_history_partitions(session: Session, now_ns: int) -> None:
    """Create the partitions of all runs before the first week that has a partition of its own."""
    first_ns = max(0, now_ns // WEEK_NS - HISTORY_WEEKS) * WEEK_NS
    session.execute("UPDATE store SET weeks_since_ns = %s", (first_ns,))
    for table in PARTITIONED_TABLES:
        session.execute(f"CREATE TABLE {table}_history PARTITION OF {table} FOR VALUES FROM (MINVALUE) TO ({first_ns})")


def _compress_documents(session: Session, _: int) -> None:
    """Compress documents with LZ4, which is faster than the default, where the server has it."""
    has_lz4 = session.execute(
        "SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
    ).fetchone()
    if has_lz4 == (True,):
        session.execute("ALTER TABLE evaluations ALTER COLUMN document SET COMPRESSION lz4")


def _index_texts(session: Session, _: int) -> None:
    """Index the parts of words in inputs, where the server has the extension and the user may create it."""
    try:
        with session.transaction():
            session.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm WITH SCHEMA public")
            session.execute("CREATE INDEX runs_by_text ON runs USING gin (text public.gin_trgm_ops)")
    except Exception as error:
        if not getattr(error, "sqlstate", None):
            raise  # the connection is lost


_VERSION_1: tuple[Migration, ...] = (
    # One row, which every writer locks: writers follow each other, so that evaluations become visible in the order of
    # their keys, and no client that asks for everything after a key misses one.
    """CREATE TABLE store (
        is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
        version integer NOT NULL,
        last_run bigint NOT NULL DEFAULT 0,
        last_evaluation bigint NOT NULL DEFAULT 0,
        weeks_since_ns bigint NOT NULL DEFAULT 0
    )""",
    "INSERT INTO store (version) VALUES (1)",
    # What many runs have in common. The key is a hash of the columns, so that no writer needs to look it up.
    """CREATE TABLE run_groups (
        run_group bigint PRIMARY KEY,
        passed boolean,
        unit text NOT NULL,
        golden text,
        agent text,
        service text,
        environment text,
        shape bigint NOT NULL
    )""",
    "CREATE INDEX run_groups_by_shape ON run_groups (shape)",
    # The rows that runs of equal shape have in common, as in SQLite.
    """CREATE TABLE tools (
        shape bigint, tool text COLLATE "C", role text COLLATE "C", name text NOT NULL, PRIMARY KEY (shape, tool, role)
    )""",
    "CREATE INDEX tools_listed ON tools (tool, role)",
    """CREATE TABLE substitutions (
        shape bigint, expected text COLLATE "C", called text COLLATE "C", PRIMARY KEY (shape, expected, called)
    )""",
    """CREATE TABLE scores (
        shape bigint, metric text COLLATE "C", value double precision, PRIMARY KEY (shape, metric)
    )""",
    "CREATE INDEX scores_listed ON scores (metric, value)",
    """CREATE TABLE runs (
        key bigint NOT NULL,
        time_ns bigint NOT NULL,
        run_group bigint NOT NULL,
        current bigint NOT NULL,
        revision integer NOT NULL,
        evaluations integer NOT NULL,
        run_id text COLLATE "C" NOT NULL,
        session_id text COLLATE "C",
        text text,
        trace_ids text[] NOT NULL
    ) PARTITION BY RANGE (time_ns)""",
    "CREATE INDEX runs_listed ON runs (time_ns, key) INCLUDE (run_group)",
    "CREATE INDEX runs_by_group ON runs (run_group, time_ns, key)",
    "CREATE INDEX runs_by_id ON runs (run_id)",
    "CREATE INDEX runs_by_session ON runs (session_id, time_ns, key) WHERE session_id IS NOT NULL",
    """CREATE TABLE evaluations (
        key bigint NOT NULL,
        time_ns bigint NOT NULL,
        run_id text COLLATE "C" NOT NULL,
        revision integer NOT NULL,
        digest text COLLATE "C" NOT NULL,
        stored_ns bigint NOT NULL,
        document text NOT NULL
    ) PARTITION BY RANGE (time_ns)""",
    _compress_documents,
    "CREATE UNIQUE INDEX evaluations_by_key ON evaluations (key, time_ns)",
    "CREATE UNIQUE INDEX evaluations_by_run ON evaluations (run_id, revision, digest, time_ns)",
    """CREATE TABLE traces (
        trace_id text COLLATE "C", time_ns bigint, run bigint, PRIMARY KEY (trace_id, time_ns, run)
    ) PARTITION BY RANGE (time_ns)""",
    # The number of runs of each group in each hour (grain 1) and each day (grain 2), so that a count over all runs
    # reads a few thousand rows.
    """CREATE TABLE run_counts (
        grain smallint,
        time_ns bigint,
        run_group bigint,
        runs integer NOT NULL,
        first_run bigint NOT NULL,
        first_ns bigint NOT NULL,
        last_ns bigint NOT NULL,
        PRIMARY KEY (grain, time_ns, run_group)
    ) PARTITION BY RANGE (time_ns)""",
    "CREATE INDEX run_counts_by_group ON run_counts (run_group)",
    # Tombstones: evaluations of runs in a deleted trace that arrive later are not stored.
    'CREATE TABLE deletions (trace_id text COLLATE "C" PRIMARY KEY, time_ns bigint NOT NULL)',
    "CREATE INDEX deletions_listed ON deletions (time_ns)",
    _create_history_partitions,
    _index_texts,
)

MIGRATIONS: tuple[tuple[Migration, ...], ...] = (_VERSION_1,)
"""The step at index i leads to version i + 1. A released step never changes."""


def migrate(session: Session, now_ns: int, display_name: str) -> None:
    """Create the tables, or upgrade them to the current version, in the transaction of the session."""
    session.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
    version = read_version(session, display_name)
    if version == len(MIGRATIONS):
        return
    if version == 0 and not _has_schema(session):
        session.execute(f"CREATE SCHEMA {SCHEMA}")
    if version:
        session.execute("SELECT 1 FROM store FOR UPDATE")
    for step in MIGRATIONS[version:]:
        for migration in step:
            if isinstance(migration, str):
                session.execute(migration)
            else:
                migration(session, now_ns)
    session.execute("UPDATE store SET version = %s", (len(MIGRATIONS),))


def require_current_version(session: Session, display_name: str) -> None:
    """Raise `StoreError` for tables that do not exist or must be upgraded first, which a reader cannot do."""
    version = read_version(session, display_name)
    if version == 0:
        raise StoreError(f"{display_name}: it has no store; `goldspan serve --store` creates one")
    if version < len(MIGRATIONS):
        raise StoreError(
            f"{display_name}: an older goldspan wrote it (version {version}, this one reads {len(MIGRATIONS)}); start "
            "a gateway of this version to upgrade it"
        )


def read_version(session: Session, display_name: str) -> int:
    """Return the version of the tables; 0 without tables. Raises `StoreError` for a newer one or another program."""
    server_version = session.info.server_version
    if server_version < MIN_SERVER_VERSION:
        raise StoreError(f"{display_name}: the server is PostgreSQL {server_version // 10000}; 14 or newer is needed")
    found = session.execute(
        "SELECT to_regclass(%s) IS NOT NULL, (SELECT count(*) FROM pg_tables WHERE schemaname = %s)",
        (f"{SCHEMA}.store", SCHEMA),
    ).fetchone()
    has_store, tables = found or (False, 0)
    if not has_store:
        if tables:
            raise StoreError(f"{display_name}: its schema {SCHEMA} belongs to another program; name another database")
        return 0
    row = session.execute("SELECT version FROM store").fetchone()
    version = row[0] if row else 0
    require_known_version(version, display_name)
    return int(version)


def require_known_version(version: int, display_name: str) -> None:
    """Raise `StoreError` if a newer goldspan changed the tables, also while this one was running."""
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{display_name}: a newer goldspan wrote it (version {version}, this one knows {len(MIGRATIONS)}): "
            "pip install --upgrade goldspan"
        )


def _has_schema(session: Session) -> bool:
    return session.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (SCHEMA,)).fetchone() is not None
