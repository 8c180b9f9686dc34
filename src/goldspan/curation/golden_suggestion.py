"""Suggests goldens from good runs: one for each group of requests, verified on the runs of the group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from goldspan.curation.call_patterns import (
    MIN_RUNS_OF_COUNT,
    AlternativePattern,
    CallMiner,
    CallPattern,
    GroupPatterns,
    Pattern,
)
from goldspan.curation.request_groups import (
    SIMILARITY_THRESHOLD,
    RunGroup,
    condition_of_group,
    group_requests,
    most_frequent_text,
)
from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens
from goldspan.goldens.golden_files.golden_writer import golden_id_for_text, replace_lone_surrogates
from goldspan.goldens.tool_names import tool_name_matcher
from goldspan.model import (
    COUNTED_TOOL_KINDS,
    NO_VOCABULARY,
    ONCE,
    AnyOf,
    CallOrder,
    ExpectedItem,
    ExpectedTool,
    Golden,
    Parallel,
    Run,
    Times,
    ToolCall,
)
from goldspan.scoring import evaluate
from goldspan.scoring.matching.slot_plan import is_forbidden

DEFAULT_SUPPORT = 0.9
DEFAULT_MIN_RUNS = 2
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
    ids = _UniqueIds()
    suggested = [(group, _suggest_golden(group, ids.of(group), options, tools)) for group in watch(large)]
    kept = [(group, suggestion) for group, suggestion in suggested if suggestion is not None]
    small = [group for group in groups if len(group.runs) < options.min_runs]
    grouped = sum(len(group.runs) for group in groups)
    return Suggestions(
        items=tuple(_with_found(kept)),
        runs=len(runs),
        small_groups=len(small),
        runs_of_small_groups=sum(len(group.runs) for group in small),
        runs_without_request=len(runs) - grouped,
        groups_without_rules=len(suggested) - len(kept),
    )


class _UniqueIds:
    """Returns the id of the golden of each group; equal ids get numbers."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def of(self, group: RunGroup) -> str:
        base = group.golden_id or golden_id_for_text(most_frequent_text(group) or "", group.runs[0].run_id)
        name, number = base, 2
        while name in self._used:
            name, number = f"{base}-{number}", number + 1
        self._used.add(name)
        return name


def _with_found(suggested: Sequence[tuple[RunGroup, Suggestion]]) -> Iterator[Suggestion]:
    """Yield the suggestions with the number of runs that the lookup gives them, and a comment if it is not all."""
    goldens = Goldens([suggestion.golden for _, suggestion in suggested])
    for group, suggestion in suggested:
        matches = [goldens.find(replace(run, expected_tools=None)) for run in group.runs]
        found = sum(match is not None and match.golden.id == suggestion.golden.id for match in matches)
        comments = suggestion.comments
        if found < len(group.runs):
            comments += (f"the condition selects {found} of them",)
        yield replace(suggestion, found=found, comments=comments)


