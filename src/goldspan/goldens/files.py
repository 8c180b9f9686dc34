"""Golden files: read, checked, and put together as one set of goldens."""

from __future__ import annotations

import gc
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from goldspan.errors import GoldenError, GoldspanWarning
from goldspan.goldens import documents
from goldspan.goldens.documents import Document
from goldspan.goldens.entries import DECLARING
from goldspan.goldens.language import Collections, Context, Surroundings, measured, read_golden, read_head
from goldspan.goldens.lookup import MARGIN, NEAR, Goldens
from goldspan.goldens.naming import Naming, naming
from goldspan.goldens.vocabulary import Declared, combined, completing
from goldspan.goldens.words import listed, shown
from goldspan.model import NO_VOCABULARY, ComponentSpans, Golden, ToolCall, Vocabulary

OnMistake = Callable[[GoldenError], None]
"""Told of whatever is wrong; where it returns, what is wrong is left out and reading goes on."""


def load_goldens(
    *paths: str | os.PathLike[str],
    near: float | None = NEAR,
    margin: float = MARGIN,
    on_warning: Callable[[str], None] | None = None,
) -> Goldens:
    """Read goldens from YAML (`.yaml`, `.yml`), JSON (`.json`) and JSON lines (`.jsonl`, `.ndjson`).

    Raises `GoldenError`, one sentence that names file, golden and field, for whatever a person can get wrong. Keys that
    are not goldspan's are kept as the golden's metadata; `on_warning` is told so once a file, and where it is not given
    a `GoldspanWarning` is. What one file declares - tools, servers, collections of metrics - is known to all. `near`
    and `margin` are those of `Goldens`.
    """
    with _collector_at_rest():
        library = read_files([Path(path) for path in paths], _raised)
        goldens = Goldens(
            [entry.golden for entry in library.entries],
            vocabulary=library.vocabulary,
            components=library.components,
            near=near,
            margin=margin,
        )
    for told in library.warnings:
        if on_warning:
            on_warning(told)
        else:
            warnings.warn(told, GoldspanWarning, stacklevel=2)
    return goldens


@dataclass(frozen=True, slots=True)
class Placed:
    """A golden and where it was read."""

    golden: Golden
    file: str


@dataclass(frozen=True, slots=True)
class Library:
    """Everything in some golden files, in their order."""

    entries: Sequence[Placed]
    vocabulary: Vocabulary = NO_VOCABULARY
    components: tuple[ComponentSpans, ...] = ()
    warnings: Sequence[str] = ()


def read_files(paths: Sequence[Path], on_mistake: OnMistake) -> Library:
    """Read golden files as far as they can be read. Raises `GoldenError` for a file that cannot be read at all."""
    if not paths:
        raise GoldenError("no golden file was named.")
    files = [_opened(documents.read(path), on_mistake) for path in paths]
    vocabulary = _combined(files, on_mistake)
    # What a head with a mistake in it declares is not known, and not missing either.
    collections = None if any(file.faulty for file in files) else _collections(files, on_mistake)
    entries = list(_entries(files, vocabulary, collections, on_mistake))
    if not entries and not any(file.faulty for file in files):
        on_mistake(GoldenError(f"{files[0].name}: the file holds no golden."))
    components = _components(files, on_mistake)
    return Library(entries, vocabulary, components, [_warning(file) for file in files if file.strange])


def _warning(file: _File) -> str:
    shown_keys = [shown(key) for key in islice(file.strange, _TOLD)]
    if len(file.strange) > _TOLD:
        shown_keys.append(f"{len(file.strange) - _TOLD} more")
    return f"{file.name}: keys that are not goldspan's are kept as metadata: {listed(shown_keys)}."


_TOLD = 20
"""So many keys are told one by one."""


