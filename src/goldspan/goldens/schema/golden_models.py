"""The JSON Schema of golden files, made from the models of the golden language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, RootModel, Tag
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from goldspan.errors import GoldenError
from goldspan.goldens.schema.expected_tools import BranchEntry, DottedPath, DottedPaths, ItemEntry
from goldspan.goldens.schema.golden_validation import (
    FileEntry,
    Fraction,
    NonEmptyText,
    NumberRange,
    OneOrManyTexts,
    PossiblyEmptyText,
    StrictBool,
    StrictInt,
    entry_error,
)
from goldspan.goldens.schema.matchers import MATCHER_ENTRIES, check_plain_data, parse_matchers
from goldspan.goldens.spelling import did_you_mean, join_words, short_repr
from goldspan.goldens.text_matching import TEXT_MATCHER_TYPES
from goldspan.model import (
    ArgumentsMatch,
    CallDepth,
    CallOrder,
    ComponentSelector,
    CorrectnessMode,
    CountedAttempts,
    DuplicateCalls,
    ExtraCalls,
    ToolEffect,
    UnknownPolicy,
    When,
)
from goldspan.model.value_matchers import MATCHER_KEYS, MATCHERS, Contains, OneOf


class WhenEntry(FileEntry):
    """Which runs a golden is for, by what their telemetry says: everything that is said here must hold."""

    agent: NonEmptyText | None = None
    """The agent's name, or a glob pattern of it; case does not matter."""
    service: NonEmptyText | None = None
    """The `service.name` of the process, or a glob pattern of it."""
    span: NonEmptyText | None = None
    """The name of the run's span, or a glob pattern of it."""
    attributes: dict[NonEmptyText, Any] = Field(default_factory=dict)
    """Attributes of the run's span: values, or matchers of texts."""
    input: Any = None
    """The text of the request, or a matcher of it; a `regex` is searched for."""

    not_a_mapping_message: ClassVar[str] = "must be a mapping with keys such as 'agent'"
    forbids_extra_keys: ClassVar[bool] = True
    misplaced_keys: ClassVar[Mapping[str, str]] = {"component": "stands beside 'when', not in it"}
    model_config = ConfigDict(json_schema_extra={"minProperties": 1})


class ComponentEntry(FileEntry):
    """Which spans are a component: everything that is said here must hold."""

    span: NonEmptyText | None = None
    """The name of the span, or a glob pattern of it; case does not matter."""
    attributes: dict[NonEmptyText, Any] = Field(default_factory=dict)
    """Attributes that the span has, and their values."""

    not_a_mapping_message: ClassVar[str] = "must be a mapping with 'span', 'attributes' or both"
    forbids_extra_keys: ClassVar[bool] = True
    model_config = ConfigDict(json_schema_extra={"minProperties": 1})


def to_when(entry: WhenEntry, location: str) -> When:
    """The conditions that are meant. Raises `GoldenError` for what can mean nothing."""
    attributes = parse_matchers(entry.attributes, location, "when.attributes")
    said = When(entry.agent, entry.service, entry.span, attributes, _parse_when_input(entry, location))
    if said == _EMPTY_WHEN:
        raise GoldenError(f"{location}: when says nothing; it has agent, service, span, attributes or input.")
    for key, value in attributes.items():
        _check_text_matcher(value, f"{location}, when.attributes.{key}")
    return said


_EMPTY_WHEN = When()
TEXT_MATCHER_KEYWORDS = tuple(MATCHER_KEYS[kind] for kind in TEXT_MATCHER_TYPES)
"""The words of the matchers that may stand in conditions."""


