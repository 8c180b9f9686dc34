"""A convention as data: where the instrumentations of one family write what goldspan wants to know of a span.

Tables first, because they can be read, checked and printed: `docs/conventions.md` is made from them. What a table
cannot say is one function, `refine`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any

from goldspan.extraction import messages, values
from goldspan.extraction.reading import Messages, Reading, Role, Written
from goldspan.model import SpanEvent, SpanRecord

Keys = tuple[str, ...]
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

    def is_there(self, span: SpanRecord) -> bool:
        """Whether the span has something there."""
        return self.attribute in span.attributes

    def is_quiet(self, span: SpanRecord) -> bool:
        """Whether it takes no reading to see that no call and no answer to one is among the messages."""
        raw = span.attributes.get(self.attribute)
        return raw is None or (isinstance(raw, str) and not messages.may_call(raw))

    def __str__(self) -> str:
        """How the documentation names the place."""
        return f"`{self.attribute}`"


@dataclass(frozen=True, slots=True)
class FromFlat:
    """Messages flattened into numbered attributes: `{prefix}.{number}.{inner}.{field}`."""

    prefix: str
    inner: str = ""

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        return messages.from_flat(span.attributes, self.prefix, self.inner)

    def is_there(self, span: SpanRecord) -> bool:
        """Whether the span has something there."""
        return any(key.startswith(self.prefix) for key in span.attributes)

    def is_quiet(self, span: SpanRecord) -> bool:
        """Whether it takes no reading to see that no call and no answer to one is among the messages."""
        return not self.is_there(span)

    def __str__(self) -> str:
        """How the documentation names the place."""
        return f"`{self.prefix}.N.{self.inner + '.' if self.inner else ''}*`"


@dataclass(frozen=True, slots=True)
class FromEvents:
    """Messages in events of the span, or in log events written during it, in the order of their times."""

    names: tuple[str, ...]
    """Of the events; the name tells the role where the event itself does not."""
    attribute: str | None = None
    """Holds a list of messages; `None`: each event is one message."""

    def is_there(self, span: SpanRecord) -> bool:
        """Whether the span has something there."""
        return any(event.name in self.names for event in span.events)

    def is_quiet(self, span: SpanRecord) -> bool:
        """Whether it takes no reading to see that no call and no answer to one is among the messages."""
        return not self.is_there(span)

    def __call__(self, span: SpanRecord) -> Messages:
        """The messages of a span."""
        events = [event for event in span.events if event.name in self.names]
        if self.attribute is not None:
            return tuple(
                message for event in events for message in messages.from_json(event.attributes.get(self.attribute))
            )
        return tuple(message for event in events for message in _heard(event))

    def __str__(self) -> str:
        """How the documentation names the place."""
        names = ", ".join(f"`{name}`" for name in self.names)
        return f"`{self.attribute}` of the events {names}" if self.attribute else f"the events {names}"


def _heard(event: SpanEvent) -> Messages:
    """The message that an event is. Azure's SDKs write its body as one text; Google's say so where they left it out."""
    body = event.attributes.get("gen_ai.event.content", event.attributes)
    return () if event.attributes.get("content") == "<elided>" else messages.from_event(event.name, body)


MessageSource = Callable[[SpanRecord], Messages]
"""Finds messages in a span. Its `str()` is how the documentation names the place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where spans of one role keep their facts."""

    name: Keys = ()
    """Of the tool, the agent or the component."""
    call_id: Keys = ()
    arguments: Keys = ()
    result: Keys = ()
    error: Keys = ()
    """Text that is there only when the call failed."""
    agent: Keys = ()
    """The agent in whose name the span was made."""
    server: Keys = ()
    """The MCP server that owns the tool."""
    input: Keys = ()
    output: Keys = ()
    session_id: Keys = ()
    tools: Keys = ()
    """Definitions of the tools offered to a model."""
    asked: tuple[MessageSource, ...] = ()
    """The model's input."""
    answered: tuple[MessageSource, ...] = ()
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
    signs: Keys = ()
    """Attributes by which a span of the family is known even where `roles` does not tell what it is."""
    of: Mapping[Role, Places] = field(default_factory=dict)
    """Where spans of a role keep their facts."""
    everywhere: Places = Places()
    """Where spans of every role do, and those of none."""
    span_names: Mapping[Role, Keys] = field(default_factory=dict)
    """Forms of the span's own name, such as `execute_tool {name}`: read only where no attribute holds the name."""
    open_arguments: Callable[[Any], Any] = values.request
    """Takes arguments, already plain values, out of the family's envelope. What it gives may be a `Request`."""
    open_result: Callable[[Any], Any] = values.result
    """The same for results; what it gives may be a `Result`."""
    refine: Callable[[SpanRecord, Reading], Reading | None] | None = None
    """Corrects a reading by what tables cannot say; `None` takes it back altogether."""
    notes: tuple[str, ...] = ()
    """What `refine` knows, for people: one sentence each."""
    content: str | None = None
    """What to switch on where arguments, results or messages are not recorded. `None`: they always are."""

    unless: Keys = ()
    """Attributes that take `roles` back, since another convention then knows better what the span is."""

    @cached_property
    def all_signs(self) -> frozenset[str]:
        """Every attribute by which a span of this family is known: one of them suffices."""
        return frozenset(self.roles).union(self.signs)

    def signs_among(self, present: Set[str]) -> Set[str]:
        """The signs that count for a span that has these attributes."""
        return self.all_signs if present.isdisjoint(self.unless) else frozenset(self.signs)

    @cached_property
    def all_keys(self) -> frozenset[str]:
        """Every attribute that the tables name."""
        named = {*self.all_signs, *self.unless}
        for places in (self.everywhere, *self.of.values()):
            for fact in (*_FACTS, *_VALUES, "tools"):
                named.update(getattr(places, fact))
            named.update(source.attribute for source in places.asked + places.answered if isinstance(source, FromJson))
        return frozenset(named)

    def read(self, span: SpanRecord) -> Reading | None:
        """What the convention understands of a span that carries one of its signs."""
        return Reader(self, self.all_keys.intersection(span.attributes)).read(span)


