"""Defines goldens, the calls that they expect, and the vocabulary of tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

from goldspan.model.telemetry import content_digest

CallOrder = Literal["any", "in_order", "exact"]
CountedAttempts = Literal["effective", "all", "succeeded"]
CallDepth = Literal["all", "own"]
DuplicateCalls = Literal["count", "ignore"]
ExtraCalls = Literal["penalize", "allow"]
UnknownPolicy = Literal["not_evaluated", "ignore", "fail"]
"""The verdict on a run for which a requirement of the golden cannot be evaluated."""
UNKNOWN_POLICIES: tuple[UnknownPolicy, ...] = get_args(UnknownPolicy)
CorrectnessMode = Literal["recall", "precision", "f1", "exact", "set"]
"""How `tool_correctness` is computed."""
ArgumentsMatch = Literal["exact", "subset"]
ToolEffect = Literal["read", "write"]
MatchMethod = Literal["given", "id", "when", "input", "near", "policy"]
"""How the golden of a run was found, from the most to the least certain: `given` with the run, by its `id`, by a rule
(`when`), by an equal `input`, by a similar input (`near`), or as the `policy` for all other runs."""


class _Absent:
    """The type of `ABSENT`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "absent"

    def __reduce__(self) -> str:
        return "ABSENT"  # a singleton, also after copying and pickling


ABSENT = _Absent()
"""A missing value, where `None` is a value."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a golden file declares for all its goldens."""

    name: str
    """The name as written, with or without decoration such as `mcp__orders__add`."""
    aliases: tuple[str, ...] = ()
    """Other names of the tool."""
    server: str | None = None
    """The MCP server that owns it."""
    effect: ToolEffect | None = None
    """`write`: a successful call changes the state of a system."""
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    """The JSON schema of the arguments."""
    ignore: tuple[str, ...] = ()
    """Arguments that are not compared. The goldens of the file add them to their own."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The values of arguments that a call leaves out. The goldens of the file add them to their own."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the golden file that goldspan does not define, unchanged."""


@dataclass(frozen=True)
class Vocabulary:
    """The tools and MCP servers that golden files declare. Each name belongs to one tool only."""

    tools: tuple[Tool, ...] = ()
    servers: tuple[str, ...] = ()
    """Servers that can precede the name of any tool, as in `orders_add`, in addition to the servers of the tools."""

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        """A hash of everything that can change a verdict: names, servers, effects and the types of arguments."""
        tools = [[tool.name, tool.aliases, tool.server, tool.effect, tool.parameters] for tool in self.tools]
        return content_digest([tools, self.servers])


NO_VOCABULARY = Vocabulary()
"""The vocabulary without declarations."""


@dataclass(frozen=True, slots=True)
class Times:
    """How many calls an expectation requires and allows."""

    least: int = 1
    """The number of calls that must be made; 0: the expectation is optional."""
    most: int | None = 1
    """The number of calls that may be made; `None`: any number."""
    stated: bool = field(default=True, compare=False)
    """Whether the golden states `most`. If it does, a further call breaks `times`; else it is an unexpected call."""


ONCE = Times(stated=False)
"""The default: one call."""


@dataclass(frozen=True, slots=True)
class ExpectedTool:
    """A call that a golden expects."""

    name: str
    arguments: Mapping[str, Any] | None = None
    """The expected arguments; they can contain matchers (`goldspan.model.value_matchers`). `None`: any arguments."""
    server: str | None = None
    """The MCP server that owns the tool; `None`: the server in the name, else any server."""
    result: Any = ABSENT
    """The expected result, or a matcher; `ABSENT`: any result."""
    times: Times = ONCE
    match: ArgumentsMatch = "exact"
    """`subset`: arguments that the golden does not state are not compared."""
    ignore: tuple[str, ...] = ()
    """Arguments that are not compared, as dotted paths such as `options.trace_id`."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The values of arguments that either side leaves out, by dotted path."""
    agent: str | None = None
    """The agent that must make the call; `None`: any agent."""

    @property
    def is_optional(self) -> bool:
        """Whether the call may be left out."""
        return self.times.least == 0


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Alternatives, one of which is expected: calls or trajectories."""

    options: tuple[tuple[ExpectedItem, ...], ...]
    """Each option is a sequence of items; a single call is a sequence of one."""
    times: Times = ONCE
    """If an option has several calls, `times` can only be once or optional."""

    @property
    def is_optional(self) -> bool:
        """Whether all options may be left out."""
        return self.times.least == 0

    @property
    def name(self) -> str:
        """The name in sentences: `send_email or send_sms`."""
        return " or ".join(" + ".join(item.name for item in option) for option in self.options)


@dataclass(frozen=True, slots=True)
class Parallel:
    """Items that are all expected, in any order."""

    items: tuple[ExpectedTool | AnyOf, ...]
    """Alternatives in it are single calls."""

    @property
    def name(self) -> str:
        """The name in sentences: `log_event & notify`."""
        return " & ".join(item.name for item in self.items)


ExpectedItem: TypeAlias = ExpectedTool | AnyOf | Parallel
"""One entry of a golden's `tools`."""


