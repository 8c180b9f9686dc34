"""Tests of what only a store in PostgreSQL has: lost connections, several gateways, partitions and passwords."""

from __future__ import annotations

import itertools
import logging
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from goldspan import ConfigurationError, Evaluation, ExpectedTool, Golden, MissingExtraError, Run, ToolCall, evaluate
from goldspan.errors import StoreError
from goldspan.store import Retention, RunFilter, Store, VerdictCounts, open_store
from goldspan.store.postgres import postgres_tables
from goldspan.store.store_location import is_store_url, redacted_location
from support.cutting_proxy import CuttingProxy
from support.postgres_server import PostgresServer
from support.store_contents import all_rows, select

pytestmark = [pytest.mark.e2e, pytest.mark.needs("postgres", "initdb")]

NOW = 1_800_000_000 * 10**9
DAY = 86400 * 10**9
WEEK = 7 * DAY
GOLDEN = Golden("refund", tools=(ExpectedTool("find_order"), ExpectedTool("refund")))
RUN = Run("t:s", trace_ids=("t",), input="Where is my money?", tool_calls=(ToolCall("find_order"),), start_ns=NOW - DAY)


def evaluated(name: str, *, golden: Golden | None = GOLDEN, revision: int = 1, **fields: Any) -> Evaluation:
    return replace(evaluate(replace(RUN, run_id=name, trace_ids=(name,), **fields), golden), revision=revision)


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.create_database()


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[CuttingProxy]:
    opened = CuttingProxy(postgres_server.port)
    yield opened
    opened.close()


# --- lost connections -------------------------------------------------------------------------------------------------


def _submit(store: Store) -> object:
    return store.submit_many([evaluated("b"), evaluated("a", revision=2), evaluated("c", golden=None)])


def _replace(store: Store) -> object:
    return store.replace_if_current(evaluated("a", revision=2), (1, evaluated("a").digest))


def _delete_trace(store: Store) -> object:
    return store.delete_trace("a")


def _delete_runs(store: Store) -> object:
    return store.delete_runs(["a", "old"])


def _prune(store: Store) -> object:
    return store.prune()


def _read(store: Store) -> object:
    run_filter = RunFilter(golden="refund")
    return (
        [run.run_id for run in store.iter_runs(run_filter)], store.count(), store.trend(run_filter),
        store.tool_counts(), store.run("a") is None, store.evaluations_after(0),
    )  # fmt: skip


def _outcome(
    server: PostgresServer, proxy: CuttingProxy, work: Callable[[Store], object], cut_at: int | None
) -> tuple[object, dict[str, list[str]]]:
    """Return the result of some work, and what the tables contain afterwards."""
    name = server.emptied_database().rpartition("/")[2]
    with open_store(server.url(name), clock=lambda: NOW) as store:
        store.submit_many([evaluated("a"), evaluated("old", start_ns=NOW - 31 * DAY)])
    retention = Retention(max_age=timedelta(days=30))
    url = server.url(name, port=proxy.port)
    with open_store(url, retention=retention, clock=lambda: NOW, timeout=20) as store:
        proxy.messages, proxy.cuts, proxy.cut_at = 0, 0, cut_at
        result = work(store)
        proxy.cut_at = None
    with open_store(server.url(name), read_only=True) as store:
        store.check()
    return result, all_rows(server.url(name))


def _cut_everywhere(server: PostgresServer, proxy: CuttingProxy, work: Callable[[Store], object], step: int) -> None:
    """Cut the connection at every `step`-th statement, and compare the outcomes with an undisturbed one."""
    undisturbed = _outcome(server, proxy, work, None)
    statements = proxy.messages
    assert statements > 3
    for cut_at in {*range(1, statements + 1, step), statements - 1, statements}:
        assert _outcome(server, proxy, work, cut_at) == undisturbed, cut_at
        assert proxy.cuts == 1


@pytest.mark.parametrize("is_delivered", [False, True], ids=["lost", "answer lost"])
@pytest.mark.parametrize("work", [_submit, _replace, _delete_trace])
def test_nothing_is_lost_or_doubled_if_the_connection_is_cut_while_writing(
    postgres_server: PostgresServer, proxy: CuttingProxy, work: Callable[[Store], object], is_delivered: bool
) -> None:
    proxy.is_delivered = is_delivered
    _cut_everywhere(postgres_server, proxy, work, step=15)


