"""The verdict says what the golden states, whatever golden and whatever run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from goldspan.goldens.schema.golden_parser import parse_expected_tools
from goldspan.model import ABSENT, AnyOf, ExpectedTool, Golden, Health, Parallel, Run, Times, ToolCall, Vocabulary
from goldspan.model import Tool as Declared
from goldspan.scoring import evaluate
from goldspan.scoring.metrics import METRICS

NAMES = st.sampled_from("abc")
VALUES = st.integers(0, 1) | st.sampled_from(["x", "X", 0.1 + 0.2, 0.3])
ARGUMENTS = st.none() | st.fixed_dictionaries({"x": VALUES}, optional={"y": VALUES})
MATCHERS = st.sampled_from([{"any": True}, {"approx": 0.3}, {"folded": "x"}, {"one_of": [0, "x"]}, {"type": "integer"}])
STATED = st.none() | st.fixed_dictionaries({"x": VALUES | MATCHERS}, optional={"y": VALUES | MATCHERS})
TIMES = st.sampled_from([{}, {}, {"optional": True}, {"times": 1}, {"times": 2}, {"times": {"min": 1, "max": 2}},
                         {"times": {"max": 1}}, {"times": {"min": 0, "max": 2}}, {"times": {"min": 2}}])  # fmt: skip


@st.composite
def calls_as_written(draw: st.DrawFn) -> dict[str, Any]:
    """A call with everything that a golden may say of one."""
    said: dict[str, Any] = {"name": draw(NAMES)}
    if (stated := draw(STATED)) is not None:
        said["arguments"] = stated
    said |= draw(st.sampled_from([{}, {}, {}, {"result": 0}, {"result": {"any": True}}]))
    said |= draw(st.sampled_from([{}, {}, {}, {"agent": "main"}, {"match": "subset"}, {"ignore": ["y"]}]))
    return said


REPEATED = st.builds(lambda call, times: call | times, calls_as_written(), TIMES)
CHOICES = st.builds(
    lambda calls, times: {"any_of": calls} | times, st.lists(calls_as_written(), min_size=1, max_size=2), TIMES
)
GROUPS = st.lists(REPEATED, min_size=1, max_size=3).map(lambda calls: {"parallel": calls})
TRAJECTORIES = st.lists(st.lists(REPEATED | GROUPS, min_size=1, max_size=2), min_size=1, max_size=2).map(
    lambda branches: {"any_of": branches}
)
RULES = st.fixed_dictionaries(
    {},
    optional={
        "order": st.sampled_from(["any", "in_order", "exact"]),
        "forbid": st.sampled_from([("c",), ("[ab]",)]),
        "max_calls": st.integers(0, 3),
        "attempts": st.sampled_from(["effective", "all", "succeeded"]),
        "duplicates": st.sampled_from(["count", "ignore"]),
        "extra": st.sampled_from(["penalize", "allow"]),
        "depth": st.sampled_from(["all", "own"]),
        "mode": st.sampled_from(["recall", "precision", "f1", "exact", "set"]),
        "write_tools": st.sampled_from([("c",), ("a", "b")]),
    },
)
THRESHOLDS = st.fixed_dictionaries(
    {},
    optional={
        "threshold": st.sampled_from([0.0, 0.5, 0.8]),
        "thresholds": st.dictionaries(st.sampled_from(sorted(METRICS)), st.sampled_from([0.0, 0.5, 1.0]), max_size=2),
    },
)
VOCABULARY = st.sampled_from([Vocabulary(), Vocabulary(), Vocabulary((Declared("b", effect="write"),))])


@st.composite
def goldens(draw: st.DrawFn, *, rules: st.SearchStrategy[dict[str, Any]] = RULES) -> Golden:
    """Everything that the golden language can say, in small."""
    said = draw(rules)
    if said.get("order") == "exact" and said.get("extra") == "allow":
        del said["extra"]
    if draw(st.integers(0, 9)) == 0:
        return Golden("g", policy=True, **{"forbid": ("c",)} | said)
    tools = draw(st.lists(REPEATED | CHOICES | GROUPS | TRAJECTORIES, max_size=3))
    return Golden("g", tools=_read(tools), vocabulary=draw(VOCABULARY), **said)


def _read(tools: list[Any]) -> tuple[Any, ...]:
    """The items, without what the language refuses."""
    kept = []
    for tool in tools:
        try:
            kept += parse_expected_tools([tool], "expected")
        except Exception:  # noqa: BLE001 - alternatives of several calls with times, and the like
            continue
    return tuple(kept)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Calls that overlap in any way that time allows, and fail now and then."""
    begins = sorted(draw(st.lists(st.integers(0, 6), max_size=5)))
    spans = [(begin, begin + draw(st.sampled_from([1, 1, 1, 2, 5]))) for begin in begins]
    calls = [
        ToolCall(
            draw(NAMES),
            arguments=draw(ARGUMENTS),
            result=draw(st.none() | st.integers(0, 1)),
            error=draw(st.none() | st.none() | st.just("timeout")),
            agent=draw(st.sampled_from([None, "main", "other"])),
            outcome=draw(st.sampled_from([None, None, None, "denied"])),
            concurrent_with=tuple(
                other
                for other, (begin, end) in enumerate(spans)
                if other != at and begin < spans[at][1] and spans[at][0] < end
            ),
        )
        for at in range(len(spans))
    ]
    return Run("r", agent="main", tool_calls=tuple(calls))


