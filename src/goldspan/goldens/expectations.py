"""What a golden's `tools` may hold, as people write it, checked and made into the items of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, ClassVar, TypeAlias, cast

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Discriminator, Field, Tag
from pydantic.json_schema import SkipJsonSchema

from goldspan.errors import GoldenError
from goldspan.extraction.names import fold, undecorate
from goldspan.goldens.checking import NAME, NO_SUCH_KIND, Entry, Flag, Text, Whole, Within, in_a_list, path, unfit
from goldspan.goldens.matchers import check_plain, is_simple, read
from goldspan.goldens.words import shown
from goldspan.model import ABSENT, ONCE, AnyOf, ArgumentsMatch, ExpectedTool, Item, Parallel, Times

MAX_TIMES = 1_000
"""How often one call may be expected."""
MAX_CALLS = 10_000
"""How many calls a golden may expect, and how many entries its lists may hold together."""
MAX_NESTING = 8
"""How many alternatives may stand inside each other."""

# --- as written -------------------------------------------------------------------------------------------------------

_Least = Annotated[Whole, Within(0, MAX_TIMES, f"a whole number from 0 to {MAX_TIMES:,}")]
_Most = Annotated[Whole, Within(1, MAX_TIMES, f"a whole number from 1 to {MAX_TIMES:,}")]


class Range(Entry):
    """How many calls an expectation stands for."""

    min: _Least | None = None
    """So many must be made: 1 where it is not given, or 0 of what is optional."""
    max: _Most | None = None
    """So many may be made; any number where it is not given."""
    closed: ClassVar[bool] = True


def _kind_of_times(given: Any) -> str:
    return "<range>" if isinstance(given, Mapping) else "<number>"


_Times = Annotated[Annotated[_Most, Tag("<number>")] | Annotated[Range, Tag("<range>")], Discriminator(_kind_of_times)]


class Repeatable(Entry):
    """What may be left out, or happen several times."""

    optional: Flag = False
    """Whether it need not be called."""
    times: _Times | None = None
    """How often it is called: a number, or the least and the most."""


def _dotted(key: str) -> str:
    if not all(key.split(".")):
        raise unfit(f"must be a key or a path such as 'options.trace_id', not {shown(key)}.")
    return key


DottedPath = Annotated[Text, AfterValidator(_dotted)]
DottedPaths = Annotated[
    list[DottedPath], BeforeValidator(in_a_list, json_schema_input_type=DottedPath | list[DottedPath])
]


_ARGUMENTS = AliasChoices("arguments", "args", "input_parameters")


class Call(Repeatable):
    """A call that is expected."""

    name: Text
    """The tool's name, in any form that a host shows it in, or one of its aliases."""
    arguments: dict[Any, Any] | None = Field(None, validation_alias=_ARGUMENTS)
    """The arguments it must have; values may be matchers. Left out: any arguments will do."""
    server: Text | None = None
    """The MCP server whose tool it must be."""
    agent: Text | None = None
    """The agent that must make the call."""
    result: Any = Field(None, validation_alias=AliasChoices("result", "output"))
    """What must come back, or a matcher. Left out: anything will do."""
    match: ArgumentsMatch | None = None
    """`subset`: arguments that are not stated here cost nothing."""
    ignore: DottedPaths = Field(default_factory=list)
    """Arguments that are not looked at: keys, or paths such as `options.trace_id`."""
    defaults: dict[DottedPath, Any] = Field(default_factory=dict)
    """What an argument is, by key or path, where either side leaves it out."""

    misplaced: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("aliases", "effect"), "is declared under 'tools' at the head of the file"),
        **dict.fromkeys(("any_of", "parallel"), "makes it something else than a call"),
    }


class Alternatives(Repeatable):
    """Calls or trajectories, of which one is expected."""

    any_of: Annotated[list[Branch], Field(min_length=1)]
    """Each a call, or a list of what is expected one after the other."""

    misplaced: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("agent", "args", "arguments", "defaults", "ignore", "match", "name", "output", "parallel", "result", "server"),
        "belongs to a call, and cannot stand beside 'any_of'",
    )


class Together(Entry):
    """What is expected in any order among itself."""

    parallel: Annotated[list[ItemAsWritten], Field(min_length=1)]
    """Calls, or alternatives that are single calls."""

    misplaced: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            *("agent", "args", "arguments", "defaults", "ignore", "match", "name"),
            *("optional", "output", "result", "server", "times"),
        ),
        "belongs to a call, and cannot stand beside 'parallel'",
    )


