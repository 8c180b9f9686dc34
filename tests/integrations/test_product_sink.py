"""`ProductSink` writes, replaces or counts every evaluation, and never makes the application wait."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan import ConfigurationError, Evaluation, Run, _guard, evaluate
from goldspan.integrations import product_sink
from goldspan.integrations.product_sink import ProductSink
from support.evaluation_builders import evaluation
from support.forked_children import fork, forking
from support.metric_readers import Meter
from support.model_endpoint import Hanging, Reply, raw
from support.product_server import Answer, ProductServer, Request, ScoreTable, StoredRows, failed, product_server

PATIENCE = 60
"""Timeout in seconds that is reached only if a test fails."""


class Harness:
    """A sink, its product and its counter."""

    def __init__(self, server: ProductServer, **options) -> None:
        self.server = server
        self.meter = Meter()
        self.sink = ProductSink(ScoreTable(server.url), meter_provider=self.meter.provider, **options)

    @property
    def dropped(self) -> int:
        return self.meter.counts("goldspan.sink.dropped", "goldspan.sink").get(("table",), 0)

    def settle(self) -> None:
        """Wait until the sink holds nothing."""
        until = time.monotonic() + PATIENCE
        while not self.sink.force_flush(1000):
            assert time.monotonic() < until
            time.sleep(0.002)

    def wait_for(self, condition: Callable[[], object]) -> None:
        until = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < until
            time.sleep(0.002)


@contextmanager
def sinking(answer: Answer, **options) -> Iterator[Harness]:
    with product_server(answer) as server:
        harness = Harness(server, **options)
        try:
            yield harness
        finally:
            harness.sink.shutdown(2000)


def revised(number: int, revision: int) -> Evaluation:
    return replace(evaluation(number), revision=revision)


def run_id(number: int) -> str:
    return evaluation(number).run.run_id


steps = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 6)),
    st.tuples(st.just("submit many"), st.lists(st.integers(1, 6), max_size=6)),
    st.tuples(st.just("wait"), st.just(0)),
)


@given(
    steps=st.lists(steps, max_size=12),
    script=st.lists(st.sampled_from(["accept", "half", "hang up", "401", "429", "503"]), max_size=8),
    refused=st.sets(st.integers(1, 6), max_size=2),
    late=st.sets(st.integers(1, 6), max_size=2),
)
def test_every_evaluation_is_written_replaced_or_counted(steps, script, refused, late):
    rows, left = StoredRows(), list(script)
    unknown = {run_id(number): 2 for number in late}

    def answer(request: Request) -> Reply:
        step = left.pop(0) if left else "accept"
        ids = request.body["rows"].keys()
        if step.isdigit():
            return failed(int(step), retry_after="0.001" if step == "429" else None)
        if step == "hang up":
            return Hanging(0)
        if any(run_id(number) in ids for number in refused):
            return failed(422)
        for each in ids & unknown.keys():
            unknown[each] -= 1
            if unknown[each] >= 0:
                return failed(404)
        reply = rows.store(request)
        return raw(b"{", headers={"content-length": "2"}) if step == "half" else reply

    submitted: dict[int, int] = {}
    with sinking(answer) as harness:
        for kind, argument in steps:
            if kind == "wait":
                time.sleep(0.003)
                continue
            numbers = [argument] if kind == "submit" else argument
            evaluations = []
            for number in numbers:
                submitted[number] = submitted.get(number, 0) + 1
                evaluations.append(revised(number, submitted[number]))
            if kind == "submit":
                harness.sink.submit(evaluations[0])
            else:
                harness.sink.submit_many(evaluations)
        harness.settle()
        refused_submitted = sum(count for number, count in submitted.items() if number in refused)
        assert rows.revisions == {run_id(number): last for number, last in submitted.items() if number not in refused}
        # An earlier revision of a refused run may be replaced before it is sent.
        assert len(refused & submitted.keys()) <= harness.dropped <= refused_submitted


def test_everything_held_arrives_once_after_an_outage():
    rows = StoredRows()
    with sinking(lambda _: failed(503), max_queue=100) as harness:
        harness.sink.submit_many([evaluation(number) for number in range(1, 151)])
        assert harness.dropped == 50
        harness.sink.submit(evaluation(151))
        assert harness.dropped == 51
        harness.wait_for(lambda: len(harness.server.received) > 3)
        assert not rows.revisions
        harness.server.answer = rows.store
        before = len(harness.server.received)
        harness.settle()
        stored = [each for request in harness.server.received[before:] for each in request.body["rows"]]
    assert sorted(stored) == sorted(run_id(number) for number in range(1, 101))
    assert harness.dropped == 51


def test_the_queue_holds_no_more_while_a_request_is_on_its_way():
    with sinking(lambda _: Hanging(PATIENCE), max_queue=10) as harness:
        harness.sink.submit_many([evaluation(number) for number in range(1, 11)])
        harness.wait_for(lambda: harness.server.received)
        harness.sink.submit(evaluation(11))
        assert harness.dropped == 1
        harness.sink.shutdown(50)
        assert harness.dropped == 11


def test_submit_does_not_wait_for_a_silent_product():
    released = threading.Event()

    def answer(request: Request) -> Reply:
        assert released.wait(PATIENCE)
        return StoredRows().store(request)

    with sinking(answer) as harness:
        harness.sink.submit(evaluation(1))
        harness.wait_for(lambda: harness.server.received)
        for number in range(2, 1000):
            harness.sink.submit(evaluation(number))  # would never return if it waited for the reply
        assert len(harness.server.received) == 1
        released.set()
        harness.settle()


def test_submit_does_not_wake_the_thread_during_a_pause(monkeypatch):
    monkeypatch.setattr("goldspan.integrations.score_delivery._FIRST_PAUSE_SECONDS", 60)
    monkeypatch.setattr("goldspan.integrations.score_delivery._MAX_PAUSE_SECONDS", 60)
    monkeypatch.setattr("random.random", lambda: 1.0)
    with sinking(lambda _: failed(503, retry_after="60")) as harness:
        harness.sink.submit(evaluation(1))
        harness.wait_for(lambda: harness.sink._paused_until > time.monotonic())
        woken = []
        notify = harness.sink._has_work.notify
        monkeypatch.setattr(harness.sink._has_work, "notify", lambda: (woken.append(1), notify()))
        for number in range(2, 100):
            harness.sink.submit(evaluation(number))
        assert not woken


def test_a_later_revision_replaces_an_earlier_one_in_the_queue():
    rows = StoredRows()
    with sinking(lambda _: failed(503)) as harness:
        harness.sink.submit(revised(1, 1))
        harness.wait_for(lambda: harness.server.received)
        harness.sink.submit_many([revised(1, 2), revised(1, 3)])
        harness.server.answer = rows.store
        before = len(harness.server.received)
        harness.settle()
        sent = [request.body["rows"] for request in harness.server.received[before:]]
    assert sent[-1] == {run_id(1): 3}
    assert {run_id(1): 2} not in sent
    assert harness.dropped == 0


def test_an_earlier_revision_that_is_submitted_later_is_not_written(monkeypatch):
    monkeypatch.setattr(product_sink, "_MAX_REMEMBERED_RUNS", 2)
    rows = StoredRows()
    with sinking(rows.store) as harness:
        for number, revision in ((1, 3), (1, 2), (2, 1), (1, 1), (3, 1), (3, 1)):
            harness.sink.submit(revised(number, revision))
            harness.settle()
        assert len(harness.sink._sent_revisions) == 2
    assert rows.revisions == {run_id(1): 3, run_id(2): 1, run_id(3): 1}
    assert harness.dropped == 0


def test_a_run_without_a_trace_is_neither_written_nor_dropped():
    rows = StoredRows()
    with sinking(rows.store) as harness:
        harness.sink.submit_many([evaluate(Run("case"), ["search"]), evaluation(1)])
        harness.settle()
    assert rows.revisions == {run_id(1): 1}
    assert harness.dropped == 0


def test_scores_that_arrive_before_their_spans_are_repeated():
    rows, known = StoredRows(), threading.Event()
    with sinking(lambda got: rows.store(got) if known.is_set() else failed(404)) as harness:
        harness.sink.submit(evaluation(1))
        harness.wait_for(lambda: len(harness.server.received) >= 2)
        known.set()
        harness.settle()
    assert rows.revisions == {run_id(1): 1}


def test_a_run_whose_trace_never_arrives_is_dropped_and_logged(monkeypatch, caplog):
    monkeypatch.setattr(product_sink, "UNKNOWN_TRACE_SECONDS", 0.05)
    with sinking(lambda _: failed(404, "no such span")) as harness:
        harness.sink.submit_many([evaluation(1), evaluation(2)])
        harness.wait_for(lambda: harness.dropped == 2)
    messages = [record.getMessage() for record in caplog.records if "its trace did not arrive" in record.getMessage()]
    reply = "table answered 404 to POST /rows: no such span"
    assert messages == [f"scores of a run were not written to table: its trace did not arrive: {reply}"]


def test_a_flush_gives_up_on_an_unknown_trace_before_the_timeout():
    with sinking(lambda _: failed(404)) as harness:
        harness.sink.submit(evaluation(1))
        assert harness.sink.force_flush(PATIENCE * 1000) is False
        assert len(harness.server.received) >= 2  # it repeats the run meanwhile
        harness.sink.shutdown(PATIENCE * 1000)
        assert harness.dropped == 1


@pytest.mark.parametrize("status", [401, 500])
def test_a_flush_does_not_wait_for_a_product_that_is_down(status, monkeypatch):
    for name in ("FIRST", "MISCONFIGURED", "MAX"):
        monkeypatch.setattr(f"goldspan.integrations.score_delivery._{name}_PAUSE_SECONDS", PATIENCE * 1000)
    with sinking(lambda _: failed(status)) as harness:
        harness.sink.submit(evaluation(1))
        assert harness.sink.force_flush(PATIENCE * 1000) is False
        assert harness.sink.force_flush(PATIENCE * 1000) is False
        assert len(harness.server.received) == 1


def test_a_flush_waits_for_a_pause_that_ends_in_time():
    rows, answers = StoredRows(), [failed(429, retry_after="0.05")]
    with sinking(lambda got: answers.pop() if answers else rows.store(got)) as harness:
        harness.sink.submit(evaluation(1))
        assert harness.sink.force_flush(PATIENCE * 1000) is True
        assert rows.revisions == {run_id(1): 1}
        answers.append(failed(429, retry_after="600"))
        harness.sink.submit(evaluation(2))
        assert harness.sink.force_flush(PATIENCE * 1000) is False


def test_a_flush_of_an_empty_sink_succeeds_at_once():
    with sinking(lambda _: failed(500)) as harness:
        assert harness.sink.force_flush(0) is True


def test_a_shutdown_writes_what_is_queued():
    rows = StoredRows()
    with sinking(rows.store) as harness:
        harness.sink.submit_many([evaluation(number) for number in range(1, 51)])
        harness.sink.shutdown()
        assert len(rows.revisions) == 50
        assert not any(thread.name == "goldspan table" for thread in threading.enumerate())
        harness.sink.submit(evaluation(51))
        harness.sink.shutdown()
    assert harness.dropped == 1
    assert run_id(51) not in rows.revisions


def test_a_shutdown_tries_a_product_that_is_down_once_more(monkeypatch, caplog):
    for name in ("FIRST", "MAX"):
        monkeypatch.setattr(f"goldspan.integrations.score_delivery._{name}_PAUSE_SECONDS", PATIENCE * 1000)
    with sinking(lambda _: failed(500)) as harness:
        harness.sink.submit_many([evaluation(1), evaluation(2)])
        harness.wait_for(lambda: harness.sink._is_failing)
        harness.sink.shutdown(PATIENCE * 1000)
        assert len(harness.server.received) == 2
        assert harness.dropped == 2
    assert "table: 2 evaluations could not be written before the end" in caplog.messages


def test_a_shutdown_counts_only_what_was_not_written():
    rows = StoredRows()
    released = threading.Event()

    def answer(request: Request) -> Reply:
        if len(rows.revisions) >= 8:
            released.wait(PATIENCE)
            return Hanging(0)
        return rows.store(request)

    with sinking(answer) as harness:
        harness.sink.submit_many([evaluation(number) for number in range(1, 21)])
        harness.wait_for(lambda: len(harness.server.received) == 3)
        harness.sink.shutdown(50)
        assert harness.dropped == 12
        released.set()
        harness.wait_for(lambda: not any(thread.name == "goldspan table" for thread in threading.enumerate()))
        assert harness.dropped == 12
    assert len(rows.revisions) == 8


def test_an_evaluation_that_cannot_be_described_costs_only_itself(monkeypatch):
    monkeypatch.delenv("GOLDSPAN_STRICT")
    rows = StoredRows()
    broken = replace(evaluation(2), scores=None)
    with sinking(rows.store) as harness:
        harness.sink.submit_many([evaluation(1), broken, evaluation(3)])
        harness.settle()
    assert rows.revisions.keys() == {run_id(1), run_id(3)}
    assert harness.dropped == 1
    assert _guard.failure_counts["describe an evaluation for table"] == 1


def test_an_error_of_the_delivery_does_not_end_the_thread(monkeypatch):
    rows = StoredRows()
    with sinking(rows.store) as harness:
        deliver = harness.sink._delivery.deliver_parts
        errors = [MemoryError()]

        def fail_once(runs):
            if errors:
                raise errors.pop()
            return deliver(runs)

        monkeypatch.setattr(harness.sink._delivery, "deliver_parts", fail_once)
        harness.sink.submit(evaluation(1))
        harness.settle()
        harness.sink.submit(evaluation(2))
        harness.settle()
    assert rows.revisions == {run_id(2): 1}
    assert harness.dropped == 1


def test_a_run_on_which_the_product_fails_does_not_block_the_others():
    rows = StoredRows()
    with sinking(lambda got: failed(500) if run_id(1) in got.body["rows"] else rows.store(got)) as harness:
        harness.sink.submit(evaluation(1))
        submitted = 1
        until = time.monotonic() + PATIENCE
        while harness.dropped == 0 and time.monotonic() < until:
            submitted += 1
            harness.sink.submit(evaluation(submitted))
            time.sleep(0.002)
        harness.settle()
    assert harness.dropped == 1
    assert rows.revisions.keys() == {run_id(number) for number in range(2, submitted + 1)}


def test_evaluations_are_counted_although_no_thread_can_start(monkeypatch):
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with sinking(lambda _: failed(500), max_queue=2) as harness:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            harness.sink.submit_many([evaluation(number) for number in range(1, 4)])
        assert harness.dropped == 1
        monkeypatch.undo()
        harness.sink.shutdown()
        assert harness.dropped == 3


def test_a_refused_run_is_logged_rarely(caplog):
    with sinking(lambda _: failed(422, "wrong")) as harness, caplog.at_level(logging.ERROR, "goldspan"):
        harness.sink.submit_many([evaluation(number) for number in range(1, 11)])
        harness.settle()
    assert harness.dropped == 10
    assert caplog.messages == ["scores of a run were not written to table: table answered 422 to POST /rows: wrong"]


@forking
def test_a_forked_child_has_a_queue_and_connections_of_its_own():
    rows = StoredRows()
    with sinking(lambda _: failed(503)) as harness:
        harness.sink.submit(evaluation(1))
        harness.wait_for(lambda: harness.server.received)

        def check() -> bool:
            harness.sink.submit(evaluation(2))
            until = time.monotonic() + PATIENCE
            while not harness.sink.force_flush(1000) and time.monotonic() < until:
                time.sleep(0.01)
            return os.getpid() != parent and harness.sink.force_flush(0)

        parent = os.getpid()
        held = fork(check)
        harness.server.answer = rows.store
        assert held()
        harness.settle()
        stored = [each for request in harness.server.received for each in request.body["rows"]]
    assert rows.revisions == {run_id(1): 1, run_id(2): 1}
    assert stored.count(run_id(2)) >= 1
    assert harness.dropped == 0


def test_a_wrong_size_of_the_queue_is_a_configuration_error():
    with pytest.raises(ConfigurationError, match="max_queue must be at least 1, not 0"):
        ProductSink(ScoreTable("http://localhost"), max_queue=0)
