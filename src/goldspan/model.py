"""The values that travel through goldspan: spans, tool calls, runs, goldens, comparisons, scores, evaluations.

They are plain frozen dataclasses without behaviour beyond reading themselves. `None` always means "not known",
never "nothing" and never zero. Times are nanoseconds since the Unix epoch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

Status = Literal["unset", "ok", "error"]
Unit = Literal["request", "component", "conversation"]
ToolKind = Literal["tool", "agent", "handoff", "hosted", "retrieval", "answer"]
"""`hosted`: run by the model's provider. `answer`: the pseudo-tool by which a framework's agent hands in its answer."""
Evidence = Literal["executed", "requested"]
Outcome = Literal["ok", "error", "denied", "deferred"]
Order = Literal["any", "in_order", "exact"]
Attempts = Literal["effective", "all", "succeeded"]
Effect = Literal["read", "write"]
Verdict = Literal["paired", "missing", "unexpected", "superseded", "tolerated", "forbidden"]
Label = Literal["pass", "fail", "not_evaluated"]
MatchedBy = Literal["id", "input", "given"]

COUNTED_KINDS: frozenset[ToolKind] = frozenset({"tool", "hosted"})
"""The kinds of call that count without being named by a golden."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """A timestamped event on a span, such as `exception`."""

    name: str
    attributes: Mapping[str, Any]
    time_ns: int | None = None


@dataclass(slots=True, eq=False)
class SpanRecord:
    """One ended span, whatever SDK, wire format or file it came from. Nobody changes one that is made.

    Alone among these values it is not frozen: a process meets millions, and freezing one triples the time to make it.
    """

    trace_id: str
    """32 lower-case hexadecimal digits."""
    span_id: str
    """16 lower-case hexadecimal digits."""
    parent_id: str | None
    name: str
    attributes: Mapping[str, Any]
    """Plain Python values; structured OTLP values become lists and dictionaries."""
    start_ns: int | None = None
    end_ns: int | None = None
    status: Status = "unset"
    status_message: str = ""
    events: tuple[SpanEvent, ...] = ()
    kind: int = 0
    """The OTLP span kind: 0 unspecified, 1 internal, 2 server, 3 client, 4 producer, 5 consumer."""
    scope: str = ""
    """The name of the instrumentation scope."""
    resource: Mapping[str, Any] = field(default_factory=dict)
    dropped_attributes: int = 0

    @property
    def service(self) -> str | None:
        """The `service.name` of the process that made the span."""
        name = self.resource.get("service.name")
        return name if isinstance(name, str) else None

    def keys_among(self, keys: frozenset[str]) -> frozenset[str]:
        """Which of these attributes it has. Of a span read off the wire, nothing is decoded to answer."""
        return keys.intersection(self.attributes)

    def values_of(self, keys: Iterable[str]) -> Mapping[str, Any]:
        """Attributes among which are these, all of which it has. Of a span read off the wire, no others are decoded."""
        return self.attributes

    def __eq__(self, other: object) -> bool:
        """Whether both say the same, wherever they came from."""
        if not isinstance(other, SpanRecord):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in SpanRecord.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One OTLP log record. Instrumentations report messages, and some agents whole tool calls, as log events."""

    name: str
    """The event's name: the field of that name, else the attribute `event.name`, else empty."""
    attributes: Mapping[str, Any]
    """Plain Python values."""
    body: Any = None
    """Text, or a plain structured value."""
    trace_id: str | None = None
    """32 lower-case hexadecimal digits; `None` for a log outside any trace."""
    span_id: str | None = None
    """The span during which the log was written."""
    time_ns: int | None = None
    """The time of the event, else the time at which it was observed."""
    scope: str = ""
    """The name of the instrumentation scope."""
    resource: Mapping[str, Any] = field(default_factory=dict)


