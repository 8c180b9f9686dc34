"""From spans to runs: conventions read them, a tree places them, cutting parts them, reconciliation joins the calls."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Protocol, TypeVar

from goldspan.content import messages
from goldspan.conventions import classification, installed_conventions
from goldspan.conventions.classification import DeclaredComponents, declared_components
from goldspan.conventions.span_facts import Role
from goldspan.extraction import logs_to_spans
from goldspan.extraction.logs_to_spans import attach_logs
from goldspan.extraction.reconciliation import run_assembly
from goldspan.extraction.reconciliation.call_reconciliation import OwnCallIds
from goldspan.extraction.reconciliation.run_assembly import assemble_run
from goldspan.extraction.reconciliation.run_checks import mark_shared_work
from goldspan.extraction.reconciliation.run_merging import merge_conversations, merge_duplicate_runs
from goldspan.extraction.segmentation.boundaries import RunSpans, split_requests
from goldspan.extraction.segmentation.boundaries import split_components as inner
from goldspan.extraction.segmentation.detached_traces import join_resumed_requests
from goldspan.extraction.segmentation.stitching import split_by_history, stitch_traces
from goldspan.extraction.span_tree import UNKNOWN_TIME, SpanNode, build_trees, release_trees
from goldspan.model import ComponentSelector, LogRecord, Run, RunUnit, SpanRecord, TelemetryRecord

__all__ = [
    "ProgressReporter",
    "Role",
    "component_name",
    "correlation_ids",
    "extract",
    "extract_units",
    "log_target",
    "role_of",
]

T = TypeVar("T")


class ProgressReporter(Protocol):
    """Looks at things on their way through what takes long, so that somebody can be told how far it is."""

    def __call__(self, items: Collection[T], doing: str, /) -> Iterable[T]:
        """The same things; `doing` says what is done with them."""
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
    """Rebuild the runs in some spans, by time of start; of runs that start together, the one whose trace came first.

    The spans, and the log events that some instrumentations write beside them, may belong to many traces and come
    in any order, more than once, and without their parents: neither order nor repetition changes a run. Traces
    without any work of an agent, model or tool hold no request.

    `golden_id_attributes` are the span attributes that may name a run's golden; the default is the variable
    `GOLDSPAN_GOLDEN_ID_ATTRIBUTE`, else `goldspan.golden.id`, then `test.case.name`.

    With `unit="component"` the runs are the marked components, the spans that `components` tell, whatever they are
    otherwise, and the agents that work inside a request, by their names.
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
    """The runs of several units, one unit after the other: the same as to `extract` each, with the spans read once."""
    attributes = classification.golden_id_attributes(golden_id_attributes)
    conventions = installed_conventions((*attributes, *run_assembly.ANNOTATION_ATTRIBUTES))
    selected = DeclaredComponents(components)
    traces: dict[str, list[SpanRecord]] = {}
    for span in attach_logs(records, conventions):
        traces.setdefault(span.trace_id, []).append(span)
    grown = watch(traces.values(), "sorting spans")
    planted = [build_trees(trace, conventions=conventions, components=selected) for trace in grown]
    with messages.cache_histories():
        portions = join_resumed_requests(
            stitch_traces(
                part for roots in planted for whole in split_requests(roots) for part in split_by_history(whole)
            )
        )
        runs = [run for unit in units for run in _runs(planted, portions, unit, attributes, watch)]
    for roots in planted:
        release_trees(roots)
    return runs


def _runs(
    planted: list[list[SpanNode]],
    portions: list[RunSpans],
    unit: RunUnit,
    golden_id_attributes: Sequence[str],
    watch: ProgressReporter,
) -> list[Run]:
    """The runs of a unit in the trees of some traces, of which `portions` are the requests; by time of start."""
    if unit == "component":
        portions = [portion for roots in planted for portion in inner(roots, portions)]
    made = OwnCallIds([node for portion in portions for node in portion.nodes])
    watched = watch(portions, "rebuilding runs")
    runs = [
        assemble_run(portion, golden_id_attributes=golden_id_attributes, other_call_ids=made) for portion in watched
    ]
    if unit != "component":
        runs = mark_shared_work(portions, runs)
        scopes = [portion.nodes[0].span.scope for portion in portions]
        runs = merge_duplicate_runs(zip(runs, scopes, strict=True))
    if unit == "conversation":
        runs = merge_conversations(runs)
    return sorted(runs, key=lambda run: UNKNOWN_TIME if run.start_ns is None else run.start_ns)


def role_of(span: SpanRecord) -> Role | None:
    """What a single span is to a run, as far as it tells by itself."""
    return installed_conventions().classify_cached(span, guessing=True).role


def correlation_ids(span: SpanRecord) -> list[Hashable]:
    """The ids by which a span may be known to belong to others of its service: of a request, of a conversation."""
    reading = installed_conventions().classify_cached(span)
    named = (("request", reading.request_id), ("session", reading.session_id))
    return [(what, span.service, value) for what, value in named if value]


def log_target(log: LogRecord) -> tuple[str | None, str | None] | None:
    """The trace and the session of whose agent a log record tells; `None`: of none's."""
    return logs_to_spans.log_target(log, installed_conventions())


def component_name(span: SpanRecord, components: Sequence[ComponentSelector] = ()) -> str | None:
    """The component that a single span stands for: as it is marked, else as `components` declare it, else none.

    That an agent's span is a component because it works inside a request, no span tells by itself.
    """
    reading = installed_conventions().classify_cached(span)
    if reading.role == "component":
        return reading.name or span.name
    return declared_components(tuple(components)).match(span) if components else None
