"""Captures the spans of any instrumentation separately for each case, and builds the run of a case.

One span processor serves the whole process. Each case runs under a root span of its own. A span belongs to a case if
its context or its trace does. A span of which neither is known belongs to the only case that is running; if several
are running, it is counted and belongs to none.
"""

from __future__ import annotations

import functools
import json
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context, attach, create_key, detach, get_current, get_value, set_value
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import set_span_in_context

from goldspan import semconv
from goldspan._guard import suppress_errors
from goldspan._locks import ForkSafeLock
from goldspan.capture.decorator import has_traced_tools
from goldspan.capture.sdk_spans import to_span_record
from goldspan.capture.threads import carry_context_for, stop_carrying_context_for
from goldspan.errors import ConfigurationError
from goldspan.extraction import extract
from goldspan.extraction.reconciliation.run_merging import merge_conversations
from goldspan.model import ComponentSelector, Run, SpanRecord
from goldspan.sinks.fork_safety import renew_after_fork

CASE_SCOPE = "goldspan.testing"
"""The instrumentation scope of the root spans of cases."""
DEFAULT_GRACE_S = 1.0
"""Seconds for which a case waits for spans that have not ended when the agent returns."""

_CASE_KEY = create_key("goldspan-case")
_STARTING = suppress_errors("assign a span to a case")
_ENDING = suppress_errors("record the span of a case")

_SpanKey = tuple[int, int]


class CaseSpans:
    """The spans of one attempt at one case, from `SpanCapture.begin_case`."""

    def __init__(self) -> None:
        self.context = set_value(_CASE_KEY, self, Context())
        """The context in which the agent must run: attach it, in each thread and task that calls the agent."""
        self.unattributed = 0
        """Spans that started while this and other cases ran, and that show no case."""
        self.is_closed = False
        self._root: trace.Span = trace.INVALID_SPAN
        self._ended: dict[_SpanKey, ReadableSpan] = {}
        self._open: dict[_SpanKey, Span] = {}
        self._all_ended = threading.Condition()

    def start_root(self, tracer: trace.Tracer, name: str, golden_id: str | None) -> None:
        """Start the root span.

        Raises:
            ConfigurationError: The tracer provider does not record the span.
        """
        attributes = {semconv.GOLDEN_ID: golden_id} if golden_id is not None else {}
        # The context has no span: the case is not part of a trace around it, such as that of an instrumented program.
        self._root = tracer.start_span(f"case {name}", context=self.context, attributes=attributes)
        if not self._root.is_recording():
            raise ConfigurationError(
                "the tracer provider does not record spans, so no tool call can be seen: unset OTEL_SDK_DISABLED, and "
                "let its sampler keep every trace (OTEL_TRACES_SAMPLER=always_on)"
            )
        self.context = set_span_in_context(self._root, self.context)

    def end_root(self) -> None:
        """End the root span, after the agent has returned; a second call does nothing."""
        if self._root.is_recording():
            self._root.end()

    @property
    def has_open_spans(self) -> bool:
        """Whether a span of the case has not ended."""
        return bool(self._open)

    def wait_for_spans(self, grace: float = DEFAULT_GRACE_S) -> None:
        """Wait until every span of the case has ended, at most `grace` seconds."""
        with self._all_ended:
            self._all_ended.wait_for(lambda: not self._open, timeout=grace)

    def build_run(
        self,
        golden_id: str | None = None,
        request_text: str | None = None,
        components: Sequence[ComponentSelector] = (),
    ) -> Run:
        """Return the run of the case.

        Extraction builds it as it does from a trace file. If it finds several requests, because the agent consists of
        several agents or starts traces of its own, they are merged as the requests of a conversation are. If it finds
        none, no model and no tool was called: the run then has no calls.

        Args:
            golden_id: The golden of the run; `None`: the golden that the spans name.
            request_text: The input of the run if the spans have none.
            components: The spans that golden files declare as components.
        """
        with self._all_ended:
            open_spans, ended_spans = list(self._open.values()), list(self._ended.values())
        records = [to_span_record(span) for span in (*ended_spans, *open_spans)]
        runs = extract(records, unit="request", components=components)
        run = _merge_requests(runs, self._case_id) if runs else self._run_without_calls(records, request_text)
        run = replace(run, golden_id=golden_id or run.golden_id, input=request_text if run.input is None else run.input)
        return replace(run, health=replace(run.health, unended=len(open_spans))) if open_spans else run

    @property
    def _case_id(self) -> str:
        context = self._root.get_span_context()
        return f"{context.trace_id:032x}:{context.span_id:016x}"

    def _run_without_calls(self, records: Sequence[SpanRecord], text: str | None) -> Run:
        """Return the run whose agent is the case itself.

        That no tool was called is known only if calls would show: if tools are decorated with `@goldspan.trace`, whose
        scope the case then takes.
        """
        attributes = {semconv.OPERATION: semconv.INVOKE_AGENT}
        if text is not None:
            message = {"role": "user", "parts": [{"type": "text", "content": text}]}
            attributes[semconv.INPUT_MESSAGES] = json.dumps([message])
        scope = semconv.INSTRUMENTATION_SCOPE if has_traced_tools() else CASE_SCOPE
        root_id = f"{self._root.get_span_context().span_id:016x}"
        marked = [
            replace(record, attributes={**record.attributes, **attributes}, scope=scope)
            if record.span_id == root_id
            else record
            for record in records
        ]
        return _merge_requests(extract(marked), self._case_id)

    def add_open(self, key: _SpanKey, span: Span) -> None:
        """Record that a span has started."""
        with self._all_ended:
            self._open[key] = span

    def add_ended(self, key: _SpanKey, span: ReadableSpan) -> None:
        """Record that a span has ended. A processor that two providers share may see it twice."""
        with self._all_ended:
            self._open.pop(key, None)
            self._ended[key] = span
            if not self._open:
                self._all_ended.notify_all()

    def close(self) -> None:
        """Forget the spans; later ones are dropped."""
        with self._all_ended:
            self.is_closed = True
            self._open.clear()
            self._ended.clear()
            self._all_ended.notify_all()

    def renew(self) -> None:
        """Drop the case in a forked child: its spans cannot reach the parent, which may have held the lock."""
        self.is_closed = True
        self._open, self._ended = {}, {}
        self._all_ended = threading.Condition()


