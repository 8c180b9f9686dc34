"""Models of the items of a golden's `tools`, and their conversion to `goldspan.model`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, ClassVar, TypeAlias, cast

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Discriminator, Field, Tag
from pydantic.json_schema import SkipJsonSchema

from goldspan.content.tools import undecorate
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
from goldspan.model.name_folding import fold_name

MAX_TIMES = 1_000
"""The greatest number of times that one call may be expected."""
MAX_CALLS = 10_000
"""The greatest number of calls that a golden may expect, and of items in all its lists together."""
MAX_NESTING = 8
"""The greatest nesting depth of alternatives."""

# --- models of the mappings -------------------------------------------------------------------------------------------

_MinTimes = Annotated[StrictInt, NumberRange(0, MAX_TIMES, f"a whole number from 0 to {MAX_TIMES:,}")]
_MaxTimes = Annotated[StrictInt, NumberRange(1, MAX_TIMES, f"a whole number from 1 to {MAX_TIMES:,}")]


class TimesRangeEntry(FileEntry):
    """The least and the greatest number of calls that an item expects."""

    min: _MinTimes | None = None
    """The least number of calls; 1 by default, 0 for an optional item."""
    max: _MaxTimes | None = None
    """The greatest number of calls; unlimited by default."""
    forbids_extra_keys: ClassVar[bool] = True


def _times_tag(value: Any) -> str:
    return "<range>" if isinstance(value, Mapping) else "<number>"


_TimesField = Annotated[
    Annotated[_MaxTimes, Tag("<number>")] | Annotated[TimesRangeEntry, Tag("<range>")], Discriminator(_times_tag)
]


class RepeatableEntry(FileEntry):
    """Base class of the items that may be optional or repeated."""

    optional: StrictBool = False
    """Whether the call may be missing."""
    times: _TimesField | None = None
    """How often it is called: a number, or a mapping with `min` and `max`."""


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
    """An expected call."""

    name: NonEmptyText
    """The name of the tool in any form that an MCP host uses, or one of its aliases."""
    arguments: dict[Any, Any] | None = Field(None, validation_alias=_ARGUMENT_KEYS)
    """The expected arguments; values may be matchers. If omitted, any arguments match."""
    server: NonEmptyText | None = None
    """The MCP server that the tool must belong to."""
    agent: NonEmptyText | None = None
    """The agent that must make the call."""
    result: Any = Field(None, validation_alias=AliasChoices("result", "output"))
    """The expected result, or a matcher. If omitted, any result matches."""
    match: ArgumentsMatch | None = None
    """`subset`: arguments that are not stated here are ignored."""
    ignore: DottedPaths = Field(default_factory=list)
    """Arguments that are not compared: keys, or paths such as `options.trace_id`."""
    defaults: dict[DottedPath, Any] = Field(default_factory=dict)
    """Values of arguments that the call or the golden leaves out, by key or path."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("aliases", "effect"), "is declared under 'tools' in the header of the file"),
        **dict.fromkeys(("any_of", "parallel"), "cannot stand beside 'name' in a call"),
    }


class AnyOfEntry(RepeatableEntry):
    """Alternative calls or trajectories, one of which is expected."""

    any_of: Annotated[list[BranchEntry], Field(min_length=1)]
    """The alternatives: each a call, or a list of calls in sequence."""

    misplaced_keys: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("agent", "args", "arguments", "defaults", "ignore", "match", "name", "output", "parallel", "result", "server"),
        "belongs to a call, and cannot stand beside 'any_of'",
    )


class ParallelEntry(FileEntry):
    """Calls that are expected in any order relative to each other."""

    parallel: Annotated[list[ItemEntry], Field(min_length=1)]
    """The calls; alternatives are allowed if each of them is a single call."""

    misplaced_keys: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            *("agent", "args", "arguments", "defaults", "ignore", "match", "name"),
            *("optional", "output", "result", "server", "times"),
        ),
        "belongs to a call, and cannot stand beside 'parallel'",
    )


def _item_tag(value: Any) -> str | None:
    if isinstance(value, str):
        return NAME_TAG
    if isinstance(value, dict | Mapping):
        return "<any_of>" if "any_of" in value else "<parallel>" if "parallel" in value else "<call>"
    return "<made>" if isinstance(value, ExpectedTool | AnyOf | Parallel) else None


