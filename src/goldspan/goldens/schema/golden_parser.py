"""Converts goldens, file headers and expected tools to values of `goldspan.model`.

The models in `golden_models`, `expected_tools` and `matchers` define the keys and validate them. They are the only
definition of the format; the published JSON Schema is generated from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from goldspan.errors import GoldenError
from goldspan.goldens.schema.expected_tools import (
    ItemEntry,
    ItemParser,
    check_call_count,
    check_item_limits,
    check_server_conflict,
)
from goldspan.goldens.schema.golden_models import (
    GoldenEntry,
    HeaderEntry,
    RulesEntry,
    ToolEntry,
    WhenEntry,
    to_component_spans,
    to_when,
)
from goldspan.goldens.schema.golden_validation import validate_entry, validate_value
from goldspan.goldens.schema.matchers import check_plain_data
from goldspan.goldens.spelling import did_you_mean, short_repr
from goldspan.model import (
    NO_VOCABULARY,
    ONCE,
    ArgumentsMatch,
    ComponentSelector,
    ExpectedItem,
    ExpectedTool,
    Golden,
    GoldenSource,
    Tool,
    Vocabulary,
    When,
)

MetricCollections: TypeAlias = Mapping[str, tuple[str, ...]]
"""Names of metrics, by the name of their collection."""


@dataclass(frozen=True, slots=True)
class ParsedHeader:
    """The header of a golden file, converted to the model."""

    rules: Mapping[str, Any] = field(default_factory=dict)
    """Default rules of the goldens in the file."""
    tools: tuple[Tool, ...] = ()
    servers: tuple[str, ...] = ()
    collections: MetricCollections = field(default_factory=dict)
    components: tuple[ComponentSelector, ...] = ()
    extra_keys: tuple[str, ...] = ()
    """Keys that goldspan does not define."""


@dataclass(frozen=True, slots=True)
class GoldenContext:
    """What a golden inherits from its own file and from the files that are loaded with it."""

    rules: Mapping[str, Any] = field(default_factory=dict)
    vocabulary: Vocabulary = NO_VOCABULARY
    add_declared: Callable[[ExpectedTool], ExpectedTool] = lambda tool: tool
    """Adds the declared defaults of a tool to an expected tool."""
    collections: MetricCollections | None = field(default_factory=dict)
    """`None` if the collections are unknown, because their declarations are invalid."""


def parse_header(mapping: Mapping[Any, Any], location: str) -> ParsedHeader:
    """Converts the header of a file. Raises `GoldenError` for an invalid header."""
    header = validate_entry(HeaderEntry, mapping, location)
    extra_keys = dict.fromkeys(header.model_extra or ())
    tools = []
    for name, entry in header.tools.items():
        tool_entry = entry or _EMPTY_TOOL
        extra_keys.update(dict.fromkeys(tool_entry.model_extra or ()))
        tools.append(_parse_declared_tool(name, tool_entry, f"{location}, tool {short_repr(name)}"))
    return ParsedHeader(
        rules=_explicit_rules(header.defaults),
        tools=tuple(tools),
        servers=tuple(header.servers),
        collections={name: tuple(metrics) for name, metrics in header.metrics.items()},
        components=tuple(
            to_component_spans(name, component, f"{location}, component {short_repr(name)}")
            for name, component in header.components.items()
        ),
        extra_keys=tuple(extra_keys),
    )


def resolve_metrics(
    rules: Mapping[str, Any], collections: MetricCollections | None, location: str
) -> Mapping[str, Any]:
    """Replaces the name of a collection by its metrics. Raises `GoldenError` for an unknown collection."""
    metrics = rules.get("metrics")
    if not isinstance(metrics, str):
        return rules
    if collections is None:
        return {**rules, "metrics": None}
    if metrics not in collections:
        hint = did_you_mean(metrics, collections) or f" One metric is written as [{short_repr(metrics)}]."
        raise GoldenError(f"{location}: metrics names {short_repr(metrics)}, and no such collection is declared.{hint}")
    return {**rules, "metrics": collections[metrics]}


def parse_golden(
    mapping: Any, location: str, context: GoldenContext, source: GoldenSource | None = None
) -> tuple[Golden, tuple[str, ...]]:
    """Returns a golden and its keys that goldspan does not define. Raises `GoldenError` for an invalid golden."""
    if isinstance(mapping, Mapping):
        for key in ("tools", "expected_tools", "any_of"):
            if key in mapping:
                check_item_limits(mapping[key], location)
    entry = validate_entry(GoldenEntry, mapping, location)
    rules = {**context.rules, **resolve_metrics(_explicit_rules(entry), context.collections, location)}
    if rules.get("order") == "exact" and rules.get("extra") == "allow":
        raise GoldenError(f"{location}: 'order: exact' and 'extra: allow' contradict each other; keep one of them.")
    metadata = dict(entry.model_extra or ())
    item_parser = ItemParser(location, rules.pop("match", "exact"), context.add_declared, metadata)
    golden = Golden(
        id=entry.id,
        input=entry.input,
        tools=_parse_items(entry, item_parser),
        when=to_when(entry.when, location) if "when" in entry.model_fields_set else None,
        component=entry.component,
        policy=_check_is_policy(entry, location),
        metadata=metadata,
        vocabulary=context.vocabulary,
        source=source,
        **rules,
    )
    check_call_count(golden.tools, location)
    return golden, tuple(key.rpartition("].")[2] for key in metadata)


def parse_expected_tools(
    values: Sequence[Any],
    location: str,
    add_declared: Callable[[ExpectedTool], ExpectedTool] = lambda tool: tool,
    match: ArgumentsMatch = "exact",
) -> tuple[ExpectedItem, ...]:
    """Converts expected calls that are written in Python: items of a golden's `tools`, or values of the model.

    `add_declared` adds the declared defaults of a tool; `match` applies to calls that do not state their own. Raises
    `GoldenError` for invalid items; the message begins with `location` and the position.
    """
    check_item_limits(values, location)
    items = ItemParser(location, match, add_declared).parse_items(
        validate_value(_ITEMS_ADAPTER, list(values), location)
    )
    check_call_count(items, location)
    return items


def parse_when(mapping: Any, location: str) -> When | None:
    """Converts a `when` that is written in Python. Raises `GoldenError` for an invalid one."""
    return to_when(validate_entry(WhenEntry, mapping, location), location)


def _explicit_rules(entry: RulesEntry) -> dict[str, Any]:
    """Returns the rules that the entry states itself."""
    rules = ((name, getattr(entry, name)) for name in entry.model_fields_set & _RULE_FIELDS)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in rules}


def _parse_items(entry: GoldenEntry, item_parser: ItemParser) -> tuple[ExpectedItem, ...]:
    stated_keys = entry.model_fields_set
    if "any_of" in stated_keys and "tools" in stated_keys:
        raise GoldenError(f"{item_parser.location}: 'any_of' and 'tools' exclude each other; keep one of them.")
    if "any_of" in stated_keys:
        return (item_parser.parse_any_of(entry.any_of, ONCE, "any_of"),)
    return item_parser.parse_items(entry.tools, "tools")


def _check_is_policy(entry: GoldenEntry, location: str) -> bool:
    """Whether the golden expects no particular calls. Raises `GoldenError` for contradicting keys."""
    stated_keys = entry.model_fields_set
    if expectation_key := next((key for key in ("tools", "any_of") if key in stated_keys), None):
        if entry.policy:
            problem = f"a policy expects no particular calls; keep {expectation_key!r} or 'policy: true'"
            raise GoldenError(f"{location}: {problem}.")
        return False
    has_limits = entry.forbid or entry.max_calls is not None
    if entry.policy is False or not (entry.policy or has_limits):
        # A golden must state its expected calls: an empty one would fail every run that calls a tool.
        raise GoldenError(f"{location}: tools is missing; `tools: []` means that no tool may be called.")
    if entry.input is not None:
        problem = "a golden without 'tools' is a policy for all runs without another golden, and cannot have 'input'"
        raise GoldenError(f"{location}: {problem}; use 'when' to select runs, or `tools: []` to expect no calls.")
    return True


def _parse_declared_tool(name: str, entry: ToolEntry, location: str) -> Tool:
    """Converts one tool of the vocabulary."""
    check_server_conflict(name, entry.server, location)
    for field_name, value in (("defaults", entry.defaults), ("parameters", entry.parameters)):
        check_plain_data(value, location, field_name)
    return Tool(
        name=name,
        aliases=tuple(entry.aliases),
        server=entry.server,
        effect=entry.effect,
        description=entry.description,
        parameters=entry.parameters,
        ignore=tuple(entry.ignore),
        defaults=entry.defaults,
        metadata=dict(entry.model_extra or ()),
    )


_RULE_FIELDS = frozenset(RulesEntry.model_fields)
_EMPTY_TOOL = ToolEntry.model_validate({})
_ITEMS_ADAPTER = TypeAdapter(list[ItemEntry])
