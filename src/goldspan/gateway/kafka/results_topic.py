"""The sink that writes evaluations to a compacted Kafka topic, with the id of the run as the key."""

from __future__ import annotations

from collections.abc import Iterable

from goldspan.gateway.kafka.reliable_producer import OutgoingMessage, ReliableProducer
from goldspan.model import Evaluation
from goldspan.sinks.serialization import document_json, evaluation_document

_MAX_VALUE_BYTES = 900_000
"""A larger document is written without arguments and texts: brokers accept 1 MB by default."""


class ResultsTopic:
    """A sink. Each message is the document of an evaluation; the last message of a key is the current one.

    A run that turned out to be a part of another run gets a message without a value, which deletes it.
    """

    def __init__(self, producer: ReliableProducer, topic: str, *, include_arguments: bool) -> None:
        self._producer = producer
        self._topic = topic
        self._include_arguments = include_arguments

    def submit(self, evaluation: Evaluation) -> None:
        """Produce the document of an evaluation. Waits while the brokers accept nothing and the queue is full."""
        value = self._encode(evaluation, self._include_arguments)
        if len(value) > _MAX_VALUE_BYTES and self._include_arguments:
            value = self._encode(evaluation, include_arguments=False)
        self._producer.produce(OutgoingMessage(self._topic, evaluation.run.run_id.encode(), value))

    def delete_runs(self, run_ids: Iterable[str]) -> None:
        """Produce a message without a value for each run."""
        for run_id in run_ids:
            self._producer.produce(OutgoingMessage(self._topic, run_id.encode(), None))

    @staticmethod
    def _encode(evaluation: Evaluation, include_arguments: bool) -> bytes:
        return document_json(
            lambda values: evaluation_document(evaluation, include_arguments=values), include_values=include_arguments
        ).encode()