@pytest.mark.stress
@pytest.mark.parametrize("is_delivered", [False, True], ids=["lost", "answer lost"])
@pytest.mark.parametrize("work", [_submit, _replace, _delete_trace, _delete_runs, _prune, _read])
def test_nothing_is_lost_or_doubled_if_the_connection_is_cut_at_any_statement(
    postgres_server: PostgresServer, proxy: CuttingProxy, work: Callable[[Store], object], is_delivered: bool
) -> None:
    proxy.is_delivered = is_delivered
    step = max(1, round(0.2 / float(os.environ.get("STRESS", "1"))))
    _cut_everywhere(postgres_server, proxy, work, step)


def test_the_tables_are_created_once_if_the_connection_is_cut_at_any_statement(
    postgres_server: PostgresServer, proxy: CuttingProxy
) -> None:
    for cut_at in range(1, 60, 11):
        name = postgres_server.create_database().rpartition("/")[2]
        proxy.messages, proxy.cut_at = 0, cut_at
        with open_store(postgres_server.url(name, port=proxy.port), clock=lambda: NOW, timeout=20) as store:
            store.submit(evaluated("a"))
            assert store.count() == VerdictCounts(failed=1)
            store.check()


def test_a_server_that_terminates_sessions_delays_writes_and_loses_none(url: str) -> None:
    terminations = stored = 0

    def terminate() -> None:
        nonlocal terminations
        with psycopg.connect(url, autocommit=True, application_name="assassin") as connection:
            while not is_done.wait(0.3):
                terminations += connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND application_name = 'goldspan'"
                ).rowcount

    is_done = threading.Event()
    with ThreadPoolExecutor(1) as others, open_store(url, clock=lambda: NOW, timeout=60) as store:
        ended = others.submit(terminate)
        try:
            while terminations < 5 or stored < 30:
                store.submit(evaluated(f"run-{stored}"))
                stored += 1
        finally:
            is_done.set()
        ended.result()
        assert store.count().total == stored
        store.check()


def test_a_store_waits_for_a_server_that_restarts_and_fails_after_its_timeout() -> None:
    server = PostgresServer()
    url = server.create_database()
    with open_store(url, timeout=30, clock=lambda: NOW) as patient, open_store(url, timeout=2) as hasty:
        patient.submit(evaluated("a"))
        hasty.count()
        server.stop()
        with pytest.raises(StoreError, match=r"postgresql://postgres@127\.0\.0\.1:.*: the server cannot be reached"):
            hasty.count()
        with ThreadPoolExecutor(1) as others:
            writing = others.submit(patient.submit, evaluated("b"))
            server.start()
            writing.result()
        assert hasty.count().total == 2
    server.remove()


# --- several processes ------------------------------------------------------------------------------------------------

WRITER = """
import sys
from goldspan import Run, ToolCall, evaluate
from goldspan.store import open_store
url, name = sys.argv[1:]
with open_store(url, timeout=60) as store:
    for number in range(60):
        run = Run(f"shared-{number}", trace_ids=(f"trace-{number}",), tool_calls=(ToolCall(f"tool-{number % 7}"),))
        own = Run(f"{name}-{number}", tool_calls=(ToolCall("own"),))
        store.submit_many([evaluate(run, None), evaluate(own, [f"tool-{number % 5}"])])
"""


def test_gateways_that_start_together_create_the_tables_once_and_store_each_revision_once(url: str) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, url, name], stderr=subprocess.PIPE) for name in "abc"]
    said = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0], said
    with open_store(url, read_only=True) as store:
        store.check()
        assert store.count().total == 60 + 3 * 60
        assert {run.evaluation_count for run in store.iter_runs()} == {1}
        keys = [row[0] for row in select(url, "SELECT key FROM evaluations ORDER BY key")]
        assert keys == list(range(1, 241))
        assert store.last_sequence_number() == 240


