"""Extracts and evaluates the runs of due trace groups, and queues the held spans for export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from goldspan import semconv
from goldspan._guard import suppress_errors
from goldspan.conventions.span_facts import REQUEST_ROLES, TRANSPARENT_ROLES
from goldspan.errors import StoreError
from goldspan.extraction import role_of
from goldspan.gateway.scoring.journal_reader import JournalReader, decode_chunks
from goldspan.gateway.scoring.results_queue import ResultsQueue
from goldspan.gateway.scoring.revision_history import PendingEvaluations, RevisionHistory, visible_runs
from goldspan.gateway.scoring.telemetry_log import TelemetryLog
from goldspan.gateway.scoring.trace_buffer import StitchKey, TraceBuffer, TraceChunk, TraceGroup
from goldspan.model import Evaluation, Run, SpanRecord, TelemetryRecord
from goldspan.online.pipeline import Pipeline
from goldspan.sinks import DropCounters
from goldspan.store import Store

_PRUNE_THRESHOLD = 64
"""Groups of a session from which on released ones are pruned."""


class SessionGrouping:
    """Merges groups without an enclosing request with the other groups of their session.

    `before_join` is called before groups are merged, so that the groups that are due before are evaluated before.
    """

    def __init__(self, buffer: TraceBuffer, before_join: Callable[[], object]) -> None:
        self._buffer = buffer
        self._before_join = before_join
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
        self._before_join()
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
    own = {run.span_id for run in requests}
    for record in records:  # the common case, decided without the roles of the other spans
        if record.span_id in own and isinstance(record, SpanRecord) and role_of(record) in REQUEST_ROLES:
            return False
    spans = {record.span_id: record for record in records if isinstance(record, SpanRecord)}
    roles = {role_of(span) for span in spans.values()} - TRANSPARENT_ROLES
    roots = {role_of(span) for span in spans.values() if span.parent_id is None}
    return not roles & REQUEST_ROLES and bool(roles) and (roots == {"model"} or "model" not in roles)


@dataclass(slots=True)
class _ExtractedGroup:
    """A due group whose runs are evaluated next."""

    group: TraceGroup
    held_chunks: Sequence[TraceChunk]
    """Spans to export after the evaluation."""
    runs: list[Run] = field(default_factory=list)
    """The runs to evaluate."""
    is_complete: bool = False
    """Whether the extraction did not fail."""


_MAX_EXTRACTED_GROUPS = 32
_MAX_EXTRACTED_SPANS = 4096
_MAX_EXTRACTED_BYTES = 1024 * 1024
"""Groups, spans and bytes of protobuf that are extracted before their runs are evaluated, which bounds the memory."""


class TraceEvaluator:
    """Extracts and evaluates groups, and keeps the results until they are committed.

    It extracts several groups, then evaluates their runs, then submits the evaluations. The processor's caches hold the
    code of one of these steps, not of all: for 32 groups that takes a tenth less time than group by group.

    `logs` are the logs with the spans of the groups, by number.
    """

    def __init__(
        self,
        logs: Mapping[int, TelemetryLog],
        buffer: TraceBuffer,
        pipeline: Pipeline,
        store: Store,
        results_queue: ResultsQueue,
        drop_counters: DropCounters,
    ) -> None:
        self._logs = logs
        self._pipeline = pipeline
        self._results_queue = results_queue
        self._buffer = buffer
        self._drop_counters = drop_counters
        self._session_grouping = SessionGrouping(buffer, self.evaluate_extracted)
        self._reader = JournalReader()
        self.pending = PendingEvaluations()
        """Evaluations to store."""
        self.superseded_run_ids: list[str] = []
        """Ids of runs to delete, because they are parts of other runs."""
        self._open_conversations: list[Run] = []
        self._extracted: list[_ExtractedGroup] = []
        self._extracted_runs = self._extracted_spans = self._extracted_bytes = 0
        self._history = RevisionHistory(store, self.pending)

    def extract_group(self, group: TraceGroup) -> bool:
        """Extract the runs of a group, for `evaluate_extracted`. Returns `False` if it waits for its session instead.

        Raises `StoreError` if a journal or the store cannot be read; then nothing of the group will be evaluated.
        """
        chunks, held_chunks = self._load_chunks(group)
        extracted = _ExtractedGroup(group, held_chunks)
        done = True
        with suppress_errors("score a trace", except_=StoreError):
            done = group.is_lost or self._extract_runs(extracted, chunks)
        if done:
            self._extracted.append(extracted)
            self._extracted_spans += group.span_count
            self._extracted_bytes += sum(len(chunk) for chunk in chunks if isinstance(chunk, bytes))
        return done

    def _extract_runs(self, extracted: _ExtractedGroup, chunks: Iterable[TraceChunk]) -> bool:
        """Extract the runs of a group. Returns `False` if the group was postponed."""
        group = extracted.group
        records = decode_chunks(chunks)
        if group.dropped_trace_ids:
            records = [record for record in records if record.trace_id not in group.dropped_trace_ids]
        runs = self._pipeline.extract_runs(records)
        if not group.is_evicting and self._session_grouping.waits_for_session(group, records, runs):
            return False
        self._history.load_revisions(group)
        if group.revisions or group.required_span_ids:
            runs = self._runs_to_revise(group, records, runs)
        extracted.runs += runs
        self._extracted_runs += len(runs)
        extracted.is_complete = True
        return True

    def _runs_to_revise(self, group: TraceGroup, records: Sequence[TelemetryRecord], runs: Sequence[Run]) -> list[Run]:
        """Returns the runs of a group that was scored before, without remnants; finds the superseded ones."""
        visible = visible_runs(records, runs)
        superseded = list(self._history.superseded_requests(group, visible))
        complete: list[Run] = []
        for run in runs:
            if self._history.is_remnant(group, run, visible):
                self._drop_counters.add(semconv.TOO_LATE_SPANS_COUNTER)
            else:
                complete.append(run)
        for run_key in superseded:
            del group.revisions[run_key]
            self.superseded_run_ids.append(run_key[1])
        return complete

    @property
    def is_full(self) -> bool:
        """Whether enough was extracted to evaluate it now."""
        return (
            len(self._extracted) >= _MAX_EXTRACTED_GROUPS
            or self._extracted_spans >= _MAX_EXTRACTED_SPANS
            or self._extracted_bytes >= _MAX_EXTRACTED_BYTES
        )

    @property
    def run_count(self) -> int:
        """The number of runs that were extracted or evaluated and are not stored yet."""
        return len(self.pending) + self._extracted_runs

    def evaluate_extracted(self) -> None:
        """Evaluate the runs of the extracted groups, and queue the held spans of these groups."""
        extracted, self._extracted = self._extracted, []
        self._extracted_runs = self._extracted_spans = self._extracted_bytes = 0
        runs = [(run, each.group.revisions.get((run.unit, run.run_id))) for each in extracted for run in each.runs]
        evaluations = iter(self._pipeline.evaluate_revisions(runs))
        for each in extracted:
            current = [found for found in islice(evaluations, len(each.runs)) if found is not None]
            with suppress_errors("score a trace group"):
                self._finish_group(each, current)

    def _finish_group(self, extracted: _ExtractedGroup, evaluations: Sequence[Evaluation]) -> None:
        """Keep the current evaluations of a group, and queue its held spans."""
        group = extracted.group
        for evaluation in evaluations:
            run = evaluation.run
            run_key = (run.unit, run.run_id)
            known = group.revisions.get(run_key)
            if known is None or evaluation.revision != known[0]:
                group.revisions[run_key] = (evaluation.revision, evaluation.digest)
                group.required_span_ids.pop(run_key, None)
                self.pending.add(evaluation)
                if (conversation := self._pipeline.add_to_conversation(run)) is not None:
                    self._open_conversations.append(conversation)
        if extracted.held_chunks:
            exported = _exported_before(group, evaluations) if extracted.is_complete else ()
            self._results_queue.add_spans(extracted.held_chunks, evaluations, omit_span_ids=exported)

    def evaluate_conversations(self) -> None:
        """Evaluate the conversations with new turns. May be called again after a `StoreError`."""
        while self._open_conversations:
            conversation = self._open_conversations[0]
            known = self._history.latest_revision(conversation.run_id)
            with suppress_errors("score a conversation"):
                evaluation = self._pipeline.evaluate_revision(conversation, known)
                if evaluation is not None and (known is None or evaluation.revision != known[0]):
                    self.pending.add(evaluation)
            del self._open_conversations[0]

    def clear_committed(self) -> None:
        """Remove the results, which are stored now."""
        self.pending.clear()
        self.superseded_run_ids.clear()

    def release_cache(self) -> None:
        """Release cached entries and sessions."""
        self._reader.clear_cache()
        self._session_grouping.prune()

    # --- spans -------------------------------------------------------------------------------------------------------

    def _load_chunks(self, group: TraceGroup) -> tuple[list[TraceChunk], list[TraceChunk]]:
        """Returns the spans of a group, read from the logs if not in memory; and those held for export."""
        if group.is_in_memory:
            return group.chunks, group.chunks if group.held_entries else []
        chunks: list[TraceChunk] = []
        held_chunks: list[TraceChunk] = []
        for number, entries in group.entries_by_journal.items():
            for entry in entries:
                is_held = (number, entry) in group.held_entries
                if is_held or not group.is_lost:
                    found = self._reader.read_chunks(self._logs[number], number, entry, group)
                    if found is None:  # deleted by the broker: an incomplete trace must not be scored
                        self._buffer.mark_lost(group)
                        continue
                    chunks += found
                    held_chunks += found if is_held else ()
        return chunks, held_chunks


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
