"""A convention as data: where the instrumentations of one family write what goldspan wants to know of a span.

Tables first, because they can be read, checked and printed: `docs/conventions.md` is made from them. What a table
cannot say is one function, `refine`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
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
    """Further attributes by which a span of the family is known, though they tell no role."""
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

    @property
    def all_signs(self) -> frozenset[str]:
        """Every attribute by which a span of this family is known: one of them suffices."""
        return frozenset(self.roles).union(self.signs)

    def read(self, span: SpanRecord) -> Reading | None:
        """What the convention understands of a span that carries one of its signs."""
        attributes = span.attributes
        role = self._role(attributes)
        plan = self._plans.get(role) or self._plans[None]
        reading = Reading(role, (self.name,))
        for fact, keys in plan.facts:
            value = _first(attributes, keys)
            if value is not None:
                # An attribute may hold anything, and what follows compares and sorts names and ids.
                setattr(reading, fact, value if fact in _AS_WRITTEN or isinstance(value, str) else str(value))
        arguments, result = _first(attributes, plan.arguments), _first(attributes, plan.result)
        reading.arguments = None if arguments is None else Written(arguments, self.open_arguments)
        reading.result = None if result is None else Written(result, self.open_result)
        reading.asked = tuple(partial(source, span) for source in plan.asked)
        reading.answered = tuple(partial(source, span) for source in plan.answered)
        reading.tools = tuple(partial(messages.definitions, attributes[key]) for key in plan.tools if key in attributes)
        if plan.forms and reading.name is None:
            found = (form.fullmatch(span.name) for form in plan.forms)
            reading.span_name = next((hit["name"] for hit in found if hit), None)
        return reading if self.refine is None else self.refine(span, reading)

    def _role(self, attributes: Mapping[str, Any]) -> Role | None:
        for attribute, roles in self.roles.items():
            value = attributes.get(attribute)
            if value is not None:
                role = roles.get(str(value).lower()) or roles.get(ANY)
                if role is not None:
                    return role
        return None

    @cached_property
    def _plans(self) -> Mapping[Role | None, _Plan]:
        roles: set[Role | None] = {None, *self.of, *self.span_names}
        return {role: _Plan.of(self, role) for role in roles}


@dataclass(frozen=True, slots=True)
class _Plan:
    """The tables for one role put together, so that reading a span goes through them once."""

    facts: tuple[tuple[str, Keys], ...]
    arguments: Keys
    result: Keys
    tools: Keys
    asked: tuple[MessageSource, ...]
    answered: tuple[MessageSource, ...]
    forms: tuple[re.Pattern[str], ...]

    @classmethod
    def of(cls, convention: Convention, role: Role | None) -> _Plan:
        own = convention.of.get(role, Places()) if role is not None else Places()
        common = convention.everywhere
        facts = ((fact, getattr(own, fact) + getattr(common, fact)) for fact in _FACTS)
        forms = convention.span_names.get(role, ()) if role is not None else ()
        return cls(
            tuple((fact, keys) for fact, keys in facts if keys),
            own.arguments + common.arguments,
            own.result + common.result,
            own.tools + common.tools,
            own.asked + common.asked,
            own.answered + common.answered,
            tuple(map(_form, forms)),
        )


_AS_WRITTEN = ("input", "output")
_FACTS = ("name", "call_id", "error", "server", "agent", "session_id", *_AS_WRITTEN)


def _first(attributes: Mapping[str, Any], keys: Keys) -> Any:
    for key in keys:
        value = attributes.get(key)
        if value is not None:
            return value
    return None


def _form(form: str) -> re.Pattern[str]:
    before, _, after = form.partition("{name}")
    return re.compile(f"{re.escape(before)}(?P<name>.+){re.escape(after)}", re.DOTALL)
