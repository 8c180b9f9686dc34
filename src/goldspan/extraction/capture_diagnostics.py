"""Explains to users what is incomplete in a captured run, and how to fix it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from goldspan.conventions import installed_conventions
from goldspan.model import Health, Run, ToolCall
from goldspan.model.name_folding import fold_name

_MAX_SHOWN = 5
"""The maximum number of names in a summary."""

_FRAMEWORK_SETTINGS = "Frameworks that write these spans themselves have their own settings."
_NO_SETTING = "Content capture may have to be enabled where these spans are created; goldspan knows no setting for it."
_NO_SETTING_FOR = "Content capture may have to be enabled in {}; goldspan knows no setting for it."
_RECORD = "To record content: "
_NO_ARGUMENTS = (
    "Their instrumentation records other content, but not these arguments: add @goldspan.trace to the tool functions."
)
_IN_LOG_EVENTS = (
    "The content may also be in log events (GenAI conventions): read their files together with those of the spans."
)
_INVISIBLE = (
    "There is no tool span and no model message with content, so it is unknown whether tools were called.\n"
    "Record the model messages, or add @goldspan.trace to the tool functions."
)
_UNKNOWN = (
    "Some of them may be tools: add @goldspan.trace to their functions, or add a convention for these spans "
    "(docs/conventions.md)."
)
_ORPHANS = (
    "Common causes: sampling, an exporter that drops spans of other libraries, or a file with only a part of the trace."
)
_JOINED = (
    "These traces were joined only by the messages that they repeat, or by a conversation id.\n"
    'Create one span around each request, for example with @goldspan.trace(kind="agent").'
)
_CUT = (
    "Only the user's messages distinguish the requests of this trace.\n"
    'Create one span around each request, for example with @goldspan.trace(kind="agent").'
)
_DROPPED = (
    "The oldest attributes of a span are dropped first, and the tool's name is often among them.\n"
    "Raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT (default: 128) in the process that creates the spans."
)
_UNREADABLE = (
    "They are truncated, or in a format that goldspan does not support.\n"
    "If they are truncated, raise OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT in the process that creates the spans."
)
_LOOKALIKES = (
    "If they are tools: add @goldspan.trace to their functions, or add a convention for these spans "
    "(docs/conventions.md)."
)
_UNENDED = "The run was evaluated before they ended. The root span must end last; look for spans that never end."
_LATE = (
    "Background work of a request may be intended. But a long-lived worker that a request starts keeps its context, "
    "and its work for other requests counts here.\n"
    "Start such workers outside of requests, or in an empty context: contextvars.Context().run(worker.start)."
)
_FALLBACK = (
    "They were interpreted by their attribute names: compare the calls with the agent's real behaviour.\n"
    "For reliable results, add a convention for these spans (docs/conventions.md)."
)
_ELSEWHERE = (
    "One run requested calls that another one executed: they are two parts of one request.\n"
    'Create one span around each request, for example with @goldspan.trace(kind="agent").'
)
_ROOT_SHARED = (
    "A server span, or a span of an unknown kind, contains several runs: they may be one request.\n"
    'Create one span around each request, for example with @goldspan.trace(kind="agent").'
)
_TWICE = (
    "Two instrumentations that record different ids, or missing spans, show one call as two.\n"
    "Check the calls of the run, and disable one of the instrumentations."
)
_NESTED = "If they are agents that were called as tools, they count in addition to the calls of their own tools."
_UNANSWERED = (
    "Their spans and results are missing, or they are no tools: in some frameworks a model answers with a call.\n"
    "In the goldens, list such a call among the tools, or set `extra: ignore`."
)
_RESULTS = "The model spans that requested them and the tool spans are missing: the list of calls is incomplete."
_BESIDE = "Retries with one id look the same. Check the spans of the run: they may be different calls."
_IDLE = (
    "The work of these agents was not captured: they have no model span, no tool span and no content.\n"
    "Enable the instrumentation of their model client, or check the sampling."
)
_SHARED = "In a golden, include the server in the tool name: server_tool."


@dataclass(frozen=True, slots=True)
class Hint:
    """A problem of one or several runs, and how to fix it."""

    template: str
    """A short text with the placeholders `{n}` for the count and `{s}` for the plural."""
    advice: str
    """One sentence per line."""
    count: int = 1
    names: tuple[str, ...] = ()
    """The names of the affected items, if they have names."""

    @property
    def summary(self) -> str:
        """The problem in one line, such as `3 calls without arguments`."""
        text = self.template.format(n=self.count, s="" if self.count == 1 else "s")
        shown = ", ".join(self.names[:_MAX_SHOWN])
        more = f" and {len(self.names) - _MAX_SHOWN} more" if len(self.names) > _MAX_SHOWN else ""
        return f"{text}: {shown}{more}" if shown else text


def capture_hints(run: Run) -> list[Hint]:
    """Returns the problems of a run by severity: those in its health, and tool names that several servers share."""
    return list(_hints(run))


def merge_hints(hints: Iterable[Hint]) -> list[tuple[Hint, int]]:
    """Merges the hints of several runs by kind, with counts and names combined.

    Returns each hint with the number of affected runs, the most frequent first.
    """
    joined: dict[tuple[str, str], tuple[Hint, int]] = {}
    merge_hint_counts(joined, ((hint, 1) for hint in hints))
    return sorted(joined.values(), key=lambda entry: entry[1], reverse=True)


def merge_hint_counts(joined: dict[tuple[str, str], tuple[Hint, int]], hints: Iterable[tuple[Hint, int]]) -> None:
    """Adds hints, each with the number of affected runs, to the hints by kind."""
    for hint, number in hints:
        kind = (hint.template, hint.advice)
        if kind in joined:
            known, runs = joined[kind]
            names = tuple(dict.fromkeys(known.names + hint.names))
            count = len(names) or known.count + hint.count
            joined[kind] = (replace(known, count=count, names=names), runs + number)
        else:
            joined[kind] = (hint, number)


def _hints(run: Run) -> Iterator[Hint]:
    health = run.health
    if health.calls_invisible:
        yield from invisible_call_hints(run)
    if health.missing_root:
        yield Hint("the request's own span is missing", _ORPHANS)
    elif health.orphan_spans:
        yield Hint("{n} span{s} whose parent is missing", _ORPHANS, health.orphan_spans)
    if health.content_off and not health.calls_invisible:  # the same setting applies
        yield Hint("no content recorded", _capture_settings(run) or _NO_SETTING)
    elif health.arguments_absent:
        yield Hint("{n} call{s} without arguments", _capture_settings(run) or _NO_ARGUMENTS, health.arguments_absent)
    if health.dropped_attributes:
        yield Hint("{n} attribute{s} dropped", _DROPPED, health.dropped_attributes)
    if health.arguments_unreadable:
        yield Hint("{n} call{s} with unreadable arguments", _UNREADABLE, health.arguments_unreadable)
    if health.lookalikes:
        yield Hint("{n} unknown span{s} that may be tools", _LOOKALIKES, len(health.lookalikes), health.lookalikes)
    if health.stitched:
        yield Hint("joined from {n} traces", _JOINED, health.stitched + 1)
    if health.split:
        yield Hint("split from a trace with several requests", _CUT)
    if health.unended:
        yield Hint("{n} span{s} that had not ended", _UNENDED, health.unended)
    if health.began_late:
        yield Hint("{n} span{s} started after the run ended", _LATE, health.began_late)
    yield from _contradictions(health)
    if shared := _shared_tool_names(run.tool_calls):
        yield Hint("{n} tool name{s} of several servers", _SHARED, len(shared), shared)


def _contradictions(health: Health) -> Iterator[Hint]:
    """The contradictions in a run."""
    if health.fallback:
        yield Hint("spans of an unknown family", _FALLBACK, len(health.fallback), health.fallback)
    if health.calls_elsewhere:
        yield Hint("{n} call{s} shared with another run", _ELSEWHERE, health.calls_elsewhere)
    if health.root_shared:
        yield Hint("{n} further run{s} in one request's span", _ROOT_SHARED, health.root_shared)
    if health.calls_unpaired:
        yield Hint("{n} call{s} that may be counted twice", _TWICE, health.calls_unpaired)
    if health.calls_nested:
        yield Hint("{n} tool{s} that executed other tools", _NESTED, health.calls_nested)
    if health.calls_unanswered:
        yield Hint("{n} requested call{s} without a result", _UNANSWERED, health.calls_unanswered)
    if health.results_unknown:
        yield Hint("{n} result{s} of unknown calls", _RESULTS, health.results_unknown)
    if health.merged_beside:
        yield Hint("{n} span{s} merged as a repetition", _BESIDE, health.merged_beside)
    if health.idle_agents:
        yield Hint("{n} agent{s} without a turn", _IDLE, len(health.idle_agents), health.idle_agents)


def invisible_call_hints(run: Run) -> Iterator[Hint]:
    """Yields the hints for a run whose calls are not visible."""
    yield Hint("no tool calls could have been seen", f"{_INVISIBLE}\n{_capture_settings(run)}".rstrip())
    if run.health.unknown_spans:
        families = ", ".join(f"`{family}.*`" for family in run.health.unknown_families)
        named = f"Their attributes are {families}.\n" if families else ""
        yield Hint("{n} span{s} that no convention knows", f"{named}{_UNKNOWN}", run.health.unknown_spans)


def content_switches(run: Run) -> str:
    """Returns the setting that enables content capture for a run, in one line; empty if no setting is known."""
    calls = run.tool_calls
    # Some instrumentations have a separate setting for results.
    one_sided = any(call.arguments is not None for call in calls) and all(call.result is None for call in calls)
    advice = _capture_settings(run, always=one_sided).partition("\n")[0]
    return advice if advice.startswith(_RECORD) else ""


def _capture_settings(run: Run, *, always: bool = False) -> str:
    """The settings that enable content capture; empty if each instrumentation already records some content."""
    off = run.health.without_content
    if not (off or always or run.health.content_off):
        return ""
    known = [
        one for one in installed_conventions().members if one.name in (off or run.conventions) and one.capture_setting
    ]
    own = [convention for convention in known if not convention.is_shared]
    settings = [f"{convention.capture_setting} ({convention.title})" for convention in own or known]
    names = {convention.name for convention in known}
    for scope in (name for name in off if name not in names):
        setting = _setting_for_scope(scope)
        settings += [f"{setting} ({scope})"] if setting else []
        names.update([scope] if setting else [])
    unknown = [scope for scope in off if scope not in names]
    lines = [f"{_RECORD}{'; '.join(settings)}."] if settings else []
    if not settings:
        lines.append(_NO_SETTING_FOR.format(", ".join(unknown)) if unknown else _NO_SETTING)
    lines += [_FRAMEWORK_SETTINGS] if known and not own else []
    lines += [_IN_LOG_EVENTS] if "genai" in run.conventions else []
    return "\n".join(lines)


def _setting_for_scope(scope: str) -> str | None:
    """The capture setting of an instrumentation that uses a shared convention."""
    settings_by_scope = (
        item for convention in installed_conventions().members for item in convention.capture_settings_by_scope.items()
    )
    return next((setting for begins, setting in settings_by_scope if scope.startswith(begins)), None)


def _shared_tool_names(calls: Iterable[ToolCall]) -> tuple[str, ...]:
    """The tool names that several servers share, with the servers: `add (orders, stock)`."""
    servers: dict[str, dict[str, str]] = {}
    names: dict[str, str] = {}
    for call in calls:
        if call.server:
            servers.setdefault(fold_name(call.name), {})[fold_name(call.server)] = call.server
            names.setdefault(fold_name(call.name), call.name)
    return tuple(
        f"{names[name]} ({', '.join(sorted(owners.values()))})" for name, owners in servers.items() if len(owners) > 1
    )
