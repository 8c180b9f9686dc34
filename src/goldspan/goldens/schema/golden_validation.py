"""How mappings of the golden language are checked with pydantic, and what is wrong with them in words for people."""

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
    """Bounds of a number, named in one piece: `a number from 0 to 1`."""

    minimum: float
    maximum: float | None
    description: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check_range, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        bounds = {"minimum": self.minimum, "maximum": self.maximum}
        return handler(schema) | {key: bound for key, bound in bounds.items() if bound is not None}

    def _check_range(self, value: float) -> float:
        # Written so that NaN, which is neither more nor less than anything, is out of bounds.
        if not (value >= self.minimum and (self.maximum is None or value <= self.maximum)):
            raise PydanticCustomError("range", "must be {words}", {"words": self.description})
        return value


Fraction = Annotated[StrictNumber, NumberRange(0, 1, "a number from 0 to 1")]


def wrap_in_list(value: Any) -> Any:
    """A text as the list that holds only this one; anything else as it is."""
    return [value] if isinstance(value, str) else value


OneOrManyTexts = Annotated[
    list[NonEmptyText], BeforeValidator(wrap_in_list, json_schema_input_type=NonEmptyText | list[NonEmptyText])
]
"""A list of texts, or the only one of them."""


class FileEntry(BaseModel):
    """One kind of mapping in a golden file. Keys that are not goldspan's are the author's own, and kept.

    A key that is nearly one of these, or means something in another place only, is a mistake and no metadata: passed
    over in silence, it would make a golden say something else than its author.
    """

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    not_a_mapping_message: ClassVar[str] = ""
    """What to say where something else than a mapping stands in its place; empty: that it must be one."""
    forbids_extra_keys: ClassVar[bool] = False
    """Whether keys of the author's own have no place in it."""
    misplaced_keys: ClassVar[Mapping[str, str]] = {}
    """Keys that mean something elsewhere only, or not yet, and what to say of them."""
    _known_keys: ClassVar[frozenset[str]]
    _key_aliases: ClassVar[tuple[tuple[str, str], ...]]

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Take down by which keys the fields go."""
        names = {name: _keys_of_field(cls, name) for name in cls.model_fields}
        cls._known_keys = frozenset(key for keys in names.values() for key in keys)
        cls._key_aliases = tuple((keys[0], other) for keys in names.values() for other in keys[1:])

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            if cls.not_a_mapping_message:
                raise entry_error(f"{cls.not_a_mapping_message}, not {short_repr(given)}.")
            raise PydanticCustomError("mapping", "must be a mapping")
        if strange := given.keys() - cls._known_keys:
            for key in filter(strange.__contains__, given):
                _check_unknown_key(cls, key)
        for key, other in cls._key_aliases:
            if key in given and other in given:
                later = max(key, other, key=list(given).index)
                raise entry_error(f"{later!r} says {key!r} a second time; keep one of them.")
        return given

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The schema with every key by which a field goes, and without those that are out of place."""
        written = handler.resolve_ref_schema(handler(schema))
        properties = written["properties"]
        for key, other in cls._key_aliases:
            properties[other] = properties[key]
        if cls._key_aliases:
            written["not"] = {"anyOf": [{"required": list(pair)} for pair in cls._key_aliases]}
        properties.update(dict.fromkeys(sorted(cls.misplaced_keys), False))
        written["additionalProperties"] = not cls.forbids_extra_keys
        for name in cls.model_fields:
            told = properties[_keys_of_field(cls, name)[0]]
            told.pop("title", None)  # its key once more
            if told.get("default", ...) is None:
                del told["default"]
        return written


class GoldenValidationError(GoldenError):
    """Everything that is wrong with one thing. Its text is the first of the sentences."""

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__(sentences[0])
        self.messages = tuple(sentences)


_EntryType = TypeVar("_EntryType", bound=FileEntry)


def validate_entry(entry_type: type[_EntryType], value: Any, location: str) -> _EntryType:
    """A mapping read as what it should be. Raises `Mistakes`, each a sentence that begins with the place."""
    try:
        return entry_type.model_validate(value)
    except ValidationError as error:
        raise _to_golden_error(error, location) from None