def _branch_tag(value: Any) -> str:
    return "<items>" if isinstance(value, list | tuple) else "<item>"


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


# --- conversion -------------------------------------------------------------------------------------------------------

PathSteps: TypeAlias = tuple[str | int, ...]
"""A path in a golden: keys and indexes."""

_MAX_LEVELS = 3 * MAX_NESTING
"""The greatest depth of lists and mappings: an alternative is a mapping, a list in it, and possibly a list in that."""


def check_item_limits(items: Any, location: str) -> None:
    """Rejects too many or too deeply nested items, before other code recurses over them."""
    if isinstance(items, list) and len(items) <= MAX_CALLS and not any(map(_may_nest, items)):
        return
    pending, remaining = [(items, 0)], MAX_CALLS
    while pending:
        value, depth = pending.pop()
        if depth > _MAX_LEVELS:
            raise GoldenError(f"{location}: alternatives are nested more than {MAX_NESTING} levels deep.")
        if isinstance(value, Mapping):
            pending += ((value[key], depth + 1) for key in ("any_of", "parallel") if key in value)
        elif isinstance(value, list | tuple):
            remaining -= len(value)
            if remaining < 0:
                raise GoldenError(f"{location}: expects more than {MAX_CALLS:,} calls.")
            pending += ((part, depth + 1) for part in value if not isinstance(part, str))


def _may_nest(item: Any) -> bool:
    return type(item) is not str and (type(item) is not dict or "any_of" in item or "parallel" in item)


_SIMPLE_CALL_KEYS = frozenset({"name", "arguments"})


@lru_cache(maxsize=4096)
def _tool_by_name(name: str, match: ArgumentsMatch) -> ExpectedTool:
    """Returns the expected tool of a bare name; cached, because goldens repeat the same names."""
    return ExpectedTool(name, match=match)


@dataclass(frozen=True, slots=True)
class ItemParser:
    """Converts items to the model, with the settings of their golden; collects undefined keys."""

    location: str
    """The location of the golden, or of the list, for error messages."""
    match: ArgumentsMatch = "exact"
    """The default for calls that do not state `match`."""
    add_declared: Callable[[ExpectedTool], ExpectedTool] = lambda tool: tool
    """Adds the declared defaults of a tool."""
    extra_keys: dict[str, Any] = field(default_factory=dict)
    """The values of keys that goldspan does not define, by path."""

    def parse_items(self, entries: Iterable[Any], *steps: str | int) -> tuple[ExpectedItem, ...]:
        """Converts the items of the list at the path `steps`."""
        return tuple([self.parse_item(entry, *steps, index) for index, entry in enumerate(entries)])

    def parse_item(self, entry: Any, *steps: str | int) -> ExpectedItem:
        """Converts the item at the path `steps`. Raises `GoldenError` for an invalid item."""
        if isinstance(entry, str):
            return self.add_declared(_tool_by_name(entry, self.match))
        if not isinstance(entry, FileEntry):
            return cast(ExpectedItem, entry)  # created in Python
        if extra := entry.model_extra:
            self.extra_keys.update({f"{format_path(steps)}.{key}": value for key, value in extra.items()})
        if isinstance(entry, CallEntry):
            return self._parse_call(entry, steps)
        if isinstance(entry, AnyOfEntry):
            return self.parse_any_of(entry.any_of, _parse_times(entry, self._location(steps)), *steps, "any_of")
        return self._parse_parallel(cast(ParallelEntry, entry).parallel, (*steps, "parallel"))

    def parse_any_of(self, branches: Sequence[Any], times: Times, *steps: str | int) -> AnyOf:
        """Converts the alternatives of the list at the path `steps`."""
        options = tuple(
            self.parse_items(branch, *steps, index)
            if isinstance(branch, list)
            else (self.parse_item(branch, *steps, index),)
            for index, branch in enumerate(branches)
        )
        any_of = AnyOf(options, times)
        if times not in (ONCE, _OPTIONAL_ONCE) and not _is_single_call(any_of):
            problem = "only alternatives that are single calls can be expected several times"
            raise GoldenError(f"{self._location(steps[:-1])}: {problem}.")
        return any_of

    def _parse_parallel(self, entries: Sequence[Any], steps: PathSteps) -> Parallel:
        items: list[ExpectedTool | AnyOf] = []
        for index, entry in enumerate(entries):
            item = self.parse_item(entry, *steps, index)
            location = self._location((*steps, index))
            if isinstance(item, Parallel):
                raise GoldenError(f"{location}: 'parallel' cannot be nested; move its items to the outer one.")
            if isinstance(item, AnyOf) and not _is_single_call(item):
                raise GoldenError(f"{location}: alternatives inside 'parallel' must be single calls.")
            items.append(item)
        return Parallel(tuple(items))

    def _parse_call(self, entry: CallEntry, steps: PathSteps) -> ExpectedTool:
        stated_keys = entry.model_fields_set
        arguments = entry.arguments
        # Most calls are a name with plain arguments; this path does not format their location.
        if stated_keys <= _SIMPLE_CALL_KEYS and (arguments is None or has_only_scalars(arguments)):
            return self.add_declared(ExpectedTool(entry.name, arguments, match=self.match))
        location = self._location(steps)
        check_server_conflict(entry.name, entry.server, location)
        check_plain_data(entry.defaults, location, "defaults")
        return self.add_declared(
            ExpectedTool(
                name=entry.name,
                arguments=None if arguments is None else parse_matchers(arguments, location, "arguments"),
                server=entry.server,
                result=parse_matchers(entry.result, location, "result") if "result" in stated_keys else ABSENT,
                times=_parse_times(entry, location),
                match=entry.match or self.match,
                ignore=tuple(entry.ignore),
                defaults=entry.defaults,
                agent=entry.agent,
            )
        )

    def _location(self, steps: PathSteps) -> str:
        # A list from Python code has no key: `expected[2]`, but `golden 'a', tools[2]`.
        return f"{self.location}{'' if isinstance(steps[0], int) else ', '}{format_path(steps)}"


