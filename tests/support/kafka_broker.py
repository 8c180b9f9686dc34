"""Runs an Apache Kafka broker of `make recipes` (one node, KRaft) that a test can stop and start again."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from recipes.environments import kafka_libraries
from support.gateway_process import PATIENCE_S, eventually, free_port

_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.cleaner.backoff.ms=500
"""


_MAX_STARTS = 3
"""While a broker is down, a test in another process can take one of its ports for a moment."""


@dataclass
class Broker:
    """A broker with a port and a folder that survive a restart."""

    folder: Path
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._properties = self.folder / "server.properties"
        self._properties.write_text(
            _PROPERTIES.format(port=self.port, controller=free_port(), folder=self.folder), encoding="utf-8"
        )
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._properties)).wait(PATIENCE_S)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._starts_left = _MAX_STARTS
        self._launch()
        eventually(self._answers, lambda: f"the broker is not ready\n{self.log[-3000:]}")

    def stop(self) -> None:
        """Terminate it."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        """Kill it, if it runs."""
        if hasattr(self, "_process"):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(PATIENCE_S)

    # --- topics ------------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic; `config` has underscores instead of dots."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin = self._admin()  # a local name, because the client ends its requests when it is deleted
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(PATIENCE_S)

    def topic_config(self, name: str) -> dict[str, str]:
        """Return the configuration of a topic."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        admin = self._admin()
        found = admin.describe_configs([resource])[resource].result(PATIENCE_S)
        return {key: entry.value for key, entry in found.items()}

    def partitions_of(self, name: str) -> int:
        """Return the number of partitions of a topic; 0 if it does not exist."""
        topic = self._admin().list_topics(timeout=PATIENCE_S).topics.get(name)
        return 0 if topic is None else len(topic.partitions)

    def producer(self, **options: Any) -> Producer:
        """Return a producer; `options` have underscores instead of dots."""
        more = {key.replace("_", "."): value for key, value in options.items()}
        return Producer({"bootstrap.servers": self.address, **more})

    def send(
        self, topic: str, messages: Sequence[tuple[str | None, bytes | None]], *, partition: int = -1, **options: Any
    ) -> None:
        """Produce messages, each with its key and value, and wait until they are stored.

        The keys choose the partitions, unless one is named.
        """
        producer = self.producer(**options)
        for key, value in messages:
            while True:
                try:
                    producer.produce(topic, key=key, value=value, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(PATIENCE_S) == 0

    def read_all(self, topic: str) -> list[Any]:
        """Return all messages that a topic has now, in order within each partition."""
        consumer = Consumer(
            {"bootstrap.servers": self.address, "group.id": "tests", "auto.offset.reset": "earliest",
             "enable.auto.commit": False}
        )  # fmt: skip
        try:
            places = [TopicPartition(topic, number) for number in range(self.partitions_of(topic))]
            ends = {}
            for place in places:
                low, high = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
                place.offset = low
                ends[place.partition] = high if high > low else 0
            consumer.assign([place for place in places if ends[place.partition]])
            messages: list[Any] = []
            until = time.monotonic() + PATIENCE_S
            while any(ends.values()):
                assert time.monotonic() < until
                messages += [message for message in consumer.consume(1000, 0.5) if message.error() is None]
                positions = consumer.position([TopicPartition(topic, number) for number, end in ends.items() if end])
                for position in positions:
                    if position.offset >= ends[position.partition]:
                        ends[position.partition] = 0
            return messages
        finally:
            consumer.close()

    def latest(self, topic: str) -> dict[str, bytes]:
        """Return the last value of each key, without deleted keys, as after compaction."""
        values: dict[str, bytes | None] = {}
        for message in self.read_all(topic):
            values[message.key().decode()] = message.value()
        return {key: value for key, value in values.items() if value is not None}

    def size(self, topic: str) -> int:
        """Return the number of messages that were produced to the first partition of a topic."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "tests"})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)[1])
        finally:
            consumer.close()

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed offset of each partition."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group})
        try:
            places = [TopicPartition(topic, number) for number in range(self.partitions_of(topic))]
            return {place.partition: place.offset for place in consumer.committed(places, timeout=PATIENCE_S)}
        finally:
            consumer.close()

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address})

    def _launch(self) -> None:
        self._starts_left -= 1
        self._process = self._java("kafka.Kafka", str(self._properties))

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            assert self._starts_left, f"the broker has ended with {self._process.returncode}\n{self.log[-3000:]}"
            self._launch()
        with suppress(OSError, KafkaException), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return bool(self._admin().list_topics(timeout=1).brokers)
        return False

    def _java(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*command, quiet, "-cp", f"{kafka_libraries()}/*", program, *arguments],
                stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
            )  # fmt: skip


@contextmanager
def brokering(folder: Path) -> Iterator[Broker]:
    """Yield a broker that is ready."""
    broker = Broker(folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
