"""Paragraphs and tables, and their Markdown and HTML: safe whatever the names and values in them are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from goldspan.model.value_matchers import Redaction

TextStyle = Literal["words", "name", "good", "odd", "bad", "alarm", "quiet"]
"""`name`: an identifier of the application, shown as code. The others are text with a colour."""


class TextSpan(NamedTuple):
    """A piece of text."""

    text: str
    style: TextStyle = "words"


Cell: TypeAlias = Sequence[TextSpan]


@dataclass(frozen=True, slots=True)
class Table:
    """Cells in rows below headings."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


Block: TypeAlias = Table | tuple[TextSpan, ...]
"""A table or a paragraph."""


def escape_invisible(text: str) -> str:
    """Returns text with escapes in place of invisible characters and of those that change the text direction."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else f"\\x{ord(character):02x}" for character in text)


MAX_ROWS = 500
_MAX_NAME_LENGTH = 80
_MAX_REQUEST_LENGTH = 70
"""The number of calls, characters of a name, and characters of a request that are shown."""
EMPTY_CELL: Cell = (TextSpan("—", "quiet"),)


def shorten_request(request: str | None) -> str:
    """Returns the start of a request, in one line."""
    return truncate(" ".join((request or "").split()), _MAX_REQUEST_LENGTH)


def truncate(text: str, length: int = _MAX_NAME_LENGTH) -> str:
    """Returns the text, or its start if it is longer than `length`."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def title_spans(name: str, request: str | None, redact: Redaction | None = None) -> tuple[TextSpan, ...]:
    """Returns the name of a run, an evaluation or a golden, and the start of its request."""
    if redact is not None and request is not None:
        request = str(redact("input", request))
    title = TextSpan(truncate(name), "name")
    return (title, TextSpan(" "), TextSpan(shorten_request(request), "quiet")) if request else (title,)


def join_spans(pieces: Iterable[Sequence[TextSpan]], separator: str) -> list[TextSpan]:
    """Returns the pieces as one text, with a separator between them."""
    spans: list[TextSpan] = []
    for piece in pieces:
        spans += [TextSpan(separator), *piece] if spans else piece
    return spans


# --- Markdown ---------------------------------------------------------------------------------------------------------


def render_markdown(blocks: Iterable[Block]) -> str:
    """Returns the blocks as GitHub Flavored Markdown, which has tables."""
    return "\n\n".join(
        _markdown_table(block) if isinstance(block, Table) else _markdown_paragraph(block) for block in blocks
    )


def _markdown_table(table: Table) -> str:
    rows = [map(_escape_markdown, table.headings), ["---"] * len(table.headings)]
    rows += [map(_markdown_spans, row) for row in table.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _markdown_paragraph(spans: Iterable[TextSpan]) -> str:
    """Returns a line that does not start like a list or a heading."""
    return _LINE_START_SYNTAX.sub(r"\1\\\2", _markdown_spans(spans).lstrip())


def _markdown_spans(spans: Iterable[TextSpan]) -> str:
    text = ""
    for span in spans:
        # Two adjacent code spans would be read as one that contains backticks.
        text += _escape_markdown(span.text) if span.style != "name" else _markdown_code(span.text, text.endswith("`"))
    return text


def _escape_markdown(text: str) -> str:
    return _GITHUB_REFERENCE.sub(r"<code>\1</code>", _MARKDOWN_SYNTAX.sub(r"\\\g<0>", escape_invisible(text)))


_GITHUB_REFERENCE = re.compile(r"\\([@\#])(?=[A-Za-z0-9])")
"""Mentions and issue references, which GitHub recognizes in the rendered HTML despite a backslash or an entity, but not
inside code (github/markup#1168, github/cmark-gfm#181)."""
_MARKDOWN_SYNTAX = re.compile(
    r"""[\\`*\[\]<>|~&\#!$@]    # code, emphasis, links, HTML, cells, struck out text, entities, formulas, mentions
    | (?<![^\W_])_ | _(?![^\W_])  # emphasis, but not inside a word, where it is none: search_hotels
    | :(?=//) | (?<=www)\.      # addresses, which would become links
    """,
    re.VERBOSE,
)
_LINE_START_SYNTAX = re.compile(r"^(\d*)([-+=.)])")


def _markdown_code(text: str, after_code: bool) -> str:
    """Returns a code span, in which only its own end and, in a table, the end of the cell have a meaning."""
    text = escape_invisible(text)
    if text.strip(" ") == text != "" and "`" not in text and "|" not in text and not after_code:
        return f"`{text}`"
    characters = (f"&#{ord(sign)};" if sign.isascii() and not sign.isalnum() else sign for sign in text)
    return f"<code>{''.join(characters)}</code>"


# --- HTML -------------------------------------------------------------------------------------------------------------

_STYLE_COLOURS: dict[TextStyle, str] = {
    "good": "#2da44e",
    "odd": "#bf8700",
    "bad": "#e5534b",
    "alarm": "#e5534b",
    "quiet": "#808080",
}
"""Colours that are readable on white and on black, because notebooks can have either background."""
_CELL_STYLE = "text-align:left;padding:1px 10px 1px 0"


def render_html(blocks: Iterable[Block]) -> str:
    """Returns the blocks as a fragment of HTML that needs no style sheet."""
    inner = (_html_table(block) if isinstance(block, Table) else f"<p>{_html_spans(block)}</p>" for block in blocks)
    return f"<div>{''.join(inner)}</div>"


def _html_table(table: Table) -> str:
    headings = "".join(f'<th style="{_CELL_STYLE}">{_escape_html(heading)}</th>' for heading in table.headings)
    rows = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in table.rows)
    return f"<table><thead><tr>{headings}</tr></thead><tbody>{rows}</tbody></table>"


def _html_cell(cell: Cell) -> str:
    return f'<td style="{_CELL_STYLE}">{_html_spans(cell)}</td>'


def _html_spans(spans: Iterable[TextSpan]) -> str:
    return "".join(map(_html_span, spans))


def _html_span(span: TextSpan) -> str:
    text = _escape_html(span.text)
    if span.style == "name":
        return f"<code>{text}</code>"
    return f'<span style="color:{_STYLE_COLOURS[span.style]}">{text}</span>' if span.style in _STYLE_COLOURS else text


def _escape_html(text: str) -> str:
    return escape(escape_invisible(text))
