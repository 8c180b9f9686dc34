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
from goldspan.goldens.golden_files import golden_formats
from goldspan.goldens.golden_files.golden_formats import GoldenDocument
from goldspan.goldens.lookup.golden_lookup import DEFAULT_MARGIN, DEFAULT_NEAR, Goldens
from goldspan.goldens.schema.golden_models import DECLARATION_KEYS
from goldspan.goldens.schema.golden_parser import (
    GoldenContext,
    MetricCollections,
    ParsedHeader,
    parse_golden,
    parse_header,
    resolve_metrics,
)
from goldspan.goldens.spelling import join_words, short_repr
from goldspan.goldens.tool_names import (
    FileDeclarations,
    ToolNameMatcher,
    combine_declarations,
    declaration_defaults,
    tool_name_matcher,
)
from goldspan.model import NO_VOCABULARY, ComponentSelector, Golden, ToolCall, Vocabulary

OnGoldenError = Callable[[GoldenError], None]
"""Told of whatever is wrong; where it returns, what is wrong is left out and reading goes on."""


def load_goldens(
    *paths: str | os.PathLike[str],
    near: float | None = DEFAULT_NEAR,
    margin: float = DEFAULT_MARGIN,
    on_warning: Callable[[str], None] | None = None,
) -> Goldens:
    """Read goldens from YAML (`.yaml`, `.yml`), JSON (`.json`) and JSON lines (`.jsonl`, `.ndjson`).

    Raises `GoldenError`, one sentence that names file, golden and field, for whatever a person can get wrong. Keys that
    are not goldspan's are kept as the golden's metadata; `on_warning` is told so once a file, and where it is not given
    a `GoldspanWarning` is. What one file declares - tools, servers, collections of metrics - is known to all. `near`
    and `margin` are those of `Goldens`.
    """
    with _garbage_collection_paused():
        library = read_golden_files([Path(path) for path in paths], _raise)
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
class LocatedGolden:
    """A golden and where it was read."""

    golden: Golden
    file: str


@dataclass(frozen=True, slots=True)
class GoldenLibrary:
    """Everything in some golden files, in their order."""

    entries: Sequence[LocatedGolden]
    vocabulary: Vocabulary = NO_VOCABULARY
    components: tuple[ComponentSelector, ...] = ()
    warnings: Sequence[str] = ()


def read_golden_files(paths: Sequence[Path], on_error: OnGoldenError) -> GoldenLibrary:
    """Read golden files as far as they can be read. Raises `GoldenError` for a file that cannot be read at all."""
    if not paths:
        raise GoldenError("no golden file was named.")
    files = [_parse_file(golden_formats.read_golden_document(path), on_error) for path in paths]
    vocabulary = _combine_vocabularies(files, on_error)
    # What a head with a mistake in it declares is not known, and not missing either.
    collections = None if any(file.has_errors for file in files) else _combine_metric_collections(files, on_error)
    entries = list(_parse_goldens(files, vocabulary, collections, on_error))
    if not entries and not any(file.has_errors for file in files):
        on_error(GoldenError(f"{files[0].name}: the file holds no golden."))
    components = _combine_components(files, on_error)
    return GoldenLibrary(
        entries, vocabulary, components, [_extra_keys_warning(file) for file in files if file.extra_keys]
    )


def _extra_keys_warning(file: _ParsedFile) -> str:
    shown_keys = [short_repr(key) for key in islice(file.extra_keys, _MAX_LISTED_KEYS)]
    if len(file.extra_keys) > _MAX_LISTED_KEYS:
        shown_keys.append(f"{len(file.extra_keys) - _MAX_LISTED_KEYS} more")
    return f"{file.name}: keys that are not goldspan's are kept as metadata: {join_words(shown_keys)}."


_MAX_LISTED_KEYS = 20
"""So many keys are told one by one."""


def _raise(error: GoldenError) -> NoReturn:
    raise error


@contextmanager
def _garbage_collection_paused() -> Iterator[None]:
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
class _ParsedFile:
    """A golden file whose head has been read."""

    name: str
    entries: Sequence[tuple[str, Any]]
    header: ParsedHeader = field(default_factory=ParsedHeader)
    extra_keys: dict[str, None] = field(default_factory=dict)
    """The keys so far that are not ours, in order."""
    has_errors: bool = False
    """Whether there are mistakes in it."""


