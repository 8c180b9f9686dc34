"""Paragraphs and tables as Markdown and as HTML. Whatever text they hold is shown, never obeyed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal, NamedTuple, TypeAlias

Kind = Literal["words", "name", "good", "odd", "bad", "alarm", "quiet"]
"""`name`: an identifier from elsewhere, shown as code. The rest are words in a colour, where there are colours."""


class Span(NamedTuple):
    """A piece of text."""

    text: str
    kind: Kind = "words"


Cell: TypeAlias = Sequence[Span]


@dataclass(frozen=True, slots=True)
class Table:
    """Cells in rows below headings."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


Block: TypeAlias = Table | tuple[Span, ...]
"""A table or a paragraph."""


def legible(text: str) -> str:
    """Text with everything that is invisible, or turns around what stands beside it, shown as an escape."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else f"\\x{ord(character):02x}" for character in text)


# --- Markdown ---------------------------------------------------------------------------------------------------------


def markdown(blocks: Iterable[Block]) -> str:
    """Blocks in GitHub's dialect of Markdown, which has tables."""
    return "\n\n".join(
        _markdown_table(block) if isinstance(block, Table) else _markdown_paragraph(block) for block in blocks
    )


def _markdown_table(table: Table) -> str:
    rows = [map(_markdown_words, table.headings), ["---"] * len(table.headings)]
    rows += [map(_markdown, row) for row in table.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _markdown_paragraph(spans: Iterable[Span]) -> str:
    """A line that does not begin like a list or a heading."""
    return _BEGINNING.sub(r"\1\\\2", _markdown(spans).lstrip())


def _markdown(spans: Iterable[Span]) -> str:
    text = ""
    for span in spans:
        # Two pieces of code side by side would be one, with backticks in it.
        text += _markdown_words(span.text) if span.kind != "name" else _markdown_name(span.text, text.endswith("`"))
    return text


def _markdown_words(text: str) -> str:
    return _REFERENCE.sub(r"<code>\1</code>", _MARKDOWN.sub(r"\\\g<0>", legible(text)))


_REFERENCE = re.compile(r"\\([@\#])(?=[A-Za-z0-9])")
"""What GitHub takes for a mention, or a reference to an issue, though a backslash or an entity stands there: it looks
for them once Markdown is HTML, but not inside of code (github/markup#1168, github/cmark-gfm#181)."""
_MARKDOWN = re.compile(
    r"""[\\`*\[\]<>|~&\#!$@]    # code, emphasis, links, HTML, cells, struck out text, entities, formulas, mentions
    | (?<![^\W_])_ | _(?![^\W_])  # emphasis, but not inside a word, where it is none: search_hotels
    | :(?=//) | (?<=www)\.      # addresses, which would become links
    """,
    re.VERBOSE,
)
_BEGINNING = re.compile(r"^(\d*)([-+=.)])")


def _markdown_name(text: str, after_code: bool) -> str:
    """Code, in which nothing has a meaning but the sign of its end and, in a table, that of the cell's."""
    text = legible(text)
    if text.strip(" ") == text != "" and "`" not in text and "|" not in text and not after_code:
        return f"`{text}`"
    characters = (f"&#{ord(sign)};" if sign.isascii() and not sign.isalnum() else sign for sign in text)
    return f"<code>{''.join(characters)}</code>"


# --- HTML -------------------------------------------------------------------------------------------------------------

_COLOURS: dict[Kind, str] = {
    "good": "#2da44e",
    "odd": "#bf8700",
    "bad": "#e5534b",
    "alarm": "#e5534b",
    "quiet": "#808080",
}
"""Readable on white and on black, because a notebook may be either."""
_CELL = "text-align:left;padding:1px 10px 1px 0"


def html(blocks: Iterable[Block]) -> str:
    """Blocks as a fragment of HTML that needs no style sheet."""
    inner = (_html_table(block) if isinstance(block, Table) else f"<p>{_html(block)}</p>" for block in blocks)
    return f"<div>{''.join(inner)}</div>"


def _html_table(table: Table) -> str:
    headings = "".join(f'<th style="{_CELL}">{_html_words(heading)}</th>' for heading in table.headings)
    rows = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in table.rows)
    return f"<table><thead><tr>{headings}</tr></thead><tbody>{rows}</tbody></table>"


def _html_cell(cell: Cell) -> str:
    return f'<td style="{_CELL}">{_html(cell)}</td>'


def _html(spans: Iterable[Span]) -> str:
    return "".join(map(_html_span, spans))


def _html_span(span: Span) -> str:
    text = _html_words(span.text)
    if span.kind == "name":
        return f"<code>{text}</code>"
    return f'<span style="color:{_COLOURS[span.kind]}">{text}</span>' if span.kind in _COLOURS else text


def _html_words(text: str) -> str:
    return escape(legible(text))
