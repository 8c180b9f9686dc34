from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from goldspan.store.files import Identity, identity, write_ahead


def opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=0, isolation_level=None)


def create(connection: sqlite3.Connection) -> None:
    for statement in ("BEGIN", "CREATE TABLE t (a)", "PRAGMA application_id = 7", "PRAGMA user_version = 3", "COMMIT"):
        connection.execute(statement)


def test_a_file_is_known_by_its_application_version_and_tables(tmp_path: Path) -> None:
    connection = opened(tmp_path / "file.db")
    assert identity(connection) == Identity(0, 0, 0)
    create(connection)
    assert identity(connection) == Identity(application=7, version=3, tables=1)
    connection.close()


@pytest.mark.parametrize("statement", range(1, 6))
def test_a_file_that_another_creates_meanwhile_is_seen_before_that_or_after_it(tmp_path: Path, statement: int) -> None:
    one, other = opened(tmp_path / "file.db"), opened(tmp_path / "file.db")
    write_ahead(one, 1)
    statements: list[str] = []

    def meanwhile(text: str) -> None:
        statements.append(text)
        if len(statements) == statement:
            create(other)

    one.set_trace_callback(meanwhile)
    assert identity(one) in (Identity(0, 0, 0), Identity(7, 3, 1))
    one.close()
    other.close()


def test_who_keeps_a_file_locked_for_long_is_told_of(tmp_path: Path) -> None:
    one, other = opened(tmp_path / "file.db"), opened(tmp_path / "file.db")
    create(one)
    one.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        write_ahead(other, 0.05)
    one.execute("COMMIT")
    write_ahead(other, 0.05)
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    one.close()
    other.close()
