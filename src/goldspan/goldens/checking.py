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
from goldspan.goldens.words import did_you_mean, is_slip, listed, shown

Text = Annotated[str, Strict(), Field(min_length=1)]
PerhapsEmpty = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]
Number = Annotated[float, Strict()]
Whole = Annotated[int, Strict()]


@dataclass(frozen=True, slots=True)
class Within:
    """Bounds of a number, named in one piece: `a number from 0 to 1`."""

    least: float
    most: float | None
    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        bounds = {"minimum": self.least, "maximum": self.most}
        return handler(schema) | {key: bound for key, bound in bounds.items() if bound is not None}

    def _checked(self, value: float) -> float:
        # Written so that NaN, which is neither more nor less than anything, is out of bounds.
        if not (value >= self.least and (self.most is None or value <= self.most)):
            raise PydanticCustomError("range", "must be {words}", {"words": self.words})
        return value


Share = Annotated[Number, Within(0, 1, "a number from 0 to 1")]


def in_a_list(value: Any) -> Any:
    """A text as the list that holds only this one; anything else as it is."""
    return [value] if isinstance(value, str) else value


OneOrMore = Annotated[list[Text], BeforeValidator(in_a_list, json_schema_input_type=Text | list[Text])]
"""A list of texts, or the only one of them."""


class Entry(BaseModel):
    """One kind of mapping in a golden file. Keys that are not goldspan's are the author's own, and kept.

    A key that is nearly one of these, or means something in another place only, is a mistake and no metadata: passed
    over in silence, it would make a golden say something else than its author.
    """

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    instead: ClassVar[str] = ""
    """What to say where something else than a mapping stands in its place; empty: that it must be one."""
    closed: ClassVar[bool] = False
    """Whether keys of the author's own have no place in it."""
    misplaced: ClassVar[Mapping[str, str]] = {}
    """Keys that mean something elsewhere only, or not yet, and what to say of them."""
    _words: ClassVar[frozenset[str]]
    _synonyms: ClassVar[tuple[tuple[str, str], ...]]

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Take down by which keys the fields go."""
        names = {name: _names_of(cls, name) for name in cls.model_fields}
        cls._words = frozenset(key for keys in names.values() for key in keys)
        cls._synonyms = tuple((keys[0], other) for keys in names.values() for other in keys[1:])

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            if cls.instead:
                raise mistake(f"{cls.instead}, not {shown(given)}.")
            raise PydanticCustomError("mapping", "must be a mapping")
        if strange := given.keys() - cls._words:
            for key in filter(strange.__contains__, given):
                _check_key(cls, key)
        for key, other in cls._synonyms:
            if key in given and other in given:
                later = max(key, other, key=list(given).index)
                raise mistake(f"{later!r} says {key!r} a second time; keep one of them.")
        return given

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The schema with every key by which a field goes, and without those that are out of place."""
        written = handler.resolve_ref_schema(handler(schema))
        properties = written["properties"]
        for key, other in cls._synonyms:
            properties[other] = properties[key]
        if cls._synonyms:
            written["not"] = {"anyOf": [{"required": list(pair)} for pair in cls._synonyms]}
        properties.update(dict.fromkeys(sorted(cls.misplaced), False))
        written["additionalProperties"] = not cls.closed
        for name in cls.model_fields:
            told = properties[_names_of(cls, name)[0]]
            told.pop("title", None)  # its key once more
            if told.get("default", ...) is None:
                del told["default"]
        return written


class Mistakes(GoldenError):  # noqa: N818 - several of what a GoldenError is one of
    """Everything that is wrong with one thing. Its text is the first of the sentences."""

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__(sentences[0])
        self.sentences = tuple(sentences)


_Entry = TypeVar("_Entry", bound=Entry)


def checked(kind: type[_Entry], given: Any, where: str) -> _Entry:
    """A mapping read as what it should be. Raises `Mistakes`, each a sentence that begins with the place."""
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise _mistakes(error, where) from None


