"""Pydantic models of goldens, `when`, components and file headers, and the JSON Schema made from them."""

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
    """Conditions on the telemetry of a run. A golden applies to a run that meets all of them."""

    agent: NonEmptyText | None = None
    """The agent's name, or a glob pattern that matches it; case does not matter."""
    service: NonEmptyText | None = None
    """The `service.name` of the process, or a glob pattern that matches it."""
    span: NonEmptyText | None = None
    """The name of the run's span, or a glob pattern that matches it."""
    attributes: dict[NonEmptyText, Any] = Field(default_factory=dict)
    """Attributes of the run's span: values, or text matchers."""
    input: Any = None
    """The text of the request, or a text matcher; a `regex` may match any part of the text."""

    not_a_mapping_message: ClassVar[str] = "must be a mapping with keys such as 'agent'"
    forbids_extra_keys: ClassVar[bool] = True
    misplaced_keys: ClassVar[Mapping[str, str]] = {"component": "belongs beside 'when', not in it"}
    model_config = ConfigDict(json_schema_extra={"minProperties": 1})


class ComponentEntry(FileEntry):
    """Conditions on a span. A span that meets all of them is a component."""

    span: NonEmptyText | None = None
    """The name of the span, or a glob pattern that matches it; case does not matter."""
    attributes: dict[NonEmptyText, Any] = Field(default_factory=dict)
    """Attributes of the span, and their values."""

    not_a_mapping_message: ClassVar[str] = "must be a mapping with 'span', 'attributes' or both"
    forbids_extra_keys: ClassVar[bool] = True
    model_config = ConfigDict(json_schema_extra={"minProperties": 1})


def to_when(entry: WhenEntry, location: str) -> When:
    """Converts `when` to the model. Raises `GoldenError` for an empty `when` and for unusable matchers."""
    attributes = parse_matchers(entry.attributes, location, "when.attributes")
    when = When(entry.agent, entry.service, entry.span, attributes, _parse_when_input(entry, location))
    if when == _EMPTY_WHEN:
        raise GoldenError(f"{location}: when is empty; state agent, service, span, attributes or input.")
    for key, value in attributes.items():
        _check_text_matcher(value, f"{location}, when.attributes.{key}")
    return when


_EMPTY_WHEN = When()
TEXT_MATCHER_KEYWORDS = tuple(MATCHER_KEYS[kind] for kind in TEXT_MATCHER_TYPES)
"""The keywords of the matchers that conditions accept."""


def _parse_when_input(entry: WhenEntry, location: str) -> Any:
    if "input" not in entry.model_fields_set:
        return None
    condition = parse_matchers(entry.input, location, "when.input")
    if isinstance(condition, str) and condition.strip():
        return condition
    field_location = f"{location}, when.input"
    if not isinstance(condition, MATCHERS):
        keyword = next(iter(condition), None) if isinstance(condition, Mapping) and len(condition) == 1 else None
        problem = "must be a text or a matcher such as {regex: refund}"
        hint = did_you_mean(keyword, MATCHER_KEYS.values())
        raise GoldenError(f"{field_location}: {problem}, not {short_repr(entry.input)}.{hint}")
    _check_text_matcher(condition, field_location)
    return condition


def _check_text_matcher(value: Any, location: str) -> None:
    """Rejects matchers that do not apply to text, and matchers nested where the comparison ignores them."""
    for part in _alternatives_of(value):
        if isinstance(part, MATCHERS) and not isinstance(part, TEXT_MATCHER_TYPES):
            accepted = join_words(TEXT_MATCHER_KEYWORDS, last="or")
            problem = f"is for arguments and results; a condition accepts {accepted}"
            raise GoldenError(f"{location}: the matcher {MATCHER_KEYS[type(part)]!r} {problem}.")
        inner = part.part if isinstance(part, Contains) else None if isinstance(part, MATCHERS) else part
        for matcher in _outermost_matchers(inner):
            problem = "must be the whole value or an item of 'one_of', not part of a list, a mapping or another matcher"
            raise GoldenError(f"{location}: the matcher {MATCHER_KEYS[type(matcher)]!r} {problem}.")


def _alternatives_of(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, OneOf):
        for option in value.options:
            yield from _alternatives_of(option)


