"""Golden files: read, checked with pydantic at this one door, and handed on as plain goldens."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from goldspan.errors import GoldenError, GoldspanWarning
from goldspan.extraction.names import fold, undecorate
from goldspan.goldens import documents
from goldspan.goldens.documents import Document
from goldspan.goldens.keys import DECLARED_TOOL, DEFAULTS, GOLDEN, HEAD, TOOL, matcher_in, sort_keys
from goldspan.goldens.lookup import Goldens
from goldspan.goldens.naming import Naming, naming
from goldspan.goldens.vocabulary import Declared, combined
from goldspan.goldens.words import did_you_mean, listed, shown
from goldspan.model import Attempts, Effect, ExpectedTool, Golden, Order, Tool, ToolCall, Vocabulary

MAX_DEPTH = 100
"""How deeply the arguments of an expected call may be nested."""


def load_goldens(*paths: str | os.PathLike[str], on_warning: Callable[[str], None] | None = None) -> Goldens:
    """Read goldens from YAML (`.yaml`, `.yml`), JSON (`.json`) and JSON lines (`.jsonl`, `.ndjson`).

    Raises `GoldenError`, one sentence that names file, golden and field, for whatever a person can get wrong. Keys that
    are not goldspan's are kept as the golden's metadata; `on_warning` is told so once a file, and where it is not given
    a `GoldspanWarning` is. The tools and servers that one file declares are known to all.
    """
    if not paths:
        raise GoldenError("no golden file was named.")
    files = [_opened(documents.read(Path(path))) for path in paths]
    vocabulary = combined(Declared(file.name, file.tools, file.servers) for file in files)
    home: dict[str, str] = {}
    goldens: list[Golden] = []
    for file in files:
        for golden in _goldens(file, vocabulary):
            if golden.id in home:
                elsewhere = "" if home[golden.id] == file.name else f", in {home[golden.id]}"
                raise GoldenError(f"{file.name}, golden {golden.id!r}: the id is already taken{elsewhere}.")
            home[golden.id] = file.name
            goldens.append(golden)
        if file.unknown:
            told = f"{file.name}: keys that are not goldspan's are kept as metadata: {listed(map(repr, file.unknown))}."
            if on_warning:
                on_warning(told)
            else:
                warnings.warn(told, GoldspanWarning, stacklevel=2)
    if not goldens:
        raise GoldenError(f"{files[0].name}: the file holds no golden.")
    return Goldens(goldens, vocabulary=vocabulary)


class _Strict(BaseModel):
    """A number is no text and text is no number: what a file says is taken at its word."""

    model_config = ConfigDict(strict=True, extra="forbid")


_Text = Annotated[str, Field(min_length=1)]
_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class _Defaults(_Strict):
    order: Order = "any"
    forbid: list[_Text] = []
    attempts: Attempts = "effective"
    threshold: _Share = 0.5


class _Head(_Strict):
    version: Literal[1] = 1
    defaults: dict[Any, Any] = {}
    tools: dict[Any, Any] = {}
    servers: list[_Text] = []


class _DeclaredTool(_Strict):
    aliases: list[_Text] = []
    server: _Text | None = None
    effect: Effect | None = None
    description: str | None = None
    parameters: dict[Any, Any] | None = None


class _Tool(_Strict):
    name: _Text
    arguments: dict[Any, Any] | None = None
    server: _Text | None = None


class _Golden(_Defaults):
    id: _Text
    input: str | None = None
    tools: list[Any]
    write_tools: list[_Text] | None = None


@dataclass(frozen=True, slots=True)
class _File:
    """A golden file whose head has been read."""

    name: str
    entries: Sequence[tuple[str, Any]]
    defaults: dict[str, Any]
    tools: tuple[Tool, ...]
    servers: tuple[str, ...]
    unknown: dict[str, None]
    """The keys so far that are not ours, in order."""


def _opened(document: Document) -> _File:
    if not document.entries and not (document.head.get("tools") or document.head.get("servers")):
        raise GoldenError(f"{document.name}: the file holds no golden.")
    fields, rest = sort_keys(document.head, HEAD, document.name)
    head = _validated(_Head, fields, document.name)
    unknown = dict.fromkeys(rest)
    return _File(
        name=document.name,
        entries=document.entries,
        defaults=_defaults(head.defaults, f"{document.name}, defaults"),
        tools=tuple(_declared(name, said, document.name, unknown) for name, said in head.tools.items()),
        servers=tuple(head.servers),
        unknown=unknown,
    )


def _declared(name: Any, said: Any, file: str, unknown: dict[str, None]) -> Tool:
    """One tool of the vocabulary."""
    if not isinstance(name, str) or not name:
        raise GoldenError(f"{file}, tools: the name of a tool must be text, not {shown(name)}.")
    where = f"{file}, tool {name!r}"
    if not isinstance(said, dict | None):
        raise GoldenError(f"{where}: must be a mapping with keys such as 'aliases', not {shown(said)}.")
    fields, rest = sort_keys(said or {}, DECLARED_TOOL, where)
    unknown.update(dict.fromkeys(rest))
    if isinstance(alias := fields.get("aliases"), str):
        fields["aliases"] = [alias]
    read = _validated(_DeclaredTool, fields, where)
    _check_server(name, read.server, where)
    return Tool(
        name=name,
        aliases=tuple(read.aliases),
        server=read.server,
        effect=read.effect,
        description=read.description,
        parameters=read.parameters,
        metadata=rest,
    )


def _goldens(file: _File, vocabulary: Vocabulary) -> Iterator[Golden]:
    for position, entry in file.entries:
        golden_id = entry.get("id") if isinstance(entry, dict) else None
        named = f"golden {golden_id!r}" if isinstance(golden_id, str) and golden_id else position
        yield _golden(entry, file, vocabulary, f"{file.name}, {named}")


def _defaults(given: dict[Any, Any], where: str) -> dict[str, Any]:
    fields, rest = sort_keys(given, DEFAULTS, where)
    if rest:
        raise GoldenError(f"{where}: unknown key {min(rest)!r}.")
    _validated(_Defaults, fields, where)
    return fields


def _golden(entry: Any, file: _File, vocabulary: Vocabulary, where: str) -> Golden:
    if not isinstance(entry, dict):
        raise GoldenError(f"{where}: a golden must be a mapping, not {shown(entry)}.")
    fields, metadata = sort_keys(entry, GOLDEN, where)
    file.unknown.update(dict.fromkeys(metadata))
    read = _validated(_Golden, {**file.defaults, **fields}, where)
    if read.write_tools is not None:
        metadata["write_tools"] = read.write_tools
    tools = []
    for index, item in enumerate(read.tools):
        tool, rest = _tool(item, f"{where}, tools[{index}]")
        tools.append(tool)
        file.unknown.update(dict.fromkeys(rest))
        metadata.update({f"tools[{index}].{key}": value for key, value in rest.items()})
    _check_forbidden(tools, read.forbid, naming(vocabulary), where)
    return Golden(
        id=read.id,
        input=read.input,
        tools=tuple(tools),
        order=read.order,
        forbid=tuple(read.forbid),
        attempts=read.attempts,
        threshold=read.threshold,
        metadata=metadata,
        vocabulary=vocabulary,
    )


def _tool(item: Any, where: str) -> tuple[ExpectedTool, dict[str, Any]]:
    """One expected tool, and the keys beside it that are not ours."""
    if isinstance(item, str):
        item = {"name": item}
    if not isinstance(item, dict):
        raise GoldenError(f"{where}: must be the name of a tool or a mapping with its name, not {shown(item)}.")
    fields, rest = sort_keys(item, TOOL, where)
    read = _validated(_Tool, fields, where)
    if read.arguments is not None:
        _check_arguments(read.arguments, where)
    _check_server(read.name, read.server, where)
    return ExpectedTool(read.name, read.arguments, read.server), rest


def _check_arguments(arguments: Mapping[Any, Any], where: str) -> None:
    """Refuse arguments that no call can have: keys that are not text, and anything nested without end."""
    waiting: list[tuple[Any, int]] = [(arguments, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise GoldenError(f"{where}: the arguments are nested more than {MAX_DEPTH} levels deep.")
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise GoldenError(f"{where}: the key {shown(key)} in the arguments must be text.")
            if depth > 1 and (matcher := matcher_in(value)):
                raise GoldenError(f"{where}: the matcher {matcher!r} in the arguments is not supported yet.")
            waiting.extend((inner, depth + 1) for inner in value.values())
        elif isinstance(value, list):
            waiting.extend((inner, depth + 1) for inner in value)


def _check_server(name: str, server: str | None, where: str) -> None:
    said = undecorate(name)[1]
    if said and server and fold(said) != fold(server):
        raise GoldenError(f"{where}: the name {name!r} says server {said!r}, but 'server' says {server!r}.")


def _check_forbidden(tools: list[ExpectedTool], forbid: list[str], names: Naming, where: str) -> None:
    forbidden = {names.tool(ToolCall(name)) for name in forbid}
    for tool in tools:
        if names.tool(ToolCall(tool.name, server=tool.server)) in forbidden:
            raise GoldenError(f"{where}: {tool.name!r} is both expected and forbidden.")


# --- from pydantic's errors to sentences ------------------------------------------------------------------------------

_Model = TypeVar("_Model", bound=BaseModel)

_PROBLEMS = {
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "float_type": "must be a number",
    "finite_number": "must be a number from 0 to 1",
    "greater_than_equal": "must be a number from 0 to 1",
    "less_than_equal": "must be a number from 0 to 1",
}


def _validated(model: type[_Model], fields: dict[str, Any], where: str) -> _Model:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
    field, *inner = problem["loc"]
    path = f"{field}{''.join(f'[{step}]' for step in inner)}"
    raise GoldenError(f"{where}: {path} {_problem(problem['type'], problem)}")


def _problem(kind: str, problem: Mapping[str, Any]) -> str:
    given = problem["input"]
    if kind == "missing":
        # Every golden says what it expects, because one that says nothing would fail every run that calls a tool.
        hint = "; `tools: []` says that no tool is to be called" if problem["loc"] == ("tools",) else ""
        return f"is missing{hint}."
    if kind == "string_too_short":
        return f"{_PROBLEMS[kind]}."
    if kind == "literal_error":
        words = [word.strip("'") for word in problem["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        return f"must be {listed(words, last='or')}, not {shown(given)}.{did_you_mean(given, words)}"
    hint = " Write it in quotes." if kind == "string_type" and isinstance(given, int | float) else ""
    return f"{_PROBLEMS[kind]}, not {shown(given)}.{hint}"
