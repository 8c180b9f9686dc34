"""From spans to runs: conventions read them, a tree places them, cutting parts them, reconciliation joins the calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from goldspan.extraction import conventions, golden_ids
from goldspan.extraction.cutting import components, requests
from goldspan.extraction.reading import Role
from goldspan.extraction.runs import assemble
from goldspan.extraction.tree import plant
from goldspan.model import Run, SpanRecord, Unit

__all__ = ["Role", "extract", "role_of"]


def extract(
    spans: Iterable[SpanRecord],
    *,
    unit: Unit = "request",
    golden_id_attributes: Sequence[str] | None = None,
) -> list[Run]:
    """Rebuild the runs in some spans, by time of start; of runs that start together, the one whose trace came first.

    The spans may belong to many traces and come in any order, more than once, and without their parents: neither
    order nor repetition changes a run. Traces without any work of an agent, model or tool hold no request.

    `golden_id_attributes` are the span attributes that may name a run's golden; the default is the variable
    `GOLDSPAN_GOLDEN_ID_ATTRIBUTE`, else `goldspan.golden.id`, then `test.case.name`.
    """
    attributes = golden_ids.golden_id_attributes(golden_id_attributes)
    cut = components if unit == "component" else requests
    traces: dict[str, list[SpanRecord]] = {}
    for span in spans:
        traces.setdefault(span.trace_id, []).append(span)
    runs = [
        assemble(portion, golden_id_attributes=attributes) for trace in traces.values() for portion in cut(plant(trace))
    ]
    return sorted(runs, key=lambda run: float("inf") if run.start_ns is None else run.start_ns)


def role_of(span: SpanRecord) -> Role | None:
    """What a single span is to a run, as far as it tells by itself."""
    return conventions.read(span).role