Record = SpanRecord | LogRecord
"""What telemetry is made of here. Metrics tell nothing of single calls."""


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
    """A result that merely reads like an error; never counted as one."""
    outcome: Outcome | None = None
    call_id: str | None = None
    kind: ToolKind = "tool"
    evidence: Evidence = "executed"
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
    def made(self) -> bool:
        """Whether the call was carried out: a denied or deferred one was only asked for."""
        return self.outcome not in ("denied", "deferred")


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

    @property
    def clean(self) -> bool:
        """Whether nothing is known to be lost or guessed. Merged witnesses are normal and do not count."""
        return not (
            self.orphan_spans
            or self.missing_root
            or self.stitched
            or self.split
            or self.content_off
            or self.lookalikes
            or self.dropped_attributes
            or self.arguments_absent
            or self.arguments_unreadable
        )


@dataclass(frozen=True, slots=True)
class Run:
    """One unit that is scored: a request or a component, with its tool calls in order."""

    run_id: str
    """Trace id, a colon, and the id of the unit's span. Never changes once given out."""
    unit: Unit = "request"
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

    @property
    def tools_used(self) -> tuple[str, ...]:
        """The names of the tool and hosted calls that were made, in order."""
        return tuple(call.name for call in self.tool_calls if call.kind in COUNTED_KINDS and call.made)


@dataclass(frozen=True, slots=True)
class Tool:
    """What a golden file declares of a tool, once for all its goldens."""

    name: str
    """As written; it may wear any decoration, as `mcp__orders__add` does."""
    aliases: tuple[str, ...] = ()
    """Other names by which it is called."""
    server: str | None = None
    """The MCP server that owns it."""
    effect: Effect | None = None
    """Whether a successful call of it changes the world."""
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    """The JSON schema of the arguments."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the golden file that are not goldspan's, kept as they were."""


@dataclass(frozen=True)
class Vocabulary:
    """The tools and MCP servers that golden files declare. No name means two of its tools."""

    tools: tuple[Tool, ...] = ()
    servers: tuple[str, ...] = ()
    """Servers that may stand before the name of any tool, as in `orders_add`, in addition to those of the tools."""

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        """A hash of everything that can change which names mean the same tool."""
        return content_digest([[[tool.name, tool.aliases, tool.server] for tool in self.tools], self.servers])


NO_VOCABULARY = Vocabulary()
"""Nothing is declared."""


@dataclass(frozen=True, slots=True)
class ExpectedTool:
    """One call that a golden expects."""

    name: str
    arguments: Mapping[str, Any] | None = None
    """The arguments it must have; `None`: any arguments will do."""
    server: str | None = None
    """The MCP server whose tool it must be; `None`: the one that the name says, else any."""


@dataclass(frozen=True)
class Golden:
    """What was expected for a request."""

    id: str
    input: str | None = None
    tools: tuple[ExpectedTool, ...] = ()
    order: Order = "any"
    forbid: tuple[str, ...] = ()
    """Glob patterns of tool names that must not be called."""
    attempts: Attempts = "effective"
    threshold: float = 0.5
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the golden file that are not goldspan's, kept as they were."""
    vocabulary: Vocabulary = NO_VOCABULARY
    """What names mean here."""

    @cached_property
    def digest(self) -> str:
        """A hash of everything that can change a verdict: not the id, not the input, not the metadata."""
        judged = [
            [[tool.name, tool.arguments, tool.server] for tool in self.tools],
            [self.order, self.forbid, self.attempts, self.threshold, self.vocabulary.digest],
        ]
        return content_digest(judged)


@dataclass(frozen=True, slots=True)
class Match:
    """The golden found for a run, and how."""

    golden: Golden
    how: MatchedBy
    similarity: float = 1.0
    """1.0 for an exact match."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One argument in which a call differs from what was expected. A missing side is `ABSENT`."""

    key: str
    expected: Any
    called: Any


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the arguments of a paired call agree with the expected ones."""

    share: float
    """From 0 (nothing agrees) to 1 (all equal)."""
    differences: tuple[Difference, ...] = ()


class _Absent:
    """The value of an argument that is not there at all."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a comparison: a call, an expectation, or both side by side."""

    verdict: Verdict
    expected: ExpectedTool | None = None
    called: ToolCall | None = None
    expected_at: int | None = None
    """The expectation's position in the golden."""
    called_at: int | None = None
    """The call's position in the run."""
    agreement: Agreement | None = None
    """For pairs whose arguments were judged; `None`: not stated by the golden, or not captured."""
    in_order: bool | None = None
    """For pairs: whether the call came where the golden's order wants it."""
    note: str | None = None
    """Why a call was tolerated or superseded."""


