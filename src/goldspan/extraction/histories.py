"""Histories that were read before: each turn of a model repeats what was said up to it, and only its end is news.

Without this, reading a request would take time that grows with the square of its turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from goldspan.extraction.notation import listed
from goldspan.extraction.spoken import Message, Messages

_MOST = 8
"""Histories that are kept; hardly ever do more of them grow at the same time."""
_LONGEST = 1_000_000
"""Characters of one that is kept."""
_SPACE = " \t\n\r"
"""What may stand between the parts of JSON."""


class _Kept:
    """The histories that were read last, the latest first."""

    __slots__ = ("lists", "texts")

    def __init__(self) -> None:
        self.texts: list[tuple[str, Messages]] = []
        """JSON without the closing bracket, and the messages in it."""
        self.lists: list[tuple[str, Sequence[Any], Messages]] = []
        """What the items are, the items, and the message that each of them is."""


_kept: ContextVar[_Kept | None] = ContextVar("goldspan_histories", default=None)


@contextmanager
def remembered() -> Iterator[None]:
    """Within this, and in this thread or task alone, the histories that were read last are kept."""
    token = _kept.set(_Kept())
    try:
        yield
    finally:
        _kept.reset(token)


def in_text(text: str, messages_of: Callable[[Iterable[Any]], Messages]) -> Messages | None:
    """The messages in a JSON list, of which only those are read that no known history has; `None`: it is no such list.

    What `messages_of` makes of an item must not depend on the items around it.
    """
    if text[:1] != "[":
        return None
    kept = _kept.get()
    texts = kept.texts if kept is not None else []
    for place, (beginning, found) in enumerate(texts):
        if text.startswith(beginning):
            rest = text[len(beginning) :].lstrip(_SPACE)
            if rest == "]":
                return found
            added = listed(f"[{rest[1:]}") if rest[:1] == "," else None
            if added:
                found += messages_of(added)
                del texts[place]
                break
    else:
        items = listed(text)
        if items is None:
            return None
        found = messages_of(items)
    if len(found) > 1 and len(text) <= _LONGEST:
        texts.insert(0, (text.rstrip()[:-1], found))
        del texts[_MOST:]
    return found


def in_list(items: Sequence[Any], message_of: Callable[[Any], Message], *, kind: str = "") -> Messages:
    """One message an item, of which only those are read that no known history of items of that kind has."""
    kept = _kept.get()
    if kept is None or not items:
        return tuple(map(message_of, items))
    found: Messages = ()
    for place, (known_kind, known, known_messages) in enumerate(kept.lists):
        if known_kind == kind and known[0] == items[0]:
            pairs = enumerate(zip(known, items, strict=False))
            found = known_messages[: next((at for at, (old, new) in pairs if old != new), None)]
            del kept.lists[place]
            break
    found = found[: len(items)] + tuple(map(message_of, items[len(found) :]))
    kept.lists.insert(0, (kind, items, found))
    del kept.lists[_MOST:]
    return found
