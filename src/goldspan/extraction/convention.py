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
    request_id: Keys = ()
    """Of the user's request, shared by all that a runtime does for it, in whichever trace."""
    tools: Keys = ()
    """Definitions of the tools offered to a model."""
    finish: Keys = ()
    """Why the model stopped: it says, in some notation, that it asked for tools."""
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
    scopes: frozenset[str] = frozenset()
    """Instrumentation scopes of which spans without any attribute are handed to `refine`, too: their names tell what
    they are."""
    only_with: Keys = ()
    """Attributes of which a span of the family has at least one, where `roles` names some that others have, too."""
    unless: Keys = ()
    """Attributes that take `roles` back, since another convention then knows better what the span is."""
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
    switches: Mapping[str, str] = field(default_factory=dict)
    """The same by the beginnings of instrumentation scopes, where each writer of the family has a switch of its own."""
    shared: bool = False
    """Whether many families write in its words, so that it does not tell the family of a span."""
    span_per_call: frozenset[str] = frozenset()
    """The instrumentation scopes that write a span for every call of a tool: their spans without one among them show
    that no tool was called. Empty unless that is certain, since content that is off must not read as nothing done.
    """

    @cached_property
    def all_signs(self) -> frozenset[str]:
        """Every attribute by which a span of this family is known: one of them suffices."""
        return frozenset(self.roles).union(self.signs)

    def signs_among(self, present: Set[str]) -> Set[str]:
        """The signs that count for a span that has these attributes."""
        if self.only_with and present.isdisjoint(self.only_with):
            return frozenset()
        return self.all_signs if present.isdisjoint(self.unless) else frozenset(self.signs)

    @cached_property
    def all_keys(self) -> frozenset[str]:
        """Every attribute that the tables name."""
        named = {*self.all_signs, *self.only_with, *self.unless}
        for places in (self.everywhere, *self.of.values()):
            for fact in (*_FACTS, *_AS_WRITTEN, *_VALUES, "tools"):
                named.update(getattr(places, fact))
            named.update(source.attribute for source in places.asked + places.answered if isinstance(source, FromJson))
        return frozenset(named)

    def read_bare(self, span: SpanRecord) -> Reading | None:
        """What the convention understands of a span of one of its `scopes` that has no attribute."""
        reading = Reading(by=(self.name,))
        found = reading if self.refine is None else self.refine(span, reading)
        if found is not None and found.role is not None:
            forms = self.span_names.get(found.role, ())
            found.span_name = _named(span, map(_form, forms))
        return found

    def read(self, span: SpanRecord) -> Reading | None:
        """What the convention understands of a span that carries one of its signs."""
        reader = Reader(self, self.all_keys.intersection(span.attributes))
        return reader.read(span, span.attributes)