def _parse_when_input(written: WhenEntry, where: str) -> Any:
    if "input" not in written.model_fields_set:
        return None
    meant = parse_matchers(written.input, where, "when.input")
    if isinstance(meant, str) and meant.strip():
        return meant
    place = f"{where}, when.input"
    if not isinstance(meant, MATCHERS):
        word = next(iter(meant), None) if isinstance(meant, Mapping) and len(meant) == 1 else None
        told = "must be a text or a matcher such as {regex: refund}"
        raise GoldenError(
            f"{place}: {told}, not {short_repr(written.input)}.{did_you_mean(word, MATCHER_KEYS.values())}"
        )
    _check_text_matcher(meant, place)
    return meant


def _check_text_matcher(value: Any, place: str) -> None:
    """Refuse matchers that say nothing of a text, and those that would be compared as they are."""
    for part in _alternatives_of(value):
        if isinstance(part, MATCHERS) and not isinstance(part, TEXT_MATCHER_TYPES):
            words = join_words(TEXT_MATCHER_KEYWORDS, last="or")
            told = f"the matcher {MATCHER_KEYS[type(part)]!r} is for arguments and results; here may stand {words}"
            raise GoldenError(f"{place}: {told}.")
        held = part.part if isinstance(part, Contains) else None if isinstance(part, MATCHERS) else part
        for matcher in _outermost_matchers(held):
            told = "may stand by itself or in 'one_of', not in a list, a mapping or another matcher"
            raise GoldenError(f"{place}: the matcher {MATCHER_KEYS[type(matcher)]!r} {told}.")


def _alternatives_of(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, OneOf):
        for option in value.options:
            yield from _alternatives_of(option)


def _outermost_matchers(value: Any) -> Iterator[Any]:
    """The outermost matchers that a value is or holds."""
    if isinstance(value, MATCHERS):
        yield value
    elif isinstance(value, list | tuple | Mapping):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _outermost_matchers(part)


def to_component_spans(name: str, entry: ComponentEntry, location: str) -> ComponentSelector:
    """The spans that are meant. Raises `GoldenError` for what can mean nothing."""
    check_plain_data(entry.attributes, location, "attributes")
    for key, value in entry.attributes.items():
        for matcher in _outermost_matchers(parse_matchers(value, location, f"attributes.{key}")):
            told = f"values are compared as they are here, and {MATCHER_KEYS[type(matcher)]!r} is a matcher"
            raise GoldenError(f"{location}, attributes.{key}: {told}.")
    if entry.span is None and not entry.attributes:
        raise GoldenError(f"{location}: says nothing; it has span, attributes or both.")
    return ComponentSelector(name, entry.span, entry.attributes)


_MetricsField = Annotated[
    Annotated[NonEmptyText, Tag("<collection>")] | Annotated[list[NonEmptyText], Tag("<names>")],
    Discriminator(lambda given: "<collection>" if isinstance(given, str) else "<names>"),
]


