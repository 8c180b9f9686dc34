"""What is odd about goldens: by themselves, and beside the runs that they are for. Nothing here changes a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from goldspan.errors import ConfigurationError
from goldspan.extraction.names import fold, undecorate
from goldspan.goldens.files import Placed
from goldspan.goldens.naming import Keys, naming
from goldspan.goldens.texts import normalized
from goldspan.goldens.words import listed, nearest
from goldspan.model import ExpectedTool, Golden, Run, ToolCall, Vocabulary
from goldspan.scoring.identity import is_forbidden
from goldspan.scoring.registry import find
from goldspan.scoring.suggestions import difference

Kind = Literal[
    "mistake",
    "disagreement",
    "repetition",
    "contradiction",
    "unknown_metric",
    "unknown_tool",
    "idle_pattern",
    "idle_alias",
    "unmatched",
]

_SHOWN = 3
"""So many goldens are named in one sentence."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that its author should look at."""

    kind: Kind
    sentence: str
    goldens: tuple[str, ...] = ()
    """The ids of the goldens that it is about."""


def by_themselves(entries: Sequence[Placed]) -> Iterator[Finding]:
    """Goldens of one input that disagree or repeat each other, that contradict themselves, and unknown metrics."""
    sharing: dict[str, list[Golden]] = {}
    for entry in entries:
        if key := normalized(entry.golden.input):
            sharing.setdefault(key, []).append(entry.golden)
    for same in sharing.values():
        if len(same) > 1:
            yield _of_one_input(same)
    for entry in entries:
        yield from _contradictions(entry)
    yield from _unknown_metrics([entry.golden for entry in entries])


def _of_one_input(same: Sequence[Golden]) -> Finding:
    ids = tuple(golden.id for golden in same)
    differing = [
        field.name
        for field in fields(Golden)
        if field.name not in _NOT_JUDGED and any(_of(one, field.name) != _of(same[0], field.name) for one in same)
    ]
    if differing:
        told = f"{_goldens(ids)} have the same input and disagree in {listed(differing)}: by input none is found"
        return Finding("disagreement", f"{told}.", ids)
    return Finding("repetition", f"{_goldens(ids)} have the same input and demand the same.", ids)


_NOT_JUDGED = ("id", "input", "metadata")


def _of(golden: Golden, field: str) -> object:
    return getattr(golden, field)


def _contradictions(entry: Placed) -> Iterator[Finding]:
    golden = entry.golden
    names = naming(golden.vocabulary)
    for tool in dict.fromkeys((tool.name, tool.server) for tool in golden.calls) if golden.forbid else ():
        call = ToolCall(tool[0], server=tool[1])
        if pattern := next((one for one in golden.forbid if is_forbidden(call, (one,), names)), None):
            told = f"{entry.file}, golden {golden.id!r}: {tool[0]!r} is expected, and forbidden by {pattern!r}."
            yield Finding("contradiction", told, (golden.id,))


def _unknown_metrics(goldens: Iterable[Golden]) -> Iterator[Finding]:
    asking: dict[str, list[str]] = {}
    for golden in goldens:
        for name in dict.fromkeys((*(golden.metrics or ()), *golden.thresholds)):
            asking.setdefault(name, []).append(golden.id)
    for name, ids in asking.items():
        try:
            find(name)
        except ConfigurationError as error:
            yield Finding("unknown_metric", f"{_goldens(ids)}: {error}", tuple(ids))


# --- beside runs ------------------------------------------------------------------------------------------------------


