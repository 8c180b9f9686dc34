"""Metrics of one's own, by name: registered by a program, or installed with a package."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from goldspan.errors import ConfigurationError, GoldspanWarning
from goldspan.model import Comparison, ExpectedTool, Golden, Run
from goldspan.scoring import evaluate
from goldspan.scoring.metrics import DEFAULT_METRICS, JUDGE_METRICS, METRICS, Metric, registry
from goldspan.scoring.metrics.registry import find_metric, metric, registered_name, resolve_metrics
from support.wheels import install, run_python


@pytest.fixture(autouse=True)
def _own_metrics_of_each_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_registered", {})
    yield
    registry._installed_metrics.cache_clear()


def few_calls(comparison: Comparison) -> float:
    return min(1.0, 3 / max(1, len(comparison.calls)))


def no_parameter() -> float:
    return 1.0


def two_parameters(comparison: Comparison, limit: int) -> float:
    return limit / len(comparison.calls)


def test_a_registered_metric_is_selected_by_name() -> None:
    assert metric("few_calls", threshold=0.8)(few_calls) is few_calls
    result = evaluate([*"abcd"], ["a"], metrics=["few_calls", "tool_recall"])
    score = result.score("few_calls")
    assert score is not None
    assert (score.value, score.passed, score.threshold) == (0.75, False, 0.8)
    assert result.passed is False
    assert "few_calls" not in [score.metric for score in evaluate(["a"], ["a"]).scores]


def test_a_decorated_function_stays_a_function() -> None:
    @metric("any_call", needs_golden=False)
    def any_call(comparison: Comparison) -> float:
        return float(bool(comparison.calls))

    assert callable(any_call)
    assert [score.value for score in evaluate(["a"], None, metrics=["any_call"]).scores] == [1.0]


def test_goldens_name_registered_metrics() -> None:
    metric("few_calls")(few_calls)
    golden = Golden("g", tools=(ExpectedTool("a"),), metrics=("few_calls",), thresholds={"few_calls": 1.0})
    assert evaluate([*"abcd"], golden).passed is False
    assert evaluate(["a"], golden).passed is True


def test_a_threshold_can_come_from_the_golden() -> None:
    metric("few_calls", threshold=lambda golden: golden.threshold)(few_calls)
    (score,) = evaluate([*"abcd"], Golden("g", threshold=0.7), metrics=["few_calls"]).scores
    assert (score.threshold, score.passed) == (0.7, True)


def test_a_threshold_makes_a_registered_metric_one_that_is_measured() -> None:
    metric("few_calls")(few_calls)
    result = evaluate([*"abcd"], ["a"], thresholds={"few_calls": 0.5})
    assert [score.metric for score in result.scores] == [*DEFAULT_METRICS, "few_calls"]


def test_a_name_means_one_metric() -> None:
    metric("few_calls")(few_calls)
    with pytest.raises(ConfigurationError, match=r"metric 'few_calls': name is already used by .*few_calls"):
        metric("few_calls")(lambda comparison: 1.0)
    for name, known in {**METRICS, **JUDGE_METRICS}.items():
        with pytest.raises(ConfigurationError, match=f"metric '{name}': name is already used by a built-in metric"):
            metric(name)(known.measure)
    assert find_metric("few_calls").measure is few_calls


def test_a_module_or_a_cell_that_runs_again_means_the_same_metric() -> None:
    for share in (0.25, 0.5):
        space: dict[str, Any] = {"metric": metric, "share": share, "__name__": "notebook"}
        exec("@metric('mine')\ndef mine(comparison):\n    return share", space)
    assert [score.value for score in evaluate([], [], metrics=["mine"]).scores] == [0.5]


def test_an_object_that_can_be_called_is_a_metric_too() -> None:
    class AtMost:
        def __call__(self, comparison: Comparison) -> float:
            return 0.5

    metric("max_missing")(AtMost())
    assert find_metric("max_missing").measure(Comparison(None, ())) == 0.5
    with pytest.raises(ConfigurationError, match="AtMost"):
        metric("max_missing")(lambda comparison: 1.0)


@pytest.mark.parametrize(
    ("name", "measure", "sentence"),
    [
        pytest.param("", few_calls, "the name of a metric must be text, not ''.", id="no name"),
        pytest.param(" ", few_calls, "the name of a metric must be text, not ' '.", id="blank name"),
        pytest.param(few_calls, few_calls, "the name of a metric must be text, not <function few_calls", id="bare"),
        pytest.param("x", 3, "metric 'x': measure must be a function of the comparison, not 3.", id="no function"),
        pytest.param(
            "x",
            no_parameter,
            "metric 'x': measure must take one argument, the comparison; no_parameter() -> 'float' does not.",
            id="no parameter",
        ),
        pytest.param(
            "x",
            two_parameters,
            "metric 'x': measure must take one argument, the comparison; "
            "two_parameters(comparison: 'Comparison', limit: 'int') -> 'float' does not.",
            id="two parameters",
        ),
    ],
)
def test_a_wrong_registration_is_one_sentence(name: Any, measure: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        metric(name)(measure)
    assert str(caught.value).startswith(sentence)
    assert registry._registered == {}


def test_a_function_with_further_optional_parameters_is_a_metric() -> None:
    def up_to(comparison: Comparison, limit: int = 2, *, scale: float = 1.0) -> float:
        return scale * min(1.0, limit / len(comparison.calls))

    metric("up_to")(up_to)
    assert [score.value for score in evaluate([*"abcd"], ["a"], metrics=["up_to"]).scores] == [0.5]


WRONG_FIELDS = [
    pytest.param(
        {"threshold": value}, f"threshold must be a number from 0 to 1 or a function of the golden, not {text}."
    )
    for value, text in [(1.5, "1.5"), (-0.1, "-0.1"), (float("nan"), "nan"), (True, "True"), ("high", "'high'")]
]
WRONG_FIELDS += [
    pytest.param(
        {"threshold": no_parameter},
        "threshold must take one argument, the golden; no_parameter() -> 'float' does not.",
        id="a threshold that takes no golden",
    ),
    pytest.param({"needs_golden": "no"}, "needs_golden must be True or False, not 'no'."),
    pytest.param({"treshold": 0.5}, "unknown field 'treshold'. Did you mean 'threshold'?"),
    pytest.param({"needs_goldens": False}, "unknown field 'needs_goldens'. Did you mean 'needs_golden'?"),
]


@pytest.mark.parametrize(("fields", "sentence"), WRONG_FIELDS)
def test_a_wrong_field_is_refused_before_the_function_is_there(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        metric("mine", **fields)
    assert str(caught.value) == f"metric 'mine': {sentence}"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        *WRONG_FIELDS,
        pytest.param(
            {"explain": 3}, "explain must be a function of the comparison, not 3.", id="an explanation that is none"
        ),
        pytest.param(
            {"bounds": two_parameters},
            "bounds must take one argument, the comparison; "
            "two_parameters(comparison: 'Comparison', limit: 'int') -> 'float' does not.",
            id="bounds of two things",
        ),
        pytest.param({"why_missing": None}, "why_missing must be a function of the comparison, not None."),
    ],
)
def test_a_metric_with_a_wrong_field_is_refused_where_it_is_made(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Metric("mine", few_calls, **fields)
    assert str(caught.value) == f"metric 'mine': {sentence}"


def test_a_field_that_is_like_no_other_is_refused_with_the_fields_there_are() -> None:
    with pytest.raises(
        ConfigurationError, match=r"unknown field 'colour'\. The fields are threshold and needs_golden\.$"
    ):
        metric("mine", colour="red")  # type: ignore[arg-type]
    with pytest.raises(
        ConfigurationError, match=r"metric 'mine': unknown field 'colour'\. The fields are name, measure, "
    ):
        Metric("mine", few_calls, colour="red")  # type: ignore[call-arg]


def test_a_metric_without_a_usable_name_is_refused() -> None:
    for name in ("", " ", 3, None):
        with pytest.raises(ConfigurationError, match="the name of a metric must be text, not "):
            Metric(name, few_calls)  # type: ignore[arg-type]


def test_a_metric_survives_copies_and_processes() -> None:
    made = Metric("mine", few_calls, threshold=0.5)
    assert copy.deepcopy(made) == made
    assert pickle.loads(pickle.dumps(METRICS["tool_f1"].measure)) is METRICS["tool_f1"].measure


@pytest.mark.parametrize(
    ("metrics", "thresholds", "sentence"),
    [
        pytest.param(
            ["tool_recal"], None, "unknown metric 'tool_recal'. Did you mean 'tool_recall'?", id="misspelt metric"
        ),
        pytest.param(["few_cals"], None, "unknown metric 'few_cals'. Did you mean 'few_calls'?", id="misspelt own"),
        pytest.param(
            ["relevance"],
            None,
            "unknown metric 'relevance'. There are tool_correctness, tool_recall, tool_precision, tool_f1, tool_order, "
            "argument_correctness, result_correctness, effect_correctness, tool_success, redundant_calls, "
            "unknown_tools, forbidden_tools, call_budget, tool_selection and few_calls.",
            id="unknown metric",
        ),
        pytest.param(["tool_f1", "tool_f1"], None, "metric 'tool_f1' is listed twice.", id="twice"),
        pytest.param("tool_f1", None, "metrics must be a list, not 'tool_f1'.", id="no list"),
        pytest.param([3], None, "3 is not a metric: neither a name nor a function of a comparison.", id="a number"),
        pytest.param(
            [("mine", 3)],
            None,
            "('mine', 3) is not a metric: neither a name nor a function of a comparison.",
            id="a name without function",
        ),
        pytest.param(
            [("mine", 3, 4)],
            None,
            "('mine', 3, 4) is not a metric: neither a name nor a function of a comparison.",
            id="too much",
        ),
        pytest.param(
            None, {"tool_f": 0.5}, "unknown metric 'tool_f'. Did you mean 'tool_f1'?", id="misspelt threshold"
        ),
        pytest.param(
            ["tool_f1"],
            {"tool_success": 0.5},
            "a threshold for the metric 'tool_success', which is not measured. There are tool_f1.",
            id="threshold of what is not asked for",
        ),
        pytest.param(
            None,
            {"tool_f1": float("nan")},
            "the threshold for the metric 'tool_f1' must be a number, not nan.",
            id="a threshold that is no number",
        ),
        pytest.param(
            None,
            {"tool_f1": "high"},
            "the threshold for the metric 'tool_f1' must be a number, not 'high'.",
            id="a threshold that is text",
        ),
    ],
)
def test_a_wrong_metric_is_one_sentence(metrics: Any, thresholds: Any, sentence: str) -> None:
    metric("few_calls")(few_calls)
    with pytest.raises(ConfigurationError) as caught:
        resolve_metrics(metrics, thresholds)
    assert str(caught.value) == sentence


# --- packages ---------------------------------------------------------------------------------------------------------

PACKAGE = "acme_metrics"
MISSING_NAME = "module 'acme_metrics' has no attribute 'MISSING'"
CODE = """
from goldspan.scoring.metrics import Metric

