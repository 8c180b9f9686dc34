"""What a golden's `tools` may hold, as people write it, checked and made into the items of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, ClassVar, TypeAlias, cast

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Discriminator, Field, Tag
from pydantic.json_schema import SkipJsonSchema

from goldspan.content.tools import fold_name, undecorate
from goldspan.errors import GoldenError
from goldspan.goldens.schema.golden_validation import (
    NAME_TAG,
    UNKNOWN_KIND_ERROR,
    FileEntry,
    NonEmptyText,
    NumberRange,
    StrictBool,
    StrictInt,
    field_error,
    format_path,
    wrap_in_list,
)
from goldspan.goldens.schema.matchers import check_plain_data, has_only_scalars, parse_matchers
from goldspan.goldens.spelling import short_repr
from goldspan.model import ABSENT, ONCE, AnyOf, ArgumentsMatch, ExpectedItem, ExpectedTool, Parallel, Times

MAX_TIMES = 1_000
"""How often one call may be expected."""
MAX_CALLS = 10_000
"""How many calls a golden may expect, and how many entries its lists may hold together."""
MAX_NESTING = 8
"""How many alternatives may stand inside each other."""

# --- as written -------------------------------------------------------------------------------------------------------

_MinTimes = Annotated[StrictInt, NumberRange(0, MAX_TIMES, f"a whole number from 0 to {MAX_TIMES:,}")]
_MaxTimes = Annotated[StrictInt, NumberRange(1, MAX_TIMES, f"a whole number from 1 to {MAX_TIMES:,}")]


class TimesRangeEntry(FileEntry):
    """How many calls an expectation stands for."""

    min: _MinTimes | None = None
    """So many must be made: 1 where it is not given, or 0 of what is optional."""
    max: _MaxTimes | None = None
    """So many may be made; any number where it is not given."""
    forbids_extra_keys: ClassVar[bool] = True


def _times_tag(given: Any) -> str:
    return "<range>" if isinstance(given, Mapping) else "<number>"


_TimesField = Annotated[
    Annotated[_MaxTimes, Tag("<number>")] | Annotated[TimesRangeEntry, Tag("<range>")], Discriminator(_times_tag)
]


class RepeatableEntry(FileEntry):
    """What may be left out, or happen several times."""

    optional: StrictBool = False
    """Whether it need not be called."""
    times: _TimesField | None = None
    """How often it is called: a number, or the least and the most."""


def _check_dotted_path(key: str) -> str:
    if not all(key.split(".")):
        raise field_error(f"must be a key or a path such as 'options.trace_id', not {short_repr(key)}.")
    return key


DottedPath = Annotated[NonEmptyText, AfterValidator(_check_dotted_path)]
DottedPaths = Annotated[
    list[DottedPath], BeforeValidator(wrap_in_list, json_schema_input_type=DottedPath | list[DottedPath])
]


_ARGUMENT_KEYS = AliasChoices("arguments", "args", "input_parameters")


class CallEntry(RepeatableEntry):
    """A call that is expected."""

    name: NonEmptyText
    """The tool's name, in any form that a host shows it in, or one of its aliases."""
    arguments: dict[Any, Any] | None = Field(None, validation_alias=_ARGUMENT_KEYS)
    """The arguments it must have; values may be matchers. Left out: any arguments will do."""
    server: NonEmptyText | None = None
    """The MCP server whose tool it must be."""
    agent: NonEmptyText | None = None
    """The agent that must make the call."""
    result: Any = Field(None, validation_alias=AliasChoices("result", "output"))
    """What must come back, or a matcher. Left out: anything will do."""
    match: ArgumentsMatch | None = None
    """`subset`: arguments that are not stated here cost nothing."""
    ignore: DottedPaths = Field(default_factory=list)
    """Arguments that are not looked at: keys, or paths such as `options.trace_id`."""
    defaults: dict[DottedPath, Any] = Field(default_factory=dict)
    """What an argument is, by key or path, where either side leaves it out."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("aliases", "effect"), "is declared under 'tools' at the head of the file"),
        **dict.fromkeys(("any_of", "parallel"), "makes it something else than a call"),
    }


class AnyOfEntry(RepeatableEntry):
    """Calls or trajectories, of which one is expected."""

    any_of: Annotated[list[BranchEntry], Field(min_length=1)]
    """Each a call, or a list of what is expected one after the other."""

    misplaced_keys: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("agent", "args", "arguments", "defaults", "ignore", "match", "name", "output", "parallel", "result", "server"),
        "belongs to a call, and cannot stand beside 'any_of'",
    )


class ParallelEntry(FileEntry):
    """What is expected in any order among itself."""

    parallel: Annotated[list[ItemEntry], Field(min_length=1)]
    """Calls, or alternatives that are single calls."""

    misplaced_keys: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            *("agent", "args", "arguments", "defaults", "ignore", "match", "name"),
            *("optional", "output", "result", "server", "times"),
        ),
        "belongs to a call, and cannot stand beside 'parallel'",
    )


def _item_tag(given: Any) -> str | None:
    if isinstance(given, str):
        return NAME_TAG
    if isinstance(given, dict | Mapping):
        return "<any_of>" if "any_of" in given else "<parallel>" if "parallel" in given else "<call>"
    return "<made>" if isinstance(given, ExpectedTool | AnyOf | Parallel) else None


def _branch_tag(given: Any) -> str:
    return "<items>" if isinstance(given, list | tuple) else "<item>"


ItemEntry: TypeAlias = Annotated[
    Annotated[NonEmptyText, Tag(NAME_TAG)]
    | Annotated[CallEntry, Tag("<call>")]
    | Annotated[AnyOfEntry, Tag("<any_of>")]
    | Annotated[ParallelEntry, Tag("<parallel>")]
    | Annotated[SkipJsonSchema[Any], Tag("<made>")],
    Discriminator(
        _item_tag,
        custom_error_type=UNKNOWN_KIND_ERROR,
        custom_error_message="must be the name of a tool or a mapping with its name",
    ),
]
BranchEntry: TypeAlias = Annotated[
    Annotated[ItemEntry, Tag("<item>")] | Annotated[Annotated[list[ItemEntry], Field(min_length=1)], Tag("<items>")],
    Discriminator(_branch_tag),
]
for _entry in (AnyOfEntry, ParallelEntry):
    _entry.model_rebuild()


# --- as meant ---------------------------------------------------------------------------------------------------------

PathSteps: TypeAlias = tuple[str | int, ...]
"""A place in a golden: keys and indexes."""

_MAX_LEVELS = 3 * MAX_NESTING
"""Lists and mappings inside each other: alternatives are a mapping, the list in it, and perhaps a list in that."""


def check_item_limits(items: Any, location: str) -> None:
    """Refuse items without end, before anything recurses over them."""
    if isinstance(items, list) and len(items) <= MAX_CALLS and not any(map(_may_nest, items)):
        return
    waiting, left = [(items, 0)], MAX_CALLS
    while waiting:
        value, depth = waiting.pop()
        if depth > _MAX_LEVELS:
            raise GoldenError(f"{location}: alternatives are nested more than {MAX_NESTING} levels deep.")
        if isinstance(value, Mapping):
            waiting += ((value[key], depth + 1) for key in ("any_of", "parallel") if key in value)
        elif isinstance(value, list | tuple):
            left -= len(value)
            if left < 0:
                raise GoldenError(f"{location}: expects more than {MAX_CALLS:,} calls.")
            waiting += ((part, depth + 1) for part in value if not isinstance(part, str))


def _may_nest(item: Any) -> bool:
    return type(item) is not str and (type(item) is not dict or "any_of" in item or "parallel" in item)


_SIMPLE_CALL_KEYS = frozenset({"name", "arguments"})


@lru_cache(maxsize=4096)
def _tool_by_name(name: str, match: ArgumentsMatch) -> ExpectedTool:
    """A name alone; goldens repeat each other, and share what is the same."""
    return ExpectedTool(name, match=match)


@dataclass(frozen=True, slots=True)
class ItemParser:
    """What the surroundings of items say of all of them, and what is found out about them on the way."""

    location: str
    """The place of the golden, or of the list."""
    match: ArgumentsMatch = "exact"
    """For calls that do not say themselves."""
    add_declared: Callable[[ExpectedTool], ExpectedTool] = lambda tool: tool
    """Adds what is declared of a tool."""
    extra_keys: dict[str, Any] = field(default_factory=dict)
    """The author's own keys so far, by their paths, and what they say."""

    def parse_items(self, written: Iterable[Any], *steps: str | int) -> tuple[ExpectedItem, ...]:
        """Items in a list that stands at that place."""
        return tuple([self.parse_item(each, *steps, at) for at, each in enumerate(written)])

    def parse_item(self, written: Any, *steps: str | int) -> ExpectedItem:
        """One item. Raises `GoldenError` for what can mean nothing."""
        if isinstance(written, str):
            return self.add_declared(_tool_by_name(written, self.match))
        if not isinstance(written, FileEntry):
            return cast(ExpectedItem, written)  # made in Python
        if strange := written.model_extra:
            self.extra_keys.update({f"{format_path(steps)}.{key}": value for key, value in strange.items()})
        if isinstance(written, CallEntry):
            return self._parse_call(written, steps)
        if isinstance(written, AnyOfEntry):
            return self.parse_any_of(written.any_of, _parse_times(written, self._location(steps)), *steps, "any_of")
        return self._parse_parallel(cast(ParallelEntry, written).parallel, (*steps, "parallel"))

    def parse_any_of(self, written: Sequence[Any], times: Times, *steps: str | int) -> AnyOf:
        """The alternatives in a list that stands at that place."""
        options = tuple(
            self.parse_items(branch, *steps, at) if isinstance(branch, list) else (self.parse_item(branch, *steps, at),)
            for at, branch in enumerate(written)
        )
        meant = AnyOf(options, times)
        if times not in (ONCE, _OPTIONAL_ONCE) and not _is_single_call(meant):
            told = "only alternatives that are single calls can be expected several times"
            raise GoldenError(f"{self._location(steps[:-1])}: {told}.")
        return meant

    def _parse_parallel(self, written: Sequence[Any], steps: PathSteps) -> Parallel:
        items: list[ExpectedTool | AnyOf] = []
        for at, each in enumerate(written):
            item = self.parse_item(each, *steps, at)
            place = self._location((*steps, at))
            if isinstance(item, Parallel):
                raise GoldenError(f"{place}: 'parallel' cannot stand in another; put its items into that one.")
            if isinstance(item, AnyOf) and not _is_single_call(item):
                raise GoldenError(f"{place}: alternatives inside 'parallel' must be single calls.")
            items.append(item)
        return Parallel(tuple(items))

    def _parse_call(self, written: CallEntry, steps: PathSteps) -> ExpectedTool:
        given = written.model_fields_set
        arguments = written.arguments
        # Most calls are a name and plain arguments; their place need not be put into words.
        if given <= _SIMPLE_CALL_KEYS and (arguments is None or has_only_scalars(arguments)):
            return self.add_declared(ExpectedTool(written.name, arguments, match=self.match))
        place = self._location(steps)
        check_server_conflict(written.name, written.server, place)
        check_plain_data(written.defaults, place, "defaults")
        return self.add_declared(
            ExpectedTool(
                name=written.name,
                arguments=None if arguments is None else parse_matchers(arguments, place, "arguments"),
                server=written.server,
                result=parse_matchers(written.result, place, "result") if "result" in given else ABSENT,
                times=_parse_times(written, place),
                match=written.match or self.match,
                ignore=tuple(written.ignore),
                defaults=written.defaults,
                agent=written.agent,
            )
        )

    def _location(self, steps: PathSteps) -> str:
        # A list that was given in Python has no name of its own: `expected[2]`, but `golden 'a', tools[2]`.
        return f"{self.location}{'' if isinstance(steps[0], int) else ', '}{format_path(steps)}"


