"""A convention as data: where the instrumentations of one family write what goldspan wants to know of a span.

Tables first, because they can be read, checked and printed: `docs/conventions.md` is made from them. What a table
cannot say is one function, `refine`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any

from goldspan.content import envelopes, messages
from goldspan.content.tools import tool_definitions
from goldspan.conventions.span_facts import Messages, RawValue, Role, SpanFacts
from goldspan.model import SpanEvent, SpanRecord

AttributeNames = tuple[str, ...]
"""Attributes that may hold one fact, the best first."""
ANY = "*"
"""In a table of roles: whatever the attribute's value is."""


@dataclass(frozen=True, slots=True)
class FromJson:
    """Messages in one attribute, as JSON text or as a structured value."""

    attribute: str

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        return messages.from_json(span.attributes.get(self.attribute))

    def is_present(self, span: SpanRecord) -> bool:
        """Whether the span has something there."""
        return self.attribute in span.attributes

    def has_no_tool_calls(self, span: SpanRecord) -> bool:
        """Whether it takes no reading to see that no call and no answer to one is among the messages."""
        raw = span.attributes.get(self.attribute)
        return raw is None or (isinstance(raw, str) and not messages.may_contain_calls(raw))

    def __str__(self) -> str:
        """How the documentation names the place."""
        return f"`{self.attribute}`"


@dataclass(frozen=True, slots=True)
class FromFlattened:
    """Messages flattened into numbered attributes: `{prefix}.{number}.{inner}.{field}`."""

    prefix: str
    message_key: str = ""

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        return messages.from_flat(span.attributes, self.prefix, self.message_key)

    def is_present(self, span: SpanRecord) -> bool:
        """Whether the span has something there."""
        return any(key.startswith(self.prefix) for key in span.attributes)

    def has_no_tool_calls(self, span: SpanRecord) -> bool:
        """Whether it takes no reading to see that no call and no answer to one is among the messages."""
        return not self.is_present(span)

    def __str__(self) -> str:
        """How the documentation names the place."""
        return f"`{self.prefix}.N.{self.message_key + '.' if self.message_key else ''}*`"


@dataclass(frozen=True, slots=True)
class FromEvents:
    """Messages in events of the span, or in log events written during it, in the order of their times."""

    event_names: tuple[str, ...]
    """Of the events; the name tells the role where the event itself does not."""
    attribute: str | None = None
    """Holds a list of messages; `None`: each event is one message."""

    def is_present(self, span: SpanRecord) -> bool:
        """Whether the span has something there."""
        return any(event.name in self.event_names for event in span.events)

    def has_no_tool_calls(self, span: SpanRecord) -> bool:
        """Whether it takes no reading to see that no call and no answer to one is among the messages."""
        return not self.is_present(span)

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        events = [event for event in span.events if event.name in self.event_names]
        if self.attribute is not None:
            return tuple(
                message for event in events for message in messages.from_json(event.attributes.get(self.attribute))
            )
        return tuple(message for event in events for message in _message_of_event(event))

    def __str__(self) -> str:
        """How the documentation names the place."""
        names = ", ".join(f"`{name}`" for name in self.event_names)
        return f"`{self.attribute}` of the events {names}" if self.attribute else f"the events {names}"


def _message_of_event(event: SpanEvent) -> Messages:
    """The message that an event is. Azure's SDKs write its body as one text; Google's say so where they left it out."""
    body = event.attributes.get("gen_ai.event.content", event.attributes)
    return () if event.attributes.get("content") == "<elided>" else messages.from_event(event.name, body)


MessageSource = Callable[[SpanRecord], Messages]
"""Finds messages in a span. Its `str()` is how the documentation names the place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeMap:
    """Where spans of one role keep their facts."""

    name: AttributeNames = ()
    """Of the tool, the agent or the component."""
    call_id: AttributeNames = ()
    arguments: AttributeNames = ()
    result: AttributeNames = ()
    error: AttributeNames = ()
    """Text that is there only when the call failed."""
    agent: AttributeNames = ()
    """The agent in whose name the span was made."""
    server: AttributeNames = ()
    """The MCP server that owns the tool."""
    input: AttributeNames = ()
    output: AttributeNames = ()
    session_id: AttributeNames = ()
    request_id: AttributeNames = ()
    """Of the user's request, shared by all that a runtime does for it, in whichever trace."""
    tool_definitions: AttributeNames = ()
    """Definitions of the tools offered to a model."""
    finish_reason: AttributeNames = ()
    """Why the model stopped: it says, in some notation, that it asked for tools."""
    input_messages: tuple[MessageSource, ...] = ()
    """The model's input."""
    output_messages: tuple[MessageSource, ...] = ()
    """The model's output."""