def _kind_of_item(given: Any) -> str | None:
    if isinstance(given, str):
        return NAME
    if isinstance(given, dict | Mapping):
        return "<any_of>" if "any_of" in given else "<parallel>" if "parallel" in given else "<call>"
    return "<made>" if isinstance(given, ExpectedTool | AnyOf | Parallel) else None


def _kind_of_branch(given: Any) -> str:
    return "<items>" if isinstance(given, list | tuple) else "<item>"


ItemAsWritten: TypeAlias = Annotated[
    Annotated[Text, Tag(NAME)]
    | Annotated[Call, Tag("<call>")]
    | Annotated[Alternatives, Tag("<any_of>")]
    | Annotated[Together, Tag("<parallel>")]
    | Annotated[SkipJsonSchema[Any], Tag("<made>")],
    Discriminator(
        _kind_of_item,
        custom_error_type=NO_SUCH_KIND,
        custom_error_message="must be the name of a tool or a mapping with its name",
    ),
]
Branch: TypeAlias = Annotated[
    Annotated[ItemAsWritten, Tag("<item>")]
    | Annotated[Annotated[list[ItemAsWritten], Field(min_length=1)], Tag("<items>")],
    Discriminator(_kind_of_branch),
]
for _entry in (Alternatives, Together):
    _entry.model_rebuild()


# --- as meant ---------------------------------------------------------------------------------------------------------

Steps: TypeAlias = tuple[str | int, ...]
"""A place in a golden: keys and indexes."""

_LEVELS = 3 * MAX_NESTING
"""Lists and mappings inside each other: alternatives are a mapping, the list in it, and perhaps a list in that."""


def check_size(given: Any, where: str) -> None:
    """Refuse items without end, before anything recurses over them."""
    if isinstance(given, list) and len(given) <= MAX_CALLS and not any(map(_may_nest, given)):
        return
    waiting, left = [(given, 0)], MAX_CALLS
    while waiting:
        value, depth = waiting.pop()
        if depth > _LEVELS:
            raise GoldenError(f"{where}: alternatives are nested more than {MAX_NESTING} levels deep.")
        if isinstance(value, Mapping):
            waiting += ((value[key], depth + 1) for key in ("any_of", "parallel") if key in value)
        elif isinstance(value, list | tuple):
            left -= len(value)
            if left < 0:
                raise GoldenError(f"{where}: expects more than {MAX_CALLS:,} calls.")
            waiting += ((part, depth + 1) for part in value if not isinstance(part, str))


def _may_nest(item: Any) -> bool:
    return type(item) is not str and (type(item) is not dict or "any_of" in item or "parallel" in item)


_SIMPLE = frozenset({"name", "arguments"})


