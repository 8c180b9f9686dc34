"""Labels of metrics: only so many different values, so that no back end is flooded."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from goldspan import semconv
from goldspan.goldens import Goldens
from goldspan.model import content_digest
from goldspan.sinks.forking import renew_in_forked_children

_LONGEST = 200
"""Characters of a label: a name may be as long as a client likes, and stands on every line of a scrape."""


def short(value: str) -> str:
    """A value that is not too long for a label: of a longer one the beginning, and a hash of all of it."""
    if len(value) <= _LONGEST:
        return value
    digest = content_digest(value)
    return f"{value[: _LONGEST - len(digest) - 1]}~{digest}"


class Bounded:
    """Lets the first few different values pass; whatever is new after that is `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()
        self.renew()
        renew_in_forked_children(self)

    def renew(self) -> None:
        """Let no forked child wait for a thread of its parent."""
        self._lock = threading.Lock()

    def __call__(self, value: str) -> str:
        """The value itself, cut where it is too long, or `other`."""
        value = short(value)
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
