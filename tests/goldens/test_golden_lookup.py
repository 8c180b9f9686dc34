"""The lookup tries the kinds of match from the most to the least certain, and never guesses."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import goldspan
from goldspan.errors import ConfigurationError, GoldenError
from goldspan.goldens import Goldens, load_goldens
from goldspan.model import AnyOf, ExpectedTool, Golden, Run, Tool, Vocabulary, When
from goldspan.model.value_matchers import Regex

BOOK = Golden("book", input="Book the cheapest hotel.", tools=(ExpectedTool("book_hotel"),))
REFUND = Golden("refund", input="Refund my order.", tools=(ExpectedTool("refund"),))


def run(input: str | None = None, golden_id: str | None = None) -> Run:  # noqa: A002
    return Run("trace:span", input=input, golden_id=golden_id)


def test_the_golden_id_in_the_telemetry_takes_precedence_over_the_input() -> None:
    match = Goldens([BOOK, REFUND]).find(run(input=BOOK.input, golden_id="refund"))
    assert match is not None
    assert (match.golden, match.how, match.similarity) == (REFUND, "id", 1.0)


def test_an_unknown_golden_id_is_ignored_and_the_input_decides() -> None:
    # Test suites put their own case names on spans; these need not be ids of goldens.
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
def test_the_input_is_compared_without_regard_to_case_and_white_space(text: str) -> None:
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
def test_inputs_that_are_equal_after_unicode_normalization_match(one: str, other: str) -> None:
    assert Goldens([Golden("g", input=one)]).find(run(input=other)) is not None


@pytest.mark.parametrize(
    ("looked_up", "why"),
    [
        pytest.param(run(input="Something else"), "no golden for this input", id="unknown text"),
        pytest.param(run(), "the run has no input to look up", id="no text"),
        pytest.param(run(input=" \n"), "the run has no input to look up", id="blank text"),
        pytest.param(run(golden_id="bock"), "golden id 'bock' is not in the file", id="unknown id"),
        pytest.param(run(input="?", golden_id="bock"), "golden id 'bock' is not in the file", id="neither known"),
    ],
)
def test_explain_gives_the_reason_why_a_run_has_no_golden(looked_up: Run, why: str) -> None:
    goldens = Goldens([BOOK, REFUND, Golden("blank", input="  ")])
    assert goldens.find(looked_up) is None
    assert goldens.explain(looked_up) == why


def test_explain_states_how_the_golden_was_found() -> None:
    assert Goldens([BOOK]).explain(run(golden_id="book")) == "golden 'book' was found by its id"
    assert Goldens([BOOK]).explain(run(input=BOOK.input)) == "golden 'book' was found by its input"


def test_the_first_of_equivalent_goldens_with_the_same_input_is_used() -> None:
    twin = Golden("again", input="BOOK the cheapest hotel.", tools=BOOK.tools, metadata={"team": "b"})
    match = Goldens([BOOK, twin]).find(run(input=BOOK.input))
    assert match is not None
    assert match.golden is BOOK


def test_goldens_with_the_same_input_that_disagree_match_only_by_id() -> None:
    others = [Golden(name, input=BOOK.input, tools=(ExpectedTool(name),)) for name in "abc"]
    goldens = Goldens(others)
    assert goldens.find(run(input=BOOK.input)) is None
    assert goldens.explain(run(input=BOOK.input)) == "3 goldens share this input and disagree (a, b, c)"
    by_id = goldens.find(run(input=BOOK.input, golden_id="b"))
    assert by_id is not None
    assert by_id.golden is others[1]


def test_a_long_list_of_disagreeing_goldens_is_shortened() -> None:
    goldens = Goldens(Golden(f"g{n}", input="Hi", tools=(ExpectedTool(f"t{n}"),)) for n in range(7))
    expected = "7 goldens share this input and disagree (g0, g1, g2, g3, g4 and 2 more)"
    assert goldens.explain(run(input="hi")) == expected


def test_two_goldens_with_the_same_id_are_refused() -> None:
    with pytest.raises(GoldenError, match="golden 'book' is defined twice"):
        Goldens([BOOK, REFUND, Golden("book")])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("g.yaml", "goldens must be a list of Golden, not of 'g'; load_goldens reads them from files."),
        ([{"id": "a"}], "goldens must be a list of Golden, not of {'id': 'a'}; load_goldens reads them from files."),
        ([Golden("a", input=7)], "golden 'a': input must be text, not 7."),  # type: ignore[arg-type]
    ],
)
def test_goldens_of_another_type_or_with_invalid_fields_are_refused(given: Any, message: str) -> None:
    with pytest.raises(GoldenError) as raised:
        Goldens(given)
    assert str(raised.value) == message


def test_a_set_of_goldens_supports_len_iteration_indexing_and_membership() -> None:
    goldens = Goldens([BOOK, REFUND])
    assert (len(goldens), list(goldens), goldens["refund"]) == (2, [BOOK, REFUND], REFUND)
    assert "book" in goldens
    assert "hotel" not in goldens
    assert repr(goldens) == "<Goldens: 2>"
    assert not Goldens()


# --- precedence -------------------------------------------------------------------------------------------------------

SUPPORT = Golden("support", when=When(agent="support"), tools=(ExpectedTool("answer"),))
POLICY = Golden("policy", forbid=("delete_*",), policy=True)
ALL = Goldens([BOOK, REFUND, SUPPORT, POLICY])


def asked(text: str | None = None, **fields: Any) -> Run:
    return Run("trace:span", input=text, **fields)


@pytest.mark.parametrize(
    ("looked_up", "golden_id", "how"),
    [
        pytest.param(
            asked(BOOK.input, agent="support", golden_id="refund", expected_tools=("a",)), "refund", "given", id="given"
        ),
        pytest.param(asked(BOOK.input, agent="support", golden_id="refund"), "refund", "id", id="id"),
        pytest.param(asked(BOOK.input, agent="support", golden_id="?"), "support", "when", id="when"),
        pytest.param(asked(BOOK.input, agent="sales"), "book", "input", id="input"),
        pytest.param(asked("Book a cheapest hotel.", agent="sales"), "book", "near", id="near"),
        pytest.param(asked("Tell me a joke.", agent="sales"), "policy", "policy", id="policy"),
        pytest.param(asked(), "policy", "policy", id="a policy needs no text"),
    ],
)
def test_the_most_specific_kind_of_match_takes_precedence(looked_up: Run, golden_id: str, how: str) -> None:
    match = ALL.find(looked_up)
    assert match is not None
    assert (match.golden.id, match.how) == (golden_id, how)
    assert match.similarity == (1.0 if how != "near" else pytest.approx(0.9130, abs=1e-4))


@pytest.mark.parametrize(
    ("looked_up", "why"),
    [
        pytest.param(asked(expected_tools=()), "the run itself declares the expected tools", id="given"),
        pytest.param(asked(agent="support"), "golden 'support' was found by its conditions on runs", id="when"),
        pytest.param(asked("Book a cheapest hotel."), "golden 'book' was found by near text (0.91)", id="near"),
        pytest.param(asked("?"), "golden 'policy' is the policy for this run", id="policy"),
        pytest.param(
            asked("Refund my order.", golden_id="bock"),
            "golden 'refund' was found by its input; golden id 'bock' is not in the file",
            id="an unknown id is told beside what was found",
        ),
    ],
)
def test_explain_names_the_kind_of_match(looked_up: Run, why: str) -> None:
    assert ALL.explain(looked_up) == why


def test_a_set_of_goldens_survives_pickling() -> None:
    again = pickle.loads(pickle.dumps(Goldens([BOOK, SUPPORT], near=80, margin=1)))
    assert ([golden.id for golden in again], again.near, again.margin) == (["book", "support"], 80, 1)
    assert again.find(asked(agent="Support")) is not None


# --- expected tools that a run declares -------------------------------------------------------------------------------


def test_expected_tools_declared_by_a_run_become_its_golden() -> None:
    expected = ("find", {"name": "refund", "args": {"id": {"regex": "[0-9]+"}}}, {"any_of": ["mail", "call"]})
    match = ALL.find(asked(BOOK.input, expected_tools=expected))
    assert match is not None
    assert match.golden == Golden(
        "given",
        tools=(
            ExpectedTool("find"),
            ExpectedTool("refund", {"id": Regex("[0-9]+")}),
            AnyOf(((ExpectedTool("mail"),), (ExpectedTool("call"),))),
        ),
    )


def test_declared_expected_tools_replace_only_the_tools_of_the_named_golden() -> None:
    named = Golden("strict", tools=(ExpectedTool("a"),), order="exact", forbid=("delete_*",), threshold=0.9)
    goldens = Goldens([named, POLICY])
    match = goldens.find(asked(golden_id="strict", expected_tools=("b", "c")))
    assert match is not None
    assert match.golden == Golden(
        "strict", tools=(ExpectedTool("b"), ExpectedTool("c")), order="exact", forbid=("delete_*",), threshold=0.9
    )
    of_policy = goldens.find(asked(golden_id="policy", expected_tools=({"name": "b"},)))
    assert of_policy is not None
    assert of_policy.golden == Golden("policy", tools=(ExpectedTool("b"),), forbid=("delete_*",))


def test_an_unknown_golden_id_beside_declared_expected_tools_becomes_the_id_of_that_golden() -> None:
    match = ALL.find(asked(golden_id="tests/test_a.py", expected_tools=()))
    assert match is not None
    assert (match.golden.id, match.golden.tools, match.how) == ("tests/test_a.py", (), "given")


@pytest.mark.parametrize("item", ["hotel.search", {"name": "search_hotels"}])
def test_declared_expected_tools_use_the_vocabulary_of_the_goldens(item: Any) -> None:
    vocabulary = Vocabulary((Tool("search_hotels", aliases=("hotel.search",), ignore=("trace_id",)),))
    match = Goldens(vocabulary=vocabulary).find(asked(expected_tools=(item,)))
    assert match is not None
    assert (match.golden.vocabulary, match.golden.expected_calls[0].ignore) == (vocabulary, ("trace_id",))


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        pytest.param((3,), "expected_tools[0]: must be the name of a tool or a mapping with its name", id="a number"),
        pytest.param(("",), "expected_tools[0]: name must not be empty", id="no name"),
        pytest.param(
            ({"name": "a", "argument": {}},),
            "expected_tools[0]: unknown key 'argument' (did you mean 'arguments'?)",
            id="a slip",
        ),
        pytest.param(('[{"name": "a"',), "expected_tools is not valid JSON", id="no JSON"),
        pytest.param(('[{"name": "a…',), "expected_tools is truncated", id="too long"),
    ],
)
def test_invalid_declared_expected_tools_give_no_golden_and_a_reason_without_values(
    expected: tuple[Any, ...], message: str
) -> None:
    looked_up = asked(BOOK.input, golden_id="book", expected_tools=expected)
    assert ALL.find(looked_up) is None
    assert ALL.explain(looked_up) == f"the expected tools that the run declares are invalid: {message}"


def test_a_run_that_declares_expected_tools_is_evaluated_without_goldens() -> None:
    result = goldspan.evaluate(asked(expected_tools=("a",)), None)
    assert (result.passed, result.reason) == (False, "Expected a was not called.")
    assert goldspan.evaluate(asked(), None).reason == "No golden applies to this run: none was given."


# --- conditions -------------------------------------------------------------------------------------------------------


def test_two_goldens_whose_conditions_match_and_that_disagree_give_no_match() -> None:
    other = Golden("web", when=When(service="web*"), tools=(ExpectedTool("search"),))
    goldens = Goldens([BOOK, SUPPORT, other, POLICY])
    both = asked(BOOK.input, agent="support", service="webshop")
    assert goldens.find(both) is None
    assert goldens.explain(both) == "2 goldens fit this run and disagree (web, support)"
    again = Goldens([SUPPORT, Golden("again", when=When(service="web*"), tools=SUPPORT.tools)]).find(both)
    assert again is not None
    assert again.how == "when"


def test_a_golden_with_a_condition_takes_precedence_over_one_with_the_same_input_alone() -> None:
    mine = Golden("mine", input=BOOK.input, when=When(agent="sales"), tools=(ExpectedTool("offer"),))
    goldens = Goldens([BOOK, mine, Golden("any", when=When(agent="sales"))])
    for agent, golden_id, how in (("sales", "mine", "when"), ("other", "book", "input")):
        match = goldens.find(asked(BOOK.input, agent=agent))
        assert match is not None
        assert (match.golden.id, match.how) == (golden_id, how)
    match = goldens.find(asked("Anything else", agent="sales"))
    assert match is not None
    assert match.golden.id == "any"


def test_a_golden_with_an_input_and_a_condition_matches_only_when_both_hold() -> None:
    goldens = Goldens([Golden("mine", input=BOOK.input, when=When(agent="sales"))])
    assert goldens.find(asked(BOOK.input, agent="other")) is None
    assert goldens.find(asked("Anything else", agent="sales")) is None
    assert goldens.find(asked("Book the cheapest hotels.", agent="sales")) is None


# --- components -------------------------------------------------------------------------------------------------------


def component(name: str | None, text: str | None = None, **fields: Any) -> Run:
    return Run("trace:span", unit="component", component=name, input=text, **fields)


RETRIEVER = Golden("retriever", component="Doc Retriever", tools=(ExpectedTool("vector_search"),))


def test_a_golden_of_a_component_matches_only_runs_of_that_component() -> None:
    goldens = Goldens([BOOK, RETRIEVER])
    match = goldens.find(component("doc_retriever", BOOK.input))
    assert match is not None
    assert (match.golden, match.how) == (RETRIEVER, "when")
    for other in (component("ranker", BOOK.input), component(None), asked("?")):
        assert goldens.find(other) is None
    assert goldens.explain(component("ranker", "?")) == "no golden for this input of the component 'ranker'"
    assert goldens.explain(component("ranker")) == "the run has no input to look up"


def test_a_golden_id_matches_whatever_the_unit_of_the_run() -> None:
    goldens = Goldens([BOOK, RETRIEVER])
    for looked_up in (component("ranker", golden_id="book"), asked(golden_id="retriever")):
        match = goldens.find(looked_up)
        assert match is not None
        assert match.how == "id"


def test_goldens_of_a_component_and_of_requests_with_the_same_input_are_kept_apart() -> None:
    mine = Golden("mine", component="ranker", input=BOOK.input, tools=(ExpectedTool("rank"),))
    goldens = Goldens([BOOK, mine])
    for looked_up, golden_id, how in (
        (component("ranker", BOOK.input), "mine", "input"),
        (component("ranker", "Book the cheapest hotels."), "mine", "near"),
        (asked(BOOK.input), "book", "input"),
        (asked("Book the cheapest hotels."), "book", "near"),
        (Run("c", unit="conversation", input=BOOK.input), "book", "input"),
    ):
        match = goldens.find(looked_up)
        assert match is not None
        assert (match.golden.id, match.how) == (golden_id, how)


def test_a_component_golden_with_the_input_takes_precedence_over_one_for_all_inputs() -> None:
    mine = Golden("mine", component="Doc Retriever", input=BOOK.input, tools=(ExpectedTool("embed"),))
    strict = Golden("strict", component="Doc Retriever", when=When(agent="clerk"), tools=())
    goldens = Goldens([RETRIEVER, mine, strict])
    for looked_up, golden_id, how in (
        (component("doc_retriever", BOOK.input), "mine", "input"),
        (component("doc_retriever", "Another question."), "retriever", "when"),
        (component("doc_retriever"), "retriever", "when"),
    ):
        match = goldens.find(looked_up)
        assert match is not None
        assert (match.golden.id, match.how) == (golden_id, how)
    assert goldens.explain(component("doc_retriever", BOOK.input, agent="clerk")) == (
        "2 goldens fit this run and disagree (retriever, strict)"
    )


# --- policies ---------------------------------------------------------------------------------------------------------


def test_a_policy_with_a_condition_takes_precedence_over_a_general_policy() -> None:
    of_support = Golden("of-support", when=When(agent="support"), max_calls=3, policy=True)
    of_retriever = Golden("of-retriever", component="retriever", max_calls=1, policy=True)
    goldens = Goldens([POLICY, of_support, of_retriever])
    found = [goldens.find(run) for run in (asked(agent="support"), asked(agent="sales"), component("retriever"))]
    assert [match and (match.golden.id, match.how) for match in found] == [
        ("of-support", "policy"),
        ("policy", "policy"),
        ("of-retriever", "policy"),
    ]
    assert goldens.find(component("ranker")) is None


def test_policies_for_the_same_run_that_disagree_give_no_match() -> None:
    goldens = Goldens([POLICY, Golden("other", max_calls=3, policy=True)])
    assert goldens.find(asked()) is None
    assert goldens.explain(asked()) == "2 goldens are policies for this run and disagree (policy, other)"


def test_a_policy_is_not_used_when_goldens_disagree() -> None:
    goldens = Goldens([BOOK, Golden("other", input=BOOK.input), POLICY])
    assert goldens.find(asked(BOOK.input)) is None


# --- near text --------------------------------------------------------------------------------------------------------


def near(text: str, *goldens: Golden, **settings: Any) -> str | None:
    match = Goldens(goldens, **settings).find(asked(text))
    return match.golden.id if match else None


def inputs(*texts: str, same: bool = False) -> list[Golden]:
    return [Golden(text, input=text, tools=(ExpectedTool("t" if same else f"t{n}"),)) for n, text in enumerate(texts)]


CANCEL = "Please cancel my order and refund the money"


@pytest.mark.parametrize(
    ("asked_for", "stored", "found"),
    [
        pytest.param("please cancel my ordr and refund the money", CANCEL, True, id="a slip of the pen"),
        pytest.param("Please cancel the order and refund the money", CANCEL, True, id="a word"),
        pytest.param("Please do not cancel my order and refund the money", CANCEL, False, id="a negation"),
        pytest.param("Please don't cancel my order and refund the money",
                     "Please do not cancel my order and refund the money", True, id="the same negation"),
        pytest.param("I can't find the order that I made with you last week",
                     "I cant find the order that I made with you last week", True, id="the same is negated"),
        pytest.param("Do not cancel the order but do refund all of the money to me",
                     "Do cancel the order but do not refund all of the money to me", False, id="another is negated"),
        pytest.param("I want my money back for order 8", "I want my money back for order 7", False, id="a number"),
        pytest.param("I want the money back for order 7", "I want my money back for order 7", True, id="same number"),
        pytest.param("Move my booking from day 3 to day 5", "Move my booking from day 5 to day 3", False, id="order"),
        pytest.param("I want my money back for order AB17", "I want my money back for order AC17", False, id="a code"),
        pytest.param("I want my money back for order 17a", "I want my money back for order 17b", False, id="an ending"),
        pytest.param("I want my money back for ORD-17 please", "I want my money back for INV-17 please", False,
                     id="a code with a hyphen"),
        pytest.param("I want the money back for order AB17", "I want my money back for order ab17", True,
                     id="the same code"),
        pytest.param("Set the temperature in the hall to -5 degrees", "Set the temperature in the hall to 5 degrees",
                     False, id="a sign"),
        pytest.param("Refund ½ of what I have paid for the order", "Refund ¼ of what I have paid for the order", False,
                     id="a fraction"),
        pytest.param("Wake me up tomorrow at 7 pm in my room", "Wake me up tomorrow at 7 am in my room", False,
                     id="the half of a day"),
        pytest.param("Wake me up tomorrow at 7 p.m. in my room", "Wake me up tomorrow at 7pm in my room", True,
                     id="the same half of a day"),
        pytest.param("Pay back $70 of what I have paid for it", "Pay back €70 of what I have paid for it", False,
                     id="a currency"),
        pytest.param("Pay back 70 € of what I have paid for it", "Pay back 70 % of what I have paid for it", False,
                     id="a unit behind"),
        pytest.param("Pay me back 70€ of what I have paid for it", "Pay me back 70 € of what I have paid for it", True,
                     id="the same unit"),
        pytest.param("Book a room for three nights in Paris", "Book a room for two nights in Paris", False, id="words"),
        pytest.param("Bestelle das Buch bitte auf keinen Fall jetzt gleich",
                     "Bestelle das Buch bitte auf jeden Fall jetzt gleich", False, id="German"),
        pytest.param("Send the report with the attachment to everyone not",
                     "Send the report with the attachment to everyone now", False, id="a negation at the end"),
    ],
)  # fmt: skip
def test_a_similar_input_matches_unless_a_number_negation_or_unit_differs(
    asked_for: str, stored: str, found: bool
) -> None:
    assert near(asked_for, *inputs(stored)) == (stored if found else None)


def test_two_almost_equally_similar_goldens_that_disagree_give_no_match() -> None:
    goldens = Goldens(inputs("Book the cheap hotel in Rome.", "Book the cheap motel in Rome."))
    between = asked("Book the cheap botel in Rome.")
    assert goldens.find(between) is None
    assert goldens.explain(between) == (
        "2 goldens are similarly near to this input and disagree "
        "(Book the cheap hotel in Rome. 0.97, Book the cheap motel in Rome. 0.97)"
    )


def test_margin_is_the_required_lead_in_similarity_over_the_runner_up() -> None:
    goldens = inputs("Book the cheap hotel in Rome.", "Book the cheap motel in Rome.")
    assert near("Book the cheap hostel in Rome.", *goldens, margin=4) is None
    assert near("Book the cheap hostel in Rome.", *goldens, margin=3) == goldens[0].id
    tied = inputs("Book the cheap hotel in Rome.", "Book the cheap hotel in Nome.")
    assert near("Book the cheap hotel in Lome.", *tied, margin=0) is None


def test_equivalent_goldens_do_not_compete_by_similarity() -> None:
    texts = [f"Book the cheap hotel in {city}." for city in ("Rome", "Nome", "Dome")]
    assert near("Book the cheap hotel in Lome.", *inputs(*texts, same=True)) == texts[0]
    rival = Golden("rival", input="Book the cheap hotel in Home.", tools=())
    assert near("Book the cheap hotel in Lome.", *inputs(*texts, same=True), rival) is None


def test_a_similar_input_that_two_disagreeing_goldens_share_gives_no_match() -> None:
    goldens = Goldens([BOOK, Golden("other", input=BOOK.input)])
    assert goldens.find(asked("Book the cheapest hotels.")) is None
    assert "(book 0.98, other 0.98)" in goldens.explain(asked("Book the cheapest hotels."))


def test_five_similar_goldens_are_all_listed() -> None:
    goldens = Goldens(inputs(*(f"Book the cheap hotel in {letter}ome." for letter in "RNDHT")))
    assert goldens.explain(asked("Book the cheap hotel in Lome.")).endswith("hotel in Tome. 0.97)")


def test_a_long_list_of_similar_goldens_is_shortened() -> None:
    goldens = Goldens(inputs(*(f"Book the cheap hotel in {letter}ome." for letter in "RNDHTKJ")))
    assert goldens.explain(asked("Book the cheap hotel in Lome.")).endswith(" 0.97 and 2 more)")


def test_near_sets_the_similarity_cutoff_and_none_disables_similarity_matching() -> None:
    text = "Could you book the cheapest hotel?"
    assert near(text, BOOK) is None
    assert near(text, BOOK, near=70) == "book"
    assert near("Book the cheapest hotels.", BOOK, near=None) is None
    assert near("Book the cheapest hotels.", BOOK, near=99) is None


def test_inputs_above_the_maximum_length_are_not_matched_by_similarity() -> None:
    long = "tell me more about it " * 480
    assert near(long + "now", *inputs(long)) is None
    assert Goldens(inputs(long)).explain(asked(long + "now")) == (
        "no golden for this input, which is too long for similarity matching: 10,000 characters at most"
    )
    assert near(long, *inputs(long)) is not None
    assert Goldens(inputs(long), near=None).explain(asked(long + "now")) == "no golden for this input"


def test_the_most_similar_of_several_hundred_goldens_is_found() -> None:
    ends = ("bbum", "ckum", "llum", "mpum", "rstum", "zzum", "ngum", "xum")
    cities = [f"{first}{second}{end}" for first in "bcdfghklmnprst" for second in "aeiou" for end in ends]
    texts = [f"book the cheap hotel in {city} for my old friend" for city in cities]
    goldens = Goldens(inputs(*texts, "where is the parcel that you sent to my mother", same=True))
    goldens.prepare()
    match = goldens.find(asked("Where is the parcel that you sent to my brother"))
    assert match is not None
    assert match.golden.id.startswith("where is the parcel")
    match = goldens.find(asked("book the cheap hotel in balum for my old friend"))
    assert match is not None
    assert match.similarity > 0.98
    differing = Goldens(inputs(*texts))
    assert differing.find(asked("book the cheap hotel in balum for my old friend")) is None
    assert differing.find(asked("Tell me a joke about hotels and how to book them")) is None


@pytest.mark.parametrize("settings", [{"near": 101}, {"near": "90"}, {"near": True}, {"margin": -1}, {"margin": None}])
def test_near_and_margin_outside_0_to_100_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="must be a number from 0 to 100"):
        Goldens([BOOK], **settings)


def test_load_goldens_accepts_near_and_margin(tmp_path: Any) -> None:
    path = tmp_path / "g.yaml"
    path.write_text("- {id: book, input: Book the cheapest hotel., tools: []}")
    goldens = load_goldens(path, near=95, margin=1)
    assert (goldens.near, goldens.margin) == (95, 1)


@pytest.mark.parametrize("settings", [{}, {"near": None}])
def test_prepare_builds_the_similarity_index_without_changing_the_result(settings: dict[str, Any]) -> None:
    goldens = Goldens([BOOK, RETRIEVER], **settings)
    goldens.prepare()
    assert (goldens.find(asked("Book the cheapest hotels.")) is None) is (settings != {})
    Goldens().prepare()


def test_a_lookup_by_id_or_input_loads_neither_rapidfuzz_nor_pydantic() -> None:
    program = """
