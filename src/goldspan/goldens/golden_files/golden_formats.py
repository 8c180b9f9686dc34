"""Parses golden files in YAML, JSON and JSON Lines to plain values; errors and goldens have lines."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from goldspan.errors import GoldenError
from goldspan.goldens.golden_files.json_positions import find_golden_lines
from goldspan.goldens.spelling import short_repr

MAX_YAML_DEPTH = 100

_MAX_VALUES_PER_CHARACTER = 4
_VALUE_ALLOWANCE = 10_000
"""The limit of values is this allowance plus a number per character: enough for anchors, not for an alias bomb."""

# The C parser is ten times faster.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlError(Exception):
    """The text is not acceptable YAML. The message is a predicate of the file."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line
        """The line, counted from 1, or `None` if it is unknown."""


EMPTY_DOCUMENT = object()
"""The result for a text without a document."""


def parse_yaml(text: str, golden_lines: dict[int, int] | None = None) -> Any:
    """Parses the single document of a YAML text; returns `EMPTY_DOCUMENT` if there is none. Raises `YamlError`.

    `golden_lines` receives the line of each golden by its position in the list of goldens. A golden that is an alias
    has none.
    """
    lines = {} if golden_lines is None else golden_lines
    try:
        return _ValueBuilder(_VALUE_ALLOWANCE + _MAX_VALUES_PER_CHARACTER * len(text), lines).build(text)
    except yaml.MarkedYAMLError as error:
        if "nesting" in (error.problem or ""):
            # libyaml has its own limit since 0.2.6. It parses ahead, so it may reach its limit before ours.
            raise YamlError("is nested too deeply") from None
        mark = error.problem_mark or error.context_mark
        problem = f"not YAML: {error.problem or error.context}"
        if mark and any(line.lstrip(" ").startswith("\t") for line in text.split("\n")[mark.line : mark.line + 1]):
            problem += "; indent with spaces, not with tabs"
        raise YamlError(problem, mark.line + 1 if mark else None) from None
    except yaml.reader.ReaderError as error:
        raise YamlError(f"not YAML: the character {chr(error.character)!r} is not allowed") from None


@dataclass(slots=True)
class _OpenContainer:
    """A list or a mapping whose end event has not arrived yet."""

    value: Any
    anchor: str | None
    values_before: int
    """The number of values before it."""
    key: Any = None
    """The key whose value is the next event."""
    merge_sources: list[Mapping[Any, Any]] = field(default_factory=list)
    """The mappings that `<<` names. The own keys of the mapping take precedence, then the first source."""


_NO_KEY = object()
_MERGE_KEY = object()


class _ValueBuilder:
    """Builds the value of a document from the events of the parser."""

    def __init__(self, max_values: int, golden_lines: dict[int, int]) -> None:
        self._max_values = max_values
        self._golden_lines = golden_lines
        self._value_count = 0
        self._anchored: dict[str, tuple[Any, int] | None] = {}
        """The value of each anchor and its number of values; `None` while the value is incomplete."""
        self._open: list[_OpenContainer] = []
        self._root: Any = EMPTY_DOCUMENT

    def build(self, text: str) -> Any:
        """Returns the value of the document in a text."""
        event: Any
        for event in yaml.parse(text, Loader=_Loader):
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._count(1)
                value = _parse_scalar(event)
                if event.anchor:
                    self._anchored[event.anchor] = (value, 1)
                self._append(value, event)
            elif kind is yaml.MappingStartEvent:
                self._begin(event, _OpenContainer({}, event.anchor, self._value_count, _NO_KEY))
            elif kind is yaml.SequenceStartEvent:
                self._begin(event, _OpenContainer([], event.anchor, self._value_count))
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._end(event)
            elif kind is yaml.AliasEvent:
                self._append(self._resolve_alias(event), event)
            elif kind is yaml.DocumentStartEvent and self._root is not EMPTY_DOCUMENT:
                raise YamlError("holds more than one document", _line_number(event))
        return self._root

    def _count(self, more: int) -> None:
        self._value_count += more
        if self._value_count > self._max_values:
            raise YamlError("its aliases stand for far more than the file holds")

    def _begin(self, event: Any, opened: _OpenContainer) -> None:
        self._count(1)
        if len(self._open) >= MAX_YAML_DEPTH:
            raise YamlError("is nested too deeply")
        if event.tag and event.tag not in _COLLECTION_TAGS:
            raise YamlError(
                f"not YAML: could not determine a constructor for the tag {event.tag!r}", _line_number(event)
            )
        if event.anchor:
            self._anchored[event.anchor] = None
        if len(self._open) <= 2 and type(opened.value) is dict and self._is_in_golden_list():
            self._golden_lines[len(self._open[-1].value)] = _line_number(event)
        self._open.append(opened)

    def _is_in_golden_list(self) -> bool:
        """Whether the next value is an item of the list of goldens: of the document, or of its key `goldens`."""
        containers = self._open
        if not containers or type(containers[-1].value) is not list:
            return False
        return len(containers) == 1 or containers[0].key == "goldens"

    def _end(self, event: Any) -> None:
        ended = self._open.pop()
        value = ended.value
        if ended.merge_sources:
            value = {key: inner for mapping in reversed(ended.merge_sources) for key, inner in mapping.items()} | value
        if ended.anchor:
            self._anchored[ended.anchor] = (value, self._value_count - ended.values_before)
        self._append(value, event)

    def _resolve_alias(self, event: Any) -> Any:
        if event.anchor not in self._anchored:
            raise YamlError(f"not YAML: found undefined alias {event.anchor!r}", _line_number(event))
        found = self._anchored[event.anchor]
        if found is None:
            raise YamlError("its aliases hold themselves", _line_number(event))
        self._count(found[1])
        return found[0]

    def _append(self, value: Any, event: Any) -> None:
        """Adds a value to the innermost open container, as its next item, key or value."""
        if not self._open:
            self._root = value
            return
        inside = self._open[-1]
        if type(inside.value) is list:
            inside.value.append(value)
        elif inside.key is _NO_KEY:
            inside.key = self._check_key(value, inside.value, event)
        elif inside.key is _MERGE_KEY:
            inside.merge_sources += _merge_mappings(value, event)
            inside.key = _NO_KEY
        else:
            inside.value[inside.key] = value
            inside.key = _NO_KEY

    def _check_key(self, value: Any, known_keys: Mapping[Any, Any], event: Any) -> Any:
        if type(value) in (list, dict):
            raise YamlError(f"the key {short_repr(value)} must be text", _line_number(event))
        if value == "<<" and event.implicit[0]:
            return _MERGE_KEY
        if value in known_keys:
            raise YamlError(f"the key {value!r} is repeated", _line_number(event))
        return value