def _merge_requests(runs: Sequence[Run], case_id: str) -> Run:
    if len(runs) == 1:
        return runs[0]
    (merged,) = merge_conversations(replace(run, session_id=case_id, service=None) for run in runs)
    return replace(merged, session_id=runs[0].session_id, service=runs[0].service)


class SpanCapture(SpanProcessor):
    """Captures the spans of cases. `span_capture` returns the only one of the process.

    It is added to the current tracer provider, to each provider that is created later, and before each case to the
    provider that is current then. If there is none, it creates one that samples every trace.
    """

    def __init__(self) -> None:
        self.late_spans = 0
        """Spans that started or ended after their case was evaluated."""
        self._lock = ForkSafeLock()
        self._running: list[CaseSpans] = []
        self._abandoned: list[Callable[[], bool]] = []
        self._cases_by_trace: dict[int, CaseSpans] = {}
        self._cases_by_span: dict[_SpanKey, CaseSpans] = {}
        self._providers: dict[int, Callable[[], Any]] = {}
        """Weak references by id: providers may be unhashable, as that of Logfire is."""
        _watch_new_providers(self)
        renew_after_fork(self)

    def begin_case(self, name: str, *, golden_id: str | None = None) -> CaseSpans:
        """Start the root span of a case.

        Raises:
            ConfigurationError: The tracer provider accepts no span processor, or does not record the span.
        """
        provider = self._attach_to_current_provider()
        case = CaseSpans()
        with self._lock:
            self._running.append(case)
            carry_context_for(self)
        try:
            case.start_root(provider.get_tracer(CASE_SCOPE), name, golden_id)
        except BaseException:
            self.finish_case(case)
            raise
        return case

    def renew(self) -> None:
        """Drop the running cases in a forked child."""
        for case in self._running:
            case.renew()
        self._running, self._abandoned = [], []

    @property
    def has_abandoned_cases(self) -> bool:
        """Whether an agent still runs after its case was finished: a span of unknown origin may be of that agent."""
        self._abandoned = [still_runs for still_runs in self._abandoned if still_runs()]
        return bool(self._abandoned)

    def finish_case(self, case: CaseSpans, *, still_runs: Callable[[], bool] | None = None) -> None:
        """Forget a case after it was evaluated. `still_runs`: tells whether its agent, which was left, still runs."""
        case.close()
        with self._lock:
            if case in self._running:
                self._running.remove(case)
            if still_runs is not None:
                self._abandoned.append(still_runs)
            if not self._running:
                stop_carrying_context_for(self)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Assign a span to a case."""
        with _STARTING:
            case = self._find_case(span, parent_context)
            if case is None:
                return
            if case.is_closed:
                self.late_spans += 1
                return
            key = _span_key(span)
            with self._lock:
                self._cases_by_span[key] = case
                self._cases_by_trace.setdefault(key[0], case)
            case.add_open(key, span)

    def on_end(self, span: ReadableSpan) -> None:
        """Record the end of a span."""
        with _ENDING:
            key = _span_key(span)
            with self._lock:
                case = self._cases_by_span.pop(key, None)
            if case is None:
                return
            if case.is_closed:
                self.late_spans += 1
            else:
                case.add_ended(key, span)

    def _find_case(self, span: Span, parent_context: Context | None) -> CaseSpans | None:
        current = get_current()
        for context in (current if parent_context is None else parent_context, current):
            found = get_value(_CASE_KEY, context)
            if isinstance(found, CaseSpans):
                return found
        with self._lock:
            known = self._cases_by_trace.get(_span_key(span)[0])
            if known is not None:
                return known
            if len(self._running) == 1 and not self.has_abandoned_cases:
                return self._running[0]
            for case in self._running:
                case.unattributed += 1
        return None

    def _attach_to_current_provider(self) -> Any:
        provider: Any = trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider):
            provider = TracerProvider(sampler=ALWAYS_ON)
            trace.set_tracer_provider(provider)
        self.attach_to(provider)
        return provider

    def attach_to(self, provider: Any) -> None:
        """Add this processor to a provider, once. Raises `ConfigurationError` if it accepts none."""
        with self._lock:
            known = self._providers.get(id(provider))
            if known is not None and known() is provider:
                return
            add: Callable[[SpanProcessor], None] | None = getattr(provider, "add_span_processor", None)
            if add is None:
                kind = type(provider)
                raise ConfigurationError(
                    f"the tracer provider {kind.__module__}.{kind.__qualname__} accepts no span processors"
                )
            add(self)
            self._providers[id(provider)] = _weak_reference(provider)


def _weak_reference(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:  # its class has slots
        return lambda: value


def _span_key(span: ReadableSpan) -> _SpanKey:
    context = span.context
    return context.trace_id, context.span_id


def _watch_new_providers(capture: SpanCapture) -> None:
    """Attach the capture to every provider that is created from now on.

    An agent that creates a provider when it is first called often passes it to its instrumentation and does not make it
    the global one.
    """
    create = TracerProvider.__init__

    @functools.wraps(create)
    def create_and_attach(self: TracerProvider, *args: Any, **kwargs: Any) -> None:
        create(self, *args, **kwargs)
        with _ATTACHING:
            capture.attach_to(self)

    TracerProvider.__init__ = create_and_attach  # type: ignore[method-assign]


_ATTACHING = suppress_errors("capture the spans of a new tracer provider")


@functools.cache
def span_capture() -> SpanCapture:
    """Return the capture of this process."""
    return SpanCapture()


def call_in_case(case: CaseSpans, function: Callable[[], Any]) -> Any:
    """Call a function in the context of a case."""
    token = attach(case.context)
    try:
        return function()
    finally:
        detach(token)
