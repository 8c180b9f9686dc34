"""Tests of the gateway with a real Kafka broker: what a topic contains is scored as `goldspan score` scores it."""

from __future__ import annotations

import json
import random
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from recipes.environments import KAFKA, is_built
from support.gateway_process import Gateway, eventually, free_port, serving
from support.kafka_broker import Broker, brokering
from support.kafka_checks import assert_scored_like_the_command, configure, metric, results, revisions, traces
from support.kafka_runs import (
    comparable,
    interleaved,
    scored_by_command,
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not is_built(KAFKA), reason="the Kafka broker needs its environment: make recipes"),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with brokering(tmp_path_factory.mktemp("kafka")) as running:
        yield running


# --- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_spans_in_protobuf_and_json_are_scored_like_the_command(
    broker: Broker, tmp_path: Path, compression: str
) -> None:
    name = f"plain-{compression}"
    broker.create_topic(name, 4)
    made = traces(60, json_share=0.5)
    broker.send(name, interleaved(made, random.Random(2)), compression_type=compression)
    with serving(configure(tmp_path, broker, name)) as gateway:
        assert_scored_like_the_command(broker, name, made, tmp_path, [gateway])
        assert metric(gateway, "goldspan_gateway_kafka_messages_total") == sum(len(each.messages) for each in made)
        assert metric(gateway, "goldspan_gateway_kafka_partitions") == 4
        assert metric(gateway, "goldspan_gateway_traces_held") == len(made)  # scored, and kept for late spans
    assert set(revisions(tmp_path)) == set(results(broker, name))


