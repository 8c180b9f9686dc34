"""What was expected: goldens, and the vocabulary of tools that they are written in."""

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
"""What becomes of a run of which something that the golden states cannot be judged."""
UNKNOWN_POLICIES: tuple[UnknownPolicy, ...] = get_args(UnknownPolicy)
CorrectnessMode = Literal["recall", "precision", "f1", "exact", "set"]
"""How `tool_correctness` makes one number of what was called and what was not."""
ArgumentsMatch = Literal["exact", "subset"]
ToolEffect = Literal["read", "write"]
MatchMethod = Literal["given", "id", "when", "input", "near", "policy"]
"""How the golden of a run was found, from the most to the least certain: `given` with the run itself, by its `id`, by a
rule (`when`), by the same `input`, by an input that is `near`, or as the `policy` for everything else."""


class _Absent:
    """The value of something that is not there at all."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "absent"

    def __reduce__(self) -> str:
        return "ABSENT"  # there is but one, also after copying and pickling


ABSENT = _Absent()
"""Not there at all, where `None` is a value."""


@dataclass(frozen=True, slots=True)
class Tool:
    """What a golden file declares of a tool, once for all its goldens."""

    name: str
    """As written; it may wear any decoration, as `mcp__orders__add` does."""
    aliases: tuple[str, ...] = ()
    """Other names by which it is called."""
    server: str | None = None
    """The MCP server that owns it."""
    effect: ToolEffect | None = None
    """Whether a successful call of it changes the world."""
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    """The JSON schema of the arguments."""
    ignore: tuple[str, ...] = ()
    """Arguments that no golden looks at; the goldens of the file have them among their own."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What arguments are where a call leaves them out; the goldens of the file have them among their own."""
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
        """A hash of everything that can change a verdict: names, servers, effects and the types of arguments."""
        tools = [[tool.name, tool.aliases, tool.server, tool.effect, tool.parameters] for tool in self.tools]
        return content_digest([tools, self.servers])


NO_VOCABULARY = Vocabulary()
"""Nothing is declared."""


@dataclass(frozen=True, slots=True)
class Times:
    """How many calls an expectation stands for."""

    least: int = 1
    """So many must be made; 0: it is optional."""
    most: int | None = 1
    """So many may be made; `None`: any number."""
    stated: bool = field(default=True, compare=False)
    """Whether the golden states `most`: a call more is then one too many, else it is one that nobody expected."""


ONCE = Times(stated=False)
"""What is expected where nothing is said about times."""


@dataclass(frozen=True, slots=True)
class ExpectedTool:
    """A call that a golden expects."""

    name: str
    arguments: Mapping[str, Any] | None = None
    """The arguments it must have, matchers among them (`goldspan.model.value_matchers`); `None`: any arguments will do."""
    server: str | None = None
    """The MCP server whose tool it must be; `None`: the one that the name says, else any."""
    result: Any = ABSENT
    """What must come back, or a matcher; `ABSENT`: anything will do."""
    times: Times = ONCE
    match: ArgumentsMatch = "exact"
    """`subset`: arguments that the golden does not state cost nothing."""
    ignore: tuple[str, ...] = ()
    """Arguments that are not looked at on either side: dotted paths, such as `options.trace_id`."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What an argument is, by dotted path, where either side leaves it out."""
    agent: str | None = None
    """The agent that must make the call; `None`: any."""

    @property
    def is_optional(self) -> bool:
        """Whether it need not be called."""
        return self.times.least == 0


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Alternatives, of which one is expected: calls, or whole trajectories."""

    options: tuple[tuple[ExpectedItem, ...], ...]
    """Each a sequence of items; an alternative call is a sequence of one."""
    times: Times = ONCE
    """Anything but once or optional only where each alternative is a single call."""

    @property
    def is_optional(self) -> bool:
        """Whether none of them need be called."""
        return self.times.least == 0

    @property
    def name(self) -> str:
        """What to call it in a sentence: `send_email or send_sms`."""
        return " or ".join(" + ".join(item.name for item in option) for option in self.options)


@dataclass(frozen=True, slots=True)
class Parallel:
    """Items that are all expected, in any order among themselves."""

    items: tuple[ExpectedTool | AnyOf, ...]
    """The alternatives among them are single calls."""

    @property
    def name(self) -> str:
        """What to call it in a sentence: `log_event & notify`."""
        return " & ".join(item.name for item in self.items)


ExpectedItem: TypeAlias = ExpectedTool | AnyOf | Parallel
"""One entry of a golden's `tools`."""


