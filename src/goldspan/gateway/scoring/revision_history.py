"""Finds the pending and stored evaluations of a trace group's runs, which become revisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from goldspan.conventions.span_facts import WORK_ROLES
from goldspan.extraction import role_of
from goldspan.gateway.scoring.trace_buffer import TraceGroup
from goldspan.model import Evaluation, Run, RunUnit, SpanRecord, TelemetryRecord
from goldspan.store import RunFilter, Store


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


class KnownRun(NamedTuple):
    """What the runs of a trace group are compared with: a run that was evaluated before."""

    run_key: tuple[RunUnit, str]
    trace_ids: frozenset[str]
    span_ids: frozenset[str]
    """The known source spans: its own, and those of its calls."""
    revision: int
    digest: str


class PendingEvaluations:
    """The evaluations that are not stored yet, found by run and by trace."""

    def __init__(self) -> None:
        self.evaluations: list[Evaluation] = []
        """In the order of evaluation."""
        self._latest_by_run: dict[str, Evaluation] = {}
        self._by_trace: dict[str, list[Evaluation]] = {}

    def __len__(self) -> int:
        return len(self.evaluations)

    def add(self, evaluation: Evaluation) -> None:
        """Add an evaluation."""
        run = evaluation.run
        self.evaluations.append(evaluation)
        self._latest_by_run[run.run_id] = evaluation
        for trace_id in run.trace_ids if run.unit != "conversation" else ():
            self._by_trace.setdefault(trace_id, []).append(evaluation)

    def clear(self) -> None:
        """Remove all evaluations, which are stored now."""
        self.evaluations.clear()
        self._latest_by_run.clear()
        self._by_trace.clear()

    def latest_revision(self, run_id: str) -> tuple[int, str] | None:
        """Returns revision and digest of the latest evaluation of a run."""
        evaluation = self._latest_by_run.get(run_id)
        return None if evaluation is None else (evaluation.revision, evaluation.digest)

    def known_runs(self, trace_id: str) -> Iterator[KnownRun]:
        """Yields the requests and components with spans in a trace."""
        for evaluation in self._by_trace.get(trace_id, ()):
            run = evaluation.run
            yield KnownRun(
                (run.unit, run.run_id),
                frozenset(run.trace_ids),
                _source_span_ids(run.span_id, run.health.missing_root, [call.span_id for call in run.tool_calls]),
                evaluation.revision,
                evaluation.digest,
            )


class RevisionHistory:
    """Loads the stored revisions of a group's runs, and detects runs that show fewer spans than before.

    Journals delete scored entries after some time, so late spans may arrive without the rest of their run. The store
    records the source spans of each run, and a revision needs all of them. `pending` are evaluations that are not
    stored yet.

    Raises `StoreError` if the store cannot be read.
    """

    def __init__(self, store: Store, pending: PendingEvaluations) -> None:
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
        for known_run in self._known_runs(group):
            group.required_span_ids[known_run.run_key] = known_run.span_ids
            if set(map(bytes.fromhex, known_run.trace_ids)) <= set(group.keys):
                group.revisions[known_run.run_key] = (known_run.revision, known_run.digest)
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
        return self._pending.latest_revision(run_id) or self._store.current_revision(run_id)

    def _known_runs(self, group: TraceGroup) -> Iterator[KnownRun]:
        for trace_id in [key.hex() for key in group.keys if isinstance(key, bytes)]:
            if self._store.has_trace(trace_id):
                for run in self._store.iter_runs(RunFilter(trace_id=trace_id)):
                    document = run.current.document
                    if document["unit"] != "conversation":
                        yield _known_run_from(document)
            yield from self._pending.known_runs(trace_id)


def visible_runs(records: Iterable[TelemetryRecord], runs: Sequence[Run]) -> VisibleRuns:
    """Returns what is visible of these runs in these records."""
    spans = [record for record in records if isinstance(record, SpanRecord)]
    span_ids = {span.span_id for span in spans}
    orphans = [span for span in spans if span.parent_id is not None and span.parent_id not in span_ids]
    detached = frozenset([span.span_id for span in orphans if role_of(span) in WORK_ROLES])
    parents = {span.span_id: span.parent_id for span in orphans if span.parent_id is not None}
    calls = {call.span_id for run in runs for call in run.tool_calls if call.span_id is not None}  # also from logs
    return VisibleRuns(runs, frozenset(span_ids | calls), detached, parents)


def _known_run_from(document: Mapping[str, Any]) -> KnownRun:
    calls = [call.get("span_id") for call in document["tool_calls"]]
    return KnownRun(
        (document["unit"], document["run_id"]),
        frozenset(document["trace_ids"]),
        _source_span_ids(document["span_id"], document["health"]["missing_root"], calls),
        document["revision"],
        document["digest"],
    )


def _source_span_ids(own: str | None, is_missing_root: bool, calls: Iterable[str | None]) -> frozenset[str]:
    spans = {None if is_missing_root else own, *calls}
    return frozenset([span_id for span_id in spans if span_id is not None])
