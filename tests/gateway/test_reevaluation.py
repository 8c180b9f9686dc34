"""Tests of rescoring: the evaluation equals that with the current goldens from the start, or rescoring is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan import Evaluation, ExpectedTool, Golden, Goldens, Run, ToolCall, evaluate
from goldspan.gateway.api_routes import MissingRunDataError, reevaluate_stored
from goldspan.judge.tool_selection import Combination, failed_score, with_threshold, with_tool_selection
from goldspan.model import Judgement, Score
from goldspan.sinks.serialization import evaluation_document, to_json
from goldspan.store import StoredEvaluation
from goldspan.store.run_records import evaluation_to_document

_values = st.none() | st.booleans() | st.integers(0, 2) | st.text(max_size=2)
_calls = st.builds(
    ToolCall,
    st.sampled_from(("find_order", "findOrder", "refund", "mail")),
    arguments=st.none() | st.dictionaries(st.sampled_from("ab"), _values, max_size=2),
    result=_values,
    error=st.none() | st.sampled_from(("KeyError: 'a'", "no such order")),
    outcome=st.none() | st.sampled_from(("ok", "denied")),
)
_expected = st.builds(
    ExpectedTool,
    st.sampled_from(("find_order", "refund")),
    st.none() | st.dictionaries(st.sampled_from("ab"), _values, max_size=2),
)
_goldens = st.builds(
    Golden,
    st.just("g"),
    st.just("Money back!"),
    tools=st.lists(_expected, max_size=3).map(tuple),
    order=st.sampled_from(("any", "in_order", "exact")),
    attempts=st.sampled_from(("effective", "all", "succeeded")),
    duplicates=st.sampled_from(("count", "ignore")),
    forbid=st.sampled_from(((), ("mail",))),
    write_tools=st.sampled_from((None, ("refund",))),
)


def stored_form(evaluation: Evaluation, *, keep_arguments: bool) -> StoredEvaluation:
    document = json.loads(to_json(evaluation_to_document(evaluation, keep_arguments=keep_arguments)))
    return StoredEvaluation(evaluation.run.run_id, evaluation.revision, evaluation.digest, 0, document)


def content_of(evaluation: Evaluation) -> dict[str, object]:
    """Returns the content of an evaluation; its digest also covers values that do not affect it."""
    document = json.loads(to_json(evaluation_document(evaluation)))
    return {name: value for name, value in document.items() if name not in ("digest", "revision")}


@given(st.lists(_calls, max_size=4), _goldens, _goldens, st.booleans())
def test_a_rescored_evaluation_equals_a_first_evaluation_with_the_current_goldens(
    calls: list[ToolCall], before: Golden, now: Golden, keep_arguments: bool
) -> None:
    run = Run("t:s", input="Money back!", tool_calls=tuple(calls))
    first = stored_form(evaluate(run, Goldens([before])), keep_arguments=keep_arguments)
    outright = content_of(evaluate(run, Goldens([now])))
    try:
        again = reevaluate_stored([first], lambda stored: evaluate(stored, Goldens([now])))
    except MissingRunDataError:
        assert not keep_arguments
        return
    if again is not None:
        assert again.revision == 2
        assert content_of(again) == outright
    else:
        assert {name: first.document[name] for name in outright} == outright


# --- stored judgements ------------------------------------------------------------------------------------------------

JUDGED_SCORE = Score(
    "tool_selection",
    0.5,
    reason="tiny rates the choice of tools 0.5; mail would have been better.",
    judgement=Judgement("tiny", votes=(0.5,), better_tool="mail", words="Why not mail?", temperature=0.0, seed=0),
)
RUN = Run("t:s", input="Money back!", tool_calls=(ToolCall("refund"),))
BEFORE = Goldens([Golden("g", "Money back!", (ExpectedTool("refund"),))])


def judged(
    goldens: Goldens, score: Score = JUDGED_SCORE, threshold: float | None = None, combination: Combination = "apart"
) -> Evaluation:
    """Returns the run as stored after it was judged."""
    return with_tool_selection(evaluate(RUN, goldens), with_threshold(score, threshold), combination=combination)


@given(_goldens, st.booleans(), st.sampled_from(("apart", "min")), st.sampled_from((None, 0.4, 0.6)))
def test_rescoring_keeps_the_judged_score_and_applies_the_current_threshold_and_combination(
    now: Golden, keep_arguments: bool, combination: Combination, threshold: float | None
) -> None:
    first = stored_form(judged(BEFORE), keep_arguments=keep_arguments)
    options: dict[str, Any] = {"combination": combination, "threshold": threshold}
    try:
        again = reevaluate_stored([first], lambda stored: evaluate(stored, Goldens([now])), **options)
    except MissingRunDataError:
        assert not keep_arguments
        return
    outright = judged(Goldens([now]), threshold=threshold, combination=combination)
    if not keep_arguments:
        assert JUDGED_SCORE.judgement is not None
        judgement = replace(JUDGED_SCORE.judgement, words=None)
        outright = judged(Goldens([now]), replace(JUDGED_SCORE, judgement=judgement), threshold, combination)
    assert again is None or (again.changes, again.revision) == (None, 2)
    told = first.document if again is None else evaluation_to_document(again, keep_arguments=keep_arguments)
    wanted = json.loads(to_json(evaluation_to_document(outright, keep_arguments=keep_arguments)))
    ours = json.loads(to_json(told))
    for name in ("scores", "passed", "reason", "golden_id"):
        assert ours[name] == wanted[name]
    repeated = stored_form(again, keep_arguments=keep_arguments) if again else first
    assert reevaluate_stored([first, repeated], lambda stored: evaluate(stored, Goldens([now])), **options) is None


def test_the_threshold_of_the_current_golden_takes_precedence() -> None:
    now = Goldens([Golden("g", "Money back!", (ExpectedTool("refund"),), thresholds={"tool_selection": 0.7})])
    again = reevaluate_stored(
        [stored_form(judged(BEFORE), keep_arguments=False)], lambda run: evaluate(run, now), threshold=0.1
    )
    assert again is not None
    score = again.score("tool_selection")
    assert score is not None
    assert (score.threshold, score.passed, again.passed) == (0.7, False, False)


@pytest.mark.parametrize("keep_arguments", [True, False])
def test_rescoring_keeps_the_error_of_a_failed_judge(keep_arguments: bool) -> None:
    first = stored_form(judged(BEFORE, failed_score("Timeout: no answer within 30 s")), keep_arguments=keep_arguments)
    assert reevaluate_stored([first], lambda run: evaluate(run, BEFORE)) is None
    again = reevaluate_stored([first], lambda run: evaluate(run, Goldens([])))
    assert again is not None
    score = again.score("tool_selection")
    assert score is not None
    assert score.error == ("Timeout: no answer within 30 s" if keep_arguments else "Timeout")
