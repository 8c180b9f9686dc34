"""Tests of opening SQLite files: formats, versions and concurrent creation."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from goldspan.errors import StoreError
from goldspan.gateway.journal.journal_file import JournalFile
from goldspan.store import open_store
from goldspan.store.sqlite_files import SqliteHeader, enable_wal, read_header


def opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=0, isolation_level=None)


def create(connection: sqlite3.Connection) -> None:
    for statement in ("BEGIN", "CREATE TABLE t (a)", "PRAGMA application_id = 7", "PRAGMA user_version = 3", "COMMIT"):
        connection.execute(statement)


def test_a_header_contains_application_id_user_version_and_table_count(tmp_path: Path) -> None:
    connection = opened(tmp_path / "file.db")
    assert read_header(connection) == SqliteHeader(0, 0, 0)
    create(connection)
    assert read_header(connection) == SqliteHeader(application_id=7, user_version=3, table_count=1)
    connection.close()


@pytest.mark.parametrize("statement", range(1, 6))
def test_a_header_read_during_concurrent_creation_is_consistent(tmp_path: Path, statement: int) -> None:
    one, other = opened(tmp_path / "file.db"), opened(tmp_path / "file.db")
    enable_wal(one, 1)
    statements: list[str] = []

    def meanwhile(text: str) -> None:
        statements.append(text)
        if len(statements) == statement:
            create(other)

    one.set_trace_callback(meanwhile)
    assert read_header(one) in (SqliteHeader(0, 0, 0), SqliteHeader(7, 3, 1))
    one.close()
    other.close()


def test_enabling_wal_on_a_locked_file_fails_after_the_timeout(tmp_path: Path) -> None:
    one, other = opened(tmp_path / "file.db"), opened(tmp_path / "file.db")
    create(one)
    one.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        enable_wal(other, 0.05)
    one.execute("COMMIT")
    enable_wal(other, 0.05)
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    one.close()
    other.close()


@pytest.mark.parametrize(
    "open_file",
    [
        pytest.param(open_store, id="a store"),
        pytest.param(lambda path: JournalFile(path, is_owner=True), id="a journal"),
    ],
)
def test_a_database_of_another_program_is_refused_unchanged(
    tmp_path: Path, open_file: Callable[[Path], object]
) -> None:
    path = tmp_path / "file.db"
    connection = opened(path)
    create(connection)
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="it is the database of another program; name another"):
        open_file(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_pragmas_of_a_new_file_take_effect(tmp_path: Path) -> None:
    open_store(tmp_path / "store.db").close()
    JournalFile(tmp_path / "journal.db", is_owner=True).close()
    found = {}
    for name in ("store.db", "journal.db"):
        connection = opened(tmp_path / name)
        found[name] = [
            connection.execute(f"PRAGMA {pragma}").fetchone()[0]
            for pragma in ("page_size", "auto_vacuum", "journal_mode", "user_version", "application_id")
        ]
        connection.close()
    assert found == {
        "store.db": [4096, 2, "wal", 4, 0x676F6C64],
        "journal.db": [16384, 2, "wal", 1, 0x676F6C6A],
    }