def checked_value(kind: TypeAdapter[Any], given: Any, where: str) -> Any:
    """The same for what is no mapping."""
    try:
        return kind.validate_python(given)
    except ValidationError as error:
        raise _mistakes(error, where) from None


def mistake(sentence: str) -> PydanticCustomError:
    """A mistake in an entry as a whole, for its validators to raise."""
    return PydanticCustomError("mistake", "{sentence}", {"sentence": sentence})


def unfit(sentence: str) -> PydanticCustomError:
    """What is wrong with the value of one key, told of the key: `'(' cannot be used`."""
    return PydanticCustomError("unfit", "{sentence}", {"sentence": sentence})


def path(steps: Iterable[str | int]) -> str:
    """A place as people write it: `tools[2].any_of[0]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def _names_of(entry: type[Entry], field: str) -> list[str]:
    alias = entry.model_fields[field].validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices]
    return [alias if isinstance(alias, str) else field]


def _check_key(entry: type[Entry], key: Any) -> None:
    """Refuse a key that is not one of the entry's and cannot be its author's own."""
    if not isinstance(key, str):
        raise mistake(f"the key {shown(key)} must be text.")
    if key in entry.misplaced:
        raise mistake(f"the key {key!r} {entry.misplaced[key]}.")
    if entry.closed or _is_slip(key, entry._words):
        raise mistake(f"unknown key {shown(key)}.{did_you_mean(key, entry._words)}")


_is_slip = lru_cache(maxsize=1024)(is_slip)


# --- from pydantic's errors to sentences ------------------------------------------------------------------------------

NAME = "<name>"
"""The tag of what stands for a mapping that has only a name."""
NO_SUCH_KIND = "no_such_kind"
"""The type of the error for what is none of several things that could stand there; its message says which."""

_MUST_BE = {
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


def _mistakes(error: ValidationError, where: str) -> Mistakes:
    return Mistakes([_sentence(problem, where) for problem in error.errors(include_url=False)])


def _sentence(problem: Any, where: str) -> str:
    """One of pydantic's errors as a sentence."""
    tags = [step for step in problem["loc"] if _is_tag(step)]
    steps = [step for step in problem["loc"] if not _is_tag(step)]
    if problem["type"] in ("mistake", NO_SUCH_KIND):
        return f"{_place(where, steps)}: {_told(problem)}"
    if tags and problem["loc"][-1] == NAME:
        return f"{_place(where, steps)}: name {_told(problem)}"
    field = max((at for at, step in enumerate(steps) if isinstance(step, str)), default=0)
    return f"{_place(where, steps[:field])}: {path(steps[field:])} {_told(problem)}"


def _is_tag(step: object) -> bool:
    """Whether a step says which of several kinds something was read as, and not where it stands."""
    return isinstance(step, str) and step.startswith("<") and step.endswith(">")


def _place(where: str, steps: Sequence[Any]) -> str:
    if not steps:
        return where
    if isinstance(steps[0], int):
        return f"{where}{path(steps)}"
    if steps[0] == "tools" and len(steps) > 1 and isinstance(steps[1], str):  # of the vocabulary; a golden's are a list
        return f"{where}, tool {shown(steps[1])}"
    return f"{where}, {path(steps)}"


def _told(problem: Any) -> str:
    kind, given = problem["type"], problem["input"]
    if kind in ("mistake", "unfit"):
        return str(problem["msg"])
    if kind == "missing":
        return "is missing."
    if kind in ("string_too_short", "too_short"):
        return "must not be empty."
    if kind == "literal_error":
        words = [word.strip("'") for word in problem["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        return f"must be {listed(words, last='or')}, not {shown(given)}.{did_you_mean(given, words)}"
    hint = " Write it in quotes." if kind == "string_type" and isinstance(given, int | float) else ""
    return f"{_MUST_BE.get(kind) or problem['msg']}, not {shown(given)}.{hint}"