def test_an_upgrade_waits_for_writers_and_stops_older_gateways(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_done = threading.Event()
    stored: list[str] = []

    def write(store: Store, name: str) -> StoreError | None:
        for number in range(10_000):
            try:
                store.submit(evaluated(f"{name}-{number}"))
            except StoreError as error:
                return error
            stored.append(f"{name}-{number}")
            if is_done.is_set():
                return None
        return None

    upgrade = ("ALTER TABLE runs ADD COLUMN note text", "SELECT pg_sleep(0.3)")
    with (
        open_store(url, clock=lambda: NOW) as one,
        open_store(url, clock=lambda: NOW) as other,
        ThreadPoolExecutor(4) as pool,
    ):
        writing = [pool.submit(write, one, "one"), pool.submit(write, other, "other")]
        while len(stored) < 20:
            is_done.wait(0.01)
        older = postgres_tables.MIGRATIONS
        monkeypatch.setattr(postgres_tables, "MIGRATIONS", (*older, upgrade))
        opening = [pool.submit(open_store, url, clock=lambda: NOW, timeout=20.0) for _ in range(2)]
        newer = [opened.result() for opened in opening]
        before = len(stored)
        while len(stored) < before + 20:
            is_done.wait(0.01)
        monkeypatch.setattr(postgres_tables, "MIGRATIONS", older)
        errors = [each.result() for each in writing]
        monkeypatch.setattr(postgres_tables, "MIGRATIONS", (*older, upgrade))
        assert all("a newer goldspan wrote it (version 2, this one knows 1)" in str(error) for error in errors)
        newer[0].check()
        assert {run.run_id for run in newer[0].iter_runs()} == set(stored)
        for opened in newer:
            opened.close()
    monkeypatch.setattr(postgres_tables, "MIGRATIONS", older)
    with pytest.raises(StoreError, match="a newer goldspan wrote it"):
        open_store(url)


def test_an_upgrade_that_fails_changes_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(url, clock=lambda: NOW) as store:
        store.submit(evaluated("a"))
        before = all_rows(url)
        monkeypatch.setattr(
            postgres_tables, "MIGRATIONS", (*postgres_tables.MIGRATIONS, ("DROP TABLE tools", "SELECT no_such_column"))
        )
        with pytest.raises(StoreError, match=r"the server refuses \(column \"no_such_column\" does not exist\)"):
            open_store(url)
    assert all_rows(url) == before


def test_an_older_store_is_refused_for_reading_and_an_empty_database_too(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="it has no store; `goldspan serve --store` creates one"):
        open_store(url, read_only=True)
    open_store(url).close()
    with open_store(url, read_only=True) as store, pytest.raises(StoreError, match="opened with read_only=True"):
        store.submit(evaluated("a"))
    monkeypatch.setattr(postgres_tables, "MIGRATIONS", (*postgres_tables.MIGRATIONS, ()))
    with pytest.raises(StoreError, match=r"an older goldspan wrote it \(version 1, this one reads 2\)"):
        open_store(url, read_only=True)


def test_the_schema_of_another_program_and_an_old_server_are_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_tables, "MIN_SERVER_VERSION", 990000)
    with pytest.raises(StoreError, match="14 or newer is needed"):
        open_store(url)
    monkeypatch.undo()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA goldspan")
        open_store(url).close()  # an administrator may create the schema
        connection.execute("DROP SCHEMA goldspan CASCADE")
        connection.execute("CREATE SCHEMA goldspan")
        connection.execute("CREATE TABLE goldspan.other (a int)")
    with pytest.raises(StoreError, match="its schema goldspan belongs to another program"):
        open_store(url)


def test_a_user_that_may_only_read_can_open_a_store_for_reading(url: str) -> None:
    with open_store(url, clock=lambda: NOW) as store:
        store.submit(evaluated("a"))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS visitor")
        connection.execute("CREATE ROLE visitor LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA goldspan TO visitor")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA goldspan TO visitor")
    visitor = url.replace("postgres:secret-word", "visitor")
    with open_store(visitor, read_only=True) as store:
        assert store.count().total == 1
    with open_store(visitor) as store, pytest.raises(StoreError, match="the user lacks a privilege"):
        store.submit(evaluated("b"))


def test_a_store_works_after_a_fork(url: str) -> None:
    with open_store(url, clock=lambda: NOW) as store:
        store.submit(evaluated("a"))
        child = os.fork()
        if child == 0:
            status = 1
            try:
                store.submit(evaluated("b"))
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        store.submit(evaluated("c"))
        assert store.count().total == 3


# --- partitions -------------------------------------------------------------------------------------------------------


def weeks_of(url: str) -> set[int]:
    names = select(url, "SELECT tablename FROM pg_tables WHERE tablename LIKE 'runs_week_%'")
    return {int(name.rpartition("_")[2]) for (name,) in names}


