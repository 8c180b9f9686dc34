"""A run that is complete is judged once, and every sink hears of it."""

from __future__ import annotations

import pytest

from goldspan import ConfigurationError, Evaluation, ExpectedTool, Golden, Goldens, Run, ToolCall, _guard
from goldspan.online import Ended, Pipeline
from spans import agent, tool

GOLDENS = Goldens([Golden("g", tools=(ExpectedTool("search"),))])
RUN = Run(run_id="r", golden_id="g", tool_calls=(ToolCall("search"),))


class Kept:
    def __init__(self) -> None:
        self.evaluations: list[Evaluation] = []

    def submit(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)


class Raising:
    def submit(self, evaluation: Evaluation) -> None:
        raise OSError("disk full")


def test_every_sink_gets_the_evaluation_even_where_another_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    before, after = Kept(), Kept()
    evaluation = Pipeline(GOLDENS, sinks=[before, Raising(), after]).evaluate(RUN)
    assert evaluation.passed
    assert before.evaluations == after.evaluations == [evaluation]
    assert _guard.failures == {"submit to Raising": 1}


def test_only_the_metrics_asked_for_are_read() -> None:
    evaluation = Pipeline(GOLDENS, metrics=["tool_recall"], thresholds={"tool_recall": 1.0}).evaluate(RUN)
    assert [(score.metric, score.passed) for score in evaluation.scores] == [("tool_recall", True)]


def test_without_goldens_a_run_is_not_evaluated_but_told() -> None:
    evaluation = Pipeline().evaluate(RUN)
    assert (evaluation.status, evaluation.run.tools_used) == ("not_evaluated", ("search",))


def test_making_one_tells_no_sink_of_anything() -> None:
    kept = Kept()
    Pipeline(GOLDENS, sinks=[kept])
    assert kept.evaluations == []


def test_a_wrong_metric_of_a_golden_is_found_when_the_pipeline_is_made() -> None:
    asking = Goldens([Golden("g", metrics=("tool_recal",))])
    with pytest.raises(ConfigurationError, match="golden 'g': unknown metric 'tool_recal'"):
        Pipeline(asking)
    assert Pipeline(asking, metrics=["tool_f1"])


def test_a_wrong_metric_is_found_when_the_pipeline_is_made() -> None:
    with pytest.raises(ConfigurationError, match="tool_recal"):
        Pipeline(GOLDENS, metrics=["tool_recal"])


@pytest.mark.parametrize(("given", "told"), [(frozenset(), 1), (frozenset({"0" * 15 + "a"}), 0)])
def test_a_run_that_was_given_out_before_is_not_judged_again(given: frozenset[str], told: int) -> None:
    root = agent(span_id="0" * 15 + "a")
    spans = (root, tool("search", parent_id=root.span_id))
    assert len(Pipeline(GOLDENS).conclude(Ended("request", spans, given=given))) == told


def test_the_attribute_that_names_the_golden_can_be_chosen() -> None:
    root = agent(my__case="g")
    (evaluation,) = Pipeline(GOLDENS, golden_id_attributes=["my.case"]).conclude(Ended("request", (root,)))
    assert evaluation.match is not None
    assert evaluation.match.how == "id"
