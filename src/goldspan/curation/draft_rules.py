"""Builds a golden from call patterns, and drops rules until enough runs pass it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from goldspan.curation.call_patterns import (
    MIN_RUNS_OF_COUNT,
    AlternativePattern,
    CallPattern,
    GroupPatterns,
    Pattern,
)
from goldspan.goldens.golden_files.golden_writer import replace_lone_surrogates
from goldspan.goldens.tool_names import tool_name_matcher
from goldspan.model import (
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


@dataclass(frozen=True, slots=True)
class DraftRules:
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
        identity = tool_name_matcher(golden.vocabulary).tool_identity
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

    def relaxed(self) -> Iterator[Iterator[DraftRules]]:
        """Yield drafts that state one rule less, each accepting all runs that this one accepts: weak rules first."""
        yield self._without_an_argument()
        if self.order == "any":
            yield self._without_a_requirement()
        else:
            yield iter([replace(self, order="in_order" if self.order == "exact" else "any")])

    def _without_an_argument(self) -> Iterator[DraftRules]:
        for index, pattern in enumerate(self.patterns.required):
            if isinstance(pattern, CallPattern):
                for name in pattern.arguments:
                    kept = {key: value for key, value in pattern.arguments.items() if key != name}
                    yield self._with_required(index, replace(pattern, arguments=kept))
            else:
                yield from self._without_option_arguments(index, pattern)

    def _without_a_requirement(self) -> Iterator[DraftRules]:
        patterns = self.patterns
        for index, pattern in enumerate(patterns.required):
            required = patterns.required[:index] + patterns.required[index + 1 :]
            left = pattern.options if isinstance(pattern, AlternativePattern) else ((pattern,),)
            freed = [replace(each, least=0, arguments={}) for option in left for each in option]
            layers = (tuple(range(len(required))),)
            yield replace(self, patterns=GroupPatterns(required, (*patterns.optional, *freed), layers))

    def _without_option_arguments(self, index: int, pattern: AlternativePattern) -> Iterator[DraftRules]:
        if any(each.arguments for option in pattern.options for each in option):
            options = tuple(tuple(replace(each, arguments={}) for each in option) for option in pattern.options)
            yield self._with_required(index, AlternativePattern(options))

    def _with_required(self, index: int, pattern: Pattern) -> DraftRules:
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


# --- relaxation ---


def relax_draft(draft: DraftRules, runs: Sequence[Run], min_support: float) -> tuple[DraftRules, int]:
    """Drop rules until enough runs pass: the weakest kind of rule first, of it the rule that most runs break."""
    failing = failing_runs(draft, runs)
    while len(runs) - len(failing) < min_support * len(runs) - 1e-9:
        better = _better_draft(draft, failing)
        if better is None:
            break
        draft, failing = better
    # Without a required call, a golden fails runs with calls that were not mined, so all runs are evaluated again.
    return draft, len(runs) - len(failing_runs(draft, runs))


def _better_draft(draft: DraftRules, failing: Sequence[Run]) -> tuple[DraftRules, list[Run]] | None:
    """Return a draft with one rule less, and the runs that fail it; `None` if no rule is left.

    It is one that fewer runs fail, if there is one.
    """
    equal: tuple[DraftRules, list[Run]] | None = None
    for candidates in draft.relaxed():
        judged = [(each, failing_runs(each, failing)) for each in candidates]
        best = min(judged, key=lambda one: len(one[1]), default=None)
        if best is not None and len(best[1]) < len(failing):
            return best
        equal = equal or best
    return equal


def failing_runs(draft: DraftRules, runs: Sequence[Run]) -> list[Run]:
    """Return the runs that do not pass the golden."""
    golden, _ = draft.golden()
    return [run for run in runs if evaluate(run, golden, reasons=False).passed is not True]
