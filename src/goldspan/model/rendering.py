"""Renders comparisons and evaluations as paragraphs and tables: names, symbols and notes.

The terminal, Markdown and HTML show the same rows. They contain values only on request, and each value is redacted
first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from goldspan.model.findings import NO_GOLDEN_NOTE, ComparisonRow, RowVerdict, Score
from goldspan.model.markup import (
    EMPTY_CELL,
    MAX_ROWS,
    Block,
    Cell,
    Table,
    TextSpan,
    TextStyle,
    join_spans,
    title_spans,
    truncate,
)
from goldspan.model.value_matchers import Redaction, format_value, join_path


class Symbol(NamedTuple):
    """The symbol between an expectation and a call."""

    sign: str
    plain: str
    """The ASCII sign, for terminals that cannot show `sign`."""
    tone: TextStyle
    meaning: str


AGREES = Symbol("=", "=", "good", "expected and called")
DIFFERS = Symbol("≠", "#", "odd", "differs")
MISPLACED = Symbol("↕", "~", "odd", "out of order")
_SYMBOL_BY_VERDICT: Mapping[RowVerdict, Symbol] = {
    "paired": AGREES,
    "missing": Symbol("✗", "x", "bad", "missing"),
    "unexpected": Symbol("+", "+", "odd", "not expected"),
    "superseded": Symbol("↻", "r", "quiet", "failed, does not count"),
    "tolerated": Symbol("·", ".", "quiet", "does not count"),
    "forbidden": Symbol("!", "!", "alarm", "forbidden"),
}
SYMBOLS: Sequence[Symbol] = (AGREES, DIFFERS, MISPLACED, *list(_SYMBOL_BY_VERDICT.values())[1:])
"""Every symbol, in the order of a legend."""
OUTCOME_SYMBOLS: Mapping[bool | None, Symbol] = {
    True: Symbol("✓", "+", "good", "passed"),
    False: Symbol("✗", "x", "bad", "failed"),
    None: Symbol("○", "o", "odd", "not evaluated"),
}
"""The symbol of an evaluation, by `passed`."""


class ValueDifference(NamedTuple):
    """One value that differs, as text on both sides."""

    path: str
    """The path of the argument, or of the part of the result."""
    expected: str
    called: str
    note: str | None = None
    """Why the values could not be compared; `None`: they were compared and differ."""
    hint: str | None = None
    """The matcher that would accept the called value."""

    def __str__(self) -> str:
        comment = self.note or self.hint
        suffix = f" ({comment})" if comment else ""
        return f"{self.path}: expected {self.expected}, called with {self.called}{suffix}"


@dataclass(frozen=True, slots=True)
class RenderedRow:
    """One row as text."""

    expected: str | None
    called: str | None
    mark: Symbol
    differing: tuple[str, ...] = ()
    """The paths of the arguments that differ, and `result` with the paths in it."""
    notes: tuple[str, ...] = ()
    """Further notes on the row."""
    differences: tuple[ValueDifference, ...] = ()
    """The values that differ, if values are shown."""


def render_row(row: ComparisonRow, *, values: bool = False, redact: Redaction | None = None) -> RenderedRow:
    """Returns a row as text."""
    differing, differences = render_differences(row, values=values, redact=redact)
    mark = symbol_for(row.verdict, differs=bool(differing), in_order=row.in_order)
    failed = row.called is not None and row.called.error is not None
    return RenderedRow(
        expected=truncate(row.expected.name) if row.expected else None,
        called=truncate(row.called.name) if row.called else None,
        mark=mark,
        differing=tuple(differing),
        notes=tuple(row_notes(mark, in_order=row.in_order, failed=failed, note=row.note)),
        differences=tuple(differences),
    )


def render_differences(
    row: ComparisonRow, *, values: bool = False, redact: Redaction | None = None
) -> tuple[list[str], list[ValueDifference]]:
    """Returns the paths that differ and, if `values` is true, the values; see `RenderedRow`."""
    differing: list[str] = []
    differences: list[ValueDifference] = []
    for part, agreement in (("", row.agreement), ("result", row.result_agreement)):
        for difference in agreement.differences if agreement else ():
            path = join_path(part, difference.key) or "arguments"
            differing.append(path)
            if values:
                expected, called = (
                    format_value(difference.expected, path, redact),
                    format_value(difference.called, path, redact),
                )
                differences.append(ValueDifference(path, expected, called, difference.note, difference.hint))
    return differing, differences


def symbol_for(verdict: RowVerdict, *, differs: bool, in_order: bool | None) -> Symbol:
    """Returns the symbol between the two sides of a row."""
    if verdict == "paired" and differs:
        return DIFFERS
    return MISPLACED if verdict == "paired" and in_order is False else _SYMBOL_BY_VERDICT[verdict]


def row_notes(mark: Symbol, *, in_order: bool | None, failed: bool, note: str | None) -> Iterator[str]:
    """Yield the notes on a row that its symbol does not express."""
    if mark is DIFFERS and in_order is False:
        yield MISPLACED.meaning
    if failed:
        yield "failed"
    if note and note != NO_GOLDEN_NOTE and mark is not _SYMBOL_BY_VERDICT["superseded"]:
        yield note


# --- blocks for Markdown and HTML -------------------------------------------------------------------------------------


def heading_block(
    mark: Symbol, name: str, request: str | None, redact: Redaction | None = None
) -> tuple[TextSpan, ...]:
    """Returns the heading of an evaluation: its symbol, name and request."""
    return (TextSpan(mark.sign, mark.tone), TextSpan(" "), *title_spans(name, request, redact))


def comparison_blocks(
    rows: Sequence[ComparisonRow],
    *,
    has_golden: bool = True,
    approximate: str | None = None,
    values: bool = False,
    redact: Redaction | None = None,
) -> Iterator[Block]:
    """Yield the table of expected and called tools; `has_golden`: whether the run has a golden."""
    lines = [render_row(row, values=values, redact=redact) for row in rows[:MAX_ROWS]]
    yield from table_blocks(lines, len(rows) - len(lines), has_golden=has_golden)
    if approximate:
        yield (TextSpan(f"There may be a better pairing, with {approximate}.", "quiet"),)


def table_blocks(lines: Sequence[RenderedRow], omitted: int = 0, *, has_golden: bool = True) -> Iterator[Block]:
    """Yield the table of rendered rows, and the number of omitted rows."""
    if lines:
        yield Table(("expected", "", "called", ""), tuple(map(_row_cells, lines)))
    else:
        yield (TextSpan(f"Nothing was {'expected and nothing was ' if has_golden else ''}called.", "quiet"),)
    if omitted:
        yield (TextSpan(f"{omitted} more rows", "quiet"),)


def score_blocks(scores: Iterable[Score]) -> Iterator[Block]:
    """Yield the table of scores with value, threshold and result, and the reasons of metrics without a value."""
    rows = []
    unknown: dict[str, list[str]] = {}
    for score in scores:
        if score.value is None and score.error is None:
            unknown.setdefault(score.reason or "", []).append(score.metric)
        else:
            rows.append(_score_cells(score))
    if rows:
        yield Table(("metric", "value", "at least", ""), tuple(rows))
    if unknown:
        groups = (
            [
                *join_spans([[TextSpan(name, "name")] for name in names], ", "),
                TextSpan(f" ({reason})" if reason else "", "quiet"),
            ]
            for reason, names in unknown.items()
        )
        yield TextSpan("Not measured: ", "quiet"), *join_spans(groups, "; ")


def _row_cells(line: RenderedRow) -> tuple[Cell, ...]:
    return (
        (TextSpan(line.expected, "name"),) if line.expected is not None else EMPTY_CELL,
        (TextSpan(line.mark.sign, line.mark.tone),),
        (TextSpan(line.called, "name"),) if line.called is not None else EMPTY_CELL,
        tuple(_row_remarks(line)),
    )


def _row_remarks(line: RenderedRow) -> Iterator[TextSpan]:
    """Yield the remarks on a row. They also explain the symbol, for readers who do not know it."""
    remarks: list[list[TextSpan]] = []
    if line.differing:
        paths = [[TextSpan(path, "name")] for path in line.differing]
        remarks.append(
            [TextSpan("differs in "), *join_spans(paths, ", ")]
            if not line.differences
            else [TextSpan(line.mark.meaning)]
        )
    elif line.mark is not AGREES and not (line.notes and line.mark.tone == "quiet"):
        remarks.append([TextSpan(line.mark.meaning)])
    remarks += [[TextSpan(note)] for note in line.notes]
    remarks += [[TextSpan(str(difference))] for difference in line.differences]
    return iter(join_spans(remarks, "; "))


def _score_cells(score: Score) -> tuple[Cell, ...]:
    mark = OUTCOME_SYMBOLS[score.passed]
    ended = [TextSpan(mark.meaning, mark.tone)] if score.passed is not None else []
    return (
        (TextSpan(score.metric, "name"),),
        (TextSpan(f"{score.value:.4f}"),) if score.value is not None else EMPTY_CELL,
        (TextSpan(f"{score.threshold:g}"),) if score.threshold is not None else (),
        ended if score.error is None else (TextSpan(f"error: {score.error}", "bad"),),
    )