# --- one golden -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Draft:
    """The patterns of a golden, and which of them it states."""

    base: Golden
    patterns: GroupPatterns
    runs: int
    order: CallOrder
    forbid: tuple[str, ...] = ()

    def golden(self) -> tuple[Golden, tuple[tuple[str, ...], ...]]:
        """Return the golden and the comments of its items."""
        entries: list[tuple[ExpectedItem, tuple[str, ...]]] = []
        required = self.patterns.required
        if self.order == "any":
            entries += map(self._entry, required)
            entries += [(_optional_tool(pattern), self._comments(pattern)) for pattern in self.patterns.optional]
        else:
            for layer in self.patterns.layers:
                entries += self._layer_entries([required[index] for index in layer])
        items, comments = tuple(item for item, _ in entries), tuple(comments for _, comments in entries)
        golden = replace(self.base, tools=items, order=self.order, forbid=self.forbid)
        return golden if required or golden.write_tools is None else self._without_required(golden), comments

    def _without_required(self, golden: Golden) -> Golden:
        """Return the golden of a group without a required side effect: it forbids all but the optional ones.

        A golden that requires no call fails every run that calls an unexpected tool, also one that only reads.
        """
        identity = tool_name_matcher(NO_VOCABULARY).tool_identity
        allowed = {identity(ToolCall(pattern.name)) for pattern in self.patterns.optional}
        forbidden = [name for name in golden.write_tools or () if identity(ToolCall(name)) not in allowed]
        return replace(golden, extra="allow", forbid=tuple(sorted({*golden.forbid, *forbidden})))

    def _layer_entries(self, layer: Sequence[Pattern]) -> Iterator[tuple[ExpectedItem, tuple[str, ...]]]:
        entries = [entry for pattern in layer for entry in self._ordered_entries(pattern)]
        if len(layer) == 1:
            yield from entries
        else:
            items = tuple(item for item, _ in entries if not isinstance(item, Parallel))
            yield (
                Parallel(items),
                tuple(f"{item.name}: {comment}" for item, comments in entries for comment in comments),
            )

    def _ordered_entries(self, pattern: Pattern) -> Iterator[tuple[ExpectedItem, tuple[str, ...]]]:
        item, comments = self._entry(pattern)
        if isinstance(pattern, AlternativePattern) or (isinstance(item, ExpectedTool) and item.times.most is not None):
            yield item, comments
            return
        # In a stated order, a further call may come at another place: it must match no expectation.
        assert isinstance(item, ExpectedTool)
        for number in range(pattern.least):
            yield replace(item, times=ONCE), comments if number == 0 else ()

    def _entry(self, pattern: Pattern) -> tuple[ExpectedItem, tuple[str, ...]]:
        if isinstance(pattern, CallPattern):
            return _required_tool(pattern, self.runs), self._comments(pattern)
        options = tuple(
            tuple(replace(_required_tool(each, self.runs), times=ONCE) for each in option for _ in range(each.least))
            for option in pattern.options
        )
        item = AnyOf(options)
        comments = [f"one of these in {len(pattern.calls)} of {self.runs} runs"]
        for option in pattern.options:
            name = " + ".join(each.name for each in option)
            comments.append(f"{name} in {len(option[0].calls)} of {self.runs} runs")
        return item, tuple(comments)

    def _comments(self, pattern: CallPattern) -> tuple[str, ...]:
        low, high = pattern.counts[0], pattern.counts[-1]
        times = "" if high == 1 else f", {low} times" if low == high else f", {low} to {high} times"
        notes = [f"{name} {each.note}" for name, each in pattern.arguments.items() if each.note]
        return (f"in {len(pattern.calls)} of {self.runs} runs{times}", *notes)

    @property
    def orders_alternatives_in_groups(self) -> bool:
        """Whether a layer holds alternatives of several calls beside others, which no golden can state."""
        return any(
            len(layer) > 1
            and isinstance(pattern, AlternativePattern)
            and any(len(option) > 1 for option in pattern.options)
            for layer in self.patterns.layers
            for pattern in (self.patterns.required[index] for index in layer)
        )

    def relaxed(self) -> Iterator[_Draft]:
        """Yield drafts that state one rule less, each accepting all runs that this one accepts."""
        patterns = self.patterns
        for index, pattern in enumerate(patterns.required):
            if isinstance(pattern, CallPattern):
                for name in pattern.arguments:
                    kept = {key: value for key, value in pattern.arguments.items() if key != name}
                    yield self._with_required(index, replace(pattern, arguments=kept))
            else:
                yield from self._without_option_arguments(index, pattern)
        if self.order != "any":
            yield replace(self, order="in_order" if self.order == "exact" else "any")
        if self.order != "any":
            return
        for index, pattern in enumerate(patterns.required):
            required = patterns.required[:index] + patterns.required[index + 1 :]
            left = pattern.options if isinstance(pattern, AlternativePattern) else ((pattern,),)
            optional = (
                *patterns.optional,
                *(replace(each, least=0, arguments={}) for option in left for each in option),
            )
            yield replace(self, patterns=GroupPatterns(required, optional, (tuple(range(len(required))),)))

    def _without_option_arguments(self, index: int, pattern: AlternativePattern) -> Iterator[_Draft]:
        if any(each.arguments for option in pattern.options for each in option):
            options = tuple(tuple(replace(each, arguments={}) for each in option) for option in pattern.options)
            yield self._with_required(index, AlternativePattern(options))

    def _with_required(self, index: int, pattern: Pattern) -> _Draft:
        required = list(self.patterns.required)
        required[index] = pattern
        return replace(self, patterns=replace(self.patterns, required=tuple(required)))

    @property
    def states_something(self) -> bool:
        """Whether the golden can fail a run. With optional calls only, it fails runs that call another tool."""
        has_only_optional = bool(self.patterns.optional) and not self.patterns.required
        fails_others = self.runs >= MIN_RUNS_OF_COUNT or self.base.write_tools is not None
        return not has_only_optional or fails_others or bool(self.forbid)


