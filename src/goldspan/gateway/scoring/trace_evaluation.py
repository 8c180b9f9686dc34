"""What becomes of a bundle that is due: its runs are found and judged, and its spans may leave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from goldspan import semconv
from goldspan._guard import suppress_errors
from goldspan.conventions.span_facts import REQUEST_ROLES, TRANSPARENT_ROLES, WORK_ROLES
from goldspan.errors import StoreError
from goldspan.extraction import role_of
from goldspan.gateway.journal.journal import Journal
from goldspan.gateway.scoring.journal_reader import JournalReader, decode_chunks
from goldspan.gateway.scoring.results_queue import ResultsQueue
from goldspan.gateway.scoring.trace_buffer import StitchKey, TraceBuffer, TraceChunk, TraceGroup
from goldspan.model import Evaluation, Run, SpanRecord, TelemetryRecord
from goldspan.online.pipeline import Pipeline
from goldspan.sinks import DropCounters
from goldspan.sinks.serialization import evaluation_document
from goldspan.store import RunFilter, SqliteStore


@dataclass(frozen=True, slots=True)
class VisibleRuns:
    """What a bundle shows: its runs, and the spans that they were made of."""

    runs: Sequence[Run]
    span_ids: frozenset[str]
    detached_spans: frozenset[str] = field(default_factory=frozenset)
    """The calls of models and tools among them whose parent is not there."""
    missing_parents: Mapping[str, str] = field(default_factory=dict)
    """By span, the parents that are not there."""

    def covers(self, span_ids: frozenset[str]) -> bool:
        """Whether all of these are to be seen."""
        return span_ids <= self.span_ids

    def is_incomplete(self, run: Run) -> bool:
        """Whether a run is known only by parts of it."""
        return run.health.missing_root or run.span_id in self.detached_spans

    def span_ids_of(self, run: Run) -> set[str]:
        """The spans that a run stands on: its own, those of its calls, and what it would be part of."""
        spans = {call.span_id for call in run.tool_calls} | {run.span_id, self.missing_parents.get(run.span_id or "")}
        return {span_id for span_id in spans if span_id is not None}


class RevisionHistory:
    """Tells what is known of the runs of a bundle, and which of them show too little of what was known.

    Journals forget what was scored some time ago, and late spans may come without the rest of their run. So of each
    stored run it is known which spans it was made of, and a revision of it needs all of them. `pending` are evaluations
    that are not in the store yet.

    Raises `StoreError` where the store cannot be read.
    """

    def __init__(self, store: SqliteStore, pending: Sequence[Evaluation]) -> None:
        self._store = store
        self._pending = pending

    def load_revisions(self, group: TraceGroup) -> None:
        """Have a bundle know what is stored of its traces: all of it at first, later what became of it.

        Runs may have been scored again by other goldens since.
        """
        if group.has_loaded_revisions:
            for place, known in group.revisions.items():
                group.revisions[place] = self.latest_revision(place[1]) or known
            return
        for document in self._stored_documents(group):
            place = (document["unit"], document["run_id"])
            group.required_span_ids[place] = _source_span_ids(document)
            if {bytes.fromhex(trace_id) for trace_id in document["trace_ids"]} <= set(group.keys):
                group.revisions[place] = (document["revision"], document["digest"])
        group.has_loaded_revisions = True

    def is_remnant(self, group: TraceGroup, run: Run, visible: VisibleRuns) -> bool:
        """Whether a run is made of what came too late, when the rest of it had been let go.

        So is a request that stands on spans of another one, and one that was a component when all was there.
        """
        needed = group.required_span_ids.get((run.unit, run.run_id))
        if needed is not None:
            return not visible.covers(needed)
        elsewhere = [spans for spans in group.required_span_ids.values() if not visible.covers(spans)]
        if elsewhere and visible.is_incomplete(run):
            return True
        if run.unit == "component" or (run.unit, run.run_id) in group.revisions:
            return False
        made = visible.span_ids_of(run)
        inside = any(
            unit == "component" and run.span_id in spans for (unit, _), spans in group.required_span_ids.items()
        )
        return inside or not all(made.isdisjoint(spans) for spans in elsewhere)

    def superseded_requests(self, group: TraceGroup, visible: VisibleRuns) -> Iterator[tuple[Any, str]]:
        """The requests that turned out to be parts of others, now that more of their trace is there."""
        there = {run.run_id for run in visible.runs if run.unit == "request"}
        for place in group.revisions if there else ():
            unit, run_id = place
            if (
                unit == "request"
                and run_id not in there
                and visible.covers(group.required_span_ids.get(place, frozenset()))
            ):
                yield place

    def latest_revision(self, run_id: str) -> tuple[int, str] | None:
        """Revision and digest of what was last scored of a run, written down or not."""
        for evaluation in reversed(self._pending):
            if evaluation.run.run_id == run_id:
                return evaluation.revision, evaluation.digest
        return self._store.current_revision(run_id)

    def _stored_documents(self, group: TraceGroup) -> Iterator[Mapping[str, Any]]:
        for trace_id in [key.hex() for key in group.keys if isinstance(key, bytes)]:
            if self._store.has_trace(trace_id):
                stored = (run.current.document for run in self._store.iter_runs(RunFilter(trace_id=trace_id)))
                yield from (document for document in stored if document["unit"] != "conversation")
            for evaluation in self._pending:
                if trace_id in evaluation.run.trace_ids and evaluation.run.unit != "conversation":
                    calls = [{"span_id": call.span_id} for call in evaluation.run.tool_calls]
                    yield {**evaluation_document(evaluation), "tool_calls": calls}


def visible_runs(records: Iterable[TelemetryRecord], runs: Sequence[Run]) -> VisibleRuns:
    """What there is to see of the runs in some records."""
    spans = [record for record in records if isinstance(record, SpanRecord)]
    there = {span.span_id for span in spans}
    loose = [span for span in spans if span.parent_id is not None and span.parent_id not in there]
    torn = frozenset([span.span_id for span in loose if role_of(span) in WORK_ROLES])
    parents = {span.span_id: span.parent_id for span in loose if span.parent_id is not None}
    made = {call.span_id for run in runs for call in run.tool_calls if call.span_id is not None}  # of logs, too
    return VisibleRuns(runs, frozenset(there | made), torn, parents)


def _source_span_ids(document: Mapping[str, Any]) -> frozenset[str]:
    """The spans that a stored run was made of, as far as they are known: its own, and those of its calls."""
    calls = {call["span_id"] for call in document["tool_calls"] if call.get("span_id") is not None}
    own = set() if document["health"]["missing_root"] or document["span_id"] is None else {document["span_id"]}
    return frozenset(calls | own)


_PRUNE_THRESHOLD = 64


class SessionGrouping:
    """Which bundles wait for the rest of their session, and which requests of it are held beside them."""

    def __init__(self, bundles: TraceBuffer) -> None:
        self._buffer = bundles
        self._groups_by_session: dict[StitchKey, dict[TraceGroup, None]] = {}

    def waits_for_session(
        self, trace_group: TraceGroup, records: Iterable[TelemetryRecord], runs: Iterable[Run]
    ) -> bool:
        """Whether a bundle was put to the rest of its session, of which more is awaited.

        Calls of models and tools without a request around them may be part of one, with others of their session.
        """
        requests = [run for run in runs if run.unit == "request"]
        sessions = {("session", run.service, run.session_id) for run in requests if run.session_id is not None}
        if len(sessions) != 1:
            return False
        (session,) = sessions
        if not _lack_enclosing_request(records, requests):
            self._add_group(session, trace_group)
            return False
        if trace_group.awaits_session:
            whole = [
                each for each in self._groups_by_session.pop(session, ()) if each.is_held and each is not trace_group
            ]
            fitting = [trace_group]
            for each in whole:
                if self._buffer.can_join(*fitting, each):
                    fitting.append(each)
            self._buffer.join_groups(fitting, session)
            return len(fitting) > 1
        group = self._buffer.find(session)
        if group is not None and not self._buffer.can_join(group, trace_group):
            return False
        joined = self._buffer.join_groups([trace_group] if group is None else [group, trace_group], session)
        self._buffer.await_session(joined)
        return True

    def prune(self) -> None:
        """Forget the sessions of which nothing is held any more, if there are many."""
        if len(self._groups_by_session) > 2 * len(self._buffer) + 1_000:
            self._groups_by_session = {
                key: held for key, held in self._groups_by_session.items() if any(each.is_held for each in held)
            }

    def _add_group(self, session: StitchKey, group: TraceGroup) -> None:
        held = self._groups_by_session.setdefault(session, {})
        held[group] = None
        if len(held) > _PRUNE_THRESHOLD and not next(iter(held)).is_held:
            self._groups_by_session[session] = {each: None for each in held if each.is_held}


def _lack_enclosing_request(records: Iterable[TelemetryRecord], requests: Iterable[Run]) -> bool:
    """Whether spans are calls of models or tools that no request stands around."""
    spans = {record.span_id: record for record in records if isinstance(record, SpanRecord)}
    own = [spans[run.span_id] for run in requests if run.span_id in spans]
    if any(role_of(span) in REQUEST_ROLES for span in own):  # which nearly all are, and then nothing else need be read
        return False
    roles = {role_of(span) for span in spans.values()} - TRANSPARENT_ROLES
    roots = {role_of(span) for span in spans.values() if span.parent_id is None}
    return not roles & REQUEST_ROLES and bool(roles) and (roots == {"model"} or "model" not in roles)


@dataclass(slots=True)
class _GroupResult:
    """What was said of the runs of a bundle."""

    current: list[Evaluation] = field(default_factory=list)
    """As they stand now, without conversations."""
    new: list[Evaluation] = field(default_factory=list)
    """Those that are to be stored."""
    exported_span_ids: set[str] = field(default_factory=set)
    """Spans that are not to leave again."""


class TraceEvaluator:
    """Judges bundles one by one, and keeps what came of it until it is written down.

    `journals` are those in which the spans of bundles are.
    """

    def __init__(
        self,
        journals: Mapping[int, Journal],
        buffer: TraceBuffer,
        pipeline: Pipeline,
        store: SqliteStore,
        results_queue: ResultsQueue,
        drop_counters: DropCounters,
    ) -> None:
        self._journals = journals
        self._pipeline = pipeline
        self._results_queue = results_queue
        self._drop_counters = drop_counters
        self._session_grouping = SessionGrouping(buffer)
        self._reader = JournalReader()
        self.evaluations: list[Evaluation] = []
        """What is to be stored."""
        self.superseded_run_ids: list[str] = []
        """The ids of runs that are to be taken back: they turned out to be parts of others."""
        self._open_conversations: list[Run] = []
        self._history = RevisionHistory(store, self.evaluations)

    def evaluate_group(self, group: TraceGroup) -> bool:
        """Judge what is held of a bundle; whether that is done, and not put off.

        Raises `StoreError` where a journal or the store cannot be read; nothing was judged then.
        """
        parts, held = self._load_chunks(group)
        verdicts = _GroupResult()
        done = True
        with suppress_errors("score a trace", except_=StoreError):
            done = group.is_lost or self._evaluate_runs(group, parts, verdicts)
        if done:
            self._results_queue.add_spans(held, verdicts.current, omit_span_ids=verdicts.exported_span_ids)
            self.evaluations += verdicts.new
        return done

    def _evaluate_runs(self, group: TraceGroup, chunks: Iterable[TraceChunk], result: _GroupResult) -> bool:
        """Judge the runs of a bundle; whether it was not put off."""
        records = [record for record in decode_chunks(chunks) if record.trace_id not in group.dropped_trace_ids]
        runs = self._pipeline.extract_runs(records)
        if not group.is_evicting and self._session_grouping.waits_for_session(group, records, runs):
            return False
        self._history.load_revisions(group)
        sight = visible_runs(records, runs)
        outlived = list(self._history.superseded_requests(group, sight))
        for run in runs:
            with suppress_errors("score a run"):
                self._evaluate_run(group, run, sight, result)
        for place in outlived:
            del group.revisions[place]
            self.superseded_run_ids.append(place[1])
        result.exported_span_ids = _exported_before(group, result.current)
        return True

    def evaluate_conversations(self) -> None:
        """Judge the conversations that were continued. Raises `StoreError`; then it may be called again."""
        while self._open_conversations:
            conversation = self._open_conversations[0]
            known = self._history.latest_revision(conversation.run_id)
            with suppress_errors("score a conversation"):
                evaluation = self._pipeline.evaluate_revision(conversation, known)
                if evaluation is not None and (known is None or evaluation.revision != known[0]):
                    self.evaluations.append(evaluation)
            del self._open_conversations[0]

    def clear_committed(self) -> None:
        """Take note that what there was is stored."""
        self.evaluations.clear()
        self.superseded_run_ids.clear()

    def release_cache(self) -> None:
        """Keep no entries open for the next bundles."""
        self._reader.clear_cache()
        self._session_grouping.prune()

    # --- spans -------------------------------------------------------------------------------------------------------

    def _load_chunks(self, group: TraceGroup) -> tuple[list[TraceChunk], list[TraceChunk]]:
        """The spans of a bundle, out of the journals where they are not in memory; and those that are held still."""
        if group.is_in_memory:
            return group.chunks, group.chunks if group.held_entries else []
        parts: list[TraceChunk] = []
        held: list[TraceChunk] = []
        for journal, entries in group.entries_by_journal.items():
            for entry in entries:
                is_held = (journal, entry) in group.held_entries
                if is_held or not group.is_lost:
                    found = self._reader.read_chunks(self._journals[journal], journal, entry, group)
                    parts += found
                    held += found if is_held else ()
        return parts, held

    # --- runs --------------------------------------------------------------------------------------------------------

    def _evaluate_run(self, group: TraceGroup, run: Run, visible: VisibleRuns, result: _GroupResult) -> None:
        """Judge a run, unless there is too little of it."""
        place = (run.unit, run.run_id)
        if self._history.is_remnant(group, run, visible):
            self._drop_counters.add(semconv.TOO_LATE_SPANS_COUNTER)
            return
        known = group.revisions.get(place)
        evaluation = self._pipeline.evaluate_revision(run, known)
        if evaluation is None:
            return
        result.current.append(evaluation)
        if known is None or evaluation.revision != known[0]:
            group.revisions[place] = (evaluation.revision, evaluation.digest)
            group.required_span_ids.pop(place, None)
            result.new.append(evaluation)
            if (conversation := self._pipeline.add_to_conversation(run)) is not None:
                self._open_conversations.append(conversation)


def _exported_before(group: TraceGroup, evaluations: Iterable[Evaluation]) -> set[str]:
    """The spans of runs that were stored before the bundle was held, of which there is too little to judge them again.

    They have left with their results, which back ends that replace spans would lose if they left again without.
    """
    judged = {(evaluation.run.unit, evaluation.run.span_id) for evaluation in evaluations}
    sent: set[str] = set()
    for (unit, run_id), spans in group.required_span_ids.items():
        own = run_id.partition(":")[2].partition(":")[0]
        if own in spans and judged.isdisjoint({(unit, own), ("request", own)}):
            sent.add(own)
    return sent
