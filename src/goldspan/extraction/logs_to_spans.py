"""Log events brought to the spans they belong to, so that conventions read both in one way.

Instrumentations that keep messages out of spans write them as log events (`gen_ai.*`) during the span: they become
events of it. Agents that report whole tool calls as log events, without any span, are read event by event: each becomes
a span of its own, in a trace made of the session it names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Any

from goldspan.content import literals
from goldspan.conventions.classification import ConventionSet
from goldspan.model import LogRecord, SpanEvent, SpanRecord, TelemetryRecord

EVENT_NAME = "event.name"
_MESSAGE_EVENT_PREFIX = "gen_ai."
"""How the names of events begin that tell what a span's model was asked or answered."""
_SESSION_KEYS = ("session.id", "gen_ai.conversation.id", "conversation.id")
_DURATION_KEYS = ("duration_ms", "duration")


def attach_logs(records: Iterable[TelemetryRecord], conventions: ConventionSet) -> list[SpanRecord]:
    """The spans, each with the log events written during it, and spans made of the log events that stand alone.

    The order of the records does not matter; a log that came twice counts once.
    """
    spans: list[SpanRecord] = []
    logs: list[LogRecord] = []
    for record in records:
        (spans if isinstance(record, SpanRecord) else logs).append(record)  # type: ignore[arg-type]
    if not logs:
        return spans
    traces = {span.trace_id for span in spans}
    apart = _sessions_outside_traces(logs, traces, conventions)
    events: dict[tuple[str, str], dict[str, LogRecord]] = {}
    alone: dict[str, SpanRecord] = {}
    for log in logs:
        key = _log_fingerprint(log)
        is_apart = bool(apart) and _session(log) in apart
        if log.name.startswith(_MESSAGE_EVENT_PREFIX) and log.trace_id and log.span_id and not is_apart:
            events.setdefault((log.trace_id, log.span_id), {})[key] = log
            continue
        made = _span_from_log(log, key, () if is_apart else traces)
        if made is not None and conventions.classify(made).role is not None:
            alone[key] = made
    found = [_with_log_events(span, events.get((span.trace_id, span.span_id))) for span in spans]
    known = {(span.trace_id, span.span_id) for span in spans}
    lost = [_placeholder_span(place, heard) for place, heard in events.items() if place not in known]
    return [*found, *lost, *alone.values()]


def log_target(log: LogRecord, conventions: ConventionSet) -> tuple[str | None, str | None] | None:
    """The trace and the session that a log record tells something of; `None`: it says nothing about any agent's work.

    Its session is named only where it may be known by that rather than by its trace.
    """
    if log.name.startswith(_MESSAGE_EVENT_PREFIX) and log.trace_id and log.span_id:
        return log.trace_id, None
    made = _span_from_log(log, "", ())
    if made is None or conventions.classify(made).role is None:
        return None
    return log.trace_id, _session(log)


def _sessions_outside_traces(logs: Iterable[LogRecord], traces: Container[str], conventions: ConventionSet) -> set[str]:
    """The sessions whose prompts stand outside all traces. Their events stay together, whatever traces they name.

    Gemini CLI puts a prompt in no trace and each of its tool calls in one of its own.
    """
    apart: set[str] = set()
    for log in logs:
        if log.trace_id in traces or log.name.startswith(_MESSAGE_EVENT_PREFIX):
            continue
        session = _session(log)
        if session is None or session in apart:
            continue
        made = _span_from_log(log, "", traces)
        if made is not None and conventions.classify(made).role == "entry":
            apart.add(session)
    return apart


def _with_log_events(span: SpanRecord, logs: Mapping[str, LogRecord] | None) -> SpanRecord:
    return span if not logs else replace(span, events=(*span.events, *_events(logs)))


def _placeholder_span(place: tuple[str, str], logs: Mapping[str, LogRecord]) -> SpanRecord:
    """A span in the place of one that never arrived: its log events tell when it was at work and on what."""
    events = _events(logs)
    ordered = [logs[key] for key in sorted(logs)]
    attributes = {key: value for log in ordered for key, value in log.attributes.items()}
    times = [event.time_ns for event in events if event.time_ns is not None]
    first = ordered[0]
    return SpanRecord(
        trace_id=place[0],
        span_id=place[1],
        parent_id=None,
        name=first.name,
        attributes={**attributes, EVENT_NAME: first.name},
        start_ns=min(times, default=None),
        end_ns=max(times, default=None),
        events=events,
        scope=first.scope,
        resource=first.resource,
    )


def _events(logs: Mapping[str, LogRecord]) -> tuple[SpanEvent, ...]:
    ordered = sorted(logs.items(), key=lambda item: (item[1].time_ns or 0, item[0]))
    return tuple(SpanEvent(log.name, _body_and_attributes(log), log.time_ns) for _, log in ordered)


def _span_from_log(log: LogRecord, key: str, traces: Container[str]) -> SpanRecord | None:
    """A log event as the span that its agent did not make; `None` where nothing says what it belongs to.

    It belongs to its trace where that is one of those with spans; else to its session.
    """
    facts = _body_and_attributes(log)
    session = _session(log)
    trace_id = log.trace_id
    if session is not None and trace_id not in traces:
        trace_id = _hex_digest(session, 32)
    if not log.name or trace_id is None:
        return None
    end = log.time_ns
    lasted = next((facts[name] for name in _DURATION_KEYS if name in facts), 0)
    return SpanRecord(
        trace_id=trace_id,
        span_id=_hex_digest(key, 16),
        parent_id=log.span_id if trace_id == log.trace_id else None,
        name=log.name,
        # Rust's tracing fills the field with a place in the source: the attribute, where there is one, knows better.
        attributes={EVENT_NAME: log.name, **facts},
        start_ns=None if end is None else max(0, end - _nanoseconds(lasted)),
        end_ns=end,
        scope=log.scope,
        resource=log.resource,
    )


def _session(log: LogRecord) -> str | None:
    facts = _body_and_attributes(log)
    session = next((facts[name] for name in _SESSION_KEYS if facts.get(name)), log.resource.get("session.id"))
    return None if session is None else str(session)


def _body_and_attributes(log: LogRecord) -> dict[str, Any]:
    """Attributes and body in one: which of the two holds a fact differs between versions of one convention."""
    body = literals.plain_value(log.body) if isinstance(log.body, str) and log.body.startswith("{") else log.body
    body = body if isinstance(body, Mapping) else {} if body is None else {"body": body}
    return {**body, **log.attributes}


def _nanoseconds(milliseconds: Any) -> int:
    try:
        return max(0, int(float(milliseconds) * 1_000_000))
    except (TypeError, ValueError, OverflowError):
        return 0


def _log_fingerprint(log: LogRecord) -> str:
    """The same for a log that was exported twice. Begins with its time, so that it sorts by it."""
    try:
        content = json.dumps([log.name, log.body, dict(log.attributes)], sort_keys=True, default=repr)
    except (TypeError, ValueError, RecursionError):  # keys or depths that JSON does not have
        content = repr((log.name, log.body, sorted(log.attributes.items(), key=lambda item: item[0])))
    return f"{log.time_ns or 0:020d}{log.trace_id}{log.span_id}{content}"


def _hex_digest(text: str, digits: int) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=digits // 2).hexdigest()