def _outermost_matchers(value: Any) -> Iterator[Any]:
    """Yields the value if it is a matcher, else the outermost matchers inside it."""
    if isinstance(value, MATCHERS):
        yield value
    elif isinstance(value, list | tuple | Mapping):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _outermost_matchers(part)


def to_component_spans(name: str, entry: ComponentEntry, location: str) -> ComponentSelector:
    """Converts a component to the model. Raises `GoldenError` for an empty component and for matchers."""
    check_plain_data(entry.attributes, location, "attributes")
    for key, value in entry.attributes.items():
        for matcher in _outermost_matchers(parse_matchers(value, location, f"attributes.{key}")):
            problem = f"must be a plain value, but {MATCHER_KEYS[type(matcher)]!r} is a matcher"
            raise GoldenError(f"{location}, attributes.{key}: {problem}.")
    if entry.span is None and not entry.attributes:
        raise GoldenError(f"{location}: is empty; state span, attributes or both.")
    return ComponentSelector(name, entry.span, entry.attributes)


_MetricsField = Annotated[
    Annotated[NonEmptyText, Tag("<collection>")] | Annotated[list[NonEmptyText], Tag("<names>")],
    Discriminator(lambda value: "<collection>" if isinstance(value, str) else "<names>"),
]


class RulesEntry(FileEntry):
    """How the calls of a request are evaluated."""

    order: CallOrder = "any"
    """`in_order`: in the listed order, other calls may come between; `exact`: exactly these calls in this order."""
    forbid: list[NonEmptyText] = Field(default_factory=list)
    """Glob patterns of tools that must not be called."""
    max_calls: Annotated[StrictInt, NumberRange(0, None, "0 or more")] | None = None
    """The greatest allowed number of calls."""
    depth: CallDepth = "all"
    """`own`: only calls of the request's own agent count, not those of agents that it calls."""
    attempts: CountedAttempts = "effective"
    """`effective`: a failed attempt does not count if a later call of the same tool succeeds; `all`: every attempt
    counts; `succeeded`: failed attempts do not count."""
    duplicates: DuplicateCalls = "count"
    """`ignore`: a repeated call with the same arguments counts once, both among expected and actual calls."""
    extra: ExtraCalls | None = None
    """`allow`: unexpected calls do not count. `penalize`: an unexpected call fails the run. If omitted, unexpected
    calls lower the metrics, but do not fail a run that is required to call a tool."""
    mode: CorrectnessMode = "recall"
    """The measure that `tool_correctness` reports."""
    threshold: Fraction = 1.0
    """The share of the expected calls, arguments and results that a run must reach to pass."""
    thresholds: dict[NonEmptyText, Fraction] = Field(default_factory=dict)
    """Thresholds of single metrics, by metric name. They replace `threshold` for what these metrics measure."""
    unknown: UnknownPolicy = "not_evaluated"
    """The outcome of a run that breaks no rule, but has a rule that cannot be evaluated: `not_evaluated`; `ignore`: the
    other rules decide; `fail`: the run fails."""
    metrics: _MetricsField | None = None
    """The metrics to compute, or the name of a collection that a file header declares."""
    match: ArgumentsMatch = "exact"
    """`subset`: arguments that an expected call does not state are ignored."""
    write_tools: list[NonEmptyText] = Field(default_factory=list)
    """Tools with side effects, like `effect: write` in the vocabulary."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        "alternatives": "is written 'any_of'",
        "forbidden": "is written 'forbid'",
        "max_tool_calls": "is written 'max_calls'",
    }


class DefaultsEntry(RulesEntry):
    """Default rules for every golden of the file; a golden may override each of them."""

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
"""A golden states its expected calls under exactly one key, or it is a policy."""


class GoldenEntry(RulesEntry):
    """The expected calls of one request, or a policy for all other requests."""

    id: NonEmptyText
    """Unique over all files that are loaded together."""
    input: PossiblyEmptyText | None = None
    """The text of the request; this golden applies to runs with the same text."""
    when: WhenEntry = Field(default_factory=WhenEntry)
    """Conditions that a run must meet."""
    component: NonEmptyText | None = None
    """The component that it applies to. If omitted, it applies to requests and conversations."""
    tools: list[ItemEntry] = Field(default_factory=list, validation_alias=AliasChoices("tools", "expected_tools"))
    """The expected calls. An empty list means that no tool may be called."""
    any_of: Annotated[list[BranchEntry], Field(min_length=1)] = Field(default_factory=list)
    """Instead of `tools`: alternative calls or trajectories, one of which is expected."""
    policy: StrictBool | None = None
    """`true`: the golden expects no particular calls, and applies to every run without another golden. A golden without
    `tools` and `any_of` that forbids or limits calls is a policy as well."""

    not_a_mapping_message: ClassVar[str] = "a golden must be a mapping"
    misplaced_keys: ClassVar[Mapping[str, str]] = {
        **RulesEntry.misplaced_keys,
        **dict.fromkeys(("optional", "parallel", "times"), "belongs to an item of 'tools'"),
    }
    model_config = ConfigDict(
        title="Golden",
        json_schema_extra={"oneOf": _EXPECTATION_OR_POLICY_SCHEMA},
    )


# --- the header of a file ---------------------------------------------------------------------------------------------


class ToolEntry(FileEntry):
    """Declares a tool for all goldens."""

    aliases: OneOrManyTexts = Field(default_factory=list, validation_alias=AliasChoices("aliases", "alias"))
    """Other names of the tool; a name must not stand for two tools."""
    server: NonEmptyText | None = None
    """Its MCP server."""
    effect: ToolEffect | None = None
    """Whether a successful call has side effects."""
    description: PossiblyEmptyText | None = None
    """What the tool does."""
    parameters: dict[Any, Any] | None = Field(None, validation_alias=AliasChoices("parameters", "schema"))
    """The JSON schema of its arguments."""
    ignore: DottedPaths = Field(default_factory=list)
    """Arguments that are not compared: keys, or paths such as `options.trace_id`."""
    defaults: dict[DottedPath, Any] = Field(default_factory=dict)
    """Values of arguments that a call or an expected call leaves out, by key or path."""

    not_a_mapping_message: ClassVar[str] = "must be a mapping with keys such as 'aliases'"


def _named_mapping(kind: str) -> BeforeValidator:
    def check(declared: Any) -> Any:
        for name in declared if isinstance(declared, Mapping) else ():
            if not isinstance(name, str) or not name:
                raise entry_error(f"the name of a {kind} must be text, not {short_repr(name)}.")
        return declared

    return BeforeValidator(check)


DECLARATION_KEYS = ("tools", "servers", "metrics", "components")
"""The header keys whose declarations apply to the goldens of all files."""


class HeaderEntry(FileEntry):
    """A golden file as a mapping: declarations and defaults for its goldens."""

    version: Literal[1] = 1
    """The version of the file format."""
    defaults: DefaultsEntry = Field(default_factory=DefaultsEntry)
    """Default rules of the goldens in this file."""
    tools: Annotated[dict[NonEmptyText, ToolEntry | None], _named_mapping("tool")] = Field(default_factory=dict)
    """The vocabulary: tools by their names."""
    servers: list[NonEmptyText] = Field(default_factory=list)
    """MCP servers whose names may prefix the names of their tools."""
    metrics: dict[NonEmptyText, list[NonEmptyText]] = Field(default_factory=dict)
    """Collections of metrics by name, which `metrics` of a golden can refer to."""
    components: Annotated[dict[NonEmptyText, ComponentEntry], _named_mapping("component")] = Field(default_factory=dict)
    """Which spans are components, by component name."""
    goldens: list[GoldenEntry] = Field(default_factory=list)
    """The goldens."""

    model_config = ConfigDict(
        title="Golden file",
        json_schema_extra={"anyOf": [{"required": [key]} for key in ("goldens", *DECLARATION_KEYS)]},
    )


class GoldenFileRoot(RootModel[HeaderEntry | list[GoldenEntry]]):
    """Goldens for goldspan: a list of goldens, or a mapping with a header. In JSON Lines each line is one golden."""


def golden_json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of golden files, for editors and other programs."""
    models: tuple[type[BaseModel], ...] = (GoldenFileRoot, *MATCHER_ENTRIES)
    _, schema = models_json_schema([(model, "validation") for model in models])
    definitions = schema["$defs"]
    # The models type arguments and results as `Any`, because the matchers module parses them without recursion.
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
