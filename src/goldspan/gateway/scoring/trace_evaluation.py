"""Evaluates a due trace group: extracts its runs, evaluates them and queues its held spans for export."""

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
    """The runs of a trace group, and the spans that they were extracted from."""

    runs: Sequence[Run]
    span_ids: frozenset[str]
    detached_spans: frozenset[str] = field(default_factory=frozenset)
    """The model and tool calls among them whose parent is missing."""
    missing_parents: Mapping[str, str] = field(default_factory=dict)
    """Missing parents, by span."""

    def covers(self, span_ids: frozenset[str]) -> bool:
        """Whether all of these spans are visible."""
        return span_ids <= self.span_ids

    def is_incomplete(self, run: Run) -> bool:
        """Whether only parts of a run are visible."""
        return run.health.missing_root or run.span_id in self.detached_spans

    def span_ids_of(self, run: Run) -> set[str]:
        """Returns the spans of a run: its own, those of its calls, and its missing parent."""
        spans = {call.span_id for call in run.tool_calls} | {run.span_id, self.missing_parents.get(run.span_id or "")}
        return {span_id for span_id in spans if span_id is not None}


class RevisionHistory:
    """Loads the stored revisions of a group's runs, and detects runs that show fewer spans than before.

    Journals delete scored entries after some time, so late spans may arrive without the rest of their run. The store
    records the source spans of each run, and a revision needs all of them. `pending` are evaluations that are not
    stored yet.

    Raises `StoreError` if the store cannot be read.
    """

    def __init__(self, store: SqliteStore, pending: Sequence[Evaluation]) -> None:
        self._store = store
        self._pending = pending

    def load_revisions(self, group: TraceGroup) -> None:
        """Load the stored revisions of a group's runs on the first call, and refresh them on later calls.

        The API may have evaluated runs again with other goldens since.
        """
        if group.has_loaded_revisions:
            for run_key, known in group.revisions.items():
                group.revisions[run_key] = self.latest_revision(run_key[1]) or known
            return
        for document in self._stored_documents(group):
            run_key = (document["unit"], document["run_id"])
            group.required_span_ids[run_key] = _source_span_ids(document)
            if {bytes.fromhex(trace_id) for trace_id in document["trace_ids"]} <= set(group.keys):
                group.revisions[run_key] = (document["revision"], document["digest"])
        group.has_loaded_revisions = True

    def is_remnant(self, group: TraceGroup, run: Run, visible: VisibleRuns) -> bool:
        """Whether a run consists only of late spans, because the journal no longer has the rest of it.

        That includes a request made of spans of another request, and one that was a component of a complete trace.
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
        """Yields the requests that are parts of other requests, now that more of their trace is visible."""
        there = {run.run_id for run in visible.runs if run.unit == "request"}
        for run_key in group.revisions if there else ():
            unit, run_id = run_key
            if (
                unit == "request"
                and run_id not in there
                and visible.covers(group.required_span_ids.get(run_key, frozenset()))
            ):
                yield run_key

    def latest_revision(self, run_id: str) -> tuple[int, str] | None:
        """Returns revision and digest of the latest evaluation of a run, stored or pending."""
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
    """Returns what is visible of these runs in these records."""
    spans = [record for record in records if isinstance(record, SpanRecord)]
    span_ids = {span.span_id for span in spans}
    orphans = [span for span in spans if span.parent_id is not None and span.parent_id not in span_ids]
    detached = frozenset([span.span_id for span in orphans if role_of(span) in WORK_ROLES])
    parents = {span.span_id: span.parent_id for span in orphans if span.parent_id is not None}
    calls = {call.span_id for run in runs for call in run.tool_calls if call.span_id is not None}  # also from logs
    return VisibleRuns(runs, frozenset(span_ids | calls), detached, parents)


def _source_span_ids(document: Mapping[str, Any]) -> frozenset[str]:
    """Returns the known source spans of a stored run: its own, and those of its calls."""
    calls = {call["span_id"] for call in document["tool_calls"] if call.get("span_id") is not None}
    own = set() if document["health"]["missing_root"] or document["span_id"] is None else {document["span_id"]}
    return frozenset(calls | own)


_PRUNE_THRESHOLD = 64
"""Groups of a session from which on released ones are pruned."""


class SessionGrouping:
    """Merges groups without an enclosing request with the other groups of their session."""

    def __init__(self, buffer: TraceBuffer) -> None:
        self._buffer = buffer
        self._groups_by_session: dict[StitchKey, dict[TraceGroup, None]] = {}

    def waits_for_session(
        self, trace_group: TraceGroup, records: Iterable[TelemetryRecord], runs: Iterable[Run]
    ) -> bool:
        """Whether a group was merged with others of its session and waits for more of it.

        Model and tool calls without an enclosing request may belong to one request, together with others of their
        session.
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
            others = [
                other
                for other in self._groups_by_session.pop(session, ())
                if other.is_held and other is not trace_group
            ]
            joined_groups = [trace_group]
            for other in others:
                if self._buffer.can_join(*joined_groups, other):
                    joined_groups.append(other)
            self._buffer.join_groups(joined_groups, session)
            return len(joined_groups) > 1
        session_group = self._buffer.find(session)
        if session_group is not None and not self._buffer.can_join(session_group, trace_group):
            return False
        groups = [trace_group] if session_group is None else [session_group, trace_group]
        joined = self._buffer.join_groups(groups, session)
        self._buffer.await_session(joined)
        return True

    def prune(self) -> None:
        """Remove sessions without held groups, if there are many."""
        if len(self._groups_by_session) > 2 * len(self._buffer) + 1_000:
            self._groups_by_session = {
                key: groups for key, groups in self._groups_by_session.items() if any(group.is_held for group in groups)
            }

    def _add_group(self, session: StitchKey, group: TraceGroup) -> None:
        groups = self._groups_by_session.setdefault(session, {})
        groups[group] = None
        if len(groups) > _PRUNE_THRESHOLD and not next(iter(groups)).is_held:
            self._groups_by_session[session] = {member: None for member in groups if member.is_held}


