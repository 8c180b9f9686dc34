"""`ScoreDelivery` accounts for every run once, whatever the product answers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan import _guard
from goldspan.integrations.product import ProductRequest
from goldspan.integrations.score_delivery import DeliveryResult, ScoreDelivery
from goldspan.integrations.scored_runs import ScoredRun, scored_run
from support.evaluation_builders import evaluation
from support.model_endpoint import Hanging, Reply, raw
from support.product_server import (
    Answer,
    ProductServer,
    Request,
    ScoreTable,
    StoredRows,
    accepted,
    client_of,
    failed,
    product_server,
)

MAX_ROUNDS = 200


def scored(number: int) -> ScoredRun:
    run = scored_run(evaluation(number))
    assert run is not None
    return run


@contextmanager
def delivering(answer: Answer, *, max_runs: int = 4, of: type[ScoreTable] = ScoreTable) -> Iterator[Delivering]:
    with product_server(answer) as server:
        table = of(server.url, max_runs=max_runs)
        with client_of(table) as client:
            yield Delivering(ScoreDelivery(table, client, random_fraction=lambda: 1.0), server)


class Delivering(NamedTuple):
    scores: ScoreDelivery
    server: ProductServer


def deliver_all(scores: ScoreDelivery, runs: Sequence[ScoredRun]) -> DeliveryResult:
    """Deliver until nothing is pending, without the pauses."""
    total, pending = DeliveryResult(), list(runs)
    for _ in range(MAX_ROUNDS):
        result = scores.deliver(pending)
        assert result.count == len(pending)
        assert (result.failure is not None) == bool(result.pause)
        pending = result.pending
        result.pending = []
        total.add(result)
        if not pending:
            return total
    raise AssertionError(f"{len(pending)} runs are still pending: {result.error}")


def answers(
    script: Iterable[str],
    rows: StoredRows,
    *,
    refused: Iterable[int] = (),
    unknown: Iterable[int] = (),
    most: int = 100,
) -> Answer:
    """Return the answer of a server that follows a script, and accepts afterwards."""
    left = list(script)
    refused_ids = {scored(number).run_id for number in refused}
    unknown_ids = {scored(number).run_id for number in unknown}

    def answer(request: Request) -> Reply:
        ids = set(request.body["rows"])
        step = left.pop(0) if left else "accept"
        if step.isdigit():
            return failed(int(step), retry_after="0.001" if step == "429" else None)
        if step == "hang up":
            return Hanging(0)
        if len(ids) > most:
            return failed(413)
        if ids & refused_ids:
            return failed(422)
        if ids & unknown_ids:
            return failed(404)
        reply = rows.store(request)
        return raw(b"{", headers={"content-length": "2"}) if step == "half" else reply

    return answer


@given(
    script=st.lists(st.sampled_from(["accept", "half", "hang up", "401", "408", "429", "500", "503"]), max_size=12),
    count=st.integers(0, 12),
    refused=st.sets(st.integers(1, 12), max_size=3),
    unknown=st.sets(st.integers(1, 12), max_size=3),
    most=st.integers(1, 4),
)
def test_every_run_is_written_refused_or_unknown(script, count, refused, unknown, most):
    runs = [scored(number) for number in range(1, count + 1)]
    rows = StoredRows()
    answer = answers(script, rows, refused=refused, unknown=unknown, most=most)
    with delivering(answer) as (scores, _):
        total = deliver_all(scores, runs)

    assert total.count == count
    assert total.written_count <= len(rows.revisions)
    lost = {run.run_id for run in runs} - rows.revisions.keys()
    assert len(lost) <= len(total.refused) + len(total.not_found)
    assert {run.run_id for run in total.not_found} <= {scored(number).run_id for number in unknown}


def test_a_refused_request_is_split_until_the_refused_run_is_alone():
    rows = StoredRows()
    answer = answers([], rows, refused=[3])
    with delivering(answer, max_runs=8) as (scores, server):
        result = scores.deliver([scored(number) for number in range(1, 9)])

        assert (result.written_count, len(result.refused)) == (7, 1)
        assert "table answered 422 to POST /rows: failed" in result.refused[0]
        assert len(server.received) <= 7  # 8, 4, 2, 1, 1, 2, 4
    assert scored(3).run_id not in rows.revisions


def test_a_run_that_fails_while_others_are_accepted_is_refused(caplog):
    poison = scored(1).run_id
    rows = StoredRows()
    with delivering(lambda got: failed(500) if poison in got.body["rows"] else rows.store(got)) as (scores, _):
        pending, refused, rounds = [scored(1)], [], 0
        while pending and rounds < 50:  # further runs show that the product works
            rounds += 1
            result = scores.deliver([*pending, scored(rounds + 1)])
            pending, refused = result.pending, refused + result.refused
    assert len(refused) == 1
    assert "table answered 500 to POST /rows: failed (3 times, while it accepted other runs)" in refused[0]
    assert rows.revisions.keys() == {scored(number + 1).run_id for number in range(1, rounds + 1)}
    assert poison not in rows.revisions


def test_no_run_is_refused_because_the_product_is_down():
    with delivering(lambda _: failed(500)) as (scores, _):
        pending = [scored(number) for number in range(1, 4)]
        for _ in range(50):
            result = scores.deliver(pending)
            assert (result.written_count, result.refused, result.not_found) == (0, [], [])
            pending = result.pending
    assert sorted(run.run_id for run in pending) == sorted(scored(number).run_id for number in range(1, 4))


def test_one_run_at_a_time_is_tried_while_the_product_is_down():
    with delivering(lambda _: failed(503)) as (scores, server):
        result = scores.deliver([scored(number) for number in range(1, 9)])
        scores.deliver(result.pending)
        assert [len(got.body["rows"]) for got in server.received] == [4, 1]


@pytest.mark.parametrize(
    ("status", "retry_after", "pause"),
    [(429, "7", 7), (503, "3", 3), (500, None, 1), (401, None, 15), (429, "86400", 600), (429, "soon", 1)],
)
def test_the_pause_is_what_the_product_asks_for(monkeypatch, status, retry_after, pause):
    for name, seconds in (("FIRST", 1), ("MISCONFIGURED", 15), ("MAX", 60)):
        monkeypatch.setattr(f"goldspan.integrations.score_delivery._{name}_PAUSE_SECONDS", seconds)
    with delivering(lambda _: failed(status, retry_after=retry_after)) as (scores, _):
        assert scores.deliver([scored(1)]).pause == pause


def test_the_pause_grows_up_to_a_minute(monkeypatch):
    for name, seconds in (("FIRST", 1), ("MAX", 60)):
        monkeypatch.setattr(f"goldspan.integrations.score_delivery._{name}_PAUSE_SECONDS", seconds)
    with delivering(lambda _: failed(500)) as (scores, _):
        assert [scores.deliver([scored(1)]).pause for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_an_outage_is_logged_once_and_so_is_its_end(caplog):
    rows = StoredRows()
    answer = answers(["500", "500", "401"], rows)
    with delivering(answer) as (scores, _), caplog.at_level(logging.INFO, "goldspan"):
        deliver_all(scores, [scored(1), scored(2)])
    assert [record.getMessage().partition(": ")[0] for record in caplog.records if record.name == "goldspan"] == [
        "scores cannot be written now and are kept",
        "table accepts scores again",
    ]


def test_an_error_in_an_integration_costs_only_the_run_that_causes_it(monkeypatch):
    monkeypatch.delenv("GOLDSPAN_STRICT")
    rows = StoredRows()

    class Faulty(ScoreTable):
        def requests(self, runs: Sequence[ScoredRun]) -> list[ProductRequest]:
            if any(run.run_id == scored(2).run_id for run in runs):
                raise RecursionError("too deep")
            return super().requests(runs)

    with delivering(rows.store, of=Faulty) as (scores, _):
        result = scores.deliver([scored(number) for number in range(1, 5)])
    assert (result.written_count, result.refused) == (3, ["RecursionError in the integration table"])
    assert _guard.failure_counts["write scores to table"] == 1


def test_a_product_can_refuse_some_runs_of_a_request_that_it_accepts():
    class Partial(ScoreTable):
        def write(self, runs, send):
            super().write(runs, send)
            return {runs[1].run_id: "the second run is too old"}

    with delivering(lambda _: accepted(), of=Partial) as (scores, _):
        result = scores.deliver([scored(1), scored(2)])
    assert (result.written_count, result.refused) == (1, ["the second run is too old"])
