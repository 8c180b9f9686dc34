"""Builds runs from spans and log records, for trace files, live scoring and the gateway.

Modules in reading order:

``logs_to_spans``: adds log events to the spans that they belong to, and makes spans of log events without one.
``span_node``: a span in the tree of its trace.
``span_tree``: arranges the spans of one trace as a tree.
``model_turns``: reads the input and output of each model span, and groups the turns that continue each other.
``observed_calls``: reads a tool call from its spans.
``turn_attribution``: finds the model turn that requested a tool span.
``segmentation``: decides which spans belong to which request or component.
``reconciliation``: merges the evidence for each call, and assembles the run.
``capture_diagnostics``: explains what is incomplete in a captured run, and how to fix it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Protocol, TypeVar

from goldspan.content import messages
from goldspan.conventions import classification, installed_conventions
from goldspan.conventions.classification import DeclaredComponents, declared_components
from goldspan.conventions.span_facts import Role
from goldspan.extraction import logs_to_spans
from goldspan.extraction.logs_to_spans import attach_logs
from goldspan.extraction.reconciliation.call_reconciliation import OwnCallIds
from goldspan.extraction.reconciliation.run_annotations import ANNOTATION_ATTRIBUTES
from goldspan.extraction.reconciliation.run_assembly import assemble_run
from goldspan.extraction.reconciliation.run_checks import mark_shared_work
from goldspan.extraction.reconciliation.run_merging import merge_conversations, merge_duplicate_runs
from goldspan.extraction.segmentation import detached_tools
from goldspan.extraction.segmentation.boundaries import RunSpans, split_components, split_requests
from goldspan.extraction.segmentation.detached_tools import join_resumed_requests
from goldspan.extraction.segmentation.stitching import split_by_history, stitch_traces
from goldspan.extraction.span_node import UNKNOWN_TIME, SpanNode
from goldspan.extraction.span_tree import build_trees, release_trees
from goldspan.model import ComponentSelector, LogRecord, Run, RunUnit, SpanRecord, TelemetryRecord

__all__ = [
    "ProgressReporter",
    "Role",
    "component_name",
    "correlation_keys",
    "extract",
    "extract_units",
    "log_target",
    "role_of",
]

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

    Returns:
        The runs by start time. Runs that start at the same time are in the order of their traces.
    """
    return extract_units(
        records, (unit,), golden_id_attributes=golden_id_attributes, components=components, watch=watch
    )


def extract_units(
    records: Iterable[TelemetryRecord],
    units: Sequence[RunUnit],
    *,
    golden_id_attributes: Sequence[str] | None = None,
    components: Sequence[ComponentSelector] = (),
    watch: ProgressReporter = _without_progress,
) -> list[Run]:
    """Builds the runs of several units, one unit after the other, and reads the spans only once.

    The result is the same as that of `extract` for each unit. The parameters are those of `extract`.
    """
    attributes = classification.golden_id_attributes(golden_id_attributes)
    conventions = installed_conventions((*attributes, *ANNOTATION_ATTRIBUTES))
    selected = DeclaredComponents(components)
    traces: defaultdict[str, list[SpanRecord]] = defaultdict(list)
    for span in _spans_with_logs(records, conventions):
        traces[span.trace_id].append(span)
    watched = watch(traces.values(), "sorting spans")
    trees = [build_trees(trace, conventions=conventions, components=selected) for trace in watched]
    with messages.cache_histories():
        requests = _find_requests(trees)
        runs = [run for unit in units for run in _build_runs(trees, requests, unit, attributes, watch)]
    for roots in trees:
        release_trees(roots)
    return runs


def _spans_with_logs(records: Iterable[TelemetryRecord], conventions: classification.ConventionSet) -> list[SpanRecord]:
    received = list(records)
    spans = [record for record in received if isinstance(record, SpanRecord)]
    logs = [record for record in received if isinstance(record, LogRecord)] if len(spans) < len(received) else []
    return attach_logs(spans, logs, conventions) if logs else spans


def _find_requests(trees: list[list[SpanNode]]) -> list[RunSpans]:
    requests = [part for roots in trees for request in split_requests(roots) for part in split_by_history(request)]
    return join_resumed_requests(stitch_traces(requests)) if len(requests) > 1 else requests


def _build_runs(
    trees: list[list[SpanNode]],
    requests: list[RunSpans],
    unit: RunUnit,
    golden_id_attributes: Sequence[str],
    watch: ProgressReporter,
) -> list[Run]:
    """Builds the runs of one unit, by start time."""
    segments = requests
    if unit == "component":
        segments = [component for roots in trees for component in split_components(roots, requests)]
    call_ids = OwnCallIds([node for segment in segments for node in segment.nodes])
    watched = watch(segments, "rebuilding runs")
    runs = [
        assemble_run(segment, golden_id_attributes=golden_id_attributes, other_call_ids=call_ids) for segment in watched
    ]
    if unit != "component" and len(runs) > 1:
        runs = mark_shared_work(segments, runs)
        scopes = [segment.nodes[0].span.scope for segment in segments]
        runs = merge_duplicate_runs(zip(runs, scopes, strict=True))
    if unit == "conversation":
        runs = merge_conversations(runs)
    return sorted(runs, key=lambda run: UNKNOWN_TIME if run.start_ns is None else run.start_ns)


def role_of(span: SpanRecord) -> Role | None:
    """Returns the role of a span in a run, as far as the span alone shows it."""
    return installed_conventions().classify_cached(span, guessing=True).role


def correlation_keys(spans: Iterable[SpanRecord]) -> list[Hashable]:
    """Returns the keys that spans of one request share: request ids first, then session ids."""
    conventions = installed_conventions()
    return list(detached_tools.correlation_keys((span, conventions.classify_cached(span)) for span in spans))


def log_target(log: LogRecord) -> tuple[str | None, str | None] | None:
    """Returns the trace id and the session id of the agent work that a log record describes, or `None`.

    The session id is set only if the record is identified by its session and not by its trace.
    """
    return logs_to_spans.log_target(log, installed_conventions())


def component_name(span: SpanRecord, components: Sequence[ComponentSelector] = ()) -> str | None:
    """Returns the component that a span stands for: by its mark, else by `components`, else `None`.

    A single span does not show that an agent is a component because it works inside a request.
    """
    facts = installed_conventions().classify_cached(span)
    if facts.role == "component":
        return facts.name or span.name
    return declared_components(tuple(components)).match(span) if components else None
