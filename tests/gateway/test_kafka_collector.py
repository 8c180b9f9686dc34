"""A real OpenTelemetry Collector writes spans to a real Kafka broker with the file of deploy/kafka/."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from recipes.environments import COLLECTOR, KAFKA, is_built
from support.collector_process import collecting
from support.gateway_process import serving
from support.kafka_broker import brokering
from support.kafka_checks import assert_scored_like_the_command, configure, traces

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not (is_built(COLLECTOR) and is_built(KAFKA)), reason="the Collector and Kafka need environments: make recipes"
    ),
]


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("encoding", ["otlp_proto", "otlp_json"])
def test_what_the_collector_writes_to_kafka_is_scored_like_the_command(
    encoding: str, keyed: bool, tmp_path: Path
) -> None:
    made = traces(60)
    with brokering(tmp_path / "kafka") as broker:
        broker.create_topic("collected", 3)
        to_kafka = {
            "brokers": [broker.address],
            "partition_traces_by_id": keyed,
            "traces": {"topic": "collected", "encoding": encoding},
        }
        worker = configure(tmp_path / "worker", broker, "collected", keyed=keyed)
        with (
            serving(worker) as gateway,
            collecting("kafka/collector.yaml", tmp_path / "collector", {"exporters": {"kafka": to_kafka}}) as collector,
        ):
            for start in range(0, len(made), 10):
                some = made[start : start + 10]
                _post(collector.http_port, b"".join(trace.whole for trace in some))
            assert_scored_like_the_command(broker, "collected", made, tmp_path, [gateway])
        keys = {message.key() for message in broker.read_all("collected")}
    assert keys == ({trace.key.encode() for trace in made} if keyed else {None})


def _post(port: int, body: bytes) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/traces", body, {"Content-Type": "application/x-protobuf"}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        assert answer.status == 200
