"""The text of golden files as plain values: YAML, JSON and JSON lines, with errors that name the line.

YAML is read with JSON's idea of a plain value: numbers, `true`, `false` and `null` (or `~`), and everything else is
text. YAML 1.1 would make the arguments `insurance: no`, `zip: 020`, `time: 14:30` and `day: 2024-05-20` into `False`,
16, 870 and a date, and no call would ever match them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from goldspan.errors import GoldenError
from goldspan.goldens.words import shown

_NODES_A_BYTE = 4
_NODES_FREE = 10_000
"""A YAML file may stand for this many values plus so many a byte: plenty for anchors, nothing for an alias bomb."""

_MAX_DEPTH = 100

_HEAD_ONLY = frozenset({"version", "defaults"})

_TOO_DEEP = "is nested too deeply."
_TOO_LONG = "holds a number of thousands of digits."


@dataclass(frozen=True, slots=True)
class Document:
    """One golden file as plain values."""

    name: str
    """The file as the person named it."""
    head: Mapping[Any, Any]
    """What stands around the goldens, without them; empty where the file is a bare list. In JSON lines a first line
    that is no golden."""
    entries: Sequence[tuple[str, Any]]
    """Each golden with the words that say where it stands, such as `line 3`."""


def read(path: Path) -> Document:
    """Read a golden file; the ending of its name says in which notation it is."""
    name = str(path)
    notation = path.suffix.lower()
    if notation not in (".yaml", ".yml", ".json", ".jsonl", ".ndjson"):
        raise GoldenError(f"{name}: a golden file's name ends in .yaml, .yml, .json, .jsonl or .ndjson.")
    text = _text(path)
    if not text.strip():
        raise GoldenError(f"{name}: the file is empty.")
    if notation in (".jsonl", ".ndjson"):
        lines = list(_json_lines(name, text))
        head = lines.pop(0)[1] if _is_head(lines[0][1]) else {}
        return Document(name, head, lines)
    return _whole(name, _json(name, text) if notation == ".json" else _yaml(name, text))


def _text(path: Path) -> str:
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


def _whole(name: str, content: Any) -> Document:
    head: Mapping[Any, Any]
    goldens: Any
    if isinstance(content, list):
        head, goldens = {}, content
    elif isinstance(content, dict):
        head = {key: value for key, value in content.items() if key != "goldens"}
        goldens = content.get("goldens")
    else:
        raise GoldenError(f"{name}: holds {shown(content)} where a list of goldens was expected.")
    if "goldens" not in content and _declares(head):
        goldens = []  # a vocabulary for the goldens of other files
    if not isinstance(goldens, list):
        what = "has no 'goldens'" if goldens is None else f"'goldens' must be a list, not {shown(goldens)}"
        raise GoldenError(f"{name}: {what}.")
    return Document(name, head, [(f"goldens[{index}]", golden) for index, golden in enumerate(goldens)])


def _is_head(line: Any) -> bool:
    """Whether a line of JSON says something of all goldens; a golden has an id."""
    return isinstance(line, dict) and "id" not in line and (_declares(line) or not _HEAD_ONLY.isdisjoint(line))


def _declares(head: Mapping[Any, Any]) -> bool:
    """Whether tools or servers are declared; the `tools` of a golden are a list."""
    return isinstance(head.get("tools"), dict) or "servers" in head


# --- JSON -------------------------------------------------------------------------------------------------------------


def _json(name: str, text: str) -> Any:
    return _parsed(text, name, lines_before=0)


def _json_lines(name: str, text: str) -> Iterator[tuple[str, Any]]:
    # Not `splitlines`: JSON text may hold the other characters that Unicode calls the end of a line.
    for index, line in enumerate(text.split("\n")):
        if line.strip():
            yield f"line {index + 1}", _parsed(line, name, lines_before=index)


def _parsed(text: str, name: str, *, lines_before: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"{error.msg[0].lower()}{error.msg[1:]} at column {error.colno}"
        raise GoldenError(f"{name}, line {lines_before + error.lineno}: not JSON: {problem}.") from None
    except ValueError:
        raise GoldenError(f"{name}, line {lines_before + 1}: {_TOO_LONG}") from None
    except RecursionError:
        raise GoldenError(f"{name}, line {lines_before + 1}: {_TOO_DEEP}") from None


# --- YAML -------------------------------------------------------------------------------------------------------------


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the C loader is ten times faster
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own protocol


for _tag, _pattern, _first in (
    ("null", r"~|null|", ["~", "n", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("int", r"-?(?:0|[1-9][0-9]*)", list("-0123456789")),
    ("float", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|-?\.inf|\.nan", list("-.0123456789")),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), _first)


def _yaml(name: str, text: str) -> Any:
    try:
        _check_depth(name, text)
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                raise GoldenError(f"{name}: the file is empty.")
            _check(name, root, budget=_NODES_FREE + _NODES_A_BYTE * len(text))
            return loader.construct_document(root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark else ""
        raise GoldenError(f"{name}{where}: not YAML: {error.problem or error.context}.") from None
    except yaml.reader.ReaderError as error:
        raise GoldenError(f"{name}: not YAML: the character {chr(error.character)!r} is not allowed.") from None
    except ValueError as error:
        raise GoldenError(f"{name}: {_TOO_LONG if 'digits' in str(error) else f'not YAML: {error}.'}") from None


def _check_depth(name: str, text: str) -> None:
    """Refuse what would overflow the stack of the C loader, and end the process with it."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise GoldenError(f"{name}: {_TOO_DEEP}")


def _check(name: str, root: yaml.Node, *, budget: int) -> None:
    """Refuse what PyYAML would read in silence or without end: keys that are there twice, and aliases of aliases."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        budget -= 1
        if budget < 0:
            raise GoldenError(f"{name}: its aliases stand for far more than the file holds.")
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            seen = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in seen:
                        raise GoldenError(f"{name}, line {key.start_mark.line + 1}: {key.value!r} is there twice.")
                    seen.add(key.value)
                waiting.append(value)
