"""Every key that a golden file may have: the models that check what is written. What it means is told in `language`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from goldspan.goldens.applicability import Conditions, DeclaredComponent
from goldspan.goldens.checking import Entry, Flag, OneOrMore, PerhapsEmpty, Share, Text, Whole, Within, mistake
from goldspan.goldens.expectations import Branch, DottedPath, DottedPaths, ItemAsWritten
from goldspan.goldens.words import shown
from goldspan.model import ArgumentsMatch, Attempts, Depth, Duplicates, Effect, Extra, Mode, Order, Unknown

# --- goldens ----------------------------------------------------------------------------------------------------------


_Metrics = Annotated[
    Annotated[Text, Tag("<collection>")] | Annotated[list[Text], Tag("<names>")],
    Discriminator(lambda given: "<collection>" if isinstance(given, str) else "<names>"),
]


class Rules(Entry):
    """How the calls of a request are judged."""

    order: Order = "any"
    """`in_order`: as listed, others in between are fine; `exact`: these calls, in this order, and no other."""
    forbid: list[Text] = Field(default_factory=list)
    """Glob patterns of tools that must not be called, whatever else is."""
    max_calls: Annotated[Whole, Within(0, None, "0 or more")] | None = None
    """How many calls the request may take."""
    depth: Depth = "all"
    """`own`: calls of the agents that the request's own agent calls do not count."""
    attempts: Attempts = "effective"
    """`effective`: a failed attempt that a later call of the same tool made good does not count; `all`: every attempt
    counts; `succeeded`: failed ones never do."""
    duplicates: Duplicates = "count"
    """`ignore`: what was expected or called before with the same arguments counts no second time."""
    extra: Extra | None = None
    """`allow`: calls that nobody expected do not count. `penalize`: each of them fails the run. Left out: they lower
    the metrics, and fail no run that is required to call something."""
    mode: Mode = "recall"
    """What `tool_correctness` measures."""
    threshold: Share = 1.0
    """The share of the expected calls, arguments and results that is accepted."""
    thresholds: dict[Text, Share] = Field(default_factory=dict)
    """What single metrics must reach; of what such a metric measures, no more is asked for."""
    unknown: Unknown = "not_evaluated"
    """What becomes of a run of which something stated cannot be judged, and nothing is broken: it is not evaluated, the
    rest decides (`ignore`), or it fails (`fail`)."""
    metrics: _Metrics | None = None
    """The metrics to measure, or the name of a collection from the head."""
    match: ArgumentsMatch = "exact"
    """`subset`: arguments that an expected call does not state cost nothing."""
    write_tools: list[Text] = Field(default_factory=list)
    """Tools that change something, as `effect: write` in the vocabulary says it."""

    misplaced: ClassVar[Mapping[str, str]] = {
        "alternatives": "is written 'any_of'",
        "forbidden": "is written 'forbid'",
        "max_tool_calls": "is written 'max_calls'",
    }


class Defaults(Rules):
    """What holds for every golden of the file that does not say otherwise."""

    closed: ClassVar[bool] = True


_EXPECTING = ("tools", "expected_tools", "any_of")
_IS_POLICY: Any = {"enum": [True, None]}
_ONE_OF: list[Any] = [
    *({"required": [key], "properties": {"policy": {"enum": [False, None]}}} for key in _EXPECTING),
    {
        "not": {"anyOf": [{"required": [key]} for key in _EXPECTING]},
        "anyOf": [
            {"required": ["policy"], "properties": {"policy": {"const": True}}},
            {"required": ["forbid"], "properties": {"forbid": {"minItems": 1}, "policy": _IS_POLICY}},
            {"required": ["max_calls"], "properties": {"max_calls": {"type": "integer"}, "policy": _IS_POLICY}},
        ],
        "properties": {"input": {"type": "null"}},
    },
]
"""A golden says what is expected in one way, or it is a policy."""


