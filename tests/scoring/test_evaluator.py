"""An evaluation holds everything there is to say about one run and one golden."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from threading import Barrier
from typing import Any
from unittest.mock import patch

import pytest

from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens
from goldspan.model import (
    Comparison,
    Evaluation,
    ExpectedTool,
    Golden,
    Health,
    Run,
    Score,
    Times,
    Tool,
    ToolCall,
    Vocabulary,
)
from goldspan.scoring import DEFAULT_METRICS, SCORING_VERSION, evaluate, evaluator
from goldspan.scoring.metrics import Metric

BOOK = Golden("book", input="Book it.", tools=(ExpectedTool("search"), ExpectedTool("book", {"nights": 2})))
RUN = Run(
    "t:s",
    input="book it.",
    tool_calls=(ToolCall("search"), ToolCall("book", arguments={"nights": 2, "breakfast": True})),
    health=Health(orphan_spans=1),
)


def test_a_run_is_judged_by_the_golden_of_its_input() -> None:
    result = evaluate(RUN, Goldens([BOOK]))
    assert (result.run, result.golden, result.status, result.passed) == (RUN, BOOK, "scored", False)
    assert result.match is not None
    assert (result.match.golden, result.match.how) == (BOOK, "input")
    assert (result.scoring_version, result.revision, result.health) == (SCORING_VERSION, 1, RUN.health)
    assert result.reason == "All 2 expected tools were called, in order; book differs in breakfast."
    offered = "the tools the agent was offered were not captured"
    assert result.scores == (
        Score("tool_correctness", 1.0, True, 1.0, "pass"),
        Score("tool_recall", 1.0),
        Score("tool_precision", 1.0),
        Score("tool_f1", 1.0),
        Score("tool_order", 1.0),
        Score("argument_correctness", 0.5, False, 1.0, "fail", "Arguments differ: book in breakfast (0.5)."),
        Score("result_correctness", None, None, 1.0, "not_evaluated", "the golden states no results"),
        Score("effect_correctness", None, None, None, "not_evaluated", "no tool has a declared effect"),
        Score("tool_success", 1.0),
        Score("redundant_calls", 1.0),
        Score("unknown_tools", None, None, None, "not_evaluated", offered),
        Score("forbidden_tools", None, None, 1.0, "not_evaluated", "the golden forbids nothing"),
        Score("call_budget", None, None, 1.0, "not_evaluated", "the golden limits no calls"),
    )


def test_a_golden_may_be_given_outright() -> None:
    result = evaluate(RUN, BOOK)
    assert result.match is not None
    assert (result.match.golden, result.match.how) == (BOOK, "given")


def test_plain_lists_are_judged_without_any_trace() -> None:
    result = evaluate(["search", "cancel"], ["search", "book"], input="Book it.")
    assert (result.run.input, result.run.run_id, result.run.tools_used) == ("Book it.", "", ("search", "cancel"))
    assert result.golden is not None
    assert (result.golden.id, result.golden.tools) == ("given", (ExpectedTool("search"), ExpectedTool("book")))
    assert result.passed is False
    assert evaluate(["search"], ["search", "book"], thresholds={"tool_correctness": 0.5}).passed is True


def test_plain_calls_find_their_golden_by_the_input_beside_them() -> None:
    assert evaluate(["search"], Goldens([BOOK]), input="BOOK IT.").golden is BOOK
    assert evaluate(replace(RUN, input=None), Goldens([BOOK]), input="book it.").golden is BOOK


@pytest.mark.parametrize(
    ("goldens", "why"),
    [
        pytest.param(None, "none was given", id="no goldens"),
        pytest.param(Goldens(), "no golden for this input", id="no golden for it"),
        pytest.param(
            Goldens([BOOK, replace(BOOK, id="other", tools=())]),
            "2 goldens share this input and disagree (book, other)",
            id="ambiguous",
        ),
    ],
)
def test_without_a_golden_only_metrics_that_need_none_are_scored(goldens: Goldens | None, why: str) -> None:
    result = evaluate(RUN, goldens)
    assert (result.golden, result.match, result.passed, result.status) == (None, None, None, "not_evaluated")
    assert result.reason == f"No golden applies to this run: {why}."
    assert {row.verdict for row in result.comparison.rows} == {"tolerated"}
    known = {score.metric: score.value for score in result.scores if score.value is not None}
    assert known == {"tool_success": 1.0, "redundant_calls": 1.0}
    unknown = {score.metric: score.reason for score in result.scores if score.value is None}
    assert unknown.pop("unknown_tools") == "the tools the agent was offered were not captured"
    assert unknown == {name: why for name in DEFAULT_METRICS if name not in known and name != "unknown_tools"}


# --- the reason, which is written when it is read --------------------------------------------------------------------


def test_the_reason_is_written_when_it_is_first_read() -> None:
    with patch.object(evaluator, "explain_evaluation", return_value="Because.") as explain:
        result = evaluate(RUN, BOOK)
        explain.assert_not_called()
        assert [result.reason, result.reason] == ["Because.", "Because."]
        explain.assert_called_once()


def test_an_evaluation_whose_reason_was_not_read_is_equal_and_can_be_copied() -> None:
    read = evaluate(RUN, BOOK)
    assert read.reason
    for made in (
        evaluate(RUN, BOOK),
        replace(evaluate(RUN, BOOK)),
        copy.copy(evaluate(RUN, BOOK)),
        copy.deepcopy(evaluate(RUN, BOOK)),
        pickle.loads(pickle.dumps(evaluate(RUN, BOOK))),
    ):
        assert made == read
        assert repr(made) == repr(read)
        assert "_explain" not in vars(made)


def test_threads_that_read_the_reason_at_once_read_the_same() -> None:
    for _ in range(50):
        result = evaluate(RUN, BOOK)
        start = Barrier(4)

        def read(of: Evaluation = result, start: Barrier = start) -> str:
            start.wait(10)
            return of.reason

        with ThreadPoolExecutor(4) as threads:
            assert {future.result() for future in [threads.submit(read) for _ in range(4)]} == {result.reason}


def test_an_evaluation_has_no_other_computed_attribute() -> None:
    with pytest.raises(AttributeError, match="'Evaluation' object has no attribute 'reasons'"):
        _ = evaluate(RUN, BOOK).reasons  # type: ignore[attr-defined]


# --- passing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("called", "golden", "passed"),
    [
        pytest.param(["a", "b"], {}, True, id="all called"),
        pytest.param(["a"], {}, False, id="half is not enough by default"),
        pytest.param(["a"], {"threshold": 0.5}, True, id="half is accepted"),
        pytest.param(["a"], {"threshold": 0.6}, False, id="half is not accepted"),
        pytest.param([], {}, False, id="nothing called"),
        pytest.param([], {"threshold": 0.0}, True, id="anything will do"),
        pytest.param(["a", "b", "x"], {"forbid": ("x",)}, False, id="a forbidden call"),
        pytest.param(["a", "b", "y"], {"forbid": ("x",)}, True, id="no forbidden call"),
        pytest.param([{"name": "a", "args": {"q": 2}}], {"tools": (ExpectedTool("a", {"q": 1}),)}, False, id="args"),
        pytest.param([], {"tools": ()}, True, id="nothing expected, nothing called"),
        pytest.param(["a"], {"tools": ()}, False, id="nothing expected, one called"),
    ],
)  # fmt: skip
def test_an_evaluation_passes_if_the_run_meets_every_statement_of_the_golden(
    called: Any, golden: dict[str, Any], passed: bool
) -> None:
    wanted = replace(Golden("g", tools=(ExpectedTool("a"), ExpectedTool("b"))), **golden)
    assert evaluate(called, wanted).passed is passed


def test_a_threshold_is_met_a_hair_below_it() -> None:
    def almost(seen: Comparison) -> float:
        return 0.1 + 0.7  # 0.7999999999999999

    (score,) = evaluate([], [], metrics=[almost], thresholds={"almost": 0.8}).scores
    assert (score.value, score.passed, score.label) == (0.1 + 0.7, True, "pass")


def test_any_metric_becomes_a_gate_by_a_threshold() -> None:
    result = evaluate(["a", "x", "y"], ["a"], thresholds={"tool_precision": 0.5})
    score = result.score("tool_precision")
    assert score is not None
    assert (score.passed, score.threshold, score.label) == (False, 0.5, "fail")
    assert result.passed is False


@pytest.mark.parametrize("metrics", [[], ["tool_f1"], ["forbidden_tools"], None])
def test_the_verdict_does_not_depend_on_the_selected_metrics(metrics: list[str] | None) -> None:
    writes = Vocabulary((Tool("pay", effect="write"),))
    strict = Golden("g", tools=(ExpectedTool("a"),), thresholds={"tool_success": 1}, vocabulary=writes)
    assert evaluate(["a"], ["a"], metrics=metrics).passed is True
    assert evaluate(["b"], ["a"], metrics=metrics).passed is False
    assert evaluate(["a", "pay"], strict, metrics=metrics).passed is False
    assert evaluate([{"name": "a", "error": "E"}], strict, metrics=metrics).passed is False
    assert evaluate([{"name": "a", "result": "Error: E"}], strict, metrics=metrics).passed is None
    assert evaluate(["a", {"name": "pay", "result": "Error: E"}], strict, metrics=metrics).passed is None


def test_a_score_that_may_be_below_its_threshold_neither_passes_nor_fails() -> None:
    calls = [ToolCall("a"), ToolCall("b", error_guess="Error: E")]
    gates = {"tool_success": 0.6}
    result = evaluate(calls, ["a"], metrics=["tool_success"], thresholds=gates, verbose=True)
    assert result.scores == (
        Score(
            "tool_success",
            1.0,
            None,
            0.6,
            "not_evaluated",
            "whether b failed is not known",
            steps=(
                "Succeeded: a.",
                "Failed: none.",
                "Not known to have succeeded or failed: b.",
                "The score is 1 of what is known.",
            ),
        ),
    )
    assert [each.about for each in result.undetermined] == ["tool_success"]
    half = evaluate(calls, ["a"], metrics=["tool_success"], thresholds={"tool_success": 0.5})
    assert half.scores == (Score("tool_success", 1.0, True, 0.5, "pass"),)


def test_a_call_with_a_stated_success_is_no_failure_whatever_its_result_contains() -> None:
    for said in ({"error": False}, {"outcome": "ok"}):
        calls = [{"name": "last_error", "result": "Error: none", **said}]
        assert evaluate(calls, ["last_error"], thresholds={"tool_success": 1}).passed is True
    failed = evaluate([{"name": "a", "outcome": "error"}], ["a"], attempts="succeeded")
    assert failed.passed is False


# --- metrics of one's own ---------------------------------------------------------------------------------------------


def calls_made(seen: Comparison) -> float:
    return len(seen.rows)


def test_metrics_of_ones_own_stand_beside_the_others() -> None:
    mine = Metric("always", lambda seen: True, needs_golden=False)
    result = evaluate(["a", "b"], ["a"], metrics=["tool_recall", calls_made, ("double", lambda seen: 2), mine])
    assert [(score.metric, score.value) for score in result.scores] == [
        ("tool_recall", 1.0),
        ("calls_made", 2.0),
        ("double", 2.0),
        ("always", 1.0),
    ]
    assert [score.value for score in evaluate(["a"], None, metrics=[calls_made, mine]).scores] == [None, 1.0]


def test_a_metric_that_raises_is_a_score_with_an_error_and_the_others_still_run() -> None:
    def broken(seen: Comparison) -> float:
        return {}["city"]  # type: ignore[no-any-return]

    first, second = evaluate(["a"], ["a"], metrics=[broken, "tool_f1"], thresholds={"broken": 0.5}).scores
    assert first == Score("broken", None, None, 0.5, "not_evaluated", error="KeyError: 'city'")
    assert second == Score("tool_f1", 1.0)


@pytest.mark.parametrize(
    ("number", "error"),
    [
        pytest.param(float("nan"), "ValueError: a score must be a finite number, not nan", id="no number"),
        pytest.param(float("inf"), "ValueError: a score must be a finite number, not inf", id="no end"),
        pytest.param("high", "ValueError: could not convert string to float: 'high'", id="text"),
    ],
)
def test_a_score_is_a_number(number: Any, error: str) -> None:
    (score,) = evaluate([], [], metrics=[("mine", lambda seen: number)]).scores
    assert (score.value, score.error) == (None, error)


def test_an_unknown_metric_is_a_mistake_even_without_a_golden() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'tool_f1'"):
        evaluate(RUN, None, metrics=["tool-f1"])


# --- what a golden says of its own scores -----------------------------------------------------------------------------

SEARCH = Golden("g", tools=(ExpectedTool("search"), ExpectedTool("book")))


def test_a_golden_has_thresholds_of_its_own_for_any_metric() -> None:
    golden = replace(SEARCH, thresholds={"tool_precision": 0.9, "tool_correctness": 0.4})
    result = evaluate(["search", "x"], golden)
    gates = {score.metric: (score.threshold, score.passed) for score in result.scores if score.passed is not None}
    assert gates == {"tool_correctness": (0.4, True), "tool_precision": (0.9, False)}
    assert evaluate(["search", "x"], golden, thresholds={"tool_precision": 0.5}).passed is True


def test_a_golden_can_select_its_metrics() -> None:
    golden = replace(SEARCH, metrics=("tool_f1", "tool_success"), thresholds={"tool_recall": 1.0})
    assert [score.metric for score in evaluate([], golden).scores] == ["tool_f1", "tool_success", "tool_recall"]
    told = evaluate([], golden, thresholds={"call_budget": 1.0})
    assert [score.metric for score in told.scores][-1] == "call_budget"
    assert [score.metric for score in evaluate([], golden, metrics=["tool_order"]).scores] == ["tool_order"]
    assert len(evaluate([], replace(golden, metrics=None)).scores) == len(DEFAULT_METRICS)
    assert evaluate([], replace(golden, metrics=())).passed is False  # the one with a threshold is still measured


@pytest.mark.parametrize("said", [{"metrics": ("tool_recal",)}, {"thresholds": {"tool_recal": 1.0}}])
def test_a_golden_that_asks_for_a_metric_there_is_not_is_named(said: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        evaluate([], replace(SEARCH, **said))
    assert str(caught.value) == "golden 'g': unknown metric 'tool_recal'. Did you mean 'tool_recall'?"


# --- strict, reasons, steps -------------------------------------------------------------------------------------------


def test_strict_wants_all_of_every_gate_and_gives_nothing_for_less() -> None:
    result = evaluate(["search", "x"], SEARCH, strict=True)
    assert result.score("tool_correctness") == Score(
        "tool_correctness", 0.0, False, 1.0, "fail", "Expected but not called: book."
    )
    assert result.score("tool_precision") == Score("tool_precision", 0.5)  # no gate
    assert result.passed is False
    assert evaluate(["search", "book"], SEARCH, strict=True).passed is True
    lenient = evaluate(["search"], SEARCH, strict=True, thresholds={"tool_recall": 0.1}, metrics=["tool_recall"])
    assert lenient.scores == (Score("tool_recall", 0.0, False, 1.0, "fail", "Expected but not called: book."),)


def test_each_gate_explains_why_it_is_below_1() -> None:
    gates = {"tool_recall": 0.1, "tool_success": 0.9, "calls_made": 3}
    calls = [ToolCall("search", error="down"), "x"]
    result = evaluate(calls, SEARCH, metrics=["tool_recall", "tool_success", calls_made, "tool_f1"], thresholds=gates)
    assert [(score.passed, score.reason) for score in result.scores] == [
        (True, "Expected but not called: book."),
        (False, "Failed: search."),
        (True, None),  # a metric of one's own gives no account
        (None, None),  # no gate
    ]
    told = evaluate(calls, SEARCH, metrics=["tool_f1"], verbose=True)
    assert told.scores[0].reason == "Expected but not called: book; called but not expected: x."


def test_without_reasons_there_are_the_numbers_alone() -> None:
    told, bare = evaluate(["x"], SEARCH), evaluate(["x"], SEARCH, reasons=False)
    assert bare.reason == ""
    assert {score.reason for score in bare.scores} == {None}
    assert bare.scores == tuple(replace(score, reason=None) for score in told.scores)
    assert (bare.passed, bare.digest) == (told.passed, told.digest)
    assert {score.reason for score in evaluate(["x"], None, reasons=False).scores} == {None}


def test_verbose_tells_the_steps_and_never_a_value() -> None:
    calls = [ToolCall("search"), ToolCall("book", arguments={"nights": "secret-7"})]
    result = evaluate(calls, BOOK, verbose=True)
    steps = {score.metric: score.steps for score in result.scores}
    assert steps["tool_correctness"] == (
        "Expected and called: search and book.",
        "Expected but not called: none.",
        "Called out of order: none.",
        "The score is 1; 1 is wanted.",
    )
    assert steps["argument_correctness"] == (
        "Arguments agree: none.",
        "Arguments differ: book in nights (0).",
        "The score is 0; 1 is wanted.",
    )
    assert steps["tool_success"][-1] == "The score is 1."
    assert steps["effect_correctness"] == ()
    assert "secret" not in str(steps)
    assert evaluate(calls, BOOK, verbose=True, metrics=[calls_made]).scores[0].steps == ("The score is 2.",)
    assert all(score.reason is None for score in evaluate(calls, BOOK, verbose=True, reasons=False).scores)


def test_an_account_that_raises_is_an_error_of_its_metric() -> None:
    def account(seen: Comparison) -> list[Any]:
        raise KeyError("city")

    mine = Metric("mine", lambda seen: 0.5, 1.0, explain=account)
    (score,) = evaluate([], [], metrics=[mine]).scores
    assert (score.value, score.error) == (None, "KeyError: 'city'")


# --- overriding and recognising ---------------------------------------------------------------------------------------


def test_keyword_arguments_override_all_goldens() -> None:
    calls = [ToolCall("search", error="timeout"), ToolCall("search"), ToolCall("book", arguments={"nights": 2})]
    run = replace(RUN, tool_calls=tuple(calls))
    precision = {
        attempts: evaluate(run, Goldens([BOOK]), attempts=attempts).score("tool_precision")
        for attempts in (None, "effective", "all")
    }
    assert {attempts: score and score.value for attempts, score in precision.items()} == {
        None: 1.0,
        "effective": 1.0,
        "all": 2 / 3,
    }


def test_equal_digests_mean_the_same_verdict() -> None:
    first = evaluate(RUN, Goldens([BOOK]))
    assert evaluate(replace(RUN, run_id="other", output="x"), BOOK).digest == first.digest
    changes = [
        evaluate(replace(RUN, tool_calls=RUN.tool_calls[:1]), BOOK),
        evaluate(replace(RUN, tool_calls=(ToolCall("search", error="x"), RUN.tool_calls[1])), BOOK),
        evaluate(replace(RUN, tool_calls=(ToolCall("search", server="s"), RUN.tool_calls[1])), BOOK),
        evaluate(RUN, replace(BOOK, threshold=0.9)),
        evaluate(RUN, BOOK, attempts="all"),
        evaluate(RUN, replace(BOOK, write_tools=("book",))),
        evaluate(RUN, None),
    ]
    assert len({first.digest, *(change.digest for change in changes)}) == len(changes) + 1


def test_keys_of_a_golden_that_do_not_affect_the_verdict_change_no_digest() -> None:
    told = replace(BOOK, id="other", input="x", metadata={"owner": "me"})
    assert evaluate(RUN, told).digest == evaluate(RUN, BOOK).digest


def test_arguments_that_no_hash_can_be_made_of_are_judged_all_the_same() -> None:
    deep: Any = {"x": 1}
    for _ in range(5_000):
        deep = {"x": deep}
    for arguments in ({1: "a", "b": "c"}, {("a", "b"): 1}, deep):
        result = evaluate([ToolCall("t", arguments=arguments)], [ExpectedTool("t", {"y": 1})])
        score = result.score("argument_correctness")
        assert score is not None
        assert (score.value, score.passed) == (0.0, False)
        assert result.digest != evaluate([ToolCall("t", arguments=arguments)], ["u"]).digest


def test_a_result_changes_the_digest_only_where_it_is_judged() -> None:
    one, other = ToolCall("t", result="yes"), ToolCall("t", result="no")
    assert evaluate([one], ["t"]).digest == evaluate([other], ["t"]).digest
    stated = [ExpectedTool("t", result="yes")]
    assert evaluate([one], stated).digest != evaluate([other], stated).digest


def test_derived_values_of_a_comparison_are_no_fields() -> None:
    seen = evaluate(RUN, BOOK).comparison
    assert (seen.calls, seen.pairs) == (RUN.tool_calls, seen.rows)
    assert " pairs=" not in repr(seen)
    assert replace(seen) == seen
    assert replace(seen, rows=()).pairs == ()


def test_an_evaluation_is_the_same_after_a_journey() -> None:
    result = evaluate(RUN, BOOK)
    for before in (result, replace(result)):  # one that knows its digest already, and one that does not
        arrived = pickle.loads(pickle.dumps(before))
        assert (arrived, arrived.digest) == (result, result.digest)
        assert replace(arrived, revision=2).digest == result.digest


def test_an_input_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigurationError) as raised:
        evaluate(["search"], ["search"], input=7)  # type: ignore[arg-type]
    assert str(raised.value) == "input must be the text of the request, not 7."


# --- reasons that are written when they are read ----------------------------------------------------------------------


def _low_score() -> Score:
    score = evaluate(RUN, BOOK).score("argument_correctness")
    assert score is not None
    return score


WRITTEN = Score("argument_correctness", 0.5, False, 1.0, "fail", "Arguments differ: book in breakfast (0.5).")


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda score: score, id="equal"),
        pytest.param(copy.copy, id="copied"),
        pytest.param(copy.deepcopy, id="copied with its parts"),
        pytest.param(lambda score: pickle.loads(pickle.dumps(score)), id="pickled"),
        pytest.param(replace, id="replaced"),
        pytest.param(lambda score: Score(**asdict(score)), id="as a dictionary"),
    ],
)
def test_a_score_whose_reason_nobody_read_is_that_whose_reason_is_written(read: Callable[[Score], Score]) -> None:
    assert read(_low_score()) == WRITTEN
    assert repr(read(_low_score())) == repr(WRITTEN)
    assert hash(read(_low_score())) == hash(WRITTEN)


def test_the_reason_of_a_score_is_written_once() -> None:
    written: list[str] = []

    def explain() -> str:
        written.append("a reason")
        return written[-1]

    score = Score("m", 0.5).with_deferred_reason(explain)
    assert written == []
    assert [score.reason, score.reason, written] == ["a reason", "a reason", ["a reason"]]


def test_a_score_has_no_other_attributes_than_its_fields() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'verdict'"):
        _ = _low_score().verdict  # type: ignore[attr-defined]


def test_reading_the_reason_of_a_score_in_several_threads_gives_the_same() -> None:
    score = _low_score()
    with ThreadPoolExecutor(4) as threads:
        assert {*threads.map(lambda _: score.reason, range(100))} == {WRITTEN.reason}


def test_a_registered_metric_whose_explanation_raises_becomes_an_error() -> None:
    def explain(comparison: Comparison) -> Any:
        raise RuntimeError("no words")

    low = Metric("low", lambda comparison: 0.0, threshold=1.0, explain=explain)
    score = evaluate(RUN, BOOK, metrics=[low]).score("low")
    assert score is not None
    assert score.error == "RuntimeError: no words"


@pytest.mark.parametrize(
    ("error", "golden", "passes_as_repeat"),
    [
        pytest.param(
            None,
            Golden("g", tools=(ExpectedTool("pay"),), extra="penalize", duplicates="ignore"),
            True,
            id="it may repeat a call",
        ),
        pytest.param("timeout", Golden("g", tools=(ExpectedTool("pay"),) * 2), False, id="it may retry a failed call"),
    ],
)
def test_whether_a_call_repeats_another_decides_the_verdict_only_if_their_arguments_are_known(
    error: str | None, golden: Golden, passes_as_repeat: bool
) -> None:
    calls = ToolCall("pay", error=error), ToolCall("pay")
    result = evaluate(Run("r", tool_calls=calls), golden)
    assert result.passed is None
    assert "whether pay was called again with the same arguments is not known" in result.reason
    for number, passed in ((1, passes_as_repeat), (2, not passes_as_repeat)):
        known = replace(calls[0], arguments={"n": 1}), replace(calls[1], arguments={"n": number})
        assert evaluate(Run("r", tool_calls=known), golden).passed is passed


def test_calls_with_known_arguments_are_compared_though_those_of_another_tool_are_not_known() -> None:
    golden = Golden("g", tools=(ExpectedTool("look"), ExpectedTool("pay"), ExpectedTool("pay")))
    looked = ToolCall("look", error="timeout"), ToolCall("look")
    paid = ToolCall("pay", arguments={"n": 1}, error="timeout"), ToolCall("pay", arguments={"n": 2})
    assert evaluate(Run("r", tool_calls=looked + paid), golden).passed is True


def test_a_call_that_a_required_and_an_optional_expectation_allow_meets_the_required_one() -> None:
    optional = ExpectedTool("pay", {"n": 1}, times=Times(0, 1))
    golden = Golden("g", tools=(optional, ExpectedTool("pay")))
    result = evaluate(Run("r", tool_calls=(ToolCall("pay", arguments={"n": 1}),)), golden)
    assert (result.passed, [row.expected for row in result.comparison.pairs]) == (True, [ExpectedTool("pay")])
