"""Handing on what is in the journal to a back end, as it came, until it has all of it.

What the answers mean is what the OTLP specification says, with these decisions beside it:

* What may be tried again is tried for ever, with pauses that grow to a minute: the journal keeps what is not settled.
* 401, 403, 405, 407 and redirections (UNAUTHENTICATED, PERMISSION_DENIED) say that a setting is wrong, and nothing
  about the data: they are tried again like an outage, with longer pauses.
* So does 404 (UNIMPLEMENTED, NOT_FOUND), unless the back end takes another signal: then it simply has not this one,
  and what it is sent of it is counted as rejected. A setting, `signals`, says so beforehand.
* 413, and what gRPC servers say of messages that are too large: the request is sent in halves.
* 415 for JSON: it is sent in protobuf.
* One request that keeps failing while hundreds of others are taken is at fault itself, and is given up.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from goldspan.errors import StoreError
from goldspan.gateway.counting import Counting
from goldspan.gateway.forwarding.backends import BackEnd
from goldspan.gateway.forwarding.delivery import WINDOW, Delivery, Reached
from goldspan.gateway.forwarding.grpc_sender import GrpcSender
from goldspan.gateway.forwarding.http_sender import HttpSender
from goldspan.gateway.forwarding.outcomes import Sender
from goldspan.gateway.journal.writing import Journal


class Forwarder:
    """Sends what is in a journal to one back end: each signal by itself, so that none waits for another.

    The bytes are those of the entries; only what came as JSON is put into protobuf for gRPC. Each entry is sent at
    least once: what was under way when the process was killed is sent again. The consumers in the journal are
    `backend.consumers`. `chance` makes the jitter of pauses: a number from 0 to 1.

    Raises `ConfigurationError` for a proxy of the environment that cannot be used.
    """

    def __init__(
        self,
        backend: BackEnd,
        journal: Journal,
        counting: Counting,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.backend = backend
        self._journal = journal
        self._sender: Sender = (
            GrpcSender(backend) if backend.protocol == "grpc" else HttpSender(backend, WINDOW * len(backend.signals))
        )
        reached = Reached()
        self._deliveries = [
            Delivery(backend, signal, journal, counting, self._sender, reached, chance=chance)
            for signal in backend.consumers
        ]

    def start(self) -> None:
        """Begin to send, on threads of its own."""
        for delivery in self._deliveries:
            delivery.start()

    def stop(self, timeout: float) -> None:
        """Send what can be sent within so many seconds, and end; what is left stays in the journal.

        It ends earlier where everything is sent, or where the back end is not to be asked again before that.
        """
        until = time.monotonic() + timeout
        for delivery in self._deliveries:
            delivery.drain(until)
        for delivery in self._deliveries:
            delivery.join(until)
        self._sender.close()

    def status(self) -> dict[str, Any]:
        """How it stands, for people and probes: no secrets are in it. What is not known yet is `None`."""
        signals = {delivery.signal: self._status_of(delivery) for delivery in self._deliveries}
        known = [status["reachable"] for status in signals.values() if status["reachable"] is not None]
        return {
            "name": self.backend.name,
            "endpoint": self.backend.endpoint,
            "protocol": self.backend.protocol,
            "reachable": all(known) if known else None,
            "error": next((status["error"] for status in signals.values() if status["error"]), None),
            "behind_bytes": max(status["behind_bytes"] for status in signals.values()),
            "behind_seconds": max(status["behind_seconds"] for status in signals.values()),
            "signals": signals,
        }

    def _status_of(self, delivery: Delivery) -> dict[str, Any]:
        try:
            size, seconds = self._journal.behind(delivery.consumer)
        except StoreError:
            size, seconds = 0, 0.0  # the journal's own health tells of that
        return {
            "reachable": delivery.reachable,
            "error": delivery.error,
            "behind_bytes": size,
            "behind_seconds": seconds,
        }
