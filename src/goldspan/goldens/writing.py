"""Goldens as people write them: YAML that `load_goldens` reads back as the very same golden."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from goldspan.model import ABSENT, AnyOf, ExpectedTool, Golden, Item, Parallel, Times, When
from goldspan.model.matchers import MATCHERS, Anything, Equal, Matcher
from goldspan.model.values import MATCHER_WORDS

_WIDTH = 90
"""What fits into so many characters stands in one line."""
_LEVELS = 60
"""Lists and mappings inside each other; the reader takes a few more."""
_LONGEST_KEY = 1000
"""Characters of a key: YAML takes no longer ones in this form."""


class UnwritableError(ValueError):
    """YAML has no way to say a value: halves of surrogate pairs, keys without end, objects that are no data."""


def as_yaml(*goldens: Golden) -> str:
    """Goldens as the items of a list, indented as beneath `goldens:`; they can also be a file of their own.

    What the vocabulary says of tools stands beside each call, and nothing hidden is in the text: what cannot be seen is
    told by its number. Keys of the author's own inside `tools` are left out. Raises `UnwritableError`.
    """
    lines = _listed(_entries(as_written(golden), _LEVELS) for golden in goldens)
    return "".join(f"  {line}\n" for line in lines)


def as_written(golden: Golden) -> dict[str, Any]:
    """A golden as the mapping that a file holds; what is as everywhere is not said."""
    said: dict[str, Any] = {"id": golden.id}
    if golden.input is not None:
        said["input"] = golden.input
    if golden.when is not None:
        said["when"] = _when(golden.when)
    if golden.component is not None:
        said["component"] = golden.component
    rules = {name: _plain(value) for name in _RULES if (value := getattr(golden, name)) != _USUAL[name]}
    said |= {name: rules.pop(name) for name in ("order",) if name in rules}
    if golden.policy:
        said["policy"] = True
    else:
        said["tools"] = [_item(item) for item in golden.tools]
    return said | rules | {key: value for key, value in golden.metadata.items() if "]." not in key}


_RULES = (
    *("order", "forbid", "max_calls", "attempts", "duplicates", "extra", "depth", "mode"),
    *("threshold", "thresholds", "unknown", "metrics", "write_tools"),
)
_USUAL = {each.name: getattr(Golden(""), each.name) for each in fields(Golden)}
_USUAL_OF_TOOLS = {each.name: getattr(ExpectedTool(""), each.name) for each in fields(ExpectedTool)}


def _when(when: When) -> dict[str, Any]:
    told = {each.name: getattr(when, each.name) for each in fields(when)}
    return {name: _plain(value) for name, value in told.items() if value is not None and value != {}}


def _item(item: Item) -> Any:
    if isinstance(item, Parallel):
        return {"parallel": [_item(each) for each in item.items]}
    if isinstance(item, AnyOf):
        options = [_item(option[0]) if len(option) == 1 else [*map(_item, option)] for option in item.options]
        return {"any_of": options, **_times(item.times)}
    said = {name: _plain(value) for name in _OF_TOOLS if (value := getattr(item, name)) != _USUAL_OF_TOOLS[name]}
    if item.result is not ABSENT:
        said["result"] = _plain(item.result)
    said |= _times(item.times)
    return {"name": item.name, **said} if said else item.name


_OF_TOOLS = ("server", "agent", "arguments", "match", "ignore", "defaults")


def _times(times: Times) -> dict[str, Any]:
    if not times.stated:
        return {"optional": True} if times.least == 0 else {}
    if times.least == times.most:
        return {"times": times.least}
    return {"times": {"min": times.least} | ({} if times.most is None else {"max": times.most})}


def _plain(value: Any, levels: int = _LEVELS) -> Any:
    """A value with the mappings of the golden language in place of matchers."""
    if not levels:
        raise UnwritableError("it is nested too deeply")
    if isinstance(value, MATCHERS):
        return _matcher(value, levels)
    if isinstance(value, Mapping):
        return {key: _plain(part, levels - 1) for key, part in value.items()}
    return [_plain(part, levels - 1) for part in value] if isinstance(value, list | tuple) else value


def _matcher(matcher: Matcher, levels: int) -> dict[str, Any]:
    if isinstance(matcher, Anything):
        return {MATCHER_WORDS[Anything]: True}
    said = [(each.name, getattr(matcher, each.name)) for each in fields(matcher)]
    word, value = MATCHER_WORDS[type(matcher)], said[0][1]
    told = {word: value if isinstance(matcher, Equal) else _plain(value, levels - 1)}
    return told | {name: option for name, option in said[1:] if option is not None}


# --- YAML -------------------------------------------------------------------------------------------------------------


def _lines(value: Any, levels: int) -> Iterator[str]:
    """A value on one line where that is short, else on one or more for each of its parts."""
    brief = _brief(value, levels)
    if not _is_long(value, brief):
        yield brief
    elif isinstance(value, Mapping):
        yield from _entries(value, levels - 1)
    else:
        yield from _listed(_lines(part, levels - 1) for part in value)


def _entries(value: Mapping[str, Any], levels: int) -> Iterator[str]:
    """The entries of a mapping, each beginning on a line of its own."""
    for key, part in value.items():
        brief = _brief(part, levels)
        if _is_long(part, brief):
            yield f"{_key(key)}:"
            yield from (f"  {line}" for line in _lines(part, levels))
        else:
            yield f"{_key(key)}: {brief}"


def _is_long(value: Any, brief: str) -> bool:
    return len(brief) > _WIDTH and isinstance(value, Mapping | list | tuple)


def _listed(parts: Iterable[Iterable[str]]) -> Iterator[str]:
    """The lines of the parts of a list, each part behind a dash."""
    for lines in parts:
        begins = "- "
        for line in lines:
            yield begins + line
            begins = "  "


def _brief(value: Any, levels: int) -> str:
    """A value on one line."""
    if not levels:
        raise UnwritableError("it is nested too deeply")
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(key)}: {_brief(part, levels - 1)}' for key, part in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_brief(part, levels - 1) for part in value)}]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return value if _SIMPLE.fullmatch(value) and value.lower() not in _WORDS else _quoted(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return repr(value).replace("inf", ".inf").replace("nan", ".nan")
    if isinstance(value, int):
        try:
            return str(value)
        except ValueError:
            raise UnwritableError("it is a number of thousands of digits") from None
    raise UnwritableError(f"it is a {type(value).__name__}")


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise UnwritableError("a key is no text")
    written = _scalar(key)
    if len(written) > _LONGEST_KEY:
        raise UnwritableError("a key is too long")
    return written


_SIMPLE = re.compile(r"[A-Za-z](?:[A-Za-z0-9 .'?!()/_-]*[A-Za-z0-9.'?!()/_-])?")
"""A text that means itself without quotes wherever it stands."""
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""What some reader of YAML takes for something else than text."""
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _quoted(text: str) -> str:
    return f'"{"".join(map(_character, text))}"'


def _character(character: str) -> str:
    if escape := _ESCAPES.get(character):
        return escape
    if character.isprintable():
        return character
    number = ord(character)
    if 0xD800 <= number <= 0xDFFF:
        raise UnwritableError("half of a surrogate pair is in it")
    return f"\\x{number:02X}" if number < 0x100 else f"\\u{number:04X}" if number < 0x10000 else f"\\U{number:08X}"
