"""Golden files as plain values: YAML, JSON and JSON lines, with errors that name the line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldspan.errors import GoldenError
from goldspan.goldens import yaml_values
from goldspan.goldens.words import shown

_HEAD_ONLY = frozenset({"version", "defaults"})


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
    """Whether something is declared for other goldens; in a golden, `tools` are a list and `metrics` no mapping."""
    return "servers" in head or any(isinstance(head.get(key), dict) for key in ("tools", "metrics", "components"))


# --- notations --------------------------------------------------------------------------------------------------------


def _yaml(name: str, text: str) -> Any:
    try:
        content = yaml_values.values(text)
    except yaml_values.YamlError as error:
        where = name if error.line is None else f"{name}, line {error.line}"
        raise GoldenError(f"{where}: {error.problem}.") from None
    if content is yaml_values.EMPTY:
        raise GoldenError(f"{name}: the file is empty.")
    return content


def _json(name: str, text: str) -> Any:
    return _parsed(text, name, lines_before=0)


def _json_lines(name: str, text: str) -> Iterator[tuple[str, Any]]:
    # Not `splitlines`: JSON text may hold the other characters that Unicode calls the end of a line.
    for index, line in enumerate(text.split("\n")):
        if line.strip():
            yield f"line {index + 1}", _parsed(line, name, lines_before=index)


class _RepeatedKeyError(Exception):
    """A key that an object has twice; JSON's own reader would keep the last one in silence."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise _RepeatedKeyError
    return made


_decode = json.JSONDecoder(object_pairs_hook=_object).decode


def _parsed(text: str, name: str, *, lines_before: int) -> Any:
    line = lines_before + 1
    try:
        return _decode(text)
    except json.JSONDecodeError as error:
        line = lines_before + error.lineno
        problem = f"not JSON: {error.msg[0].lower()}{error.msg[1:]} at column {error.colno}"
    except ValueError:
        problem = "holds a number of thousands of digits"
    except RecursionError:
        problem = "is nested too deeply"
    except _RepeatedKeyError:
        key, above = _repeated(text)
        line += above
        problem = f"{key!r} is there twice"
    raise GoldenError(f"{name}, line {line}: {problem}.")


_TOKENS = re.compile(r'(?P<text>"[^"\\]*(?:\\.[^"\\]*)*")(?P<key>\s*:)?|[{}]')


def _repeated(text: str) -> tuple[str, int]:
    """The first key in some JSON that its object has before, and how many lines are above it."""
    objects: list[set[str]] = []
    for token in _TOKENS.finditer(text):
        if token["key"]:
            key = json.loads(token["text"], strict=False)
            if key in objects[-1]:
                return key, text.count("\n", 0, token.start())
            objects[-1].add(key)
        elif token[0] == "{":
            objects.append(set())
        elif token[0] == "}":
            objects.pop()
    raise AssertionError("only text with a repeated key comes here")
