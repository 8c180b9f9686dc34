"""What the engine finds is as good as the best of all there is: the same as trying everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from goldspan.model import (
    ABSENT,
    AnyOf,
    Comparison,
    ComparisonRow,
    CountedAttempts,
    ExpectedItem,
    ExpectedTool,
    Golden,
    Parallel,
    Run,
    Times,
    ToolCall,
)
from goldspan.scoring import compare, evaluate
from goldspan.scoring.arguments.agreement import argument_agreement, result_agreement
from goldspan.scoring.run_comparison import compare_run

# --- small worlds -----------------------------------------------------------------------------------------------------

NAMES = st.sampled_from("abc")
ARGUMENTS = st.none() | st.fixed_dictionaries({"x": st.integers(0, 1)}, optional={"y": st.integers(0, 1)})


@st.composite
def runs(draw: st.DrawFn, *, most: int = 5) -> Run:
    """Calls that overlap in any way that time allows."""
    begins = sorted(draw(st.lists(st.integers(0, 6), max_size=most)))
    spans = [(begin, begin + draw(st.sampled_from([1, 1, 1, 2, 5]))) for begin in begins]
    calls = [
        ToolCall(
            draw(NAMES),
            arguments=draw(ARGUMENTS),
            result=draw(st.none() | st.integers(0, 1)),
            concurrent_with=tuple(
                other
                for other, (begin, end) in enumerate(spans)
                if other != at and begin < spans[at][1] and spans[at][0] < end
            ),
        )
        for at in range(len(spans))
    ]
    return Run("r", tool_calls=tuple(calls))


TIMES = st.sampled_from([Times(), Times(), Times(), Times(0, 1), Times(2, 2), Times(1, 2), Times(0, None)])
CALLS = st.builds(ExpectedTool, NAMES, ARGUMENTS, result=st.sampled_from([ABSENT, ABSENT, 0, 1]))
PLAIN = st.builds(lambda call, times: replace(call, times=times), CALLS, TIMES)
CHOICES = st.builds(AnyOf, st.lists(CALLS.map(lambda call: (call,)), min_size=1, max_size=2).map(tuple), TIMES)
GROUPS = st.builds(Parallel, st.lists(CALLS | CHOICES, min_size=1, max_size=3).map(tuple))
BRANCHES = st.lists(CALLS | CHOICES | GROUPS, min_size=1, max_size=2).map(tuple)
TRAJECTORIES = st.builds(
    AnyOf, st.lists(BRANCHES, min_size=1, max_size=2).map(tuple), st.sampled_from([Times(), Times(), Times(0, 1)])
)


def goldens(items: st.SearchStrategy[ExpectedItem], *, most: int = 4) -> st.SearchStrategy[Golden]:
    return st.builds(
        Golden,
        st.just("g"),
        tools=st.lists(items, max_size=most).map(tuple),
        order=st.sampled_from(["any", "in_order", "exact"]),
    )


# --- the reference: everything that can be, written down as plainly as can be -----------------------------------------


@dataclass(frozen=True)
class Wanted:
    """A call that is expected, at its place in the order."""

    tools: tuple[ExpectedTool, ...]
    stage: int
    required: bool


def plans(items: Sequence[ExpectedItem], calls: int) -> Iterator[list[Wanted]]:
    """Every list of calls that a golden can be met with."""
    for ways in product(*(list(ways_of(item, calls)) for item in items)):
        stages = [stage for way in ways for stage in way]
        yield [replace(one, stage=number) for number, stage in enumerate(stages) for one in stage]


def ways_of(item: ExpectedItem, calls: int) -> Iterator[list[list[Wanted]]]:
    if isinstance(item, Parallel):
        inside = [next(ways_of(one, calls)) for one in item.items]
        yield [[one for way in inside for stage in way for one in stage]]
    elif isinstance(item, ExpectedTool):
        yield repeated((item,), item.times, calls)
    elif all(len(branch) == 1 and isinstance(branch[0], ExpectedTool) for branch in item.options):
        yield repeated(tuple(call for branch in item.options for call in branch if isinstance(call, ExpectedTool)),
                       item.times, calls)  # fmt: skip
    else:
        for branch in item.options:
            for ways in product(*(list(ways_of(one, calls)) for one in branch)):
                stages = [stage for way in ways for stage in way]
                yield [
                    [replace(one, required=one.required and not item.is_optional) for one in stage] for stage in stages
                ]


def repeated(tools: tuple[ExpectedTool, ...], times: Times, calls: int) -> list[list[Wanted]]:
    most = times.least + calls if times.most is None else times.most
    return [[Wanted(tools, 0, at < times.least)] for at in range(most)]


def matchings(wanted: Sequence[Wanted], calls: Sequence[ToolCall]) -> Iterator[dict[int, int]]:
    """Every way to give calls to some of the expectations."""
    if not wanted:
        yield {}
        return
    for rest in matchings(wanted[:-1], calls):
        yield rest
        for at, call in enumerate(calls):
            if at not in rest.values() and any(tool.name == call.name for tool in wanted[-1].tools):
                yield {**rest, len(wanted) - 1: at}


def is_in_order(pairs: Mapping[int, int], wanted: Sequence[Wanted], calls: Sequence[ToolCall]) -> bool:
    return not any(
        wanted[one].stage < wanted[other].stage and pairs[other] < pairs[one] and not overlap(calls, pairs, one, other)
        for one in pairs
        for other in pairs
    )


def overlap(calls: Sequence[ToolCall], pairs: Mapping[int, int], one: int, other: int) -> bool:
    return pairs[other] in calls[pairs[one]].concurrent_with


def merit(pairs: Mapping[int, int], wanted: Sequence[Wanted], calls: Sequence[ToolCall]) -> tuple[Any, ...]:
    """How good some pairs are: required, optional, agreement, what was captured, how much of it was judged."""
    required = sum(wanted[one].required for one in pairs)
    judged = [beside(wanted[one].tools, calls[other]) for one, other in pairs.items()]
    parts = zip(*judged, strict=True) if judged else ((), (), ())
    return required, len(pairs) - required, *(-sum(part) for part in parts)


def beside(tools: Sequence[ExpectedTool], call: ToolCall) -> tuple[Fraction, int, int]:
    """How far a call disagrees with the best of some tools, how much was not captured, and how much was not judged."""
    found = []
    for tool in tools:
        if tool.name == call.name:
            stated = None if tool.arguments is None else argument_agreement(tool, call)
            both = stated, None if tool.result is ABSENT else result_agreement(tool, call)
            wrong = sum((1 - Fraction(one.share).limit_denominator(100) for one in both if one), Fraction(0))
            found.append((wrong, not_captured(tool, call), both.count(None)))
    return min(found)


def not_captured(tool: ExpectedTool, call: ToolCall) -> int:
    """How many of the stated parts are not known of a call: a pair is certain if there are none."""
    return (tool.arguments is not None and call.arguments is None) + (tool.result is not ABSENT and call.result is None)


def of_plan(wanted: Sequence[Wanted], run: Run, order: str) -> tuple[Any, ...]:
    """The merit of the best pairs of a plan."""
    calls = run.tool_calls
    found = list(matchings(wanted, calls))
    if order != "any":
        found = [pairs for pairs in found if is_in_order(pairs, wanted, calls)]
    return max(merit(pairs, wanted, calls) for pairs in found)


# --- what the engine found --------------------------------------------------------------------------------------------


def answered(seen: Comparison) -> list[ComparisonRow]:
    return [row for row in seen.rows if row.expected and row.called]


def merit_of(rows: Sequence[ComparisonRow]) -> tuple[Any, ...]:
    required = sum(row.verdict == "paired" for row in rows)
    both = [one for row in rows for one in (row.agreement, row.result_agreement)]
    wrong = sum((1 - Fraction(one.share).limit_denominator(100) for one in both if one), Fraction(0))
    unknown = sum(not_captured(row.expected, row.called) for row in rows if row.expected and row.called)
    return required, len(rows) - required, -wrong, -unknown, -both.count(None)


ONE_PLAN = PLAIN | CHOICES | GROUPS
ANY_ITEM = ONE_PLAN | TRAJECTORIES


@given(runs(), goldens(ONE_PLAN))
@example(  # a call whose arguments are not known meets the expectation that states none
    run=Run("r", tool_calls=(ToolCall("a", result=1),)),
    golden=Golden("g", tools=(ExpectedTool("a"), ExpectedTool("a", {"x": 0}, result=1)), order="any"),
)
def test_no_pairing_is_better(run: Run, golden: Golden) -> None:
    (wanted,) = plans(golden.tools, len(run.tool_calls))
    assume(len(wanted) <= 7)
    seen = compare_run(run, golden)
    rows = answered(seen)
    if golden.order != "any":
        rows = [row for row in rows if row.in_order]
    assert seen.approximation_reason is None
    assert merit_of(rows) == of_plan(wanted, run, golden.order)


@given(runs(most=4), goldens(ANY_ITEM, most=2))
def test_no_other_alternative_is_met_better(run: Run, golden: Golden) -> None:
    found = list(plans(golden.tools, len(run.tool_calls)))
    assume(all(len(wanted) <= 6 for wanted in found))
    seen = compare_run(run, golden)
    met = [row for row in seen.pairs if golden.order == "any" or row.in_order]
    asked = len(seen.pairs) + len(seen.missing)
    taken = (Fraction(len(met), asked or 1) if asked else Fraction(1), -len(seen.unexpected))
    best = []
    for wanted in found:
        required, optional, *_ = of_plan(wanted, run, golden.order)
        asked = sum(one.required for one in wanted)
        best.append((Fraction(required, asked) if asked else Fraction(1), required + optional - len(run.tool_calls)))
    if golden.order == "any":
        assert taken == max(best)
    else:
        assert taken[0] == max(best)[0]


# --- laws without a reference -----------------------------------------------------------------------------------------

MORE_RULES = st.fixed_dictionaries(
    {},
    optional={
        "duplicates": st.sampled_from(["count", "ignore"]),
        "extra": st.just("allow"),
        "attempts": st.sampled_from(["effective", "all", "succeeded"]),
        "forbid": st.just(("c",)),
    },
)
ERRORS = st.none() | st.none() | st.just("timeout")


def failing(run: Run, errors: Sequence[str | None]) -> Run:
    calls = (replace(call, error=error) for call, error in zip(run.tool_calls, errors, strict=False))
    return Run("r", tool_calls=tuple(calls))


FAILING_RUNS = st.builds(failing, runs(), st.lists(ERRORS, min_size=5, max_size=5))


@given(FAILING_RUNS, goldens(ANY_ITEM), MORE_RULES)
def test_every_call_and_every_expectation_of_the_plan_is_in_one_row(
    run: Run, golden: Golden, rules: dict[str, Any]
) -> None:
    assume(golden.order != "exact" or "extra" not in rules)
    seen = compare(run, golden, **rules)
    assert [row.called_at for row in seen.rows if row.called] == list(range(len(run.tool_calls)))
    places = sorted(row.expected_at for row in seen.rows if row.expected_at is not None)
    assert places == list(range(len(places)))
    for row in seen.rows:
        assert (row.expected is None) is (row.expected_at is None)
        assert (row.in_order is not None) is (row.expected is not None and row.called is not None)
        assert (row.verdict == "paired") <= (row.expected is not None and row.called is not None)
        assert (row.verdict == "tolerated") is (row.note is not None and row.verdict != "superseded")
    if "duplicates" not in rules:
        asked = {sum(one.required for one in wanted) for wanted in plans(golden.tools, 0)}
        assert len(seen.pairs) + len(seen.missing) in asked


SCORES = ("tool_recall", "tool_precision", "tool_f1", "argument_correctness")


def scores(run: Run, golden: Golden, metrics: Sequence[str] = SCORES) -> dict[str, float | None]:
    found = {name: evaluate(run, golden, metrics=[name]).scores[0].value for name in metrics}
    return {name: None if value is None else round(value, 9) for name, value in found.items()}


@given(FAILING_RUNS, goldens(ANY_ITEM), st.randoms(use_true_random=False))
def test_the_order_of_the_lists_changes_no_score_where_no_order_is_wanted(
    run: Run, golden: Golden, chance: Random
) -> None:
    golden = replace(golden, order="any", attempts="all")
    calls = [replace(call, concurrent_with=()) for call in run.tool_calls]
    shuffled = replace(golden, tools=tuple(chance.sample(golden.tools, len(golden.tools))))
    same = scores(Run("r", tool_calls=tuple(chance.sample(calls, len(calls)))), shuffled)
    other = scores(Run("r", tool_calls=tuple(calls)), golden)
    assert same == other


ATTEMPTS = st.sampled_from(["effective", "effective", "all", "succeeded"])


@given(FAILING_RUNS, goldens(ANY_ITEM), ATTEMPTS, st.data())
def test_a_right_call_more_never_lowers_recall(
    run: Run, golden: Golden, attempts: CountedAttempts, data: st.DataObject
) -> None:
    golden = replace(golden, order="any", attempts=attempts)
    expected = compare([], golden).missing
    assume(expected)
    wanted = data.draw(st.sampled_from(expected)).expected
    tool = data.draw(st.sampled_from(Golden("", tools=(wanted,) if wanted else ()).expected_calls))
    arguments = data.draw(st.sampled_from([tool.arguments, None]) | ARGUMENTS)
    more = one_more(run, data.draw(st.integers(0, len(run.tool_calls))), ToolCall(tool.name, arguments=arguments))
    assert (scores(more, golden)["tool_recall"] or 0) >= (scores(run, golden)["tool_recall"] or 0)


@given(FAILING_RUNS, goldens(ONE_PLAN), ATTEMPTS, st.data())
def test_an_unexpected_call_more_never_raises_precision(
    run: Run, golden: Golden, attempts: CountedAttempts, data: st.DataObject
) -> None:
    golden = replace(golden, order="any", attempts=attempts)
    at = data.draw(st.integers(0, len(run.tool_calls)))
    call = ToolCall(data.draw(NAMES | st.just("nobody asked")), arguments=data.draw(ARGUMENTS), error=data.draw(ERRORS))
    more = one_more(run, at, call)
    assume(any(row.called_at == at for row in compare(more, golden).unexpected))
    before = scores(run, golden)["tool_precision"]
    assume(before is not None)
    assert (scores(more, golden)["tool_precision"] or 0) <= before


def one_more(run: Run, at: int, call: ToolCall) -> Run:
    """The run with another call there, one call after the other."""
    calls = [replace(other, concurrent_with=()) for other in run.tool_calls]
    return Run("r", tool_calls=(*calls[:at], call, *calls[at:]))


@given(FAILING_RUNS, goldens(ONE_PLAN))
def test_failed_calls_match_expectations_that_would_otherwise_be_missing(run: Run, golden: Golden) -> None:
    calls = run.tool_calls
    repeated = {
        at
        for at, call in enumerate(calls)
        for later in calls[at + 1 :]
        if call.error and later.name == call.name and (later.arguments or {}) == (call.arguments or {})
    }
    standing = Run("r", tool_calls=tuple(call for at, call in enumerate(calls) if at not in repeated))
    (wanted,) = plans(golden.tools, 0)
    required = [one for one in wanted if one.required]
    assume(len(required) <= 7)
    assert len(compare(run, golden, order="any").pairs) == of_plan(required, standing, "any")[0]


@given(FAILING_RUNS, goldens(ANY_ITEM))
def test_a_failed_call_counts_unless_its_tool_was_called_again(run: Run, golden: Golden) -> None:
    seen = compare(run, golden)
    for row in seen.superseded:
        assert row.called
        assert row.called.error
        assert row.called_at is not None
        again = [call for call in run.tool_calls[row.called_at + 1 :] if call.name == row.called.name]
        assert again
        assert (row.note == "made good by a later call") is any(call.error is None for call in again)


@given(FAILING_RUNS, goldens(ONE_PLAN))
def test_a_superseded_attempt_changes_no_score(run: Run, golden: Golden) -> None:
    run = Run("r", tool_calls=tuple(replace(call, concurrent_with=()) for call in run.tool_calls))
    seen = compare(run, golden)
    gone = {row.called_at for row in seen.superseded}
    for at in gone:
        call = run.tool_calls[at or 0]
        assert call.error is not None
        assert any(later.name == call.name for later in run.tool_calls[(at or 0) + 1 :])
    left = Run("r", tool_calls=tuple(call for at, call in enumerate(run.tool_calls) if at not in gone))
    again = compare(left, golden)  # of equally good pairs it may have others
    assert sorted(row.verdict for row in seen.rows if row.verdict != "superseded") == sorted(
        row.verdict for row in again.rows
    )
    metrics = (*SCORES, "tool_order")
    assert scores(left, golden, metrics) == scores(run, golden, metrics)