def check_server_conflict(name: str, server: str | None, location: str) -> None:
    """Rejects a name whose server prefix contradicts the stated server."""
    prefix = undecorate(name)[1]
    if prefix and server and fold_name(prefix) != fold_name(server):
        raise GoldenError(f"{location}: the name {name!r} names server {prefix!r}, but 'server' is {server!r}.")


def check_call_count(items: Iterable[ExpectedItem], location: str) -> None:
    """Rejects items that expect too many calls."""
    if sum(map(_count_calls, items)) > MAX_CALLS:
        raise GoldenError(f"{location}: expects more than {MAX_CALLS:,} calls.")


_OPTIONAL_ONCE = Times(0, 1, stated=False)


def _parse_times(entry: RepeatableEntry, location: str) -> Times:
    times, optional = entry.times, entry.optional
    if times is None:
        return _OPTIONAL_ONCE if optional else ONCE
    if isinstance(times, int):
        if optional:
            hint = f"`times: {{min: 0, max: {times}}}` allows fewer calls"
            raise GoldenError(f"{location}: 'optional' and 'times: {times}' contradict each other; {hint}.")
        return Times(times, times)
    if times.min is None and times.max is None:
        raise GoldenError(f"{location}: times has neither min nor max.")
    if optional and times.min:
        raise GoldenError(f"{location}: 'optional' and 'min: {times.min}' contradict each other; keep one of them.")
    least = times.min if times.min is not None else int(not optional)
    if times.max is not None and times.max < least:
        raise GoldenError(f"{location}, times: max is {times.max}, and min is {least}.")
    return Times(least, times.max)


def _is_single_call(item: ExpectedItem) -> bool:
    """Whether the item is one call, or alternatives that are one call each."""
    if isinstance(item, AnyOf):
        return all(len(option) == 1 and _is_called_once(option[0]) for option in item.options)
    return isinstance(item, ExpectedTool)


def _is_called_once(item: ExpectedItem) -> bool:
    return not isinstance(item, Parallel) and item.times == ONCE and _is_single_call(item)


def _count_calls(item: ExpectedItem) -> int:
    """Returns how many calls an item expects; of alternatives, the longest counts."""
    if isinstance(item, Parallel):
        return sum(map(_count_calls, item.items))
    times = max(item.times.least, item.times.most or 0)
    return times * (max(sum(map(_count_calls, option)) for option in item.options) if isinstance(item, AnyOf) else 1)
