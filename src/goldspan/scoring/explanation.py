"""A comparison in one sentence for people. It names tools and arguments, and never shows a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sized

from goldspan.model import Comparison, Row

_SHOWN = 5
_NAME_LENGTH = 60


def reason(seen: Comparison) -> str:
    """What is missing, unexpected, forbidden, out of order or failed, and which arguments differ.

    "Expected book_hotel was not called; cancel_trip was called but not expected."
    """
    if seen.golden is None:
        return "No golden applies to this run."
    clauses = [_expected(seen), _unexpected(seen), _forbidden(seen), _misplaced(seen), _failed(seen), *_differing(seen)]
    return f"{'; '.join(filter(None, clauses))}."


def _expected(seen: Comparison) -> str:
    if seen.missing:
        return f"Expected {_names(seen.missing)} {_were(seen.missing)} not called"
    if len(seen.pairs) > 1:
        ordered = ", in order" if all(pair.in_order for pair in seen.pairs) else ""
        return f"All {len(seen.pairs)} expected tools were called{ordered}"
    if seen.pairs:
        return f"Expected {_names(seen.pairs)} was called"
    if seen.unexpected or seen.forbidden:
        return "No tool was expected"
    return f"No tool was expected and none {'that counts ' if seen.rows else ''}was called"


def _unexpected(seen: Comparison) -> str:
    if not seen.unexpected:
        return ""
    but = " but not expected" if seen.pairs or seen.missing else ""
    return f"{_names(seen.unexpected)} {_were(seen.unexpected)} called{but}"


def _forbidden(seen: Comparison) -> str:
    return f"{_names(seen.forbidden)} {_were(seen.forbidden)} called but forbidden" if seen.forbidden else ""


def _misplaced(seen: Comparison) -> str:
    misplaced = [pair for pair in seen.pairs if not pair.in_order]
    if not misplaced or seen.golden is None or seen.golden.order == "any":
        return ""
    return f"{_names(misplaced)} {_were(misplaced)} called out of order"


def _failed(seen: Comparison) -> str:
    failed = [pair for pair in seen.pairs if pair.called and pair.called.error is not None]
    return f"{_names(failed)} failed" if failed else ""


def _differing(seen: Comparison) -> Iterable[str]:
    differing = [pair for pair in seen.pairs if pair.agreement and pair.agreement.differences]
    for pair in differing[:_SHOWN]:
        keys = [difference.key for difference in pair.agreement.differences] if pair.agreement else []
        yield f"{_names([pair])} differs in {_listed(keys) if all(keys) else 'all its arguments'}"
    if len(differing) > _SHOWN:
        yield f"{len(differing) - _SHOWN} more calls differ in their arguments"


def _names(rows: Iterable[Row]) -> str:
    """The tools of some rows, each once: `search x2 and book`."""
    return _listed(_name(row) for row in rows)


def _name(row: Row) -> str:
    tool = row.expected or row.called
    return tool.name if tool else ""


def _listed(words: Iterable[str]) -> str:
    counts = Counter(words)
    shown = [_short(word) + (f" x{count}" if count > 1 else "") for word, count in counts.items()][:_SHOWN]
    if len(counts) > _SHOWN:
        return f"{', '.join(shown)} and {len(counts) - _SHOWN} more"
    *others, last = shown
    return f"{', '.join(others)} and {last}" if others else last


def _short(word: str) -> str:
    return word if len(word) <= _NAME_LENGTH else f"{word[: _NAME_LENGTH - 3]}..."


def _were(rows: Sized) -> str:
    return "was" if len(rows) == 1 else "were"