def calm(comparison):
    return 1.0 if len(comparison.calls) < 3 else 0.0

def crowded(comparison, limit):
    return 0.0

WHOLE = Metric("another name", calm, threshold=1.0, needs_golden=False)
"""
ENTRY_POINTS = f"""[goldspan.metrics]
calm = {PACKAGE}:calm
whole = {PACKAGE}:WHOLE
broken = {PACKAGE}:MISSING
crowded = {PACKAGE}:crowded
wrong = {PACKAGE}:__name__
tool_f1 = {PACKAGE}:calm
"""


@pytest.fixture(scope="module")
def installed_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(PACKAGE, CODE, ENTRY_POINTS, under=tmp_path_factory.mktemp("package"))


@pytest.mark.e2e
def test_a_package_that_offers_a_metric_needs_only_be_installed(installed_package: Path) -> None:
    code = """
import json
from goldspan.scoring import evaluate
result = evaluate(["a", "b", "c"], ["a"], metrics=["calm", "whole", "tool_f1"])
print(json.dumps([[score.metric, score.value, score.passed] for score in result.scores]))
"""
    assert json.loads(run_python(code, beside=installed_package).stdout) == [
        ["calm", 0.0, None],
        ["whole", 0.0, False],
        ["tool_f1", 0.5, None],
    ]


def test_an_offer_that_cannot_be_used_is_named_and_left_out(installed_package: Path) -> None:
    code = """
