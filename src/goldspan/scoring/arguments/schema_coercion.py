"""Converts arguments to the types in a tool's JSON schema, and returns the schema's defaults.

If the schema allows a single type, values are converted to it: the text `5` to 5 for an integer, 20 to the text `20`
for a string. If it allows several, such as `["string", "integer"]`, the value is not changed. Nothing is validated. A
schema can be any value: invalid parts are ignored, references can be cyclic, and only the parts that values use are
evaluated.
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
    """Returns the shape of the values that a schema describes. A dictionary of properties is accepted as a schema too.

    Shapes are cached by the identity of the schema, which must not be changed after its first use.
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
    """The type, default and parts of one value, from schemas that all apply to it."""

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
        """The default value; `ABSENT`: the schema has none."""

    def property(self, name: Any) -> SchemaShape | None:
        """Returns the shape of one entry of a dictionary; `None`: the schema does not describe it."""
        if name in self._properties:
            return self._properties[name]
        if self._objects is None:
            parts = self._document.applicable_subschemas(self._schemas, "object")
            self._objects = [
                (_mapping_or_empty(part.get("properties")), part.get("additionalProperties")) for part in parts
            ]
        found = self._document.shape([named.get(name, others) for named, others in self._objects])
        if len(self._properties) < _MAX_CACHED:  # the names come from calls, so their number is not limited
            self._properties[name] = found
        return found

    def item(self, position: int) -> SchemaShape | None:
        """Returns the shape of one item of a list; `None`: the schema does not describe it."""
        if self._arrays is None:
            parts = self._document.applicable_subschemas(self._schemas, "array")
            self._arrays = [(_positional_items(part), part.get("items")) for part in parts]
        return self._document.shape(
            [first[position] if position < len(first) else others for first, others in self._arrays]
        )

    def coerce(self, value: Any) -> Any:
        """Returns the value, converted to the single type that the schema allows. Nested values are not changed."""
        return _COERCIONS[self._type](value) if self._type in _COERCIONS else value


def _positional_items(part: Mapping[str, Any]) -> list[Any]:
    """Returns the schemas of single items: `prefixItems` in JSON Schema 2020-12, a list under `items` before."""
    return _list_or_empty(part.get("prefixItems")) or _list_or_empty(part.get("items"))


# --- the schema as a whole --------------------------------------------------------------------------------------------

_MAX_SUBSCHEMAS = 64
_MAX_DEPTH = 16
_Types = frozenset[str]


class _SchemaDocument:
    """A JSON schema with its definitions. It resolves references and determines the allowed types."""

    __slots__ = ("_root", "_shapes", "_types")

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._shapes: dict[tuple[int, ...], SchemaShape] = {}
        self._types: dict[int, _Types | None] = {}

    def shape(self, schemas: Iterable[Any]) -> SchemaShape | None:
        """Returns the shape of schemas that all apply. It is the same for the same schemas, so that cycles end."""
        stating = [schema for schema in schemas if isinstance(schema, Mapping) and schema]
        if not stating:
            return None
        at = tuple(map(id, stating))
        known = self._shapes.get(at)
        if known is None:
            known = self._shapes[at] = SchemaShape(stating, self)
        return known

    def applicable_subschemas(self, schemas: Iterable[Any], kind: str | None = None) -> list[Mapping[str, Any]]:
        """Returns the schemas and all that apply with them: references, `allOf`, and a single alternative that allows
        values of that type."""
        found: dict[int, Mapping[str, Any]] = {}
        waiting = list(schemas)
        for part in waiting:  # the loop appends to it
            if not isinstance(part, Mapping) or id(part) in found or len(found) == _MAX_SUBSCHEMAS:
                continue
            found[id(part)] = part
            waiting += [self._resolve_ref(part), *_list_or_empty(part.get("allOf"))]
            for branches in _alternatives(part):
                fitting = [branch for branch in branches if self._may_have_type(branch, kind)]
                waiting += fitting if len(fitting) == 1 else []
        return list(found.values())

    def single_type(self, schemas: Iterable[Any]) -> str | None:
        """Returns the JSON type, if exactly one is allowed apart from null."""
        left = _intersection(self._types_of(schema) for schema in schemas)
        left = left - {"null"} if left else frozenset()
        return "number" if left == _NUMBERS else next(iter(left)) if len(left) == 1 else None

    def _may_have_type(self, schema: Any, kind: str | None) -> bool:
        types = self._types_of(schema)
        return types is None or (kind in types if kind else types != {"null"})

    def _types_of(self, schema: Any, depth: int = 0) -> _Types | None:
        """Returns the types that a schema allows; `None`: all."""
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
            return None
        if id(schema) not in self._types:
            self._types[id(schema)] = None  # a reference to itself adds no constraint
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
        """Returns the target of `$ref` inside the document; `None`: there is none."""
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
"""The types that `number` allows: an integer is a number too."""


def _declared_types(schema: Mapping[str, Any]) -> _Types | None:
    """Returns the types that a schema declares by `type`, `enum` or `const`."""
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


# --- conversions ------------------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MAX_NUMBER_CHARACTERS = 400
"""The characters of a number in text, and the digits of an integer that is converted to text."""


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
    """Returns a function that parses lists or dictionaries in text, as some models write them."""

    def parse(value: Any) -> Any:
        found = parse_literal(value) if type(value) is str and value else ABSENT
        return found if type(found) is kind else value

    return parse


_COERCIONS: Mapping[str | None, Callable[[Any], Any]] = {
    "integer": _coerce_integer,
    "number": _coerce_number,
    "boolean": _coerce_boolean,
    "string": _coerce_string,
    "array": _parse_as(list),
    "object": _parse_as(dict),
}
