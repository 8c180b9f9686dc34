"""Tests of what the gateway does with Kafka messages, offsets and settings, without a broker."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from goldspan.errors import ConfigurationError, StoreError
from goldspan.gateway.gateway_counters import GatewayCounters
from goldspan.gateway.journal.journal import Journal
from goldspan.gateway.journal.journal_file import JournalEntry
from goldspan.gateway.kafka.connection_state import ConnectionState
from goldspan.gateway.kafka.kafka_settings import KafkaSettings
from goldspan.gateway.kafka.message_decoding import (
    SIGNAL_HEADER,
    KeyedMessage,
    UndecodableMessageError,
    decode_message,
    signal_of,
    split_message,
)
from goldspan.gateway.kafka.message_reader import MessageReader
from goldspan.gateway.kafka.partition_log import CommitPoint, EntryCache, PartitionLog
from goldspan.gateway.kafka.receiver import commit_point
from goldspan.gateway.kafka.reliable_producer import OutgoingMessage, ReliableProducer
from goldspan.gateway.kafka.start_points import StartPoints
from goldspan.gateway.resource_limits import ALL_PARTITIONS, ResourceLimits
from goldspan.gateway.scoring.drop_publisher import DropPublisher
from goldspan.gateway.scoring.results_queue import ResultEncoder, ResultsQueue
from goldspan.gateway.scoring.scoring_consumer import ScoringConsumer
from goldspan.gateway.scoring.trace_buffer import FlushPolicy, TraceBufferLimits
from goldspan.gateway.settings.settings_loader import load_settings
from goldspan.online.pipeline import Pipeline
from goldspan.otlp import otlp_json, otlp_protobuf
from goldspan.sinks import DropCounters
from goldspan.store import open_store
from support.gateway_scoring_harness import asking, json_request, request
from support.metric_readers import Meter
from support.span_builders import agent, tool, trace_id

LIMITS = ResourceLimits()


# --- messages ---------------------------------------------------------------------------------------------------------


def spans_of(part: KeyedMessage) -> set[tuple[str, str]]:
    if part.value[:1] == b"{":
        spans = otlp_json.decode_traces(json.loads(part.value), old_names=False).spans
    else:
        spans = otlp_protobuf.decode_traces(part.value).spans
    return {(span.trace_id, span.span_id) for span in spans}


@pytest.mark.parametrize("build", [request, json_request], ids=["protobuf", "json"])
def test_a_message_is_split_into_one_message_per_trace_without_losing_a_span(build: Any) -> None:
    spans = [span for number in range(5) for span in asking(number, "search", "book")]
    random.Random(1).shuffle(spans)
    parts = split_message(build(*spans), "traces", LIMITS)
    assert {part.key.decode() for part in parts} == {trace_id(number) for number in range(5)}
    assert all({owner for owner, _ in spans_of(part)} == {part.key.decode()} for part in parts)
    assert set().union(*map(spans_of, parts)) == {(span.trace_id, span.span_id) for span in spans}


@pytest.mark.parametrize("value", [None, b"no OTLP", b"{", b'{"resourceSpans": 3}', b"\x0a\xff"])
def test_a_message_that_is_not_otlp_is_undecodable(value: bytes | None) -> None:
    with pytest.raises(UndecodableMessageError):
        split_message(value, "traces", LIMITS)
    with pytest.raises(UndecodableMessageError):
        decode_message(value, "traces", LIMITS, key=1, arrived_ns=0)


def test_a_message_above_a_limit_is_undecodable_and_an_empty_one_has_no_entry() -> None:
    with pytest.raises(UndecodableMessageError, match="more than 1"):
        decode_message(request(*asking(0, "a")), "traces", ResourceLimits(max_spans=1), key=1, arrived_ns=0)
    entry, validated = decode_message(b"", "traces", LIMITS, key=1, arrived_ns=0)
    assert (entry, validated.item_count) == (None, 0)
    assert split_message(b"", "traces", LIMITS) == []


def log_record(name: str, **more: Any) -> dict[str, Any]:
    return {
        "timeUnixNano": "1",
        "body": {"stringValue": "x"},
        "attributes": [
            {"key": "event.name", "value": {"stringValue": name}},
            *({"key": key, "value": {"stringValue": value}} for key, value in more.pop("attributes", {}).items()),
        ],
        **more,
    }


def logs_document() -> dict[str, Any]:
    """Build logs of two traces, of a session, and one that does not concern an agent."""
    message = "gen_ai.user.message"
    records = [
        log_record(message, eventName=message, traceId="1" * 32, spanId="1" * 16),
        log_record(message, eventName=message, traceId="2" * 32, spanId="2" * 16),
        log_record("claude_code.tool_result", attributes={"session.id": "s", "tool_name": "Bash"}),
        log_record("http.request", traceId="3" * 32, spanId="3" * 16),
    ]
    return {"resourceLogs": [{"scopeLogs": [{"scope": {"name": "x"}, "logRecords": records}]}]}


def test_logs_are_split_by_trace_or_session_alike_in_both_encodings() -> None:
    document = logs_document()
    in_json = split_message(json.dumps(document).encode(), "logs", LIMITS)
    for record in document["resourceLogs"][0]["scopeLogs"][0]["logRecords"]:
        for key in ("traceId", "spanId"):
            if key in record:
                record[key] = base64.b64encode(bytes.fromhex(record[key])).decode()
    in_protobuf = split_message(ParseDict(document, LogsData()).SerializeToString(), "logs", LIMITS)
    assert {part.key for part in in_json} == {part.key for part in in_protobuf}
    assert {b"1" * 32, b"2" * 32} <= {part.key for part in in_json}
    assert b"3" * 32 not in {part.key for part in in_json}
    assert all(part.signal == "logs" for part in (*in_json, *in_protobuf))
    assert signal_of([(SIGNAL_HEADER, b"logs")]) == "logs"
    assert signal_of(None) == signal_of([("other", b"logs")]) == "traces"


# --- commit points ----------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**60), st.integers(0, 2**60), st.integers(0, 2**60))
def test_the_metadata_of_a_commit_is_read_back(position: int, before: int, after: int) -> None:
    point = CommitPoint(position, max(0, position - before), position + after)
    assert CommitPoint.parse(position, point.metadata) == point


@pytest.mark.parametrize("metadata", [None, "", "x", "[]", "3", '{"context": 1}', '{"context": "x", "read": null}'])
def test_the_commit_of_another_program_has_no_context(metadata: str | None) -> None:
    assert CommitPoint.parse(7, metadata) == CommitPoint(7, 7, 7)


def test_the_cache_of_entries_is_bounded_and_keeps_the_latest() -> None:
    cache = EntryCache(max_bytes=250)
    for key in (1, 2, 2, 3):
        cache.add(0, entry(key, b"x" * 100))
    assert [key for key in (1, 2, 3) if cache.get(0, key)] == [2, 3]
    assert cache.get(1, 3) is None


def entry(key: int, body: bytes, arrived_ns: int = 10**18) -> JournalEntry:
    return JournalEntry(key, "traces", "protobuf", "received", ALL_PARTITIONS, arrived_ns, body)


# --- rebuilding a partition -------------------------------------------------------------------------------------------


class Partition:
    """The scoring of one partition by one worker after the other, with a manual clock and stores of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.messages: list[JournalEntry] = []
        self.deleted: set[int] = set()
        self.now = 0.0
        self.point = CommitPoint(0, 0, 0)
        self.meter = Meter()
        self.workers = 0
        self.open_files: list[Any] = []
        self.superseded: list[str] = []

    def start(self) -> None:
        """Let a new worker, which knows only what was committed, take over."""
        self.workers += 1
        number = self.workers
        self.store = open_store(self.folder / f"{number}.db")
        journal = Journal(self.folder / f"{number}-journal.db", max_bytes=2**30)
        self.open_files += [self.store, journal]
        self.log = PartitionLog(0, self.point, cache=EntryCache(0), read_again=self._read_again)
        pipeline = Pipeline(None)
        self.scoring = ScoringConsumer(
            {0: self.log},
            pipeline,
            self.store,
            flush_policy=FlushPolicy(grace=1.0, idle=10.0, late=20.0),
            buffer_limits=TraceBufferLimits(),
            max_backlog_bytes=2**30,
            counters=GatewayCounters(self.meter.provider),
            drops=DropPublisher(pipeline, DropCounters(self.meter.provider)),
            results_queue=ResultsQueue(journal, ResultEncoder([])),
            on_superseded=self.superseded.extend,
            clock=lambda: self.now,
            wall_clock=self._wall,
        )
        self.read_until = self.point.context_start

    def send(self, body: bytes) -> None:
        self.messages.append(entry(len(self.messages) + 1, body, self._wall()))

    def _wall(self) -> int:
        return 10**18 + round(self.now * 1e9)

    def wait(self, seconds: float = 0.0) -> None:
        """Let the worker read all messages, advance the clock, and commit."""
        for passing in (0.0, seconds):
            self.now += passing
            self.read(len(self.messages))

    def read(self, until: int) -> None:
        """Let the worker read the messages up to an offset, and commit."""
        for offset in range(self.read_until, until):
            self.log.add(offset, self.messages[offset])
        self.read_until = until
        if until == len(self.messages):
            self.log.reach_end(until)
        while self.scoring.poll():
            pass
        self.point = commit_point(self.log, self.scoring) or self.point

    def tools(self) -> dict[str, list[str]]:
        return {run.run_id: sorted(run.current.document["tools_used"]) for run in self.store.iter_runs()}

    def _read_again(self, partition: int, offset: int) -> JournalEntry | None:
        return None if offset in self.deleted else self.messages[offset]

    def close(self) -> None:
        for file in self.open_files:
            file.close()
        self.meter.provider.shutdown()


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    made = Partition(tmp_path)
    made.start()
    yield made
    made.close()


