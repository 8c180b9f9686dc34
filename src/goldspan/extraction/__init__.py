"""From spans to runs: conventions read them, a tree places them, cutting parts them, reconciliation joins the calls."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Protocol, TypeVar

from goldspan.extraction import golden_ids, histories, logs, statements
from goldspan.extraction.consistency import compared
from goldspan.extraction.conventions import installed
from goldspan.extraction.conversations import conversations
from goldspan.extraction.cutting import Portion, requests
from goldspan.extraction.cutting import components as inner
from goldspan.extraction.logs import spans_with_logs
from goldspan.extraction.reading import Role
from goldspan.extraction.reconciliation import IdsMade
from goldspan.extraction.resuming import rejoin
from goldspan.extraction.runs import assemble
from goldspan.extraction.selection import Selection, selection_of
from goldspan.extraction.stitching import parts, stitch
from goldspan.extraction.times import NEVER
from goldspan.extraction.tree import Node, fell, plant
from goldspan.extraction.twins import without_twins
from goldspan.model import ComponentSpans, LogRecord, Record, Run, SpanRecord, Unit

__all__ = ["Role", "Watch", "component_names", "extract", "extract_units", "ids_of", "role_of", "told_of"]

T = TypeVar("T")


class Watch(Protocol):
    """Looks at things on their way through what takes long, so that somebody can be told how far it is."""

    def __call__(self, items: Collection[T], doing: str, /) -> Iterable[T]:
        """The same things; `doing` says what is done with them."""
        ...


def _unwatched(items: Collection[T], doing: str, /) -> Iterable[T]:
    return items


def extract(
    records: Iterable[Record],
    *,
    unit: Unit = "request",
    golden_id_attributes: Sequence[str] | None = None,
    components: Sequence[ComponentSpans] = (),
    watch: Watch = _unwatched,
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
    records: Iterable[Record],
    units: Sequence[Unit],
    *,
    golden_id_attributes: Sequence[str] | None = None,
    components: Sequence[ComponentSpans] = (),
    watch: Watch = _unwatched,
) -> list[Run]:
    """The runs of several units, one unit after the other: the same as to `extract` each, with the spans read once."""
    attributes = golden_ids.golden_id_attributes(golden_id_attributes)
    conventions = installed((*attributes, *statements.ATTRIBUTES))
    selected = Selection(components)
    traces: dict[str, list[SpanRecord]] = {}
    for span in spans_with_logs(records, conventions):
        traces.setdefault(span.trace_id, []).append(span)
    grown = watch(traces.values(), "sorting spans")
    planted = [plant(trace, conventions=conventions, selected=selected) for trace in grown]
    with histories.remembered():
        portions = rejoin(stitch(part for roots in planted for whole in requests(roots) for part in parts(whole)))
        runs = [run for unit in units for run in _runs(planted, portions, unit, attributes, watch)]
    for roots in planted:
        fell(roots)
    return runs


def _runs(
    planted: list[list[Node]], portions: list[Portion], unit: Unit, golden_id_attributes: Sequence[str], watch: Watch
) -> list[Run]:
    """The runs of a unit in the trees of some traces, of which `portions` are the requests; by time of start."""
    if unit == "component":
        portions = [portion for roots in planted for portion in inner(roots, portions)]
    made = IdsMade([node for portion in portions for node in portion.nodes])
    watched = watch(portions, "rebuilding runs")
    runs = [assemble(portion, golden_id_attributes=golden_id_attributes, elsewhere=made) for portion in watched]
    if unit != "component":
        runs = compared(portions, runs)
        scopes = [portion.nodes[0].span.scope for portion in portions]
        runs = without_twins(zip(runs, scopes, strict=True))
    if unit == "conversation":
        runs = conversations(runs)
    return sorted(runs, key=lambda run: NEVER if run.start_ns is None else run.start_ns)


def role_of(span: SpanRecord) -> Role | None:
    """What a single span is to a run, as far as it tells by itself."""
    return installed().read_again(span, guessing=True).role


def ids_of(span: SpanRecord) -> list[Hashable]:
    """The ids by which a span may be known to belong to others of its service: of a request, of a conversation."""
    reading = installed().read_again(span)
    named = (("request", reading.request_id), ("session", reading.session_id))
    return [(what, span.service, value) for what, value in named if value]


def told_of(log: LogRecord) -> tuple[str | None, str | None] | None:
    """The trace and the session of whose agent a log record tells; `None`: of none's."""
    return logs.told_of(log, installed())


def component_names(span: SpanRecord, components: Sequence[ComponentSpans] = ()) -> str | None:
    """The component that a single span stands for: as it is marked, else as `components` declare it, else none.

    That an agent's span is a component because it works inside a request, no span tells by itself.
    """
    reading = installed().read_again(span)
    if reading.role == "component":
        return reading.name or span.name
    return selection_of(tuple(components)).name_of(span) if components else None
