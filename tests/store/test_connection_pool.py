"""Tests of one store in many threads, several processes, and a process that forks."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from goldspan import Run, ToolCall, evaluate
from goldspan.store import RunFilter, SqliteStore, open_store

RUN = Run("", input="Hello.", tool_calls=(ToolCall("search"),), start_ns=1)
EVALUATION = evaluate(RUN, None)

WRITER = """
import sys
from dataclasses import replace
from goldspan import Run, ToolCall, evaluate
from goldspan.store import open_store

evaluation = evaluate(Run("", tool_calls=(ToolCall("search"),)), None)
with open_store(sys.argv[1], timeout=60) as store:
    for number in range(100):
        store.submit(replace(evaluation, run=replace(evaluation.run, run_id=f"{sys.argv[2]}-{number}")))
        store.submit(replace(evaluation, run=replace(evaluation.run, run_id=f"both-{number}")))
"""

FORKING = """
import os, sys, threading
from dataclasses import replace
from goldspan import Run, ToolCall, evaluate
from goldspan.store import open_store

evaluation = evaluate(Run("", tool_calls=(ToolCall("search"),)), None)
store = open_store(sys.argv[1], timeout=60)

def write(who):
    for number in range(50):
        store.submit(replace(evaluation, run=replace(evaluation.run, run_id=f"{who}-{number}")))
        store.count()

busy = threading.Thread(target=write, args=("thread",))
write("before")
busy.start()
children = []
for who in ("one", "two"):
    child = os.fork()
    if child == 0:
        write(who)
        store.close()
        os._exit(0)
    children.append(child)
write("after")
busy.join()
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
assert store.count().total == 250, store.count()
store.check()
"""

BUSY = """
import os, sys
from goldspan.store import connection_pool, open_store

connection_pool._FORK_TIMEOUT_S = 0.01
store = open_store(sys.argv[1])
with store._connections.writer(), store._connections.reader():
    child = os.fork()
    if child == 0:
        print(store.count().total, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
print(store.count().total)
"""


def _run_with_id(run_id: str) -> Run:
    return replace(RUN, run_id=run_id)


def test_threads_write_and_read_concurrently(store: SqliteStore) -> None:
    def use(thread: int) -> int:
        seen = 0
        for number in range(25):
            store.submit(replace(EVALUATION, run=_run_with_id(f"{thread}-{number}")))
            seen = store.count(RunFilter(tool="search")).total
            assert store.run(f"{thread}-{number}") is not None
        return seen

    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(use, range(8)))
    assert max(seen) == store.count().total == 200


def test_processes_create_and_write_one_store_concurrently(path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, path, name]) for name in ("a", "b")]
    assert [writer.wait() for writer in writers] == [0, 0]
    with open_store(path, read_only=True) as store:
        assert store.count().total == 300
        assert store.count(RunFilter(tool="search")).total == 300
        store.check()


def test_a_fork_while_threads_are_writing_loses_no_runs(path: Path) -> None:
    """The writers are the parent, a thread of it, and its children."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, path],
        capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fork_waits_for_open_connections_only_until_the_timeout(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", BUSY, path], capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["0", "0"], "")


def test_a_query_in_progress_completes_after_the_store_is_closed(path: Path) -> None:
    store = open_store(path)
    with store._connections.reader() as connection:
        store.close()
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)


def test_a_reader_sees_the_writes_of_another_connection(path: Path) -> None:
    with open_store(path) as writing, open_store(path, read_only=True) as reading:
        for number in range(3):
            writing.submit(replace(EVALUATION, run=_run_with_id(str(number))))
            assert reading.count().total == number + 1


def test_a_store_opened_by_a_relative_path_survives_a_change_of_directory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    with open_store(path.name) as store:
        monkeypatch.chdir("/")
        store.submit(EVALUATION)
        assert store.count().total == 1
