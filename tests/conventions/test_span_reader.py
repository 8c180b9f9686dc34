"""Compares the generated code of span readers with a plain reading of the conventions' tables."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from goldspan.conventions import BUILT_IN
from goldspan.conventions.convention import ANY, AttributeMap, Convention, FromEvents, FromJson, SpanReader
from goldspan.conventions.span_facts import RawValue, SpanFacts
from goldspan.model import SpanEvent, SpanRecord
from support.span_builders import span

_NO_FACTS = AttributeMap()
_TEXTS = ("name", "call_id", "error", "server", "agent", "session_id", "request_id")
_RAW = ("input", "output", "finish_reason")


def _plain_facts(convention: Convention, record: SpanRecord) -> SpanFacts | None:
    """What the tables say about a span, read from them one by one."""
    attributes = record.attributes
    role = None
    for attribute, roles in convention.roles.items():
        value = attributes.get(attribute)
        if role is None and value is not None and attributes.keys().isdisjoint(convention.excluded_by):
            role = roles.get(str(value).lower()) or roles.get(ANY)
    if role is None and attributes.keys().isdisjoint(convention.marker_attributes):
        return None
    facts = SpanFacts(role, (convention.name,))
    places = [convention.common_attributes]
    if role is not None:
        places.insert(0, convention.attributes_by_role.get(role, _NO_FACTS))

    def first_value(fact: str) -> Any:
        values = (attributes.get(key) for place in places for key in getattr(place, fact))
        return next((value for value in values if value is not None), None)

    for fact in _TEXTS:
        value = first_value(fact)
        setattr(facts, fact, None if value is None else str(value))
    for fact in _RAW:
        setattr(facts, fact, first_value(fact))
    for fact, opener in (("arguments", convention.unwrap_arguments), ("result", convention.unwrap_result)):
        value = first_value(fact)
        setattr(facts, fact, None if value is None else RawValue(value, opener))
    for fact in ("input_messages", "output_messages"):
        sources = [source for place in places for source in getattr(place, fact)]
        applying = [
            source
            for source in sources
            if not (isinstance(source, FromJson) and source.attribute not in attributes)
            and not (isinstance(source, FromEvents) and not record.events)
        ]
        setattr(facts, fact, tuple(partial(source, record) for source in applying))
    offers = [attributes[key] for place in places for key in place.tool_definitions if key in attributes]
    facts.tool_definitions = tuple(partial(len, offer) for offer in offers)
    if role is not None and facts.name is None:
        for template in convention.span_name_templates.get(role, ()):
            before, after = template.split("{name}")
            written = record.name
            if written.startswith(before) and written.endswith(after) and len(written) > len(before + after):
                facts.span_name = written[len(before) : len(written) - len(after)]
                break
    return facts


def _comparable(facts: SpanFacts | None) -> object:
    return None if facts is None else {each.name: _plain(getattr(facts, each.name)) for each in fields(SpanFacts)}


def _plain(value: object) -> object:
    if isinstance(value, RawValue):
        return value.raw, value._open
    if isinstance(value, tuple) and value and isinstance(value[0], partial):
        return [(each.func if isinstance(each.args[0], SpanRecord) else None, *each.args) for each in value]
    return value


@st.composite
def _spans_of_families(draw: st.DrawFn) -> tuple[Convention, SpanRecord]:
    convention = draw(st.sampled_from(BUILT_IN))
    kinds = sorted({kind for roles in convention.roles.values() for kind in roles})
    values = st.one_of(
        st.sampled_from([*kinds, *(kind.upper() for kind in kinds), "", "x"]),
        st.sampled_from([None, True, 7, ["a"], {"a": 1}]),
    )
    attributes = draw(st.dictionaries(st.sampled_from(sorted(convention.all_attributes)), values, max_size=8))
    templates = [template for each in convention.span_name_templates.values() for template in each]
    name = draw(st.sampled_from(["x", *(template.replace("{name}", "a {b") for template in templates)]))
    events = tuple(SpanEvent(each, {}) for each in draw(st.lists(st.sampled_from(["gen_ai.choice", "x"]), max_size=2)))
    return convention, replace(span(name), attributes=attributes, events=events)


@given(_spans_of_families())
def test_generated_code_reads_the_facts_that_the_tables_state(written: tuple[Convention, SpanRecord]) -> None:
    convention, record = written
    tables = replace(convention, postprocess=None, is_member=None)
    assert _comparable(tables.read(record)) == _comparable(_plain_facts(tables, record))


@given(_spans_of_families())
def test_a_reader_names_each_attribute_that_it_needs(written: tuple[Convention, SpanRecord]) -> None:
    convention, record = written
    tables = replace(convention, postprocess=None, is_member=None)
    reader = SpanReader(tables, tables.all_attributes.intersection(record.attributes))
    needed = {key: record.attributes[key] for key in reader.attribute_names}
    assert _comparable(reader.read(record, needed)) == _comparable(_plain_facts(tables, record))


def test_a_span_that_is_no_member_has_no_facts_of_the_family() -> None:
    convention = next(each for each in BUILT_IN if each.name == "genai")
    record = span("x", gen_ai__operation__name="chat")
    assert convention.read(record) is not None
    assert replace(convention, is_member=lambda member: member is not record).read(record) is None
