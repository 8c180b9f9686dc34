"""Suggests goldens from good runs: one for each group of requests, verified on the runs of the group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from goldspan.curation.call_patterns import AlternativePattern, CallMiner, GroupPatterns
from goldspan.curation.draft_rules import DraftRules, relax_draft
from goldspan.curation.request_groups import (
    SIMILARITY_THRESHOLD,
    RunGroup,
    condition_of_group,
    group_requests,
    mask_variables,
    most_frequent_text,
)
from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens
from goldspan.goldens.golden_files.golden_writer import golden_id_for_text, replace_lone_surrogates
from goldspan.goldens.tool_names import tool_name_matcher
from goldspan.model import (
    COUNTED_TOOL_KINDS,
    CallOrder,
    Golden,
    Run,
    ToolCall,
    Vocabulary,
)
from goldspan.scoring.matching.slot_plan import is_forbidden

DEFAULT_SUPPORT = 0.9
DEFAULT_MIN_RUNS = 2
_STRICTER_SIMILARITIES = (90.0, 100.0)
"""The similarities with which a group is split if its runs have nothing in common."""
_MAX_MINED_RUNS = 500
"""Runs of a group in which patterns are searched; the golden is verified on all runs of the group."""


@dataclass(frozen=True, slots=True)
class SuggestionOptions:
    """How goldens are suggested."""

    min_support: float = DEFAULT_SUPPORT
    """The share of the runs of a group in which a rule must hold, and which must pass the golden."""
    min_runs: int = DEFAULT_MIN_RUNS
    """The least number of runs of a group."""
    similarity: float = SIMILARITY_THRESHOLD
    """The least similarity of two requests of a group, in percent, after variable parts are masked."""
    arguments: bool = True
    """Whether arguments are expected."""
    forbid: bool = False
    """Whether tools that no run of the group calls are forbidden."""
    write_tools: tuple[str, ...] = ()
    """Glob patterns of tools with side effects. If there are any, only calls of these tools are expected, and calls of
    other tools are tolerated."""
    existing: Goldens = field(default_factory=Goldens)
    """The goldens with which the suggested ones are used. Their declared tools apply, and their ids are not reused."""

    def __post_init__(self) -> None:
        """Raise `ConfigurationError` for a value out of range."""
        if not 0.5 < self.min_support <= 1:
            raise ConfigurationError(f"the support must be above 0.5 and at most 1, not {self.min_support}")
        if self.min_runs < 1:
            raise ConfigurationError(f"a group needs at least 1 run, not {self.min_runs}")
        if not 50 <= self.similarity <= 100:
            raise ConfigurationError(f"the similarity must be from 50 to 100, not {self.similarity:g}")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A golden for the requests of a group, with its support."""

    golden: Golden
    runs: int
    """The number of runs of the group."""
    passing: int
    """The number of them that pass the golden."""
    found: int
    """The number of them whose golden it is, among all suggested goldens."""
    comments: tuple[str, ...]
    """The support of the golden as a whole, as clauses."""
    item_comments: tuple[tuple[str, ...], ...]
    """The support of each item of `tools`, as clauses."""


@dataclass(frozen=True, slots=True)
class Suggestions:
    """The suggested goldens, and what they leave out."""

    items: tuple[Suggestion, ...]
    runs: int
    """The number of all runs."""
    small_groups: int
    """The number of groups with too few runs."""
    runs_of_small_groups: int
    runs_without_request: int
    """Runs without a text that name no golden."""
    groups_without_rules: int
    """Groups whose runs have nothing in common that enough of them pass."""


def suggest_goldens(
    runs: Iterable[Run],
    options: SuggestionOptions = SuggestionOptions(),
    *,
    offered: Iterable[str] = (),
    watch: Callable[[Sequence[RunGroup]], Iterable[RunGroup]] = iter,
) -> Suggestions:
    """Suggest a golden for each group of requests. The order of the runs changes nothing.

    Args:
        runs: The good runs.
        options: How goldens are suggested.
        offered: Tools that other runs called or were offered, and that `forbid` may name.
        watch: Wraps the groups, to show progress.
    """
    runs = list(runs)
    groups = group_requests(runs, options.similarity)
    large = [group for group in groups if len(group.runs) >= options.min_runs]
    tools = {*offered, *(tool.name for run in runs for tool in run.available_tools)}
    tools |= {name for run in runs for name in run.tools_used}
    ids = _UniqueIds(golden.id for golden in options.existing)
    suggested = [found for group in watch(large) for found in _suggest_for_group(group, options, tools)]
    kept = [
        (group, replace(suggestion, golden=replace(suggestion.golden, id=ids.of(group))))
        for group, suggestion in suggested
        if suggestion is not None
    ]
    small = [group for group in groups if len(group.runs) < options.min_runs]
    grouped = sum(len(group.runs) for group in groups)
    return Suggestions(
        items=tuple(_with_found(kept, options.existing)),
        runs=len(runs),
        small_groups=len(small),
        runs_of_small_groups=sum(len(group.runs) for group in small),
        runs_without_request=len(runs) - grouped,
        groups_without_rules=len(suggested) - len(kept),
    )


def _suggest_for_group(
    group: RunGroup, options: SuggestionOptions, tools: Iterable[str]
) -> list[tuple[RunGroup, Suggestion | None]]:
    """Return the suggestion for a group.

    If its runs have nothing in common, or ask for several things, the group is split by more similar texts.
    """
    suggestion, is_mixed = _suggest_golden(group, options, tools)
    stricter = next((each for each in _STRICTER_SIMILARITIES if each > options.similarity), None)
    if (suggestion is not None and not is_mixed) or stricter is None or group.golden_id is not None:
        return [(group, suggestion)]
    stricter_options = replace(options, similarity=stricter)
    parts = [part for part in group_requests(group.runs, stricter) if len(part.runs) >= options.min_runs]
    found = [each for part in parts for each in _suggest_for_group(part, stricter_options, tools)]
    return found if any(each is not None for _, each in found) else [(group, suggestion)]