def _raised(error: GoldenError) -> NoReturn:
    raise error


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Make values without Python looking for circles among them: there are none, and all of them stay.

    With 100,000 goldens looking took twice as long as reading.
    """
    at_work = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if at_work:
            gc.enable()


@dataclass(slots=True)
class _File:
    """A golden file whose head has been read."""

    name: str
    entries: Sequence[tuple[str, Any]]
    head: Surroundings = field(default_factory=Surroundings)
    strange: dict[str, None] = field(default_factory=dict)
    """The keys so far that are not ours, in order."""
    faulty: bool = False
    """Whether there are mistakes in it."""


def _opened(document: Document, on_mistake: OnMistake) -> _File:
    file = _File(document.name, document.entries)
    if not document.entries and not any(document.head.get(key) for key in DECLARING):
        raise GoldenError(f"{document.name}: the file holds no golden.")
    try:
        file.head = read_head(document.head, document.name)
        file.strange.update(dict.fromkeys(file.head.strange))
    except GoldenError as error:
        file.faulty = True
        on_mistake(error)
    return file


def _combined(files: Sequence[_File], on_mistake: OnMistake) -> Vocabulary:
    try:
        return combined(Declared(file.name, file.head.tools, file.head.servers) for file in files)
    except GoldenError as error:
        on_mistake(error)
        return NO_VOCABULARY


def _collections(files: Sequence[_File], on_mistake: OnMistake) -> Collections:
    """The collections of metrics of all files, known to all of them."""
    found: dict[str, tuple[str, ...]] = {}
    home: dict[str, str] = {}
    for file in files:
        for name, metrics in file.head.collections.items():
            elsewhere = home.setdefault(name, file.name)
            if found.setdefault(name, metrics) != metrics:
                on_mistake(GoldenError(f"{file.name}, metrics {name!r}: {elsewhere} declares them differently."))
    return found


def _components(files: Sequence[_File], on_mistake: OnMistake) -> tuple[ComponentSpans, ...]:
    """The components that all files declare; several may declare the same one alike."""
    found: dict[str, ComponentSpans] = {}
    home: dict[str, str] = {}
    for file in files:
        for component in file.head.components:
            elsewhere = home.setdefault(component.name, file.name)
            if found.setdefault(component.name, component) != component:
                told = f"{file.name}, component {shown(component.name)}: {elsewhere} declares it differently."
                on_mistake(GoldenError(told))
    return tuple(found.values())


def _entries(
    files: Sequence[_File], vocabulary: Vocabulary, collections: Collections | None, on_mistake: OnMistake
) -> Iterator[Placed]:
    home: dict[str, str] = {}
    whole = Context(vocabulary=vocabulary, known=completing(vocabulary), collections=collections)
    same = _Sameness(naming(vocabulary))
    for file in files:
        context = replace(whole, rules=_rules(file, collections, on_mistake))
        for position, entry in file.entries:
            golden_id = entry.get("id") if isinstance(entry, dict) else None
            named = f"golden {shown(golden_id)}" if isinstance(golden_id, str) and golden_id else position
            where = f"{file.name}, {named}"
            try:
                golden, strange = read_golden(entry, where, context)
                file.strange.update(dict.fromkeys(strange))
                same.check_forbidden(golden, where)
                if golden.id in home:
                    elsewhere = "" if home[golden.id] == file.name else f", in {home[golden.id]}"
                    raise GoldenError(f"{where}: the id is already taken{elsewhere}.")
            except GoldenError as error:
                file.faulty = True
                on_mistake(error)
            else:
                home[golden.id] = file.name
                yield Placed(golden, file.name)


def _rules(file: _File, collections: Collections | None, on_mistake: OnMistake) -> Mapping[str, Any]:
    """What the goldens of a file say that do not say otherwise."""
    try:
        return measured(file.head.rules, collections, f"{file.name}, defaults")
    except GoldenError as error:
        file.faulty = True
        on_mistake(error)
        return {}


class _Sameness:
    """Which names mean the same tool. It remembers its answers: goldens repeat each other."""

    def __init__(self, names: Naming) -> None:
        self._tool = lru_cache(maxsize=4096)(lambda name, server: names.tool(ToolCall(name, server=server)))

    def check_forbidden(self, golden: Golden, where: str) -> None:
        """Refuse a golden that expects a tool and forbids it."""
        forbidden = {self._tool(name, None) for name in golden.forbid if not _WILD.search(name)}
        for tool in golden.calls if forbidden else ():
            if self._tool(tool.name, tool.server) in forbidden:
                raise GoldenError(f"{where}: {tool.name!r} is both expected and forbidden.")


_WILD = re.compile(r"[*?\[]")
