"""Three workers and twelve partitions: kills, rebalances, a broker restart, duplicates, disorder and late spans.

Every run must be scored as `goldspan score` scores the same spans, field by field.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from goldspan.store import open_store
from recipes.environments import KAFKA, is_built
from support.gateway_process import Gateway, eventually
from support.kafka_broker import Broker
from support.kafka_runs import GOLDENS, TraceMessages, comparable, interleaved, scored_by_command, trace_messages
from support.postgres_server import PostgresServer

pytestmark = [
    pytest.mark.stress,
    pytest.mark.needs("postgres", "initdb"),
    pytest.mark.skipif(not is_built(KAFKA), reason="the Kafka broker needs its environment: make recipes"),
]

SHARE = float(os.environ.get("STRESS", "1"))
SPANS = max(5_000, round(1_000_000 * SHARE))
KILLS = max(4, round(30 * SHARE))
"""Kills of a random worker; `STRESS=0.1` reduces spans and kills to a tenth."""
WORKERS, PARTITIONS = 3, 12
STORES = ("sqlite", "postgresql") if SHARE >= 0.05 else ("postgresql",)
"""The workers share a store in PostgreSQL, or each has one in SQLite, which a short run leaves out."""
LATE_SHARE = 0.02
TRACES_PER_COMMAND = 20_000
"""Traces that one call of `goldspan score` reads, because it needs memory in proportion."""


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The URL of an empty store for all workers; `None` if each has its own."""
    if request.param == "sqlite":
        yield None
        return
    server = PostgresServer()
    yield server.create_database()
    server.remove()


def test_every_run_is_scored_like_the_command_despite_kills_and_rebalances(
    store_url: str | None, tmp_path: Path
) -> None:
    draw = random.Random(26)
    made = _traces(draw)
    chunks = _chunks(made, draw, KILLS + 1)
    broker = Broker(tmp_path / "kafka")
    workers = [_worker(tmp_path / f"worker-{number}", broker, number, store_url) for number in range(WORKERS)]
    began = time.monotonic()
    try:
        broker.start()
        broker.create_topic("otlp_spans", PARTITIONS)
        with _results(broker) as found:
            for worker in workers:
                worker.start("/healthz")
            for number, chunk in enumerate(chunks):
                broker.send("otlp_spans", chunk, compression_type="lz4")
                if number == KILLS:
                    break
                if number == KILLS // 2:
                    broker.stop()
                    broker.start()
                time.sleep(draw.uniform(0.0, 3.0))
                victim = draw.choice(workers)
                victim.kill()
                time.sleep(draw.choice((0.0, 0.0, 8.0)))  # 8 s: the others take its partitions over
                victim.start("/healthz")
            produced = time.monotonic() - began
            expected = _expected(made, tmp_path)
            logs = [worker.log for worker in workers]
            eventually(lambda: found == expected, lambda: _difference(found, expected, made) + logs[0][-3000:], 900)
            took = time.monotonic() - began
            time.sleep(5)
            assert found == expected, "a run was evaluated again, with another result"
        for worker in workers:
            assert worker.stop() == 0, worker.log
            assert "Traceback" not in worker.log, worker.log
    finally:
        for worker in workers:
            worker.kill()
        broker.kill()
    _check_stores([store_url] if store_url else [worker.data / "goldspan.db" for worker in workers], expected)
    print(
        f"\n{sum(trace.span_count for trace in made)} spans in {sum(map(len, chunks))} messages, {len(made)} runs; "
        f"{KILLS} kills, one restart of the broker; produced in {produced:.0f} s, all scored after {took:.0f} s",
        flush=True,
    )


def _traces(draw: random.Random) -> list[TraceMessages]:
    made: list[TraceMessages] = []
    spans = 0
    while spans < SPANS:
        made.append(trace_messages(len(made), draw, json_share=0.1))
        spans += made[-1].span_count
    return made


