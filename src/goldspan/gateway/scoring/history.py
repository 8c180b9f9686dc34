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


@dataclass(frozen=True, slots=True)
class Sight:
    """What a bundle shows: its runs, and the spans that they were made of."""

    runs: Sequence[Run]
    spans: frozenset[str]
    torn: frozenset[str] = field(default_factory=frozenset)
    """The calls of models and tools among them whose parent is not there."""
    parents: Mapping[str, str] = field(default_factory=dict)
    """By span, the parents that are not there."""

    def covers(self, needed: frozenset[str]) -> bool:
        """Whether all of these are to be seen."""
        return needed <= self.spans

    def is_torn(self, run: Run) -> bool:
        """Whether a run is known only by parts of it."""
        return run.health.missing_root or run.span_id in self.torn

    def makes(self, run: Run) -> set[str]:
        """The spans that a run stands on: its own, those of its calls, and what it would be part of."""
        spans = {call.span_id for call in run.tool_calls} | {run.span_id, self.parents.get(run.span_id or "")}
        return {span_id for span_id in spans if span_id is not None}


class History:
    """Tells what is known of the runs of a bundle, and which of them show too little of what was known.

    Journals forget what was scored some time ago, and late spans may come without the rest of their run. So of each
    stored run it is known which spans it was made of, and a revision of it needs all of them. `pending` are evaluations
    that are not in the store yet.

    Raises `StoreError` where the store cannot be read.
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
            place = (document["unit"], document["run_id"])
            bundle.needed[place] = _made_of(document)
            if {bytes.fromhex(trace_id) for trace_id in document["trace_ids"]} <= set(bundle.keys):
                bundle.known[place] = (document["revision"], document["digest"])
        bundle.recalled = True

    def is_remnant(self, bundle: Bundle, run: Run, sight: Sight) -> bool:
        """Whether a run is made of what came too late, when the rest of it had been let go.

        So is a request that stands on spans of another one, and one that was a component when all was there.
        """
        needed = bundle.needed.get((run.unit, run.run_id))
        if needed is not None:
            return not sight.covers(needed)
        elsewhere = [spans for spans in bundle.needed.values() if not sight.covers(spans)]
        if elsewhere and sight.is_torn(run):
            return True
        if run.unit == "component" or (run.unit, run.run_id) in bundle.known:
            return False
        made = sight.makes(run)
        inside = any(unit == "component" and run.span_id in spans for (unit, _), spans in bundle.needed.items())
        return inside or not all(made.isdisjoint(spans) for spans in elsewhere)

    def outlived(self, bundle: Bundle, sight: Sight) -> Iterator[tuple[Any, str]]:
        """The requests that turned out to be parts of others, now that more of their trace is there."""
        there = {run.run_id for run in sight.runs if run.unit == "request"}
        for place in bundle.known if there else ():
            unit, run_id = place
            if unit == "request" and run_id not in there and sight.covers(bundle.needed.get(place, frozenset())):
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
                stored = (run.current.document for run in self._store.every(RunFilter(trace_id=trace_id)))
                yield from (document for document in stored if document["unit"] != "conversation")
            for evaluation in self._pending:
                if trace_id in evaluation.run.trace_ids and evaluation.run.unit != "conversation":
                    calls = [{"span_id": call.span_id} for call in evaluation.run.tool_calls]
                    yield {**evaluation_document(evaluation), "tool_calls": calls}


def sight_of(records: Iterable[Record], runs: Sequence[Run]) -> Sight:
    """What there is to see of the runs in some records."""
    spans = [record for record in records if isinstance(record, SpanRecord)]
    there = {span.span_id for span in spans}
    loose = [span for span in spans if span.parent_id is not None and span.parent_id not in there]
    torn = frozenset([span.span_id for span in loose if role_of(span) in WORK])
    parents = {span.span_id: span.parent_id for span in loose if span.parent_id is not None}
    made = {call.span_id for run in runs for call in run.tool_calls if call.span_id is not None}  # of logs, too
    return Sight(runs, frozenset(there | made), torn, parents)


def _made_of(document: Mapping[str, Any]) -> frozenset[str]:
    """The spans that a stored run was made of, as far as they are known: its own, and those of its calls."""
    calls = {call["span_id"] for call in document["tool_calls"] if call.get("span_id") is not None}
    own = set() if document["health"]["missing_root"] or document["span_id"] is None else {document["span_id"]}
    return frozenset(calls | own)