class _UniqueIds:
    """Returns the id of the golden of each group; equal ids get numbers.

    The golden of runs that name an existing golden has the id that they name: it replaces the existing one.
    """

    def __init__(self, existing: Iterable[str]) -> None:
        self._existing = frozenset(existing)
        self._used: set[str] = set()

    def of(self, group: RunGroup) -> str:
        base = group.golden_id or golden_id_for_text(most_frequent_text(group) or "", group.runs[0].run_id)
        name, number = base, 2
        while name in self._used or (name in self._existing and name != group.golden_id):
            name, number = f"{base}-{number}", number + 1
        self._used.add(name)
        return name


def _with_found(suggested: Sequence[tuple[RunGroup, Suggestion]], existing: Goldens) -> Iterator[Suggestion]:
    """Yield the suggestions with the number of runs that the lookup gives them, and a comment if it is not all."""
    new = {suggestion.golden.id: suggestion.golden for _, suggestion in suggested}
    goldens = Goldens([*new.values(), *(golden for golden in existing if golden.id not in new)])
    for group, suggestion in suggested:
        matches = [goldens.find(replace(run, expected_tools=None)) for run in group.runs]
        found = sum(match is not None and match.golden.id == suggestion.golden.id for match in matches)
        comments = suggestion.comments
        if found < len(group.runs):
            comments += (f"the condition selects {found} of them",)
        yield replace(suggestion, found=found, comments=comments)


# --- one golden -------------------------------------------------------------------------------------------------------


def _suggest_golden(
    group: RunGroup, options: SuggestionOptions, tools: Iterable[str]
) -> tuple[Suggestion | None, bool]:
    """Return the golden of a group, without an id, and whether the group seems to ask for several things.

    It is `None` if it states nothing that enough runs pass.
    """
    text, when = condition_of_group(group)
    text = None if text is None else replace_lone_surrogates(text)
    vocabulary = options.existing.vocabulary
    base = Golden("", input=text, when=when, component=group.component, vocabulary=vocabulary)
    names = tool_name_matcher(vocabulary)

    def is_relevant(call: ToolCall) -> bool:
        return not options.write_tools or is_forbidden(call, options.write_tools, names)

    if options.write_tools:
        writing = sorted(replace_lone_surrogates(name) for name in tools if name and is_relevant(ToolCall(name)))
        base = replace(base, write_tools=tuple(writing))
    mined = group.runs[:: -(-len(group.runs) // _MAX_MINED_RUNS)]
    miner = CallMiner(
        mined,
        options.min_support,
        with_arguments=options.arguments,
        is_relevant=is_relevant,
        vocabulary=vocabulary,
    )
    patterns = miner.find()
    if len(patterns.layers) <= 1:
        order: CallOrder = "any"
    else:
        order = "exact" if patterns.only_these and not options.write_tools else "in_order"
    forbidden = _never_called(group.runs, tools, vocabulary) if options.forbid else ()
    draft = DraftRules(base, patterns, len(mined), order, forbidden)
    if draft.order != "any" and draft.orders_alternatives_in_groups:
        draft = replace(draft, order="any")
    draft, passing = relax_draft(draft, mined, options.min_support)
    if len(mined) < len(group.runs):
        draft, passing = relax_draft(draft, group.runs, options.min_support)
    if not draft.states_something or passing < options.min_support * len(group.runs) - 1e-9:
        return None, True
    golden, item_comments = draft.golden()
    total = len(group.runs)
    comments = [f"from {total} run{'s' * (total != 1)}; {passing} of {total} pass it"]
    if golden.order != "any":
        comments.append("the order holds in " + ("these runs" if passing == total else "the runs that pass"))
        if called_too := [f"{each.name} in {len(each.calls)}" for each in draft.patterns.optional]:
            comments.append(f"also called: {', '.join(called_too)} of {len(mined)} runs")
    suggestion = Suggestion(golden, total, passing, 0, tuple(comments), item_comments)
    return suggestion, _does_wording_decide(mined, patterns)


def _does_wording_decide(runs: Sequence[Run], patterns: GroupPatterns) -> bool:
    """Whether runs of each wording choose the same alternative: then the wordings ask for different things."""
    wordings = [mask_variables(run.input) for run in runs]
    for pattern in patterns.required:
        if isinstance(pattern, AlternativePattern):
            options_of: dict[str, set[int]] = {}
            for index, option in enumerate(pattern.options):
                for position in option[0].calls:
                    options_of.setdefault(wordings[position], set()).add(index)
            if len(options_of) > 1 and all(len(options) == 1 for options in options_of.values()):
                return True
    return False


def _never_called(runs: Sequence[Run], tools: Iterable[str], vocabulary: Vocabulary) -> tuple[str, ...]:
    """Return the tools that no run calls, sorted by name."""
    identity = tool_name_matcher(vocabulary).tool_identity
    called = {
        identity(replace(call, server=None))
        for run in runs
        for call in run.tool_calls
        if call.was_made and call.kind in COUNTED_TOOL_KINDS
    }
    never: Counter[str] = Counter()
    for name in tools:
        if name and identity(ToolCall(name)) not in called and not set("*?[") & set(name):
            never[replace_lone_surrogates(name)] += 1
    return tuple(sorted(never))