def test_no_offset_at_or_after_an_open_trace_is_committed(partition: Partition) -> None:
    partition.send(request(*asking(0, "search")))
    root, *tools = asking(1, "book")
    partition.send(request(*tools))
    partition.wait(5.0)
    partition.send(request(*asking(2, "search")))
    partition.wait(5.0)
    assert partition.point.position == 0  # late spans can still change the first trace
    partition.wait(12.0)
    assert partition.point.position == 1
    partition.send(request(root))
    partition.wait(400.0)
    assert partition.point == CommitPoint(4, 4, 4)


def test_a_new_owner_scores_an_open_trace_completely(partition: Partition) -> None:
    root, *tools = asking(1, "book", "search")
    partition.send(request(tools[0]))
    partition.wait(1.0)
    partition.start()
    partition.send(request(root, tools[1]))
    partition.wait(2.0)
    (used,) = partition.tools().values()
    assert used == ["book", "search"]


def finish_a_trace_around_an_open_one(partition: Partition) -> None:
    """Let the worker finish a trace whose messages are on both sides of the position that it commits."""
    first_root, *first_tools = asking(1, "book", "search")
    partition.send(request(first_root, first_tools[0]))  # offset 0
    other_root, *other_tools = asking(2, "pay")
    partition.send(request(*other_tools))  # offset 1: an open trace
    partition.send(request(first_tools[1]))  # offset 2: the rest of the first trace
    partition.wait(2.0)
    partition.now += 9.0
    partition.send(request(other_root))  # before the open trace is scored without its root
    partition.wait(12.0)


