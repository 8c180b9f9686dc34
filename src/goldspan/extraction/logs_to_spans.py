"""Adds log events to the spans that they belong to, and makes spans of log events without one.

Some instrumentations write messages as log events (`gen_ai.*`) during a span: these become events of the span. Some
agents write tool calls as log events without any span: each becomes a separate span, in a trace derived from the
session that it names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Any

from goldspan.content import literals
from goldspan.conventions.classification import ConventionSet
from goldspan.model import LogRecord, SpanEvent, SpanRecord

EVENT_NAME = "event.name"
_MESSAGE_EVENT_PREFIX = "gen_ai."
"""The prefix of the events that hold the input and output messages of a model span."""
_SESSION_KEYS = ("session.id", "gen_ai.conversation.id", "conversation.id")
_DURATION_KEYS = ("duration_ms", "duration")


def attach_logs(spans: list[SpanRecord], logs: Iterable[LogRecord], conventions: ConventionSet) -> list[SpanRecord]:
    """Returns the spans with the log events written during them, and spans made of the log events without a span.

    The order of the records does not matter. A repeated log record counts once.
    """
    logs = list(logs)
    trace_ids = {span.trace_id for span in spans}
    separate_sessions = _sessions_outside_traces(logs, trace_ids, conventions)
    events: dict[tuple[str, str], dict[str, LogRecord]] = {}
    log_spans: dict[str, SpanRecord] = {}
    for log in logs:
        key = _log_fingerprint(log)
        is_separate = bool(separate_sessions) and log_session(log) in separate_sessions
        if log.name.startswith(_MESSAGE_EVENT_PREFIX) and log.trace_id and log.span_id and not is_separate:
            events.setdefault((log.trace_id, log.span_id), {})[key] = log
            continue
        span = _span_from_log(log, key, () if is_separate else trace_ids)
        if span is not None and conventions.classify(span).role is not None:
            log_spans[key] = span
    complete = [_with_log_events(span, events.get((span.trace_id, span.span_id))) for span in spans]
    received = {(span.trace_id, span.span_id) for span in spans}
    placeholders = [_placeholder_span(ids, span_logs) for ids, span_logs in events.items() if ids not in received]
    return [*complete, *placeholders, *log_spans.values()]


def log_target(log: LogRecord, conventions: ConventionSet) -> tuple[str | None, str | None] | None:
    """Returns the trace id and the session id of the agent work that a log record describes; `None` if there is none.

    The session id is set only if the record is identified by its session and not by its trace.
    """
    if log.name.startswith(_MESSAGE_EVENT_PREFIX) and log.trace_id and log.span_id:
        return log.trace_id, None
    span = _span_from_log(log, "", ())
    if span is None or conventions.classify(span).role is None:
        return None
    return log.trace_id, log_session(log)


def session_trace_id(session: str) -> str:
    """Returns the id of the trace that the log events of a session form which belong to no other trace."""
    return _hex_digest(session, 32)


def _sessions_outside_traces(
    logs: Iterable[LogRecord], trace_ids: Container[str], conventions: ConventionSet
) -> set[str]:
    """The sessions whose prompts belong to no trace. Their events stay together, whatever traces they name.

    Gemini CLI writes a prompt outside any trace and each tool call in a separate trace.
    """
    sessions: set[str] = set()
    for log in logs:
        if log.trace_id in trace_ids or log.name.startswith(_MESSAGE_EVENT_PREFIX):
            continue
        session = log_session(log)
        if session is None or session in sessions:
            continue
        span = _span_from_log(log, "", trace_ids)
        if span is not None and conventions.classify(span).role == "entry":
            sessions.add(session)
    return sessions


def _with_log_events(span: SpanRecord, logs: Mapping[str, LogRecord] | None) -> SpanRecord:
    return span if not logs else replace(span, events=(*span.events, *_events(logs)))


def _placeholder_span(ids: tuple[str, str], logs: Mapping[str, LogRecord]) -> SpanRecord:
    """A replacement for a span that never arrived, built from its log events."""
    events = _events(logs)
    ordered = [logs[key] for key in sorted(logs)]
    attributes = {key: value for log in ordered for key, value in log.attributes.items()}
    times = [event.time_ns for event in events if event.time_ns is not None]
    first = ordered[0]
    return SpanRecord(
        trace_id=ids[0],
        span_id=ids[1],
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


def _span_from_log(log: LogRecord, key: str, trace_ids: Container[str]) -> SpanRecord | None:
    """A log event as a span; `None` if the event names no trace and no session.

    The span belongs to the event's trace if that is one of `trace_ids`, else to its session.
    """
    attributes = _body_and_attributes(log)
    session = log_session(log)
    trace_id = log.trace_id
    if session is not None and trace_id not in trace_ids:
        trace_id = session_trace_id(session)
    if not log.name or trace_id is None:
        return None
    end = log.time_ns
    duration = next((attributes[name] for name in _DURATION_KEYS if name in attributes), 0)
    return SpanRecord(
        trace_id=trace_id,
        span_id=_hex_digest(key, 16),
        parent_id=log.span_id if trace_id == log.trace_id else None,
        name=log.name,
        # Rust's tracing fills the name with a source location. An attribute of that name takes precedence.
        attributes={EVENT_NAME: log.name, **attributes},
        start_ns=None if end is None else max(0, end - _nanoseconds(duration)),
        end_ns=end,
        scope=log.scope,
        resource=log.resource,
    )


def log_session(log: LogRecord) -> str | None:
    """Returns the session that a log record names."""
    attributes = _body_and_attributes(log)
    session = next((attributes[name] for name in _SESSION_KEYS if attributes.get(name)), log.resource.get("session.id"))
    return None if session is None else str(session)


def _body_and_attributes(log: LogRecord) -> dict[str, Any]:
    """The attributes and the body in one mapping: which of the two holds a value differs between versions."""
    body = literals.plain_value(log.body) if isinstance(log.body, str) and log.body.startswith("{") else log.body
    body = body if isinstance(body, Mapping) else {} if body is None else {"body": body}
    return {**body, **log.attributes}


def _nanoseconds(milliseconds: Any) -> int:
    try:
        return max(0, int(float(milliseconds) * 1_000_000))
    except (TypeError, ValueError, OverflowError):
        return 0


def _log_fingerprint(log: LogRecord) -> str:
    """A key that is equal for repeated exports of one log record, and sorts by time."""
    try:
        content = json.dumps([log.name, log.body, dict(log.attributes)], sort_keys=True, default=repr)
    except (TypeError, ValueError, RecursionError):  # the value has keys or a depth that JSON does not support
        content = repr((log.name, log.body, sorted(log.attributes.items(), key=lambda item: item[0])))
    return f"{log.time_ns or 0:020d}{log.trace_id}{log.span_id}{content}"


def _hex_digest(text: str, digits: int) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=digits // 2).hexdigest()