@dataclass(frozen=True, kw_only=True)
class Convention:
    """One family of instrumentations.

    `goldspan.conventions` is the group of entry points in which a package of your own may offer one. Reading must not
    raise on any attribute value, and depends on nothing but the span: it may happen in any order and in any thread.
    """

    name: str
    """One word, as in `openinference`."""
    title: str
    source: str
    """Where the convention is published, or which package writes it."""
    versions: str
    """The versions it is known from, for people."""
    roles: Mapping[str, Mapping[str, Role]] = field(default_factory=dict)
    """What a span is: attribute, then its value in lower case (or `ANY`), then the role. The first that fits counts."""
    marker_attributes: AttributeNames = ()
    """Attributes by which a span of the family is known even where `roles` does not tell what it is."""
    bare_span_scopes: frozenset[str] = frozenset()
    """Instrumentation scopes of which spans without any attribute are handed to `refine`, too: their names tell what
    they are."""
    requires_any: AttributeNames = ()
    """Attributes of which a span of the family has at least one, where `roles` names some that others have, too."""
    excluded_by: AttributeNames = ()
    """Attributes that take `roles` back, since another convention then knows better what the span is."""
    attributes_by_role: Mapping[Role, AttributeMap] = field(default_factory=dict)
    """Where spans of a role keep their facts."""
    common_attributes: AttributeMap = AttributeMap()
    """Where spans of every role do, and those of none."""
    span_name_templates: Mapping[Role, AttributeNames] = field(default_factory=dict)
    """Forms of the span's own name, such as `execute_tool {name}`: read only where no attribute holds the name."""
    unwrap_arguments: Callable[[Any], Any] = envelopes.unwrap_arguments
    """Takes arguments, already plain values, out of the family's envelope. What it gives may be a `Request`."""
    unwrap_result: Callable[[Any], Any] = envelopes.unwrap_result
    """The same for results; what it gives may be a `Result`."""
    postprocess: Callable[[SpanRecord, SpanFacts], SpanFacts | None] | None = None
    """Corrects a reading by what tables cannot say; `None` takes it back altogether."""
    notes: tuple[str, ...] = ()
    """What `refine` knows, for people: one sentence each."""
    capture_setting: str | None = None
    """What to switch on where arguments, results or messages are not recorded. `None`: they always are."""
    capture_settings_by_scope: Mapping[str, str] = field(default_factory=dict)
    """The same by the beginnings of instrumentation scopes, where each writer of the family has a switch of its own."""
    is_shared: bool = False
    """Whether many families write in its words, so that it does not tell the family of a span."""
    scopes_with_span_per_call: frozenset[str] = frozenset()
    """The instrumentation scopes that write a span for every call of a tool: their spans without one among them show
    that no tool was called. Empty unless that is certain, since content that is off must not read as nothing done.
    """

    @cached_property
    def all_marker_attributes(self) -> frozenset[str]:
        """Every attribute by which a span of this family is known: one of them suffices."""
        return frozenset(self.roles).union(self.marker_attributes)

    def markers_among(self, present: Set[str]) -> Set[str]:
        """The signs that count for a span that has these attributes."""
        if self.requires_any and present.isdisjoint(self.requires_any):
            return frozenset()
        return self.all_marker_attributes if present.isdisjoint(self.excluded_by) else frozenset(self.marker_attributes)

    @cached_property
    def all_attributes(self) -> frozenset[str]:
        """Every attribute that the tables name."""
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
        """What the convention understands of a span of one of its `scopes` that has no attribute."""
        reading = SpanFacts(conventions=(self.name,))
        found = reading if self.postprocess is None else self.postprocess(span, reading)
        if found is not None and found.role is not None:
            forms = self.span_name_templates.get(found.role, ())
            found.span_name = _match_span_name(span, map(_compile_name_template, forms))
        return found

    def read(self, span: SpanRecord) -> SpanFacts | None:
        """What the convention understands of a span that carries one of its signs."""
        reader = SpanReader(self, self.all_attributes.intersection(span.attributes))
        return reader.read(span, span.attributes)


