"""Keeps extracted runs in files until it is known whether they are connected with others."""

from __future__ import annotations

import copyreg
import pickle
from array import array
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, NamedTuple

from goldspan.extraction.run_extraction import run_order
from goldspan.extraction.span_node import UNKNOWN_TIME
from goldspan.model import Health, Run, ToolCall, ToolDefinition, fast_constructor


class RunSpool(NamedTuple):
    """A file with runs, and for each run its place, its start and its trace."""

    path: str
    offsets: array[int]
    starts: array[int]
    """The start times in nanoseconds; an unknown one is the largest number, and sorts last."""
    places: array[int]
    """The place of the first span of the traces of each run among all records."""
    traces: array[int]
    """The number of the trace of each run, in the order of extraction."""


class RunSpoolWriter:
    """Writes runs to a spool."""

    def __init__(self, path: str | Path) -> None:
        """Create the file."""
        self._path = str(path)
        self._file = open(path, "wb")  # noqa: SIM115 - closed by `__exit__`
        self._offsets, self._starts, self._places, self._traces = array("Q"), array("Q"), array("Q"), array("I")

    def __enter__(self) -> RunSpoolWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, runs: Iterable[Run], trace: int, places: Mapping[str, int]) -> None:
        """Add the runs of a trace; `places` has the places of the first spans of the traces that they are from."""
        for run in runs:
            start, place = run_order(run, places)
            self._offsets.append(self._file.tell())
            self._starts.append(min(start, _MAX_START))
            self._places.append(place)
            self._traces.append(trace)
            pickler = pickle.Pickler(self._file, protocol=5)
            pickler.dispatch_table = _REDUCERS
            pickler.dump(run)

    def finish(self) -> RunSpool:
        """Close the file and return the spool."""
        self._file.close()
        return RunSpool(self._path, self._offsets, self._starts, self._places, self._traces)


def _reducer(dataclass_type: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Returns how a frozen dataclass is pickled: by its values, which takes a third of the time of the default."""
    names = [each.name for each in fields(dataclass_type)]
    read = attrgetter(*names)
    return lambda value: (_MAKERS[dataclass_type], read(value))


def _make_run(*values: Any) -> Run:
    return _Run(*values)


def _make_call(*values: Any) -> ToolCall:
    return _ToolCall(*values)


def _make_health(*values: Any) -> Health:
    return _Health(*values)


def _make_tool(*values: Any) -> ToolDefinition:
    return _ToolDefinition(*values)


_Run, _ToolCall, _Health = fast_constructor(Run), fast_constructor(ToolCall), fast_constructor(Health)
_ToolDefinition = fast_constructor(ToolDefinition)
_MAKERS: Mapping[type[Any], Callable[..., Any]] = {
    Run: _make_run,
    ToolCall: _make_call,
    Health: _make_health,
    ToolDefinition: _make_tool,
}
_REDUCERS: ChainMap[type[Any], Callable[[Any], Any]] = ChainMap(
    {found: _reducer(found) for found in _MAKERS}, copyreg.dispatch_table
)
_MAX_START = UNKNOWN_TIME - 1


class RunReader:
    """Reads single runs out of spools."""

    def __init__(self) -> None:
        self._files: dict[str, IO[bytes]] = {}

    def __enter__(self) -> RunReader:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def read(self, path: str, offset: int) -> Run:
        """Return the run at this place."""
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = open(path, "rb")  # noqa: SIM115 - closed by `__exit__`
        file.seek(offset)
        run: Run = pickle.load(file)
        return run


class RunPlace(NamedTuple):
    """Where a run is stored."""

    path: str
    offset: int


def read_runs(places: Iterable[RunPlace]) -> Iterator[Run]:
    """Yields the runs at these places, in their order."""
    with RunReader() as reader:
        for place in places:
            yield reader.read(*place)
