"""What shows itself: in a notebook at once, and wherever Markdown or HTML is read when it is asked to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from goldspan.model.markup import Block
    from goldspan.model.values import Redaction


class Displayed(ABC):
    """Something that can be shown as a page of paragraphs and tables."""

    __slots__ = ()

    @abstractmethod
    def _blocks(self, *, values: bool = False, redact: Redaction | None = None) -> Iterable[Block]:
        """The paragraphs and tables; values of arguments and results are in them only where `values` says so."""

    def to_markdown(self, *, values: bool = False, redact: Redaction | None = None) -> str:
        """As Markdown with GitHub's tables.

        Names are shown, and values of arguments and results only with `values=True`. `redact` is called with the path
        of each value and the value before it is shown, and what it returns is shown instead.
        """
        from goldspan.model.markup import markdown  # most processes never show anything

        return markdown(self._blocks(values=values, redact=redact))

    def to_html(self, *, values: bool = False, redact: Redaction | None = None) -> str:
        """As a fragment of HTML that needs no style sheet; `values` and `redact` as in `to_markdown`."""
        from goldspan.model.markup import html

        return html(self._blocks(values=values, redact=redact))

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return self.to_html()
