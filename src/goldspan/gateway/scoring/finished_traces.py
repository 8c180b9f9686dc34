"""Finds the entries from which another worker must read a log to know the traces that were finished.

A position of a log is acknowledged once no open trace needs an entry up to it. A trace that was scored and released may
still have entries on both sides of the position. A worker that reads on from there would see only the later ones, and
would take them for a trace of their own. It therefore reads the log from `context_start` on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush

from goldspan.gateway.scoring.telemetry_log import TelemetryLog
from goldspan.gateway.scoring.trace_buffer import StitchKey, TraceBuffer, TraceGroup


class FinishedTraces:
    """Remembers the first and the last entry of released traces, for the logs that other workers may read on."""

    def __init__(self, logs: Mapping[int, TelemetryLog]) -> None:
        self._spans_by_log: dict[int, list[tuple[int, int]]] = {
            number: [] for number, log in logs.items() if log.needs_context
        }
        """By log, a heap of the last and the first entry of each released trace."""
        self._context_keys: set[StitchKey] = set()

    @property
    def is_needed(self) -> bool:
        """Whether other workers may read one of the logs on."""
        return bool(self._spans_by_log)

    def add(self, group: TraceGroup) -> None:
        """Remember a trace that is released."""
        for number, spans in self._spans_by_log.items():
            if (entries := group.entries_by_journal.get(number)) and entries[-1] != entries[0]:
                heappush(spans, (entries[-1], entries[0]))

    def add_context(self, key: StitchKey) -> None:
        """Remember that a held trace has entries up to the start of its log."""
        self._context_keys.add(key)

    def context_start(self, number: int, position: int, buffer: TraceBuffer) -> int:
        """Returns the position after which to read the context of an acknowledged position."""
        spans = self._spans_by_log[number]
        while spans and spans[0][0] <= position:
            heappop(spans)
        firsts = [first for _, first in spans]
        firsts += self._firsts_of_context(number, position, buffer)
        return min(position, min(firsts, default=position + 1) - 1)

    def _firsts_of_context(self, number: int, position: int, buffer: TraceBuffer) -> Iterable[int]:
        for key in list(self._context_keys):
            group = buffer.find(key)
            entries = [] if group is None else group.entries_by_journal.get(number, [])
            if not entries:
                self._context_keys.discard(key)
            elif entries[-1] > position:
                yield entries[0]