class GoldenAsWritten(Rules):
    """What is expected for one request."""

    id: Text
    """Unique over all files that are loaded together."""
    input: PerhapsEmpty | None = None
    """The text of the request; a run with the same text is judged by this golden."""
    when: Conditions = Field(default_factory=Conditions)
    """Which runs it is for, by what their telemetry says."""
    component: Text | None = None
    """The component it is for. Left out: it is for requests and conversations."""
    tools: list[ItemAsWritten] = Field(default_factory=list, validation_alias=AliasChoices("tools", "expected_tools"))
    """The expected calls. An empty list says that none is to be called."""
    any_of: Annotated[list[Branch], Field(min_length=1)] = Field(default_factory=list)
    """In place of `tools`: calls or trajectories, of which one is expected."""
    policy: Flag | None = None
    """`true`: it expects no calls in particular, and is for every run that no other golden is for. So is what has
    neither `tools` nor `any_of`, and forbids or limits calls."""

    instead: ClassVar[str] = "a golden must be a mapping"
    misplaced: ClassVar[Mapping[str, str]] = {
        **Rules.misplaced,
        **dict.fromkeys(("optional", "parallel", "times"), "belongs to an item of 'tools'"),
    }
    model_config = ConfigDict(
        title="Golden",
        json_schema_extra={"oneOf": _ONE_OF},
    )


# --- the head of a file -----------------------------------------------------------------------------------------------


class DeclaredTool(Entry):
    """What is known of a tool, once for all goldens."""

    aliases: OneOrMore = Field(default_factory=list, validation_alias=AliasChoices("aliases", "alias"))
    """Other names of the tool; no name can mean two tools."""
    server: Text | None = None
    """Its MCP server."""
    effect: Effect | None = None
    """Whether a successful call changes the world."""
    description: PerhapsEmpty | None = None
    """What it does."""
    parameters: dict[Any, Any] | None = Field(None, validation_alias=AliasChoices("parameters", "schema"))
    """The JSON schema of its arguments."""
    ignore: DottedPaths = Field(default_factory=list)
    """Arguments that no golden looks at: keys, or paths such as `options.trace_id`."""
    defaults: dict[DottedPath, Any] = Field(default_factory=dict)
    """What arguments are, by key or path, where either side leaves them out."""

    instead: ClassVar[str] = "must be a mapping with keys such as 'aliases'"


def _named(what: str) -> BeforeValidator:
    def check(declared: Any) -> Any:
        for name in declared if isinstance(declared, Mapping) else ():
            if not isinstance(name, str) or not name:
                raise mistake(f"the name of a {what} must be text, not {shown(name)}.")
        return declared

    return BeforeValidator(check)


DECLARING = ("tools", "servers", "metrics", "components")
"""The keys of a head that say something to the goldens of other files too."""


class Head(Entry):
    """What stands around the goldens of a file, and holds for all of them."""

    version: Literal[1] = 1
    """The version of the language."""
    defaults: Defaults = Field(default_factory=Defaults)
    """What goldens say that do not say otherwise."""
    tools: Annotated[dict[Text, DeclaredTool | None], _named("tool")] = Field(default_factory=dict)
    """The vocabulary: tools by their names."""
    servers: list[Text] = Field(default_factory=list)
    """MCP servers whose names may stand before those of their tools."""
    metrics: dict[Text, list[Text]] = Field(default_factory=dict)
    """Collections of metrics by their names, for `metrics` to name."""
    components: Annotated[dict[Text, DeclaredComponent], _named("component")] = Field(default_factory=dict)
    """Which spans of an instrumentation are components, by the components' names."""
    goldens: list[GoldenAsWritten] = Field(default_factory=list)
    """The goldens."""

    model_config = ConfigDict(
        title="Golden file",
        json_schema_extra={"anyOf": [{"required": [key]} for key in ("goldens", *DECLARING)]},
    )