SPEAKS_OF_A_BREACH = re.compile(
    r"not called|out of order|differs|called \d+ of \d+ times|but forbidden|is forbidden|are forbidden|not by|"
    r"called more than|(?P<made>\d+) calls? w(?:as|ere) made and (?P<allowed>\d+|none)"
)


def speaks_of_a_breach(reason: str) -> bool:
    found = SPEAKS_OF_A_BREACH.search(reason)
    if found and found["made"]:
        return int(found["made"]) > (0 if found["allowed"] == "none" else int(found["allowed"]))
    return found is not None


@given(runs(), goldens())
def test_no_passed_run_speaks_of_anything_broken(run: Run, golden: Golden) -> None:
    result = evaluate(run, golden)
    seen = result.comparison
    if result.passed:
        assert not seen.missing
        assert not seen.forbidden
        assert golden.max_calls is None or len(seen.calls) <= golden.max_calls
        assert result.broken == ()
        assert result.undetermined == ()
        assert not speaks_of_a_breach(result.reason)
        assert {fault.kind for fault in result.faults} <= {"extra", "failed"}
        for row in seen.rows:
            assert row.agreement is None or row.agreement.share == 1
            assert row.result_agreement is None or row.result_agreement.share == 1
            assert row.in_order is not False or golden.order == "any"
    if golden.tools == () and not golden.policy and golden.extra != "allow" and seen.unexpected:
        assert result.passed is False


@given(runs(), goldens(rules=st.builds(lambda one, other: one | other, RULES, THRESHOLDS)))
def test_the_reason_of_every_failed_run_names_the_broken_rule(run: Run, golden: Golden) -> None:
    result = evaluate(run, golden)
    assert (result.passed is False) is bool(result.broken)
    if result.passed is None:
        assert result.undetermined or golden.policy
    if result.broken:
        assert all(each.text for each in result.broken)
        assert (
            speaks_of_a_breach(result.reason)
            or "wanted" in result.reason
            or "was called" in result.reason
            or ("were called" in result.reason)
        )


@given(runs(), goldens(rules=st.builds(lambda one, other: one | other, RULES, THRESHOLDS)))
def test_a_run_that_breaks_a_rule_passes_only_by_a_threshold(run: Run, golden: Golden) -> None:
    result = evaluate(run, golden)
    if result.passed and (result.comparison.missing or speaks_of_a_breach(result.reason)):
        assert "; accepted: " in result.reason
        assert golden.threshold < 1 or any(limit < 1 for limit in golden.thresholds.values())


@given(runs(), goldens(), st.lists(st.sampled_from(sorted(METRICS)), unique=True, max_size=3))
def test_the_verdict_does_not_depend_on_the_selected_metrics(run: Run, golden: Golden, metrics: list[str]) -> None:
    whole, some = evaluate(run, golden), evaluate(run, golden, metrics=metrics, reasons=False)
    assert (whole.passed, whole.undetermined) == (some.passed, some.undetermined)


# --- capture ----------------------------------------------------------------------------------------------------------


def without(**fields: Any) -> Callable[[Run], Run]:
    return lambda run: replace(run, tool_calls=tuple(replace(call, **fields) for call in run.tool_calls))


def without_calls(run: Run) -> Run:
    return replace(run, tool_calls=(), health=Health(calls_invisible=True))


_CALL_WITH_RESULT = Run("r", agent="main", tool_calls=(ToolCall("b", result=0), ToolCall("a")))
"""A run in which the result of a call was captured and its arguments were not."""

_FAILED_ATTEMPTS = Run(
    "r",
    tool_calls=tuple(ToolCall("a", arguments=arguments, error="timeout") for arguments in (None, None, {"x": 0})),
)
"""Failed calls of which one, two or three count: each may retry an earlier one."""

_TWO_CALLS = Golden("g", tools=(ExpectedTool("a", times=Times(2, 2)),))


@pytest.mark.parametrize(
    "run", [_FAILED_ATTEMPTS, replace(_FAILED_ATTEMPTS, tool_calls=(ToolCall("a", error="x"),) * 3)]
)
def test_a_run_is_not_evaluated_if_it_may_have_too_few_too_many_or_enough_calls(run: Run) -> None:
    result = evaluate(run, _TWO_CALLS)
    assert result.passed is None
    assert result.broken == ()
    assert "were not captured" in result.reason or "not known" in result.reason


