"""Defines tool calls and runs, which extraction builds from telemetry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from goldspan.model.notebook_display import NotebookDisplay

if TYPE_CHECKING:
    from goldspan.model.markup import Block, Cell
    from goldspan.model.value_matchers import Redaction

RunUnit = Literal["request", "component", "conversation"]
ToolKind = Literal["tool", "agent", "handoff", "hosted", "retrieval", "answer"]
"""`hosted`: executed by the model's provider. `answer`: the pseudo-tool with which an agent returns its answer."""
CallEvidence = Literal["executed", "requested"]
CallOutcome = Literal["ok", "error", "denied", "deferred"]

COUNTED_TOOL_KINDS: frozenset[ToolKind] = frozenset({"tool", "hosted"})
"""The kinds of call that count even if the golden does not name them."""


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool that was offered to the model."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    """The JSON schema of the arguments."""
    kind: ToolKind = "tool"
    """The kind of its calls, if the telemetry of the definition contains it."""
    deferred: bool = False
    """Whether a call waits for a person's approval or for an external result."""
    read_only: bool | None = None
    """MCP's `readOnlyHint`: whether the tool changes nothing. `None`: there is no hint."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One attempt of an agent to call a tool."""

    name: str
    """The tool's name without decoration. Comparisons use it in folded form."""
    raw_name: str = ""
    """The name as the instrumentation wrote it. It is shown if it differs."""
    server: str | None = None
    """The MCP server that owns the tool."""
    arguments: Any = None
    """The arguments, usually a dictionary. `None`: they were not captured or could not be parsed."""
    raw_arguments: str | None = None
    """The text of arguments that could not be parsed."""
    result: Any = None
    error: str | None = None
    """The error that the telemetry reports."""
    error_guess: str | None = None
    """A result whose text reads like an error. It is then not known whether the call failed."""
    outcome: CallOutcome | None = None
    call_id: str | None = None
    kind: ToolKind = "tool"
    evidence: CallEvidence = "executed"
    """`requested`: a model message contains the call, and no span of its execution was captured."""
    agent: str | None = None
    """The agent that made the call."""
    span_id: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    concurrent_with: tuple[int, ...] = ()
    """The positions, in the run's tool calls, of the calls that overlap this one in time. Only the 255 calls before and
    the 255 after this one are compared."""

    def __post_init__(self) -> None:
        if not self.raw_name:
            object.__setattr__(self, "raw_name", self.name)

    @property
    def was_made(self) -> bool:
        """Whether the call was executed: a denied or deferred call was only requested."""
        return self.outcome not in ("denied", "deferred")

    @property
    def succeeded(self) -> bool | None:
        """Whether the call succeeded; `None`: not known, because only the text of its result reads like an error, or
        because only the request for it was captured."""
        if self.error is not None or self.outcome == "error":
            return False
        if self.error_guess is not None or (self.evidence == "requested" and self.outcome is None):
            return None
        return True


@dataclass(frozen=True, slots=True)
class Health:
    """How well the telemetry of one run was captured."""

    orphan_spans: int = 0
    """Spans whose parent was not received."""
    missing_root: bool = False
    """The request's own span was not received; only its children were."""
    stitched: int = 0
    """Further traces that were joined to the first one because their messages repeat its messages."""
    split: bool = False
    """The trace contains further requests, which were separated by the user's messages only."""
    dropped_attributes: int = 0
    """Attributes that the SDK dropped because a span had too many."""
    arguments_absent: int = 0
    """Calls whose arguments were not captured."""
    arguments_unreadable: int = 0
    """Calls whose arguments were truncated or are not in a known notation."""
    content_off: bool = False
    """No argument, result or message was recorded: most instrumentations record them only if they are configured to."""
    lookalikes: tuple[str, ...] = ()
    """Names of spans that match no convention and look like tools."""
    merged: int = 0
    """Further spans or messages of calls that were counted once."""
    unended: int = 0
    """Spans of the run that had not ended when it was evaluated: the run can grow."""
    began_late: int = 0
    """Spans that started after the run's own span had ended: background work, or a worker that keeps the context."""
    calls_invisible: bool = False
    """No tool call was captured, and the telemetry would not show one: it contains no tool span, no model message with
    content, and no instrumentation that writes a span for every call. For a conversation: this holds for one of its
    requests.
    """
    unknown_spans: int = 0
    """Spans inside the request that match no convention, such as those of HTTP clients and databases."""
    fallback: tuple[str, ...] = ()
    """The attributes by whose names spans were classified that match no convention."""
    calls_elsewhere: int = 0
    """Calls that this run requested and another run of that time executed under the same id, or the reverse, and calls
    of an agent that then started its own run: the two runs may be one request."""
    calls_nested: int = 0
    """Tools whose spans contain executions of other tools: each may be an agent that was called as a tool."""
    calls_unpaired: int = 0
    """Calls that were requested and not executed, next to a call of the same tool that was executed and not requested:
    each pair may be one call."""
    calls_unanswered: int = 0
    """Requested calls without an execution or a result: their spans were lost, or they are not tools but a format of
    the answer."""
    results_unknown: int = 0
    """Results in model messages whose calls are not known."""
    merged_beside: int = 0
    """Executions that were counted as one call although one instrumentation wrote both spans, each with a result."""
    root_shared: int = 0
    """Further runs inside a span around this one that probably represents a request: a span of a server, or of a kind
    that matches no convention."""
    without_content: tuple[str, ...] = ()
    """If arguments or messages are missing: the instrumentations whose spans contain none, by the convention that has
    their setting, else by their scope. Empty if each one records some content."""
    unknown_families: tuple[str, ...] = ()
    """If no tool call could have been captured: the attribute prefixes of the spans that match no convention."""
    idle_agents: tuple[str, ...] = ()
    """Agents without a model call, a tool call or a message: their work was not captured."""

    @property
    def problems(self) -> tuple[str, ...]:
        """The names of the fields that report lost or guessed telemetry.

        Merged spans and messages are normal, and so are spans that match no convention. Fields that only locate a
        problem are left out.
        """
        return tuple(name for name in _PROBLEM_FIELDS if getattr(self, name))

    @property
    def is_clean(self) -> bool:
        """Whether no telemetry is known to be lost or guessed."""
        return not self.problems


