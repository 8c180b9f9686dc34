"""What was scored before: by this process, by one before it, and lately by the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from goldspan.extraction import role_of
from goldspan.extraction.reading import WORK
from goldspan.gateway.journal.writing import Journal
from goldspan.gateway.scoring.traces import Bundle
from goldspan.model import Evaluation, Record, Run, SpanRecord
from goldspan.online.pipeline import Pipeline
from goldspan.store import SqliteStore


class History:
    """Tells what is stored of runs, and whether what was gathered of one says more or less than that.

    `pending` are evaluations that are not in the store yet. Entries that were in the journals when it was made may have
    been scored by a process before.
    """

    def __init__(
        self,
        store: SqliteStore,
        journals: Mapping[int, Journal],
        pipeline: Pipeline,
        pending: Sequence[Evaluation],
    ) -> None:
        self._store = store
        self._journals = journals
        self._pipeline = pipeline
        self._pending = pending
        self.replayed_up_to = {place: journal.last_key for place, journal in journals.items()}
        """The last entry of each journal that was there before."""

    def latest(self, run_id: str) -> tuple[int, str] | None:
        """Revision and digest of what was last scored of a run, written down or not."""
        for evaluation in reversed(self._pending):
            if evaluation.run.run_id == run_id:
                return evaluation.revision, evaluation.digest
        return self._store.latest(run_id)

    def may_have(self, bundle: Bundle) -> bool:
        """Whether some of a bundle may have been scored before: let go since, or before this process started."""
        replayed = any(keys[0] <= self.replayed_up_to[place] for place, keys in bundle.places.items())
        return bundle.reopened or replayed

    def is_remnant(self, bundle: Bundle, run: Run, known: tuple[int, str] | None, torn: frozenset[str]) -> bool:
        """Whether a run is made of what came too late, when the rest of it had been let go.

        Of a bundle that is held every entry is, too: so a process that begins again with what was held finds an entry
        that is older than the evaluation.
        """
        if known is None:
            is_torn = run.health.missing_root or run.span_id in torn
            return is_torn and (bundle.reopened or any(map(self._store.knows_trace, run.trace_ids)))
        if not bundle.reopened:
            stored = self._store.evaluations(run.run_id)
            return bool(stored) and self._arrived(bundle) > stored[0].stored_ns
        judged = self._pipeline.judge(run)
        return judged is not None and judged.digest != known[1]

    def _arrived(self, bundle: Bundle) -> int:
        """When the first entry of a bundle came, in nanoseconds since the Unix epoch."""
        first = [self._journals[place].read(keys[0] - 1, max_entries=1) for place, keys in bundle.places.items()]
        return min(entry.arrived_ns for entries in first for entry in entries)


def torn_off(records: Iterable[Record]) -> frozenset[str]:
    """The calls of models and tools whose parent is not there."""
    spans = [record for record in records if isinstance(record, SpanRecord)]
    there = {span.span_id for span in spans}
    torn = [span for span in spans if span.parent_id is not None and span.parent_id not in there]
    return frozenset([span.span_id for span in torn if role_of(span) in WORK])
