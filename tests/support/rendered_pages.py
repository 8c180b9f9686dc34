"""Parsers of what values display as HTML and Markdown, and texts that could break it."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import strategies as st
from markdown_it import MarkdownIt

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


class Page(HTMLParser):
    """The tags of a page in order, the text of its table cells, and all of its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: list[list[str]] = []
        self.text = ""
        self._inside = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert {name for name, _ in attrs} <= {"style"}
        if tag == "tr":
            self.cells.append([])
        elif tag in ("td", "th"):
            self.cells[-1].append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._inside = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._inside:
            self.cells[-1][-1] += data


HOSTILE = [
    "a|b", "a`b", "`", "``", "a\\|b", "a\\", "|", "\n| x |\n", "<script>alert(1)</script>", "<!--", "&amp;", "&#124;",
    "**bold**", "_it_", "~~gone~~", "[x](http://evil)", "![x](y)", "http://evil.example", "www.evil.example", "@you",
    "# head", "- item", "+ item", "1. item", "12) item", "---", "===", "> quote", "    code", "```\ncode\n```", "\t",
    "\u202egnp", "\x1b[31mred", "\x00", "\ud800", "  ", " x ", "$x^2$", "<https://evil.example>", "&lt;b&gt;", "'\"",
    "a\u2028b",
]  # fmt: skip
texts = st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=()), min_size=1, max_size=30)
