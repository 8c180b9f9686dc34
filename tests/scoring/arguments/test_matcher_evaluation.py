"""A called value is what a golden asks for: the same, or what a matcher accepts, whatever the values are."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import permutations
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.model import ABSENT
from goldspan.model.value_matchers import (
    MATCHERS,
    Anything,
    Approx,
    Contains,
    Equal,
    Folded,
    OfType,
    OneOf,
    Regex,
    Similar,
    Unordered,
)
from goldspan.scoring.arguments.equality import equal
from goldspan.scoring.arguments.matcher_evaluation import MatcherEvaluator, agrees
from goldspan.scoring.arguments.schema_coercion import schema_shape

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=12,
)
FEW_VALUES = st.recursive(
    st.sampled_from([None, True, 1, 1.0, "1", math.nan]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


class Awkward:
    """A value that refuses to be compared, as arrays do."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


class Lying:
    """A value that does not even say what it is."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise RuntimeError("no")


class Unreadable(Mapping[str, Any]):
    """A mapping that breaks when it is read."""

    def __getitem__(self, key: str) -> Any:
        raise OSError(key)

    def __iter__(self) -> Iterator[str]:
        yield "a"

    def __len__(self) -> int:
        return 1


class Endless(list[Any]):
    """A list that breaks when it is read."""

    def __iter__(self) -> Iterator[Any]:
        raise OSError("gone")


class UnhashableKey(str):
    """A key that can be looked up once only, when the dictionary is made."""

    asked = False

    def __eq__(self, other: object) -> bool:
        raise ValueError("no")

    def __hash__(self) -> int:
        if self.asked:
            raise ValueError("no")
        self.asked = True
        return 1


class Currency(str, enum.Enum):
    """Frameworks hand enumerations over as they are."""

    EUR = "EUR"


def nested(levels: int, core: Any) -> Any:
    for _ in range(levels):
        core = {"a": [core]}
    return core


def circular() -> dict[str, Any]:
    value: dict[str, Any] = {"x": 1}
    value["self"] = [value]
    return value


def bomb(core: Any) -> Any:
    """A list of ten lists of ten lists ... that share their items: small in memory, endless to walk."""
    for _ in range(30):
        core = [core] * 10
    return core


# --- plain values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param(1, 1.0, True, id="1 and 1.0"),
        pytest.param(1, True, False, id="1 and true"),
        pytest.param(0, False, False, id="0 and false"),
        pytest.param([1], [True], False, id="1 and true in a list"),
        pytest.param(5, "5", False, id="number and text"),
        pytest.param(math.nan, math.nan, True, id="not a number"),
        pytest.param([math.nan], [float("nan")], True, id="not a number in a list"),
        pytest.param(math.inf, math.inf, True, id="infinity"),
        pytest.param(10**400, 10**400, True, id="huge integers"),
        pytest.param(10**400, 1.5, False, id="a huge integer and a fraction"),
        pytest.param(Decimal("0.5"), 0.5, True, id="a decimal"),
        pytest.param(Currency.EUR, "EUR", True, id="an enumeration and its text"),
        pytest.param([1, 2], (1, 2), True, id="list and tuple"),
        pytest.param([1, 2], [2, 1], False, id="lists in another order"),
        pytest.param([1], [1, 1], False, id="a longer list"),
        pytest.param("ab", ["a", "b"], False, id="text and list"),
        pytest.param(b"a", "a", False, id="bytes and text"),
        pytest.param({1}, {1}, True, id="sets"),
        pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, True, id="the order of keys"),
        pytest.param({"a": 1}, MappingProxyType({"a": 1}), True, id="another kind of mapping"),
        pytest.param({"a": None}, {}, True, id="null and absent"),
        pytest.param(None, {}, True, id="null and an empty dictionary"),
        pytest.param(None, {"a": None}, True, id="null and a dictionary of nothing"),
        pytest.param({"a": {"b": {}}}, {}, True, id="nothing within nothing"),
        pytest.param(None, {"a": 1}, False, id="null and a dictionary"),
        pytest.param(None, ABSENT, True, id="null and not there"),
        pytest.param(None, [], False, id="null and an empty list"),
        pytest.param(None, "", False, id="null and empty text"),
        pytest.param(None, False, False, id="null and false"),
        pytest.param({}, [], False, id="an empty dictionary and an empty list"),
        pytest.param("x" * 10_000_000, "x" * 10_000_000, True, id="10 MB of text"),
        pytest.param("x" * 10_000_000, "x" * 9_999_999 + "y", False, id="10 MB of nearly the same text"),
        pytest.param(circular(), circular(), True, id="holding itself"),
        pytest.param(circular(), {"x": 1, "self": [{"x": 2}]}, False, id="holding itself on one side"),
        pytest.param(bomb(1), bomb(1), True, id="holding the same thing again and again"),
        pytest.param(bomb(1), bomb(2), False, id="the same with another core"),
        pytest.param(Awkward(), Awkward(), False, id="refusing to be compared"),
        pytest.param([Lying()], [1], False, id="not saying what it is"),
        pytest.param(Unreadable(), {"a": 1}, False, id="a mapping that cannot be read"),
        pytest.param(Endless([1]), [2], False, id="a list that cannot be read"),
        pytest.param({UnhashableKey("a"): 1}, {"b": 1}, False, id="a key that cannot be looked up"),
    ],
)
def test_plain_values_that_are_the_same(one: Any, other: Any, same: bool) -> None:
    assert equal(one, other) is same
    assert equal(other, one) is same
    assert agrees(one, other) is same


def test_deeply_nested_values_are_the_same_if_they_are_deep_inside() -> None:
    one, equal_one, other = (nested(5_000, core) for core in (1, 1, 2))
    assert equal(one, equal_one) is equal(equal_one, one) is agrees(one, equal_one) is True
    assert equal(one, other) is equal(other, one) is agrees(one, other) is False


def test_a_value_is_itself_even_where_it_cannot_be_compared() -> None:
    awkward = Awkward()
    assert equal([awkward], [awkward])


@given(VALUES)
def test_everything_equals_itself(value: Any) -> None:
    assert equal(value, value)
    assert agrees(value, value)


@given(VALUES | FEW_VALUES, VALUES | FEW_VALUES)
def test_equality_has_no_direction(one: Any, other: Any) -> None:
    assert equal(one, other) is equal(other, one) is agrees(one, other)


@given(FEW_VALUES, FEW_VALUES, FEW_VALUES)
def test_equality_is_transitive(one: Any, between: Any, other: Any) -> None:
    if equal(one, between) and equal(between, other):
        assert equal(one, other)


# --- matchers ---------------------------------------------------------------------------------------------------------

LONG = "a" * 100_001
COMPOSED, DECOMPOSED = "Caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"


@pytest.mark.parametrize(
    ("matcher", "accepted", "refused"),
    [
        pytest.param(Anything(), [None, 0, "", [], {}, False, Awkward()], [ABSENT], id="any: what is there"),
        pytest.param(
            Approx(12.5, within=0.01),
            [12.5, 12.51, 12.49, Decimal("12.505"), Fraction(25, 2)],
            [
                12.52,
                12,
                "12.5",
                True,
                None,
                ABSENT,
                math.nan,
                math.inf,
                -math.inf,
                10**400,
                Decimal("Infinity"),
                [12.5],
            ],
            id="approx: absolute",
        ),
        pytest.param(Approx(1.0, within=0.1), [1.1, 0.9], [1.1000001], id="approx: as people count, not in binary"),
        pytest.param(Approx(200, relative=0.05), [190, 210, 200.0], [189, 211], id="approx: relative"),
        pytest.param(Approx(-200, relative=0.05), [-190, -210], [-189, 200], id="approx: relative to less than 0"),
        pytest.param(Approx(100, within=1, relative=0.5), [149, 51], [151], id="approx: either will do"),
        pytest.param(Approx(1_000_000), [1_000_001, 999_999], [1_000_002], id="approx: a millionth"),
        pytest.param(Approx(0), [0, 0.0, -0.0], [1e-9, False], id="approx: nothing is near 0"),
        pytest.param(Approx(math.nan), [math.nan], [0, math.inf], id="approx: not a number"),
        pytest.param(Approx(math.inf, relative=0.5), [math.inf], [0, -math.inf, math.nan], id="approx: infinity"),
        pytest.param(Approx(10**400, within=1), [10**400], [10**400 + 1, 1], id="approx: huge"),
        pytest.param(
            Contains("Paris"),
            ["Paris", "in Paris!", ["Paris", "Rome"]],
            ["paris", ["in Paris"], 1, None],
            id="contains: text",
        ),
        pytest.param(Contains(""), ["", "x", [""]], [[], None], id="contains: no text"),
        pytest.param(
            Contains(1),
            [[1], [2, 1.0], (1,), {1}, frozenset([1])],
            [[True], ["1"], [], 1, "1", {"a": 1}],
            id="contains: an item",
        ),
        pytest.param(
            Contains([1, 2]), [[2, 1], [1, 3, 2], (2, 1)], [[1], [1, 1], "12", [[1, 2]]], id="contains: items"
        ),
        pytest.param(Contains([1, 1]), [[1, 2, 1]], [[1, 2]], id="contains: each item its own"),
        pytest.param(Contains([]), [[], [1]], ["", {}, None], id="contains: no items"),
        pytest.param(Contains(Regex("a+")), [["b", "aa"]], ["aa", ["b"]], id="contains: an item that is a matcher"),
        pytest.param(
            Contains([Approx(1), OneOf((1, 2))]),
            [[1, 2], [2, 1], [1, 1]],
            [[1, 3], [2, 2]],
            id="contains: matchers, each its own",
        ),
        pytest.param(
            Contains({"a": 1}),
            [{"a": 1}, {"a": 1.0, "b": 2}, MappingProxyType({"a": 1}), [{"a": 1}]],
            [{"a": 2}, {}, "a", [{"a": 1, "b": 2}], Unreadable()],
            id="contains: entries",
        ),
        pytest.param(
            Contains({"a": Anything(), "b": None}),
            [{"a": None}, {"a": 1, "c": 2}],
            [{}, {"a": 1, "b": 1}],
            id="contains: entries that are matchers",
        ),
        pytest.param(Contains("a"), [{"a"}], [{"a": 1}], id="contains: a key is no item"),
        pytest.param(Equal({"regex": "a"}), [{"regex": "a"}], ["a", {}], id="equal: what looks like a matcher"),
        pytest.param(Equal(None), [None, ABSENT, {}], [0, ""], id="equal: nothing"),
        pytest.param(Equal([Regex("a")]), [[Regex("a")]], [["a"]], id="equal: a matcher is data"),
        pytest.param(
            Folded("New  York"),
            ["new york", " NEW\tYORK\n"],
            ["newyork", "New York!", None, 1],
            id="folded: case and white space",
        ),
        pytest.param(Folded(COMPOSED), [DECOMPOSED, COMPOSED.upper()], ["cafe"], id="folded: composition"),
        pytest.param(Folded("Straße"), ["STRASSE"], ["strase"], id="folded: case, whatever its length"),
        pytest.param(Folded("a"), [" a" + " " * 1000], [LONG, "a" + " " * 100_000], id="folded: too long"),
        pytest.param(
            OfType("integer"),
            [1, 1.0, -3, 10**400, Decimal(2)],
            [True, 1.5, "1", math.nan, math.inf, Decimal("1e999999"), None],
            id="type: integer",
        ),
        pytest.param(OfType("number"), [1, 1.5, math.nan, Decimal("1.5")], [True, "1", None, 1j], id="type: number"),
        pytest.param(OfType("boolean"), [True, False], [0, 1, "true", None], id="type: boolean"),
        pytest.param(OfType("string"), ["", Currency.EUR], [1, None, b""], id="type: string"),
        pytest.param(OfType("array"), [[], (1,)], ["", {}, None], id="type: array"),
        pytest.param(OfType("object"), [{}, {"a": 1}, MappingProxyType({})], [[], None, ""], id="type: object"),
        pytest.param(OfType("null"), [None, ABSENT], [0, "", False, {}], id="type: null"),
        pytest.param(OneOf(("EUR", "USD")), ["EUR", Currency.EUR], ["eur", "", None, ["EUR"]], id="one of: values"),
        pytest.param(OneOf((1, None)), [1, 1.0, None, ABSENT], [True, "1"], id="one of: nothing among them"),
        pytest.param(OneOf((Regex("a+"), [Approx(1)])), ["aa", [1]], ["b", 1], id="one of: matchers"),
        pytest.param(OneOf(()), [], [None, 1], id="one of: nothing at all"),
        pytest.param(Regex(r"\d+"), ["7", "٣"], ["7a", "a7", "7\n", "", 7, None, ["7"]], id="regex: the whole text"),
        pytest.param(Regex("a|b"), ["a", "b"], ["ab", "ac", "cb"], id="regex: the whole of each alternative"),
        pytest.param(Regex("(?i)paris"), ["PARIS"], ["Paris "], id="regex: flags"),
        pytest.param(Regex("(a+)+"), ["a" * 100_000], ["a" * 99_999 + "b", LONG], id="regex: no catastrophe"),
        pytest.param(Regex(r"(a)\1"), [], ["aa", "a"], id="regex: that was never checked"),
        pytest.param(Regex("a"), ["a"], ["\ud800"], id="regex: text that cannot be encoded"),
        pytest.param(
            Similar("Book a room", 0.9),
            ["Book a room", "Book a rom", "book a room"],
            ["Cancel a room", "", 1, None],
            id="similar",
        ),
        pytest.param(
            Similar("abcdefghij", 0.9),
            ["abcdefghij", "abcdefghix"],
            ["abcdefghxy", "abcdefgh"],
            id="similar: at the threshold",
        ),
        pytest.param(Similar("a", 0), ["", "b"], [1], id="similar: any text"),
        pytest.param(Similar("", 1), [""], ["a"], id="similar: no text"),
        pytest.param(Similar("a", 0), ["a", "b" * 10_000], ["a" * 10_001], id="similar: too long"),
        pytest.param(Similar(LONG, 0), [], ["a", LONG], id="similar: to what is too long"),
        pytest.param(
            Unordered((1, 2)),
            [[1, 2], [2, 1.0], (2, 1), {1, 2}],
            [[1], [1, 2, 2], [1, 1], "12", None, {"a": 1}, 12],
            id="unordered",
        ),
        pytest.param(Unordered((1, 1, 2)), [[1, 2, 1]], [[1, 2, 2]], id="unordered: repeated"),
        pytest.param(Unordered((True, 1)), [[1, True]], [[1, 1], [True, True]], id="unordered: truth and numbers"),
        pytest.param(
            Unordered((None, {}, [])), [[[], None, {"a": None}]], [[None, None, None]], id="unordered: nothing"
        ),
        pytest.param(
            Unordered((math.nan, "x")), [["x", math.nan]], [[math.nan, math.nan]], id="unordered: not a number"
        ),
        pytest.param(
            Unordered(({"a": 1}, {"a": 2, "b": None})),
            [[{"a": 2}, {"a": 1.0}]],
            [[{"a": 1}, {"a": 1}]],
            id="unordered: dictionaries",
        ),
        pytest.param(
            Unordered((Currency.EUR, "USD")), [["USD", "EUR"]], [["USD", "USD"]], id="unordered: enumerations"
        ),
        pytest.param(
            Unordered((Anything(), Regex("a+"), "b")),
            [["a", "b", "aa"], ["b", "a", 1]],
            [["b", "b", "b"], ["a", "a", "a"]],
            id="unordered: matchers",
        ),
        pytest.param(
            Unordered((OneOf((1, 2)), OneOf((2, 3)), OneOf((1, 3)))),
            [[1, 2, 3], [3, 2, 1], [2, 3, 1]],
            [[1, 1, 1], [3, 3, 3]],
            id="unordered: every choice in turn",
        ),
        pytest.param(Unordered((Regex("a"),) * 2), [["a", "a"]], [["b", "a"]], id="unordered: two for one"),
        pytest.param(
            Unordered((OfType("null"), None)),
            [[None, {}], [{}, None]],
            [[{}, {}]],
            id="unordered: matchers that tell null from {}",
        ),
        pytest.param(
            Unordered((OfType("object"), None)),
            [[None, {}], [{}, None], [{}, {}]],
            [[None, None]],
            id="unordered: and the other way round",
        ),
        pytest.param(
            {"a": [Regex("a"), {"b": Approx(1)}]},
            [{"a": ["a", {"b": 1}]}, {"a": ("a", {"b": 1.0})}],
            [{"a": ["b", {"b": 1}]}, {"a": ["a", {}]}, {}],
            id="deep inside",
        ),
        pytest.param({"a": Anything()}, [{"a": None}, {"a": 1}], [{}, None], id="in a dictionary"),
    ],
)
def test_a_matcher_accepts_these_values(matcher: Any, accepted: list[Any], refused: list[Any]) -> None:
    assert [value for value in accepted if not agrees(matcher, value)] == []
    assert [value for value in refused if agrees(matcher, value)] == []


HOSTILE = (Awkward(), Lying(), Unreadable(), Endless([1]), {UnhashableKey("a"): 1}, circular(), bomb(1))
PARTS = (1, "a", math.nan, None, Lying(), Unreadable())


def test_no_matcher_breaks_whatever_it_is_made_of_and_whatever_is_called() -> None:
    for kind in MATCHERS:
        for part in PARTS:
            matcher: Any = kind() if kind is Anything else kind(part)  # type: ignore[call-arg, arg-type]
            for value in HOSTILE:
                assert agrees(matcher, value) is (kind is Anything)
                assert agrees([matcher, 1], [value, 2]) is False


# --- bounds -----------------------------------------------------------------------------------------------------------


def noted(expected: Any, called: Any) -> str | None:
    judge = MatcherEvaluator()
    assert not judge.agrees(expected, called)
    return judge.note


@pytest.mark.parametrize(
    ("expected", "called", "note"),
    [
        pytest.param(1, 2, None, id="values that just differ"),
        pytest.param(Regex("a+"), "b", None, id="a text that does not match"),
        pytest.param(
            Regex("a+"),
            LONG,
            "a text of 100,001 characters is too long to be compared: 100,000 at most",
            id="a long text",
        ),
        pytest.param(
            Regex("(?:a{0,300}){200}[bc]"),
            "a" * 100,
            "a text of 100 characters is too long to be compared: 33 at most",
            id="a heavy pattern",
        ),
        pytest.param(Regex("("), "a", "the pattern cannot be used: unclosed group", id="no pattern"),
        pytest.param(
            Folded("a"),
            LONG,
            "a text of 100,001 characters is too long to be compared: 100,000 at most",
            id="a long text to fold",
        ),
        pytest.param(
            Similar("a"),
            "a" * 10_001,
            "a text of 10,001 characters is too long to be compared: 10,000 at most",
            id="a long text to compare",
        ),
        pytest.param(
            Unordered((Regex("a"),) * 2000),
            ["b"] * 1000 + ["a"] * 1000,
            "there is too much to try",
            id="too many pairs",
        ),
        pytest.param(Contains(Regex("a")), ["b"] * 600_000, "there is too much to try", id="too many items"),
        pytest.param(
            OneOf((Similar("b" * 9_900, 1),) * 300),
            "a" * 9_900,
            "there is too much to try",
            id="too many long texts",
        ),
    ],
)
def test_an_undecidable_value_does_not_match_and_a_note_states_the_reason(
    expected: Any, called: Any, note: str | None
) -> None:
    assert noted(expected, called) == note


def test_a_note_is_forgotten_with_the_next_value() -> None:
    judge = MatcherEvaluator()
    judge.agrees(Regex("a"), LONG)
    judge.agrees(Regex("a"), "b")
    assert judge.note is None


def test_an_undecidable_element_is_harmless_if_another_one_matches() -> None:
    assert agrees(OneOf((Regex("("), Regex("b+"), LONG)), LONG)


def test_matchers_within_matchers_end_somewhere() -> None:
    def within(levels: int) -> Any:
        matcher: Any = 1
        for _ in range(levels):
            matcher = OneOf((0, matcher))
        return matcher

    assert agrees(within(100), 1)
    assert noted(within(101), 1) == "matchers lie more than 100 levels deep"


def test_a_golden_that_repeats_itself_endlessly_is_judged_once_in_each_place() -> None:
    assert agrees(bomb(Regex("a+")), bomb("aa"))
    assert not agrees(Unordered((bomb(1), 2)), [2, bomb(2)])


@pytest.mark.e2e
@pytest.mark.parametrize("matcher", [lambda items: Unordered(tuple(items)), lambda items: Contains(list(items))])
@pytest.mark.parametrize(
    "schema", [None, {"type": "array", "items": {"type": "string"}}], ids=["without a schema", "with a schema"]
)
def test_ten_thousand_items_find_each_other(matcher: Any, schema: Any) -> None:
    items = [f"order {number}" for number in range(10_000)]
    shape = schema_shape(schema)
    assert MatcherEvaluator().agrees(matcher(items), items[::-1], shape)
    assert not MatcherEvaluator().agrees(matcher(items), [*items[:0:-1], "another"], shape)
    assert MatcherEvaluator().agrees(matcher([{"id": item} for item in items]), [{"id": item} for item in items[::-1]])
    assert MatcherEvaluator().agrees(matcher([Regex(item) for item in items]), items)


ITEMS = st.sampled_from([None, 1, 2, "a", "b", {}, {"a": 1}])
WANTED = ITEMS | st.sampled_from(
    [Anything(), Regex("a"), OfType("integer"), OfType("object"), OfType("null"), OneOf((1, "a")), Contains({"a": 1})]
)


@given(st.lists(WANTED, max_size=4), st.lists(ITEMS, max_size=5))
def test_items_are_assigned_exactly_as_trying_everything_would(wanted: list[Any], called: list[Any]) -> None:
    possible = any(
        all(agrees(one, other) for one, other in zip(wanted, chosen, strict=True))
        for chosen in permutations(called, len(wanted))
    )
    assert agrees(Contains(wanted), called) is possible
    assert agrees(Unordered(tuple(wanted)), called) is (possible and len(wanted) == len(called))


# --- by a JSON schema -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "expected", "called", "agreed"),
    [
        pytest.param({"type": "integer"}, 5, "5", True, id="an integer as text"),
        pytest.param({"type": "integer"}, "5", 5, True, id="an integer as text in the golden"),
        pytest.param({"type": "string"}, "020", 20, False, id="a text with a leading zero"),
        pytest.param({"type": "number"}, Approx(12.5), "12.5", True, id="approx of a number as text"),
        pytest.param({"type": "string"}, Approx(12.5), "12.5", False, id="approx of a text"),
        pytest.param({"type": "integer"}, Regex(r"\d+"), "7", True, id="a pattern for a number as text"),
        pytest.param({"type": "string"}, Regex(r"\d+"), 7, True, id="a pattern for a text as number"),
        pytest.param({"type": "integer"}, Regex(r"\d+"), 7, False, id="a pattern for a number"),
        pytest.param({"type": "integer"}, OneOf(("5", "6")), 5, True, id="one of some numbers as text"),
        pytest.param({"type": "integer"}, Equal("5"), 5, True, id="equal to a number as text"),
        pytest.param({"type": "integer"}, OfType("integer"), "5", True, id="the type as the schema reads it"),
        pytest.param({"type": "integer"}, OfType("string"), "5", True, id="the type as written"),
        pytest.param({"type": "array", "items": {"type": "integer"}}, [1, 2], ["1", "2"], True, id="items"),
        pytest.param({"type": "array", "items": {"type": "integer"}}, [1, 2], "[1, 2]", True, id="a list as text"),
        pytest.param(
            {"type": "array", "items": {"type": "integer"}},
            Unordered((1, 2)),
            ["2", "1"],
            True,
            id="items in any order",
        ),
        pytest.param(
            {"type": "array", "items": {"type": "integer"}}, Contains("2"), [1, 2], True, id="an item among others"
        ),
        pytest.param(
            {"properties": {"a": {"type": "boolean"}}}, Contains({"a": True}), {"a": "true"}, True, id="an entry"
        ),
        pytest.param(
            {"properties": {"a": {"type": "boolean"}}},
            [{"a": True}],
            [{"a": "true"}],
            False,
            id="a schema of something else",
        ),
        pytest.param({"properties": {"a": {"default": 1}}}, {"a": 1}, {}, True, id="a default that is left out"),
        pytest.param({"properties": {"a": {"default": 1}}}, None, {"a": 1}, True, id="a default in what is left out"),
        pytest.param({"properties": {"a": {"default": 1}}}, {"a": None}, {}, True, id="null and left out"),
        pytest.param({"properties": {"a": {"default": 1}}}, {"a": 2}, {}, False, id="not the default"),
        pytest.param({"properties": {"a": {"default": 1}}}, {"a": 1}, {"a": None}, False, id="null is not left out"),
        pytest.param({"properties": {"a": {"default": 1}}}, {"a": Anything()}, {}, True, id="a default is there"),
        pytest.param(
            {"type": "array", "items": {"properties": {"a": {"default": 1}}}},
            [{"a": 1}],
            [{}],
            True,
            id="a default inside a list",
        ),
    ],
)
def test_matchers_compare_coerced_values(schema: Any, expected: Any, called: Any, agreed: bool) -> None:
    assert MatcherEvaluator().agrees(expected, called, schema_shape(schema)) is agreed


def test_values_and_schemas_may_both_go_round_in_circles() -> None:
    schema: dict[str, Any] = {"properties": {"x": {"type": "integer"}, "self": {"items": {"$ref": "#"}}}}
    called = circular()
    called["x"] = "1"
    assert MatcherEvaluator().agrees(circular(), called, schema_shape(schema))