def _chunks(made: Sequence[TraceMessages], draw: random.Random, count: int) -> list[list[tuple[str, bytes]]]:
    """Divide the messages over the kills. The last messages of some traces come a chunk later than the others."""
    messages = interleaved(made, draw)
    late_keys = {trace.key for trace in made if draw.random() < LATE_SHARE}
    size = -(-len(messages) // count)
    chunks: list[list[tuple[str, bytes]]] = []
    delayed: list[tuple[str, bytes]] = []
    for start in range(0, len(messages), size):
        now, delayed_before = [], delayed
        delayed = []
        seen: set[str] = set()
        for message in messages[start : start + size]:
            if message[0] in late_keys and message[0] in seen:
                delayed.append(message)
            else:
                now.append(message)
            seen.add(message[0])
        chunks.append(delayed_before + now)
    chunks[-1] += delayed
    return chunks


def _worker(folder: Path, broker: Broker, number: int, store_url: str | None) -> Gateway:
    folder.mkdir()
    (folder / "goldens.yaml").write_text(GOLDENS, encoding="utf-8")
    kafka = {
        "brokers": broker.address,
        "instance_id": f"worker-{number}",
        "options": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000},
    }
    (folder / "goldspan.yaml").write_text(
        "goldens: [goldens.yaml]\ngrace: 2\nidle: 120\nlate: 60\nunits: [request]\ndrain_seconds: 60\n"
        f"kafka: {json.dumps(kafka)}\n" + (f"store: {store_url}\n" if store_url else ""),
        encoding="utf-8",
    )
    return Gateway(folder, ())


@contextmanager
def _results(broker: Broker) -> Iterator[dict[str, bytes]]:
    """Yield the checksum of the current document of each run, which a thread reads from the topic of the results."""
    found: dict[str, bytes] = {}
    until = threading.Event()

    def follow() -> None:
        consumer = Consumer(
            {"bootstrap.servers": broker.address, "group.id": "follower", "auto.offset.reset": "earliest",
             "topic.metadata.refresh.interval.ms": 1000, "log_level": 0}
        )  # fmt: skip
        consumer.subscribe(["goldspan_evaluations"])
        while not until.is_set():
            for message in consumer.consume(1000, 0.5):
                if message.error() is not None:
                    continue
                key, value = message.key().decode(), message.value()
                if value is None:
                    found.pop(key, None)
                else:
                    found[key] = _checksum(json.loads(value))
        consumer.close()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        until.set()
        thread.join(30)


def _checksum(document: dict[str, Any]) -> bytes:
    return sha256(json.dumps(comparable(document), sort_keys=True).encode()).digest()


def _expected(made: Sequence[TraceMessages], folder: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for start in range(0, len(made), TRACES_PER_COMMAND):
        documents = scored_by_command(made[start : start + TRACES_PER_COMMAND], folder)
        found |= {run_id: _checksum(document) for run_id, document in documents.items()}
    return found


def _difference(found: dict[str, bytes], expected: dict[str, bytes], made: Sequence[TraceMessages]) -> str:
    missing = [run_id for run_id in expected if run_id not in found]
    surplus = [run_id for run_id in found if run_id not in expected]
    other = [run_id for run_id in expected if run_id in found and found[run_id] != expected[run_id]]
    return f"{len(made)} runs; missing {len(missing)} {missing[:3]}, surplus {len(surplus)} {surplus[:3]}, \
        different {len(other)} {other[:3]}"


def _check_stores(stores: Sequence[Path | str], expected: dict[str, bytes]) -> None:
    """Assert that no store has a revision twice, and that each run is in one of the stores as it is in the topic."""
    matching: set[str] = set()
    for place in stores:
        with open_store(place, read_only=True) as store:
            store.check()
            for run in store.iter_runs():
                numbers = [evaluation.revision for evaluation in store.evaluations(run.run_id)]
                assert len(set(numbers)) == len(numbers)
                if run.run_id in expected:
                    matching.add(run.run_id)
    assert matching == set(expected)
