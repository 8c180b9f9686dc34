"""What was rebuilt from telemetry: tool calls, and the runs that they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

RunUnit = Literal["request", "component", "conversation"]
ToolKind = Literal["tool", "agent", "handoff", "hosted", "retrieval", "answer"]
"""`hosted`: run by the model's provider. `answer`: the pseudo-tool by which a framework's agent hands in its answer."""
CallEvidence = Literal["executed", "requested"]
CallOutcome = Literal["ok", "error", "denied", "deferred"]

COUNTED_TOOL_KINDS: frozenset[ToolKind] = frozenset({"tool", "hosted"})
"""The kinds of call that count without being named by a golden."""


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool the agent could have called, as it was offered to the model."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    """The JSON schema of the arguments."""
    kind: ToolKind = "tool"
    """What a call of it is, where the telemetry says so when it offers the tool."""
    deferred: bool = False
    """Whether a call of it waits for a person's approval, or for a result from elsewhere."""
    read_only: bool | None = None
    """Whether it changes nothing, as far as it says so itself: MCP's `readOnlyHint`. `None`: it does not say."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One attempt by the agent to use one tool."""

    name: str
    """The tool's own name, without decoration: what is compared (folded)."""
    raw_name: str = ""
    """The name as the instrumentation wrote it: what is shown when it differs."""
    server: str | None = None
    """The MCP server that owns the tool."""
    arguments: Any = None
    """Usually a dictionary; whatever the agent passed. `None`: not captured or not readable."""
    raw_arguments: str | None = None
    """The text of arguments that could not be read."""
    result: Any = None
    error: str | None = None
    """What went wrong, where the telemetry says that something did."""
    error_guess: str | None = None
    """A result that merely reads like an error. Whether the call failed is not known then."""
    outcome: CallOutcome | None = None
    call_id: str | None = None
    kind: ToolKind = "tool"
    evidence: CallEvidence = "executed"
    """`requested`: only a model message shows the call, no span of its execution."""
    agent: str | None = None
    """The agent that made the call."""
    span_id: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    concurrent_with: tuple[int, ...] = ()
    """Positions, among the run's tool calls, of the calls that overlap this one in time: of the 255 before and after it
    in order, which is more than any agent runs at once."""

    def __post_init__(self) -> None:
        if not self.raw_name:
            object.__setattr__(self, "raw_name", self.name)

    @property
    def was_made(self) -> bool:
        """Whether the call was carried out: a denied or deferred one was only asked for."""
        return self.outcome not in ("denied", "deferred")

    @property
    def succeeded(self) -> bool | None:
        """Whether the call went well; `None`: not known. Its result may only read like an error, or nothing but the
        request for it was captured."""
        if self.error is not None or self.outcome == "error":
            return False
        if self.error_guess is not None or (self.evidence == "requested" and self.outcome is None):
            return None
        return True


