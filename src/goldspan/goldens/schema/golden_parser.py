"""The golden language: what the keys of a golden file mean.

Which keys there are, and how they are checked, is told by the models in `entries`; of what stands in a golden's `tools`
in `expectations`, in arguments in `matchers`, and of the runs that it is for in `applicability`. These models are the
only description of the language; the published JSON Schema is made from them.
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
    Tool,
    Vocabulary,
    When,
)

MetricCollections: TypeAlias = Mapping[str, tuple[str, ...]]
"""Names of metrics by the names of the collections that they are in."""


@dataclass(frozen=True, slots=True)
class ParsedHeader:
    """What the head of a file says, as it is meant."""

    rules: Mapping[str, Any] = field(default_factory=dict)
    """What goldens say that do not say otherwise."""
    tools: tuple[Tool, ...] = ()
    servers: tuple[str, ...] = ()
    collections: MetricCollections = field(default_factory=dict)
    components: tuple[ComponentSelector, ...] = ()
    extra_keys: tuple[str, ...] = ()
    """Keys of the author's own."""


@dataclass(frozen=True, slots=True)
class GoldenContext:
    """What is said outside of a golden, in its own file and in those that are loaded with it."""

    rules: Mapping[str, Any] = field(default_factory=dict)
    vocabulary: Vocabulary = NO_VOCABULARY
    add_declared: Callable[[ExpectedTool], ExpectedTool] = lambda tool: tool
    """Adds what the vocabulary says of a tool."""
    collections: MetricCollections | None = field(default_factory=dict)
    """`None`: not known, because something is wrong where they are declared."""


def parse_header(mapping: Mapping[Any, Any], location: str) -> ParsedHeader:
    """The head of a file. Raises `GoldenError` for whatever is wrong with it."""
    head = validate_entry(HeaderEntry, mapping, location)
    strange = dict.fromkeys(head.model_extra or ())
    tools = []
    for name, said in head.tools.items():
        declared = said or _EMPTY_TOOL
        strange.update(dict.fromkeys(declared.model_extra or ()))
        tools.append(_parse_declared_tool(name, declared, f"{location}, tool {short_repr(name)}"))
    return ParsedHeader(
        rules=_explicit_rules(head.defaults),
        tools=tuple(tools),
        servers=tuple(head.servers),
        collections={name: tuple(metrics) for name, metrics in head.metrics.items()},
        components=tuple(
            to_component_spans(name, said, f"{location}, component {short_repr(name)}")
            for name, said in head.components.items()
        ),
        extra_keys=tuple(strange),
    )


def resolve_metrics(
    rules: Mapping[str, Any], collections: MetricCollections | None, location: str
) -> Mapping[str, Any]:
    """Rules in which the name of a collection is replaced by what is in it. Raises `GoldenError` for an unknown one."""
    metrics = rules.get("metrics")
    if not isinstance(metrics, str):
        return rules
    if collections is None:
        return {**rules, "metrics": None}
    if metrics not in collections:
        hint = did_you_mean(metrics, collections) or f" One metric is written as [{short_repr(metrics)}]."
        raise GoldenError(f"{location}: metrics names {short_repr(metrics)}, and no such collection is declared.{hint}")
    return {**rules, "metrics": collections[metrics]}


def parse_golden(mapping: Any, location: str, context: GoldenContext) -> tuple[Golden, tuple[str, ...]]:
    """A golden, and the keys in it that are its author's own. Raises `GoldenError` for whatever is wrong with it."""
    if isinstance(mapping, Mapping):
        for key in ("tools", "expected_tools", "any_of"):
            if key in mapping:
                check_item_limits(mapping[key], location)
    written = validate_entry(GoldenEntry, mapping, location)
    rules = {**context.rules, **resolve_metrics(_explicit_rules(written), context.collections, location)}
    if rules.get("order") == "exact" and rules.get("extra") == "allow":
        raise GoldenError(f"{location}: 'order: exact' and 'extra: allow' contradict each other; keep one of them.")
    strange = dict(written.model_extra or ())
    meaning = ItemParser(location, rules.pop("match", "exact"), context.add_declared, strange)
    golden = Golden(
        id=written.id,
        input=written.input,
        tools=_parse_items(written, meaning),
        when=to_when(written.when, location) if "when" in written.model_fields_set else None,
        component=written.component,
        policy=_check_is_policy(written, location),
        metadata=strange,
        vocabulary=context.vocabulary,
        **rules,
    )
    check_call_count(golden.tools, location)
    return golden, tuple(key.rpartition("].")[2] for key in strange)


def parse_expected_tools(
    values: Sequence[Any],
    location: str,
    add_declared: Callable[[ExpectedTool], ExpectedTool] = lambda tool: tool,
    match: ArgumentsMatch = "exact",
) -> tuple[ExpectedItem, ...]:
    """Expected calls as people write them in Python: what a golden's `tools` may hold, and values of the model.

    `known` adds what a vocabulary says of a tool; `match` is that of calls that do not say themselves. Raises
    `GoldenError` for whatever is wrong, beginning with `where` and the position.
    """
    check_item_limits(values, location)
    meaning = ItemParser(location, match, add_declared)
    meant = meaning.parse_items(validate_value(_ITEMS_ADAPTER, list(values), location))
    check_call_count(meant, location)
    return meant


def parse_when(mapping: Any, location: str) -> When | None:
    """Which runs a golden is for, as people write it in Python. Raises `GoldenError` for whatever is wrong with it."""
    return to_when(validate_entry(WhenEntry, mapping, location), location)


def _explicit_rules(written: RulesEntry) -> dict[str, Any]:
    """What is said there and not left to the defaults."""
    said = ((name, getattr(written, name)) for name in written.model_fields_set & _RULE_FIELDS)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in said}


def _parse_items(written: GoldenEntry, meaning: ItemParser) -> tuple[ExpectedItem, ...]:
    said = written.model_fields_set
    if "any_of" in said and "tools" in said:
        raise GoldenError(f"{meaning.location}: 'any_of' says what is expected in place of 'tools'; keep one of them.")
    if "any_of" in said:
        return (meaning.parse_any_of(written.any_of, ONCE, "any_of"),)
    return meaning.parse_items(written.tools, "tools")


def _check_is_policy(written: GoldenEntry, where: str) -> bool:
    """Whether it expects no calls in particular."""
    said = written.model_fields_set
    if expecting := next((key for key in ("tools", "any_of") if key in said), None):
        if written.policy:
            told = f"a policy expects no calls in particular; keep {expecting!r} or 'policy: true'"
            raise GoldenError(f"{where}: {told}.")
        return False
    limits = written.forbid or written.max_calls is not None
    if written.policy is False or not (written.policy or limits):
        # Every golden says what it expects, because one that says nothing would fail every run that calls a tool.
        raise GoldenError(f"{where}: tools is missing; `tools: []` says that no tool is to be called.")
    if written.input is not None:
        told = "without 'tools' it is a policy, for every run that no other golden is for, and those have no 'input'"
        raise GoldenError(f"{where}: {told}; 'when' says which runs are meant, `tools: []` that no tool is called.")
    return True


def _parse_declared_tool(name: str, written: ToolEntry, where: str) -> Tool:
    """One tool of the vocabulary."""
    check_server_conflict(name, written.server, where)
    for what, value in (("defaults", written.defaults), ("parameters", written.parameters)):
        check_plain_data(value, where, what)
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


_RULE_FIELDS = frozenset(RulesEntry.model_fields)
_EMPTY_TOOL = ToolEntry.model_validate({})
_ITEMS_ADAPTER = TypeAdapter(list[ItemEntry])
