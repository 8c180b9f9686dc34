"""Defines a convention: tables that map the attributes of one family to facts about a span.

Tables can be checked and printed; `docs/conventions.md` is generated from them. One function, `postprocess`, does what
tables cannot express.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, fields
from functools import cache, cached_property, lru_cache, partial
from itertools import chain
from types import CodeType
from typing import Any

from goldspan.content import envelopes
from goldspan.content.tools import tool_definitions
from goldspan.conventions import declaration
from goldspan.conventions.attribute_map import (
    ATTRIBUTE_MAP_CHECKS,
    AttributeMap,
    AttributeNames,
    FromEvents,
    FromFlattened,
    FromJson,
    MessageSource,
)
from goldspan.conventions.span_facts import RawValue, Role, SpanFacts
from goldspan.model import SpanRecord

__all__ = [
    "ANY",
    "AttributeMap",
    "AttributeNames",
    "Convention",
    "FromEvents",
    "FromFlattened",
    "FromJson",
    "MessageSource",
    "SpanReader",
]

ANY = "*"
"""In a table of roles: any value of the attribute."""


@dataclass(frozen=True, kw_only=True)
class Convention:
    """The tables of one instrumentation family.

    Another package offers a convention as an entry point of the group `goldspan.conventions`. The functions of a
    convention must not raise for any attribute value and must depend on the span alone: goldspan calls them in any
    order and from any thread.

    Raises `ConfigurationError` if a field is unknown, has a wrong type, or names an unknown role.
    """

    name: str
    """One word, for example `openinference`."""
    title: str
    source: str
    """The address of the specification, or of the package that writes the spans."""
    versions: str
    """The versions it was checked against, for the documentation."""
    roles: Mapping[str, Mapping[str, Role]] = field(default_factory=dict)
    """Attribute, then its value in lower case (or `ANY`), then the role of the span. The first match decides."""
    marker_attributes: AttributeNames = ()
    """Attributes that identify a span of the family even if `roles` gives it no role."""
    bare_span_scopes: frozenset[str] = frozenset()
    """Instrumentation scopes whose spans without attributes are passed to `postprocess`, which knows them by name."""
    requires_any: AttributeNames = ()
    """If not empty, a span of the family has at least one of these. Used if `roles` names attributes of others, too."""
    excluded_by: AttributeNames = ()
    """If a span has one of these, `roles` does not apply, because another convention decides the role."""
    attributes_by_role: Mapping[Role, AttributeMap] = field(default_factory=dict)
    """Where spans of each role keep their facts."""
    common_attributes: AttributeMap = field(default_factory=AttributeMap)
    """Where spans of every role, and spans without a role, keep their facts."""
    span_name_templates: Mapping[Role, AttributeNames] = field(default_factory=dict)
    """Templates of span names, such as `execute_tool {name}`. Used only if no attribute holds the name."""
    unwrap_arguments: Callable[[Any], Any] = envelopes.unwrap_arguments
    """Unwraps arguments, already parsed to plain values, from the family's envelope. May return `CallArguments`."""
    unwrap_result: Callable[[Any], Any] = envelopes.unwrap_result
    """Unwraps results in the same way. May return a `CallResult`."""
    is_member: Callable[[SpanRecord], bool] | None = None
    """Whether a span that has attributes of the family is of the family, if its attributes' names do not show that."""
    postprocess: Callable[[SpanRecord, SpanFacts], SpanFacts | None] | None = None
    """Corrects the facts that the tables gave. Returns `None` to discard them."""
    notes: tuple[str, ...] = ()
    """What `postprocess` does, one sentence each, for the documentation."""
    capture_setting: str | None = None
    """The setting that records arguments, results and messages. `None`: they are always recorded."""
    capture_settings_by_scope: Mapping[str, str] = field(default_factory=dict)
    """The same by prefix of the instrumentation scope, if the family's instrumentations have different settings."""
    is_shared: bool = False
    """Whether many families use its attributes, so that it does not identify the family of a span."""
    scopes_with_span_per_call: frozenset[str] = frozenset()
    """Instrumentation scopes that write a span for every tool call, so that a run without one made no tool call.

    List a scope only if that is certain: missing content must not be reported as a run without tool calls.
    """

    def __new__(cls, **values: Any) -> Convention:
        """Reject field names that do not exist, and name the nearest one that does."""
        name = values.get("name")
        owner = f"convention {name!r}: {cls.__name__}" if isinstance(name, str) else cls.__name__
        declaration.reject_unknown_fields(owner, cls, values)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        """Raise `ConfigurationError` if a field has a wrong type or names an unknown role."""
        declaration.check_fields(str(self.name), "", self, _CHECKS)

    @cached_property
    def all_marker_attributes(self) -> frozenset[str]:
        """Every attribute that identifies a span of this family. One of them suffices."""
        return frozenset(self.roles).union(self.marker_attributes)

    def markers_among(self, present: Set[str]) -> Set[str]:
        """Return the identifying attributes that apply to a span with these attributes."""
        if self.requires_any and present.isdisjoint(self.requires_any):
            return frozenset()
        return self.all_marker_attributes if present.isdisjoint(self.excluded_by) else frozenset(self.marker_attributes)

    @cached_property
    def all_attributes(self) -> frozenset[str]:
        """Every attribute in the tables."""
        named = {*self.all_marker_attributes, *self.requires_any, *self.excluded_by}
        for places in (self.common_attributes, *self.attributes_by_role.values()):
            for fact in (*_TEXT_FIELDS, *_RAW_FIELDS, *_ENVELOPE_FIELDS, "tool_definitions"):
                named.update(getattr(places, fact))
            named.update(
                source.attribute
                for source in places.input_messages + places.output_messages
                if isinstance(source, FromJson)
            )
        return frozenset(named)

    def read_span_name(self, span: SpanRecord) -> SpanFacts | None:
        """Return the facts of a span without attributes whose scope is in `bare_span_scopes`, or `None`."""
        empty = SpanFacts(conventions=(self.name,))
        facts = empty if self.postprocess is None else self.postprocess(span, empty)
        if facts is not None and facts.role is not None:
            templates = self.span_name_templates.get(facts.role, ())
            facts.span_name = _match_span_name(span, map(_compile_name_template, templates))
        return facts

    def read(self, span: SpanRecord) -> SpanFacts | None:
        """Return the facts of a span, or `None` if it is not of this family."""
        reader = SpanReader(self, self.all_attributes.intersection(span.attributes))
        return reader.read(span, span.attributes)