def validate_value(adapter: TypeAdapter[Any], value: Any, location: str) -> Any:
    """The same for what is no mapping."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise _to_golden_error(error, location) from None


def entry_error(message: str) -> PydanticCustomError:
    """A mistake in an entry as a whole, for its validators to raise."""
    return PydanticCustomError("mistake", "{sentence}", {"sentence": message})


def field_error(message: str) -> PydanticCustomError:
    """What is wrong with the value of one key, told of the key: `'(' cannot be used`."""
    return PydanticCustomError("unfit", "{sentence}", {"sentence": message})


def format_path(keys: Iterable[str | int]) -> str:
    """A place as people write it: `tools[2].any_of[0]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in keys).removeprefix(".")


def _keys_of_field(entry: type[FileEntry], field: str) -> list[str]:
    alias = entry.model_fields[field].validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices]
    return [alias if isinstance(alias, str) else field]


def _check_unknown_key(entry: type[FileEntry], key: Any) -> None:
    """Refuse a key that is not one of the entry's and cannot be its author's own."""
    if not isinstance(key, str):
        raise entry_error(f"the key {short_repr(key)} must be text.")
    if key in entry.misplaced_keys:
        raise entry_error(f"the key {key!r} {entry.misplaced_keys[key]}.")
    if entry.forbids_extra_keys or _cached_is_typo(key, entry._known_keys):
        raise entry_error(f"unknown key {short_repr(key)}.{did_you_mean(key, entry._known_keys)}")


_cached_is_typo = lru_cache(maxsize=1024)(is_typo)


# --- from pydantic's errors to sentences ------------------------------------------------------------------------------

NAME_TAG = "<name>"
"""The tag of what stands for a mapping that has only a name."""
UNKNOWN_KIND_ERROR = "no_such_kind"
"""The type of the error for what is none of several things that could stand there; its message says which."""

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


def _to_golden_error(error: ValidationError, where: str) -> GoldenValidationError:
    return GoldenValidationError([_error_sentence(problem, where) for problem in error.errors(include_url=False)])


def _error_sentence(problem: Any, where: str) -> str:
    """One of pydantic's errors as a sentence."""
    tags = [step for step in problem["loc"] if _is_tag(step)]
    steps = [step for step in problem["loc"] if not _is_tag(step)]
    if problem["type"] in ("mistake", UNKNOWN_KIND_ERROR):
        return f"{_location(where, steps)}: {_problem_text(problem)}"
    if tags and problem["loc"][-1] == NAME_TAG:
        return f"{_location(where, steps)}: name {_problem_text(problem)}"
    field = max((at for at, step in enumerate(steps) if isinstance(step, str)), default=0)
    return f"{_location(where, steps[:field])}: {format_path(steps[field:])} {_problem_text(problem)}"


def _is_tag(step: object) -> bool:
    """Whether a step says which of several kinds something was read as, and not where it stands."""
    return isinstance(step, str) and step.startswith("<") and step.endswith(">")


def _location(where: str, steps: Sequence[Any]) -> str:
    if not steps:
        return where
    if isinstance(steps[0], int):
        return f"{where}{format_path(steps)}"
    if steps[0] == "tools" and len(steps) > 1 and isinstance(steps[1], str):  # of the vocabulary; a golden's are a list
        return f"{where}, tool {short_repr(steps[1])}"
    return f"{where}, {format_path(steps)}"


def _problem_text(problem: Any) -> str:
    kind, given = problem["type"], problem["input"]
    if kind in ("mistake", "unfit"):
        return str(problem["msg"])
    if kind == "missing":
        return "is missing."
    if kind in ("string_too_short", "too_short"):
        return "must not be empty."
    if kind == "literal_error":
        words = [word.strip("'") for word in problem["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        return f"must be {join_words(words, last='or')}, not {short_repr(given)}.{did_you_mean(given, words)}"
    hint = " Write it in quotes." if kind == "string_type" and isinstance(given, int | float) else ""
    return f"{_TYPE_MESSAGES.get(kind) or problem['msg']}, not {short_repr(given)}.{hint}"