class SpanReader:
    """A convention narrowed to the attributes that some spans have: those of one kind of span all have the same."""

    __slots__ = ("_convention_names", "_has_marker", "_plans", "_postprocess", "_roles_by_attribute", "attribute_names")

    def __init__(self, convention: Convention, present: Set[str]) -> None:
        """Narrow a convention down to the `present` attributes."""
        self._convention_names = (convention.name,)
        self._postprocess = convention.postprocess
        self._has_marker = not present.isdisjoint(convention.marker_attributes)
        known = convention.roles.items() if present.isdisjoint(convention.excluded_by) else ()
        self._roles_by_attribute = tuple((attribute, roles) for attribute, roles in known if attribute in present)
        told = (role for _, roles in self._roles_by_attribute for role in roles.values())
        self._plans = {role: _ExtractionPlan.build(convention, role, present) for role in (None, *told)}
        self.attribute_names = {key for plan in self._plans.values() for key in plan.attribute_names}.union(
            key for key, _ in self._roles_by_attribute
        )
        """The attributes whose values it wants to know."""

    def read(self, span: SpanRecord, attributes: Mapping[str, Any]) -> SpanFacts | None:
        """What the convention understands of a span that has these attributes; the values of `keys` are known."""
        role = None
        for attribute, roles in self._roles_by_attribute:
            value = attributes[attribute]
            if value is not None:
                role = roles.get(str(value).lower()) or roles.get(ANY)
                if role is not None:
                    break
        if role is None and not self._has_marker:
            return None
        reading = SpanFacts(role, self._convention_names)
        self._plans[role].apply(span, attributes, reading)
        if self._postprocess is None:
            return reading
        refined = self._postprocess(span, reading)
        if role is not None and refined is not None and refined.role is None:
            refined.is_retracted = True
        return refined


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExtractionPlan:
    """The tables for one role put together, so that reading a span goes through them once."""

    text_fields: tuple[tuple[str, str], ...]
    """Fields of a reading that are texts, each with an attribute that holds it; the best attribute comes last."""
    raw_fields: tuple[tuple[str, str], ...]
    """The same for fields that are kept as written."""
    envelope_fields: tuple[tuple[str, str, Callable[[Any], Any]], ...]
    """The same for arguments and results, with what opens their envelope."""
    tool_definitions: AttributeNames
    input_messages: tuple[MessageSource, ...]
    output_messages: tuple[MessageSource, ...]
    sources_without_events: tuple[tuple[MessageSource, ...], tuple[MessageSource, ...]]
    """Of both, the places that a span may have that has no events, as most have none."""
    name_patterns: tuple[re.Pattern[str], ...]

    @property
    def attribute_names(self) -> Iterable[str]:
        """The attributes whose values it takes."""
        return [*(key for _, key in self.text_fields + self.raw_fields), *(key for _, key, _ in self.envelope_fields)]

    @classmethod
    def build(cls, convention: Convention, role: Role | None, present: Set[str]) -> _ExtractionPlan:
        own = convention.attributes_by_role.get(role, AttributeMap()) if role is not None else AttributeMap()
        common = convention.common_attributes

        def found(*facts: str) -> tuple[tuple[str, str], ...]:
            keys = ((fact, key) for fact in facts for key in reversed(getattr(own, fact) + getattr(common, fact)))
            return tuple((fact, key) for fact, key in keys if key in present)

        asked = tuple(
            source for source in own.input_messages + common.input_messages if _may_hold_messages(source, present)
        )
        answered = tuple(
            source for source in own.output_messages + common.output_messages if _may_hold_messages(source, present)
        )
        openers = {"arguments": convention.unwrap_arguments, "result": convention.unwrap_result}
        return cls(
            text_fields=found(*_TEXT_FIELDS),
            raw_fields=found(*_RAW_FIELDS),
            envelope_fields=tuple((fact, key, openers[fact]) for fact, key in found(*_ENVELOPE_FIELDS)),
            tool_definitions=tuple(key for key in own.tool_definitions + common.tool_definitions if key in present),
            input_messages=asked,
            output_messages=answered,
            sources_without_events=(_without_event_sources(asked), _without_event_sources(answered)),
            name_patterns=tuple(map(_compile_name_template, convention.span_name_templates.get(role, ())))
            if role is not None
            else (),
        )

    def apply(self, span: SpanRecord, attributes: Mapping[str, Any], facts: SpanFacts) -> None:
        """Read off a span what the tables tell of it."""
        for fact, key in self.text_fields:
            value = attributes[key]
            if value is not None:
                # An attribute may hold anything, and what follows compares and sorts names and ids.
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
            asked, answered = (
                (self.input_messages, self.output_messages) if span.events else self.sources_without_events
            )
            facts.input_messages = tuple([partial(source, span) for source in asked])
            facts.output_messages = tuple([partial(source, span) for source in answered])
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
    """Whether spans with these attributes may hold messages there, as far as a single attribute tells."""
    return not isinstance(source, FromJson) or source.attribute in present


def _match_span_name(span: SpanRecord, patterns: Iterable[re.Pattern[str]]) -> str | None:
    hits = (form.fullmatch(span.name) for form in patterns)
    return next((hit["name"] for hit in hits if hit), None)


@cache
def _compile_name_template(template: str) -> re.Pattern[str]:
    before, _, after = template.partition("{name}")
    return re.compile(f"{re.escape(before)}(?P<name>.+){re.escape(after)}", re.DOTALL)
