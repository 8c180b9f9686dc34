"""What was scored before: by this process, by one before it, and lately by the API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from goldspan.extraction import role_of
from goldspan.extraction.reading import WORK
from goldspan.gateway.scoring.traces import Bundle
from goldspan.model import Evaluation, Record, Run, SpanRecord
from goldspan.sinks.documents import evaluation_document
from goldspan.store import RunFilter, SqliteStore
from goldspan.store.protocol import MOST_AT_ONCE


@dataclass(frozen=True, slots=True)
class Sight:
    """What a bundle shows: its runs, and the spans that they were made of."""

    runs: Sequence[Run]
    spans: frozenset[str]
    torn: frozenset[str] = field(default_factory=frozenset)
    """The calls of models and tools among them whose parent is not there."""

    def covers(self, needed: frozenset[str]) -> bool:
        """Whether all of these are to be seen."""
        return needed <= self.spans

    def is_torn(self, run: Run) -> bool:
        """Whether a run is known only by parts of it."""
        return run.health.missing_root or run.span_id in self.torn


class History:
    """Tells what is known of the runs of a bundle, and which of them show too little of what was known.

    Journals forget what was scored some time ago, and late spans may come without the rest of their run. So of each
    stored run it is known which spans it was made of, and a revision of it needs all of them. `pending` are evaluations
    that are not in the store yet.
    """

    def __init__(self, store: SqliteStore, pending: Sequence[Evaluation]) -> None:
        self._store = store
        self._pending = pending

    def recall(self, bundle: Bundle) -> None:
        """Have a bundle know what is stored of its traces: all of it at first, later what became of it.

        Runs may have been scored again by other goldens since.
        """
        if bundle.recalled:
            for place, known in bundle.known.items():
                bundle.known[place] = self.latest(place[1]) or known
            return
        for document in self._stored(bundle):
            if {bytes.fromhex(trace_id) for trace_id in document["trace_ids"]} <= set(bundle.keys):
                place = (document["unit"], document["run_id"])
                bundle.known[place] = (document["revision"], document["digest"])
                bundle.needed[place] = _made_of(document)
        bundle.recalled = True

    def is_remnant(self, bundle: Bundle, run: Run, sight: Sight) -> bool:
        """Whether a run is made of what came too late, when the rest of it had been let go."""
        needed = bundle.needed.get((run.unit, run.run_id))
        if needed is not None:
            return not sight.covers(needed)
        return sight.is_torn(run) and any(not sight.covers(each) for each in bundle.needed.values())

    def outlived(self, bundle: Bundle, sight: Sight) -> Iterator[tuple[Any, str]]:
        """The runs that turned out to be parts of others, now that more of their trace is there."""
        there = {(run.unit, run.run_id) for run in sight.runs}
        for place in bundle.known:
            if place not in there and sight.covers(bundle.needed.get(place, frozenset())):
                yield place

    def latest(self, run_id: str) -> tuple[int, str] | None:
        """Revision and digest of what was last scored of a run, written down or not."""
        for evaluation in reversed(self._pending):
            if evaluation.run.run_id == run_id:
                return evaluation.revision, evaluation.digest
        return self._store.latest(run_id)

    def _stored(self, bundle: Bundle) -> Iterator[Mapping[str, Any]]:
        for trace_id in [key.hex() for key in bundle.keys if isinstance(key, bytes)]:
            if self._store.knows_trace(trace_id):
                page = self._store.runs(RunFilter(trace_id=trace_id), limit=MOST_AT_ONCE)
                yield from (stored.current.document for stored in page.items)
            for evaluation in self._pending:
                if trace_id in evaluation.run.trace_ids:
                    calls = [{"span_id": call.span_id} for call in evaluation.run.tool_calls]
                    yield {**evaluation_document(evaluation), "tool_calls": calls}


def sight_of(records: Iterable[Record], runs: Sequence[Run]) -> Sight:
    """What there is to see of the runs in some records."""
    spans = [record for record in records if isinstance(record, SpanRecord)]
    there = {span.span_id for span in spans}
    loose = [span for span in spans if span.parent_id is not None and span.parent_id not in there]
    torn = frozenset([span.span_id for span in loose if role_of(span) in WORK])
    made = {call.span_id for run in runs for call in run.tool_calls if call.span_id is not None}  # of logs, too
    return Sight(runs, frozenset(there | made), torn)


def _made_of(document: Mapping[str, Any]) -> frozenset[str]:
    """The spans that a stored run was made of, as far as they are known: its own, and those of its calls."""
    calls = {call["span_id"] for call in document["tool_calls"] if call.get("span_id") is not None}
    own = set() if document["health"]["missing_root"] or document["span_id"] is None else {document["span_id"]}
    return frozenset(calls | own)
