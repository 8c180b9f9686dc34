"""Tests of problems with the file of a store: the error names the file and says what to do."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from goldspan import GoldspanError, Run, ToolCall, evaluate
from goldspan.errors import StoreError
from goldspan.store import migrations, open_store

RUN = Run("t:s", trace_ids=("t",), input="Hello.", tool_calls=(ToolCall("search"),), start_ns=1)
EVALUATION = evaluate(RUN, None)
LATER = replace(
    migrations.STORE_FORMAT,
    migrations=(
        *migrations.MIGRATIONS,
        ("ALTER TABLE runs ADD COLUMN later TEXT", "CREATE INDEX runs_later ON runs (later)"),
    ),
)
FAILING = replace(LATER, migrations=(*LATER.migrations, ("DROP TABLE runs", "no sql")))


def filled(path: Path, number: int = 1) -> None:
    with open_store(path) as store:
        store.submit_many(replace(EVALUATION, run=replace(RUN, run_id=f"t:{each}")) for each in range(number))


def test_a_store_error_is_a_goldspan_error() -> None:
    assert issubclass(StoreError, GoldspanError)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_is_not_a_database_is_refused(path: Path, read_only: bool) -> None:
    path.write_bytes(b"run,verdict\n" * 500)
    with pytest.raises(StoreError, match=r"goldspan\.db: it is not an SQLite database; name another file"):
        open_store(path, read_only=read_only)
    assert path.read_bytes() == b"run,verdict\n" * 500


@pytest.mark.parametrize("read_only", [False, True])
def test_the_database_of_another_program_is_refused(path: Path, read_only: bool) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(StoreError, match="the database of another program"):
        open_store(path, read_only=read_only)


def test_a_folder_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        open_store(tmp_path)
    with pytest.raises(StoreError, match="cannot be opened: the folder does not exist"):
        open_store(tmp_path / "no" / "goldspan.db")


def test_a_missing_file_opened_read_only_is_refused_and_not_created(path: Path) -> None:
    with pytest.raises(StoreError, match=r"goldspan\.db: the file does not exist"):
        open_store(path, read_only=True)
    assert not path.exists()


def test_damaged_pages_are_reported_by_queries_and_by_check(path: Path) -> None:
    filled(path, 300)
    content = bytearray(path.read_bytes())
    content[8192:-4096] = b"\xa5" * (len(content) - 8192 - 4096)
    path.write_bytes(content)
    with open_store(path, read_only=True) as store:
        with pytest.raises(StoreError, match=r"it is damaged: `sqlite3 FILE \.recover`"):
            list(store.iter_runs())
        with pytest.raises(StoreError, match="it is damaged"):
            store.check()
    with open_store(path) as store, pytest.raises(StoreError, match="it is damaged"):
        store.submit(EVALUATION)


def test_damage_that_no_query_reads_is_reported_by_check(path: Path) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA writable_schema = ON")
        other.execute("DELETE FROM sqlite_master WHERE name = 'tools_listed'")
        other.commit()
    with open_store(path, read_only=True) as store:
        assert store.count().total == 1
        with pytest.raises(StoreError, match=r"it is damaged.*never used"):
            store.check()


def test_check_accepts_an_intact_store(path: Path) -> None:
    filled(path)
    with open_store(path, read_only=True) as store:
        store.check()


def test_a_locked_store_refuses_writes_and_answers_reads(path: Path) -> None:
    filled(path)
    with open_store(path, timeout=0.05) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            StoreError, match="another process holds a lock on it; stop that process, or raise `timeout`"
        ):
            store.submit(EVALUATION)
        assert store.count().total == 1  # readers do not wait
        other.execute("ROLLBACK")
        store.submit(EVALUATION)
        assert store.count().total == 2


def test_a_locked_new_store_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="another process holds a lock on it"):
            open_store(path, timeout=0.05)
        other.execute("ROLLBACK")
    filled(path)


def test_a_full_disk_rejects_the_new_runs_and_keeps_the_stored_ones(path: Path) -> None:
    with open_store(path) as store:
        store.submit(EVALUATION)
        with store._connections.writer() as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        many = [replace(EVALUATION, run=replace(RUN, run_id=str(number))) for number in range(100)]
        with pytest.raises(StoreError, match="the disk is full; free some space, or reduce the retention of the store"):
            store.submit_many(many)
        assert [run.run_id for run in store.runs().items] == ["t:s"]
        with store._connections.writer() as connection:
            connection.execute(f"PRAGMA max_page_count = {pages + 1000}")
        store.submit_many(many)
        assert store.count().total == 101


def test_a_store_of_a_newer_version_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr(migrations, "STORE_FORMAT", LATER)
        filled(path)
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"a newer goldspan wrote it \(version 5, this one knows 4\): pip install"):
            open_store(path, read_only=read_only)


def test_a_store_of_an_older_version_is_migrated_with_all_its_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path, 3)
    monkeypatch.setattr(migrations, "STORE_FORMAT", LATER)
    with pytest.raises(StoreError, match=r"an older goldspan wrote it \(version 4, this one reads 5\); open it once"):
        open_store(path, read_only=True)
    filled(path, 4)
    with open_store(path, read_only=True) as store:
        assert store.count().total == 4
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT later FROM runs").fetchall() == [(None,)] * 4


def test_a_failed_migration_leaves_the_file_unchanged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)
    with monkeypatch.context() as later:
        later.setattr(migrations, "STORE_FORMAT", FAILING)
        with pytest.raises(StoreError, match="SQLite refuses"):
            open_store(path)
    with open_store(path) as store:
        assert store.count().total == 1


def test_a_store_opened_read_only_refuses_writes(path: Path) -> None:
    filled(path)
    with open_store(path, read_only=True) as store:
        for write in (lambda: store.submit(EVALUATION), lambda: store.delete_trace("t"), store.prune):
            with pytest.raises(StoreError, match="it was opened with read_only=True"):
                write()


def test_a_closed_store_reports_that_it_is_closed(path: Path) -> None:
    store = open_store(path)
    store.close()
    store.close()
    for use in (lambda: store.submit(EVALUATION), store.count):
        with pytest.raises(StoreError, match="the store was closed"):
            use()


def test_a_new_store_is_readable_by_its_owner_only(path: Path) -> None:
    filled(path)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def world_readable_folder() -> Iterator[Path]:
    """Returns a folder that another user can access, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