def _line_number(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _merge_mappings(value: Any, event: Any) -> list[Mapping[Any, Any]]:
    sources = value if type(value) is list else [value]
    if not all(type(source) is dict for source in sources):
        raise YamlError("the value of '<<' must be a mapping, or a list of mappings", _line_number(event))
    return sources


# --- scalars ----------------------------------------------------------------------------------------------------------

_COLLECTION_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_CONSTANTS = {
    **dict.fromkeys(("", "~", "null")),
    "true": True,
    "false": False,
    ".inf": math.inf,
    "-.inf": -math.inf,
    ".nan": math.nan,
}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<float>(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)")


def _parse_scalar(event: Any) -> Any:
    value = event.value
    try:
        if event.tag not in (None, "!"):
            return _parse_tagged_scalar(event)
        if event.tag or not event.implicit[0]:  # text: tagged with `!`, quoted, or a block
            return value
        if value in _CONSTANTS:
            return _CONSTANTS[value]
        if value[0] in "-0123456789" and (hit := _NUMBER.fullmatch(value)):
            return float(value) if hit["float"] else int(value)
        return value
    except ValueError as error:
        problem = "holds a number of thousands of digits" if "digits" in str(error) else f"not YAML: {error}"
        raise YamlError(problem) from None


def _parse_tagged_scalar(event: Any) -> Any:
    """Parses a scalar with an explicit type tag, as in `!!str 12`."""
    return yaml.SafeLoader("").construct_object(
        yaml.ScalarNode(event.tag, event.value, event.start_mark, event.end_mark, event.style)
    )


_HEADER_ONLY_KEYS = frozenset({"version", "defaults"})


class DocumentEntry(NamedTuple):
    """One golden of a file as plain values."""

    location: str
    """Its location in error messages, such as `line 3` or `goldens[2]`."""
    line: int | None
    """The line of its first key, counted from 1; `None` if it is unknown."""
    value: Any


@dataclass(frozen=True, slots=True)
class GoldenDocument:
    """One golden file as plain values."""

    name: str
    """The path of the file as the user wrote it."""
    header: Mapping[Any, Any]
    """The keys besides `goldens`; empty if the file is a list. In JSON Lines, the first line if it is not a golden."""
    entries: Sequence[DocumentEntry]
    """The goldens in order."""


def read_golden_document(path: Path) -> GoldenDocument:
    """Reads a golden file. The extension of its name determines the format."""
    name = str(path)
    extension = path.suffix.lower()
    if extension not in (".yaml", ".yml", ".json", ".jsonl", ".ndjson"):
        raise GoldenError(f"{name}: a golden file's name ends in .yaml, .yml, .json, .jsonl or .ndjson.")
    text = _read_text(path)
    if not text.strip():
        raise GoldenError(f"{name}: the file is empty.")
    if extension in (".jsonl", ".ndjson"):
        lines = list(_parse_json_lines(name, text))
        header = lines.pop(0).value if _is_header(lines[0].value) else {}
        return GoldenDocument(name, header, lines)
    if extension == ".json":
        content = _parse_json_document(name, text)
        return _to_document(name, content, find_golden_lines(text))
    golden_lines: dict[int, int] = {}
    content = _parse_yaml_document(name, text, golden_lines)
    return _to_document(name, content, golden_lines)


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else (error.strerror or "unreadable")
        raise GoldenError(f"{path}: cannot be read: {reason[0].lower()}{reason[1:]}.") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise GoldenError(f"{path}, line {line}: the file is not UTF-8 text.") from None


def _to_document(name: str, content: Any, lines: Mapping[int, int]) -> GoldenDocument:
    header: Mapping[Any, Any]
    goldens: Any
    if isinstance(content, list):
        header, goldens = {}, content
    elif isinstance(content, dict):
        header = {key: value for key, value in content.items() if key != "goldens"}
        goldens = content.get("goldens")
    else:
        raise GoldenError(f"{name}: holds {short_repr(content)} where a list of goldens was expected.")
    if "goldens" not in content and _has_declarations(header):
        goldens = []  # the file declares a vocabulary for the goldens of other files
    if not isinstance(goldens, list):
        problem = "has no 'goldens'" if goldens is None else f"'goldens' must be a list, not {short_repr(goldens)}"
        raise GoldenError(f"{name}: {problem}.")
    entries = [DocumentEntry(f"goldens[{index}]", lines.get(index), golden) for index, golden in enumerate(goldens)]
    return GoldenDocument(name, header, entries)


def _is_header(line: Any) -> bool:
    """Whether a line of a JSON Lines file is a header; a golden has an id, a header has none."""
    return (
        isinstance(line, dict)
        and "id" not in line
        and (_has_declarations(line) or not _HEADER_ONLY_KEYS.isdisjoint(line))
    )


def _has_declarations(header: Mapping[Any, Any]) -> bool:
    """Whether a mapping has declarations. In a golden, `tools` is a list and `metrics` is not a mapping."""
    return "servers" in header or any(isinstance(header.get(key), dict) for key in ("tools", "metrics", "components"))


# --- formats ----------------------------------------------------------------------------------------------------------


def _parse_yaml_document(name: str, text: str, golden_lines: dict[int, int]) -> Any:
    try:
        content = parse_yaml(text, golden_lines)
    except YamlError as error:
        location = name if error.line is None else f"{name}, line {error.line}"
        raise GoldenError(f"{location}: {error.problem}.") from None
    if content is EMPTY_DOCUMENT:
        raise GoldenError(f"{name}: the file is empty.")
    return content


def _parse_json_document(name: str, text: str) -> Any:
    return _parse_json(text, name, lines_before=0)


def _parse_json_lines(name: str, text: str) -> Iterator[DocumentEntry]:
    # Not `splitlines`: JSON text may contain the other line separators of Unicode.
    for index, line in enumerate(text.split("\n")):
        if line.strip():
            yield DocumentEntry(f"line {index + 1}", index + 1, _parse_json(line, name, lines_before=index))


class _RepeatedKeyError(Exception):
    """An object repeats a key. The JSON module would silently keep the last value."""


def _unique_key_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise _RepeatedKeyError
    return mapping


_decode_json = json.JSONDecoder(object_pairs_hook=_unique_key_object).decode


def _parse_json(text: str, name: str, *, lines_before: int) -> Any:
    line = lines_before + 1
    try:
        return _decode_json(text)
    except json.JSONDecodeError as error:
        line = lines_before + error.lineno
        problem = f"not JSON: {error.msg[0].lower()}{error.msg[1:]} at column {error.colno}"
    except ValueError:
        problem = "holds a number of thousands of digits"
    except RecursionError:
        problem = "is nested too deeply"
    except _RepeatedKeyError:
        key, lines_above = _find_repeated_key(text)
        line += lines_above
        problem = f"the key {key!r} is repeated"
    raise GoldenError(f"{name}, line {line}: {problem}.")


_JSON_TOKENS = re.compile(r'(?P<text>"[^"\\]*(?:\\.[^"\\]*)*")(?P<key>\s*:)?|[{}]')


def _find_repeated_key(text: str) -> tuple[str, int]:
    """Returns the first repeated key in a JSON text, and the number of lines above it."""
    objects: list[set[str]] = []
    for token in _JSON_TOKENS.finditer(text):
        if token["key"]:
            key = json.loads(token["text"], strict=False)
            if key in objects[-1]:
                return key, text.count("\n", 0, token.start())
            objects[-1].add(key)
        elif token[0] == "{":
            objects.append(set())
        elif token[0] == "}":
            objects.pop()
    raise AssertionError("the text has no repeated key")