from goldspan.scoring.metrics.registry import find_metric
assert find_metric("calm") is find_metric("calm")
"""
    said = run_python(code, beside=installed_package, warnings="always").stderr
    lead = f"GoldspanWarning: goldspan leaves out a metric of the package {PACKAGE!r}: "
    assert [line.split(lead)[1] for line in said.splitlines() if lead in line] == [
        f"metric 'broken': loading acme_metrics:MISSING raised AttributeError: {MISSING_NAME}",
        "metric 'crowded': measure must take one argument, the comparison; crowded(comparison, limit) does not",
        "metric 'tool_f1': name is already used by a built-in metric",
        "metric 'wrong': measure must be a function of the comparison, not 'acme_metrics'",
    ]


def test_packages_are_not_searched_for_registered_metrics(installed_package: Path) -> None:
    code = """
import sys
from goldspan.scoring import evaluate
evaluate(["a"], ["a"], metrics=["tool_f1"], thresholds={"tool_f1": 1.0})
print("acme_metrics" in sys.modules)
"""
    assert run_python(code, beside=installed_package, warnings="error").stdout.strip() == "False"


def test_the_offers_of_packages_are_sorted_out_where_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        def __init__(self, name: str, loaded: Any, package: str | None = "acme") -> None:
            self.name = name
            self.value = "acme.metrics"
            self.loaded = loaded
            self.dist = None if package is None else SimpleNamespace(name=package)

        def load(self) -> Any:
            if isinstance(self.loaded, Exception):
                raise self.loaded
            return self.loaded

    offers = [
        Point("whole", Metric("other", few_calls)),
        Point("plain", few_calls),
        Point("plain", no_parameter, "zenith"),
        Point("tool_f1", few_calls),
        Point("wrong", 3),
        Point("broken", ImportError("no acme"), None),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: offers if group == "goldspan.metrics" else [])
    registry._installed_metrics.cache_clear()
    with pytest.warns(GoldspanWarning) as said:
        assert find_metric("whole").name == "whole"
    assert find_metric("plain").measure is few_calls
    lead = "goldspan leaves out a metric of the package"
    assert [str(warning.message) for warning in said] == [
        f"{lead} 'acme.metrics': metric 'broken': loading acme.metrics raised ImportError: no acme",
        f"{lead} 'zenith': metric 'plain': name is already used by the package 'acme'",
        f"{lead} 'acme': metric 'tool_f1': name is already used by a built-in metric",
        f"{lead} 'acme': metric 'wrong': measure must be a function of the comparison, not 3",
    ]


# --- what telemetry asks for ------------------------------------------------------------------------------------------


def test_the_telemetry_of_a_run_selects_its_metrics_unless_the_caller_does() -> None:
    metric("few_calls", needs_golden=False)(few_calls)
    run = Run("1:2", metrics=("few_calls",))
    golden = Golden("g", metrics=("tool_recall",))
    assert [score.metric for score in evaluate(run, None).scores] == ["few_calls"]
    assert [score.metric for score in evaluate(run, golden).scores] == ["few_calls"]
    assert [score.metric for score in evaluate(run, golden, metrics=["tool_precision"]).scores] == ["tool_precision"]


def test_no_telemetry_takes_a_gate_away() -> None:
    run = Run("1:2", metrics=("tool_precision",))
    golden = Golden("g", tools=(ExpectedTool("book"),), thresholds={"tool_recall": 1.0})
    judged = evaluate(run, golden, thresholds={"tool_f1": 0.5})
    assert [score.metric for score in judged.scores] == ["tool_precision", "tool_recall", "tool_f1"]
    assert judged.passed is False


def test_an_unknown_metric_in_telemetry_results_in_a_score_with_an_error() -> None:
    judged = evaluate(Run("1:2", metrics=("tool_recal", "tool_recall")), Golden("g"))
    unknown, known = judged.scores
    assert (unknown.metric, unknown.value, unknown.label) == ("tool_recal", None, "not_evaluated")
    assert unknown.error is not None
    assert "unknown metric 'tool_recal'. Did you mean 'tool_recall'?" in unknown.error
    assert known.error is None
    assert [score.error is None for score in evaluate(Run("1:2", metrics=("nonsense",)), None).scores] == [False]


def test_a_metric_has_a_name_for_telemetry_where_it_is_registered() -> None:
    metric("few_calls")(few_calls)
    assert registered_name("whatever") == "whatever"
    assert registered_name(few_calls) == "few_calls"
    assert registered_name(find_metric("few_calls")) == "few_calls"
    assert registered_name(METRICS["tool_recall"]) == "tool_recall"
    for unregistered in (len, Metric("few_calls", len), ("few_calls", few_calls)):
        with pytest.raises(ConfigurationError, match=r"not a registered metric: decorate it with @goldspan\.metric"):
            registered_name(unregistered)