class Reader:
    """A convention narrowed to the attributes that some spans have: those of one kind of span all have the same."""

    __slots__ = ("_by", "_convention", "_plans", "_roles", "_signed")

    def __init__(self, convention: Convention, present: Set[str]) -> None:
        """Narrow a convention down to the `present` attributes."""
        self._convention = convention
        self._by = (convention.name,)
        self._signed = not present.isdisjoint(convention.signs)
        known = convention.roles.items() if present.isdisjoint(convention.unless) else ()
        self._roles = tuple((attribute, roles) for attribute, roles in known if attribute in present)
        plain = _Plan.of(convention, None, present)
        told = (role for roles in convention.roles.values() for role in roles.values())
        self._plans: dict[Role | None, _Plan] = dict.fromkeys(told, plain)
        for role in (*convention.of, *convention.span_names):
            self._plans[role] = _Plan.of(convention, role, present)
        self._plans[None] = plain

    def read(self, span: SpanRecord) -> Reading | None:
        """What the convention understands of a span that has these attributes."""
        attributes, convention = span.attributes, self._convention
        role = self._role(attributes)
        if role is None and not self._signed:
            return None
        plan = self._plans[role]
        reading = Reading(role, self._by)
        for fact, keys, as_written in plan.facts:
            value = _first(attributes, keys)
            if value is not None:
                # An attribute may hold anything, and what follows compares and sorts names and ids.
                setattr(reading, fact, value if as_written or isinstance(value, str) else str(value))
        if plan.arguments and (arguments := _first(attributes, plan.arguments)) is not None:
            reading.arguments = Written(arguments, convention.open_arguments)
        if plan.result and (result := _first(attributes, plan.result)) is not None:
            reading.result = Written(result, convention.open_result)
        if plan.asked:
            reading.asked = tuple([partial(source, span) for source in plan.asked])
        if plan.answered:
            reading.answered = tuple([partial(source, span) for source in plan.answered])
        if plan.tools:
            reading.tools = tuple([partial(messages.definitions, attributes[key]) for key in plan.tools])
        if plan.forms and reading.name is None:
            found = (form.fullmatch(span.name) for form in plan.forms)
            reading.span_name = next((hit["name"] for hit in found if hit), None)
        return reading if convention.refine is None else convention.refine(span, reading)

    def _role(self, attributes: Mapping[str, Any]) -> Role | None:
        for attribute, roles in self._roles:
            value = attributes.get(attribute)
            if value is not None:
                role = roles.get(str(value).lower()) or roles.get(ANY)
                if role is not None:
                    return role
        return None


@dataclass(frozen=True, slots=True)
class _Plan:
    """The tables for one role put together, so that reading a span goes through them once."""

    facts: tuple[tuple[str, Keys, bool], ...]
    """The field of a reading, the attributes that hold it, and whether it is kept as written."""
    arguments: Keys
    result: Keys
    tools: Keys
    asked: tuple[MessageSource, ...]
    answered: tuple[MessageSource, ...]
    forms: tuple[re.Pattern[str], ...]

    @classmethod
    def of(cls, convention: Convention, role: Role | None, present: Set[str]) -> _Plan:
        own = convention.of.get(role, Places()) if role is not None else Places()
        common = convention.everywhere

        def keys(fact: str) -> Keys:
            return tuple(key for key in getattr(own, fact) + getattr(common, fact) if key in present)

        facts = tuple((fact, found, fact in _AS_WRITTEN) for fact in _FACTS if (found := keys(fact)))
        arguments, result, tools = keys("arguments"), keys("result"), keys("tools")
        asked = tuple(source for source in own.asked + common.asked if _may_have(source, present))
        answered = tuple(source for source in own.answered + common.answered if _may_have(source, present))
        forms = tuple(map(_form, convention.span_names.get(role, ()))) if role is not None else ()
        return cls(
            facts,
            arguments,
            result,
            tools,
            asked,
            answered,
            forms,
        )


_AS_WRITTEN = ("input", "output")
_FACTS = ("name", "call_id", "error", "server", "agent", "session_id", *_AS_WRITTEN)
_VALUES = ("arguments", "result")


def _may_have(source: MessageSource, present: Set[str]) -> bool:
    """Whether spans with these attributes may hold messages there, as far as a single attribute tells."""
    return not isinstance(source, FromJson) or source.attribute in present


def _first(attributes: Mapping[str, Any], keys: Keys) -> Any:
    for key in keys:
        value = attributes.get(key)
        if value is not None:
            return value
    return None


@cache
def _form(form: str) -> re.Pattern[str]:
    before, _, after = form.partition("{name}")
    return re.compile(f"{re.escape(before)}(?P<name>.+){re.escape(after)}", re.DOTALL)
