"""A policy forbids and limits calls and expects none in particular."""

from __future__ import annotations

import pytest

import goldspan
from goldspan.model import Golden, Run, ToolCall
from goldspan.scoring.metrics import METRICS

NO_DELETES = goldspan.Golden("no-deletes", forbid=("delete_*",), policy=True)
AT_MOST_TWO = Golden("frugal", max_calls=2, policy=True)
BOTH = Golden("both", forbid=("delete_*",), max_calls=1, policy=True)


@pytest.mark.parametrize(
    ("policy", "called", "passed", "reason"),
    [
        pytest.param(NO_DELETES, ["a", "b"], True, "Policy no-deletes: nothing forbidden was called.", id="kept"),
        pytest.param(NO_DELETES, [], True, "Policy no-deletes: nothing forbidden was called.", id="nothing called"),
        pytest.param(
            NO_DELETES, ["delete_user", "b"], False, "Policy no-deletes: delete_user is forbidden.", id="forbidden"
        ),
        pytest.param(
            NO_DELETES,
            ["delete_user", "delete_all", "delete_user"],
            False,
            "Policy no-deletes: delete_user and delete_all are forbidden.",
            id="several, one of them twice",
        ),
        pytest.param(AT_MOST_TWO, ["a", "b"], True, "Policy frugal: 2 calls were made and 2 are allowed.", id="budget"),
        pytest.param(
            AT_MOST_TWO, ["a", "b", "c"], False, "Policy frugal: 3 calls were made and 2 are allowed.", id="over"
        ),
        pytest.param(
            BOTH, ["a"], True, "Policy both: nothing forbidden was called; 1 call was made and 1 is allowed.", id="both"
        ),
        pytest.param(BOTH, ["delete_user"], False, "Policy both: delete_user is forbidden.", id="one of both"),
        pytest.param(
            BOTH,
            ["delete_user", "a"],
            False,
            "Policy both: delete_user is forbidden; 2 calls were made and 1 is allowed.",
            id="neither",
        ),
        pytest.param(
            Golden("idle", policy=True), ["a"], None, "Policy idle: it forbids and limits nothing.", id="nothing at all"
        ),
    ],
)
def test_a_policy_passes_where_nothing_forbidden_and_not_too_much_was_called(
    policy: Golden, called: list[str], passed: bool | None, reason: str
) -> None:
    result = goldspan.evaluate(called, policy)
    assert (result.passed, result.reason, result.status) == (
        passed,
        reason,
        "not_evaluated" if passed is None else "scored",
    )


def test_a_policy_has_no_metric_that_needs_expectations() -> None:
    result = goldspan.evaluate(["delete_user", "b"], NO_DELETES, verbose=True)
    unknown = {score.metric for score in result.scores if score.reason == "a policy expects no calls in particular"}
    assert unknown == {metric.name for metric in METRICS.values() if metric.needs_expectations}
    assert unknown == {
        *("tool_correctness", "tool_recall", "tool_precision", "tool_f1", "tool_order"),
        *("argument_correctness", "result_correctness", "effect_correctness"),
    }
    for score in result.scores:
        if score.metric in unknown:
            assert (score.value, score.passed, score.label) == (None, None, "not_evaluated")
    forbidden = result.score("forbidden_tools")
    assert forbidden is not None
    assert (forbidden.value, forbidden.passed, forbidden.reason) == (0.0, False, "Called but forbidden: delete_user.")


def test_calls_that_a_policy_says_nothing_of_are_tolerated() -> None:
    run = Run("r", tool_calls=(ToolCall("a", error="timeout"), ToolCall("delete_user"), ToolCall("b", kind="agent")))
    rows = goldspan.compare(run, NO_DELETES).rows
    assert [(row.verdict, row.note) for row in rows] == [
        ("tolerated", "policy"),
        ("forbidden", None),
        ("tolerated", "agent"),
    ]


def test_a_metric_of_ones_own_is_measured_beside_a_policy() -> None:
    result = goldspan.evaluate(["a"], NO_DELETES, metrics=[("calls", lambda seen: len(seen.calls))])
    assert [score.value for score in result.scores] == [1]


def test_without_reasons_there_are_none() -> None:
    result = goldspan.evaluate(["a"], NO_DELETES, reasons=False)
    assert {score.reason for score in result.scores} == {None}


def test_a_policy_and_a_golden_that_expects_nothing_are_two_things() -> None:
    assert NO_DELETES.digest != Golden("no-deletes", forbid=("delete_*",)).digest
    assert goldspan.evaluate(["a"], Golden("none", forbid=("delete_*",))).passed is False
