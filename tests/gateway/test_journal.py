"""Tests of the journal: acknowledged entries are on disk until all consumers have processed them."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan import _guard
from goldspan.errors import StoreError
from goldspan.gateway.journal import journal as journal_module
from goldspan.gateway.journal import journal_file
from goldspan.gateway.journal.journal import ENTRY_OVERHEAD_BYTES, Journal, JournalEntry, JournalFull, NewEntry
from support.laws import examples

PLENTY = 2**33
WAIT = 60.0
"""Seconds after which a test fails if an event has not occurred."""
ROUNDS = int(50 * float(os.environ.get("STRESS", "1")))
"""Number of kills of the process; `STRESS=0.1` reduces it."""


def until(happened: Callable[[], object]) -> None:
    """Waits for an action of another thread."""
    deadline = time.monotonic() + WAIT
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def add(journal: Journal, body: bytes = b"body", **how) -> int:
    return journal.append("traces", "protobuf", body, **how).result(WAIT)


def bodies(entries: list[JournalEntry]) -> list[bytes]:
    return [entry.body for entry in entries]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def open_journal(path: Path) -> Iterator[Callable[..., Journal]]:
    opened: list[Journal] = []

    def open_(*, max_bytes: int = PLENTY, **how) -> Journal:
        opened.append(Journal(path, max_bytes=max_bytes, **how))
        return opened[-1]

    yield open_
    for journal in opened:
        journal.close()


@pytest.fixture
def journal(open_journal: Callable[..., Journal]) -> Journal:
    return open_journal()


@pytest.fixture(params=["the same process", "another process", "a later process"])
def reading(request: pytest.FixtureRequest, open_journal: Callable[..., Journal]) -> Callable[[Journal], Journal]:
    """Reads the journal to which entries were appended."""

    def read_by(journal: Journal) -> Journal:
        if request.param == "another process":
            return open_journal(attach=True)
        if request.param == "a later process":
            journal.close()
            return open_journal()
        return journal

    return read_by


def test_a_committed_entry_is_read_unchanged(journal: Journal, reading) -> None:
    before = time.time_ns()
    key = journal.append("logs", "json", b"{}", origin="result", partitions=5).result(WAIT)
    (entry,) = reading(journal).read(0)
    assert before <= entry.arrived_ns <= time.time_ns()
    assert entry == JournalEntry(key, "logs", "json", "result", 5, entry.arrived_ns, b"{}")


def test_entries_that_many_threads_append_are_each_read_once(journal: Journal, reading) -> None:
    keys: dict[int, bytes] = {}

    def add_some(number: int) -> None:
        for position in range(50):
            body = f"{number} {position}".encode()
            keys[add(journal, body)] = body

    threads = [threading.Thread(target=add_some, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(keys) == list(range(1, 401))
    read = reading(journal)
    assert {entry.key: entry.body for entry in read.read(0, max_entries=1000)} == keys
    assert read.last_key == 400


def test_several_entries_are_appended_together(journal: Journal, reading) -> None:
    items = [NewEntry("traces", "protobuf", b"1", "result"), NewEntry("metrics", "protobuf", b"2", "result", 1)]
    assert journal.append_all(items).result(WAIT) == [1, 2]
    assert journal.append_all([]).result(0) == []
    read = reading(journal).read(0)
    assert [(entry.signal, entry.body, entry.origin) for entry in read] == [
        ("traces", b"1", "result"),
        ("metrics", b"2", "result"),
    ]


def test_a_consumer_reads_entries_by_partition_and_origin(journal: Journal, reading) -> None:
    add(journal, b"1", partitions=0b01)
    add(journal, b"2", partitions=0b10)
    add(journal, b"3", partitions=0b11, origin="result")
    add(journal, b"4", partitions=1 << 31, origin="enriched")
    read = reading(journal)
    assert bodies(read.read(0)) == [b"1", b"2", b"3", b"4"]
    assert bodies(read.read(1, partitions=0b01)) == [b"3"]
    assert bodies(read.read(0, partitions=0b10)) == [b"2", b"3"]
    assert bodies(read.read(0, partitions=1 << 31)) == [b"4"]
    assert bodies(read.read(0, origins=frozenset({"received"}))) == [b"1", b"2"]
    assert bodies(read.read(0, origins=frozenset({"result", "enriched"}), partitions=1)) == [b"3"]
    assert read.read(0, origins=frozenset()) == []
    assert read.read(4) == []


def test_a_read_is_limited_in_entries_and_bytes(journal: Journal, reading) -> None:
    for _ in range(10):
        add(journal, b"x" * 100)
    read = reading(journal)
    assert [entry.key for entry in read.read(0, max_entries=3)] == [1, 2, 3]
    assert [entry.key for entry in read.read(3, max_bytes=250)] == [4, 5, 6]
    assert [entry.key for entry in read.read(3, max_bytes=1)] == [4]


def test_entries_that_are_no_longer_in_memory_are_read_from_disk(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_file, "_RECENT_BYTES", 250)
    for _ in range(5):
        add(journal, b"x" * 100)
    assert [entry.key for entry in journal.read(0)] == [1, 2, 3, 4, 5]
    assert [entry.key for entry in journal.read(2)] == [3, 4, 5]
    assert [entry.key for entry in journal.read(3)] == [4, 5]


def test_a_wait_for_an_entry_that_does_not_come_lasts_until_its_timeout(journal: Journal) -> None:
    began = time.monotonic()
    assert not journal.wait(0, 0.05)
    assert time.monotonic() - began >= 0.05


def test_a_waiting_reader_is_woken_by_a_commit(journal: Journal, reading) -> None:
    read = reading(journal)
    writer = read if journal._is_closing else journal
    assert not read.wait(0, 0.01)
    woken: list[bool] = []
    waiting = threading.Thread(target=lambda: woken.append(read.wait(0, WAIT)))
    waiting.start()
    add(writer)
    waiting.join(WAIT)
    assert woken == [True]
    assert read.wait(0, 0)
    assert not read.wait(1, 0)


def test_a_waiting_reader_is_woken_by_close(journal: Journal) -> None:
    woken: list[bool] = []
    waiting = threading.Thread(target=lambda: woken.append(journal.wait(0, WAIT)))
    waiting.start()
    journal.close()
    waiting.join(WAIT)
    assert woken == [False]
    with pytest.raises(StoreError, match="closed"):
        journal.append("traces", "protobuf", b"")
    with pytest.raises(StoreError, match="closed"):
        journal.read(-1)


def test_pending_entries_are_committed_by_close(journal: Journal, open_journal) -> None:
    added = [journal.append("traces", "protobuf", bytes(1000)) for _ in range(200)]
    journal.close()
    assert [future.result(0) for future in added] == list(range(1, 201))
    assert open_journal().last_key == 200


def test_an_attached_journal_cannot_append(journal: Journal, open_journal) -> None:
    with pytest.raises(StoreError, match="another process"):
        open_journal(attach=True).append("traces", "protobuf", b"")


def test_a_pending_append_can_be_cancelled(journal: Journal, path: Path) -> None:
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")  # the thread waits for this lock
        first = journal.append("traces", "protobuf", b"first")
        until(first.running)
        unwanted = journal.append("traces", "protobuf", b"unwanted")
        assert unwanted.cancel()
        other.execute("ROLLBACK")
    other.close()
    assert first.result(WAIT) == 1
    assert add(journal, b"last") == 2
    assert bodies(journal.read(0)) == [b"first", b"last"]


def test_a_cursor_never_moves_back_and_survives_a_restart(journal: Journal, open_journal) -> None:
    journal.register_consumers(["score", "forward"], starts_at_end=lambda _: False)
    assert journal.cursor("score") == 0
    for _ in range(3):
        add(journal)
    journal.advance({"score": 3, "nobody": 2})
    journal.advance({"score": 1, "forward": 1})
    assert (journal.cursor("score"), journal.cursor("forward"), journal.cursor("nobody")) == (3, 1, None)
    journal.close()
    again = open_journal()
    assert (again.cursor("score"), again.cursor("forward"), again.cursor("nobody")) == (3, 1, None)
    again.advance({"score": 2})
    again.close()
    assert open_journal().cursor("score") == 3


def test_entries_are_pruned_by_the_cursors_of_all_processes(journal: Journal, open_journal) -> None:
    journal.register_consumers(["score/0", "score/1"], starts_at_end=lambda _: False)
    attached = open_journal(attach=True)
    add(journal)
    assert attached.wait(0, WAIT)
    journal.advance({"score/0": 1})
    attached.advance({"score/1": 1})
    until(lambda: journal.size == 0)
    assert attached.size == 0
    assert (attached.last_key, attached.cursor("score/1")) == (1, 1)


def test_a_new_consumer_starts_at_the_first_kept_entry_or_at_the_end(journal: Journal) -> None:
    add(journal)
    journal.register_consumers(["old", "new"], starts_at_end=lambda name: name == "new")
    assert (journal.cursor("old"), journal.cursor("new")) == (0, 1)
    add(journal)
    journal.register_consumers(["new", "newer"], starts_at_end=lambda _: True)
    assert (journal.cursor("old"), journal.cursor("new"), journal.cursor("newer")) == (None, 1, 2)


def test_nothing_is_pruned_before_the_consumers_are_registered(open_journal) -> None:
    journal = open_journal()
    journal.register_consumers(["a"], starts_at_end=lambda _: True)
    add(journal)
    journal.advance({"a": 1})
    journal.close()
    assert journal.size == 0
    journal = open_journal()
    add(journal)
    journal.advance({"a": 2})
    until(lambda: not journal._pending_cursors)  # the file was maintained
    assert journal.size == ENTRY_OVERHEAD_BYTES + 4
    journal.register_consumers([], starts_at_end=lambda _: True)
    until(lambda: journal.size == 0)


def test_a_key_is_not_reused_after_all_entries_are_pruned(open_journal) -> None:
    journal = open_journal()
    journal.register_consumers([], starts_at_end=lambda _: True)
    assert [add(journal) for _ in range(3)] == [1, 2, 3]
    until(lambda: journal.size == 0)
    assert journal.last_key == 3
    journal.close()
    journal = open_journal()
    assert (journal.last_key, journal.size) == (3, 0)
    assert add(journal) == 4


def test_entries_are_kept_until_the_slowest_consumer_has_passed_them(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_file, "_PRUNE_BATCH", 2)
    journal.register_consumers(["fast", "slow"], starts_at_end=lambda _: False)
    for _ in range(9):
        add(journal, bytes(100))
    journal.advance({"fast": 9, "slow": 7})
    until(lambda: journal.size == 2 * (ENTRY_OVERHEAD_BYTES + 100))
    assert journal.backlog("fast") == (0, 0.0)
    assert journal.backlog("slow")[0] == journal.size
    attached = Journal(journal.path, max_bytes=PLENTY, attach=True)
    assert [entry.key for entry in attached.read(0)] == [8, 9]
    attached.close()


def test_the_backlog_of_a_consumer_is_given_in_bytes_and_seconds(open_journal) -> None:
    now = [1_000_000_000]
    journal = open_journal(clock=lambda: now[0])
    journal.register_consumers(["a"], starts_at_end=lambda _: False)
    assert journal.backlog("a") == (0, 0.0)
    add(journal, bytes(100))
    now[0] += 500_000_000
    add(journal, bytes(10))
    now[0] += 1_000_000_000
    assert journal.backlog("a") == (2 * ENTRY_OVERHEAD_BYTES + 110, 1.5)
    assert journal.size_after(1) == ENTRY_OVERHEAD_BYTES + 10
    assert journal.size_after(2) == 0
    assert journal.backlog("nobody") == journal.backlog("a")
    journal.advance({"a": 1})
    assert journal.backlog("a") == (ENTRY_OVERHEAD_BYTES + 10, 1.0)
    now[0] = 0  # the clock went backwards
    assert journal.backlog("a") == (ENTRY_OVERHEAD_BYTES + 10, 0.0)
    journal.advance({"a": 2})
    assert journal.backlog("a") == (0, 0.0)


def test_a_full_journal_refuses_entries_until_there_is_room(open_journal) -> None:
    journal = open_journal(max_bytes=2 * (ENTRY_OVERHEAD_BYTES + 1000))
    journal.register_consumers(["a"], starts_at_end=lambda _: False)
    assert [add(journal, bytes(1000)) for _ in range(2)] == [1, 2]
    with pytest.raises(JournalFull, match="max_journal_bytes"):
        journal.append("traces", "protobuf", b"")
    journal.advance({"a": 1})
    until(lambda: journal.size < 2000)
    assert add(journal, bytes(1000)) == 3


def test_the_size_of_pending_appends_is_limited(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_QUEUE_BYTES", 5000)
    with sqlite3.connect(journal.path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")  # the thread waits for this lock
        first = journal.append("traces", "protobuf", bytes(1000))
        until(first.running)
        second = journal.append("traces", "protobuf", bytes(9000))  # a single large append is accepted
        with pytest.raises(JournalFull, match="too slow"):
            journal.append("traces", "protobuf", b"")
        other.execute("ROLLBACK")
    other.close()
    assert [first.result(WAIT), second.result(WAIT), add(journal)] == [1, 2, 3]


def test_a_failed_commit_is_not_acknowledged_and_later_commits_succeed(
    open_journal, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journal_file, "_LOCK_TIMEOUT_MS", 20)
    journal = open_journal()
    journal.register_consumers(["a"], starts_at_end=lambda _: False)
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        refused = journal.append("traces", "protobuf", b"refused")
        assert isinstance(refused.exception(WAIT), StoreError)
        assert "another process holds a lock on it" in str(refused.exception())
        journal.advance({"a": 1})
        until(lambda: "another process holds a lock on it" in caplog.text)
        other.execute("ROLLBACK")
    other.close()
    assert _guard.failure_counts["maintain the journal"] >= 1
    assert add(journal, b"taken") == 1
    assert bodies(journal.read(0)) == [b"taken"]
    until(lambda: journal.size == 0)


FULL_DISK = """
import resource, sqlite3, sys
from pathlib import Path
from goldspan.errors import StoreError
from goldspan.gateway.journal.journal import Journal