def test_a_new_owner_does_not_take_the_rest_of_a_finished_trace_for_a_trace(partition: Partition) -> None:
    finish_a_trace_around_an_open_one(partition)
    assert partition.point.position == 1
    assert partition.point.context_start == 0
    assert partition.point.read == 4
    partition.start()
    partition.wait(400.0)
    assert sorted(partition.tools().values()) == [["book", "search"], ["pay"]]
    assert partition.point == CommitPoint(4, 4, 4)


def test_an_owner_that_has_read_only_a_part_of_the_context_does_not_change_what_is_committed(
    partition: Partition,
) -> None:
    finish_a_trace_around_an_open_one(partition)
    committed = partition.point
    assert committed == CommitPoint(1, 0, 4)
    partition.start()
    partition.read(1)
    assert partition.point == committed
    partition.start()  # the owner before it was lost
    partition.wait(400.0)
    assert sorted(partition.tools().values()) == [["book", "search"], ["pay"]]


def test_the_context_of_finished_traces_is_not_scored_again(partition: Partition) -> None:
    partition.send(request(*asking(1, "book")))
    root, *tools = asking(2, "pay", "search")
    partition.send(request(root, tools[0]))
    partition.wait(2.0)
    partition.point = CommitPoint(2, 0, 2)
    partition.start()
    partition.send(request(tools[1]))
    partition.wait(2.0)
    assert partition.tools() == {f"{root.trace_id}:{root.span_id}": ["pay", "search"]}