_NEUTRAL_FIELDS = ("merged", "unknown_spans", "without_content", "unknown_families")
_PROBLEM_FIELDS = tuple(each.name for each in fields(Health) if each.name not in _NEUTRAL_FIELDS)


@dataclass(frozen=True, slots=True)
class Run(NotebookDisplay):
    """One unit that is evaluated: a request, a component or a conversation, with its tool calls in order."""

    run_id: str
    """The trace id, a colon, and the id of the unit's span. For a component or a conversation, a colon and that word
    follow, because the span can be a request too. The id of a run never changes."""
    unit: RunUnit = "request"
    trace_ids: tuple[str, ...] = ()
    span_id: str | None = None
    input: str | None = None
    """The last message of the user, without the history."""
    output: str | None = None
    session_id: str | None = None
    agent: str | None = None
    service: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    available_tools: tuple[ToolDefinition, ...] = ()
    golden_id: str | None = None
    """The golden that the run's telemetry names."""
    component: str | None = None
    """The component's name, if the unit is a component."""
    conventions: tuple[str, ...] = ()
    """The conventions that its spans match."""
    health: Health = field(default_factory=Health)
    start_ns: int | None = None
    end_ns: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further values from a case or from the running program (`goldspan.metadata.*`)."""
    expected_tools: tuple[Any, ...] | None = None
    """The expected calls that the run's telemetry states, in the format of a golden's `tools`. They take precedence
    over every golden."""
    metrics: tuple[str, ...] | None = None
    """The metrics that the run's telemetry names; `None`: it names none."""
    environment: str | None = None
    """The `deployment.environment.name` of the process: `production`, `test`."""
    span_name: str | None = None
    """The name of the run's span."""
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False, compare=False)
    """The attributes of the run's span, which `when` rules match."""

    @property
    def tools_used(self) -> tuple[str, ...]:
        """The names of the tool and hosted calls that were made, in order."""
        return tuple(call.name for call in self.tool_calls if call.kind in COUNTED_TOOL_KINDS and call.was_made)

    def _display_blocks(self, *, values: bool = False, redact: Redaction | None = None) -> Iterator[Block]:
        from goldspan.model import markup
        from goldspan.model.markup import TextSpan

        name = next(filter(None, (self.component, self.agent, self.run_id, "run")))
        yield markup.title_spans(name, self.input, redact)
        if self.tool_calls:
            headings = ("called", "", "arguments", "result") if values else ("called", "")
            rows = (self._call_cells(call, values, redact) for call in self.tool_calls[: markup.MAX_ROWS])
            yield markup.Table(headings, tuple(rows))
        elif self.health.calls_invisible:
            yield (TextSpan("No tool call was captured, and the telemetry would not show one."),)
        else:
            yield (TextSpan("No tool was called."),)
        if (omitted := len(self.tool_calls) - markup.MAX_ROWS) > 0:
            yield (TextSpan(f"{omitted} more calls", "quiet"),)
        if self.health.problems:
            names = [[TextSpan(name, "name")] for name in self.health.problems]
            yield TextSpan("Telemetry was lost or guessed: ", "quiet"), *markup.join_spans(names, ", ")

    def _call_cells(self, call: ToolCall, values: bool, redact: Redaction | None) -> tuple[Cell, ...]:
        """Return a row of the table: the name of the tool, remarks, and the values if they are shown."""
        from goldspan.model.markup import EMPTY_CELL, TextSpan, truncate

        cells: tuple[Cell, ...] = (
            (TextSpan(truncate(call.name), "name"),),
            (TextSpan("; ".join(map(truncate, self._call_remarks(call)))),),
        )
        if not values:
            return cells
        from goldspan.model.value_matchers import format_value

        outcome = call.error if call.result is None else call.result
        shown = ((path, value) for path, value in (("", call.arguments), ("result", outcome)))
        return *cells, *(
            EMPTY_CELL if value is None else (TextSpan(format_value(value, path, redact)),) for path, value in shown
        )

    def _call_remarks(self, call: ToolCall) -> Iterable[str]:
        """Yield what distinguishes a call from a successful call of a tool by the run's own agent."""
        if call.kind != "tool":
            yield call.kind
        if call.agent is not None and call.agent != self.agent:
            yield f"by {call.agent}"
        if not call.was_made:
            yield call.outcome or ""
        elif call.succeeded is None:
            yield "requested" if call.error_guess is None else "may have failed"
        elif not call.succeeded:
            yield "failed"
