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
``trace_links``: finds what may connect a trace with others.
``run_extraction``: extracts the runs from the records of all traces, or of one.
``capture_diagnostics``: explains what is incomplete in a captured run, and how to fix it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from goldspan.conventions import installed_conventions
from goldspan.conventions.classification import declared_components
from goldspan.conventions.span_facts import Role
from goldspan.extraction import logs_to_spans
from goldspan.extraction.run_extraction import ProgressReporter, extract, extract_units
from goldspan.extraction.segmentation import detached_tools
from goldspan.model import ComponentSelector, LogRecord, SpanRecord, TelemetryRecord

__all__ = [
    "ProgressReporter",
    "Role",
    "component_name",
    "correlation_keys",
    "extract",
    "extract_units",
    "log_target",
    "role_of",
    "session_of",
]


def role_of(span: SpanRecord) -> Role | None:
    """Returns the role of a span in a run, as far as the span alone shows it."""
    return installed_conventions().classify_cached(span, guessing=True).role


def correlation_keys(spans: Iterable[SpanRecord]) -> list[Hashable]:
    """Returns the keys that spans of one request share: request ids first, then session ids."""
    conventions = installed_conventions()
    return list(detached_tools.correlation_keys((span, conventions.classify_cached(span)) for span in spans))


def session_of(record: TelemetryRecord) -> str | None:
    """Returns the session that a span, or the agent work that a log record describes, names."""
    if isinstance(record, SpanRecord):
        return installed_conventions().classify_cached(record).session_id
    target = log_target(record)
    return None if target is None else target[1]


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
