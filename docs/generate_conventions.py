"""Generates the tables of `docs/conventions.md` from the conventions, for `make docs`. A test checks that they match.

It keeps the handwritten part of the page, which ends at `MARK`.
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
MARK = "<!-- docs/generate_conventions.py generates the following from src/goldspan/conventions. -->"

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
    "input_messages": "input messages",
    "output_messages": "output messages",
    "session_id": "session id",
    "request_id": "request id",
    "tool_definitions": "tool definitions",
    "finish_reason": "finish reason",
}


def page(current: str) -> str:
    """Return the page: the handwritten part of the current page, and the generated tables."""
    handwritten, mark, _ = current.partition(MARK)
    if not mark:
        raise ValueError(f"{PAGE.name} has no line {MARK}")
    return "\n".join(
        [handwritten + mark, "", *_overview(), *(line for convention in BUILT_IN for line in _section(convention))]
    )


def _overview() -> Iterator[str]:
    yield "## All conventions\n"
    yield from _table(
        ("convention", "name", "versions"),
        (
            (f"[{convention.title}](#{_anchor(convention.title)})", _code(convention.name), convention.versions)
            for convention in BUILT_IN
        ),
    )


def _section(convention: Convention) -> Iterator[str]:
    yield f"## {convention.title}\n"
    yield f"Versions: {convention.versions}. Source: {convention.source}\n"
    if convention.roles:
        yield from _table(("role", "identified by"), _roles(convention))
    if convention.excluded_by:
        yield f"Not applied if the span has {' or '.join(map(_code, convention.excluded_by))}.\n"
    facts = list(_facts(convention))
    if facts:
        yield from _table(("fact", "role of the span", "attributes, in order of precedence"), facts)
    forms = [f"{', '.join(map(_code, forms))} ({role})" for role, forms in convention.span_name_templates.items()]
    if forms:
        yield f"If no attribute holds the name, it is parsed from the span's own name: {'; '.join(forms)}.\n"
    if convention.notes:
        yield "\n".join(f"- {note}" for note in convention.notes) + "\n"
    if convention.capture_setting:
        yield f"To record content: {convention.capture_setting}\n"


def _roles(convention: Convention) -> Iterator[tuple[str, str]]:
    """Yield each role with the attributes and values that identify it."""
    values_by_role: dict[Role, dict[str, list[str]]] = {}
    for attribute, roles in convention.roles.items():
        for value, role in roles.items():
            values_by_role.setdefault(role, {}).setdefault(attribute, []).append(value)
    for role, attributes in values_by_role.items():
        yield role, "<br>".join(_identified_by(attribute, values) for attribute, values in attributes.items())


def _identified_by(attribute: str, values: Iterable[str]) -> str:
    shown = [_code(value) for value in values if value != ANY]
    return f"`{attribute}` = {', '.join(shown)}" if shown else f"`{attribute}`"


def _facts(convention: Convention) -> Iterator[tuple[str, str, str]]:
    """Yield each fact with the attributes that hold it. Roles with the same attributes share a row."""
    mapped = {field.name for field in fields(AttributeMap)}
    assert mapped == set(_FACTS), f"facts without a title: {mapped ^ set(_FACTS)}"
    for fact, title in _FACTS.items():
        roles_of: dict[str, list[str]] = {}
        for role, attribute_map in (
            *convention.attributes_by_role.items(),
            (_EVERY_ROLE, convention.common_attributes),
        ):
            # Two sources that read the same attribute have the same text; the table shows it once.
            sources = dict.fromkeys(map(_source, getattr(attribute_map, fact)))
            if sources:
                roles_of.setdefault("<br>".join(sources), []).append(role)
        for sources_shown, roles in roles_of.items():
            yield title, ", ".join(roles), sources_shown


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |\n|{'---|' * len(head)}"
    yield from (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    yield ""


def _source(source: str | MessageSource) -> str:
    return _code(source) if isinstance(source, str) else str(source)


def _code(text: str) -> str:
    return f"`{text}`"


def _anchor(title: str) -> str:
    """Return the anchor that GitHub generates for a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