@lru_cache(maxsize=4096)
def _named(name: str, match: ArgumentsMatch) -> ExpectedTool:
    """A name alone; goldens repeat each other, and share what is the same."""
    return ExpectedTool(name, match=match)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What the surroundings of items say of all of them, and what is found out about them on the way."""

    where: str
    """The place of the golden, or of the list."""
    match: ArgumentsMatch = "exact"
    """For calls that do not say themselves."""
    known: Callable[[ExpectedTool], ExpectedTool] = lambda tool: tool
    """Adds what is declared of a tool."""
    strange: dict[str, Any] = field(default_factory=dict)
    """The author's own keys so far, by their paths, and what they say."""

    def items(self, written: Iterable[Any], *steps: str | int) -> tuple[Item, ...]:
        """Items in a list that stands at that place."""
        return tuple([self.item(each, *steps, at) for at, each in enumerate(written)])

    def item(self, written: Any, *steps: str | int) -> Item:
        """One item. Raises `GoldenError` for what can mean nothing."""
        if isinstance(written, str):
            return self.known(_named(written, self.match))
        if not isinstance(written, Entry):
            return cast(Item, written)  # made in Python
        if strange := written.model_extra:
            self.strange.update({f"{path(steps)}.{key}": value for key, value in strange.items()})
        if isinstance(written, Call):
            return self._call(written, steps)
        if isinstance(written, Alternatives):
            return self.any_of(written.any_of, _times(written, self._place(steps)), *steps, "any_of")
        return self._parallel(cast(Together, written).parallel, (*steps, "parallel"))

    def any_of(self, written: Sequence[Any], times: Times, *steps: str | int) -> AnyOf:
        """The alternatives in a list that stands at that place."""
        options = tuple(
            self.items(branch, *steps, at) if isinstance(branch, list) else (self.item(branch, *steps, at),)
            for at, branch in enumerate(written)
        )
        meant = AnyOf(options, times)
        if times not in (ONCE, _PERHAPS_ONCE) and not _is_single(meant):
            told = "only alternatives that are single calls can be expected several times"
            raise GoldenError(f"{self._place(steps[:-1])}: {told}.")
        return meant

    def _parallel(self, written: Sequence[Any], steps: Steps) -> Parallel:
        items: list[ExpectedTool | AnyOf] = []
        for at, each in enumerate(written):
            item = self.item(each, *steps, at)
            place = self._place((*steps, at))
            if isinstance(item, Parallel):
                raise GoldenError(f"{place}: 'parallel' cannot stand in another; put its items into that one.")
            if isinstance(item, AnyOf) and not _is_single(item):
                raise GoldenError(f"{place}: alternatives inside 'parallel' must be single calls.")
            items.append(item)
        return Parallel(tuple(items))

    def _call(self, written: Call, steps: Steps) -> ExpectedTool:
        given = written.model_fields_set
        arguments = written.arguments
        # Most calls are a name and plain arguments; their place need not be put into words.
        if given <= _SIMPLE and (arguments is None or is_simple(arguments)):
            return self.known(ExpectedTool(written.name, arguments, match=self.match))
        place = self._place(steps)
        check_server(written.name, written.server, place)
        check_plain(written.defaults, place, "defaults")
        return self.known(
            ExpectedTool(
                name=written.name,
                arguments=None if arguments is None else read(arguments, place, "arguments"),
                server=written.server,
                result=read(written.result, place, "result") if "result" in given else ABSENT,
                times=_times(written, place),
                match=written.match or self.match,
                ignore=tuple(written.ignore),
                defaults=written.defaults,
                agent=written.agent,
            )
        )

    def _place(self, steps: Steps) -> str:
        # A list that was given in Python has no name of its own: `expected[2]`, but `golden 'a', tools[2]`.
        return f"{self.where}{'' if isinstance(steps[0], int) else ', '}{path(steps)}"


def check_server(name: str, server: str | None, where: str) -> None:
    """Refuse a name that says another server than what stands beside it."""
    said = undecorate(name)[1]
    if said and server and fold(said) != fold(server):
        raise GoldenError(f"{where}: the name {name!r} says server {said!r}, but 'server' says {server!r}.")


def check_number(items: Iterable[Item], where: str) -> None:
    """Refuse items that stand for too many calls."""
    if sum(map(_number, items)) > MAX_CALLS:
        raise GoldenError(f"{where}: expects more than {MAX_CALLS:,} calls.")


_PERHAPS_ONCE = Times(0, 1, stated=False)


def _times(written: Repeatable, place: str) -> Times:
    times, optional = written.times, written.optional
    if times is None:
        return _PERHAPS_ONCE if optional else ONCE
    if isinstance(times, int):
        if optional:
            hint = f"`times: {{min: 0, max: {times}}}` says that fewer will do"
            raise GoldenError(f"{place}: 'optional' and 'times: {times}' contradict each other; {hint}.")
        return Times(times, times)
    if times.min is None and times.max is None:
        raise GoldenError(f"{place}: times has neither min nor max.")
    if optional and times.min:
        raise GoldenError(f"{place}: 'optional' and 'min: {times.min}' contradict each other; keep one of them.")
    least = times.min if times.min is not None else int(not optional)
    if times.max is not None and times.max < least:
        raise GoldenError(f"{place}, times: max is {times.max}, and min is {least}.")
    return Times(least, times.max)


def _is_single(item: Item) -> bool:
    """Whether one call answers it, whichever alternative that is of."""
    if isinstance(item, AnyOf):
        return all(len(option) == 1 and _is_once(option[0]) for option in item.options)
    return isinstance(item, ExpectedTool)


def _is_once(item: Item) -> bool:
    return not isinstance(item, Parallel) and item.times == ONCE and _is_single(item)


def _number(item: Item) -> int:
    """How many calls an item stands for, in its longest alternative."""
    if isinstance(item, Parallel):
        return sum(map(_number, item.items))
    times = max(item.times.least, item.times.most or 0)
    return times * (max(sum(map(_number, option)) for option in item.options) if isinstance(item, AnyOf) else 1)
