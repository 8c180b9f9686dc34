"""`load_goldens`: reads and validates golden files and combines them to one `Goldens`."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from goldspan._garbage_collection import garbage_collection_paused
from goldspan.errors import GoldenError, GoldspanWarning
from goldspan.goldens.golden_files import golden_formats
from goldspan.goldens.golden_files.golden_formats import DocumentEntry, GoldenDocument
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
from goldspan.model import NO_VOCABULARY, ComponentSelector, Golden, GoldenSource, ToolCall, Vocabulary
from goldspan.model.goldens import TAGS_KEY

OnGoldenError = Callable[[GoldenError], None]
"""Called with each error. If it returns, the invalid part is skipped and reading continues."""


def load_goldens(
    *paths: str | os.PathLike[str],
    near: float | None = DEFAULT_NEAR,
    margin: float = DEFAULT_MARGIN,
    on_warning: Callable[[str], None] | None = None,
) -> Goldens:
    """Reads goldens from YAML (`.yaml`, `.yml`), JSON (`.json`) and JSON Lines (`.jsonl`, `.ndjson`) files.

    Declarations of one file - tools, servers, collections of metrics - apply to all files. Keys that goldspan does not
    define are kept as metadata of the golden, with one warning per file.

    Args:
        paths: The golden files.
        near: The least similarity, in percent, of a match by similar input; see `Goldens`.
        margin: By how much the best match must exceed other goldens; see `Goldens`.
        on_warning: Called with each warning. By default a `GoldspanWarning` is issued.

    Returns:
        The goldens of all files, in order.

    Raises:
        GoldenError: A file cannot be read or is invalid. The message names file, golden and field.
    """
    with garbage_collection_paused():  # with 100,000 goldens, collections take twice as long as reading
        library = read_golden_files([Path(path) for path in paths], _raise)
        goldens = Goldens(
            [entry.golden for entry in library.entries],
            vocabulary=library.vocabulary,
            components=library.components,
            near=near,
            margin=margin,
        )
    for message in library.warnings:
        if on_warning:
            on_warning(message)
        else:
            warnings.warn(message, GoldspanWarning, stacklevel=2)
    return goldens


@dataclass(frozen=True, slots=True)
class LocatedGolden:
    """A golden and its file."""

    golden: Golden
    file: str


@dataclass(frozen=True, slots=True)
class GoldenLibrary:
    """The contents of golden files, in order."""

    entries: Sequence[LocatedGolden]
    vocabulary: Vocabulary = NO_VOCABULARY
    components: tuple[ComponentSelector, ...] = ()
    warnings: Sequence[str] = ()


def read_golden_files(paths: Sequence[Path], on_error: OnGoldenError) -> GoldenLibrary:
    """Reads golden files and skips invalid parts. Raises `GoldenError` for a file that cannot be parsed at all."""
    if not paths:
        raise GoldenError("no golden file is given.")
    files = [_parse_file(golden_formats.read_golden_document(path), on_error) for path in paths]
    vocabulary = _combine_vocabularies(files, on_error)
    # An invalid header may declare further collections, so an unknown collection is not reported as an error then.
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
"""The greatest number of keys that a warning lists."""


def _raise(error: GoldenError) -> NoReturn:
    raise error


@dataclass(slots=True)
class _ParsedFile:
    """A golden file with a parsed header."""

    name: str
    entries: Sequence[DocumentEntry]
    header: ParsedHeader = field(default_factory=ParsedHeader)
    extra_keys: dict[str, None] = field(default_factory=dict)
    """The undefined keys found so far, in order."""
    has_errors: bool = False
    """Whether an error was found in the file."""


def _parse_file(document: GoldenDocument, on_error: OnGoldenError) -> _ParsedFile:
    file = _ParsedFile(document.name, document.entries)
    if not document.entries and not any(document.header.get(key) for key in DECLARATION_KEYS):
        raise GoldenError(f"{document.name}: the file holds no golden.")
    try:
        file.header = parse_header(document.header, document.name)
        file.extra_keys.update(dict.fromkeys(file.header.extra_keys))
    except GoldenError as error:
        file.has_errors = True
        on_error(error)
    return file


def _combine_vocabularies(files: Sequence[_ParsedFile], on_error: OnGoldenError) -> Vocabulary:
    try:
        return combine_declarations(
            FileDeclarations(file.name, file.header.tools, file.header.servers) for file in files
        )
    except GoldenError as error:
        on_error(error)
        return NO_VOCABULARY


def _combine_metric_collections(files: Sequence[_ParsedFile], on_error: OnGoldenError) -> MetricCollections:
    """Returns the collections of metrics of all files."""
    found: dict[str, tuple[str, ...]] = {}
    first_file: dict[str, str] = {}
    for file in files:
        for name, metrics in file.header.collections.items():
            other_file = first_file.setdefault(name, file.name)
            if found.setdefault(name, metrics) != metrics:
                on_error(GoldenError(f"{file.name}, metrics {name!r}: {other_file} declares them differently."))
    return found


def _combine_components(files: Sequence[_ParsedFile], on_error: OnGoldenError) -> tuple[ComponentSelector, ...]:
    """Returns the components of all files; several files may repeat the same declaration."""
    found: dict[str, ComponentSelector] = {}
    first_file: dict[str, str] = {}
    for file in files:
        for component in file.header.components:
            other_file = first_file.setdefault(component.name, file.name)
            if found.setdefault(component.name, component) != component:
                message = f"{file.name}, component {short_repr(component.name)}: {other_file} declares it differently."
                on_error(GoldenError(message))
    return tuple(found.values())


def _parse_goldens(
    files: Sequence[_ParsedFile],
    vocabulary: Vocabulary,
    collections: MetricCollections | None,
    on_error: OnGoldenError,
) -> Iterator[LocatedGolden]:
    first_file: dict[str, str] = {}
    shared = GoldenContext(
        vocabulary=vocabulary, add_declared=declaration_defaults(vocabulary), collections=collections
    )
    forbidden_check = _ForbiddenToolCheck(tool_name_matcher(vocabulary))
    for file in files:
        context = replace(shared, rules=_default_rules(file, collections, on_error))
        for position, line, entry in file.entries:
            golden_id = entry.get("id") if isinstance(entry, dict) else None
            named = f"golden {short_repr(golden_id)}" if isinstance(golden_id, str) and golden_id else position
            location = f"{file.name}, {named}"
            try:
                golden, extra_keys = parse_golden(entry, location, context, GoldenSource(file.name, line))
                file.extra_keys.update(dict.fromkeys(key for key in extra_keys if key != TAGS_KEY))
                forbidden_check.check(golden, location)
                if golden.id in first_file:
                    other_file = "" if first_file[golden.id] == file.name else f", in {first_file[golden.id]}"
                    raise GoldenError(f"{location}: the id is already taken{other_file}.")
            except GoldenError as error:
                file.has_errors = True
                on_error(error)
            else:
                first_file[golden.id] = file.name
                yield LocatedGolden(golden, file.name)


def _default_rules(
    file: _ParsedFile, collections: MetricCollections | None, on_error: OnGoldenError
) -> Mapping[str, Any]:
    """Returns the default rules of the goldens in a file."""
    try:
        return resolve_metrics(file.header.rules, collections, f"{file.name}, defaults")
    except GoldenError as error:
        file.has_errors = True
        on_error(error)
        return {}


class _ForbiddenToolCheck:
    """Rejects goldens that expect a forbidden tool; caches tool identities, because goldens repeat the same names."""

    def __init__(self, names: ToolNameMatcher) -> None:
        self._tool_identity = lru_cache(maxsize=4096)(
            lambda name, server: names.tool_identity(ToolCall(name, server=server))
        )

    def check(self, golden: Golden, location: str) -> None:
        """Raises `GoldenError` for a golden that expects a tool and forbids it."""
        forbidden = {self._tool_identity(name, None) for name in golden.forbid if not _GLOB_CHARACTERS.search(name)}
        for tool in golden.expected_calls if forbidden else ():
            if self._tool_identity(tool.name, tool.server) in forbidden:
                raise GoldenError(f"{location}: {tool.name!r} is both expected and forbidden.")


_GLOB_CHARACTERS = re.compile(r"[*?\[]")