def check_server_conflict(name: str, server: str | None, location: str) -> None:
    """Refuse a name that says another server than what stands beside it."""
    said = undecorate(name)[1]
    if said and server and fold_name(said) != fold_name(server):
        raise GoldenError(f"{location}: the name {name!r} says server {said!r}, but 'server' says {server!r}.")


def check_call_count(items: Iterable[ExpectedItem], location: str) -> None:
    """Refuse items that stand for too many calls."""
    if sum(map(_count_calls, items)) > MAX_CALLS:
        raise GoldenError(f"{location}: expects more than {MAX_CALLS:,} calls.")


_OPTIONAL_ONCE = Times(0, 1, stated=False)


def _parse_times(written: RepeatableEntry, place: str) -> Times:
    times, optional = written.times, written.optional
    if times is None:
        return _OPTIONAL_ONCE if optional else ONCE
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


def _is_single_call(item: ExpectedItem) -> bool:
    """Whether one call answers it, whichever alternative that is of."""
    if isinstance(item, AnyOf):
        return all(len(option) == 1 and _is_called_once(option[0]) for option in item.options)
    return isinstance(item, ExpectedTool)


def _is_called_once(item: ExpectedItem) -> bool:
    return not isinstance(item, Parallel) and item.times == ONCE and _is_single_call(item)


def _count_calls(item: ExpectedItem) -> int:
    """How many calls an item stands for, in its longest alternative."""
    if isinstance(item, Parallel):
        return sum(map(_count_calls, item.items))
    times = max(item.times.least, item.times.most or 0)
    return times * (max(sum(map(_count_calls, option)) for option in item.options) if isinstance(item, AnyOf) else 1)