def test_a_run_fails_if_it_has_too_many_calls_under_every_assumption() -> None:
    run = replace(_FAILED_ATTEMPTS, tool_calls=(*_FAILED_ATTEMPTS.tool_calls, ToolCall("b"), ToolCall("b")))
    golden = Golden("g", tools=(ExpectedTool("b", times=Times(1, 1)), ExpectedTool("a", times=Times(1, 3))))
    assert evaluate(run, golden).passed is False


_STATING_CONTENT = ExpectedTool("b", arguments={"x": 0}, result=0)
_STATING_AGENT = ExpectedTool("b", arguments={"x": 0}, agent="main")


def _two_readings(other: ExpectedTool = _STATING_CONTENT) -> Golden:
    """A golden with two optional expectations that a call of `b` can match: only one states content."""
    optional = Times(0, 1)
    tools = (ExpectedTool("a"), ExpectedTool("b", times=optional), replace(other, times=optional))
    return Golden("g", tools=tools)


def _two_trajectories(other: ExpectedTool = _STATING_CONTENT) -> Golden:
    """A golden with two trajectories that the calls of `b` and `a` can match: only one states content."""
    return Golden("g", tools=(AnyOf(((other, ExpectedTool("a")), (ExpectedTool("b"), ExpectedTool("a")))),))


def _alternatives(other: ExpectedTool = _STATING_CONTENT) -> Golden:
    """A golden with an expectation that has two alternatives: only one states content."""
    return Golden("g", tools=(AnyOf(((other,), (ExpectedTool("b"),))), ExpectedTool("a")))


@pytest.mark.parametrize("golden_of", [_two_readings, _two_trajectories, _alternatives])
@pytest.mark.parametrize(
    ("other", "call"),
    [
        pytest.param(_STATING_CONTENT, ToolCall("b", result=0), id="arguments"),
        pytest.param(_STATING_CONTENT, ToolCall("b", arguments={"x": 0}), id="result"),
        pytest.param(_STATING_AGENT, ToolCall("b", arguments={"x": 0}), id="agent"),
    ],
)
def test_a_run_passes_if_a_call_certainly_matches_one_of_two_expectations(
    golden_of: Callable[[ExpectedTool], Golden], other: ExpectedTool, call: ToolCall
) -> None:
    run = Run("r", agent="main", tool_calls=(call, ToolCall("a")))
    result = evaluate(run, golden_of(other))
    assert result.passed is True, result.reason
    assert result.undetermined == ()


@pytest.mark.parametrize("golden_of", [_two_readings, _two_trajectories, _alternatives])
def test_a_call_matches_the_expectation_that_states_more_if_all_of_it_agrees(
    golden_of: Callable[[], Golden],
) -> None:
    run = Run("r", agent="main", tool_calls=(ToolCall("b", arguments={"x": 0}, result=0), ToolCall("a")))
    result = evaluate(run, golden_of())
    assert result.passed is True
    assert any(row.agreement is not None and row.result_agreement is not None for row in result.comparison.rows)


@pytest.mark.parametrize(
    "drop",
    [
        pytest.param(without(arguments=None), id="arguments"),
        pytest.param(without(arguments=None, raw_arguments="{cut"), id="readable arguments"),
        pytest.param(without(result=None), id="results"),
        pytest.param(without(arguments=None, result=None), id="all content"),
        pytest.param(without_calls, id="tool spans"),
    ],
)
@given(run=runs(), golden=goldens())
@example(run=_CALL_WITH_RESULT, golden=_two_readings())
@example(run=_CALL_WITH_RESULT, golden=_two_trajectories())
@example(run=_FAILED_ATTEMPTS, golden=_TWO_CALLS)
def test_missing_data_makes_no_run_pass_or_fail(drop: Callable[[Run], Run], run: Run, golden: Golden) -> None:
    before, after = evaluate(run, golden).passed, evaluate(drop(run), golden).passed
    if before is not True:
        assert after is not True
    if before is True:
        assert after is not False


@given(runs(), goldens())
def test_the_key_unknown_changes_only_verdicts_that_cannot_be_decided(run: Run, golden: Golden) -> None:
    usual, ignored, failed = (evaluate(run, golden, unknown=how).passed for how in ("not_evaluated", "ignore", "fail"))
    if usual is not None:
        assert (usual, usual) == (ignored, failed)
    elif not (golden.policy or run.health.calls_invisible):
        assert (ignored, failed) == (True, False)


def test_the_generated_cases_have_their_stated_properties() -> None:
    assert parse_expected_tools([{"any_of": [["a", "b"], ["c"]]}], "x") == (
        AnyOf(((ExpectedTool("a"), ExpectedTool("b")), (ExpectedTool("c"),))),
    )
    assert parse_expected_tools([{"parallel": [{"name": "a", "times": 2}]}], "x") == (
        Parallel((ExpectedTool("a", times=Times(2, 2)),)),
    )
    assert ExpectedTool("a").result is ABSENT
