"""Extracts the runs from records: from all at once, or from those of one trace after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple, Protocol, TypeVar

from goldspan.content import messages
from goldspan.conventions import classification, installed_conventions
from goldspan.conventions.classification import DeclaredComponents
from goldspan.extraction.logs_to_spans import attach_logs, log_session
from goldspan.extraction.reconciliation.call_reconciliation import OwnCallIds
from goldspan.extraction.reconciliation.run_annotations import ANNOTATION_ATTRIBUTES
from goldspan.extraction.reconciliation.run_assembly import assemble_run
from goldspan.extraction.reconciliation.run_checks import mark_shared_work
from goldspan.extraction.reconciliation.run_merging import merge_conversations, merge_duplicate_runs
from goldspan.extraction.segmentation.boundaries import RunSpans, split_components, split_requests
from goldspan.extraction.segmentation.detached_tools import join_resumed_requests
from goldspan.extraction.segmentation.stitching import split_by_history, stitch_traces
from goldspan.extraction.span_node import UNKNOWN_TIME, SpanNode
from goldspan.extraction.span_tree import build_trees, release_trees
from goldspan.extraction.trace_links import TraceLink, run_links, segment_links, session_link
from goldspan.model import ComponentSelector, LogRecord, Run, RunUnit, SpanRecord, TelemetryRecord

T = TypeVar("T")


class ProgressReporter(Protocol):
    """Wraps a collection that takes long to process, in order to report the progress."""

    def __call__(self, items: Collection[T], doing: str, /) -> Iterable[T]:
        """Returns an iterable of the same items; `doing` describes the work."""
        ...


def _without_progress(items: Collection[T], doing: str, /) -> Iterable[T]:
    return items


def extract(
    records: Iterable[TelemetryRecord],
    *,
    unit: RunUnit = "request",
    golden_id_attributes: Sequence[str] | None = None,
    components: Sequence[ComponentSelector] = (),
    watch: ProgressReporter = _without_progress,
    other_call_ids: Container[str] = (),
) -> list[Run]:
    """Builds the runs from spans and log records.

    The records may belong to many traces, and may arrive in any order, repeatedly and without their parents: neither
    order nor repetition changes a run. A trace without agent, model and tool spans contains no run.

    Args:
        records: The spans, and the log events that some instrumentations write beside them.
        unit: What a run is. With `component`, the runs are the marked components, the spans that `components` selects
            (whatever their role), and the named agents inside a request.
        golden_id_attributes: The span attributes that may name a run's golden. Default: the variable
            `GOLDSPAN_GOLDEN_ID_ATTRIBUTE`, else `goldspan.golden.id`, then `test.case.name`.
        components: Selects spans that count as components without a mark.
        watch: Reports the progress.
        other_call_ids: The ids of calls in traces that are not among the records.

    Returns:
        The runs by start time. Runs that start at the same time are in the order of their first spans in `records`.
    """
    return extract_units(
        records,
        (unit,),
        golden_id_attributes=golden_id_attributes,
        components=components,
        watch=watch,
        other_call_ids=other_call_ids,
    )


def extract_units(
    records: Iterable[TelemetryRecord],
    units: Sequence[RunUnit],
    *,
    golden_id_attributes: Sequence[str] | None = None,
    components: Sequence[ComponentSelector] = (),
    watch: ProgressReporter = _without_progress,
    other_call_ids: Container[str] = (),
) -> list[Run]:
    """Builds the runs of several units, one unit after the other, and reads the spans only once.

    The result is the same as that of `extract` for each unit. The parameters are those of `extract`.
    """
    attributes = classification.golden_id_attributes(golden_id_attributes)
    conventions = installed_conventions((*attributes, *ANNOTATION_ATTRIBUTES))
    selected = DeclaredComponents(components)
    traces: defaultdict[str, list[SpanRecord]] = defaultdict(list)
    received = list(records)
    for span in _spans_with_logs(received, conventions):
        traces[span.trace_id].append(span)
    places = first_places(zip(received, count()))
    del received
    watched = watch(traces.values(), "sorting spans")
    trees = [build_trees(trace, conventions=conventions, components=selected) for trace in watched]
    with messages.cache_histories():
        requests = _find_requests(trees)
        runs = [
            run
            for unit in units
            for run in sorted(
                _build_runs(trees, requests, unit, attributes, watch, other_call_ids),
                key=lambda run: (*run_order(run, places), run.run_id),
            )
        ]
    for roots in trees:
        release_trees(roots)
    return runs


def _spans_with_logs(
    received: Sequence[TelemetryRecord], conventions: classification.ConventionSet
) -> list[SpanRecord]:
    spans = [record for record in received if isinstance(record, SpanRecord)]
    logs = [record for record in received if isinstance(record, LogRecord)] if len(spans) < len(received) else []
    return attach_logs(spans, logs, conventions) if logs else spans


def _find_requests(trees: list[list[SpanNode]]) -> list[RunSpans]:
    return _stitch([segment for roots in trees for segment in _split(roots)])


def _split(roots: list[SpanNode]) -> list[RunSpans]:
    """Returns the segments of one trace before it is compared with others."""
    return [part for request in split_requests(roots) for part in split_by_history(request)]


def _stitch(segments: list[RunSpans]) -> list[RunSpans]:
    return join_resumed_requests(stitch_traces(segments)) if len(segments) > 1 else segments


def _build_runs(
    trees: list[list[SpanNode]],
    requests: list[RunSpans],
    unit: RunUnit,
    golden_id_attributes: Sequence[str],
    watch: ProgressReporter,
    other_call_ids: Container[str],
) -> list[Run]:
    """Builds the runs of one unit."""
    segments = _segments_of(trees, requests, unit)
    call_ids = OwnCallIds([node for segment in segments for node in segment.nodes], other_call_ids)
    watched = watch(segments, "rebuilding runs")
    runs = [
        assemble_run(segment, golden_id_attributes=golden_id_attributes, other_call_ids=call_ids) for segment in watched
    ]
    return _join_runs(runs, segments, unit)


def _segments_of(trees: list[list[SpanNode]], requests: list[RunSpans], unit: RunUnit) -> list[RunSpans]:
    if unit != "component":
        return requests
    return [component for roots in trees for component in split_components(roots, requests)]


def _join_runs(runs: list[Run], segments: list[RunSpans], unit: RunUnit) -> list[Run]:
    """Compares the runs of segments with each other, and joins those that are one."""
    if unit != "component" and len(runs) > 1:
        runs = mark_shared_work(segments, runs)
        scopes = [segment.nodes[0].span.scope for segment in segments]
        runs = merge_duplicate_runs(zip(runs, scopes, strict=True))
    if unit == "conversation":
        runs = merge_conversations(runs)
    return runs


def first_places(records: Iterable[tuple[TelemetryRecord, int]]) -> dict[str, int]:
    """Returns the place of the first span of each trace, for records that are given with their places."""
    places: dict[str, int] = {}
    for record, place in records:
        if isinstance(record, SpanRecord):
            places.setdefault(record.trace_id, place)
    return places


def run_order(run: Run, places: Mapping[str, int]) -> tuple[int, int]:
    """Returns what runs are sorted by before their id: their start, and the place of the first span of their traces."""
    place = min([places.get(trace_id, UNKNOWN_PLACE) for trace_id in run.trace_ids], default=UNKNOWN_PLACE)
    return UNKNOWN_TIME if run.start_ns is None else run.start_ns, place


UNKNOWN_PLACE = (1 << 64) - 1
"""The place of a run without spans in its traces, such as one from log events."""


class TraceRuns(NamedTuple):
    """The runs of one trace, if it is connected with no other trace."""

    runs: list[Run]
    links: set[TraceLink]
    """What may connect it with others."""
    asked_call_ids: frozenset[str]
    """The ids of calls that a run repeats and that no run of this trace made. It matters whether another trace has
    such a run."""
    own_call_ids: frozenset[str]
    """The ids of calls that the runs made."""


class TraceExtractor:
    """Extracts the runs of one trace after the other."""

    def __init__(
        self,
        unit: RunUnit,
        golden_id_attributes: Sequence[str] | None = None,
        components: Sequence[ComponentSelector] = (),
    ) -> None:
        """Prepare for many traces; the parameters are those of `extract`."""
        self._unit: RunUnit = unit
        self._attributes = classification.golden_id_attributes(golden_id_attributes)
        self._conventions = installed_conventions((*self._attributes, *ANNOTATION_ATTRIBUTES))
        self._components = DeclaredComponents(components)

    def extract_trace(self, records: Sequence[TelemetryRecord]) -> TraceRuns:
        """Returns the runs that one trace has without others; the records are those of the trace."""
        traces: defaultdict[str, list[SpanRecord]] = defaultdict(list)
        for span in _spans_with_logs(records, self._conventions):
            traces[span.trace_id].append(span)  # log events of a session may form a second trace
        trees = [
            build_trees(spans, conventions=self._conventions, components=self._components) for spans in traces.values()
        ]
        sessions = {log_session(record) for record in records if isinstance(record, LogRecord)}
        links = {session_link(session) for session in sessions if session is not None}
        asked = _AskedCallIds()
        with messages.cache_histories():
            split = [_split(roots) for roots in trees]
            for parts in split:
                links.update(segment_links(parts))
            requests = _stitch([part for parts in split for part in parts])
            segments = _segments_of(trees, requests, self._unit)
            own = OwnCallIds([node for segment in segments for node in segment.nodes], asked)
            runs = [
                assemble_run(segment, golden_id_attributes=self._attributes, other_call_ids=own) for segment in segments
            ]
            if self._unit != "component":
                scopes = [segment.nodes[0].span.scope for segment in segments]
                links.update(run_links(zip(runs, scopes, strict=True), self._unit))
            runs = _join_runs(runs, segments, self._unit)
        for roots in trees:
            release_trees(roots)
        return TraceRuns(runs, links, frozenset(asked.ids), own.ids)


class _AskedCallIds:
    """Records the ids that are looked up, and contains none."""

    def __init__(self) -> None:
        self.ids: set[str] = set()

    def __contains__(self, call_id: object) -> bool:
        self.ids.add(str(call_id))
        return False
