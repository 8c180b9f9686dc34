"""The golden language: every key that a golden file may have, how it is checked, and what it means.

The models below are the only description of it; the published JSON Schema is made from them. What stands in a golden's
`tools` is told in `expectations`, what stands in arguments in `matchers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    RootModel,
    Tag,
    TypeAdapter,
)
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from goldspan.errors import GoldenError
from goldspan.goldens.checking import (
    Entry,
    OneOrMore,
    PerhapsEmpty,
    Share,
    Text,
    Whole,
    Within,
    checked,
    checked_value,
    mistake,
)
from goldspan.goldens.expectations import (
    Branch,
    DottedPath,
    DottedPaths,
    ItemAsWritten,
    Meaning,
    check_number,
    check_server,
    check_size,
)
from goldspan.goldens.matchers import MATCHER_ENTRIES, check_plain
from goldspan.goldens.words import did_you_mean, shown
from goldspan.model import (
    NO_VOCABULARY,
    ONCE,
    ArgumentsMatch,
    Attempts,
    Depth,
    Duplicates,
    Effect,
    ExpectedTool,
    Extra,
    Golden,
    Item,
    Mode,
    Order,
    Tool,
    Vocabulary,
)

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
    extra: Extra = "penalize"
    """`allow`: calls that nobody expected do not count."""
    mode: Mode = "recall"
    """What `tool_correctness` measures."""
    threshold: Share = 0.5
    """What the gates must reach for the run to pass."""
    thresholds: dict[Text, Share] = Field(default_factory=dict)
    """What single metrics must reach; a metric that is named here is a gate."""
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


class GoldenAsWritten(Rules):
    """What is expected for one request."""

    id: Text
    """Unique over all files that are loaded together."""
    input: PerhapsEmpty | None = None
    """The text of the request; a run with the same text is judged by this golden."""
    tools: list[ItemAsWritten] = Field(default_factory=list, validation_alias=AliasChoices("tools", "expected_tools"))
    """The expected calls. An empty list says that none is to be called."""
    any_of: Annotated[list[Branch], Field(min_length=1)] = Field(default_factory=list)
    """In place of `tools`: calls or trajectories, of which one is expected."""

    instead: ClassVar[str] = "a golden must be a mapping"
    misplaced: ClassVar[Mapping[str, str]] = {
        **Rules.misplaced,
        **dict.fromkeys(("component", "when"), "is not supported yet"),
        **dict.fromkeys(("optional", "parallel", "times"), "belongs to an item of 'tools'"),
    }
    model_config = ConfigDict(
        title="Golden",
        json_schema_extra={"oneOf": [{"required": [key]} for key in ("tools", "expected_tools", "any_of")]},
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


def _named(tools: Any) -> Any:
    for name in tools if isinstance(tools, Mapping) else ():
        if not isinstance(name, str) or not name:
            raise mistake(f"the name of a tool must be text, not {shown(name)}.")
    return tools


class Head(Entry):
    """What stands around the goldens of a file, and holds for all of them."""

    version: Literal[1] = 1
    """The version of the language."""
    defaults: Defaults = Field(default_factory=Defaults)
    """What goldens say that do not say otherwise."""
    tools: Annotated[dict[Text, DeclaredTool | None], BeforeValidator(_named)] = Field(default_factory=dict)
    """The vocabulary: tools by their names."""
    servers: list[Text] = Field(default_factory=list)
    """MCP servers whose names may stand before those of their tools."""
    metrics: dict[Text, list[Text]] = Field(default_factory=dict)
    """Collections of metrics by their names, for `metrics` to name."""
    goldens: list[GoldenAsWritten] = Field(default_factory=list)
    """The goldens."""

    model_config = ConfigDict(
        title="Golden file",
        json_schema_extra={"anyOf": [{"required": [key]} for key in ("goldens", "tools", "servers", "metrics")]},
    )


class GoldenFile(RootModel[Head | list[GoldenAsWritten]]):
    """Goldens for goldspan: a list of them, or a mapping with a head. In JSON lines each line is one golden."""


def schema() -> dict[str, Any]:
    """The JSON Schema of golden files, for editors and other programs."""
    models: tuple[type[BaseModel], ...] = (GoldenFile, *MATCHER_ENTRIES)
    _, told = models_json_schema([(model, "validation") for model in models])
    definitions = told["$defs"]
    # The models leave arguments and results alone, for `matchers` to read them without recursion.
    value = {"anyOf": [*({"$ref": f"#/$defs/{model.__name__}"} for model in MATCHER_ENTRIES), {}]}
    call = definitions["Call"]["properties"]
    for key in ("arguments", "args"):
        call[key] |= {"anyOf": [{"type": "object", "additionalProperties": value}, {"type": "null"}]}
    for key in ("result", "output"):
        call[key] |= value
    return {"$schema": GenerateJsonSchema.schema_dialect, **definitions.pop("GoldenFile"), "$defs": definitions}


# --- from what is written to what is meant ----------------------------------------------------------------------------

Collections: TypeAlias = Mapping[str, tuple[str, ...]]
"""Names of metrics by the names of the collections that they are in."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the head of a file says, as it is meant."""

    rules: Mapping[str, Any] = field(default_factory=dict)
    """What goldens say that do not say otherwise."""
    tools: tuple[Tool, ...] = ()
    servers: tuple[str, ...] = ()
    collections: Collections = field(default_factory=dict)
    strange: tuple[str, ...] = ()
    """Keys of the author's own."""