_CHECK_ATTRIBUTE_MAP = declaration.instance_of(AttributeMap, ATTRIBUTE_MAP_CHECKS)
_CHECKS: Mapping[str, declaration.Check] = {
    "name": declaration.check_name,
    **dict.fromkeys(("title", "source", "versions"), declaration.check_text),
    "roles": declaration.check_roles,
    **dict.fromkeys(("marker_attributes", "requires_any", "excluded_by", "notes"), declaration.check_texts),
    **dict.fromkeys(("bare_span_scopes", "scopes_with_span_per_call"), declaration.check_text_set),
    "attributes_by_role": declaration.maps_by_role(_CHECK_ATTRIBUTE_MAP),
    "common_attributes": _CHECK_ATTRIBUTE_MAP,
    "span_name_templates": declaration.check_name_templates,
    **dict.fromkeys(("unwrap_arguments", "unwrap_result"), declaration.check_function),
    **dict.fromkeys(("is_member", "postprocess"), declaration.check_optional_function),
    "capture_setting": declaration.check_optional_text,
    "capture_settings_by_scope": declaration.check_text_mapping,
    "is_shared": declaration.check_flag,
}


class SpanReader:
    """Applies a convention to spans that all have the same attributes."""

    __slots__ = ("_build_facts", "_has_marker", "_is_member", "_postprocess", "_roles_by_attribute", "attribute_names")

    def __init__(self, convention: Convention, present: Set[str]) -> None:
        """Prepare a convention for spans with the `present` attributes."""
        self._is_member = convention.is_member
        self._postprocess = convention.postprocess
        self._has_marker = not present.isdisjoint(convention.marker_attributes)
        known = convention.roles.items() if present.isdisjoint(convention.excluded_by) else ()
        self._roles_by_attribute = tuple(
            (attribute, None if roles.keys() == {ANY} else roles, roles.get(ANY))
            for attribute, roles in known
            if attribute in present
        )
        possible = (
            role for attribute, _, _ in self._roles_by_attribute for role in convention.roles[attribute].values()
        )
        plans = {role: _ExtractionPlan.build(convention, role, present) for role in (None, *possible)}
        self._build_facts = _FactsBuilders(plans)
        self.attribute_names = {key for plan in plans.values() for key in plan.attribute_names}.union(
            attribute for attribute, _, _ in self._roles_by_attribute
        )
        """The attributes whose values `read` needs."""

    def read(self, span: SpanRecord, attributes: Mapping[str, Any]) -> SpanFacts | None:
        """Return the facts of a span, or `None`. `attributes` holds at least the values of `attribute_names`."""
        if self._is_member is not None and not self._is_member(span):
            return None
        role = None
        for attribute, roles, role_of_any in self._roles_by_attribute:
            value = attributes[attribute]
            if value is not None:
                role = roles.get(str(value).lower()) or role_of_any if roles is not None else role_of_any
                if role is not None:
                    break
        if role is None and not self._has_marker:
            return None
        facts = self._build_facts[role](span, attributes)
        if self._postprocess is None:
            return facts
        corrected = self._postprocess(span, facts)
        if role is not None and corrected is not None and corrected.role is None:
            corrected.is_retracted = True
        return corrected