@dataclass(frozen=True, slots=True)
class When:
    """Selects the runs of a golden by their telemetry. All conditions must hold.

    The names are glob patterns and ignore case.
    """

    agent: str | None = None
    """The agent's name."""
    service: str | None = None
    """The `service.name` of the process."""
    span: str | None = None
    """The name of the run's span."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the run's span, each with a value or a matcher."""
    input: Any = None
    """The text of the request, or a matcher of it; `None`: any text."""


TAGS_KEY = "tags"
"""The metadata key of a golden's labels."""


@dataclass(frozen=True, slots=True)
class GoldenSource:
    """Where a golden is defined."""

    file: str
    """The path of the file as the user wrote it."""
    line: int | None = None
    """The line of its first key, counted from 1; `None` if it is unknown."""


@dataclass(frozen=True)
class Golden:
    """The expected calls of a request, a component or a conversation."""

    id: str
    input: str | None = None
    tools: tuple[ExpectedItem, ...] = ()
    order: CallOrder = "any"
    forbid: tuple[str, ...] = ()
    """Glob patterns of tool names that must not be called."""
    max_calls: int | None = None
    """The number of calls that the request may make."""
    depth: CallDepth = "all"
    """`own`: only the calls of the request's own agent count, not those of the agents that it calls."""
    attempts: CountedAttempts = "effective"
    duplicates: DuplicateCalls = "count"
    """`ignore`: a call or an expectation with the same arguments as an earlier one does not count again."""
    extra: ExtraCalls | None = None
    """`allow`: unexpected calls count in no metric. `penalize`: they count, and each of them makes the run fail.
    `None`: they count, and make the run fail only if the golden requires no call."""
    mode: CorrectnessMode = "recall"
    threshold: float = 1.0
    """The accepted share of calls, arguments and results, for metrics that `thresholds` does not name."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """The value that each metric must reach, by name. A threshold below 1 accepts that share of what it measures."""
    unknown: UnknownPolicy = "not_evaluated"
    """The verdict if nothing is broken and a requirement cannot be evaluated. `not_evaluated`: the run neither passes
    nor fails; `ignore`: the other requirements decide; `fail`: the run fails."""
    metrics: tuple[str, ...] | None = None
    """The metrics to measure; `None`: the default metrics."""
    write_tools: tuple[str, ...] | None = None
    """All tools that change the state of a system; `None`: those that the vocabulary or `readOnlyHint` declares."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the golden file that goldspan does not define, unchanged."""
    vocabulary: Vocabulary = NO_VOCABULARY
    """The tools and servers that the golden's file declares."""
    when: When | None = None
    """Selects runs by their telemetry instead of by id or input."""
    component: str | None = None
    """The component that the golden applies to; `None`: it applies to requests and conversations."""
    policy: bool = False
    """Whether the golden expects no calls and only forbids or limits some, for every run without another golden."""
    source: GoldenSource | None = field(default=None, repr=False, compare=False)
    """Where the golden is defined; `None`: not in a file."""

    def __hash__(self) -> int:
        return hash((self.id, self.digest))

    @property
    def tags(self) -> tuple[str, ...]:
        """The labels of the golden, for filters and thresholds: the text or the texts under the metadata key `tags`."""
        tags = self.metadata.get(TAGS_KEY)
        return (tags,) if isinstance(tags, str) else tuple(map(str, tags)) if isinstance(tags, list | tuple) else ()

    @cached_property
    def expected_calls(self) -> tuple[ExpectedTool, ...]:
        """Every expected call, including those of all alternatives, in the order of the file."""
        return tuple(iter_expected_calls(self.tools))

    @cached_property
    def digest(self) -> str:
        """A hash of everything that can change a verdict: without id, input, metadata and source.

        A golden that cannot be serialized, because its arguments contain themselves or are nested too deeply, has a
        digest that no other golden has.
        """
        content = [
            self.tools,
            [self.order, self.forbid, self.max_calls, self.depth, self.attempts, self.duplicates, self.extra],
            [self.mode, self.threshold, self.thresholds, self.metrics, self.vocabulary.digest],
            [self.write_tools, self.policy, self.unknown],
        ]
        try:
            return content_digest(content)
        except (TypeError, ValueError, RecursionError):
            return f"object-{id(self):x}"


def iter_expected_calls(items: Sequence[ExpectedItem]) -> Iterator[ExpectedTool]:
    """Yield every expected call, including those of all alternatives."""
    for item in items:
        if isinstance(item, AnyOf):
            for option in item.options:
                yield from iter_expected_calls(option)
        elif isinstance(item, Parallel):
            yield from iter_expected_calls(item.items)
        else:
            yield item


def with_arguments_match(items: Sequence[ExpectedItem], match: ArgumentsMatch) -> tuple[ExpectedItem, ...]:
    """Returns the items with that `match` in every call."""
    return tuple([_item_with_arguments_match(item, match) for item in items])


def _item_with_arguments_match(item: Any, match: ArgumentsMatch) -> Any:
    if isinstance(item, AnyOf):
        return replace(item, options=tuple([with_arguments_match(option, match) for option in item.options]))
    if isinstance(item, Parallel):
        return replace(item, items=tuple([_item_with_arguments_match(each, match) for each in item.items]))
    return replace(item, match=match)


@dataclass(frozen=True, slots=True)
class Match:
    """The golden that was found for a run, and how it was found."""

    golden: Golden
    how: MatchMethod
    similarity: float = 1.0
    """The similarity of the inputs, 0 to 1; 1.0 for an exact match."""