@dataclass(frozen=True, slots=True)
class Context:
    """What is said outside of a golden, in its own file and in those that are loaded with it."""

    rules: Mapping[str, Any] = field(default_factory=dict)
    vocabulary: Vocabulary = NO_VOCABULARY
    known: Callable[[ExpectedTool], ExpectedTool] = lambda tool: tool
    """Adds what the vocabulary says of a tool."""
    collections: Collections | None = field(default_factory=dict)
    """`None`: not known, because something is wrong where they are declared."""


def read_head(given: Mapping[Any, Any], where: str) -> Surroundings:
    """The head of a file. Raises `GoldenError` for whatever is wrong with it."""
    head = checked(Head, given, where)
    strange = dict.fromkeys(head.model_extra or ())
    tools = []
    for name, said in head.tools.items():
        declared = said or _NOTHING_SAID
        strange.update(dict.fromkeys(declared.model_extra or ()))
        tools.append(_tool(name, declared, f"{where}, tool {shown(name)}"))
    return Surroundings(
        rules=_rules(head.defaults),
        tools=tuple(tools),
        servers=tuple(head.servers),
        collections={name: tuple(metrics) for name, metrics in head.metrics.items()},
        strange=tuple(strange),
    )


def measured(rules: Mapping[str, Any], collections: Collections | None, where: str) -> Mapping[str, Any]:
    """Rules in which the name of a collection is replaced by what is in it. Raises `GoldenError` for an unknown one."""
    metrics = rules.get("metrics")
    if not isinstance(metrics, str):
        return rules
    if collections is None:
        return {**rules, "metrics": None}
    if metrics not in collections:
        hint = did_you_mean(metrics, collections) or f" One metric is written as [{shown(metrics)}]."
        raise GoldenError(f"{where}: metrics names {shown(metrics)}, and no such collection is declared.{hint}")
    return {**rules, "metrics": collections[metrics]}


def read_golden(given: Any, where: str, context: Context) -> tuple[Golden, tuple[str, ...]]:
    """A golden, and the keys in it that are its author's own. Raises `GoldenError` for whatever is wrong with it."""
    if isinstance(given, Mapping):
        for key in ("tools", "expected_tools", "any_of"):
            if key in given:
                check_size(given[key], where)
    written = checked(GoldenAsWritten, given, where)
    rules = {**context.rules, **measured(_rules(written), context.collections, where)}
    if rules.get("order") == "exact" and rules.get("extra") == "allow":
        raise GoldenError(f"{where}: 'order: exact' and 'extra: allow' contradict each other; keep one of them.")
    strange = dict(written.model_extra or ())
    meaning = Meaning(where, rules.pop("match", "exact"), context.known, strange)
    golden = Golden(
        id=written.id,
        input=written.input,
        tools=_items(written, meaning),
        metadata=strange,
        vocabulary=context.vocabulary,
        **rules,
    )
    check_number(golden.tools, where)
    return golden, tuple(key.rpartition("].")[2] for key in strange)


def items(given: Sequence[Any], where: str) -> tuple[Item, ...]:
    """Expected calls as people write them in Python: what a golden's `tools` may hold, and values of the model.

    Raises `GoldenError` for whatever is wrong, beginning with `where` and the position.
    """
    check_size(given, where)
    meaning = Meaning(where)
    meant = meaning.items(checked_value(_ITEMS, list(given), where))
    check_number(meant, where)
    return meant


def _rules(written: Rules) -> dict[str, Any]:
    """What is said there and not left to the defaults."""
    said = ((name, getattr(written, name)) for name in written.model_fields_set & _RULES)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in said}


def _items(written: GoldenAsWritten, meaning: Meaning) -> tuple[Item, ...]:
    said = written.model_fields_set
    if "any_of" in said and "tools" in said:
        raise GoldenError(f"{meaning.where}: 'any_of' says what is expected in place of 'tools'; keep one of them.")
    if "any_of" in said:
        return (meaning.any_of(written.any_of, ONCE, "any_of"),)
    if "tools" in said:
        return meaning.items(written.tools, "tools")
    # Every golden says what it expects, because one that says nothing would fail every run that calls a tool.
    raise GoldenError(f"{meaning.where}: tools is missing; `tools: []` says that no tool is to be called.")


def _tool(name: str, written: DeclaredTool, where: str) -> Tool:
    """One tool of the vocabulary."""
    check_server(name, written.server, where)
    for what, value in (("defaults", written.defaults), ("parameters", written.parameters)):
        check_plain(value, where, what)
    return Tool(
        name=name,
        aliases=tuple(written.aliases),
        server=written.server,
        effect=written.effect,
        description=written.description,
        parameters=written.parameters,
        ignore=tuple(written.ignore),
        defaults=written.defaults,
        metadata=dict(written.model_extra or ()),
    )


_RULES = frozenset(Rules.model_fields)
_NOTHING_SAID = DeclaredTool.model_validate({})
_ITEMS = TypeAdapter(list[ItemAsWritten])