@dataclass(frozen=True, slots=True)
class When:
    """Which runs a golden is for, by what their telemetry says: everything that is said must hold.

    The names are glob patterns, compared without regard to case.
    """

    agent: str | None = None
    """The agent's name."""
    service: str | None = None
    """The `service.name` of the process."""
    span: str | None = None
    """The name of the run's span."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the run's span, each a plain value or a matcher."""
    input: Any = None
    """A plain text, which means the same text, or a matcher of the request's text; `None`: any."""


@dataclass(frozen=True)
class Golden:
    """What was expected for a request, a component or a conversation."""

    id: str
    input: str | None = None
    tools: tuple[ExpectedItem, ...] = ()
    order: CallOrder = "any"
    forbid: tuple[str, ...] = ()
    """Glob patterns of tool names that must not be called."""
    max_calls: int | None = None
    """How many calls the request may take."""
    depth: CallDepth = "all"
    """`own`: only the calls of the request's own agent count, not those of the agents that it calls."""
    attempts: CountedAttempts = "effective"
    duplicates: DuplicateCalls = "count"
    """`ignore`: a call that was expected or made before, with the same arguments, counts no second time."""
    extra: ExtraCalls | None = None
    """`allow`: calls that nobody expected count in no metric. `penalize`: they do, and each of them fails the run.
    `None`: they do, and fail no run that is required to call something."""
    mode: CorrectnessMode = "recall"
    threshold: float = 1.0
    """The share of the calls, arguments and results that is accepted where `thresholds` does not say otherwise."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """What metrics must reach, by their names. Less of what such a metric measures is accepted, and no less."""
    unknown: UnknownPolicy = "not_evaluated"
    """What becomes of a run of which something stated cannot be judged, and nothing is broken. `not_evaluated`: it
    neither passes nor fails; `ignore`: the rest decides; `fail`: it fails."""
    metrics: tuple[str, ...] | None = None
    """The metrics to measure; `None`: those that are asked for elsewhere."""
    write_tools: tuple[str, ...] | None = None
    """All tools that change the world; `None`: those of which the vocabulary, or the tool itself, says so."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the golden file that are not goldspan's, kept as they were."""
    vocabulary: Vocabulary = NO_VOCABULARY
    """What names mean here."""
    when: When | None = None
    """Which runs it is for, where neither an id nor an input has to say so."""
    component: str | None = None
    """The component it is for; `None`: it is for requests and conversations."""
    policy: bool = False
    """It expects no calls in particular and forbids or limits some: for every run that no other golden is for."""

    def __hash__(self) -> int:
        return hash((self.id, self.digest))

    @cached_property
    def expected_calls(self) -> tuple[ExpectedTool, ...]:
        """Every call that it speaks of, those of all alternatives among them, in the order of the file."""
        return tuple(iter_expected_calls(self.tools))

    @cached_property
    def digest(self) -> str:
        """A hash of everything that can change a verdict: not the id, not the input, not the metadata.

        A golden that cannot be written down, because its arguments hold themselves or are nested without end, is like
        no other.
        """
        judged = [
            self.tools,
            [self.order, self.forbid, self.max_calls, self.depth, self.attempts, self.duplicates, self.extra],
            [self.mode, self.threshold, self.thresholds, self.metrics, self.vocabulary.digest],
            [self.write_tools, self.policy, self.unknown],
        ]
        try:
            return content_digest(judged)
        except (TypeError, ValueError, RecursionError):
            return f"object-{id(self):x}"


def iter_expected_calls(items: Sequence[ExpectedItem]) -> Iterator[ExpectedTool]:
    """Every call that some items speak of, those of all alternatives among them."""
    for item in items:
        if isinstance(item, AnyOf):
            for option in item.options:
                yield from iter_expected_calls(option)
        elif isinstance(item, Parallel):
            yield from iter_expected_calls(item.items)
        else:
            yield item


def with_arguments_match(items: Sequence[ExpectedItem], match: ArgumentsMatch) -> tuple[ExpectedItem, ...]:
    """The items with that `match` in every call."""
    return tuple([_item_with_arguments_match(item, match) for item in items])


def _item_with_arguments_match(item: Any, match: ArgumentsMatch) -> Any:
    if isinstance(item, AnyOf):
        return replace(item, options=tuple([with_arguments_match(option, match) for option in item.options]))
    if isinstance(item, Parallel):
        return replace(item, items=tuple([_item_with_arguments_match(each, match) for each in item.items]))
    return replace(item, match=match)


@dataclass(frozen=True, slots=True)
class Match:
    """The golden found for a run, and how."""

    golden: Golden
    how: MatchMethod
    similarity: float = 1.0
    """1.0 for an exact match."""