class Beside:
    """Goldens beside runs, which are looked at one at a time and not kept."""

    def __init__(self, entries: Sequence[Placed], vocabulary: Vocabulary) -> None:
        self._goldens = [entry.golden for entry in entries]
        self._vocabulary = vocabulary
        self._names = naming(vocabulary)
        self._unmatched = dict.fromkeys(golden.id for golden in self._goldens)
        self._by_input: dict[str, list[str]] = {}
        for golden in self._goldens:
            if key := normalized(golden.input):
                self._by_input.setdefault(key, []).append(golden.id)
        self._known: dict[tuple[str, str, str | None], ToolCall] = {}

    @property
    def all_matched(self) -> bool:
        """Whether every golden belongs to one of the runs so far."""
        return not self._unmatched

    def look_at(self, run: Run) -> None:
        """Take in which tools a run called or was offered, and which golden it belongs to."""
        for call in (*run.tool_calls, *(ToolCall(tool.name) for tool in run.available_tools)):
            key = (call.name, call.raw_name, call.server)
            if key not in self._known:
                self._known[key] = ToolCall(*key)
        found = [run.golden_id] if run.golden_id in self._unmatched else self._by_input.get(normalized(run.input), ())
        for golden_id in found:
            self._unmatched.pop(golden_id, None)

    def findings(self) -> Iterator[Finding]:
        """What no run knows: tools, forbidden patterns, aliases and goldens."""
        yield from self._unknown_tools()
        yield from self._idle_patterns()
        yield from self._idle_aliases()
        for golden_id in self._unmatched:
            told = f"golden {golden_id!r} belongs to none of these runs, neither by id nor by input."
            yield Finding("unmatched", told, (golden_id,))

    def _unknown_tools(self) -> Iterator[Finding]:
        known: Keys = frozenset[str]().union(*map(self._names.called, self._known.values()))
        asking: dict[str, list[str]] = {}
        for golden in self._goldens:
            for name in dict.fromkeys(tool.name for tool in golden.calls if self._is_unknown(tool, known)):
                asking.setdefault(name, []).append(golden.id)
        names = sorted({call.name for call in self._known.values()})
        for name, ids in asking.items():
            meant = _nearest(name, names)
            hint = f" Did you mean {meant!r}?" if meant else ""
            told = f"{_goldens(ids)}: the tool {name!r} was neither called nor offered in any run.{hint}"
            yield Finding("unknown_tool", told, tuple(ids))

    def _is_unknown(self, tool: ExpectedTool, known: Keys) -> bool:
        return self._names.wanted(tool).isdisjoint(known)

    def _idle_patterns(self) -> Iterator[Finding]:
        declared = [ToolCall(tool.name, server=tool.server) for tool in self._vocabulary.tools]
        calls = [*self._known.values(), *declared]
        asking: dict[str, list[str]] = {}
        for golden in self._goldens:
            for pattern in dict.fromkeys(golden.forbid):
                asking.setdefault(pattern, []).append(golden.id)
        for pattern, ids in asking.items():
            if not any(is_forbidden(call, (pattern,), self._names) for call in calls):
                told = f"{_goldens(ids)}: {pattern!r} is forbidden, and no known tool has a name like that."
                yield Finding("idle_pattern", told, tuple(ids))

    def _idle_aliases(self) -> Iterator[Finding]:
        written = [tool.name for golden in self._goldens for tool in golden.calls]
        written += (pattern for golden in self._goldens for pattern in golden.forbid)
        written += (name for call in self._known.values() for name in (call.name, call.raw_name))
        used = {fold(form) for name in written for form in (name, undecorate(name)[0])}
        for tool in self._vocabulary.tools:
            for alias in tool.aliases:
                if used.isdisjoint((fold(alias), fold(undecorate(alias)[0]))):
                    yield Finding("idle_alias", f"tool {tool.name!r}: the alias {alias!r} is used by nobody.")


def _nearest(name: str, known: Sequence[str]) -> str | None:
    """The known name that may mean the same tool."""
    near = [(found, other) for other in known if (found := difference(name, other)) is not None]
    return min(near)[1] if near else nearest(name, known)


def _goldens(ids: Sequence[str]) -> str:
    shown = [repr(golden_id) for golden_id in ids[:_SHOWN]]
    if len(ids) > _SHOWN:
        shown.append(f"{len(ids) - _SHOWN} more")
    return f"golden{'s' * (len(ids) > 1)} {listed(shown)}"
