"""Finds the groups of traces that must be extracted together, from the links of all traces.

Two traces are connected if they have the same key at the same time, on different sides. A group contains all traces
that are connected directly or through others.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import IO, Final, NamedTuple, TypeAlias

from goldspan.extraction.span_node import UNKNOWN_TIME
from goldspan.extraction.trace_links import ANY_SIDE, TraceLink

_PARTS: Final = 64
"""The links are divided by their keys, so that a small part of them is in memory."""
_LINK: Final = struct.Struct("<QQQQI")
_MAX_TIME: Final = UNKNOWN_TIME - 1


_Link: TypeAlias = tuple[int, int, int, int, int]
"""The key, start, end, side and trace of a link, in the order in which links are sorted."""


class LinkFile(NamedTuple):
    """A file with links, and where the pieces of each part are in it."""

    path: str
    pieces: tuple[array[int], ...]


class LinkWriter:
    """Writes the links of traces to a file."""

    def __init__(self, path: str | Path) -> None:
        """Create the file."""
        self._path = str(path)
        self._file = open(path, "wb")  # noqa: SIM115 - closed by `__exit__`
        self._parts = [bytearray() for _ in range(_PARTS)]
        self._pieces = tuple(array("Q") for _ in range(_PARTS))

    def __enter__(self) -> LinkWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, links: Iterable[TraceLink], trace: int) -> None:
        """Add the links of a trace."""
        for key, side, start, end in links:
            part = self._parts[key % _PARTS]
            part += _LINK.pack(key, side, min(start, _MAX_TIME), min(end, _MAX_TIME), trace)
            if len(part) > 1 << 16:
                self._flush(key % _PARTS)

    def finish(self) -> LinkFile:
        """Close the file and return it."""
        for number in range(_PARTS):
            self._flush(number)
        self._file.close()
        return LinkFile(self._path, self._pieces)

    def _flush(self, number: int) -> None:
        part = self._parts[number]
        if part:
            self._pieces[number].extend((self._file.tell(), len(part)))
            self._file.write(part)
            part.clear()


class TraceGroups:
    """The groups of traces, by number; at first each trace is a group of its own."""

    def __init__(self, traces: int) -> None:
        self._parents = array("I", range(traces))
        self._intervals: dict[int, tuple[int, int]] = {}
        """The time of each group of several traces."""

    def root(self, trace: int) -> int:
        """Return the trace that stands for the group of a trace."""
        parents = self._parents
        while (parent := parents[trace]) != trace:
            parents[trace] = parents[parent]
            trace = parents[trace]
        return trace

    def join(self, files: list[tuple[LinkFile, int]]) -> None:
        """Join all connected traces. Each file is given with the number of its first trace.

        A group is active from the start of its first trace to the end of its last. So a group that was joined may
        overlap further traces, and the links are compared again until nothing is joined.
        """
        while self._join_once(files):
            self._measure(files)

    def members(self) -> dict[int, int]:
        """Return the traces in groups of several traces, each with the root of its group."""
        roots = {trace: self.root(trace) for trace in range(len(self._parents)) if self._parents[trace] != trace}
        roots.update((root, root) for root in set(roots.values()))
        return roots

    def _join_once(self, files: list[tuple[LinkFile, int]]) -> bool:
        is_joined = False
        for part in range(_PARTS):
            links = sorted(map(self._with_group_time, self._links(files, part)))
            for _, same_key in groupby(links, key=lambda link: link[0]):
                is_joined |= self._join_same_key(list(same_key))
        return is_joined

    def _with_group_time(self, link: _Link) -> _Link:
        interval = self._intervals.get(self.root(link[4])) if self._intervals else None
        if interval is None:
            return link
        key, start, end, *rest = link
        return (key, min(start, interval[0]), max(end, interval[1]), *rest)  # type: ignore[return-value]

    def _links(self, files: Iterable[tuple[LinkFile, int]], part: int) -> Iterator[_Link]:
        """Yields the key, start, end, side and trace of each link."""
        for file, first_trace in files:
            pieces = file.pieces[part]
            if not pieces:
                continue
            with open(file.path, "rb") as opened:
                for content in _read_pieces(opened, pieces):
                    for key, side, start, end, number in _LINK.iter_unpack(content):
                        yield key, start, end, side, first_trace + number

    def _join_same_key(self, links: list[_Link]) -> bool:
        """Joins the traces of links with one key, ordered by start: those that are active without a gap."""
        if len(links) < 2:
            return False
        is_joined = False
        active: list[_Link] = []
        latest = -1
        for link in links:
            if active and link[1] > latest:
                is_joined |= self._join_active(active)
                active = []
            active.append(link)
            latest = max(latest, link[2])
        return self._join_active(active) or is_joined

    def _join_active(self, links: list[_Link]) -> bool:
        sides = {link[3] for link in links}
        if len(sides) < 2 and ANY_SIDE not in sides:
            return False
        roots = {self.root(link[4]) for link in links}
        if len(roots) < 2:
            return False
        # The first trace stands for its group, so that the result is the same in whatever order.
        first = min(roots)
        for root in roots:
            self._parents[root] = first
        return True

    def _measure(self, files: Iterable[tuple[LinkFile, int]]) -> None:
        """Sets the time of each group of several traces."""
        roots = self.members()
        self._intervals = {}
        for part in range(_PARTS):
            for _, start, end, _, trace in self._links(files, part):
                if trace in roots and (start, end) != (0, _MAX_TIME):
                    known = self._intervals.get(roots[trace], (start, end))
                    self._intervals[roots[trace]] = min(start, known[0]), max(end, known[1])


def _read_pieces(file: IO[bytes], pieces: array[int]) -> Iterator[bytes]:
    for position, length in zip(pieces[::2], pieces[1::2], strict=True):
        file.seek(position)
        yield file.read(length)