class RulesEntry(FileEntry):
    """How the calls of a request are judged."""

    order: CallOrder = "any"
    """`in_order`: as listed, others in between are fine; `exact`: these calls, in this order, and no other."""
    forbid: list[NonEmptyText] = Field(default_factory=list)
    """Glob patterns of tools that must not be called, whatever else is."""
    max_calls: Annotated[StrictInt, NumberRange(0, None, "0 or more")] | None = None
    """How many calls the request may take."""
    depth: CallDepth = "all"
    """`own`: calls of the agents that the request's own agent calls do not count."""
    attempts: CountedAttempts = "effective"
    """`effective`: a failed attempt that a later call of the same tool made good does not count; `all`: every attempt
    counts; `succeeded`: failed ones never do."""
    duplicates: DuplicateCalls = "count"
    """`ignore`: what was expected or called before with the same arguments counts no second time."""
    extra: ExtraCalls | None = None
    """`allow`: calls that nobody expected do not count. `penalize`: each of them fails the run. Left out: they lower
    the metrics, and fail no run that is required to call something."""
    mode: CorrectnessMode = "recall"
    """What `tool_correctness` measures."""
    threshold: Fraction = 1.0
    """The share of the expected calls, arguments and results that is accepted."""
    thresholds: dict[NonEmptyText, Fraction] = Field(default_factory=dict)
    """What single metrics must reach; of what such a metric measures, no more is asked for."""
    unknown: UnknownPolicy = "not_evaluated"
    """What becomes of a run of which something stated cannot be judged, and nothing is broken: it is not evaluated, the
    rest decides (`ignore`), or it fails (`fail`)."""
    metrics: _MetricsField | None = None
    """The metrics to measure, or the name of a collection from the head."""
    match: ArgumentsMatch = "exact"
    """`subset`: arguments that an expected call does not state cost nothing."""
    write_tools: list[NonEmptyText] = Field(default_factory=list)
    """Tools that change something, as `effect: write` in the vocabulary says it."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        "alternatives": "is written 'any_of'",
        "forbidden": "is written 'forbid'",
        "max_tool_calls": "is written 'max_calls'",
    }


class DefaultsEntry(RulesEntry):
    """What holds for every golden of the file that does not say otherwise."""

    forbids_extra_keys: ClassVar[bool] = True


_EXPECTATION_KEYS = ("tools", "expected_tools", "any_of")
_POLICY_SCHEMA: Any = {"enum": [True, None]}
_EXPECTATION_OR_POLICY_SCHEMA: list[Any] = [
    *({"required": [key], "properties": {"policy": {"enum": [False, None]}}} for key in _EXPECTATION_KEYS),
    {
        "not": {"anyOf": [{"required": [key]} for key in _EXPECTATION_KEYS]},
        "anyOf": [
            {"required": ["policy"], "properties": {"policy": {"const": True}}},
            {"required": ["forbid"], "properties": {"forbid": {"minItems": 1}, "policy": _POLICY_SCHEMA}},
            {"required": ["max_calls"], "properties": {"max_calls": {"type": "integer"}, "policy": _POLICY_SCHEMA}},
        ],
        "properties": {"input": {"type": "null"}},
    },
]
"""A golden says what is expected in one way, or it is a policy."""


class GoldenEntry(RulesEntry):
    """What is expected for one request."""

    id: NonEmptyText
    """Unique over all files that are loaded together."""
    input: PossiblyEmptyText | None = None
    """The text of the request; a run with the same text is judged by this golden."""
    when: WhenEntry = Field(default_factory=WhenEntry)
    """Which runs it is for, by what their telemetry says."""
    component: NonEmptyText | None = None
    """The component it is for. Left out: it is for requests and conversations."""
    tools: list[ItemEntry] = Field(default_factory=list, validation_alias=AliasChoices("tools", "expected_tools"))
    """The expected calls. An empty list says that none is to be called."""
    any_of: Annotated[list[BranchEntry], Field(min_length=1)] = Field(default_factory=list)
    """In place of `tools`: calls or trajectories, of which one is expected."""
    policy: StrictBool | None = None
    """`true`: it expects no calls in particular, and is for every run that no other golden is for. So is what has
    neither `tools` nor `any_of`, and forbids or limits calls."""

    not_a_mapping_message: ClassVar[str] = "a golden must be a mapping"
    misplaced_keys: ClassVar[Mapping[str, str]] = {
        **RulesEntry.misplaced_keys,
        **dict.fromkeys(("optional", "parallel", "times"), "belongs to an item of 'tools'"),
    }
    model_config = ConfigDict(
        title="Golden",
        json_schema_extra={"oneOf": _EXPECTATION_OR_POLICY_SCHEMA},
    )


# --- the head of a file -----------------------------------------------------------------------------------------------


class ToolEntry(FileEntry):
    """What is known of a tool, once for all goldens."""

    aliases: OneOrManyTexts = Field(default_factory=list, validation_alias=AliasChoices("aliases", "alias"))
    """Other names of the tool; no name can mean two tools."""
    server: NonEmptyText | None = None
    """Its MCP server."""
    effect: ToolEffect | None = None
    """Whether a successful call changes the world."""
    description: PossiblyEmptyText | None = None
    """What it does."""
    parameters: dict[Any, Any] | None = Field(None, validation_alias=AliasChoices("parameters", "schema"))
    """The JSON schema of its arguments."""
    ignore: DottedPaths = Field(default_factory=list)
    """Arguments that no golden looks at: keys, or paths such as `options.trace_id`."""
    defaults: dict[DottedPath, Any] = Field(default_factory=dict)
    """What arguments are, by key or path, where either side leaves them out."""

    not_a_mapping_message: ClassVar[str] = "must be a mapping with keys such as 'aliases'"


def _named_mapping(kind: str) -> BeforeValidator:
    def check(declared: Any) -> Any:
        for name in declared if isinstance(declared, Mapping) else ():
            if not isinstance(name, str) or not name:
                raise entry_error(f"the name of a {kind} must be text, not {short_repr(name)}.")
        return declared

    return BeforeValidator(check)


DECLARATION_KEYS = ("tools", "servers", "metrics", "components")
"""The keys of a head that say something to the goldens of other files too."""


class HeaderEntry(FileEntry):
    """What stands around the goldens of a file, and holds for all of them."""

    version: Literal[1] = 1
    """The version of the language."""
    defaults: DefaultsEntry = Field(default_factory=DefaultsEntry)
    """What goldens say that do not say otherwise."""
    tools: Annotated[dict[NonEmptyText, ToolEntry | None], _named_mapping("tool")] = Field(default_factory=dict)
    """The vocabulary: tools by their names."""
    servers: list[NonEmptyText] = Field(default_factory=list)
    """MCP servers whose names may stand before those of their tools."""
    metrics: dict[NonEmptyText, list[NonEmptyText]] = Field(default_factory=dict)
    """Collections of metrics by their names, for `metrics` to name."""
    components: Annotated[dict[NonEmptyText, ComponentEntry], _named_mapping("component")] = Field(default_factory=dict)
    """Which spans of an instrumentation are components, by the components' names."""
    goldens: list[GoldenEntry] = Field(default_factory=list)
    """The goldens."""

    model_config = ConfigDict(
        title="Golden file",
        json_schema_extra={"anyOf": [{"required": [key]} for key in ("goldens", *DECLARATION_KEYS)]},
    )


