"""Configures workers that score a Kafka topic, and compares their results with those of `goldspan score`."""

from __future__ import annotations

import json
import random
import re
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from goldspan.store import open_store
from support.gateway_process import Gateway, eventually
from support.kafka_broker import Broker
from support.kafka_runs import GOLDENS, TraceMessages, comparable, scored_by_command, trace_messages


def configure(
    folder: Path, broker: Broker, name: str, extra: str = "", *, idle: float = 120, late: float = 60, **kafka: Any
) -> Path:
    """Write the settings of a worker whose topics and group begin with the name of the test.

    A worker that takes a partition over knows no runs of the other's store. The default of `idle` thus exceeds any
    pause of the tests: no trace is scored without its root span before a rebalance.
    """
    folder.mkdir(exist_ok=True)
    (folder / "goldens.yaml").write_text(GOLDENS, encoding="utf-8")
    section = {
        "brokers": broker.address,
        "topic": name,
        "keyed_topic": f"{name}-keyed",
        "results_topic": f"{name}-results",
        "group": name,
        "options": {"session.timeout.ms": 3000, "heartbeat.interval.ms": 500},
        **kafka,
    }
    (folder / "goldspan.yaml").write_text(
        f"goldens: [goldens.yaml]\ngrace: 0.5\nidle: {idle}\nlate: {late}\nunits: [request]\n"
        f"{extra}kafka: {json.dumps(section)}\n",
        encoding="utf-8",
    )
    return folder


def traces(count: int, seed: int = 1, **options: Any) -> list[TraceMessages]:
    draw = random.Random(seed)
    return [trace_messages(number, draw, **options) for number in range(count)]


def results(broker: Broker, name: str) -> dict[str, dict[str, Any]]:
    """Return the last document of each run in the topic of the results."""
    topic = f"{name}-results"
    if not broker.partitions_of(topic):
        return {}
    return {key: json.loads(value) for key, value in broker.latest(topic).items()}


def assert_scored_like_the_command(
    broker: Broker, name: str, made: Sequence[TraceMessages], folder: Path, gateways: Sequence[Gateway]
) -> None:
    """Wait until the topic of the results has what `goldspan score` prints of the same spans, field by field."""
    expected = {run_id: comparable(each) for run_id, each in scored_by_command(made, folder).items()}

    def wrong() -> dict[str, Any]:
        found = {run_id: comparable(each) for run_id, each in results(broker, name).items()}
        return {
            run_id: (found.get(run_id), expected.get(run_id))
            for run_id in found.keys() | expected.keys()
            if found.get(run_id) != expected.get(run_id)
        }

    def complaint() -> str:
        logs = "\n".join(gateway.log for gateway in gateways)
        return f"{len(wrong())} differ: {list(wrong().items())[:2]}\n{logs}"

    eventually(lambda: not wrong(), complaint)


def revisions(folder: Path) -> dict[str, list[int]]:
    """Return the revisions of each run in the store of a worker."""
    with open_store(folder / "data" / "goldspan.db", read_only=True) as store:
        return {run.run_id: [each.revision for each in store.evaluations(run.run_id)] for run in store.iter_runs()}


def metric(gateway: Gateway, name: str) -> float:
    """Return the sum of the samples of a metric at `/metrics`."""
    _, body = gateway._ask(urllib.request.Request(f"{gateway.address}/metrics"))
    found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", body.decode(), flags=re.MULTILINE)
    return sum(map(float, found))