path, at_once = Path(sys.argv[1]), int(sys.argv[2])
journal = Journal(path, max_bytes=2**33)
journal.register_consumers(["a"], starts_at_end=lambda _: False)
resource.setrlimit(resource.RLIMIT_FSIZE, (6 * 2**20, resource.RLIM_INFINITY))  # of each file, and so of the log
taken, refused = [], []
while len(refused) < 40:
    added = [journal.append("traces", "protobuf", len(taken).to_bytes(8, "big") * 5_000) for _ in range(at_once)]
    for future in added:
        error = future.exception(60)
        assert error is None or isinstance(error, StoreError), error
        (refused if error else taken).append(error or future.result())
assert taken == list(range(1, len(taken) + 1)), taken
assert len(taken) >= 50
print(refused[0], file=sys.stderr)
assert [entry.key for entry in journal.read(0, max_bytes=2**30, max_entries=10_000)] == taken
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert journal.append("traces", "protobuf", b"again").result(60) == len(taken) + 1
journal.advance({"a": len(taken)})
while journal.size > 100:
    journal.wait(journal.last_key, 0.05)
journal.close()
checked = sqlite3.connect(path)
print(checked.execute("PRAGMA integrity_check").fetchone()[0])
checked.close()
"""


@pytest.mark.parametrize("at_once", [1, 16])
def test_a_full_disk_loses_no_entry_and_appending_resumes_when_there_is_space(path: Path, at_once: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path), str(at_once)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ok\n"
    assert "exceeds a size limit" in done.stderr


def test_a_journal_is_pruned_while_the_disk_is_almost_full(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.register_consumers(["a"], starts_at_end=lambda _: False)
    add(journal)
    with monkeypatch.context() as patched:
        patched.setattr(journal_file, "_DISK_RESERVE_BYTES", 2**62)  # more than any disk has
        with pytest.raises(JournalFull, match="free some space"):
            add(journal)
        journal.advance({"a": 1})
        until(lambda: journal.size == 0)
    assert add(journal) == 2


def test_free_pages_of_the_file_are_used_while_the_disk_is_almost_full(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.register_consumers(["a"], starts_at_end=lambda _: False)
    journal.advance({"a": add(journal, bytes(10_000_000))})
    until(lambda: journal.size == 0)
    free = shutil.disk_usage(journal.path.parent).free
    monkeypatch.setattr(journal_file, "PAGE_BYTES", free)  # the file has more free pages than the disk has space
    monkeypatch.setattr(journal_file, "_DISK_RESERVE_BYTES", 2 * free)
    assert add(journal) == 2


def test_free_pages_are_reused_so_that_the_file_does_not_grow(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_MAINTENANCE_BYTES", 2**20)
    monkeypatch.setattr(journal_file, "_WAL_BYTES", 2**20)
    journal.register_consumers(["a"], starts_at_end=lambda _: False)
    for _ in range(200):
        journal.advance({"a": add(journal, bytes(200_000))})
    assert journal.path.stat().st_size < 8 * 2**20


def unused_pages(journal: Journal) -> int:
    with journal._file.reader() as connection:
        return connection.execute("PRAGMA freelist_count").fetchone()[0] if not journal.size else sys.maxsize


def test_free_pages_are_returned_to_the_file_system(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_file, "_MAX_FREE_BYTES", 2**20)
    monkeypatch.setattr(journal_file, "_WAL_BYTES", 2**20)
    monkeypatch.setattr(journal_file, "_RELEASE_BATCH_PAGES", 100)
    journal = Journal(path, max_bytes=PLENTY)
    journal.register_consumers(["a"], starts_at_end=lambda _: False)
    for future in [journal.append("traces", "protobuf", bytes(1_000_000)) for _ in range(20)]:
        future.result(WAIT)
    until(lambda: path.stat().st_size > 15_000_000)
    journal.advance({"a": 20})
    until(lambda: unused_pages(journal) <= 64)
    journal.close()
    assert path.stat().st_size < 4 * 2**20


@pytest.mark.e2e
def test_the_write_ahead_log_stays_small_beside_permanent_readers(
    open_journal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_file, "_WAL_BYTES", 2**20)
    monkeypatch.setattr(journal_file, "_RECENT_BYTES", 0)  # all of them read from the file
    journal = open_journal()
    journal.register_consumers(["a"], starts_at_end=lambda _: False)
    ended = threading.Event()

    def read_on() -> None:
        while not ended.is_set():
            journal.read(max(journal.last_key - 5, 0))

    readers = [threading.Thread(target=read_on) for _ in range(3)]
    for reader in readers:
        reader.start()
    largest = 0
    for _ in range(300):
        journal.advance({"a": add(journal, bytes(100_000))})
        largest = max(largest, path.with_name("journal.db-wal").stat().st_size)
    ended.set()
    for reader in readers:
        reader.join()
    assert largest < 8 * 2**20


def test_a_reader_of_an_old_snapshot_delays_checkpoints_but_not_appends(
    open_journal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_file, "_WAL_BYTES", 2**20)
    journal = open_journal()
    log = path.with_name("journal.db-wal")
    add(journal)
    held = sqlite3.connect(path, isolation_level=None)
    held.execute("BEGIN")
    assert held.execute("SELECT count(*) FROM entries").fetchone() == (1,)
    for _ in range(60):
        add(journal, bytes(100_000))
    assert log.stat().st_size > 5 * 2**20
    assert held.execute("SELECT count(*) FROM entries").fetchone() == (1,)
    held.close()
    for _ in range(60):
        add(journal, bytes(100_000))
    assert log.stat().st_size < 5 * 2**20


@pytest.mark.parametrize(
    ("write", "said"),
    [
        pytest.param(lambda path: path.write_bytes(b"no database at all " * 999), "not an SQLite database", id="text"),
        pytest.param(lambda path: path.mkdir(), "cannot be opened", id="a folder"),
        pytest.param(lambda path: _execute(path, "CREATE TABLE theirs (x)"), "another program", id="another's"),
        pytest.param(lambda path: _journal_of_version(path, 99), "a newer goldspan wrote it", id="newer"),
        pytest.param(lambda path: _damaged(path), "it is damaged; move it away", id="damaged"),
    ],
)
def test_an_invalid_journal_file_is_refused_with_a_reason(
    path: Path, write: Callable[[Path], object], said: str
) -> None:
    write(path)
    with pytest.raises(StoreError, match=said):
        Journal(path, max_bytes=PLENTY)


def _execute(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def _journal_of_version(path: Path, version: int) -> None:
    Journal(path, max_bytes=PLENTY).close()
    _execute(path, f"PRAGMA user_version = {version}")


def _damaged(path: Path) -> None:
    journal = Journal(path, max_bytes=PLENTY)
    for _ in range(50):
        add(journal, bytes(1000))
    journal.close()
    content = bytearray(path.read_bytes())
    for start in range(journal_file.PAGE_BYTES, len(content), journal_file.PAGE_BYTES):
        content[start : start + 100] = b"\xff" * 100
    path.write_bytes(content)


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="folder does not exist"):
        Journal(tmp_path / "nowhere" / "journal.db", max_bytes=PLENTY)


def test_only_the_owner_can_read_a_journal(journal: Journal) -> None:
    assert journal.path.stat().st_mode & 0o777 == 0o600


def test_two_processes_may_create_a_journal_at_once(path: Path) -> None:
    opened: list[Journal] = []
    threads = [
        threading.Thread(target=lambda attach=attach: opened.append(Journal(path, max_bytes=PLENTY, attach=attach)))
        for attach in (False, True, True, True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 4
    for journal in opened:
        journal.close()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.binary(max_size=300), min_size=1, max_size=4)),
        st.tuples(st.just("advance"), st.tuples(st.sampled_from("ab"), st.integers(0, 12))),
        st.tuples(st.just("reopen"), st.none()),
    ),
    max_size=12,
)


@examples(0.4)
@given(steps)
def test_a_journal_is_a_list_that_starts_after_its_slowest_consumer(
    tmp_path_factory: pytest.TempPathFactory, taken: list[tuple[str, object]]
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.db"
    wanted: list[bytes] = []
    cursors = {"a": 0, "b": 0}
    journal = Journal(path, max_bytes=PLENTY)
    journal.register_consumers(cursors, starts_at_end=lambda _: False)
    for step, value in taken:
        if step == "add":
            items = [NewEntry("traces", "protobuf", body) for body in value]
            keys = journal.append_all(items).result(WAIT)
            assert keys == list(range(len(wanted) + 1, len(wanted) + len(items) + 1))
            wanted += value
        elif step == "advance":
            name, key = value
            cursors[name] = max(cursors[name], min(key, len(wanted)))
            journal.advance({name: cursors[name]})
        else:
            journal.close()
            journal = Journal(path, max_bytes=PLENTY)
            journal.register_consumers(cursors, starts_at_end=lambda _: False)
        assert journal.last_key == len(wanted)
        slowest = min(cursors.values())
        assert bodies(journal.read(slowest)) == wanted[slowest:]
        for name, key in cursors.items():
            assert journal.cursor(name) == key
            assert journal.backlog(name)[0] == sum(len(body) + ENTRY_OVERHEAD_BYTES for body in wanted[key:])
    journal.close()
    reopened = Journal(path, max_bytes=PLENTY)
    assert reopened.size == sum(len(body) + ENTRY_OVERHEAD_BYTES for body in wanted[min(cursors.values()) :])
    reopened.close()


KILLED = """
import hashlib, os, random, sys, threading
from goldspan.gateway.journal.journal import Journal
from goldspan.gateway.journal.journal_file import NewEntry

