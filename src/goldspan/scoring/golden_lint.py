"""Finds mistakes in goldens, alone and compared with runs. The findings do not change a verdict."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from goldspan.content.tools import undecorate
from goldspan.errors import ConfigurationError
from goldspan.goldens.golden_files.golden_loader import LocatedGolden
from goldspan.goldens.lookup.golden_lookup import Goldens
from goldspan.goldens.spelling import join_words, nearest_word
from goldspan.goldens.text_matching import normalize_text
from goldspan.goldens.tool_names import NameKeys, tool_name_matcher
from goldspan.model import ExpectedTool, Golden, Run, ToolCall, Vocabulary, When, content_digest
from goldspan.model.name_folding import fold_name
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
"""The number of goldens that a sentence names."""


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A probable mistake in goldens, for their author."""

    kind: FindingKind
    sentence: str
    goldens: tuple[str, ...] = ()
    """The ids of the goldens concerned."""


def lint_goldens(entries: Sequence[LocatedGolden]) -> Iterator[LintFinding]:
    """Yield findings about goldens for the same runs, about contradictions in a golden, and about unknown metrics."""
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
    """Returns a key that goldens for the same runs share; `None` for a golden that is found by its id only."""
    text = "" if golden.policy else normalize_text(golden.input)
    component = None if golden.component is None else fold_name(golden.component)
    when = None if golden.when is None else content_digest(_normalized_selector(golden.when))
    return (golden.policy, text, component, when) if golden.policy or text or component or when else None


def _normalized_selector(when: When) -> When:
    """Returns the conditions in the form in which they are compared with runs."""
    agent, service, span = (None if name is None else name.casefold() for name in (when.agent, when.service, when.span))
    text = normalize_text(when.input) if isinstance(when.input, str) else when.input
    return replace(when, agent=agent, service=service, span=span, input=text)


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


_NOT_COMPARED = ("id", "input", "metadata", "when", "component", "source")


def _field_value(golden: Golden, field: str) -> object:
    return getattr(golden, field)


def _contradictions(entry: LocatedGolden) -> Iterator[LintFinding]:
    golden = entry.golden
    names = tool_name_matcher(golden.vocabulary)
    for tool in dict.fromkeys((tool.name, tool.server) for tool in golden.expected_calls) if golden.forbid else ():
        call = ToolCall(tool[0], server=tool[1])
        if pattern := next((one for one in golden.forbid if is_forbidden(call, (one,), names)), None):
            sentence = f"{entry.file}, golden {golden.id!r}: {tool[0]!r} is expected, and forbidden by {pattern!r}."
            yield LintFinding("contradiction", sentence, (golden.id,))


def _unknown_metrics(goldens: Iterable[Golden]) -> Iterator[LintFinding]:
    ids_by_name: dict[str, list[str]] = {}
    for golden in goldens:
        for name in dict.fromkeys((*(golden.metrics or ()), *golden.thresholds)):
            ids_by_name.setdefault(name, []).append(golden.id)
    for name, ids in ids_by_name.items():
        try:
            find_metric(name)
        except ConfigurationError as error:
            yield LintFinding("unknown_metric", f"{_format_ids(ids)}: {error}", tuple(ids))


# --- compared with runs -----------------------------------------------------------------------------------------------


class RunCoverage:
    """Compares goldens with runs, one run at a time, without storing the runs."""

    def __init__(self, entries: Sequence[LocatedGolden], vocabulary: Vocabulary) -> None:
        self._goldens = [entry.golden for entry in entries]
        self._vocabulary = vocabulary
        self._names = tool_name_matcher(vocabulary)
        self._unmatched = {golden.id: golden for golden in self._goldens}
        self._lookup = Goldens(self._goldens, vocabulary=vocabulary)
        self._known: dict[tuple[str, str, str | None], ToolCall] = {}

    @property
    def all_matched(self) -> bool:
        """Whether every golden matches one of the runs so far."""
        return not self._unmatched

    def add_run(self, run: Run) -> None:
        """Record the tools that a run called or was offered, and its golden."""
        for call in (*run.tool_calls, *(ToolCall(tool.name) for tool in run.available_tools)):
            key = (call.name, call.raw_name, call.server)
            if key not in self._known:
                self._known[key] = ToolCall(*key)
        found = self._lookup.candidates(run)
        for golden in found.goldens if found else ():
            self._unmatched.pop(golden.id, None)

    def findings(self) -> Iterator[LintFinding]:
        """Yield the tools, forbidden patterns, aliases and goldens that no run uses."""
        yield from self._unknown_tools()
        yield from self._idle_patterns()
        yield from self._idle_aliases()
        for golden_id, golden in self._unmatched.items():
            sentence = f"golden {golden_id!r} belongs to none of these runs"
            ways = "" if golden.when or golden.component or golden.policy else ", neither by id nor by input"
            yield LintFinding("unmatched", f"{sentence}{ways}.", (golden_id,))

    def _unknown_tools(self) -> Iterator[LintFinding]:
        known: NameKeys = frozenset[str]().union(*map(self._names.called_keys, self._known.values()))
        ids_by_name: dict[str, list[str]] = {}
        for golden in self._goldens:
            for name in dict.fromkeys(tool.name for tool in golden.expected_calls if self._is_unknown(tool, known)):
                ids_by_name.setdefault(name, []).append(golden.id)
        names = sorted({call.name for call in self._known.values()})
        for name, ids in ids_by_name.items():
            nearest = _nearest_tool(name, names)
            hint = f" Did you mean {nearest!r}?" if nearest else ""
            sentence = f"{_format_ids(ids)}: the tool {name!r} was neither called nor offered in any run.{hint}"
            yield LintFinding("unknown_tool", sentence, tuple(ids))

    def _is_unknown(self, tool: ExpectedTool, known: NameKeys) -> bool:
        return self._names.expected_keys(tool).isdisjoint(known)

    def _idle_patterns(self) -> Iterator[LintFinding]:
        declared = [ToolCall(tool.name, server=tool.server) for tool in self._vocabulary.tools]
        calls = [*self._known.values(), *declared]
        ids_by_name: dict[str, list[str]] = {}
        for golden in self._goldens:
            for pattern in dict.fromkeys(golden.forbid):
                ids_by_name.setdefault(pattern, []).append(golden.id)
        for pattern, ids in ids_by_name.items():
            if not any(is_forbidden(call, (pattern,), self._names) for call in calls):
                sentence = f"{_format_ids(ids)}: {pattern!r} is forbidden, and no known tool has a name like that."
                yield LintFinding("idle_pattern", sentence, tuple(ids))

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
    """Returns the known name that probably means the same tool."""
    near = [(found, other) for other in known if (found := name_difference(name, other)) is not None]
    return min(near)[1] if near else nearest_word(name, known)


def _format_ids(ids: Sequence[str]) -> str:
    shown = [repr(golden_id) for golden_id in ids[:_MAX_SHOWN]]
    if len(ids) > _MAX_SHOWN:
        shown.append(f"{len(ids) - _MAX_SHOWN} more")
    return f"golden{'s' * (len(ids) > 1)} {join_words(shown)}"