def _parse_file(document: GoldenDocument, on_mistake: OnGoldenError) -> _ParsedFile:
    file = _ParsedFile(document.name, document.entries)
    if not document.entries and not any(document.header.get(key) for key in DECLARATION_KEYS):
        raise GoldenError(f"{document.name}: the file holds no golden.")
    try:
        file.header = parse_header(document.header, document.name)
        file.extra_keys.update(dict.fromkeys(file.header.extra_keys))
    except GoldenError as error:
        file.has_errors = True
        on_mistake(error)
    return file


def _combine_vocabularies(files: Sequence[_ParsedFile], on_mistake: OnGoldenError) -> Vocabulary:
    try:
        return combine_declarations(
            FileDeclarations(file.name, file.header.tools, file.header.servers) for file in files
        )
    except GoldenError as error:
        on_mistake(error)
        return NO_VOCABULARY


def _combine_metric_collections(files: Sequence[_ParsedFile], on_mistake: OnGoldenError) -> MetricCollections:
    """The collections of metrics of all files, known to all of them."""
    found: dict[str, tuple[str, ...]] = {}
    home: dict[str, str] = {}
    for file in files:
        for name, metrics in file.header.collections.items():
            elsewhere = home.setdefault(name, file.name)
            if found.setdefault(name, metrics) != metrics:
                on_mistake(GoldenError(f"{file.name}, metrics {name!r}: {elsewhere} declares them differently."))
    return found


def _combine_components(files: Sequence[_ParsedFile], on_mistake: OnGoldenError) -> tuple[ComponentSelector, ...]:
    """The components that all files declare; several may declare the same one alike."""
    found: dict[str, ComponentSelector] = {}
    home: dict[str, str] = {}
    for file in files:
        for component in file.header.components:
            elsewhere = home.setdefault(component.name, file.name)
            if found.setdefault(component.name, component) != component:
                told = f"{file.name}, component {short_repr(component.name)}: {elsewhere} declares it differently."
                on_mistake(GoldenError(told))
    return tuple(found.values())


def _parse_goldens(
    files: Sequence[_ParsedFile],
    vocabulary: Vocabulary,
    collections: MetricCollections | None,
    on_mistake: OnGoldenError,
) -> Iterator[LocatedGolden]:
    home: dict[str, str] = {}
    whole = GoldenContext(vocabulary=vocabulary, add_declared=declaration_defaults(vocabulary), collections=collections)
    same = _ForbiddenToolCheck(tool_name_matcher(vocabulary))
    for file in files:
        context = replace(whole, rules=_default_rules(file, collections, on_mistake))
        for position, entry in file.entries:
            golden_id = entry.get("id") if isinstance(entry, dict) else None
            named = f"golden {short_repr(golden_id)}" if isinstance(golden_id, str) and golden_id else position
            where = f"{file.name}, {named}"
            try:
                golden, strange = parse_golden(entry, where, context)
                file.extra_keys.update(dict.fromkeys(strange))
                same.check(golden, where)
                if golden.id in home:
                    elsewhere = "" if home[golden.id] == file.name else f", in {home[golden.id]}"
                    raise GoldenError(f"{where}: the id is already taken{elsewhere}.")
            except GoldenError as error:
                file.has_errors = True
                on_mistake(error)
            else:
                home[golden.id] = file.name
                yield LocatedGolden(golden, file.name)


def _default_rules(
    file: _ParsedFile, collections: MetricCollections | None, on_mistake: OnGoldenError
) -> Mapping[str, Any]:
    """What the goldens of a file say that do not say otherwise."""
    try:
        return resolve_metrics(file.header.rules, collections, f"{file.name}, defaults")
    except GoldenError as error:
        file.has_errors = True
        on_mistake(error)
        return {}


class _ForbiddenToolCheck:
    """Which names mean the same tool. It remembers its answers: goldens repeat each other."""

    def __init__(self, names: ToolNameMatcher) -> None:
        self._tool_identity = lru_cache(maxsize=4096)(
            lambda name, server: names.tool_identity(ToolCall(name, server=server))
        )

    def check(self, golden: Golden, where: str) -> None:
        """Refuse a golden that expects a tool and forbids it."""
        forbidden = {self._tool_identity(name, None) for name in golden.forbid if not _GLOB_CHARACTERS.search(name)}
        for tool in golden.expected_calls if forbidden else ():
            if self._tool_identity(tool.name, tool.server) in forbidden:
                raise GoldenError(f"{where}: {tool.name!r} is both expected and forbidden.")


_GLOB_CHARACTERS = re.compile(r"[*?\[]")
