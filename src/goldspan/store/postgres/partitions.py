"""Creates the partitions of a week before its runs are stored, and drops them after the retention."""

from __future__ import annotations

from collections.abc import Iterable

from goldspan.store.postgres.postgres_tables import PARTITIONED_TABLES, WEEK_NS
from goldspan.store.postgres.run_writer import delete_unused_groups, lock_store
from goldspan.store.postgres.sessions import SCHEMA, Session, Sessions

_WEEKS_AHEAD = 1
"""How many weeks after the current one get their partitions now, so that the change of the week delays no write."""


class Partitions:
    """The weeks that have partitions. Other processes create and drop partitions too."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._known: frozenset[int] = frozenset()
        self._first_week = 0

    def create(self, times_ns: Iterable[int], now_ns: int) -> None:
        """Create the partitions for runs at these times, and those of this week and the next, unless they exist."""
        this_week = now_ns // WEEK_NS
        wanted = {time_ns // WEEK_NS for time_ns in times_ns} | set(range(this_week, this_week + _WEEKS_AHEAD + 1))
        if any(week >= self._first_week and week not in self._known for week in wanted):
            self._first_week, self._known = self._sessions.write(
                lambda session, _: _create(session, wanted, self._sessions.display_name)
            )

    def forget(self) -> None:
        """Ask the server again which partitions exist."""
        self._known = frozenset()

    def drop(self, weeks: Iterable[int]) -> int:
        """Drop the partitions of weeks and return the number of their runs."""
        self.forget()
        return self._sessions.write(lambda session, _: _drop(session, weeks, self._sessions.display_name))


def existing_weeks(session: Session) -> tuple[int, ...]:
    """Return the weeks that have partitions, in weeks since the Unix epoch, the oldest first."""
    names = session.execute(
        "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = %s::regclass",
        (f"{SCHEMA}.runs",),
    ).fetchall()
    weeks = (name.removeprefix("runs_week_") for (name,) in names)
    return tuple(sorted(int(week) for week in weeks if week.isdecimal()))


def bytes_of_weeks(session: Session) -> dict[int, int]:
    """Return the size of the partitions of each week, with their indexes; the key -1 is everything else."""
    rows = session.execute(
        "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relnamespace = %s::regnamespace"
        " AND relkind = 'r'",
        (SCHEMA,),
    ).fetchall()
    sizes: dict[int, int] = {}
    for name, size in rows:
        _, _, week = name.rpartition("_week_")
        key = int(week) if week.isdecimal() and week != name else -1
        sizes[key] = sizes.get(key, 0) + size
    return sizes


def _create(session: Session, weeks: Iterable[int], display_name: str) -> tuple[int, frozenset[int]]:
    """Create partitions, and return the first week that can have one and all weeks that have one."""
    first_week = lock_store(session, display_name).weeks_since_ns // WEEK_NS
    existing = set(existing_weeks(session))
    for week in sorted({week for week in weeks if week >= first_week} - existing):
        begin, end = week * WEEK_NS, min((week + 1) * WEEK_NS, 2**63 - 1)
        limit = end if end < 2**63 - 1 else "MAXVALUE"
        for table in PARTITIONED_TABLES:
            # Attached in a second step, which does not lock out readers as CREATE TABLE ... PARTITION OF does.
            name = f"{table}_week_{week}"
            session.execute(
                f"CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING STORAGE INCLUDING COMPRESSION)"
            )
            session.execute(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({begin}) TO ({limit})")
        existing.add(week)
    return first_week, frozenset(existing)


def _drop(session: Session, weeks: Iterable[int], display_name: str) -> int:
    lock_store(session, display_name)
    existing = set(existing_weeks(session))
    deleted = 0
    for week in sorted(existing.intersection(weeks)):
        row = session.execute(f"SELECT count(*) FROM runs_week_{week}").fetchone()
        deleted += row[0] if row else 0
        for table in PARTITIONED_TABLES:
            session.execute(f"DROP TABLE {table}_week_{week}")
    if deleted:
        groups = session.execute("SELECT run_group FROM run_groups").fetchall()
        delete_unused_groups(session, [group for (group,) in groups])
    return deleted