def _lack_enclosing_request(records: Iterable[TelemetryRecord], requests: Iterable[Run]) -> bool:
    """Whether the spans are model or tool calls without an enclosing request."""
    spans = {record.span_id: record for record in records if isinstance(record, SpanRecord)}
    own = [spans[run.span_id] for run in requests if run.span_id in spans]
    if any(role_of(span) in REQUEST_ROLES for span in own):  # the common case, decided without reading the other spans
        return False
    roles = {role_of(span) for span in spans.values()} - TRANSPARENT_ROLES
    roots = {role_of(span) for span in spans.values() if span.parent_id is None}
    return not roles & REQUEST_ROLES and bool(roles) and (roots == {"model"} or "model" not in roles)


@dataclass(slots=True)
class _GroupResult:
    """The evaluations of a group's runs."""

    current: list[Evaluation] = field(default_factory=list)
    """Current evaluations, without conversations."""
    new: list[Evaluation] = field(default_factory=list)
    """Evaluations to store."""
    exported_span_ids: set[str] = field(default_factory=set)
    """Spans that must not be exported again."""


class TraceEvaluator:
    """Evaluates groups one by one, and keeps the results until they are committed.

    `journals` are the journals with the spans of the groups, by number.
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
        """Evaluations to store."""
        self.superseded_run_ids: list[str] = []
        """Ids of runs to delete, because they are parts of other runs."""
        self._open_conversations: list[Run] = []
        self._history = RevisionHistory(store, self.evaluations)

    def evaluate_group(self, group: TraceGroup) -> bool:
        """Evaluate a group. Returns `False` if it was postponed to wait for its session.

        Raises `StoreError` if a journal or the store cannot be read; then nothing was evaluated.
        """
        chunks, held_chunks = self._load_chunks(group)
        result = _GroupResult()
        done = True
        with suppress_errors("score a trace", except_=StoreError):
            done = group.is_lost or self._evaluate_runs(group, chunks, result)
        if done:
            self._results_queue.add_spans(held_chunks, result.current, omit_span_ids=result.exported_span_ids)
            self.evaluations += result.new
        return done

    def _evaluate_runs(self, group: TraceGroup, chunks: Iterable[TraceChunk], result: _GroupResult) -> bool:
        """Evaluate the runs of a group. Returns `False` if the group was postponed."""
        records = [record for record in decode_chunks(chunks) if record.trace_id not in group.dropped_trace_ids]
        runs = self._pipeline.extract_runs(records)
        if not group.is_evicting and self._session_grouping.waits_for_session(group, records, runs):
            return False
        self._history.load_revisions(group)
        visible = visible_runs(records, runs)
        superseded = list(self._history.superseded_requests(group, visible))
        for run in runs:
            with suppress_errors("score a run"):
                self._evaluate_run(group, run, visible, result)
        for run_key in superseded:
            del group.revisions[run_key]
            self.superseded_run_ids.append(run_key[1])
        result.exported_span_ids = _exported_before(group, result.current)
        return True

    def evaluate_conversations(self) -> None:
        """Evaluate the conversations with new turns. May be called again after a `StoreError`."""
        while self._open_conversations:
            conversation = self._open_conversations[0]
            known = self._history.latest_revision(conversation.run_id)
            with suppress_errors("score a conversation"):
                evaluation = self._pipeline.evaluate_revision(conversation, known)
                if evaluation is not None and (known is None or evaluation.revision != known[0]):
                    self.evaluations.append(evaluation)
            del self._open_conversations[0]

    def clear_committed(self) -> None:
        """Remove the results, which are stored now."""
        self.evaluations.clear()
        self.superseded_run_ids.clear()

    def release_cache(self) -> None:
        """Release cached entries and sessions."""
        self._reader.clear_cache()
        self._session_grouping.prune()

    # --- spans -------------------------------------------------------------------------------------------------------

    def _load_chunks(self, group: TraceGroup) -> tuple[list[TraceChunk], list[TraceChunk]]:
        """Returns the spans of a group, read from the journals if not in memory; and those held for export."""
        if group.is_in_memory:
            return group.chunks, group.chunks if group.held_entries else []
        chunks: list[TraceChunk] = []
        held_chunks: list[TraceChunk] = []
        for journal, entries in group.entries_by_journal.items():
            for entry in entries:
                is_held = (journal, entry) in group.held_entries
                if is_held or not group.is_lost:
                    found = self._reader.read_chunks(self._journals[journal], journal, entry, group)
                    chunks += found
                    held_chunks += found if is_held else ()
        return chunks, held_chunks

    # --- runs --------------------------------------------------------------------------------------------------------

    def _evaluate_run(self, group: TraceGroup, run: Run, visible: VisibleRuns, result: _GroupResult) -> None:
        """Evaluate a run, unless too few of its spans are visible."""
        run_key = (run.unit, run.run_id)
        if self._history.is_remnant(group, run, visible):
            self._drop_counters.add(semconv.TOO_LATE_SPANS_COUNTER)
            return
        known = group.revisions.get(run_key)
        evaluation = self._pipeline.evaluate_revision(run, known)
        if evaluation is None:
            return
        result.current.append(evaluation)
        if known is None or evaluation.revision != known[0]:
            group.revisions[run_key] = (evaluation.revision, evaluation.digest)
            group.required_span_ids.pop(run_key, None)
            result.new.append(evaluation)
            if (conversation := self._pipeline.add_to_conversation(run)) is not None:
                self._open_conversations.append(conversation)


def _exported_before(group: TraceGroup, evaluations: Iterable[Evaluation]) -> set[str]:
    """Returns the spans of runs that were stored before the group was held and cannot be evaluated again.

    The gateway exported them with their results. A back end that replaces spans would lose the results if the spans
    were exported again without them.
    """
    evaluated = {(evaluation.run.unit, evaluation.run.span_id) for evaluation in evaluations}
    exported: set[str] = set()
    for (unit, run_id), spans in group.required_span_ids.items():
        own = run_id.partition(":")[2].partition(":")[0]
        if own in spans and evaluated.isdisjoint({(unit, own), ("request", own)}):
            exported.add(own)
    return exported
