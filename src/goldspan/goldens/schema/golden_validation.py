"""Validates mappings of golden files with pydantic, and words the errors for the author of the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from goldspan.errors import GoldenError
from goldspan.goldens.spelling import did_you_mean, is_typo, join_words, short_repr

NonEmptyText = Annotated[str, Strict(), Field(min_length=1)]
PossiblyEmptyText = Annotated[str, Strict()]
StrictBool = Annotated[bool, Strict()]
StrictNumber = Annotated[float, Strict()]
StrictInt = Annotated[int, Strict()]


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Bounds of a number, with one description for error messages: `a number from 0 to 1`."""

    minimum: float
    maximum: float | None
    description: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check_range, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        bounds = {"minimum": self.minimum, "maximum": self.maximum}
        return handler(schema) | {key: bound for key, bound in bounds.items() if bound is not None}

    def _check_range(self, value: float) -> float:
        # NaN compares as neither less nor greater; this form of the condition rejects it.
        if not (value >= self.minimum and (self.maximum is None or value <= self.maximum)):
            raise PydanticCustomError("range", "must be {words}", {"words": self.description})
        return value


Fraction = Annotated[StrictNumber, NumberRange(0, 1, "a number from 0 to 1")]


def wrap_in_list(value: Any) -> Any:
    """Wraps a text in a list; returns any other value unchanged."""
    return [value] if isinstance(value, str) else value


OneOrManyTexts = Annotated[
    list[NonEmptyText], BeforeValidator(wrap_in_list, json_schema_input_type=NonEmptyText | list[NonEmptyText])
]
"""A list of texts, or a single text."""


class FileEntry(BaseModel):
    """Base class of the mappings in a golden file. Keys that goldspan does not define are kept as metadata.

    A key that resembles a defined key, or that is defined elsewhere only, is an error and not metadata: if it were
    ignored, the golden would mean something else than its author intended.
    """

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    not_a_mapping_message: ClassVar[str] = ""
    """The error message for a value that is not a mapping; empty for the generic message."""
    forbids_extra_keys: ClassVar[bool] = False
    """Whether undefined keys are errors."""
    misplaced_keys: ClassVar[Mapping[str, str]] = {}
    """Keys that are defined elsewhere only, and the error message for each of them."""
    _known_keys: ClassVar[frozenset[str]]
    _key_aliases: ClassVar[tuple[tuple[str, str], ...]]

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Collects the keys and aliases of the fields."""
        names = {name: _keys_of_field(cls, name) for name in cls.model_fields}
        cls._known_keys = frozenset(key for keys in names.values() for key in keys)
        cls._key_aliases = tuple((keys[0], other) for keys in names.values() for other in keys[1:])

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            if cls.not_a_mapping_message:
                raise entry_error(f"{cls.not_a_mapping_message}, not {short_repr(value)}.")
            raise PydanticCustomError("mapping", "must be a mapping")
        if unknown_keys := value.keys() - cls._known_keys:
            for key in filter(unknown_keys.__contains__, value):
                _check_unknown_key(cls, key)
        for key, alias in cls._key_aliases:
            if key in value and alias in value:
                first, second = sorted((key, alias), key=list(value).index)
                raise entry_error(f"{second!r} and {first!r} are the same key; keep one of them.")
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Adds the aliases of the fields to the schema, and excludes misplaced keys."""
        json_schema = handler.resolve_ref_schema(handler(schema))
        properties = json_schema["properties"]
        for key, alias in cls._key_aliases:
            properties[alias] = properties[key]
        if cls._key_aliases:
            json_schema["not"] = {"anyOf": [{"required": list(pair)} for pair in cls._key_aliases]}
        properties.update(dict.fromkeys(sorted(cls.misplaced_keys), False))
        json_schema["additionalProperties"] = not cls.forbids_extra_keys
        for name in cls.model_fields:
            field_schema = properties[_keys_of_field(cls, name)[0]]
            field_schema.pop("title", None)  # it only repeats the key
            if field_schema.get("default", ...) is None:
                del field_schema["default"]
        return json_schema


class GoldenValidationError(GoldenError):
    """All errors of one entry. The text of the exception is the first message."""

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__(messages[0])
        self.messages = tuple(messages)


_EntryType = TypeVar("_EntryType", bound=FileEntry)


def validate_entry(entry_type: type[_EntryType], value: Any, location: str) -> _EntryType:
    """Validates a mapping. Raises `GoldenValidationError`; each of its messages begins with the location."""
    try:
        return entry_type.model_validate(value)
    except ValidationError as error:
        raise _to_golden_error(error, location) from None