def test_undecodable_messages_are_counted_and_skipped(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("bad", 1)
    made = traces(3)
    bad: list[tuple[str | None, bytes | None]] = [("k", b"no OTLP"), ("k", None), ("k", b"{"), ("k", b"\x0a\xff\xff")]
    broker.send("bad", [*bad, *interleaved(made, random.Random(2)), *bad])
    with serving(configure(tmp_path, broker, "bad")) as gateway:
        assert_scored_like_the_command(broker, "bad", made, tmp_path, [gateway])
        eventually(lambda: metric(gateway, "goldspan_gateway_kafka_undecodable_total") == 8, lambda: gateway.log)
    assert gateway.log.count("cannot decode a message") == 1
    assert "topic bad, partition 0, offset 0: the body is not an OTLP traces request" in gateway.log


def test_late_spans_make_a_revision_although_their_trace_is_no_longer_in_memory(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("late", 2)
    made = traces(20)
    late = [trace for trace in made if len(trace.messages) > 1]
    broker.send("late", [(trace.key, trace.messages[0]) for trace in made])
    with serving(configure(tmp_path, broker, "late", "limits: {max_held_bytes: 1000}\n", idle=2)) as gateway:
        eventually(lambda: len(results(broker, "late")) >= 1, lambda: gateway.log)
        eventually(
            lambda: metric(gateway, "goldspan_gateway_kafka_oldest_open_trace_seconds") == 0, lambda: gateway.log
        )
        broker.send("late", [(trace.key, message) for trace in late for message in trace.messages[1:]])
        assert_scored_like_the_command(broker, "late", made, tmp_path, [gateway])
    assert any(len(numbers) > 1 for numbers in revisions(tmp_path).values())


def test_the_time_in_which_a_worker_scores_a_backlog_is_no_inactivity_of_other_partitions(
    broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("busy", 2)
    *many, split = traces(6000)
    while len(set(split.messages)) < 2:
        split = many.pop()
    first, *others = ((split.key, message) for message in split.messages)
    backlog = [(trace.key, message) for trace in many for message in trace.messages]
    with serving(configure(tmp_path, broker, "busy", idle=2, late=0.5)) as gateway:
        eventually(lambda: metric(gateway, "goldspan_gateway_kafka_partitions") == 2, lambda: gateway.log)
        broker.send("busy", backlog[:-100], partition=0)
        eventually(lambda: metric(gateway, "goldspan_evaluations_total") > 0, lambda: gateway.log)
        broker.send("busy", [first], partition=1)
        taken = len(backlog) - 100 + 1
        eventually(lambda: metric(gateway, "goldspan_gateway_kafka_messages_total") == taken, lambda: gateway.log)
        broker.send("busy", backlog[-100:], partition=0)  # the worker takes few messages while it scores the others
        broker.send("busy", others, partition=1)
        assert_scored_like_the_command(broker, "busy", [*many, split], tmp_path, [gateway])


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_no_offset_is_committed_above_an_open_trace(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("open", 1)
    made = traces(30)
    # A trace is open as long as its root, the agent, is missing.
    divided = next(trace for trace in made if len(trace.messages) == 2 and b"invoke_agent" not in trace.messages[0])
    others = [trace for trace in made if trace is not divided]
    broker.send("open", interleaved(others[:10], random.Random(1)))
    before = broker.size("open")
    broker.send("open", [(divided.key, divided.messages[0]), *interleaved(others[10:], random.Random(1))])
    with serving(configure(tmp_path, broker, "open", idle=600, late=1)) as gateway:
        eventually(lambda: len(results(broker, "open")) >= len(others), lambda: gateway.log)
        assert divided.key not in {run_id.partition(":")[0] for run_id in results(broker, "open")}
        eventually(lambda: broker.committed("open", "open")[0] == before, lambda: f"{broker.committed('open', 'open')}")
        broker.send("open", [(divided.key, divided.messages[1])])
        eventually(lambda: broker.committed("open", "open")[0] == broker.size("open"), lambda: gateway.log)
        assert_scored_like_the_command(broker, "open", made, tmp_path, [gateway])


def test_a_killed_worker_reads_the_open_traces_again(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("killed", 4)
    made = traces(300)
    messages = interleaved(made, random.Random(3))
    configure(tmp_path, broker, "killed")
    gateway = Gateway(tmp_path, ())
    try:
        for start in range(0, len(messages), 100):
            gateway.start("/healthz")
            broker.send("killed", messages[start : start + 100])
            eventually(lambda: metric(gateway, "goldspan_gateway_kafka_messages_total") > 0, lambda: gateway.log)
            gateway.kill()
        gateway.start("/readyz")
        assert_scored_like_the_command(broker, "killed", made, tmp_path, [gateway])
        assert gateway.stop() == 0, gateway.log
    finally:
        gateway.kill()
    assert "Traceback" not in gateway.log, gateway.log
    assert all(sorted(set(numbers)) == sorted(numbers) for numbers in revisions(tmp_path).values())


def test_two_workers_share_the_partitions_and_score_like_the_command(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("shared", 6)
    made = traces(300)
    messages = interleaved(made, random.Random(4))
    half = len(messages) // 2
    with ExitStack() as running:
        first = running.enter_context(serving(configure(tmp_path / "1", broker, "shared")))
        broker.send("shared", messages[:half])
        eventually(lambda: metric(first, "goldspan_gateway_kafka_messages_total") > 0, lambda: first.log)
        second = running.enter_context(serving(configure(tmp_path / "2", broker, "shared")))
        eventually(lambda: metric(second, "goldspan_gateway_kafka_partitions") == 3, lambda: second.log)
        broker.send("shared", messages[half:])
        assert_scored_like_the_command(broker, "shared", made, tmp_path, [first, second])
        assert second.stop() == 0, second.log
        eventually(lambda: metric(first, "goldspan_gateway_kafka_partitions") == 6, lambda: first.log)
        broker.send("shared", interleaved(made[:50], random.Random(5)))  # again, which changes nothing
        eventually(lambda: metric(first, "goldspan_gateway_kafka_lag") == 0, lambda: first.log)
        assert_scored_like_the_command(broker, "shared", made, tmp_path, [first, second])
        assert metric(first, "goldspan_gateway_kafka_rebalances_total") >= 2
        second.start()
    for folder in ("1", "2"):
        assert all(len(set(numbers)) == len(numbers) for numbers in revisions(tmp_path / folder).values())


def test_a_static_member_restarts_without_a_rebalance(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("static", 2)
    slow = {"session.timeout.ms": 30000}
    made = traces(20)
    with serving(configure(tmp_path / "1", broker, "static", instance_id="one", options=slow)) as first:
        eventually(lambda: metric(first, "goldspan_gateway_kafka_partitions") == 2, lambda: first.log)
        with serving(configure(tmp_path / "2", broker, "static", instance_id="two", options=slow)) as second:
            eventually(lambda: metric(second, "goldspan_gateway_kafka_partitions") == 1, lambda: second.log)
            before = metric(first, "goldspan_gateway_kafka_rebalances_total")
            assert second.stop() == 0
            second.start()
            eventually(lambda: metric(second, "goldspan_gateway_kafka_partitions") == 1, lambda: second.log)
            broker.send("static", interleaved(made, random.Random(1)))
            assert_scored_like_the_command(broker, "static", made, tmp_path, [first, second])
            assert metric(first, "goldspan_gateway_kafka_rebalances_total") == before


# --- results ----------------------------------------------------------------------------------------------------------


def test_the_results_topic_is_compacted_and_forgets_runs_that_are_parts_of_others(
    broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("parts", 3)
    made = [trace for trace in traces(60) if len(set(trace.messages)) == 2][:10]
    with serving(configure(tmp_path, broker, "parts", idle=1)) as gateway:
        broker.send("parts", [(trace.key, trace.messages[0]) for trace in made])
        eventually(lambda: len(results(broker, "parts")) >= len(made), lambda: gateway.log)
        broker.send("parts", [(trace.key, message) for trace in made for message in trace.messages[1:]])
        assert_scored_like_the_command(broker, "parts", made, tmp_path, [gateway])
    assert broker.topic_config("parts-results")["cleanup.policy"] == "compact"
    assert broker.partitions_of("parts-results") == 3
    assert any(message.value() is None for message in broker.read_all("parts-results"))


# --- messages without a key, and logs ---------------------------------------------------------------------------------


def test_messages_without_a_key_are_not_scored_and_the_log_says_what_to_set(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("unkeyed", 3)
    made = traces(10)
    broker.send("unkeyed", [(None, message) for _, message in interleaved(made, random.Random(1))])
    with serving(configure(tmp_path, broker, "unkeyed")) as gateway:
        eventually(lambda: metric(gateway, "goldspan_gateway_kafka_unkeyed_total") > 0, lambda: gateway.log)
    assert "set partition_traces_by_id in the Collector's exporter, or kafka.keyed to false" in gateway.log
    assert results(broker, "unkeyed") == {}


def test_messages_without_a_key_are_copied_to_a_keyed_topic(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("mixed", 3)
    made = traces(60, json_share=0.5)
    draw = random.Random(6)
    messages: list[tuple[None, bytes]] = [(None, message) for _, message in interleaved(made, draw)]
    joined = [(None, b"".join(each.whole for each in made[start : start + 5])) for start in range(0, 60, 20)]
    broker.send("mixed", [*messages, (None, b"no OTLP"), *joined])
    with ExitStack() as running:
        gateways = [
            running.enter_context(serving(configure(tmp_path / str(number), broker, "mixed", keyed=False)))
            for number in range(2)
        ]
        assert_scored_like_the_command(broker, "mixed", made, tmp_path, gateways)
        eventually(
            lambda: sum(metric(each, "goldspan_gateway_kafka_undecodable_total") for each in gateways) == 1,
            lambda: gateways[0].log,
        )
    assert broker.partitions_of("mixed-keyed") == 3


def test_logs_of_a_session_are_scored_together_with_spans_of_another_topic(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("with-logs", 3)
    broker.create_topic("with-logs-logs", 5)
    made = traces(20)

    def event(name: str, session: int, **attributes: str) -> bytes:
        told = {"event.name": name, "session.id": f"s{session}", **attributes}
        pairs = [{"key": key, "value": {"stringValue": value}} for key, value in told.items()]
        record = {"timeUnixNano": "1", "body": {"stringValue": f"claude_code.{name}"}, "attributes": pairs}
        scope = {"name": "com.anthropic.claude_code.events"}
        return json.dumps({"resourceLogs": [{"scopeLogs": [{"scope": scope, "logRecords": [record]}]}]}).encode()

    for session in range(12):
        broker.send("with-logs-logs", [(None, event("user_prompt", session, prompt="Fix it"))])
        broker.send("with-logs-logs", [(None, event("tool_result", session, tool_name="Read", success="true"))])
    broker.send("with-logs", interleaved(made, random.Random(1)))
    with serving(configure(tmp_path, broker, "with-logs", logs_topic="with-logs-logs", idle=5)) as gateway:
        eventually(lambda: len(results(broker, "with-logs")) == 12 + len(made), lambda: gateway.log)
        used = sorted(document["tools_used"] for document in results(broker, "with-logs").values())
    assert used.count(["Read"]) == 12
    expected = scored_by_command(made, tmp_path)
    found = results(broker, "with-logs")
    assert {run_id: comparable(found[run_id]) for run_id in expected} == {
        run_id: comparable(document) for run_id, document in expected.items()
    }


# --- brokers that are down --------------------------------------------------------------------------------------------


def test_a_worker_waits_for_a_broker_that_is_down_at_the_start_or_later(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "kafka")
    gateway = Gateway(configure(tmp_path / "1", broker, "down"), ())
    made = traces(100)
    messages = interleaved(made, random.Random(7))
    try:
        gateway.start("/healthz")
        assert gateway._ask(_readiness(gateway)) == (503, b"no Kafka broker can be reached (kafka.brokers)")
        broker.start()
        broker.create_topic("down", 3)
        broker.send("down", messages[:100])
        eventually(lambda: gateway._is_well("/readyz"), lambda: gateway.log)
        eventually(lambda: metric(gateway, "goldspan_gateway_kafka_messages_total") > 0, lambda: gateway.log)
        broker.stop()
        eventually(lambda: not gateway._is_well("/readyz"), lambda: gateway.log)
        assert gateway._is_well("/healthz")
        broker.start()
        broker.send("down", messages[100:])
        assert_scored_like_the_command(broker, "down", made, tmp_path, [gateway])
        eventually(lambda: gateway._is_well("/readyz"), lambda: gateway.log)
        broker.stop()
        assert gateway.stop() == 0, gateway.log
        assert "Traceback" not in gateway.log, gateway.log
    finally:
        gateway.kill()
        broker.kill()


def test_a_topic_that_does_not_exist_is_reported_and_consumed_once_it_exists(broker: Broker, tmp_path: Path) -> None:
    gateway = Gateway(configure(tmp_path, broker, "missing"), (), http_port=free_port())
    made = traces(5)
    try:
        gateway.start("/healthz")
        reason = b"the Kafka topic does not exist (kafka.topic)"
        eventually(lambda: gateway._ask(_readiness(gateway)) == (503, reason), lambda: gateway.log)
        broker.create_topic("missing", 2)
        broker.send("missing", interleaved(made, random.Random(1)))
        assert_scored_like_the_command(broker, "missing", made, tmp_path, [gateway])
        eventually(lambda: gateway._is_well("/readyz"), lambda: gateway.log)
    finally:
        gateway.kill()


def _readiness(gateway: Gateway) -> Any:
    return urllib.request.Request(f"{gateway.address}/readyz")
