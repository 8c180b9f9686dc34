"""Labels of metrics: only so many different values, so that no back end is flooded."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from goldspan import semconv
from goldspan.goldens import Goldens


class Bounded:
    """Lets the first few different values pass; whatever is new after that is `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, value: str) -> str:
        """The value itself, or `other`."""
        if value in self._known:
            return value
        with self._lock:
            if len(self._known) < self._most:
                self._known.add(value)
            return value if value in self._known else semconv.OTHER


def tool_names(goldens: Goldens) -> Iterator[str]:
    """The names of tools that goldens expect, then those they declare: of two spellings the later one is the label."""
    yield from (tool.name for golden in goldens for tool in golden.calls)
    yield from (tool.name for tool in goldens.vocabulary.tools)