class GoldenFileRoot(RootModel[HeaderEntry | list[GoldenEntry]]):
    """Goldens for goldspan: a list of them, or a mapping with a head. In JSON lines each line is one golden."""


def golden_json_schema() -> dict[str, Any]:
    """The JSON Schema of golden files, for editors and other programs."""
    models: tuple[type[BaseModel], ...] = (GoldenFileRoot, *MATCHER_ENTRIES)
    _, told = models_json_schema([(model, "validation") for model in models])
    definitions = told["$defs"]
    # The models leave arguments and results alone, for `matchers` to read them without recursion.
    value = {"anyOf": [*({"$ref": f"#/$defs/{model.__name__}"} for model in MATCHER_ENTRIES), {}]}
    call = definitions["CallEntry"]["properties"]
    for key in ("arguments", "args"):
        call[key] |= {"anyOf": [{"type": "object", "additionalProperties": value}, {"type": "null"}]}
    for key in ("result", "output"):
        call[key] |= value
    when = definitions["WhenEntry"]["properties"]
    texts = [
        {"$ref": f"#/$defs/{kind.__name__}"} for kind in MATCHER_ENTRIES if kind.keyword() in TEXT_MATCHER_KEYWORDS
    ]
    when["input"] |= {"anyOf": [{"type": "string", "minLength": 1}, *texts]}
    when["attributes"] |= {"additionalProperties": {"anyOf": [*texts, {}]}}
    return {"$schema": GenerateJsonSchema.schema_dialect, **definitions.pop("GoldenFileRoot"), "$defs": definitions}
