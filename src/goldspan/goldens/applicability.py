"""Which runs a golden is for, and which spans are a component, as people write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pydantic import ConfigDict, Field

from goldspan.errors import GoldenError
from goldspan.goldens.checking import Entry, Text
from goldspan.goldens.conditions import MATCHERS_OF_TEXTS
from goldspan.goldens.matchers import check_plain, read
from goldspan.goldens.words import did_you_mean, listed, shown
from goldspan.model import ComponentSpans, When
from goldspan.model.matchers import MATCHERS, Contains, OneOf
from goldspan.model.values import MATCHER_WORDS


class Conditions(Entry):
    """Which runs a golden is for, by what their telemetry says: everything that is said here must hold."""

    agent: Text | None = None
    """The agent's name, or a glob pattern of it; case does not matter."""
    service: Text | None = None
    """The `service.name` of the process, or a glob pattern of it."""
    span: Text | None = None
    """The name of the run's span, or a glob pattern of it."""
    attributes: dict[Text, Any] = Field(default_factory=dict)
    """Attributes of the run's span: values, or matchers of texts."""
    input: Any = None
    """The text of the request, or a matcher of it; a `regex` is searched for."""

    instead: ClassVar[str] = "must be a mapping with keys such as 'agent'"
    closed: ClassVar[bool] = True
    misplaced: ClassVar[Mapping[str, str]] = {"component": "stands beside 'when', not in it"}
    model_config = ConfigDict(json_schema_extra={"minProperties": 1})


class DeclaredComponent(Entry):
    """Which spans are a component: everything that is said here must hold."""

    span: Text | None = None
    """The name of the span, or a glob pattern of it; case does not matter."""
    attributes: dict[Text, Any] = Field(default_factory=dict)
    """Attributes that the span has, and their values."""

    instead: ClassVar[str] = "must be a mapping with 'span', 'attributes' or both"
    closed: ClassVar[bool] = True
    model_config = ConfigDict(json_schema_extra={"minProperties": 1})


def read_when(written: Conditions, where: str) -> When:
    """The conditions that are meant. Raises `GoldenError` for what can mean nothing."""
    attributes = read(written.attributes, where, "when.attributes")
    said = When(written.agent, written.service, written.span, attributes, _input(written, where))
    if said == _NOTHING_SAID:
        raise GoldenError(f"{where}: when says nothing; it has agent, service, span, attributes or input.")
    for key, value in attributes.items():
        _check(value, f"{where}, when.attributes.{key}")
    return said


_NOTHING_SAID = When()
WORDS_OF_TEXTS = tuple(MATCHER_WORDS[kind] for kind in MATCHERS_OF_TEXTS)
"""The words of the matchers that may stand in conditions."""


def _input(written: Conditions, where: str) -> Any:
    if "input" not in written.model_fields_set:
        return None
    meant = read(written.input, where, "when.input")
    if isinstance(meant, str) and meant.strip():
        return meant
    place = f"{where}, when.input"
    if not isinstance(meant, MATCHERS):
        word = next(iter(meant), None) if isinstance(meant, Mapping) and len(meant) == 1 else None
        told = "must be a text or a matcher such as {regex: refund}"
        raise GoldenError(f"{place}: {told}, not {shown(written.input)}.{did_you_mean(word, MATCHER_WORDS.values())}")
    _check(meant, place)
    return meant


def _check(value: Any, place: str) -> None:
    """Refuse matchers that say nothing of a text, and those that would be compared as they are."""
    for part in _parts(value):
        if isinstance(part, MATCHERS) and not isinstance(part, MATCHERS_OF_TEXTS):
            words = listed(WORDS_OF_TEXTS, last="or")
            told = f"the matcher {MATCHER_WORDS[type(part)]!r} is for arguments and results; here may stand {words}"
            raise GoldenError(f"{place}: {told}.")
        held = part.part if isinstance(part, Contains) else None if isinstance(part, MATCHERS) else part
        for matcher in _matchers(held):
            told = "may stand by itself or in 'one_of', not in a list, a mapping or another matcher"
            raise GoldenError(f"{place}: the matcher {MATCHER_WORDS[type(matcher)]!r} {told}.")


def _parts(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, OneOf):
        for option in value.options:
            yield from _parts(option)


def _matchers(value: Any) -> Iterator[Any]:
    """The outermost matchers that a value is or holds."""
    if isinstance(value, MATCHERS):
        yield value
    elif isinstance(value, list | tuple | Mapping):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _matchers(part)


def read_component(name: str, written: DeclaredComponent, where: str) -> ComponentSpans:
    """The spans that are meant. Raises `GoldenError` for what can mean nothing."""
    check_plain(written.attributes, where, "attributes")
    for key, value in written.attributes.items():
        for matcher in _matchers(read(value, where, f"attributes.{key}")):
            told = f"values are compared as they are here, and {MATCHER_WORDS[type(matcher)]!r} is a matcher"
            raise GoldenError(f"{where}, attributes.{key}: {told}.")
    if written.span is None and not written.attributes:
        raise GoldenError(f"{where}: says nothing; it has span, attributes or both.")
    return ComponentSpans(name, written.span, written.attributes)