@pytest.mark.e2e
@pytest.mark.parametrize("seed", range(8))
def test_any_sequence_of_owners_scores_every_trace_as_one_owner_does(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    partition = Partition(tmp_path)
    partition.start()
    expected: dict[str, list[str]] = {}
    waiting: list[bytes] = []
    final: dict[str, list[str]] = {}
    for number in range(40):
        names = [draw.choice(("search", "book", "pay")) for _ in range(draw.randint(1, 4))]
        root = agent("helper", trace_id=trace_id(number))
        spans = [root, *(tool(name, parent_id=root.span_id, trace_id=root.trace_id) for name in names)]
        expected[f"{root.trace_id}:{root.span_id}"] = sorted(set(names))
        draw.shuffle(spans)
        cut = draw.randint(0, len(spans))
        waiting += [request(*part) for part in (spans[:cut], spans[cut:]) if part]
        while len(waiting) > draw.randint(0, 6):
            partition.send(waiting.pop(draw.randrange(min(4, len(waiting)))))
        partition.wait(draw.choice((0.0, 0.5, 1.5)))
        if draw.random() < 0.3:
            final |= partition.tools()
            partition.start()
            while draw.random() < 0.5:  # lost again before it has read everything
                partition.read(draw.randint(partition.read_until, len(partition.messages)))
                final |= partition.tools()
                partition.start()
    for body in waiting:
        partition.send(body)
    partition.wait(2.0)
    partition.wait(400.0)
    final |= partition.tools()
    assert {run: sorted(set(names)) for run, names in final.items() if run in expected} == expected
    assert partition.point == CommitPoint(*[len(partition.messages)] * 3)
    partition.close()


def test_a_trace_whose_messages_the_broker_has_deleted_is_not_scored_again(partition: Partition) -> None:
    root, *tools = asking(1, "book", "search")
    partition.send(request(root, tools[0]))
    partition.wait(2.0)
    before = partition.tools()
    partition.deleted.add(0)
    partition.send(request(tools[1]))
    partition.wait(2.0)
    assert partition.tools() == before
    assert sum(partition.meter.counts("goldspan.spans.unscored").values()) > 0


def test_a_run_that_is_a_part_of_another_is_reported_as_superseded(partition: Partition) -> None:
    root = agent("helper", trace_id=trace_id(1))
    inner = agent("inner", parent_id=root.span_id, trace_id=root.trace_id)
    partition.send(request(inner, tool("pay", parent_id=inner.span_id, trace_id=root.trace_id)))
    partition.wait(11.0)
    assert len(partition.tools()) == 1
    partition.send(request(root))
    partition.wait(2.0)
    assert partition.superseded


# --- the state of the connection --------------------------------------------------------------------------------------


def statistics(*states: str) -> str:
    return json.dumps({"brokers": {str(number): {"state": state} for number, state in enumerate(states)}})


def test_the_connection_is_good_if_one_broker_is_up_and_the_topic_exists() -> None:
    state = ConnectionState()
    assert state.reason == "no Kafka broker can be reached (kafka.brokers)"
    state.update_from_statistics(statistics("DOWN", "UP"))
    assert state.reason is None
    state.update_from_error(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    assert state.reason == "the Kafka topic does not exist (kafka.topic)"
    state.update_from_error(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    assert str(state.reason).startswith("Kafka: ")
    state.problem = None
    state.update_from_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert state.reason is not None
    state.update_from_statistics(statistics("UPDATE"))
    assert state.reason is None
    state.update_from_error(KafkaError(KafkaError._AUTHENTICATION))
    assert state.reason is not None


def test_reading_a_message_again_gives_up_during_the_shutdown() -> None:
    reader = MessageReader(KafkaSettings("127.0.0.1:1"), "t", may_wait=lambda: False)
    with pytest.raises(StoreError, match="offset 3 of partition 0 of t cannot be read now"):
        reader.read(0, 3)
    reader.close()


# --- settings ---------------------------------------------------------------------------------------------------------


def load(folder: Path, text: str) -> KafkaSettings | None:
    path = folder / "settings.yaml"
    path.write_text(text)
    return load_settings(path).kafka_settings()


def test_without_brokers_nothing_is_read_from_kafka(tmp_path: Path) -> None:
    assert load(tmp_path, "kafka: {topic: x}") is None


def test_variables_and_files_set_the_options_of_the_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLDSPAN_KAFKA_BROKERS", "a:1, b:2")
    monkeypatch.setenv("GOLDSPAN_KAFKA_USERNAME", "u")
    monkeypatch.setenv("GOLDSPAN_KAFKA_PASSWORD", "secret")
    monkeypatch.setenv("GOLDSPAN_KAFKA_RESULTS_TOPIC", "off")
    monkeypatch.setenv("GOLDSPAN_KAFKA_INSTANCE_ID", "pod")
    monkeypatch.setenv("GOLDSPAN_KAFKA_OPTIONS", '{"enable.ssl.certificate.verification": true, "linger.ms": 5}')
    options = tmp_path / "options"
    options.write_text("# secrets\n\nssl.key.password = p=q \n")
    options.chmod(0o600)
    (tmp_path / "settings.yaml").write_text(f"workers: 2\nkafka: {{options_file: {options}, keyed: false}}")
    settings = load_settings(tmp_path / "settings.yaml")
    found = settings.kafka_settings(1)
    assert found is not None
    assert (found.brokers, found.results_topic, found.instance_id) == ("a:1,b:2", None, "pod-1")
    assert found.scored_topic == "goldspan_spans"
    assert found.options == {
        "enable.ssl.certificate.verification": "true", "linger.ms": "5", "ssl.key.password": "p=q",
        "sasl.username": "u", "sasl.password": "secret",
    }  # fmt: skip
    assert "secret" not in repr(found) + repr(settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kafka: {brokers: kafka}", ", kafka.brokers: must look like kafka-1:9092, several separated by commas"),
        (
            "kafka: {topic: a b}",
            ", kafka.topic: must be the name of a topic: letters, digits, dots, underscores, hyphens",
        ),
        ("kafka: {topic: x, results_topic: x}", ", kafka.topic: each topic must have its own name"),
        ("kafka: {username: u}", ", kafka.username: requires password"),
        ("kafka: {password: p}", ", kafka.password: requires username"),
        ("kafka: {options: {group.id: x}}", ", kafka.options: group.id cannot be changed here; use kafka.group"),
        ("kafka: {options: {acks: 1}}", ", kafka.options: acks cannot be changed"),
        (
            "kafka: {options: {sasl.password: x}}",
            ", kafka.options: sasl.password must be in the file of kafka.options_file, not here",
        ),
        ("kafka: {options: x}", ", kafka.options: must be a JSON object"),
        ("kafka: {options: [x]}", ", kafka.options: must be a mapping"),
        ("kafka: {toppic: x}", ": unknown setting 'kafka.toppic'; did you mean 'kafka.topic'?"),
        (
            "kafka: {brokers: 'a:1', options: {linger: 1}}",
            ', kafka.options: Kafka: No such configuration property: "linger"',
        ),
    ],
)
def test_a_wrong_setting_is_reported_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(tmp_path, text)
    assert str(raised.value) == f"{tmp_path / 'settings.yaml'}{message}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "options cannot be read: no such file or directory"),
        (b"\xff", "options cannot be read: not utf-8 text"),
        (b"security.protocol\n", "options, line 1: must look like security.protocol=SASL_SSL"),
        (b"client.id=x\ngroup.id=x\n", "group.id cannot be changed here; use kafka.group"),
    ],
)
def test_a_wrong_file_of_options_is_reported(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "options"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    with pytest.raises(ConfigurationError, match=message):
        load(tmp_path, f"kafka: {{brokers: 'a:1', options_file: {path}}}")


def test_a_variable_with_two_underscores_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOLDSPAN_KAFKA__TOPIC", "x")
    with pytest.raises(ConfigurationError, match="did you mean GOLDSPAN_KAFKA_TOPIC"):
        load(tmp_path, "")


@pytest.mark.e2e
def test_without_the_extra_the_error_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "from goldspan.gateway.settings.settings_loader import load_settings\n"
        "load_settings(None, {'kafka.brokers': 'a:1'})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=False, cwd=tmp_path
    )
    assert "pip install 'goldspan[kafka]'" in done.stderr