class Reader:
    """A convention narrowed to the attributes that some spans have: those of one kind of span all have the same."""

    __slots__ = ("_by", "_plans", "_refine", "_roles", "_signed", "keys")

    def __init__(self, convention: Convention, present: Set[str]) -> None:
        """Narrow a convention down to the `present` attributes."""
        self._by = (convention.name,)
        self._refine = convention.refine
        self._signed = not present.isdisjoint(convention.signs)
        known = convention.roles.items() if present.isdisjoint(convention.unless) else ()
        self._roles = tuple((attribute, roles) for attribute, roles in known if attribute in present)
        told = (role for _, roles in self._roles for role in roles.values())
        self._plans = {role: _Plan.of(convention, role, present) for role in (None, *told)}
        self.keys = {key for plan in self._plans.values() for key in plan.keys}.union(key for key, _ in self._roles)
        """The attributes whose values it wants to know."""

    def read(self, span: SpanRecord, known: Mapping[str, Any]) -> Reading | None:
        """What the convention understands of a span that has these attributes; the values of `keys` are known."""
        role = None
        for attribute, roles in self._roles:
            value = known[attribute]
            if value is not None:
                role = roles.get(str(value).lower()) or roles.get(ANY)
                if role is not None:
                    break
        if role is None and not self._signed:
            return None
        reading = Reading(role, self._by)
        self._plans[role].carry_out(span, known, reading)
        if self._refine is None:
            return reading
        refined = self._refine(span, reading)
        if role is not None and refined is not None and refined.role is None:
            refined.taken_back = True
        return refined


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The tables for one role put together, so that reading a span goes through them once."""

    facts: tuple[tuple[str, str], ...]
    """Fields of a reading that are texts, each with an attribute that holds it; the best attribute comes last."""
    written: tuple[tuple[str, str], ...]
    """The same for fields that are kept as written."""
    values: tuple[tuple[str, str, Callable[[Any], Any]], ...]
    """The same for arguments and results, with what opens their envelope."""
    tools: Keys
    asked: tuple[MessageSource, ...]
    answered: tuple[MessageSource, ...]
    without_events: tuple[tuple[MessageSource, ...], tuple[MessageSource, ...]]
    """Of both, the places that a span may have that has no events, as most have none."""
    forms: tuple[re.Pattern[str], ...]

    @property
    def keys(self) -> Iterable[str]:
        """The attributes whose values it takes."""
        return [*(key for _, key in self.facts + self.written), *(key for _, key, _ in self.values)]

    @classmethod
    def of(cls, convention: Convention, role: Role | None, present: Set[str]) -> _Plan:
        own = convention.of.get(role, Places()) if role is not None else Places()
        common = convention.everywhere

        def found(*facts: str) -> tuple[tuple[str, str], ...]:
            keys = ((fact, key) for fact in facts for key in reversed(getattr(own, fact) + getattr(common, fact)))
            return tuple((fact, key) for fact, key in keys if key in present)

        asked = tuple(source for source in own.asked + common.asked if _may_have(source, present))
        answered = tuple(source for source in own.answered + common.answered if _may_have(source, present))
        openers = {"arguments": convention.open_arguments, "result": convention.open_result}
        return cls(
            facts=found(*_FACTS),
            written=found(*_AS_WRITTEN),
            values=tuple((fact, key, openers[fact]) for fact, key in found(*_VALUES)),
            tools=tuple(key for key in own.tools + common.tools if key in present),
            asked=asked,
            answered=answered,
            without_events=(_outside_events(asked), _outside_events(answered)),
            forms=tuple(map(_form, convention.span_names.get(role, ()))) if role is not None else (),
        )

    def carry_out(self, span: SpanRecord, known: Mapping[str, Any], reading: Reading) -> None:
        """Read off a span what the tables tell of it."""
        for fact, key in self.facts:
            value = known[key]
            if value is not None:
                # An attribute may hold anything, and what follows compares and sorts names and ids.
                setattr(reading, fact, value if isinstance(value, str) else str(value))
        for fact, key in self.written:
            value = known[key]
            if value is not None:
                setattr(reading, fact, value)
        for fact, key, open_envelope in self.values:
            value = known[key]
            if value is not None:
                setattr(reading, fact, Written(value, open_envelope))
        if self.asked or self.answered:
            asked, answered = (self.asked, self.answered) if span.events else self.without_events
            reading.asked = tuple([partial(source, span) for source in asked])
            reading.answered = tuple([partial(source, span) for source in answered])
        if self.tools:
            reading.tools = tuple([partial(messages.definitions, span.attributes[key]) for key in self.tools])
        if self.forms and reading.name is None:
            reading.span_name = _named(span, self.forms)


_VALUES = ("arguments", "result")
_AS_WRITTEN = ("input", "output", "finish")
_FACTS = ("name", "call_id", "error", "server", "agent", "session_id", "request_id")


def _outside_events(sources: tuple[MessageSource, ...]) -> tuple[MessageSource, ...]:
    return tuple(source for source in sources if not isinstance(source, FromEvents))


def _may_have(source: MessageSource, present: Set[str]) -> bool:
    """Whether spans with these attributes may hold messages there, as far as a single attribute tells."""
    return not isinstance(source, FromJson) or source.attribute in present


def _named(span: SpanRecord, forms: Iterable[re.Pattern[str]]) -> str | None:
    hits = (form.fullmatch(span.name) for form in forms)
    return next((hit["name"] for hit in hits if hit), None)


@cache
def _form(form: str) -> re.Pattern[str]:
    before, _, after = form.partition("{name}")
    return re.compile(f"{re.escape(before)}(?P<name>.+){re.escape(after)}", re.DOTALL)