import sys
from goldspan.goldens.lookup.golden_lookup import Goldens
from goldspan.model import Golden, Run
goldens = Goldens([Golden("g", input="Hi")])
assert goldens.find(Run("r", input="hi")) and goldens.find(Run("r", golden_id="g"))
assert goldens.find(Run("r", expected_tools=("a",)))
assert not {"rapidfuzz", "pydantic"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# --- laws -------------------------------------------------------------------------------------------------------------

texts = st.sampled_from(["book a room in rome", "book a room in nome", "book a room in home", "cancel it", "", "it 7"])
agents = st.sampled_from([None, "support", "sales"])
whens = st.one_of(st.none(), st.builds(When, agent=st.sampled_from(["s*", "support", "Sales"])))
units = st.sampled_from(["request", "conversation", "component"])
stored = st.builds(
    lambda text, when, component, policy, tool: {
        "input": None if policy else text,
        "when": when,
        "component": component,
        "policy": policy,
        "tools": () if policy else (ExpectedTool(tool),),
    },
    *(texts, whens, st.sampled_from([None, "ranker"]), st.booleans(), st.sampled_from("ab")),
)


@given(st.lists(stored, max_size=8), texts, agents, units, st.randoms(use_true_random=False))
def test_the_order_of_goldens_does_not_change_the_match(
    fields_of_goldens: list[dict[str, Any]], text: str, agent: str | None, unit: Any, chance: Any
) -> None:
    goldens = [Golden(f"g{at}", **fields) for at, fields in enumerate(fields_of_goldens)]
    looked_up = Run("r", unit=unit, component="ranker" if unit == "component" else None, input=text, agent=agent)
    shuffled = chance.sample(goldens, len(goldens))
    one, other = (Goldens(each).find(looked_up) for each in (goldens, shuffled))
    assert (one and (one.golden.digest, one.how, one.similarity)) == (
        other and (other.golden.digest, other.how, other.similarity)
    )
