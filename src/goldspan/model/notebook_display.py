"""`NotebookDisplay`: what runs, goldens, comparisons and evaluations show in notebooks and terminals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from goldspan.model.markup import Block
    from goldspan.model.value_matchers import Redaction


class NotebookDisplay:
    """Renders a value as paragraphs and tables, in notebooks and elsewhere."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """Define `_repr_pretty_` in each class: to an inherited one IPython prefers the `__repr__` of a dataclass.

        That `repr` contains all values, and a notebook is saved with it.
        """
        cls._repr_pretty_ = NotebookDisplay._repr_pretty_  # type: ignore[method-assign]

    # Every subclass defines this method. It is not abstract, because `fast_constructor` derives classes without it.
    if TYPE_CHECKING:

        def _display_blocks(self, *, values: bool = False, redact: Redaction | None = None) -> Iterable[Block]:
            """Returns the paragraphs and tables.

            They contain values of arguments and results only if `values` is true.
            """

    def to_markdown(self, *, values: bool = False, redact: Redaction | None = None) -> str:
        """Returns Markdown with GitHub's tables.

        The text contains names, and values of arguments and results only with `values=True`. `redact` receives the path
        of each value and the value, and returns the value to show.
        """
        from goldspan.model.markup import render_markdown  # most processes never render anything

        return render_markdown(self._display_blocks(values=values, redact=redact))

    def to_html(self, *, values: bool = False, redact: Redaction | None = None) -> str:
        """Returns a fragment of HTML that needs no style sheet. `values` and `redact` as in `to_markdown`."""
        from goldspan.model.markup import render_html

        return render_html(self._display_blocks(values=values, redact=redact))

    def __str__(self) -> str:
        return self.to_markdown()

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return self.to_html()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Writes what a terminal with IPython shows: the Markdown, because the `repr` of a run is long."""
        printer.text(self.to_markdown())