@pytest.mark.parametrize("copied", [pytest.param(True, id="copied"), pytest.param(False, id="with its log")])
def test_a_store_in_a_read_only_folder_can_be_read_and_refuses_to_be_written(
    world_readable_folder: Path, copied: bool
) -> None:
    path = world_readable_folder / "goldspan.db"
    filled(path)
    writing = None if copied else open_store(path)
    if writing is not None:
        writing.submit(replace(EVALUATION, run=replace(RUN, run_id="other")))
    for file in world_readable_folder.iterdir():
        file.chmod(0o444)
    world_readable_folder.chmod(0o555)
    said = _use_as_unprivileged_user(path)
    if writing is not None:
        world_readable_folder.chmod(0o755)
        writing.close()
    assert said[0] == ("1 runs" if copied else "2 runs")
    assert said[1].startswith(f"{path}: it cannot be written: file or folder is read-only")


def test_a_copied_write_ahead_log_in_a_read_only_folder_is_not_ignored(world_readable_folder: Path) -> None:
    path = world_readable_folder / "copy.db"
    with open_store(world_readable_folder / "goldspan.db") as store:
        store.submit(EVALUATION)
        for end in ("", "-wal"):
            copy = path.with_name(f"{path.name}{end}")
            copy.write_bytes(store.path.with_name(f"{store.path.name}{end}").read_bytes())
            copy.chmod(0o444)
        world_readable_folder.chmod(0o555)
        with pytest.raises(subprocess.CalledProcessError) as failed:
            _use_as_unprivileged_user(path)
        world_readable_folder.chmod(0o755)
    assert f"StoreError: {path}: it cannot be opened" in failed.value.stderr


def _use_as_unprivileged_user(path: Path) -> list[str]:
    """Use a store as a user who may only read it; the superuser becomes another user for this."""
    code = f"""
import os
from goldspan.errors import StoreError
from goldspan.store import open_store
if os.getuid() == 0:
    os.setgid(65534), os.setuid(65534)
with open_store({str(path)!r}, read_only=True) as store:
    print(store.count().total, "runs")
try:
    open_store({str(path)!r})
except StoreError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    return done.stdout.splitlines()