@dataclass(frozen=True, slots=True)
class Health:
    """How well the telemetry of one run was captured."""

    orphan_spans: int = 0
    """Spans whose parent never arrived."""
    missing_root: bool = False
    """The request's own span is known only by its children."""
    stitched: int = 0
    """Further traces that were joined to the first one by what their messages repeat."""
    split: bool = False
    """The trace holds further requests; only the user's words told them apart."""
    dropped_attributes: int = 0
    """Attributes the SDK threw away because a span had too many."""
    arguments_absent: int = 0
    """Calls whose arguments were not captured."""
    arguments_unreadable: int = 0
    """Calls whose arguments were cut off or are not in any known notation."""
    content_off: bool = False
    """No argument, result or message was recorded at all: most instrumentations want to be told to."""
    lookalikes: tuple[str, ...] = ()
    """Names of spans that no convention knows, and that look like tools."""
    merged: int = 0
    """Further witnesses (spans or messages) of calls that were counted once."""
    unended: int = 0
    """Spans of it that had not ended when it was looked at: it may become more."""
    began_late: int = 0
    """Spans that began when the run's own had ended: work left running, or a worker that keeps the run's context."""
    calls_invisible: bool = False
    """No tool call was seen, and nothing shows that one would have been: neither a tool span, nor a model's message
    with its content, nor an instrumentation that writes a span for every call. Of a conversation: so it is of some
    request.
    """
    unknown_spans: int = 0
    """Spans inside the request that no convention knows, such as those of HTTP clients and databases."""
    fallback: tuple[str, ...] = ()
    """The attributes that told what spans are which no convention knows: they were read by what names say."""
    calls_elsewhere: int = 0
    """Calls that it asked for and another run of that time executed under the same id, or the other way round, and
    those of an agent that then began a run of its own: the two may be one request."""
    calls_nested: int = 0
    """Tools inside whose spans other tools were executed: each may be an agent that was called as a tool."""
    calls_unpaired: int = 0
    """Calls that were asked for and not executed, beside one of the same tool that was executed and not asked for: each
    pair may be one call."""
    calls_unanswered: int = 0
    """Calls that were asked for, and of which neither an execution nor a result is known: their spans are lost, or they
    are no tools but the form of an answer."""
    results_unknown: int = 0
    """Results that were handed to a model, of calls that are not known."""
    merged_beside: int = 0
    """Executions taken for one call though one instrumentation wrote both spans, each with a result."""
    root_shared: int = 0
    """Further runs inside a span around this one that stands for a request, as far as is known: of a server, or of a
    kind that no convention knows."""
    without_content: tuple[str, ...] = ()
    """Where arguments or messages are missing: the instrumentations of which no span shows any, by the convention whose
    switch is theirs, else by their scope. Empty where each one records some content."""
    unknown_families: tuple[str, ...] = ()
    """Where no tool call could have been seen: how the attributes begin of the spans that no convention knows."""
    idle_agents: tuple[str, ...] = ()
    """Agents that called no model and no tool, and of which no word is recorded: what they did was not captured."""

    @property
    def problems(self) -> tuple[str, ...]:
        """The names of the fields that say that something is lost or guessed.

        Merged witnesses are normal, and so are spans of what is no work of an agent. What only says where is none.
        """
        return tuple(name for name in _PROBLEM_FIELDS if getattr(self, name))

    @property
    def is_clean(self) -> bool:
        """Whether nothing is known to be lost or guessed."""
        return not self.problems


_NEUTRAL_FIELDS = ("merged", "unknown_spans", "without_content", "unknown_families")
_PROBLEM_FIELDS = tuple(each.name for each in fields(Health) if each.name not in _NEUTRAL_FIELDS)


@dataclass(frozen=True, slots=True)
class Run:
    """One unit that is scored: a request or a component, with its tool calls in order."""

    run_id: str
    """Trace id, a colon, and the id of the unit's span; for a component or a conversation a colon and that word behind
    them, since a span may be a request as well. Never changes once given out."""
    unit: RunUnit = "request"
    trace_ids: tuple[str, ...] = ()
    span_id: str | None = None
    input: str | None = None
    """The last genuine text of the user, without the history."""
    output: str | None = None
    session_id: str | None = None
    agent: str | None = None
    service: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    available_tools: tuple[ToolDefinition, ...] = ()
    golden_id: str | None = None
    """The golden that the telemetry itself names for this run."""
    component: str | None = None
    """The component's name, where the unit is a component."""
    conventions: tuple[str, ...] = ()
    """The conventions by which its spans were read."""
    health: Health = field(default_factory=Health)
    start_ns: int | None = None
    end_ns: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What a case, or the running program (`goldspan.metadata.*`), says of it beyond all this."""
    expected_tools: tuple[Any, ...] | None = None
    """What its own telemetry says is expected, in the words of a golden's `tools`; goes before every golden."""
    metrics: tuple[str, ...] | None = None
    """The metrics that its own telemetry asks for; `None`: those that are asked for elsewhere."""
    environment: str | None = None
    """The `deployment.environment.name` of the process: `production`, `test`."""
    span_name: str | None = None
    """The name of the run's span."""
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False, compare=False)
    """The attributes of the run's span, for rules that look at them."""

    @property
    def tools_used(self) -> tuple[str, ...]:
        """The names of the tool and hosted calls that were made, in order."""
        return tuple(call.name for call in self.tool_calls if call.kind in COUNTED_TOOL_KINDS and call.was_made)
