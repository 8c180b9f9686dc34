"""Dropped data is counted, and the description of each counter states a remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from goldspan import _guard, semconv
from goldspan.sinks import DropCounters
from goldspan.sinks.drop_counters import DROP_COUNTERS, drop_counter
from support.metric_readers import Meter

PAGE = Path(__file__).parents[2] / "docs" / "sinks.md"


def test_drops_are_counted_by_counter_name() -> None:
    meter = Meter()
    losses = DropCounters(meter.provider)
    losses.add(semconv.LATE_SPANS_COUNTER, 2)
    losses.add(semconv.LATE_SPANS_COUNTER)
    losses.add(semconv.EVICTED_COUNTER, 0)
    losses.add(semconv.SINK_DROPPED_COUNTER, 4, {semconv.SINK_LABEL: "slow"})
    assert meter.counts("goldspan.spans.late") == {(): 3}
    assert meter.counts("goldspan.traces.evicted") == {}
    assert meter.counts("goldspan.sink.dropped", "goldspan.sink") == {("slow",): 4}


def test_an_unknown_counter_name_raises_key_error() -> None:
    with pytest.raises(KeyError, match=r"goldspan\.unheard_of"):
        DropCounters().add("goldspan.unheard_of", 0)


def test_internal_errors_are_counted_by_action(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    meter = Meter()
    DropCounters(meter.provider)
    with _guard.suppress_errors("test the guard"):
        raise ValueError
    assert meter.counts("goldspan.internal_errors", "goldspan.action") == {("test the guard",): 1}


def test_several_drop_counters_of_one_provider_share_their_instruments(caplog: pytest.LogCaptureFixture) -> None:
    meter = Meter()
    for _ in range(2):
        DropCounters(meter.provider).add(semconv.SINK_DROPPED_COUNTER)
    drop_counter(semconv.SINK_DROPPED_COUNTER, meter.provider).add(1)
    assert meter.counts("goldspan.sink.dropped") == {(): 3}
    assert caplog.records == []


@pytest.mark.parametrize("loss", DROP_COUNTERS, ids=lambda loss: loss.name)
def test_the_description_of_every_counter_states_its_meaning_and_a_remedy(loss: object) -> None:
    meter = Meter()
    name = loss.name  # type: ignore[attr-defined]
    DropCounters(meter.provider).add(name)
    metric = meter.metrics()[name]
    assert re.fullmatch(r"\{[a-z]+\}", metric.unit)
    meaning, advice = re.fullmatch(r"(.+?)\. (Should be (?:near )?zero: .+|This is intended: .+)\.",
                                   metric.description).groups()  # type: ignore[union-attr]  # fmt: skip
    assert re.match(r"[A-Z][a-z]+ ", meaning)
    assert re.search(r"\b(check|configure|end|lower|raise|run|see) ", advice)


@pytest.mark.parametrize("name", [*(loss.name for loss in DROP_COUNTERS), semconv.ERRORS_COUNTER])
def test_the_page_on_sinks_lists_every_counter(name: str) -> None:
    assert f"| `{name}` |" in PAGE.read_text(encoding="utf-8")


def test_every_drop_counter_in_semconv_is_listed_in_drop_counters() -> None:
    names = {value for key, value in vars(semconv).items() if key.endswith("_COUNTER")}
    others = {semconv.EVALUATIONS_COUNTER, semconv.TOOLS_COUNTER, semconv.REVISIONS_COUNTER, semconv.HEALTH_COUNTER}
    others.add(semconv.ERRORS_COUNTER)
    others |= {semconv.JUDGE_REQUESTS_COUNTER, semconv.JUDGE_TOKENS_COUNTER}
    others |= {semconv.JUDGE_COST_COUNTER, semconv.JUDGE_RUNS_COUNTER}
    assert {loss.name for loss in DROP_COUNTERS} >= {name for name in names - others if "drift" not in name}
