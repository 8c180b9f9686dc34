"""Pass rates over time: exact counts, bounded memory, OpenTelemetry metrics and events."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

from goldspan import ConfigurationError, Evaluation, Golden, Match, Run, Score
from goldspan.online.pass_rate_sink import RUN_VERDICT, PassRates, PassRateSeries, PassRateSink
from goldspan.online.pass_rate_statistics import OutcomeCounts
from goldspan.scoring import compare
from support.forked_children import fork, forking
from support.metric_readers import Meter

HOUR = 3600.0
GOLDEN = Golden("refund")
SERIES = PassRateSeries("refund", "support", "request", "production")


def _evaluation(
    run: object, passed: bool | None, *, revision: int = 1, value: float | None = None, **fields: Any
) -> Evaluation:
    settings = {"agent": "support", "environment": "production", **fields}
    value = value if value is not None or passed is None else float(passed)
    scores = (Score("recall", value, passed, 0.5),)
    return Evaluation(
        Run(str(run), **settings), GOLDEN, Match(GOLDEN, "id"), compare([], []), scores, passed, "", 1, revision
    )


def _counted(figures: PassRates, now: float = 0.0) -> dict[tuple[PassRateSeries, str], OutcomeCounts]:
    return {(figure.series, figure.metric): figure.counts for figure in figures.pass_rates(now)}


class Telemetry:
    def __init__(self, **options: Any) -> None:
        self.meter, self.exporter, logs = Meter(), InMemoryLogRecordExporter(), LoggerProvider()
        logs.add_log_record_processor(SimpleLogRecordProcessor(self.exporter))
        self.now = 0.0
        self.sink = PassRateSink(self.meter.provider, logs, clock=lambda: self.now, **options)

    def events(self) -> list[Any]:
        return [data.log_record for data in self.exporter.get_finished_logs()]


def test_passed_failed_and_not_evaluated_runs_are_counted_and_the_mean_is_computed() -> None:
    figures = PassRates()
    for run, (passed, value) in enumerate([(True, 0.75), (True, 1.0), (False, 0.25), (None, None)]):
        figures.add(_evaluation(run, passed, value=value), 0.0)
    counts = _counted(figures)[SERIES, "recall"]
    assert counts == OutcomeCounts(2, 1, 1, measured=3, value_sum=2.0)
    assert (counts.pass_rate, counts.mean) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert counts.pass_rate_interval == pytest.approx((0.2077, 0.9385), abs=1e-4)
    assert _counted(figures)[SERIES, RUN_VERDICT] == OutcomeCounts(2, 1, 1, measured=3, value_sum=2.0)


def test_counts_without_runs_have_no_rate_interval_or_mean() -> None:
    assert (OutcomeCounts().pass_rate, OutcomeCounts().pass_rate_interval, OutcomeCounts().mean) == (None, None, None)


def test_a_metric_without_a_threshold_has_a_mean_but_no_pass_rate() -> None:
    figures = PassRates()
    evaluation = replace(_evaluation(1, True), scores=(Score("tool_f1", 0.5),))
    figures.add(evaluation, 0.0)
    counts = _counted(figures)[SERIES, "tool_f1"]
    assert (counts.mean, counts.pass_rate) == (0.5, None)


@pytest.mark.parametrize(
    "other", [{"environment": "test"}, {"environment": None}, {"unit": "component"}, {"agent": "sales"}]
)
def test_runs_of_different_environments_units_or_agents_are_separate_series(other: dict[str, Any]) -> None:
    figures = PassRates()
    figures.add(_evaluation(1, True), 0.0)
    figures.add(_evaluation(2, False, **other), 0.0)
    rates = {
        series: counts.pass_rate for (series, metric), counts in _counted(figures).items() if metric == RUN_VERDICT
    }
    assert rates[SERIES] == 1.0
    assert sorted(rates.values(), key=str) == [0.0, 1.0]


def test_runs_without_a_golden_are_a_separate_series() -> None:
    figures = PassRates()
    figures.add(replace(_evaluation(1, None), match=None), 0.0)
    assert {series.golden for series, _ in _counted(figures)} == {None}


def test_recent_counts_expire_after_the_window_and_total_counts_do_not() -> None:
    figures = PassRates(window=24 * HOUR)
    figures.add(_evaluation(1, False), 0.0)
    figures.add(_evaluation(2, True), 23 * HOUR)

    def recent(now: float) -> float | None:
        return next(figure.recent.pass_rate for figure in figures.pass_rates(now) if figure.metric == RUN_VERDICT)

    assert [recent(hour * HOUR) for hour in (23, 24, 46, 47)] == [0.5, 1.0, 1.0, None]
    figures.add(_evaluation(3, True), 100 * HOUR)
    assert recent(100 * HOUR) == 1.0
    assert _counted(figures)[SERIES, RUN_VERDICT] == OutcomeCounts(2, 1, 0, measured=3, value_sum=2.0)


def test_a_clock_that_goes_backwards_loses_no_run_from_the_total() -> None:
    figures = PassRates()
    for run, hour in enumerate([100, 1, 99, 100]):
        figures.add(_evaluation(run, True), hour * HOUR)
    (figure,) = [figure for figure in figures.pass_rates(100 * HOUR) if figure.metric == RUN_VERDICT]
    assert (figure.counts.passed, figure.recent.passed) == (4, 3)


def test_a_revision_replaces_the_previous_result_of_its_run() -> None:
    figures = PassRates()
    figures.add(_evaluation(1, False), 0.0)
    figures.add(_evaluation(1, True, revision=3), 100 * HOUR)
    figures.add(_evaluation(1, False, revision=2), 100 * HOUR)  # overtaken
    assert _counted(figures)[SERIES, RUN_VERDICT] == OutcomeCounts(1, 0, 0, measured=1, value_sum=1.0)


def test_a_revision_of_an_untracked_run_is_not_counted_again() -> None:
    figures = PassRates(max_runs=1)
    figures.add(_evaluation(1, False), 0.0)
    figures.add(_evaluation(2, True), 0.0)
    figures.add(_evaluation(1, True, revision=2), 0.0)
    assert _counted(figures)[SERIES, RUN_VERDICT] == OutcomeCounts(1, 1, 0, measured=2, value_sum=1.0)
    assert figures.untracked_revisions == 1


submissions = st.lists(
    st.tuples(
        st.integers(1, 12),  # run
        st.sampled_from([True, False, None]),
        st.sampled_from(["a", "b", "c"]),  # agent
        st.sampled_from(["production", "test", None]),
        st.integers(1, 3),  # revision
        st.integers(0, 60),  # hour
    ),
    max_size=60,
)


@given(submissions, st.integers(1, 12))
def test_totals_stay_correct_under_merged_series_and_revisions(submitted: list[Any], max_series: int) -> None:
    figures = PassRates(max_series=max_series)
    latest: dict[int, tuple[int, bool | None, str | None]] = {}
    for run, passed, agent, environment, revision, hour in submitted:
        figures.add(_evaluation(run, passed, revision=revision, agent=agent, environment=environment), hour * HOUR)
        if (run in latest and latest[run][0] <= revision) or (run not in latest and revision == 1):
            latest[run] = (revision, passed, environment)
        assert len(figures) <= max_series + 2
    held = [figure for figure in figures.pass_rates(0.0) if figure.metric == "recall"]
    totals = Counter(passed for _, passed, _ in latest.values())
    assert sum(figure.counts.passed for figure in held) == totals[True] == sum(f.counts.value_sum for f in held)
    assert sum(figure.counts.failed for figure in held) == totals[False]
    assert sum(figure.counts.not_evaluated for figure in held) == totals[None]
    assert all(min(f.counts.passed, f.counts.failed, f.counts.not_evaluated) >= 0 for f in held)
    for environment in ("production", "test", None):  # merged series stay separate or are labelled `other`
        mine = sum(f.counts.decided + f.counts.not_evaluated for f in held if f.series.environment == environment)
        assert mine <= sum(where == environment for _, _, where in latest.values())


def test_the_series_idle_longest_is_merged_into_other_first() -> None:
    figures = PassRates(max_series=6)  # two metrics each
    for run, agent in enumerate(["a", "b", "c", "a", "d", "e"]):
        figures.add(_evaluation(run, True, agent=agent), 0.0)
    assert {series.agent for series, _ in _counted(figures)} == {"other", "d", "e"}
    assert _counted(figures)[PassRateSeries("other", "other", "request", "production"), RUN_VERDICT].passed == 4


@pytest.mark.parametrize("bound", ["max_series", "max_runs", "window", "buckets", "run_length"])
def test_a_bound_that_is_not_positive_is_rejected(bound: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{bound} is a number of more than 0, not 0"):
        PassRates(**{bound: 0})


def test_the_number_of_stored_outcome_patterns_is_bounded() -> None:
    figures = PassRates()
    for run in range(3_000):
        figures.add(_evaluation(run, True, value=run / 3_000), 0.0)
    assert len(figures._patterns) <= 1_024
    assert _counted(figures)[SERIES, "recall"].mean == pytest.approx(0.5, abs=1e-3)


# --- the sink ---------------------------------------------------------------------------------------------------------


def test_pass_rates_are_exported_as_gauges_with_their_interval() -> None:
    telemetry = Telemetry()
    for run in range(10):
        telemetry.sink.submit(_evaluation(run, run > 0))
    names = ("goldspan.pass_rate.low", "goldspan.pass_rate", "goldspan.pass_rate.high")
    values = [telemetry.meter.counts(name, "goldspan.metric")[("verdict",)] for name in names]
    assert values == pytest.approx([0.5958, 0.9, 0.9821], abs=1e-4)
    (point, _) = telemetry.meter.points("goldspan.pass_rate", "goldspan.metric").values()
    assert dict(point.attributes) | {"goldspan.metric": "recall"} == {
        "goldspan.metric": "recall",
        "goldspan.golden.id": "refund",
        "gen_ai.agent.name": "support",
        "goldspan.unit": "request",
        "deployment.environment.name": "production",
    }


def test_a_series_without_recent_decided_runs_has_no_gauge() -> None:
    telemetry = Telemetry(window=HOUR)
    telemetry.sink.submit(_evaluation(1, None, agent=None))
    assert telemetry.meter.points("goldspan.pass_rate", "goldspan.metric") == {}
    telemetry.sink.submit(_evaluation(2, True, agent=None))
    assert set(telemetry.meter.points("goldspan.pass_rate", "gen_ai.agent.name")) == {(None,)}
    telemetry.now = 2 * HOUR
    assert telemetry.meter.points("goldspan.pass_rate", "goldspan.metric") == {}


def test_a_change_is_emitted_as_one_event_with_all_attributes() -> None:
    telemetry = Telemetry()
    for run in range(1_300):
        telemetry.now = float(run)
        telemetry.sink.submit(_evaluation(run, run < 1_000))
    verdicts = [event for event in telemetry.events() if event.attributes["goldspan.metric"] == "verdict"]
    (event,) = verdicts
    assert len(telemetry.events()) == 2  # the other event is of the metric `recall`
    assert event.event_name == "goldspan.change"
    assert event.severity_number.name == "WARN"
    assert event.body == "The pass rate of verdict fell from 100.0% (1000 runs) to 0.0% (4 runs)"
    assert event.timestamp == 1_003 * 10**9
    assert dict(event.attributes) == {
        "goldspan.metric": "verdict",
        "goldspan.golden.id": "refund",
        "gen_ai.agent.name": "support",
        "goldspan.unit": "request",
        "deployment.environment.name": "production",
        "goldspan.change.direction": "fall",
        "goldspan.change.before": 1.0,
        "goldspan.change.after": 0.0,
        "goldspan.change.runs_before": 1_000,
        "goldspan.change.runs_after": 4,
        "goldspan.change.since": 1_000.0,
    }
    for run in range(1_300, 1_600):
        telemetry.sink.submit(_evaluation(run, True))
    assert [event.severity_number.name for event in telemetry.events()] == ["WARN", "WARN", "INFO", "INFO"]
    changes = telemetry.sink.snapshot().changes
    assert [(change.metric, change.shift.direction) for change in changes] == [
        ("verdict", "fall"), ("recall", "fall"), ("verdict", "rise"), ("recall", "rise")
    ]  # fmt: skip


def test_revisions_are_ignored_by_the_change_detection() -> None:
    telemetry = Telemetry()
    for run in range(500):
        telemetry.sink.submit(_evaluation(run, True))
    for run in range(500):
        telemetry.sink.submit(_evaluation(run, False, revision=2))
    assert telemetry.events() == []
    assert telemetry.sink.snapshot().pass_rates[0].counts.failed == 500


def test_a_snapshot_contains_pass_rates_changes_and_untracked_revisions() -> None:
    telemetry = Telemetry(max_runs=1)
    telemetry.now = 5.0
    for run, revision in ((1, 1), (2, 1), (1, 2)):
        telemetry.sink.submit(_evaluation(run, True, revision=revision))
    snapshot = telemetry.sink.snapshot()
    assert [(figure.metric, figure.series, figure.counts.passed) for figure in snapshot.pass_rates] == [
        ("verdict", SERIES, 2), ("recall", SERIES, 2)
    ]  # fmt: skip
    assert (snapshot.changes, snapshot.untracked_revisions, snapshot.taken_at) == ((), 1, 5.0)


def test_concurrent_submits_and_reads_lose_no_run() -> None:
    telemetry = Telemetry(max_series=20)

    def work(thread: int) -> None:
        for number in range(200):
            telemetry.sink.submit(_evaluation(f"{thread}-{number}", True, agent=f"agent {number % 30}"))
            if number % 20 == 0:
                telemetry.meter.metrics()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = [figure.counts.passed for figure in telemetry.sink.snapshot().pass_rates if figure.metric == RUN_VERDICT]
    assert sum(counts) == 8 * 200


def test_series_merged_during_a_read_are_skipped() -> None:
    figures = PassRates(max_series=2)
    figures.add(_evaluation(1, True), 0.0)
    reading = figures.pass_rates(0.0)
    assert next(reading).series == SERIES
    figures.add(_evaluation(2, True, agent="sales"), 0.0)
    assert list(reading) == []


@forking
def test_a_forked_child_counts_only_its_own_runs() -> None:
    telemetry = Telemetry()
    telemetry.sink.submit(_evaluation(1, False))

    def counts_its_own() -> bool:
        telemetry.sink.submit(_evaluation(2, True))
        return [figure.counts.passed for figure in telemetry.sink.snapshot().pass_rates] == [1, 1]

    with telemetry.sink._lock:  # as if another thread were submitting
        child_did = fork(counts_its_own)
    assert child_did()
    assert [figure.counts.failed for figure in telemetry.sink.snapshot().pass_rates] == [1, 1]
