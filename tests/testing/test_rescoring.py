"""Results of an older scoring version are refused, or their runs are evaluated again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from goldspan import ExpectedTool, Goldens, ResultsError
from goldspan.scoring.evaluator import SCORING_VERSION
from goldspan.testing.rescoring import require_current_version, rescore
from support.case_results import evaluated_case, golden_of, plain_case, results_of

BOOK = golden_of("book", ExpectedTool("book", {"hotel": "Ritz"}))
RITZ = {"name": "book", "arguments": {"hotel": "Ritz"}}


def test_results_of_another_scoring_version_are_refused() -> None:
    results = results_of([], scoring_version=SCORING_VERSION - 1)
    with pytest.raises(
        ResultsError, match=f"scoring version {SCORING_VERSION - 1}.*--rescore evaluates its runs again"
    ):
        require_current_version(results, "old.jsonl")
    require_current_version(results_of([]), "new.jsonl")


def test_runs_are_evaluated_again_with_the_goldens_of_today() -> None:
    results = results_of([evaluated_case(BOOK, [RITZ])], scoring_version=SCORING_VERSION - 1)
    stricter = golden_of("book", ExpectedTool("book", {"hotel": "Roma"}), tags=("new",), line=9)
    rescored = rescore(results, Goldens([stricter]), "results.jsonl")
    (case,) = rescored.cases
    assert rescored.header.scoring_version == SCORING_VERSION
    assert (case.outcome, case.tags, case.source) == ("failed", ("new",), stricter.source)
    assert case.golden_digest == stricter.digest
    assert "differs in hotel" in case.reason
    assert rescored.evaluations[0].run.tool_calls[0].arguments == {"hotel": "Ritz"}


def test_rescoring_with_the_same_goldens_changes_no_case() -> None:
    results = results_of([evaluated_case(BOOK, [RITZ]), evaluated_case(BOOK, [], trial=2)])
    assert rescore(results, Goldens([BOOK]), "results.jsonl").cases == results.cases


def test_cases_in_which_the_agent_raised_stay_as_they_are() -> None:
    raised = plain_case("book", "error")
    assert rescore(results_of([raised]), Goldens([BOOK]), "results.jsonl").cases == (raised,)


def test_a_golden_that_no_longer_exists_is_an_error() -> None:
    with pytest.raises(ResultsError, match=r"'book' is not in the golden files any more\. Did you mean 'books'"):
        rescore(results_of([evaluated_case(BOOK, [RITZ])]), Goldens([golden_of("books", "book")]), "results.jsonl")


def test_runs_without_arguments_cannot_be_evaluated_again_by_goldens_that_compare_them() -> None:
    results = results_of([evaluated_case(BOOK, [RITZ])])
    results = replace(results, header=replace(results.header, keeps_arguments=False))
    with pytest.raises(ResultsError, match="holds no values of arguments, and the golden 'book' compares some"):
        rescore(results, Goldens([BOOK]), "results.jsonl")
    assert rescore(results, Goldens([golden_of("book", "book")]), "results.jsonl").cases[0].outcome == "passed"