def validate_value(adapter: TypeAdapter[Any], value: Any, location: str) -> Any:
    """Validates a value that is not a mapping. Raises `GoldenValidationError`."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise _to_golden_error(error, location) from None


def entry_error(message: str) -> PydanticCustomError:
    """Returns an error about an entry as a whole, for its validators to raise."""
    return PydanticCustomError("mistake", "{sentence}", {"sentence": message})


def field_error(message: str) -> PydanticCustomError:
    """Returns an error about the value of one key; the message is a predicate of the key: `'(' cannot be used`."""
    return PydanticCustomError("unfit", "{sentence}", {"sentence": message})


def format_path(keys: Iterable[str | int]) -> str:
    """Formats a path such as `tools[2].any_of[0]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in keys).removeprefix(".")


def _keys_of_field(entry: type[FileEntry], field: str) -> list[str]:
    alias = entry.model_fields[field].validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices]
    return [alias if isinstance(alias, str) else field]


def _check_unknown_key(entry: type[FileEntry], key: Any) -> None:
    """Raises an error for a key that is neither defined nor acceptable as metadata."""
    if not isinstance(key, str):
        raise entry_error(f"the key {short_repr(key)} must be text.")
    if key in entry.misplaced_keys:
        raise entry_error(f"the key {key!r} {entry.misplaced_keys[key]}.")
    if entry.forbids_extra_keys or _cached_is_typo(key, entry._known_keys):
        raise entry_error(f"unknown key {short_repr(key)}.{did_you_mean(key, entry._known_keys)}")


_cached_is_typo = lru_cache(maxsize=1024)(is_typo)


# --- from pydantic errors to messages ---------------------------------------------------------------------------------

NAME_TAG = "<name>"
"""The tag of a text that is short for a mapping with only a name."""
UNKNOWN_KIND_ERROR = "no_such_kind"
"""The type of the error for a value that is none of the accepted types."""

_TYPE_MESSAGES = {
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "list_type": "must be a list",
    "mapping": "must be a mapping",
    "string_type": "must be text",
    "string_unicode": "must be text of whole characters",
}


def _to_golden_error(error: ValidationError, location: str) -> GoldenValidationError:
    return GoldenValidationError([_error_sentence(problem, location) for problem in error.errors(include_url=False)])


def _error_sentence(problem: Any, location: str) -> str:
    """Formats one pydantic error as a sentence."""
    tags = [step for step in problem["loc"] if _is_tag(step)]
    steps = [step for step in problem["loc"] if not _is_tag(step)]
    if problem["type"] in ("mistake", UNKNOWN_KIND_ERROR):
        return f"{_location(location, steps)}: {_problem_text(problem)}"
    if tags and problem["loc"][-1] == NAME_TAG:
        return f"{_location(location, steps)}: name {_problem_text(problem)}"
    field = max((at for at, step in enumerate(steps) if isinstance(step, str)), default=0)
    return f"{_location(location, steps[:field])}: {format_path(steps[field:])} {_problem_text(problem)}"


def _is_tag(step: object) -> bool:
    """Whether a step is the tag of a union member, and not a key or an index."""
    return isinstance(step, str) and step.startswith("<") and step.endswith(">")


def _location(location: str, steps: Sequence[Any]) -> str:
    if not steps:
        return location
    if isinstance(steps[0], int):
        return f"{location}{format_path(steps)}"
    if steps[0] == "tools" and len(steps) > 1 and isinstance(steps[1], str):  # the header: there `tools` is a mapping
        return f"{location}, tool {short_repr(steps[1])}"
    return f"{location}, {format_path(steps)}"


def _problem_text(problem: Any) -> str:
    kind, value = problem["type"], problem["input"]
    if kind in ("mistake", "unfit"):
        return str(problem["msg"])
    if kind == "missing":
        return "is missing."
    if kind in ("string_too_short", "too_short"):
        return "must not be empty."
    if kind == "literal_error":
        words = [word.strip("'") for word in problem["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        return f"must be {join_words(words, last='or')}, not {short_repr(value)}.{did_you_mean(value, words)}"
    hint = " Write it in quotes." if kind == "string_type" and isinstance(value, int | float) else ""
    return f"{_TYPE_MESSAGES.get(kind) or problem['msg']}, not {short_repr(value)}.{hint}"