journal = Journal(sys.argv[1], max_bytes=2**33)
journal.register_consumers(["a"], starts_at_end=lambda _: False)

def tell(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # one write, so that lines of threads do not mix

def digest(body):
    return hashlib.md5(body).hexdigest()

def add():
    chance = random.Random()
    while True:
        some = [chance.randbytes(int(10 ** chance.uniform(1, 5.5))) for _ in range(chance.choice([1, 1, 1, 5]))]
        keys = journal.append_all([NewEntry("traces", "protobuf", body) for body in some]).result()
        for key, body in zip(keys, some):
            tell("taken", key, digest(body))

def consume():
    at = journal.cursor("a")
    while True:
        if journal.wait(at, 1):
            for entry in journal.read(at, max_entries=20):
                tell("done", entry.key, digest(entry.body))
                at = entry.key
            journal.advance({"a": at})

for work in (add, add, add, add, consume):
    threading.Thread(target=work).start()
"""


def _check_after_kills(path: Path, rounds: int) -> None:
    chance = random.Random(6)
    taken: dict[int, str] = {}
    done: dict[int, str] = {}
    for _ in range(rounds):
        with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True) as child:
            for _ in range(chance.randint(1, 600)):
                _note(child.stdout.readline(), taken, done)
            child.kill()
            for line in child.stdout:
                _note(line, taken, done)
        assert child.returncode == -signal.SIGKILL
        journal = Journal(path, max_bytes=PLENTY)
        kept = {
            entry.key: hashlib.md5(entry.body).hexdigest()
            for entry in journal.read(0, max_bytes=PLENTY, max_entries=10**6)
        }
        cursor = journal.cursor("a")
        last_key = journal.last_key
        journal.close()
        for key, digest in taken.items():
            assert kept.get(key, done.get(key)) == digest
        assert cursor <= max(done, default=0)
        assert last_key >= max(taken)
        for key in [key for key in taken if key not in kept]:
            del taken[key]


def _note(line: str, taken: dict[int, str], done: dict[int, str]) -> None:
    if line.endswith("\n"):
        kind, key, digest = line.split()
        (taken if kind == "taken" else done)[int(key)] = digest


@pytest.mark.e2e
def test_acknowledged_entries_survive_a_kill_of_the_process(path: Path) -> None:
    _check_after_kills(path, 4)


@pytest.mark.stress
def test_acknowledged_entries_survive_many_kills_of_the_process(path: Path) -> None:
    _check_after_kills(path, ROUNDS)


def test_results_and_enriched_spans_are_accepted_by_a_full_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db", max_bytes=10_000)
    for _ in range(10):
        journal.append("traces", "protobuf", bytes(900)).result(30)
    with pytest.raises(JournalFull):
        journal.append("traces", "protobuf", bytes(900))
    assert journal.full_reason() is not None
    journal.append("traces", "protobuf", bytes(900), origin="enriched").result(30)
    journal.append("logs", "protobuf", bytes(90_000), origin="result").result(30)
    with pytest.raises(JournalFull):
        journal.append("traces", "protobuf", bytes(900), origin="held")
    journal.close()


def test_a_journal_that_refused_a_request_has_a_full_reason_until_there_is_room(open_journal, path: Path) -> None:
    journal = open_journal(max_bytes=100_000)
    journal.register_consumers(["a"], starts_at_end=lambda name: False)
    for _ in range(3):
        add(journal, bytes(30_000))
    with pytest.raises(JournalFull):
        add(journal, bytes(30_000))
    assert journal.full_reason() is not None
    journal.advance({"a": journal.last_key})
    until(lambda: journal.size == 0)
    until(lambda: journal.full_reason() is None)
    add(journal, bytes(30_000))
    assert journal.full_reason() is None


def test_a_refused_large_request_sets_no_full_reason_if_smaller_ones_are_accepted(
    open_journal,
) -> None:
    journal = open_journal(max_bytes=100_000)
    add(journal, bytes(50_000))
    with pytest.raises(JournalFull):
        add(journal, bytes(60_000))
    add(journal, bytes(100))
    assert journal.full_reason() is None


def test_a_request_larger_than_the_journal_sets_no_full_reason_on_an_empty_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db", max_bytes=100_000)
    with pytest.raises(JournalFull):
        journal.append("traces", "protobuf", bytes(150_000)).result(30)
    why = journal.full_reason()
    journal.close()
    assert why is None
