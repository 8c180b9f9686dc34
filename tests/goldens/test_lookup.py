"""A run finds its golden by id or by the text of its request, and never by a guess."""

from __future__ import annotations

import pytest

from goldspan.errors import GoldenError
from goldspan.goldens import Goldens
from goldspan.model import ExpectedTool, Golden, Run

BOOK = Golden("book", input="Book the cheapest hotel.", tools=(ExpectedTool("book_hotel"),))
REFUND = Golden("refund", input="Refund my order.", tools=(ExpectedTool("refund"),))


def run(input: str | None = None, golden_id: str | None = None) -> Run:  # noqa: A002
    return Run("trace:span", input=input, golden_id=golden_id)


def test_the_id_that_the_telemetry_names_wins_over_the_text() -> None:
    match = Goldens([BOOK, REFUND]).find(run(input=BOOK.input, golden_id="refund"))
    assert match is not None
    assert (match.golden, match.how, match.similarity) == (REFUND, "id", 1.0)


def test_an_id_of_no_golden_is_passed_over() -> None:
    # Test suites put their own case names on spans; those need not be ids of ours.
    match = Goldens([BOOK, REFUND]).find(run(input=BOOK.input, golden_id="tests/test_agent.py::test_book"))
    assert match is not None
    assert (match.golden, match.how) == (BOOK, "input")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("Book the cheapest hotel.", id="as written"),
        pytest.param("  book the\n\tcheapest   HOTEL. ", id="white space and case"),
        pytest.param("Book\u00a0the cheapest hotel.", id="white space beyond ASCII"),
    ],
)
def test_the_same_request_finds_its_golden(text: str) -> None:
    match = Goldens([REFUND, BOOK]).find(run(input=text))
    assert match is not None
    assert (match.golden, match.how) == (BOOK, "input")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("Café in Zürich", "Cafe\u0301 in Zu\u0308rich", id="composed and decomposed"),
        pytest.param("Straße", "STRASSE", id="full case folding"),
    ],
)
def test_texts_that_unicode_calls_equal_are_equal(one: str, other: str) -> None:
    assert Goldens([Golden("g", input=one)]).find(run(input=other)) is not None


@pytest.mark.parametrize(
    ("looked_up", "why"),
    [
        pytest.param(run(input="Something else"), "no golden for this input", id="unknown text"),
        pytest.param(run(), "the run shows no input to look up", id="no text"),
        pytest.param(run(input=" \n"), "the run shows no input to look up", id="blank text"),
        pytest.param(run(golden_id="bock"), "golden id 'bock' is not in the file", id="unknown id"),
        pytest.param(run(input="?", golden_id="bock"), "golden id 'bock' is not in the file", id="neither known"),
    ],
)
def test_a_run_without_golden_says_why(looked_up: Run, why: str) -> None:
    goldens = Goldens([BOOK, REFUND, Golden("blank", input="  ")])
    assert goldens.find(looked_up) is None
    assert goldens.explain(looked_up) == why


def test_a_run_with_a_golden_says_how_it_was_found() -> None:
    assert Goldens([BOOK]).explain(run(golden_id="book")) == "golden 'book' was found by its id"
    assert Goldens([BOOK]).explain(run(input=BOOK.input)) == "golden 'book' was found by its input"


def test_goldens_that_share_an_input_and_demand_the_same_answer_as_one() -> None:
    twin = Golden("again", input="BOOK the cheapest hotel.", tools=BOOK.tools, metadata={"team": "b"})
    match = Goldens([BOOK, twin]).find(run(input=BOOK.input))
    assert match is not None
    assert match.golden is BOOK


def test_goldens_that_share_an_input_and_disagree_answer_nothing() -> None:
    others = [Golden(name, input=BOOK.input, tools=(ExpectedTool(name),)) for name in "abc"]
    goldens = Goldens(others)
    assert goldens.find(run(input=BOOK.input)) is None
    assert goldens.explain(run(input=BOOK.input)) == "3 goldens share this input and disagree (a, b, c)"
    by_id = goldens.find(run(input=BOOK.input, golden_id="b"))
    assert by_id is not None
    assert by_id.golden is others[1]


def test_many_disagreeing_goldens_are_not_all_listed() -> None:
    goldens = Goldens(Golden(f"g{n}", input="Hi", tools=(ExpectedTool(f"t{n}"),)) for n in range(7))
    expected = "7 goldens share this input and disagree (g0, g1, g2, g3, g4 and 2 more)"
    assert goldens.explain(run(input="hi")) == expected


def test_an_id_can_be_taken_once() -> None:
    with pytest.raises(GoldenError, match="golden 'book' is there twice"):
        Goldens([BOOK, REFUND, Golden("book")])


def test_goldens_can_be_counted_walked_through_and_asked_for() -> None:
    goldens = Goldens([BOOK, REFUND])
    assert (len(goldens), list(goldens), goldens["refund"]) == (2, [BOOK, REFUND], REFUND)
    assert "book" in goldens
    assert "hotel" not in goldens
    assert repr(goldens) == "<Goldens: 2>"
    assert not Goldens()