# --- producing --------------------------------------------------------------------------------------------------------


def test_a_message_that_is_too_large_is_dropped_and_all_others_wait_for_the_brokers() -> None:
    producer = ReliableProducer(KafkaSettings("127.0.0.1:1", options={"queue.buffering.max.messages": "1"}))
    producer.produce(OutgoingMessage("t", b"k", b"x" * 2_000_000))
    assert (producer.dropped, producer.undelivered_count) == (1, 0)
    producer.produce(OutgoingMessage("t", b"k", b"x", [(SIGNAL_HEADER, b"logs")], 1))
    assert not producer.flush(0.0)
    producer.stop_waiting()
    with pytest.raises(StoreError, match="the queue of the producer is full"):
        producer.produce(OutgoingMessage("t", b"k", b"x"))
    assert producer.undelivered_count == 2


def test_a_message_that_is_not_delivered_is_produced_again() -> None:
    producer = ReliableProducer(KafkaSettings("127.0.0.1:1"))
    producer.produce(OutgoingMessage("t", b"k", b"x"))
    producer._on_delivery(1, KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
    assert producer._failed == [1]
    assert not producer.flush(0.0)
    assert (producer._failed, producer.undelivered_count) == ([], 1)
    producer._replace_producer()
    assert producer._failed == [1]
    producer._on_delivery(1, None)
    assert producer.undelivered_count == 0


# --- where to begin ---------------------------------------------------------------------------------------------------


class Offsets:
    """A consumer whose partition has the offsets 10 to 19."""

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        return 10, 20


@pytest.mark.parametrize(
    ("committed", "metadata", "reset", "expected", "logged"),
    [
        (-1001, None, None, (10, 10, 10), ""),
        (-1001, None, "latest", (20, 20, 20), ""),
        (15, None, None, (15, 15, 15), ""),
        (15, CommitPoint(15, 12, 18).metadata, None, (15, 12, 18), ""),
        (15, CommitPoint(15, 3, 99).metadata, None, (15, 10, 20), ""),
        (5, CommitPoint(5, 2, 8).metadata, None, (10, 10, 10), "has deleted 5 messages that were not scored"),
        (25, None, None, (10, 10, 10), "the topic was created again"),
    ],
)
def test_a_partition_is_read_from_its_commit_or_from_what_the_broker_still_has(
    committed: int,
    metadata: str | None,
    reset: str | None,
    expected: tuple[int, int, int],
    logged: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {} if reset is None else {"auto.offset.reset": reset}
    points = StartPoints(KafkaSettings("127.0.0.1:1", options=options), "t")
    place = TopicPartition("t", 0, committed, metadata=metadata or "")
    consumer: Any = Offsets()
    assert points._start_point(consumer, place) == CommitPoint(*expected)
    assert logged in caplog.text
    assert bool(logged) == bool(caplog.records)