def test_partitions_are_created_ahead_and_dropped_by_the_retention(url: str) -> None:
    with open_store(url, clock=lambda: NOW) as store:
        store.submit(evaluated("a", start_ns=NOW - 5 * WEEK))
        store.submit(evaluated("ancient", start_ns=1000))
        store.submit(evaluated("now", start_ns=NOW))
        assert weeks_of(url) == {(NOW - 5 * WEEK) // WEEK, NOW // WEEK, NOW // WEEK + 1}
    retention = Retention(max_age=timedelta(weeks=2))
    with open_store(url, clock=lambda: NOW, retention=retention) as store, open_store(url, clock=lambda: NOW) as other:
        other.submit(evaluated("b", start_ns=NOW - 5 * WEEK))  # it knows the partition
        assert store.prune() == 3
        assert weeks_of(url) == {NOW // WEEK, NOW // WEEK + 1}
        assert [run.run_id for run in store.iter_runs()] == ["now"]
        store.check()
        other.submit(evaluated("c", start_ns=NOW - 5 * WEEK))
        assert {run.run_id for run in other.iter_runs()} == {"now", "c"}
        other.check()


def test_submitting_applies_the_retention(url: str) -> None:
    now_ns = NOW
    retention = Retention(max_age=timedelta(days=7))
    with open_store(url, clock=lambda: now_ns, retention=retention) as store:
        store.submit_many([evaluated("old", start_ns=NOW - 8 * DAY), evaluated("new", start_ns=NOW)])
        assert [run.run_id for run in store.iter_runs()] == ["new"]
        now_ns += 30 * DAY
        store.submit(evaluated("newer", start_ns=now_ns))
        assert [run.run_id for run in store.iter_runs()] == ["newer"]
        store.check()


def test_a_retention_that_cannot_be_applied_does_not_prevent_storing(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(url, clock=lambda: NOW) as store:
        store.submit(evaluated("old", start_ns=NOW - 5 * WEEK))
    week = (NOW - 5 * WEEK) // WEEK
    retention = Retention(max_age=timedelta(days=7))
    with (
        psycopg.connect(url) as reader,
        open_store(url, clock=lambda: NOW, retention=retention, timeout=3) as store,
        caplog.at_level(logging.WARNING),
    ):
        reader.execute(f"SELECT count(*) FROM goldspan.runs_week_{week}")
        store.submit(evaluated("new", start_ns=NOW))
        assert "cannot apply the retention" in caplog.text
        assert store.run("new") is not None
        reader.rollback()
        assert store.prune() == 1


def test_a_maximum_size_drops_the_oldest_weeks_and_keeps_the_newest(url: str) -> None:
    with open_store(url, clock=lambda: NOW, retention=Retention(max_bytes=1)) as store:
        for ago in (3, 2, 1, 0):
            store.submit(evaluated(f"{ago} weeks", start_ns=NOW - ago * WEEK))
        store.prune()
        assert [run.run_id for run in store.iter_runs()] == ["0 weeks"]
    with open_store(url, clock=lambda: NOW, retention=Retention(max_bytes=2**40)) as store:
        assert store.prune() == 0


def test_a_damaged_store_is_reported(url: str) -> None:
    with open_store(url, clock=lambda: NOW) as store:
        store.submit_many([evaluated("a"), evaluated("b")])
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DELETE FROM goldspan.evaluations WHERE run_id = 'a'")
            connection.execute("DELETE FROM goldspan.run_counts WHERE grain = 2")
        with pytest.raises(StoreError, match=r"damaged: the counts of days differ .*; runs have no current evaluation"):
            store.check()


# --- counts of hours and days -----------------------------------------------------------------------------------------


def test_counts_and_pages_over_weeks_equal_those_of_sqlite(url: str, tmp_path: Path) -> None:
    draw = random.Random(3)
    runs = []
    for number in range(900):
        tools = draw.choices(("find_order", "refund", "search"), k=draw.randint(0, 3))
        start_ns = NOW - draw.choice((draw.randrange(60 * DAY), draw.randrange(60) * DAY, draw.randrange(3 * DAY)))
        runs.append(
            evaluated(
                f"run-{number % 850}", golden=draw.choice((GOLDEN, None)), revision=1 + number // 850,
                start_ns=start_ns, agent=draw.choice(("a", "b", None)), tool_calls=tuple(map(ToolCall, tools)),
                session_id=draw.choice(("s", None)),
            )
        )  # fmt: skip
    times = [NOW - 60 * DAY, NOW - 9 * DAY, NOW - 9 * DAY + 1, NOW - 3 * DAY - 12_345, NOW - 3 * DAY + 7 * 10**11, NOW]
    filters = [
        RunFilter(**fields, since_ns=since, until_ns=until)
        for fields in (
            {},
            {"agent": "a"},
            {"verdict": "fail", "golden": "refund"},
            {"tool": "search"},
            {"session_id": "s"},
        )
        for since, until in ((None, None), *itertools.combinations(times, 2), (times[3], None), (None, times[1]))
    ]
    with open_store(url, clock=lambda: NOW) as one, open_store(tmp_path / "s.db", clock=lambda: NOW) as other:
        for store in (one, other):
            for begin in range(0, len(runs), 90):
                store.submit_many(runs[begin : begin + 90])
            store.delete_runs([f"run-{number}" for number in range(0, 850, 9)])
        one.check()
        for wanted in filters:
            assert one.count(wanted) == other.count(wanted)
            assert one.count_by("agent", wanted) == other.count_by("agent", wanted)
            assert one.tool_counts(wanted) == other.tool_counts(wanted)
            assert one.substitutions(wanted) == other.substitutions(wanted)
            for buckets in (1, 7, 40, 333):
                assert one.trend(wanted, buckets=buckets) == other.trend(wanted, buckets=buckets)
        for wanted in filters[::3]:
            assert _pages(one, wanted, 40) == _pages(other, wanted, 40)


def _pages(store: Store, wanted: RunFilter, limit: int) -> list[list[str]]:
    pages, cursor = [], None
    while True:
        page = store.runs(wanted, limit=limit, cursor=cursor)
        pages.append([run.run_id for run in page.items])
        cursor = page.next_cursor
        if cursor is None:
            return pages


# --- texts ------------------------------------------------------------------------------------------------------------


def test_texts_that_an_index_cannot_hold_are_found_all_the_same(url: str) -> None:
    long = "ü" * 3000
    evaluation = evaluated(long, session_id=long, agent=long, tool_calls=(ToolCall(long), ToolCall("find_order")))
    with open_store(url, clock=lambda: NOW) as store:
        store.submit_many([evaluation, evaluated("short")])
        for wanted in (
            RunFilter(session_id=long),
            RunFilter(agent=long),
            RunFilter(trace_id=long),
            RunFilter(tool=long),
        ):
            (found,) = store.runs(wanted).items
            assert found.current.document["run_id"] == long
        assert store.current_revision(long) == (1, evaluation.digest)
        assert store.run(found.run_id) == found
        assert store.delete_runs([long]) == 1


# --- URLs and passwords -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("postgresql://me:pass@host:1/db", "postgresql://me@host:1/db"),
        ("postgres://me:p@ss/w:rd@host/db?sslmode=require", "postgres://me@host/db?sslmode=require"),
        ("postgresql:///db?host=/run&password=pass&user=me", "postgresql:///db?host=/run&password=***&user=me"),
        ("postgresql://host?sslpassword=pass", "postgresql://host?sslpassword=***"),
        ("goldspan-data/postgres.db", "goldspan-data/postgres.db"),
    ],
)
def test_a_location_is_shown_without_its_password(location: str, shown: str) -> None:
    assert redacted_location(location) == shown
    assert is_store_url(location) == location.startswith("postgres")


@pytest.mark.parametrize(
    ("replaced", "told"),
    [
        (("/test", "/no_such_"), r"the server cannot be reached|database \"no_such_\d+\" does not exist"),
        (("127.0.0.1", "no-such-host.invalid"), "the server cannot be reached"),
        (("postgres:secret", "nobody:secret"), r"role \"nobody\" does not exist"),
    ],
)
def test_an_error_never_contains_the_password(
    url: str, replaced: tuple[str, str], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(StoreError, match=told) as raised:
        open_store(url.replace(*replaced), timeout=0.2)
    chain: BaseException | None = raised.value
    while chain is not None:
        assert "secret" not in str(chain)
        chain = chain.__cause__ or chain.__context__
    assert "secret" not in caplog.text


def test_an_invalid_url_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConfigurationError, match=r"^postgresql://me@host/db\?no_such=1: it is no valid URL") as raised:
        open_store("postgresql://me:secret-word@host/db?no_such=1")
    assert "secret" not in str(raised.value)


def test_libpq_reads_the_password_from_its_variable(postgres_server: PostgresServer, monkeypatch: Any) -> None:
    name = postgres_server.create_database().rpartition("/")[2]
    for variable, value in {"PGPASSWORD": "x", "PGUSER": "postgres", "PGPORT": str(postgres_server.port)}.items():
        monkeypatch.setenv(variable, value)
    with open_store(f"postgresql://127.0.0.1/{name}") as store:
        assert store.location == f"postgresql://127.0.0.1/{name}"


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    program = "import sys; sys.modules['psycopg'] = None; from goldspan.store import open_store; "
    done = subprocess.run(
        [sys.executable, "-c", program + "open_store('postgresql://host/db')"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert re.search(r"pip install 'goldspan\[postgres\]'", done.stderr)
    assert MissingExtraError.__name__ in done.stderr