@dataclass(frozen=True)
class Comparison:
    """A run laid beside its golden, once. Every call and every expectation is in exactly one row.

    The rows stand in the order of the calls; a missing expectation stands where it was due.
    """

    golden: Golden | None
    """`None`: nothing was expected of the run, and every call is tolerated."""
    rows: tuple[Row, ...]

    @property
    def pairs(self) -> tuple[Row, ...]:
        """Expectations that found their call."""
        return self._by_verdict.get("paired", ())

    @property
    def missing(self) -> tuple[Row, ...]:
        """Expectations without a call."""
        return self._by_verdict.get("missing", ())

    @property
    def unexpected(self) -> tuple[Row, ...]:
        """Calls that nobody expected."""
        return self._by_verdict.get("unexpected", ())

    @property
    def superseded(self) -> tuple[Row, ...]:
        """Failed attempts that do not count, usually because a later call of the same tool made them good."""
        return self._by_verdict.get("superseded", ())

    @property
    def tolerated(self) -> tuple[Row, ...]:
        """Calls that do not count either way: agents, hand-offs, denied calls."""
        return self._by_verdict.get("tolerated", ())

    @property
    def forbidden(self) -> tuple[Row, ...]:
        """Calls the golden forbids."""
        return self._by_verdict.get("forbidden", ())

    @cached_property
    def _by_verdict(self) -> dict[Verdict, tuple[Row, ...]]:
        sorted_rows: dict[Verdict, list[Row]] = {}
        for row in self.rows:
            sorted_rows.setdefault(row.verdict, []).append(row)
        return {verdict: tuple(rows) for verdict, rows in sorted_rows.items()}


@dataclass(frozen=True, slots=True)
class Score:
    """One number that a metric read off a comparison."""

    metric: str
    value: float | None = None
    """Usually 0 to 1; `None` where it cannot be known, and `reason` says why."""
    passed: bool | None = None
    """Whether the threshold is met; `None` where there is no threshold or no value."""
    threshold: float | None = None
    label: Label | None = None
    reason: str | None = None
    error: str | None = None
    """The metric itself failed: an exception, as text."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A comparison and its scores: everything there is to say about one run and one golden."""

    run: Run
    golden: Golden | None
    match: Match | None
    comparison: Comparison
    scores: tuple[Score, ...]
    passed: bool | None
    """Whether every score with a threshold passed; `None`: not evaluated."""
    reason: str
    """One sentence for people."""
    digest: str
    """Hash of calls, golden and scoring version: equal digests mean the same verdict."""
    scoring_version: int
    revision: int = 1
    """Counts changes of content of one run's evaluation, from 1."""

    @property
    def health(self) -> Health:
        """How well the run was captured."""
        return self.run.health

    @property
    def status(self) -> Literal["scored", "not_evaluated"]:
        """`not_evaluated` where no golden applied."""
        return "scored" if self.golden is not None else "not_evaluated"

    def score(self, metric: str) -> Score | None:
        """The score of that metric, or `None` where it was not asked for."""
        return next((score for score in self.scores if score.metric == metric), None)


T = TypeVar("T")


def drafted(frozen: type[T]) -> type[T]:
    """A class that makes the values of a frozen, slotted dataclass in half the time.

    A frozen value is filled by way of `object.__setattr__`, one field after the other. A draft has the same slots, is
    filled like any other object, and becomes a value of the frozen class as soon as it is complete.
    """
    settle = getattr(frozen, "__post_init__", None)

    def freeze(draft: Any) -> None:
        draft.__class__ = frozen
        if settle is not None:
            settle(draft)

    described: Any = frozen
    copied = [
        (each.name, each.type, field(default=each.default, default_factory=each.default_factory))
        for each in fields(described)
    ]
    return make_dataclass(frozen.__name__, copied, namespace={"__post_init__": freeze}, slots=True, eq=False)


def content_digest(value: Any) -> str:
    """A short stable hash of plain values; the order of dictionary keys does not matter."""
    return hashlib.blake2b(_canonical(value).encode(), digest_size=12).hexdigest()


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=repr).encode
