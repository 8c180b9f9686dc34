"""A comparison in one sentence for people. It names tools and arguments, and never shows a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Sized

from goldspan.model import Comparison, Row, ToolDefinition
from goldspan.scoring.suggestions import Collision, NearMiss, collisions, near_misses

_SHOWN = 5
_NAME_LENGTH = 60


def reason(seen: Comparison, available: Sequence[ToolDefinition] = ()) -> str:
    """What is missing, unexpected, forbidden, out of order or failed, which arguments differ, which names nearly match.

    "Expected book_hotel was not called; cancel_trip was called but not expected." `available` are the tools that the
    agent was offered, where that is known: one of them may nearly have the name of a missing one.
    """
    if seen.golden is None:
        return "No golden applies to this run."
    clauses = [_expected(seen), _unexpected(seen), _forbidden(seen), _misplaced(seen), _failed(seen), *_differing(seen)]
    clauses += map(_near_miss, near_misses(seen, available))
    clauses += map(_collision, collisions(seen))
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


def _near_miss(near: NearMiss) -> str:
    expected, name = _short(near.expected), _short(near.name)
    if near.server:
        return f"the {name} that was called is a tool of the server {_short(near.server)}"
    alias = f"under tools as an alias of {expected}"
    advice = f"{_short(near.prefix)} under servers, or {name} {alias}" if near.prefix else f"it {alias}"
    offered = "" if near.called else f"the agent has no {expected}; "
    return f"{offered}did you mean {name}? declare {advice}"


def _collision(shared: Collision) -> str:
    """`add is a tool of orders and stock; name the one that is meant, as in orders_add`."""
    name, example = _short(shared.name), _short(f"{shared.servers[0]}_{shared.name}")
    return f"{name} is a tool of {_listed(shared.servers)}; name the one you mean, as in {example}"


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
