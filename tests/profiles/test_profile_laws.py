"""Properties that hold for every peer, with any options and any input."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from goldspan import profiles
from goldspan.model import Score
from goldspan.profiles.case_sides import read_side
from goldspan.profiles.comparison_rules import ARGUMENT_RULES, NAME_RULES, ignore_arguments, share_of_union
from goldspan.profiles.formula_engine import FormulaEngine
from goldspan.profiles.peer_catalog import PEERS
from goldspan.profiles.peer_options import (
    BoolOption,
    ChoiceOption,
    ChoicesOption,
    Formula,
    MappingOption,
    NumberOption,
    Option,
    RulesByToolOption,
    TextListOption,
    ToolOption,
)
from goldspan.profiles.side_pairing import ASSIGNMENTS, NAME_PAIRINGS, PAIRINGS, SidePair, count_distinct_shared_names

NAMES = st.sampled_from(["a", "b", "A", " a ", "functions.a", "a*", ""])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.integers(), st.floats(), st.sampled_from(["", "1", "a", "A b"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("kl"), inner, max_size=2),
    max_leaves=6,
)
ARGUMENTS = st.one_of(st.none(), st.dictionaries(st.sampled_from(["k", "l", "m"]), VALUES, max_size=3), VALUES)
CALLS = st.one_of(
    NAMES,
    st.fixed_dictionaries(
        {"name": NAMES, "args": ARGUMENTS},
        optional={
            "output": VALUES,
            "type": st.sampled_from(["function", "mcp", None]),
            "error": st.just("timeout"),
        },
    ),
)
SIDES = st.lists(CALLS, max_size=5)
PLAIN = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("ab"), "args": st.dictionaries(st.sampled_from("kl"), st.integers(0, 2))}
    ),
    max_size=5,
)


def named(name: str, value: Any) -> dict[str, Any]:
    return {"name": name, "args": {"k": value}}


def mostly_equal(sides: st.SearchStrategy[list[Any]]) -> st.SearchStrategy[tuple[list[Any], list[Any]]]:
    return sides.flatmap(lambda side: st.tuples(st.just(side) | st.permutations(side) | sides, st.just(side)))


def values_of(option: Option) -> st.SearchStrategy[Any]:
    given = st.just(option.default)
    if isinstance(option, BoolOption):
        return st.booleans()
    if isinstance(option, ChoiceOption):
        return st.sampled_from([*option.choices]) | (st.integers(0, 2) if option.number_field else st.nothing())
    if isinstance(option, ChoicesOption):
        return st.lists(st.sampled_from([*option.choices]))
    if isinstance(option, NumberOption):
        return given | st.sampled_from([0, 1] if option.is_integer else [0, 0.5, 1])
    if isinstance(option, ToolOption):
        return given | NAMES
    if isinstance(option, MappingOption):
        return st.dictionaries(st.sampled_from("kl"), VALUES)
    if isinstance(option, TextListOption):
        return st.lists(st.sampled_from(["k", "?", "*"]))
    if isinstance(option, RulesByToolOption):
        rules = st.sampled_from([*option.choices]) | st.lists(st.sampled_from(["k", "k.l"])) | st.just(lambda *_: True)
        return st.dictionaries(NAMES, rules)
    return given


@st.composite
def settings_of_a_peer(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    peer = PEERS[draw(st.sampled_from(profiles.NAMES))]
    word = draw(st.sampled_from([*peer.variants]))
    options = {name: draw(values_of(option)) for name, option in peer.variants[word].options.items()}
    return peer.name, options | ({peer.variant_option: word} if peer.variant_option else {}) | {
        "sane": draw(st.booleans())
    }


@given(settings_of_a_peer(), SIDES, SIDES)
def test_every_score_is_between_0_and_1_or_has_a_reason_for_its_absence(
    settings: tuple[str, dict[str, Any]], called: list[Any], expected: list[Any]
) -> None:
    peer, options = settings
    score = profiles.score(peer, called, expected, **options)
    assert score.metric == peer
    assert score.reason
    assert score.error is None
    if score.value is None:
        assert (score.passed, score.label) == (None, "not_evaluated")
        return
    assert 0 <= score.value <= 1
    assert score.passed == (None if score.threshold is None else score.value >= score.threshold)
    assert score.label == {None: None, True: "pass", False: "fail"}[score.passed]


@given(settings_of_a_peer(), SIDES, SIDES)
def test_a_prepared_profile_gives_the_same_score_as_a_direct_call(
    settings: tuple[str, dict[str, Any]], called: list[Any], expected: list[Any]
) -> None:
    peer, options = settings
    prepared = profiles.prepare(peer, **options)
    assert same(profiles.score(peer, called, expected, **options), prepared.score(tuple(called), iter(expected)))


@given(settings_of_a_peer(), st.lists(NAMES, min_size=1, max_size=4), st.lists(NAMES, min_size=1, max_size=4))
def test_empty_sides_have_the_scores_that_the_formula_states(
    settings: tuple[str, dict[str, Any]], called: list[str], expected: list[str]
) -> None:
    peer, options = settings
    formula = profiles.prepare(peer, **options).formula
    assume(formula.needs_model is None and formula.selection == "all")
    for when, sides in zip(formula.empty_scores, (([], []), (called, []), ([], expected)), strict=True):
        value = profiles.score(peer, *sides, **options).value
        if when != "measured":
            assert value == (None if when == "raises" else when)


@given(PLAIN, PLAIN, st.randoms(use_true_random=False))
def test_a_sane_score_without_ordering_does_not_depend_on_the_order_of_calls(
    called: list[Any], expected: list[Any], random: Any
) -> None:
    for peer, options in (
        ("deepeval", {"evaluation_params": ["input_parameters"]}),
        ("axion", {"check_parameters": True, "parameter_matching_strategy": "subset"}),
        ("openevals", {"trajectory_match_mode": "unordered", "tool_args_match_mode": "superset"}),
        ("google_adk", {"match_type": "ANY_ORDER"}),
    ):
        first = profiles.score(peer, called, expected, sane=True, **options).value
        again = profiles.score(peer, shuffled(called, random), shuffled(expected, random), sane=True, **options).value
        assert first is not None
        assert again is not None
        assert abs(first - again) < 1e-9


@given(PLAIN, PLAIN)
def test_no_assignment_is_better_than_the_optimal_one(called: list[Any], expected: list[Any]) -> None:
    assume(called and expected)
    values = {
        assign: matched(Formula(argument_rule="union_share", assignment=assign), called, expected) / len(expected)
        for assign in ASSIGNMENTS
    }
    assert values["optimal"] >= max(values.values()) - 1e-9
    assert values["best"] >= values["best_by_content"] - 1e-9


@given(st.lists(st.sampled_from("abc"), max_size=60), st.lists(st.sampled_from("abcd"), max_size=60))
@example(["a", "b"] * 20, ["b"] * 40)
def test_assignments_by_name_alone_match_the_common_multiset(called: list[str], expected: list[str]) -> None:
    board = SidePair(read_side(expected, "e"), read_side(called, "c"))
    common = (Counter(called) & Counter(expected)).total()
    assert {assign(board) for word, assign in ASSIGNMENTS.items() if word != "best_by_content"} == {common}
    assert (
        ASSIGNMENTS["best_by_content"](board)
        == len(set(called) & set(expected))
        == count_distinct_shared_names(expected, called)
    )


@given(st.lists(st.sampled_from("abc"), max_size=40), st.lists(st.sampled_from("abcd"), max_size=40))
@example(["a", "b"] * 20, ["b"] * 40)
@example(["a", "b", "a"], ["a", "b", "a"])
def test_the_name_pairings_equal_the_pairings_of_a_side_pair(called: list[str], expected: list[str]) -> None:
    board = SidePair(read_side(expected, "e"), read_side(called, "c"))
    for word, pair in NAME_PAIRINGS.items():
        assert pair(expected, called) == (ASSIGNMENTS.get(word) or PAIRINGS[word])(board)


@given(
    PLAIN,
    PLAIN,
    st.fixed_dictionaries(
        {
            "driving_side": st.sampled_from(["expected", "called", "each"]),
            "pairing": st.sampled_from(["one_to_one", "walk"]),
            "collapse": st.sampled_from(["none", "matched"]),
        }
    ),
)
def test_pairing_by_name_equals_pairing_with_ignored_arguments(
    called: list[Any], expected: list[Any], axes: dict[str, Any]
) -> None:
    sides = read_side(called, "c"), read_side(expected, "e")
    assume(called and expected)
    assert FormulaEngine(Formula(**axes)).count_matches(*sides) == FormulaEngine(
        Formula(**axes, argument_rules_by_tool={"none": ignore_arguments})
    ).count_matches(*sides)


@given(
    mostly_equal(PLAIN) | mostly_equal(SIDES),
    st.fixed_dictionaries(
        {
            "argument_rule": st.sampled_from([*ARGUMENT_RULES]),
            "missing_arguments": st.sampled_from(["empty", "none"]),
            "compares_types": st.booleans(),
            "name_rule": st.sampled_from([*NAME_RULES]),
            "driving_side": st.sampled_from(["expected", "called", "each"]),
            "pairing": st.sampled_from(["one_to_one", *PAIRINGS]),
            "assignment": st.sampled_from([*ASSIGNMENTS]),
        }
    ),
)
@example(  # one pair has no weight
    ([{"name": "a", "args": None}, {"name": "a", "args": {}}],) * 2,
    {"argument_rule": "union_share", "missing_arguments": "none", "pairing": "lcs"},
)
@example(  # sorting by text reorders equal arguments
    ([named("a", True), named("A", "B")], [named("a", 1), named("A", "B")]),
    {"argument_rule": "equal", "name_rule": "canonical", "pairing": "sorted"},
)
@example(([named("a", True)], [named("a", 1)]), {"argument_rule": "js_equal"})
@example(([named("a", True)], [named("a", 1)]), {"argument_rule": "json_equal"})
@example(([named("a", True)], [named("a", 1)]), {"argument_rule": "expected_share"})
def test_the_equality_shortcut_does_not_change_the_result(
    sides: tuple[list[Any], list[Any]], axes: dict[str, Any]
) -> None:
    engine = FormulaEngine(Formula(**axes))

    def outcome() -> Any:
        try:
            return engine.count_matches(*(read_side(side, "side") for side in sides))
        except Exception as error:  # noqa: BLE001 - an exception is an outcome too
            return type(error)

    quick = outcome()
    engine.has_equality_shortcut = False
    assert quick == outcome()


@given(mostly_equal(PLAIN), st.booleans())
def test_best_by_content_consumes_all_calls_with_the_content_of_the_best_call(
    sides: tuple[list[Any], list[Any]], by_name: bool
) -> None:
    called, expected = sides
    free, total = list(called), 0.0
    for wanted in expected:
        weighed = [
            (1.0 if by_name else share_of_union(wanted["args"], call["args"]), call)
            for call in free
            if call["name"] == wanted["name"]
        ]
        worth, best = max(weighed, key=lambda pair: pair[0], default=(0.0, None))
        if worth:
            total += worth
            free = [call for call in free if call != best]
    formula = Formula(argument_rule="ignore" if by_name else "union_share", assignment="best_by_content")
    assert matched(formula, called, expected) == total


def matched(formula: Formula, called: list[Any], expected: list[Any]) -> float:
    """The total weight of the pairs."""
    worth, *_ = FormulaEngine(formula).count_matches(read_side(called, "c"), read_side(expected, "e"))
    return worth or 0.0


@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=6))
def test_lcs_finds_the_longest_common_subsequence(called: list[str], expected: list[str]) -> None:
    board = SidePair(read_side(expected, "e"), read_side(called, "c"))
    common = sequences(called) & sequences(expected)
    assert PAIRINGS["lcs"](board) == max(map(len, common))
    assert PAIRINGS["walk"](board) <= PAIRINGS["lcs"](board)


@given(PLAIN, PLAIN)
def test_weighted_lcs_finds_the_common_subsequence_with_the_greatest_weight(
    called: list[Any], expected: list[Any]
) -> None:
    board = SidePair(
        read_side(expected, "e"), read_side(called, "c"), pair_weight=lambda asking, answering: worth[asking][answering]
    )
    worth = [[share_of_union(wanted["args"], given["args"]) for given in called] for wanted in expected]
    assert abs(PAIRINGS["lcs"](board) - best_in_order(board, 0, 0)) < 1e-9


def best_in_order(board: SidePair, asking: int, answering: int) -> float:
    """The exhaustive oracle: the greatest weight of an ordered pairing from two positions on."""
    if asking == len(board.driving.keys) or answering == len(board.candidates.keys):
        return 0.0
    return max(
        board.weight(asking, answering) + best_in_order(board, asking + 1, answering + 1),
        best_in_order(board, asking + 1, answering),
        best_in_order(board, asking, answering + 1),
    )


def sequences(names: list[str]) -> set[tuple[str, ...]]:
    """Every subsequence."""
    found: set[tuple[str, ...]] = {()}
    for name in names:
        found |= {(*sequence, name) for sequence in found}
    return found


def shuffled(items: list[Any], random: Any) -> list[Any]:
    return random.sample(items, len(items))


def same(one: Score, other: Score) -> bool:
    return (one.value, one.passed, one.reason) == (other.value, other.passed, other.reason)