_FactsBuilder = Callable[[SpanRecord, Mapping[str, Any]], SpanFacts]
"""Builds the facts of a span from its attribute values."""


class _FactsBuilders(dict[Role | None, _FactsBuilder]):
    """The functions that build the facts of spans, by role. A function is compiled when it is first needed."""

    def __init__(self, plans: Mapping[Role | None, _ExtractionPlan]) -> None:
        self._plans = plans

    def __missing__(self, role: Role | None) -> _FactsBuilder:
        builder = self[role] = self._plans[role].compile()
        return builder


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExtractionPlan:
    """The tables of one role, merged so that a span is read in one pass."""

    role: Role | None
    convention_names: tuple[str, ...]
    fields: Mapping[str, AttributeNames]
    """The attributes that may hold each text, raw or envelope field of `SpanFacts`, in order of preference."""
    openers: Mapping[str, Callable[[Any], Any]]
    """The functions that unwrap the envelope fields."""
    tool_definitions: AttributeNames
    input_messages: tuple[MessageSource, ...]
    output_messages: tuple[MessageSource, ...]
    name_patterns: tuple[re.Pattern[str], ...]

    @property
    def attribute_names(self) -> Iterable[str]:
        """The attributes whose values the facts need."""
        return chain.from_iterable(self.fields.values())

    @classmethod
    def build(cls, convention: Convention, role: Role | None, present: Set[str]) -> _ExtractionPlan:
        own = convention.attributes_by_role.get(role, AttributeMap()) if role is not None else AttributeMap()
        common = convention.common_attributes

        def present_attributes(fact: str) -> AttributeNames:
            return tuple(key for key in getattr(own, fact) + getattr(common, fact) if key in present)

        def possible_sources(fact: str) -> tuple[MessageSource, ...]:
            sources = getattr(own, fact) + getattr(common, fact)
            return tuple(source for source in sources if _may_hold_messages(source, present))

        templates = convention.span_name_templates.get(role, ()) if role is not None else ()
        return cls(
            role=role,
            convention_names=(convention.name,),
            fields={fact: present_attributes(fact) for fact in (*_TEXT_FIELDS, *_RAW_FIELDS, *_ENVELOPE_FIELDS)},
            openers={"arguments": convention.unwrap_arguments, "result": convention.unwrap_result},
            tool_definitions=present_attributes("tool_definitions"),
            input_messages=possible_sources("input_messages"),
            output_messages=possible_sources("output_messages"),
            name_patterns=tuple(map(_compile_name_template, templates)),
        )

    def compile(self) -> _FactsBuilder:
        """Return a function that builds the facts of a span as the plan says.

        Reading a span with an interpreted plan takes 1.5 (tool) to 1.9 (model) times as long.
        """
        sources = {fact: getattr(self, fact) for fact in ("input_messages", "output_messages")}
        lists = {**self.fields, **sources, "tool_definitions": self.tool_definitions}
        lists |= {f"{fact}_without_events": _without_event_sources(each) for fact, each in sources.items()}
        code = _compile_builder(tuple((name, len(items)) for name, items in lists.items()), bool(self.name_patterns))
        namespace: dict[str, Any] = {
            f"{name}_{n}": item for name, items in lists.items() for n, item in enumerate(items)
        }
        namespace |= {f"open_{fact}": opener for fact, opener in self.openers.items()}
        namespace |= {"role": self.role, "convention_names": self.convention_names, "patterns": self.name_patterns}
        namespace |= {"new": object.__new__, "SpanFacts": SpanFacts, "RawValue": RawValue, "partial": partial}
        namespace |= {"read_tool_definitions": tool_definitions, "match_span_name": _match_span_name}
        exec(code, namespace)  # the code contains no text of a convention
        builder: _FactsBuilder = namespace["build_facts"]
        return builder


