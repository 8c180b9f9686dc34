"""What reading a request comes to."""

from __future__ import annotations

from dataclasses import dataclass

from goldspan.gateway.intake.answers import Answer, Refused, too_large
from goldspan.gateway.limits import Limits
from goldspan.gateway.signals import ALL_PARTITIONS


@dataclass(frozen=True, slots=True)
class Reception:
    """A request that can be relied on: whoever reads `body` later can read all of it."""

    body: bytes
    """As it came, but without what was rejected and what the gateway made itself. Empty if nothing is left."""
    items: int
    """Spans, log records or metrics in it."""
    rejected: int = 0
    """Those that were left out because they cannot be read."""
    reason: str = ""
    """Why the first of them was."""
    partitions: int = ALL_PARTITIONS
    """A bit for each partition that a trace in it is of."""


class Sieve:
    """Counts the items of one request as they are kept or left out.

    Raises `Refused` as soon as there are more than are allowed.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.kept = 0
        self.rejected = 0
        self.reason = ""
        self.changed = False
        """Whether the body is no longer as it came."""

    def keep(self, number: int = 1) -> None:
        """So many items are good."""
        self.kept += number
        check_items(self.kept + self.rejected, self._limits)

    def reject(self, reason: str, number: int = 1) -> None:
        """So many items cannot be read."""
        self.rejected += number
        self.reason = self.reason or reason
        self.changed = True
        check_items(self.kept + self.rejected, self._limits)

    def reception(self, body: bytes, partitions: int = ALL_PARTITIONS) -> Reception:
        """The outcome. Raises `Refused` for a request in which nothing can be read: that is no partial success."""
        if self.rejected and not self.kept:
            raise unreadable(self.reason)
        return Reception(body if self.kept else b"", self.kept, self.rejected, self.reason, partitions)


def check_items(number: int, limits: Limits) -> None:
    """Raises `Refused` for more spans, log records or metrics than a request may have."""
    if number > limits.max_spans:
        raise too_large("max_spans", f"the request has more than {limits.max_spans:,} spans, log records or metrics")


def check_attributes(number: int, limits: Limits) -> None:
    """Raises `Refused` for more attributes than a span may have."""
    most = limits.max_attributes
    if number > most:
        raise too_large("max_attributes", f"a span or log record has more than {most:,} attributes")


def unreadable(reason: str, limit: str | None = None) -> Refused:
    """The refusal of a request that nobody can read."""
    return Refused(Answer(400, reason, limit=limit))
