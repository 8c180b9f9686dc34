"""What is odd about goldens: by themselves, and beside the runs that they are for. Nothing here changes a verdict."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from goldspan.content.tools import fold_name, undecorate
from goldspan.errors import ConfigurationError
from goldspan.goldens.golden_files.golden_loader import LocatedGolden
from goldspan.goldens.lookup.golden_lookup import Goldens
from goldspan.goldens.spelling import join_words, nearest_word
from goldspan.goldens.text_matching import normalize_text
from goldspan.goldens.tool_names import NameKeys, tool_name_matcher
from goldspan.model import ExpectedTool, Golden, Run, ToolCall, Vocabulary, When, content_digest
from goldspan.scoring.matching.slot_plan import is_forbidden
from goldspan.scoring.metrics.registry import find_metric
from goldspan.scoring.name_suggestions import name_difference

FindingKind = Literal[
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

_MAX_SHOWN = 3
"""So many goldens are named in one sentence."""


@dataclass(frozen=True, slots=True)
class LintFinding:
    """Something that its author should look at."""

    kind: FindingKind
    sentence: str
    goldens: tuple[str, ...] = ()
    """The ids of the goldens that it is about."""


def lint_goldens(entries: Sequence[LocatedGolden]) -> Iterator[LintFinding]:
    """Goldens for the same runs that disagree or repeat each other, that contradict themselves, and unknown metrics."""
    sharing: dict[Hashable, list[Golden]] = {}
    for entry in entries:
        if (key := _target_key(entry.golden)) is not None:
            sharing.setdefault(key, []).append(entry.golden)
    for same in sharing.values():
        if len(same) > 1:
            yield _overlap_finding(same)
    for entry in entries:
        yield from _contradictions(entry)
    yield from _unknown_metrics([entry.golden for entry in entries])


def _target_key(golden: Golden) -> Hashable:
    """What two goldens have in common that are for the same runs; `None` for one that is found by its id only."""
    text = "" if golden.policy else normalize_text(golden.input)
    component = None if golden.component is None else fold_name(golden.component)
    when = None if golden.when is None else content_digest(_normalized_selector(golden.when))
    return (golden.policy, text, component, when) if golden.policy or text or component or when else None


def _normalized_selector(when: When) -> When:
    """Conditions in the form in which they are compared with runs."""
    agent, service, span = (None if name is None else name.casefold() for name in (when.agent, when.service, when.span))
    asked = normalize_text(when.input) if isinstance(when.input, str) else when.input
    return replace(when, agent=agent, service=service, span=span, input=asked)


def _overlap_finding(same: Sequence[Golden]) -> LintFinding:
    ids = tuple(golden.id for golden in same)
    differing = [
        field.name
        for field in fields(Golden)
        if field.name not in _NOT_COMPARED
        and any(_field_value(one, field.name) != _field_value(same[0], field.name) for one in same)
    ]
    common = [name for name in ("input", "component", "when") if _field_value(same[0], name)]
    alike = f"have the same {join_words(common)}" if common else "are policies for all other runs"
    if differing:
        none = f"by {join_words(common)} none is found" if common else "none is found"
        return LintFinding(
            "disagreement", f"{_format_ids(ids)} {alike} and disagree in {join_words(differing)}: {none}.", ids
        )
    return LintFinding("repetition", f"{_format_ids(ids)} {alike} and demand the same.", ids)


_NOT_COMPARED = ("id", "input", "metadata", "when", "component")


def _field_value(golden: Golden, field: str) -> object:
    return getattr(golden, field)


def _contradictions(entry: LocatedGolden) -> Iterator[LintFinding]:
    golden = entry.golden
    names = tool_name_matcher(golden.vocabulary)
    for tool in dict.fromkeys((tool.name, tool.server) for tool in golden.expected_calls) if golden.forbid else ():
        call = ToolCall(tool[0], server=tool[1])
        if pattern := next((one for one in golden.forbid if is_forbidden(call, (one,), names)), None):
            told = f"{entry.file}, golden {golden.id!r}: {tool[0]!r} is expected, and forbidden by {pattern!r}."
            yield LintFinding("contradiction", told, (golden.id,))


def _unknown_metrics(goldens: Iterable[Golden]) -> Iterator[LintFinding]:
    asking: dict[str, list[str]] = {}
    for golden in goldens:
        for name in dict.fromkeys((*(golden.metrics or ()), *golden.thresholds)):
            asking.setdefault(name, []).append(golden.id)
    for name, ids in asking.items():
        try:
            find_metric(name)
        except ConfigurationError as error:
            yield LintFinding("unknown_metric", f"{_format_ids(ids)}: {error}", tuple(ids))


# --- beside runs ------------------------------------------------------------------------------------------------------


class RunCoverage:
    """Goldens beside runs, which are looked at one at a time and not kept."""

    def __init__(self, entries: Sequence[LocatedGolden], vocabulary: Vocabulary) -> None:
        self._goldens = [entry.golden for entry in entries]
        self._vocabulary = vocabulary
        self._names = tool_name_matcher(vocabulary)
        self._unmatched = {golden.id: golden for golden in self._goldens}
        self._lookup = Goldens(self._goldens, vocabulary=vocabulary)
        self._known: dict[tuple[str, str, str | None], ToolCall] = {}

    @property
    def all_matched(self) -> bool:
        """Whether every golden belongs to one of the runs so far."""
        return not self._unmatched

    def add_run(self, run: Run) -> None:
        """Take in which tools a run called or was offered, and which golden it belongs to."""
        for call in (*run.tool_calls, *(ToolCall(tool.name) for tool in run.available_tools)):
            key = (call.name, call.raw_name, call.server)
            if key not in self._known:
                self._known[key] = ToolCall(*key)
        found = self._lookup.candidates(run)
        for golden in found.goldens if found else ():
            self._unmatched.pop(golden.id, None)

    def findings(self) -> Iterator[LintFinding]:
        """What no run knows: tools, forbidden patterns, aliases and goldens."""
        yield from self._unknown_tools()
        yield from self._idle_patterns()
        yield from self._idle_aliases()
        for golden_id, golden in self._unmatched.items():
            told = f"golden {golden_id!r} belongs to none of these runs"
            ways = "" if golden.when or golden.component or golden.policy else ", neither by id nor by input"
            yield LintFinding("unmatched", f"{told}{ways}.", (golden_id,))

    def _unknown_tools(self) -> Iterator[LintFinding]:
        known: NameKeys = frozenset[str]().union(*map(self._names.called_keys, self._known.values()))
        asking: dict[str, list[str]] = {}
        for golden in self._goldens:
            for name in dict.fromkeys(tool.name for tool in golden.expected_calls if self._is_unknown(tool, known)):
                asking.setdefault(name, []).append(golden.id)
        names = sorted({call.name for call in self._known.values()})
        for name, ids in asking.items():
            meant = _nearest_tool(name, names)
            hint = f" Did you mean {meant!r}?" if meant else ""
            told = f"{_format_ids(ids)}: the tool {name!r} was neither called nor offered in any run.{hint}"
            yield LintFinding("unknown_tool", told, tuple(ids))

    def _is_unknown(self, tool: ExpectedTool, known: NameKeys) -> bool:
        return self._names.expected_keys(tool).isdisjoint(known)

    def _idle_patterns(self) -> Iterator[LintFinding]:
        declared = [ToolCall(tool.name, server=tool.server) for tool in self._vocabulary.tools]
        calls = [*self._known.values(), *declared]
        asking: dict[str, list[str]] = {}
        for golden in self._goldens:
            for pattern in dict.fromkeys(golden.forbid):
                asking.setdefault(pattern, []).append(golden.id)
        for pattern, ids in asking.items():
            if not any(is_forbidden(call, (pattern,), self._names) for call in calls):
                told = f"{_format_ids(ids)}: {pattern!r} is forbidden, and no known tool has a name like that."
                yield LintFinding("idle_pattern", told, tuple(ids))

    def _idle_aliases(self) -> Iterator[LintFinding]:
        written = [tool.name for golden in self._goldens for tool in golden.expected_calls]
        written += (pattern for golden in self._goldens for pattern in golden.forbid)
        written += (name for call in self._known.values() for name in (call.name, call.raw_name))
        used = {fold_name(form) for name in written for form in (name, undecorate(name)[0])}
        for tool in self._vocabulary.tools:
            for alias in tool.aliases:
                if used.isdisjoint((fold_name(alias), fold_name(undecorate(alias)[0]))):
                    yield LintFinding("idle_alias", f"tool {tool.name!r}: the alias {alias!r} is used by nobody.")


def _nearest_tool(name: str, known: Sequence[str]) -> str | None:
    """The known name that may mean the same tool."""
    near = [(found, other) for other in known if (found := name_difference(name, other)) is not None]
    return min(near)[1] if near else nearest_word(name, known)


def _format_ids(ids: Sequence[str]) -> str:
    shown = [repr(golden_id) for golden_id in ids[:_MAX_SHOWN]]
    if len(ids) > _MAX_SHOWN:
        shown.append(f"{len(ids) - _MAX_SHOWN} more")
    return f"golden{'s' * (len(ids) > 1)} {join_words(shown)}"