@lru_cache(maxsize=1024)
def _compile_builder(lengths: tuple[tuple[str, int], ...], has_name_patterns: bool) -> CodeType:
    """Return the code of a function for all plans that have as many attributes and sources for each fact.

    The values of a plan are its global variables: the third source of `input_messages` is `input_messages_2`.
    """
    number = dict(lengths)

    def names(fact: str) -> list[str]:
        return [f"{fact}_{n}" for n in range(number[fact])]

    def bound(fact: str) -> str:
        return "(" + "".join(f"partial({source}, span), " for source in names(fact)) + ")"

    lines = ["facts = new(SpanFacts)", "facts.role = role", "facts.conventions = convention_names"]
    for fact in (*_TEXT_FIELDS, *_RAW_FIELDS, *_ENVELOPE_FIELDS):
        if not number[fact]:
            continue
        first, *others = names(fact)
        lines.append(f"value = attributes[{first}]")
        lines += [f"if value is None: value = attributes[{other}]" for other in others]
        if fact in _TEXT_FIELDS:
            # An attribute may hold any type, but extraction compares and sorts names and ids.
            lines.append(f"facts.{fact} = value if value is None or isinstance(value, str) else str(value)")
        elif fact in _RAW_FIELDS:
            lines.append(f"facts.{fact} = value")
        else:
            lines.append(f"facts.{fact} = None if value is None else RawValue(value, open_{fact})")
    for fact in ("input_messages", "output_messages"):
        other = f"{fact}_without_events"
        choice = bound(fact) if number[fact] == number[other] else f"{bound(fact)} if span.events else {bound(other)}"
        lines.append(f"facts.{fact} = {choice}")
    offered = "".join(f"partial(read_tool_definitions, span.attributes[{key}]), " for key in names("tool_definitions"))
    lines.append(f"facts.tool_definitions = ({offered})")
    absent = [name for name in _OPTIONAL_FIELDS if not number.get(name)]
    lines.append("".join(f"facts.{name} = " for name in absent) + "None")
    lines.append("facts.is_retracted = facts.is_annotated = False")
    if has_name_patterns:
        lines.append("if facts.name is None: facts.span_name = match_span_name(span, patterns)")
    source = "\n    ".join(["def build_facts(span, attributes):", *lines, "return facts"])
    return compile(source, "<goldspan facts>", "exec")


_OPTIONAL_FIELDS = tuple(each.name for each in fields(SpanFacts) if each.default is None and each.name != "role")
_ENVELOPE_FIELDS = ("arguments", "result")
_RAW_FIELDS = ("input", "output", "finish_reason")
_TEXT_FIELDS = ("name", "call_id", "error", "server", "agent", "session_id", "request_id")


def _without_event_sources(sources: tuple[MessageSource, ...]) -> tuple[MessageSource, ...]:
    return tuple(source for source in sources if not isinstance(source, FromEvents))


def _may_hold_messages(source: MessageSource, present: Set[str]) -> bool:
    """Whether a source may have messages on spans with these attributes."""
    return not isinstance(source, FromJson) or source.attribute in present


def _match_span_name(span: SpanRecord, patterns: Iterable[re.Pattern[str]]) -> str | None:
    hits = (pattern.fullmatch(span.name) for pattern in patterns)
    return next((hit["name"] for hit in hits if hit), None)


@cache
def _compile_name_template(template: str) -> re.Pattern[str]:
    before, _, after = template.partition("{name}")
    return re.compile(f"{re.escape(before)}(?P<name>.+){re.escape(after)}", re.DOTALL)
