"""Defines a convention: tables that map the attributes of one family to facts about a span.

Tables can be checked and printed; `docs/conventions.md` is generated from them. One function, `postprocess`, does what
tables cannot express.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
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
    "postprocess": declaration.check_optional_function,
    "capture_setting": declaration.check_optional_text,
    "capture_settings_by_scope": declaration.check_text_mapping,
    "is_shared": declaration.check_flag,
}


class SpanReader:
    """Applies a convention to spans that all have the same attributes."""

    __slots__ = ("_convention_names", "_has_marker", "_plans", "_postprocess", "_roles_by_attribute", "attribute_names")

    def __init__(self, convention: Convention, present: Set[str]) -> None:
        """Prepare a convention for spans with the `present` attributes."""
        self._convention_names = (convention.name,)
        self._postprocess = convention.postprocess
        self._has_marker = not present.isdisjoint(convention.marker_attributes)
        known = convention.roles.items() if present.isdisjoint(convention.excluded_by) else ()
        self._roles_by_attribute = tuple((attribute, roles) for attribute, roles in known if attribute in present)
        possible = (role for _, roles in self._roles_by_attribute for role in roles.values())
        self._plans = {role: _ExtractionPlan.build(convention, role, present) for role in (None, *possible)}
        self.attribute_names = {key for plan in self._plans.values() for key in plan.attribute_names}.union(
            key for key, _ in self._roles_by_attribute
        )
        """The attributes whose values `read` needs."""

    def read(self, span: SpanRecord, attributes: Mapping[str, Any]) -> SpanFacts | None:
        """Return the facts of a span, or `None`. `attributes` holds at least the values of `attribute_names`."""
        role = None
        for attribute, roles in self._roles_by_attribute:
            value = attributes[attribute]
            if value is not None:
                role = roles.get(str(value).lower()) or roles.get(ANY)
                if role is not None:
                    break
        if role is None and not self._has_marker:
            return None
        facts = SpanFacts(role, self._convention_names)
        self._plans[role].apply(span, attributes, facts)
        if self._postprocess is None:
            return facts
        corrected = self._postprocess(span, facts)
        if role is not None and corrected is not None and corrected.role is None:
            corrected.is_retracted = True
        return corrected


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExtractionPlan:
    """The tables of one role, merged so that a span is read in one pass."""

    text_fields: tuple[tuple[str, str], ...]
    """Text fields of `SpanFacts`, each with an attribute that holds it. The preferred attribute comes last."""
    raw_fields: tuple[tuple[str, str], ...]
    """The same for fields whose value is kept as written."""
    envelope_fields: tuple[tuple[str, str, Callable[[Any], Any]], ...]
    """The same for arguments and results, with the function that unwraps them."""
    tool_definitions: AttributeNames
    input_messages: tuple[MessageSource, ...]
    output_messages: tuple[MessageSource, ...]
    sources_without_events: tuple[tuple[MessageSource, ...], tuple[MessageSource, ...]]
    """The input and output sources that apply to a span without events, which most spans are."""
    name_patterns: tuple[re.Pattern[str], ...]

    @property
    def attribute_names(self) -> Iterable[str]:
        """The attributes whose values `apply` needs."""
        return [*(key for _, key in self.text_fields + self.raw_fields), *(key for _, key, _ in self.envelope_fields)]

    @classmethod
    def build(cls, convention: Convention, role: Role | None, present: Set[str]) -> _ExtractionPlan:
        own = convention.attributes_by_role.get(role, AttributeMap()) if role is not None else AttributeMap()
        common = convention.common_attributes

        def present_attributes(*facts: str) -> tuple[tuple[str, str], ...]:
            keys = ((fact, key) for fact in facts for key in reversed(getattr(own, fact) + getattr(common, fact)))
            return tuple((fact, key) for fact, key in keys if key in present)

        inputs = tuple(
            source for source in own.input_messages + common.input_messages if _may_hold_messages(source, present)
        )
        outputs = tuple(
            source for source in own.output_messages + common.output_messages if _may_hold_messages(source, present)
        )
        openers = {"arguments": convention.unwrap_arguments, "result": convention.unwrap_result}
        return cls(
            text_fields=present_attributes(*_TEXT_FIELDS),
            raw_fields=present_attributes(*_RAW_FIELDS),
            envelope_fields=tuple((fact, key, openers[fact]) for fact, key in present_attributes(*_ENVELOPE_FIELDS)),
            tool_definitions=tuple(key for key in own.tool_definitions + common.tool_definitions if key in present),
            input_messages=inputs,
            output_messages=outputs,
            sources_without_events=(_without_event_sources(inputs), _without_event_sources(outputs)),
            name_patterns=tuple(map(_compile_name_template, convention.span_name_templates.get(role, ())))
            if role is not None
            else (),
        )

    def apply(self, span: SpanRecord, attributes: Mapping[str, Any], facts: SpanFacts) -> None:
        """Write the facts that the tables find in a span into `facts`."""
        for fact, key in self.text_fields:
            value = attributes[key]
            if value is not None:
                # An attribute may hold any type, but extraction compares and sorts names and ids.
                setattr(facts, fact, value if isinstance(value, str) else str(value))
        for fact, key in self.raw_fields:
            value = attributes[key]
            if value is not None:
                setattr(facts, fact, value)
        for fact, key, open_envelope in self.envelope_fields:
            value = attributes[key]
            if value is not None:
                setattr(facts, fact, RawValue(value, open_envelope))
        if self.input_messages or self.output_messages:
            inputs, outputs = (
                (self.input_messages, self.output_messages) if span.events else self.sources_without_events
            )
            facts.input_messages = tuple([partial(source, span) for source in inputs])
            facts.output_messages = tuple([partial(source, span) for source in outputs])
        if self.tool_definitions:
            facts.tool_definitions = tuple(
                [partial(tool_definitions, span.attributes[key]) for key in self.tool_definitions]
            )
        if self.name_patterns and facts.name is None:
            facts.span_name = _match_span_name(span, self.name_patterns)


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
