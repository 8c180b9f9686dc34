"""What is amiss with how a run was captured, and what to do about it: in words for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from goldspan.content.tools import fold_name
from goldspan.conventions import installed_conventions
from goldspan.model import Health, Run, ToolCall

_MAX_SHOWN = 5
"""So many names are told one by one."""

_FOLLOWERS = "Frameworks that write these spans themselves have switches of their own."
_NO_SWITCH = "Content may have to be switched on where these spans are made; goldspan knows no switch of theirs."
_NO_SWITCH_OF = "Content may have to be switched on in {}, of which goldspan knows no switch."
_RECORD = "To record content: "
_NO_ARGUMENTS = (
    "Their instrumentation records other content, and not these arguments: put @goldspan.trace on the tools' functions."
)
_LOGS = "Or it is in log events, as the GenAI conventions allow: read their files together with those of the spans."
_INVISIBLE = (
    "No tool's span and no model's message with its content is there, so nobody knows whether tools were called.\n"
    "Record what models say, or put @goldspan.trace on the functions of the tools."
)
_UNKNOWN = (
    "Tools may be among them: put @goldspan.trace on their functions, or teach goldspan the attributes of these spans, "
    "as docs/conventions.md shows."
)
_ORPHANS = (
    "Usually sampling, an exporter that drops spans of other libraries, or a file that holds a part of the trace only."
)
_JOINED = (
    "Nothing but what their messages repeat, or the id of a conversation, holds these traces together.\n"
    'Put a span of its own around each request, as @goldspan.trace(kind="agent") does.'
)
_CUT = (
    "Nothing but the user's words tells the requests of this trace apart.\n"
    'Put a span of its own around each request, as @goldspan.trace(kind="agent") does.'
)
_DROPPED = (
    "The oldest attributes of a span are dropped first, and the tool's name is often among them.\n"
    "Raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT (128 unless set) in the process that makes the spans."
)
_UNREADABLE = (
    "They are cut off, or in no notation that goldspan knows.\n"
    "If they are cut off, raise OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT in the process that makes the spans."
)
_LOOKALIKES = (
    "If they are tools: put @goldspan.trace on their functions, or teach goldspan the attributes of these spans, as "
    "docs/conventions.md shows."
)
_UNENDED = "The run was scored before they ended. Let its own span end last, and look for spans that never end."
_LATE = (
    "Work that a request leaves running may be meant to. A long-lived worker that a request starts keeps its context, "
    "though, and what it does for other requests counts here.\n"
    "Start such workers outside of requests, or without their context: contextvars.Context().run(worker.start)."
)
_FALLBACK = (
    "They were read by what these attributes are called: compare the calls with what you know of the agent.\n"
    "To be sure, teach goldspan the attributes of these spans, as docs/conventions.md shows."
)
_ELSEWHERE = (
    "What one run asked for, another one executed: they are one request, in two parts.\n"
    'Put a span of its own around each request, as @goldspan.trace(kind="agent") does.'
)
_ROOT_SHARED = (
    "A server's span, or one of a kind that no convention knows, is around several runs: they may be one request.\n"
    'Put a span of its own around each request, as @goldspan.trace(kind="agent") does.'
)
_TWICE = (
    "Two instrumentations that know other ids of one call, or lost spans, show one call as two.\n"
    "Look at the calls of the run, and switch one of the instrumentations off."
)
_NESTED = "If they are agents that were called as tools, their calls count beside those of the agents' own tools."
_UNANSWERED = (
    "Their spans and results are lost, or they are no tools: some frameworks let a model answer by a call.\n"
    "Goldens that expect such an answer are to name it among the tools, or to say `extra: ignore`."
)
_RESULTS = "The model's turns that asked for them, and the tools' spans, are lost: what was called is not all known."
_BESIDE = "Retries under one id look like that, too. Look at the spans of the run: they may be different calls."
_IDLE = (
    "What these agents did was not captured: neither a model's turn, nor a tool, nor a word of theirs.\n"
    "Switch on the instrumentation of the models that they ask, or look for sampling."
)
_SHARED = "A golden that means one of them names the server, too: server_tool."


@dataclass(frozen=True, slots=True)
class Hint:
    """One thing that is amiss with a run, or with several, and what to do about it."""

    template: str
    """A few words, with `{n}` where its count goes and `{s}` where a plural ends."""
    advice: str
    """A sentence a line."""
    count: int = 1
    names: tuple[str, ...] = ()
    """What it is about, where that has names."""

    @property
    def summary(self) -> str:
        """What is amiss: `3 calls without arguments`."""
        told = self.template.format(n=self.count, s="" if self.count == 1 else "s")
        shown = ", ".join(self.names[:_MAX_SHOWN])
        more = f" and {len(self.names) - _MAX_SHOWN} more" if len(self.names) > _MAX_SHOWN else ""
        return f"{told}: {shown}{more}" if shown else told


def capture_hints(run: Run) -> list[Hint]:
    """What is amiss with a run, the gravest first: all that its health tells, and tools that two servers share."""
    return list(_hints(run))


def merge_hints(hints: Iterable[Hint]) -> list[tuple[Hint, int]]:
    """The hints of several runs, each kind once with its counts and names added up, and of how many runs it tells.

    Those that tell of most runs come first.
    """
    joined: dict[tuple[str, str], tuple[Hint, int]] = {}
    for hint in hints:
        kind = (hint.template, hint.advice)
        if kind in joined:
            known, runs = joined[kind]
            names = tuple(dict.fromkeys(known.names + hint.names))
            count = len(names) or known.count + hint.count
            joined[kind] = (replace(known, count=count, names=names), runs + 1)
        else:
            joined[kind] = (hint, 1)
    return sorted(joined.values(), key=lambda told: told[1], reverse=True)


def _hints(run: Run) -> Iterator[Hint]:
    health = run.health
    if health.calls_invisible:
        yield from invisible_call_hints(run)
    if health.missing_root:
        yield Hint("the request's own span is missing", _ORPHANS)
    elif health.orphan_spans:
        yield Hint("{n} span{s} whose parent is missing", _ORPHANS, health.orphan_spans)
    if health.content_off and not health.calls_invisible:  # the same switch, for less
        yield Hint("no content recorded", _switches(run) or _NO_SWITCH)
    elif health.arguments_absent:
        yield Hint("{n} call{s} without arguments", _switches(run) or _NO_ARGUMENTS, health.arguments_absent)
    if health.dropped_attributes:
        yield Hint("{n} attribute{s} dropped", _DROPPED, health.dropped_attributes)
    if health.arguments_unreadable:
        yield Hint("{n} call{s} with unreadable arguments", _UNREADABLE, health.arguments_unreadable)
    if health.lookalikes:
        yield Hint("{n} unknown span{s} that may be tools", _LOOKALIKES, len(health.lookalikes), health.lookalikes)
    if health.stitched:
        yield Hint("joined from {n} traces", _JOINED, health.stitched + 1)
    if health.split:
        yield Hint("cut out of a trace of several requests", _CUT)
    if health.unended:
        yield Hint("{n} span{s} that had not ended", _UNENDED, health.unended)
    if health.began_late:
        yield Hint("{n} span{s} begun after the run had ended", _LATE, health.began_late)
    yield from _contradictions(health)
    if shared := _shared_tool_names(run.tool_calls):
        yield Hint("{n} tool name{s} of several servers", _SHARED, len(shared), shared)


def _contradictions(health: Health) -> Iterator[Hint]:
    """What shows that a run cannot be quite what happened."""
    if health.fallback:
        told = "spans of an unknown family"
        yield Hint(told, _FALLBACK, len(health.fallback), health.fallback)
    if health.calls_elsewhere:
        yield Hint("{n} call{s} shared with another run", _ELSEWHERE, health.calls_elsewhere)
    if health.root_shared:
        yield Hint("{n} further run{s} in one request's span", _ROOT_SHARED, health.root_shared)
    if health.calls_unpaired:
        yield Hint("{n} call{s} that may be counted twice", _TWICE, health.calls_unpaired)
    if health.calls_nested:
        yield Hint("{n} tool{s} that executed other tools", _NESTED, health.calls_nested)
    if health.calls_unanswered:
        yield Hint("{n} call{s} of which nothing came", _UNANSWERED, health.calls_unanswered)
    if health.results_unknown:
        yield Hint("{n} result{s} of unknown calls", _RESULTS, health.results_unknown)
    if health.merged_beside:
        yield Hint("{n} span{s} taken for a repetition", _BESIDE, health.merged_beside)
    if health.idle_agents:
        yield Hint("{n} agent{s} without a turn", _IDLE, len(health.idle_agents), health.idle_agents)


def invisible_call_hints(run: Run) -> Iterator[Hint]:
    """What to do about a run whose calls are invisible."""
    yield Hint("no tool calls could have been seen", f"{_INVISIBLE}\n{_switches(run)}".rstrip())
    if run.health.unknown_spans:
        families = ", ".join(f"`{family}.*`" for family in run.health.unknown_families)
        named = f"Their attributes are {families}.\n" if families else ""
        yield Hint("{n} span{s} that no convention knows", f"{named}{_UNKNOWN}", run.health.unknown_spans)


def content_switches(run: Run) -> str:
    """What to switch on for the content of a run, in one line; empty where no switch is known."""
    calls = run.tool_calls
    # Some have a switch of its own for results.
    one_sided = any(call.arguments is not None for call in calls) and all(call.result is None for call in calls)
    advice = _switches(run, always=one_sided).partition("\n")[0]
    return advice if advice.startswith(_RECORD) else ""


def _switches(run: Run, *, always: bool = False) -> str:
    """What to switch on for arguments, results and messages; empty where each instrumentation records some of them."""
    off = run.health.without_content
    if not (off or always or run.health.content_off):
        return ""
    known = [
        one for one in installed_conventions().members if one.name in (off or run.conventions) and one.capture_setting
    ]
    own = [convention for convention in known if not convention.is_shared]
    told = [f"{convention.capture_setting} ({convention.title})" for convention in own or known]
    names = {convention.name for convention in known}
    for scope in (name for name in off if name not in names):
        switch = _switch_for_scope(scope)
        told += [f"{switch} ({scope})"] if switch else []
        names.update([scope] if switch else [])
    unknown = [scope for scope in off if scope not in names]
    lines = [f"{_RECORD}{'; '.join(told)}."] if told else []
    if not told:
        lines.append(_NO_SWITCH_OF.format(", ".join(unknown)) if unknown else _NO_SWITCH)
    lines += [_FOLLOWERS] if known and not own else []
    lines += [_LOGS] if "genai" in run.conventions else []
    return "\n".join(lines)


def _switch_for_scope(scope: str) -> str | None:
    """The switch of an instrumentation that writes in the words of a convention which many share."""
    switches = (
        item for convention in installed_conventions().members for item in convention.capture_settings_by_scope.items()
    )
    return next((switch for begins, switch in switches if scope.startswith(begins)), None)


def _shared_tool_names(calls: Iterable[ToolCall]) -> tuple[str, ...]:
    """The names by which tools of several servers were called, and these servers: `add (orders, stock)`."""
    servers: dict[str, dict[str, str]] = {}
    names: dict[str, str] = {}
    for call in calls:
        if call.server:
            servers.setdefault(fold_name(call.name), {})[fold_name(call.server)] = call.server
            names.setdefault(fold_name(call.name), call.name)
    return tuple(
        f"{names[name]} ({', '.join(sorted(owners.values()))})" for name, owners in servers.items() if len(owners) > 1
    )