def _required_tool(pattern: CallPattern, runs: int) -> ExpectedTool:
    low, high = pattern.counts[0], pattern.counts[-1]
    if low == high == pattern.least and len(pattern.calls) == runs >= MIN_RUNS_OF_COUNT:
        times = Times(low, high)
    else:
        times = ONCE if pattern.least == high == 1 else Times(pattern.least, None)
    return replace(_tool(pattern), times=times)


def _optional_tool(pattern: CallPattern) -> ExpectedTool:
    """Return an expectation without arguments: a call with others would be unexpected."""
    is_repeated = pattern.counts[-1] > 1
    return ExpectedTool(_file_name(pattern), times=Times(0, None) if is_repeated else Times(0, 1, stated=False))


def _tool(pattern: CallPattern) -> ExpectedTool:
    name = _file_name(pattern)
    arguments = {key: each.expected for key, each in pattern.arguments.items()}
    if not arguments:
        return ExpectedTool(name)
    match = "exact" if pattern.argument_names == frozenset(arguments) else "subset"
    return ExpectedTool(name, arguments, match=match)  # type: ignore[arg-type]


def _file_name(pattern: CallPattern) -> str:
    return replace_lone_surrogates(pattern.name)


def _suggest_golden(
    group: RunGroup, golden_id: str, options: SuggestionOptions, tools: Iterable[str]
) -> Suggestion | None:
    """Return the golden of a group, or `None` if it states nothing that enough runs pass."""
    text, when = condition_of_group(group)
    text = None if text is None else replace_lone_surrogates(text)
    base = Golden(golden_id, input=text, when=when, component=group.component)
    names = tool_name_matcher(NO_VOCABULARY)

    def is_relevant(call: ToolCall) -> bool:
        return not options.write_tools or is_forbidden(call, options.write_tools, names)

    if options.write_tools:
        writing = sorted(replace_lone_surrogates(name) for name in tools if name and is_relevant(ToolCall(name)))
        base = replace(base, write_tools=tuple(writing))
    mined = group.runs[:: -(-len(group.runs) // _MAX_MINED_RUNS)]
    miner = CallMiner(mined, options.min_support, with_arguments=options.arguments, is_relevant=is_relevant)
    patterns = miner.find()
    if len(patterns.layers) <= 1:
        order: CallOrder = "any"
    else:
        order = "exact" if patterns.only_these and not options.write_tools else "in_order"
    forbidden = _never_called(group.runs, tools) if options.forbid else ()
    draft = _Draft(base, patterns, len(mined), order, forbidden)
    if draft.order != "any" and draft.orders_alternatives_in_groups:
        draft = replace(draft, order="any")
    draft, passing = _relax(draft, group.runs, options.min_support)
    if not draft.states_something or passing < options.min_support * len(group.runs) - 1e-9:
        return None
    golden, item_comments = draft.golden()
    total = len(group.runs)
    comments = [f"from {total} run{'s' * (total != 1)}; {passing} of {total} pass it"]
    if golden.order != "any":
        comments.append("the order holds in " + ("these runs" if passing == total else "the runs that pass"))
        if called_too := [f"{each.name} in {len(each.calls)}" for each in draft.patterns.optional]:
            comments.append(f"also called: {', '.join(called_too)} of {len(mined)} runs")
    return Suggestion(golden, total, passing, 0, tuple(comments), item_comments)


def _relax(draft: _Draft, runs: Sequence[Run], min_support: float) -> tuple[_Draft, int]:
    """Drop rules until enough runs pass: in each step the rule whose loss lets most runs pass, then the first one."""
    failing = [run for run in runs if not _passes(run, draft)]
    while len(runs) - len(failing) < min_support * len(runs) - 1e-9:
        best: tuple[_Draft, list[Run]] | None = None
        for candidate in draft.relaxed():
            still_failing = [run for run in failing if not _passes(run, candidate)]
            if best is None or len(still_failing) < len(best[1]):
                best = candidate, still_failing
        if best is None:
            break
        draft, failing = best
    return draft, len(runs) - len(failing)


def _passes(run: Run, draft: _Draft) -> bool:
    return evaluate(run, draft.golden()[0], reasons=False).passed is True


def _never_called(runs: Sequence[Run], tools: Iterable[str]) -> tuple[str, ...]:
    """Return the tools that no run calls, sorted by name."""
    identity = tool_name_matcher(NO_VOCABULARY).tool_identity
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
