"""Generates the tables of `docs/conventions.md` from the conventions, for `make docs`. A test checks that they match.

The text above the mark in the page is written by hand and is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path

from goldspan.conventions import BUILT_IN
from goldspan.conventions.convention import ANY, AttributeMap, Convention, MessageSource
from goldspan.conventions.span_facts import Role

PAGE = Path(__file__).with_name("conventions.md")
MARK = "<!-- Written by docs/generate_conventions.py from here on: change src/goldspan/conventions instead. -->"

_EVERY_ROLE = "any"
_FACTS: Mapping[str, str] = {
    "name": "name",
    "call_id": "call id",
    "arguments": "arguments",
    "result": "result",
    "error": "error",
    "agent": "calling agent",
    "server": "MCP server",
    "input": "input",
    "output": "output",
    "input_messages": "messages to the model",
    "output_messages": "messages of the model",
    "session_id": "session",
    "request_id": "request",
    "tool_definitions": "tools offered",
    "finish_reason": "why the model stopped",
}


def page(written: str) -> str:
    """Return the page: the part above the mark, and the generated tables."""
    by_hand, mark, _ = written.partition(MARK)
    if not mark:
        raise ValueError(f"{PAGE.name} has lost its mark: {MARK}")
    return "\n".join([by_hand + mark, "", *_overview(), *(line for one in BUILT_IN for line in _section(one))])


def _overview() -> Iterator[str]:
    yield "## All conventions\n"
    yield from _table(
        ("convention", "known as", "versions"),
        ((f"[{one.title}](#{_anchor(one.title)})", _code(one.name), one.versions) for one in BUILT_IN),
    )


def _section(convention: Convention) -> Iterator[str]:
    yield f"## {convention.title}\n"
    yield f"Versions: {convention.versions}. Source: {convention.source}\n"
    if convention.roles:
        yield from _table(("role", "known by"), _roles(convention))
    if convention.excluded_by:
        yield f"Not applied if the span has {' or '.join(map(_code, convention.excluded_by))}.\n"
    facts = list(_facts(convention))
    if facts:
        yield from _table(("what", "of a span of role", "attributes, best first"), facts)
    forms = [f"{', '.join(map(_code, forms))} ({role})" for role, forms in convention.span_name_templates.items()]
    if forms:
        yield f"If no attribute holds the name, it is parsed from the span's own name: {'; '.join(forms)}.\n"
    if convention.notes:
        yield "\n".join(f"- {note}" for note in convention.notes) + "\n"
    if convention.capture_setting:
        yield f"To record content: {convention.capture_setting}\n"


def _roles(convention: Convention) -> Iterator[tuple[str, str]]:
    """Yield each role with the attributes and values that give it."""
    known: dict[Role, dict[str, list[str]]] = {}
    for attribute, roles in convention.roles.items():
        for value, role in roles.items():
            known.setdefault(role, {}).setdefault(attribute, []).append(value)
    for role, attributes in known.items():
        yield role, "<br>".join(_known_by(attribute, values) for attribute, values in attributes.items())


def _known_by(attribute: str, values: Iterable[str]) -> str:
    shown = [_code(value) for value in values if value != ANY]
    return f"`{attribute}` = {', '.join(shown)}" if shown else f"`{attribute}`"


def _facts(convention: Convention) -> Iterator[tuple[str, str, str]]:
    """Yield each fact with the attributes that hold it. Roles with the same attributes share a row."""
    known = {field.name for field in fields(AttributeMap)}
    assert known == set(_FACTS), f"facts without a title: {known ^ set(_FACTS)}"
    for fact, title in _FACTS.items():
        roles_of: dict[str, list[str]] = {}
        for role, places in (*convention.attributes_by_role.items(), (_EVERY_ROLE, convention.common_attributes)):
            # Two sources that read the same attribute are shown once.
            found = dict.fromkeys(map(_place, getattr(places, fact)))
            if found:
                roles_of.setdefault("<br>".join(found), []).append(role)
        for places_shown, roles in roles_of.items():
            yield title, ", ".join(roles), places_shown


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |\n|{'---|' * len(head)}"
    yield from (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    yield ""


def _place(place: str | MessageSource) -> str:
    return _code(place) if isinstance(place, str) else str(place)


def _code(text: str) -> str:
    return f"`{text}`"


def _anchor(title: str) -> str:
    """Return the anchor that GitHub generates for a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
