"""Sampling of runs: a deterministic decision by trace id."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from goldspan import ConfigurationError, Run
from goldspan.online.sampling import ExportSampling, Sampling, SamplingRule, parse_sampling

ids = st.integers(1, (1 << 128) - 1)
rates = st.floats(0, 1)


def _run(trace_id: int = 1 << 63, **fields: str) -> Run:
    return Run(f"{trace_id:032x}:1", trace_ids=(f"{trace_id:032x}",), **fields)  # type: ignore[arg-type]


@given(ids, rates, rates)
def test_a_run_sampled_at_a_lower_rate_is_also_sampled_at_a_higher_rate(
    trace_id: int, one: float, other: float
) -> None:
    lower, higher = sorted((one, other))
    assert Sampling(higher).should_sample(_run(trace_id)) >= Sampling(lower).should_sample(_run(trace_id))


@given(ids, rates)
def test_the_decision_equals_that_of_the_opentelemetry_trace_id_sampler(trace_id: int, rate: float) -> None:
    sampled = TraceIdRatioBased(rate).should_sample(None, trace_id, "span").decision.is_sampled()
    assert Sampling(rate).should_sample(_run(trace_id)) == ExportSampling(rate).should_export(trace_id) == sampled


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.1, 0.5, 0.9, 1.0])
def test_the_share_of_sampled_traces_equals_the_rate(rate: float) -> None:
    draw = random.Random(3)
    kept = sum(ExportSampling(rate).should_export(draw.getrandbits(128)) for _ in range(20_000))
    assert kept / 20_000 == pytest.approx(rate, abs=0.015)
    assert rate not in (0.0, 1.0) or kept == rate * 20_000


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0.0, 1.0])), max_size=5))
def test_the_first_matching_rule_decides(given_rules: list[tuple[str | None, float]]) -> None:
    rules = [SamplingRule(rate, agent=agent) for agent, rate in given_rules]
    expected = next((rate for agent, rate in given_rules if agent in (None, "a")), 1.0)
    assert Sampling(1.0, rules).should_sample(_run(agent="a")) == bool(expected)


@pytest.mark.parametrize(
    ("rule", "field"),
    [("agent", "agent"), ("service", "service"), ("environment", "environment"), ("golden", "golden_id")],
)
def test_a_rule_matches_runs_by_each_of_its_fields(rule: str, field: str) -> None:
    sampling = Sampling(1.0, [SamplingRule(0.0, **{rule: "x"})])  # type: ignore[arg-type]
    assert not sampling.should_sample(_run(**{field: "x"}))
    assert sampling.should_sample(_run(**{field: "y"}))
    assert sampling.should_sample(_run())


def test_a_rule_matches_only_if_all_its_fields_match() -> None:
    sampling = Sampling(1.0, [SamplingRule(0.0, agent="a", unit="component")])
    assert sampling.should_sample(_run(agent="a"))
    assert not sampling.should_sample(_run(agent="a", unit="component"))


def test_a_run_without_a_trace_is_sampled_unless_the_rate_is_zero() -> None:
    assert Sampling(0.001).should_sample(Run("case-1"))
    assert not Sampling(0.0).should_sample(Run("case-1"))


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan"), True, "0.5", None])
def test_an_invalid_rate_is_rejected(rate: object) -> None:
    for make in (Sampling, SamplingRule, ExportSampling):
        with pytest.raises(ConfigurationError, match="a number from 0 to 1"):
            make(rate)  # type: ignore[arg-type]


def test_a_rule_with_an_unknown_unit_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="unit must be request, component or conversation, not 'trace'"):
        SamplingRule(1.0, unit="trace")


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", []),
        (None, []),
        (" , ", []),
        ("agent=support:1,environment=test:0",
         [SamplingRule(1.0, agent="support"), SamplingRule(0.0, environment="test")]),
        (" environment=test   unit=request : 0.5 ", [SamplingRule(0.5, environment="test", unit="request")]),
        ('agent="a, b: c":0.1', [SamplingRule(0.1, agent="a, b: c")]),
        ('agent="v:1" unit=request:1', [SamplingRule(1.0, agent="v:1", unit="request")]),
        ("agent=urn:x:1", [SamplingRule(1.0, agent="urn:x")]),
    ],
)  # fmt: skip
def test_rules_are_parsed_from_text(text: str | None, rules: list[SamplingRule]) -> None:
    sampling = parse_sampling("0.1", text)
    assert (sampling.rate, list(sampling.rules)) == (0.1, rules)


@pytest.mark.parametrize("rate", [None, ""])
def test_the_default_rate_is_one(rate: str | None) -> None:
    assert parse_sampling(rate).rate == 1.0
    assert parse_sampling(0.25).rate == 0.25
    assert parse_sampling(0).rate == 0.0


@pytest.mark.parametrize(
    ("rate", "rules", "complaint"),
    [
        ("some", None, "the sampling rate must be a number from 0 to 1, not 'some'"),
        ("2", None, "the sampling rate must be a number from 0 to 1, not 2.0"),
        (None, "agent=a", "write NAME=VALUE:RATE"),
        (None, ":1", "write NAME=VALUE:RATE"),
        (None, "agent=a:often", "sampling rule 'agent=a:often': the rate must be a number from 0 to 1, not 'often'"),
        (None, "agent=a:7", "sampling rule 'agent=a:7': the sampling rate must be a number from 0 to 1, not 7.0"),
        (None, "agnt=a:1", "'agnt=a' is not one of agent=..., service=..., environment=..., golden=..., unit=..."),
        (None, "agent:1", "'agent' is not one of agent=..."),
        (None, "agent=:1", "'agent=' is not one of agent=..."),
        (None, "agent=a agent=b:1", "sampling rule 'agent=a agent=b:1': agent occurs twice"),
        (None, "environment=test:0 agent=a:1", "write a comma after 'environment=test:0', or quotes around its value"),
        (None, 'agent="a:1', """'agent="a' lacks a closing quote"""),
        (None, "unit=trace:1", "sampling rule 'unit=trace:1': unit must be request"),
    ],
)
def test_invalid_text_is_rejected_with_a_specific_message(rate: str | None, rules: str | None, complaint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_sampling(rate, rules)
    assert complaint in str(caught.value)
