"""What the spans of LangGraph's graphs have in common, whoever traces them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def said_in(state: Any) -> list[Any]:
    """The messages in a graph's state, as written; none in anything else."""
    said = state.get("messages") if isinstance(state, Mapping) else None
    return said if isinstance(said, list) else []


def is_graph(given: Any, returned: Any) -> bool:
    """Whether a chain is a whole graph: it returns its state, in which what it was asked comes before what it said.

    A node of a graph returns only what it adds.
    """
    asked = said_in(given)
    words = _content(asked[-1]) if asked else None
    return bool(words) and any(_content(item) == words for item in said_in(returned)[:-1])


def _content(item: Any) -> Any:
    """What a message says: of a dictionary, of an object that LangChain serialized, or of a role and its words."""
    if isinstance(item, Mapping):
        fields = item.get("kwargs") if item.get("type") == "constructor" else item
        return fields.get("content") if isinstance(fields, Mapping) else None
    return item[1] if isinstance(item, list) and len(item) == _PAIR else item


_PAIR = 2
