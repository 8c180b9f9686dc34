"""`Backfill` writes every run once, waits for the product, stops as it is told, and continues."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from goldspan import StoreError
from goldspan.integrations import backfill as backfill_module
from goldspan.integrations.backfill import Backfill, BackfillResult, preview
from goldspan.integrations.catalog import CATALOG, create_product
from goldspan.integrations.delivery_log import DeliveryLog
from goldspan.integrations.scored_runs import ScoredRun, scored_run
from integrations.scored_run_strategies import a_run, a_score
from support.evaluation_builders import evaluation
from support.product_server import Answer, ProductServer, ScoreTable, StoredRows, client_of, failed, product_server


def scored(number: int) -> ScoredRun:
    run = scored_run(evaluation(number))
    assert run is not None
    return run


RUNS = [scored(number) for number in range(1, 11)]


class Backfilling:
    """A backfill into a table over real HTTP."""

    def __init__(self, server: ProductServer, backfill: Backfill) -> None:
        self.server = server
        self.backfill = backfill

    @property
    def sizes(self) -> list[int]:
        return [len(request.body["rows"]) for request in self.server.received]

    def write(self, runs: Sequence[ScoredRun | None] = RUNS) -> BackfillResult:
        return self.backfill.write(iter(runs), len(runs))


@contextmanager
def backfilling(
    answer: Answer,
    log: DeliveryLog | None = None,
    *,
    rate: float | None = None,
    give_up_after: float = 5,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Backfilling]:
    with product_server(answer) as server:
        table = ScoreTable(server.url)
        with client_of(table) as client:
            yield Backfilling(
                server,
                Backfill(
                    table,
                    client,
                    log or DeliveryLog(None),
                    rate=rate,
                    give_up_after=give_up_after,
                    is_stopped=is_stopped,
                ),
            )


def test_runs_are_written_in_requests_of_the_size_that_the_product_accepts():
    rows = StoredRows()
    with backfilling(rows.store) as one:
        result = one.write()
        assert one.sizes == [4, 4, 2]
    assert (result.written, result.count, result.is_complete) == (10, 10, True)
    assert rows.revisions.keys() == {run.run_id for run in RUNS}


def test_no_more_runs_are_read_than_one_request_holds():
    read = 0

    def source() -> Iterator[ScoredRun]:
        nonlocal read
        for run in RUNS:
            read += 1
            yield run

    rows = StoredRows()
    with product_server(lambda got: (seen.append(read), rows.store(got))[1]) as server:
        seen: list[int] = []
        table = ScoreTable(server.url)
        with client_of(table) as client:
            Backfill(table, client, DeliveryLog(None), rate=None).write(source(), 10)
    assert seen == [4, 8, 10]


def test_a_run_that_was_written_is_not_written_again(tmp_path):
    rows = StoredRows()
    with product_server(rows.store) as server:
        table = ScoreTable(server.url)
        for _ in range(2):
            with client_of(table) as client, DeliveryLog(tmp_path / "log") as log:
                result = Backfill(table, client, log, rate=None).write(RUNS, 10)
        assert len(server.received) == 3
    assert (result.written, result.unchanged, result.is_complete) == (0, 10, True)


def test_a_later_revision_and_scores_that_differ_are_written_again(tmp_path):
    sent: list[ScoredRun] = []

    class Observed(ScoreTable):
        def requests(self, runs):
            sent.extend(runs)
            return super().requests(runs)

    first = a_run("a", metadata={"goldspan.revision": 1})
    revised = replace(first, revision=3, metadata={"goldspan.revision": 3})
    rescored = replace(revised, revision=1, scores=(a_score("a", "goldspan.passed", 1.0, "pass"),))
    with product_server(lambda got: failed(200)) as server:
        table = Observed(server.url)
        with client_of(table) as client, DeliveryLog(tmp_path / "log") as log:
            for run in (first, first, revised, revised, rescored, rescored):
                Backfill(table, client, log, rate=None).write([run], 1)
    # The product has other scores of the run then, so that it must update them.
    assert [(run.revision, run.scores) for run in sent] == [
        (1, first.scores),
        (3, first.scores),
        (2, rescored.scores),
    ]


def test_what_was_written_is_remembered_for_each_project_and_address(tmp_path):
    environment = {"LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "sk-secret"}
    one = create_product("langfuse:http://a.test", environment)
    same = create_product("langfuse:http://a.test", environment | {"LANGFUSE_SECRET_KEY": "sk-renewed"})
    others = [
        create_product("langfuse:http://b.test", environment),
        create_product("langfuse:http://a.test", environment | {"LANGFUSE_PUBLIC_KEY": "pk-2"}),
        create_product("phoenix:http://a.test", {}),
    ]
    with DeliveryLog(tmp_path / "log") as log:
        log.record(one, [a_run()])
        assert log.is_delivered(same, a_run()) is True
        assert [log.is_delivered(other, a_run()) for other in others] == [None, None, None]
    assert b"secret" not in (tmp_path / "log").read_bytes()


ENVIRONMENT = {
    "PHOENIX_API_KEY": "t0ken-p",
    "MLFLOW_TRACKING_TOKEN": "t0ken-m",
    "LANGFUSE_PUBLIC_KEY": "pk",
    "LANGFUSE_SECRET_KEY": "t0ken-l",
    "LANGSMITH_API_KEY": "t0ken-s",
    "LANGSMITH_PROJECT": "shop",
    "DD_API_KEY": "t0ken-d",
    "DD_SERVICE": "shop",
    "BRAINTRUST_API_KEY": "t0ken-b",
    "BRAINTRUST_PARENT": "project_name:shop",
    "OPIK_API_KEY": "t0ken-o",
    "OPIK_PROJECT_NAME": "shop",
}


@pytest.mark.parametrize("name", CATALOG)
def test_the_destination_of_a_product_has_its_address_and_project_and_no_token(name):
    product = create_product(f"{name}:http://a.test", ENVIRONMENT)
    assert product.destination.startswith("http://a.test")
    assert "t0ken" not in product.destination
    renamed = {key: value.replace("shop", "other") for key, value in ENVIRONMENT.items()}
    has_projects = name in ("langsmith", "datadog", "braintrust", "opik")
    assert (create_product(f"{name}:http://a.test", renamed).destination != product.destination) == has_projects


@pytest.mark.parametrize("name", CATALOG)
def test_a_preview_has_requests_and_no_token(name):
    product = create_product(f"{name}:http://a.test", ENVIRONMENT)
    requests = list(preview(product, DeliveryLog(None), [a_run(), None, a_run("b", revision=2)]))
    assert requests
    assert all(request["url"].startswith("http://a.test/") for request in requests)
    assert {request["method"] for request in requests} <= {"GET", "POST", "PUT", "PATCH", "DELETE"}
    assert "t0ken" not in repr(requests)
    assert "authorization" not in repr(requests).lower()


def test_a_preview_leaves_out_what_was_written(tmp_path):
    table = ScoreTable("http://a.test/")
    with DeliveryLog(tmp_path / "log") as log:
        log.record(table, RUNS[:7])
    with DeliveryLog(tmp_path / "log", read_only=True) as log:
        (request,) = preview(table, log, RUNS)
    assert request == {
        "product": "table",
        "method": "POST",
        "url": "http://a.test/rows",
        "body": {"rows": {run.run_id: 1 for run in RUNS[7:]}},
    }


def test_a_log_that_is_only_read_is_not_created(tmp_path):
    with DeliveryLog(tmp_path / "log", read_only=True) as log:
        assert log.is_delivered(ScoreTable("http://a.test"), a_run()) is None
    assert list(tmp_path.iterdir()) == []


def test_the_database_of_another_program_is_no_log(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE things (id)")
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"other\.db: it is the database of another program; name another file"):
            DeliveryLog(path, read_only=read_only)
    assert path.read_bytes() == before


def test_a_log_that_cannot_be_created_is_an_error_that_names_the_file(tmp_path):
    with pytest.raises(StoreError, match=r"nowhere/log: it cannot be opened"):
        DeliveryLog(tmp_path / "nowhere" / "log")


def test_every_way_of_not_writing_a_run_is_counted_and_named():
    rows = StoredRows()

    def answer(request):
        if RUNS[2].run_id in request.body["rows"]:
            return failed(422, "too long")
        return failed(404) if RUNS[5].run_id in request.body["rows"] else rows.store(request)

    with backfilling(answer) as one:
        result = one.write([*RUNS, None, RUNS[0]])
    assert (result.written, result.refused, result.not_found) == (8, 1, 1)
    assert (result.without_trace, result.unchanged, result.pending, result.count) == (1, 1, 0, 12)
    assert not result.is_complete
    assert [(refusal.run_id, refusal.reason) for refusal in result.refusals] == [
        (RUNS[2].run_id, "table answered 422 to POST /rows: too long")
    ]
    assert result.unknown_runs == [RUNS[5]]


def test_a_result_names_only_the_first_refused_runs():
    with backfilling(lambda _: failed(422)) as one:
        result = one.write()
    assert (result.refused, len(result.refusals)) == (10, 5)


def test_runs_that_were_not_written_are_tried_again_the_next_time():
    rows = StoredRows()
    log = DeliveryLog(None)
    with backfilling(lambda _: failed(422), log) as one:
        one.write()
        one.server.answer = rows.store
        assert one.write().written == 10


def test_two_revisions_of_a_run_in_one_request_are_written_once():
    rows = StoredRows()
    with backfilling(rows.store) as one:
        result = one.write([a_run("a"), a_run("a", revision=2)])
    assert (result.written, result.unchanged, rows.revisions) == (1, 1, {"a": 2})


def test_an_outage_delays_the_runs_and_loses_none():
    rows = StoredRows()
    failures = iter(["500", "429", "503", "429"])

    def answer(request):
        status = next(failures, None)
        return failed(int(status), retry_after="0.01") if status else rows.store(request)

    with backfilling(answer) as one:
        assert one.write().written == 10
    assert rows.revisions.keys() == {run.run_id for run in RUNS}


def test_the_pause_that_the_product_asks_for_is_kept():
    rows = StoredRows()
    at: list[float] = []

    def answer(request):
        at.append(time.monotonic())
        return failed(429, retry_after="0.4") if len(at) == 1 else rows.store(request)

    with backfilling(answer) as one:
        one.write(RUNS[:1])
    assert at[1] - at[0] >= 0.39


def test_a_product_that_accepts_nothing_for_too_long_ends_the_backfill():
    with backfilling(lambda _: failed(500), give_up_after=0.1) as one:
        result = one.write()
    assert (result.written, result.pending, result.stopped_by) == (0, 10, "unavailable")
    assert result.error == "table answered 500 to POST /rows: failed"


def test_a_pause_that_is_longer_than_the_patience_is_not_begun():
    began = time.monotonic()
    with backfilling(lambda _: failed(429, retry_after="100"), give_up_after=10) as one:
        assert one.write().stopped_by == "unavailable"
    assert time.monotonic() - began < 5


def test_each_accepted_run_renews_the_patience(monkeypatch):
    now = 0.0

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now

        @staticmethod
        def sleep(seconds: float) -> None:
            nonlocal now
            now += seconds

    monkeypatch.setattr(backfill_module, "time", Clock)
    rows = StoredRows()
    numbers = iter(range(100))
    answer = lambda got: failed(429, retry_after="6") if next(numbers) % 2 == 0 else rows.store(got)  # noqa: E731
    with backfilling(answer, give_up_after=10) as one:
        result = one.write()
    assert (result.written, result.stopped_by) == (10, None)
    assert now >= 6 * 3


def test_a_wrong_token_ends_the_backfill_at_once():
    with backfilling(lambda _: failed(401)) as one:
        result = one.write()
        assert one.sizes == [4]
    assert (result.pending, result.stopped_by) == (10, "misconfigured")


def test_the_rate_is_an_upper_limit(monkeypatch):
    slept: list[float] = []
    now = 0.0

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now

        @staticmethod
        def sleep(seconds: float) -> None:
            nonlocal now
            slept.append(seconds)
            now += seconds

    monkeypatch.setattr(backfill_module, "time", Clock)
    rows = StoredRows()
    with backfilling(rows.store, rate=2.5) as one:
        one.write()
        assert one.sizes == [2] * 5  # no more than in a second
    assert sum(slept) == pytest.approx(10 / 2.5)
    assert max(slept) <= 0.1  # so that Ctrl-C ends a long pause


def test_a_backfill_that_is_stopped_continues_where_it_stopped(tmp_path: Path):
    rows = StoredRows()
    with DeliveryLog(tmp_path / "log") as log, product_server(rows.store) as server:
        table = ScoreTable(server.url)
        with client_of(table) as client:
            is_stopped = lambda: len(server.received) == 2  # noqa: E731
            first = Backfill(table, client, log, rate=None, is_stopped=is_stopped).write(RUNS, 10)
            second = Backfill(table, client, log, rate=None).write(RUNS, 10)
        sent = [run_id for request in server.received for run_id in request.body["rows"]]
    assert (first.written, first.pending, first.stopped_by) == (8, 2, "interrupted")
    assert (second.written, second.unchanged, second.is_complete) == (2, 8, True)
    assert sorted(sent) == sorted(run.run_id for run in RUNS)


def test_a_stop_ends_the_search_for_runs_that_must_be_written():
    log, read = DeliveryLog(None), 0
    rows = StoredRows()

    def source() -> Iterator[ScoredRun]:
        nonlocal read
        for run in RUNS:
            read += 1
            yield run

    with backfilling(rows.store, log, is_stopped=lambda: read == 3) as one:
        log.record(ScoreTable(one.server.url), RUNS)
        result = one.backfill.write(source(), 10)
        assert one.server.received == []
    assert (result.unchanged, result.pending, result.stopped_by) == (2, 8, "interrupted")


def test_a_stop_ends_a_pause():
    began = time.monotonic()
    is_stopped = lambda: time.monotonic() > began + 0.3  # noqa: E731
    with backfilling(lambda _: failed(429, retry_after="60"), give_up_after=600, is_stopped=is_stopped) as one:
        result = one.write()
    assert result.stopped_by == "interrupted"
    assert result.pending == 10
    assert time.monotonic() - began < 10


def test_a_backfill_of_nothing_is_complete():
    nothing: Iterable[ScoredRun] = ()
    with backfilling(lambda _: failed(500)) as one:
        assert one.write([*nothing]).is_complete
        assert one.server.received == []
