"""What the JSON schema of a tool says of its arguments, as far as it bears on whether two of them are the same.

Where the schema leaves one type only, values are read as that type: the text `5` as 5 for an integer, 20 as the text
`20` for a string. Where it leaves several, as `["string", "integer"]` does, what was written stays. Nothing is
validated. A schema may be any value at all: what makes no sense in it is passed over, references may go round in
circles, and the work is bounded by the parts of it that values touch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from goldspan.content.envelopes import schema_properties
from goldspan.content.literals import parse_literal
from goldspan.model import ABSENT
from goldspan.model.value_matchers import JSON_TYPES


def schema_shape(schema: Mapping[str, Any] | None) -> SchemaShape | None:
    """What a schema says of the values it describes; a bare dictionary of properties is a schema too.

    The last few are remembered, by identity: a schema must not be changed after it was first used.
    """
    if not isinstance(schema, Mapping) or not schema:
        return None
    known = _shape_cache.get(id(schema))
    if known is None or known[0] is not schema:
        if len(_shape_cache) >= _MAX_CACHED:
            _shape_cache.clear()
        _shape_cache[id(schema)] = known = (schema, _SchemaDocument(schema).shape([_as_object_schema(schema)]))
    return known[1]


_MAX_CACHED = 64
_shape_cache: dict[int, tuple[Mapping[str, Any], SchemaShape | None]] = {}


def _as_object_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return schema if "properties" in schema or not (found := schema_properties(schema)) else {"properties": found}


class SchemaShape:
    """What some schemas, all of which hold, say of one value."""

    __slots__ = ("_arrays", "_document", "_objects", "_properties", "_schemas", "_type", "default")

    def __init__(self, schemas: list[Mapping[str, Any]], document: _SchemaDocument) -> None:
        self._schemas = schemas
        self._document = document
        self._type = document.single_type(schemas)
        self._objects: list[tuple[Mapping[str, Any], Any]] | None = None
        self._arrays: list[tuple[list[Any], Any]] | None = None
        self._properties: dict[Any, SchemaShape | None] = {}
        stated = (part["default"] for part in document.applicable_subschemas(schemas) if "default" in part)
        self.default: Any = next(stated, ABSENT)
        """The value where none is given; `ABSENT` where the schema does not say."""

    def property(self, name: Any) -> SchemaShape | None:
        """The shape of one entry of a dictionary; `None` where nothing is known of it."""
        if name in self._properties:
            return self._properties[name]
        if self._objects is None:
            parts = self._document.applicable_subschemas(self._schemas, "object")
            self._objects = [
                (_mapping_or_empty(part.get("properties")), part.get("additionalProperties")) for part in parts
            ]
        found = self._document.shape([named.get(name, others) for named, others in self._objects])
        if len(self._properties) < _MAX_CACHED:  # the names are those that are called, as many as a model likes
            self._properties[name] = found
        return found

    def item(self, position: int) -> SchemaShape | None:
        """The shape of one item of a list; `None` where nothing is known of it."""
        if self._arrays is None:
            parts = self._document.applicable_subschemas(self._schemas, "array")
            self._arrays = [(_positional_items(part), part.get("items")) for part in parts]
        return self._document.shape(
            [first[position] if position < len(first) else others for first, others in self._arrays]
        )

    def coerce(self, value: Any) -> Any:
        """The value, read as the one type that the schema leaves; else the value itself. What is inside stays."""
        return _COERCIONS[self._type](value) if self._type in _COERCIONS else value


def _positional_items(part: Mapping[str, Any]) -> list[Any]:
    """The schemas of single items: `prefixItems` in JSON schema 2020, before that a list under `items`."""
    return _list_or_empty(part.get("prefixItems")) or _list_or_empty(part.get("items"))


# --- the schema as a whole --------------------------------------------------------------------------------------------

_MAX_SUBSCHEMAS = 64
_MAX_DEPTH = 16
_Types = frozenset[str]


class _SchemaDocument:
    """A JSON schema with its definitions: it finds what is referred to and which types are left."""

    __slots__ = ("_root", "_shapes", "_types")

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._shapes: dict[tuple[int, ...], SchemaShape] = {}
        self._types: dict[int, _Types | None] = {}

    def shape(self, schemas: Iterable[Any]) -> SchemaShape | None:
        """The shape that some schemas give together; the same one for the same schemas, so that circles close."""
        stating = [schema for schema in schemas if isinstance(schema, Mapping) and schema]
        if not stating:
            return None
        at = tuple(map(id, stating))
        known = self._shapes.get(at)
        if known is None:
            known = self._shapes[at] = SchemaShape(stating, self)
        return known

    def applicable_subschemas(self, schemas: Iterable[Any], kind: str | None = None) -> list[Mapping[str, Any]]:
        """The schemas and all that hold with them: what they refer to, their `allOf`, and of alternatives the only one
        that a value of that type can be."""
        found: dict[int, Mapping[str, Any]] = {}
        waiting = list(schemas)
        for part in waiting:  # grows as it goes
            if not isinstance(part, Mapping) or id(part) in found or len(found) == _MAX_SUBSCHEMAS:
                continue
            found[id(part)] = part
            waiting += [self._resolve_ref(part), *_list_or_empty(part.get("allOf"))]
            for branches in _alternatives(part):
                fitting = [branch for branch in branches if self._may_have_type(branch, kind)]
                waiting += fitting if len(fitting) == 1 else []
        return list(found.values())

    def single_type(self, schemas: Iterable[Any]) -> str | None:
        """The only JSON type that is left, null aside."""
        left = _intersection(self._types_of(schema) for schema in schemas)
        left = left - {"null"} if left else frozenset()
        return "number" if left == _NUMBERS else next(iter(left)) if len(left) == 1 else None

    def _may_have_type(self, schema: Any, kind: str | None) -> bool:
        types = self._types_of(schema)
        return types is None or (kind in types if kind else types != {"null"})

    def _types_of(self, schema: Any, depth: int = 0) -> _Types | None:
        """The types that a schema leaves; `None` where it does not say."""
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
            return None
        if id(schema) not in self._types:
            self._types[id(schema)] = None  # a schema that refers to itself learns nothing from that
            self._types[id(schema)] = _intersection(self._type_constraints(schema, depth + 1))
        return self._types[id(schema)]

    def _type_constraints(self, schema: Mapping[str, Any], depth: int) -> Iterator[_Types | None]:
        yield _declared_types(schema)
        yield self._types_of(self._resolve_ref(schema), depth)
        for part in _list_or_empty(schema.get("allOf")):
            yield self._types_of(part, depth)
        for branches in _alternatives(schema):
            options = [self._types_of(branch, depth) for branch in branches]
            stated = [option for option in options if option is not None]
            yield frozenset().union(*stated) if len(stated) == len(options) else None

    def _resolve_ref(self, schema: Mapping[str, Any]) -> Any:
        """What `$ref` points at inside the document; `None` where there is nothing."""
        pointer = schema.get("$ref")
        if not isinstance(pointer, str) or not pointer.startswith("#"):
            return None
        target: Any = self._root
        for step in pointer.split("/", _MAX_DEPTH)[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list):
                target = dict(enumerate(target[:_MAX_SUBSCHEMAS])).get(int(name) if name.isdecimal() else -1)
            else:
                target = _mapping_or_empty(target).get(name)
        return target


def _alternatives(schema: Mapping[str, Any]) -> list[list[Any]]:
    return [branches for word in ("anyOf", "oneOf") if (branches := _list_or_empty(schema.get(word)))]


_NUMBERS = frozenset({"integer", "number"})
"""What the type `number` means: an integer is a number too."""


def _declared_types(schema: Mapping[str, Any]) -> _Types | None:
    """What a schema itself says of the type, by `type`, `enum` or `const`."""
    stated = schema.get("type")
    names = [stated] if isinstance(stated, str) else _list_or_empty(stated)
    if not names:
        values = [schema["const"]] if "const" in schema else _list_or_empty(schema.get("enum"))
        names = [_json_type(value) for value in values]
    if not names or not all(isinstance(name, str) and name in JSON_TYPES for name in names):
        return None
    nullable = {"null"} if schema.get("nullable") is True else set()
    return frozenset(names) | nullable | (_NUMBERS if "number" in names else set())


def _json_type(value: Any) -> str | None:
    if value is None:
        return "null"
    return next((name for kind, name in _TYPES.items() if type(value) is kind), None)


_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def _intersection(statements: Iterable[_Types | None]) -> _Types | None:
    stated = [types for types in statements if types is not None]
    return frozenset.intersection(*stated) if stated else None


def _mapping_or_empty(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list_or_empty(value: Any) -> list[Any]:
    return value if isinstance(value, list) else list(value) if isinstance(value, tuple) else []


# --- values, read as a type -------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MAX_NUMBER_CHARACTERS = 400
"""Characters; also the digits of an integer that is written as text."""


def _coerce_number(value: Any) -> Any:
    if type(value) is not str or len(value) > _MAX_NUMBER_CHARACTERS or not _NUMBER.fullmatch(value):
        return value
    if value.lstrip("+-").isdigit():
        return int(value)
    number = float(value)
    return number if math.isfinite(number) else value


def _coerce_integer(value: Any) -> Any:
    number = _coerce_number(value)
    return number if type(number) is int or (type(number) is float and number.is_integer()) else value


def _coerce_boolean(value: Any) -> Any:
    return _BOOLEANS.get(value, value) if type(value) is str else value


_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}


def _coerce_string(value: Any) -> Any:
    if type(value) is float:
        return str(value) if math.isfinite(value) else value
    return str(value) if type(value) is int and abs(value) < _MAX_INTEGER else value


_MAX_INTEGER = 10**_MAX_NUMBER_CHARACTERS


def _parse_as(kind: type) -> Callable[[Any], Any]:
    """Lists and dictionaries that arrive as text, which is how some models write them."""

    def read(value: Any) -> Any:
        found = parse_literal(value) if type(value) is str and value else ABSENT
        return found if type(found) is kind else value

    return read


_COERCIONS: Mapping[str | None, Callable[[Any], Any]] = {
    "integer": _coerce_integer,
    "number": _coerce_number,
    "boolean": _coerce_boolean,
    "string": _coerce_string,
    "array": _parse_as(list),
    "object": _parse_as(dict),
}
