"""What a run itself says is expected of it, as a golden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from goldspan.errors import GoldenError
from goldspan.goldens.vocabulary import completing
from goldspan.model import ExpectedTool, Golden, Item, Vocabulary

ANONYMOUS = "given"
"""The id of what was expected without a name."""


def stated(expected: Sequence[Any], named: Golden | None, golden_id: str | None, vocabulary: Vocabulary) -> Golden:
    """The golden that expects these tools, in the words of a golden's `tools`.

    Where the run names a golden, it is that one with these tools in place of its own. Raises `GoldenError` for what
    cannot be read.
    """
    base = named or _bare(golden_id or ANONYMOUS, vocabulary)
    names = tuple(expected)
    if len(names) == 1 and isinstance(names[0], str) and names[0].lstrip().startswith(("[", "{")):
        # It was handed on as it was, because it could not be read. What is too long to be captured ends in an ellipsis.
        raise GoldenError("expected_tools is " + ("too long, and cut off" if names[0].endswith("…") else "no JSON"))
    if all(type(name) is str and name for name in names):
        return _of_names(base, names)
    return replace(base, tools=_items(names, vocabulary), policy=False)


@lru_cache(maxsize=1024)
def _bare(golden_id: str, vocabulary: Vocabulary) -> Golden:
    return Golden(golden_id, vocabulary=vocabulary)


@lru_cache(maxsize=1024)
def _of_names(base: Golden, names: tuple[str, ...]) -> Golden:
    """Lists of names come again and again; the golden of one keeps what was once found out about it."""
    known = completing(base.vocabulary)
    return replace(base, tools=tuple(known(ExpectedTool(name)) for name in names), policy=False)


def _items(expected: tuple[Any, ...], vocabulary: Vocabulary) -> tuple[Item, ...]:
    from goldspan.goldens.language import items  # it loads pydantic, which names need not pay for

    return items(expected, "expected_tools", completing(vocabulary))
