"""The verdict: a run fails where anything that its golden states is broken.

It is not evaluated where nothing is broken and something that is stated cannot be judged, and passes otherwise. A
threshold that is stated accepts a share instead of everything. Metrics decide nothing else: they are numbers beside the
verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from goldspan.model import (
    ABSENT,
    Comparison,
    ComparisonRow,
    ExpectedTool,
    Golden,
    RequirementResult,
    Score,
    UnknownPolicy,
)
from goldspan.scoring.metrics import METRICS, behaviour, call_correctness
from goldspan.scoring.metrics.metric import THRESHOLD_TOLERANCE, Metric
from goldspan.scoring.run_comparison import (
    MissingArgumentsAssumption,
    assuming_suspected_failures,
    compare_run,
    suspected_failure_statements,
)
from goldspan.scoring.violations import (
    CALLS_NOT_VISIBLE,
    find_unknowns,
    find_violations,
    has_invisible_calls,
    tool_with_unknown_repeats,
    unknown_repeats_statement,
)

_METRICS_BY_STATEMENT: Mapping[str, tuple[str, ...]] = {
    "missing": ("tool_correctness", "tool_recall", "tool_f1"),
    "order": ("tool_correctness", "tool_order"),
    "unexpected": ("tool_correctness", "tool_precision", "tool_f1"),
    "times": ("tool_correctness", "tool_precision", "tool_f1"),
    "arguments": ("argument_correctness",),
    "result": ("result_correctness",),
    "forbidden": ("forbidden_tools",),
    "max_calls": ("call_budget",),
}
"""The metrics that measure what a statement is about. A threshold of theirs says which share of it is accepted."""

_USES_GOLDEN_THRESHOLD = frozenset({"tool_correctness", "argument_correctness", "result_correctness"})
"""The metrics whose threshold is the golden's `threshold` where `thresholds` does not name them. That they reach 1 says
nothing beyond that each of the calls, arguments and results is as stated."""


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """What became of everything that a golden states."""

    broken: tuple[RequirementResult, ...] = ()
    unjudged: tuple[RequirementResult, ...] = ()
    accepted: tuple[str, ...] = ()
    """The shares that a threshold accepts in place of everything: `0.8 of 0.8 wanted`."""


ALL_MET = RunVerdict()
"""Each row is an expected call, made as it is stated, as in most runs."""


def passes(
    broken: Sequence[RequirementResult], unjudged: Sequence[RequirementResult], unknown: UnknownPolicy
) -> bool | None:
    """Whether a run passes, by what is broken and what cannot be judged; `None`: it is not evaluated."""
    if broken:
        return False
    if not unjudged:
        return True
    if unknown == "ignore" and not any(each.about == ABOUT_CALLS for each in unjudged):
        return True
    return False if unknown == "fail" else None


ABOUT_CALLS = "calls"
"""What a statement is about that concerns all calls of a run: nothing at all can be judged."""


def determine_verdict(
    seen: Comparison, scores: Iterable[Score], stated: Mapping[str, float], *, strict: bool
) -> RunVerdict | None:
    """The verdict on a comparison; `None` where nothing is stated.

    `stated` are the thresholds of single metrics, those of the golden and those that go before them; `strict` accepts
    no share of anything.
    """
    golden = seen.golden
    if golden is None:
        return None
    if has_invisible_calls(seen):
        done = [each for each in find_violations(seen, golden) if each.about != "missing"]
        return RunVerdict(tuple(done), (RequirementResult(ABOUT_CALLS, CALLS_NOT_VISIBLE),))
    below = [
        score
        for score in scores
        if score.threshold is not None
        and score.passed is not True
        and (score.value is not None or _requires_value(score, seen, stated))
    ]
    if not below and not stated and golden.max_calls is None and all(map(_is_fully_met, seen.rows)):
        return None if golden.policy and not golden.forbid else ALL_MET
    if golden.policy and not (golden.forbid or golden.max_calls is not None or stated or below):
        return None
    limits = {} if strict else _partial_thresholds(golden, stated)
    broken, accepted = _find_unaccepted_violations(seen, golden, limits)
    doubt = _unknown_repeats(seen, golden, limits)
    doubts = [*([] if doubt is None else [doubt]), *_unknown_failures(seen, golden, limits)]
    if doubts:
        broken = []
    left = [each for each in find_unknowns(seen, golden) if not _accepts_anything(each.about, limits)]
    left += doubts
    left += [_undecided_statement(score) for score in below if score.passed is None]
    unmeasured = _unmeasured_thresholds(golden, stated, scores, strict=strict)
    left += _undecided_unmeasured_thresholds(unmeasured, seen)
    broken += _missed_thresholds([score for score in below if score.passed is False], unmeasured, broken, seen)
    return RunVerdict(tuple(broken), tuple(left), tuple(accepted))


def _find_unaccepted_violations(
    seen: Comparison, golden: Golden, limits: Mapping[str, float]
) -> tuple[list[RequirementResult], Iterable[str]]:
    """What is broken, and the shares that are accepted of what else would be."""
    broken: list[RequirementResult] = []
    accepted: dict[str, None] = {}
    for each in find_violations(seen, golden):
        told = _accepted_shares(each.about, seen, limits)
        if told is None:
            broken.append(each)
        else:
            accepted.update(dict.fromkeys(told))
    return broken, accepted


def _unknown_repeats(seen: Comparison, golden: Golden, limits: Mapping[str, float]) -> RequirementResult | None:
    """What has to be known of arguments that were not captured, where the verdict depends on it."""
    tool = tool_with_unknown_repeats(seen, golden)
    if tool is None:
        return None
    strictly, mildly = (compare_run(seen.run, golden, reading) for reading in (_ASSUME_RETRIES, _ASSUME_REPEATS))
    return unknown_repeats_statement(tool) if _changes_outcome(strictly, mildly, golden, limits) else None


def _unknown_failures(seen: Comparison, golden: Golden, limits: Mapping[str, float]) -> Iterable[RequirementResult]:
    """What has to be known of calls that may have failed, where the verdict depends on it."""
    failed = None if golden.policy else assuming_suspected_failures(seen)
    return (
        suspected_failure_statements(seen)
        if failed is not None and _changes_outcome(seen, failed, golden, limits)
        else ()
    )


def _changes_outcome(one: Comparison, other: Comparison, golden: Golden, limits: Mapping[str, float]) -> bool:
    """Whether anything is broken by one reading of a run, and nothing by the other."""
    return bool(_find_unaccepted_violations(one, golden, limits)[0]) is not bool(
        _find_unaccepted_violations(other, golden, limits)[0]
    )


_ASSUME_RETRIES, _ASSUME_REPEATS = (
    MissingArgumentsAssumption(are_retries=True, are_repeats=False),
    MissingArgumentsAssumption(are_retries=False, are_repeats=True),
)
"""A failure that is made once more counts for nothing, and a call that is made once more counts again; and neither."""


def _is_fully_met(row: ComparisonRow) -> bool:
    """Whether a row is an expected call of which nothing is broken or unknown, as most are."""
    expected, called = row.expected, row.called
    return (
        row.verdict == "paired"
        and row.in_order is True
        and isinstance(expected, ExpectedTool)
        and called is not None
        and called.error is None
        and called.error_guess is None
        and (expected.agent is None or called.agent is not None)
        and ((expected.server is None and "mcp__" not in expected.name) or called.server is not None)
        and (expected.arguments is None or (row.agreement is not None and not row.agreement.differences))
        and (expected.result is ABSENT or (row.result_agreement is not None and not row.result_agreement.differences))
    )


def relaxes_tool_correctness(golden: Golden, stated: Mapping[str, float]) -> bool:
    """Whether a golden accepts by the threshold of another metric what `tool_correctness` would want whole."""
    names = ("tool_recall", "tool_f1", "tool_order")
    is_default = golden.threshold == 1 and "tool_correctness" not in stated
    return is_default and any(stated.get(name, 1) < 1 for name in names)


# --- thresholds -------------------------------------------------------------------------------------------------------


def _partial_thresholds(golden: Golden, stated: Mapping[str, float]) -> Mapping[str, float]:
    """What metrics must reach where that is less than everything."""
    limits = dict.fromkeys(_USES_GOLDEN_THRESHOLD, golden.threshold) | dict(stated)
    return {name: limit for name, limit in limits.items() if limit < 1}


def _accepted_shares(about: str, seen: Comparison, limits: Mapping[str, float]) -> list[str] | None:
    """The shares that are accepted of what a statement is about; `None`: it has to be kept."""
    shares = [
        (name, _measured_share(name, about, seen), limits[name])
        for name in _METRICS_BY_STATEMENT[about]
        if name in limits
    ]
    known = [(name, share, limit) for name, share, limit in shares if share is not None]
    if not known or any(share < limit - THRESHOLD_TOLERANCE for _, share, limit in known):
        return None
    return [_share_text(*each) for each in known]


def _measured_share(name: str, about: str, seen: Comparison) -> float | None:
    """The number that a threshold is laid beside."""
    golden = seen.golden
    if name == "tool_correctness" and golden is not None and (seen.pairs or seen.missing):
        # What the mode does not measure is measured as the mode does that measures it.
        if about in ("missing", "order") and golden.mode in ("precision", "set"):
            return call_correctness.met_share(seen)
        if about in ("unexpected", "times") and golden.mode in ("recall", "set") and golden.order != "exact":
            return call_correctness.tool_precision(seen)
    return METRICS[name].measure(seen)


def _accepts_anything(about: str, limits: Mapping[str, float]) -> bool:
    return any(limits.get(name) == 0 for name in _METRICS_BY_STATEMENT.get(about, ()))


def _unmeasured_thresholds(
    golden: Golden, stated: Mapping[str, float], scores: Iterable[Score], *, strict: bool
) -> Mapping[str, float]:
    """What metrics must reach of which there is no score: a threshold counts, whichever metrics were asked for."""
    limits = dict(stated)
    if behaviour.effect_threshold(golden) is not None:
        limits.setdefault(_EFFECT_METRIC, 1.0)
    measured = {score.metric for score in scores}
    return {name: 1.0 if strict else limit for name, limit in limits.items() if name in METRICS.keys() - measured}


def _missed_thresholds(
    below: Iterable[Score], unmeasured: Mapping[str, float], broken: Iterable[RequirementResult], seen: Comparison
) -> list[RequirementResult]:
    """The thresholds that are not reached, but for those that say once more what is broken already."""
    told = {name for each in broken for name in _METRICS_BY_STATEMENT.get(each.about, ())}
    found = [(score.metric, score.value or 0.0, score.threshold or 0.0) for score in below]
    known = {name: limit for name, limit in unmeasured.items() if not METRICS[name].is_undecided(seen, limit)}
    values = [(name, METRICS[name].measure(seen), limit) for name, limit in known.items()]
    found += [
        (name, value, limit)
        for name, value, limit in values
        if value is not None and value < limit - THRESHOLD_TOLERANCE
    ]
    return [
        RequirementResult(name, _share_text(name, value, limit, missed=True))
        for name, value, limit in found
        if (limit < 1 or (name not in told and name not in _USES_GOLDEN_THRESHOLD))
        and not (name == _EFFECT_METRIC and behaviour.declared_effect_share(seen) in (None, 1.0))
    ]


_EFFECT_METRIC = "effect_correctness"
"""What the telemetry alone says of what tools change is a number, and nothing that the golden states."""


def _requires_value(score: Score, seen: Comparison, stated: Mapping[str, float]) -> bool:
    """Whether a gate without a number leaves something unjudged, and not merely has nothing to measure."""
    if score.metric not in METRICS:
        return True
    is_stated = score.metric in stated or score.metric == _EFFECT_METRIC
    return is_stated and _is_value_unknown(METRICS[score.metric], seen, score.threshold or 0.0)


def _is_value_unknown(metric: Metric, seen: Comparison, limit: float) -> bool:
    """Whether what is not known keeps a metric without a number, and decides if its threshold is reached."""
    if metric.name == _EFFECT_METRIC:
        return behaviour.declared_effect_share(seen) is None
    return metric.has_unknowns(seen) and (metric.bounds is None or metric.is_undecided(seen, limit))


def _undecided_unmeasured_thresholds(unmeasured: Mapping[str, float], seen: Comparison) -> Iterator[RequirementResult]:
    """The thresholds of which it is not known whether they are reached, among those of which there is no score."""
    for name, limit in unmeasured.items():
        metric = METRICS[name]
        value = metric.measure(seen)
        if metric.is_undecided(seen, limit) or (value is None and _is_value_unknown(metric, seen, limit)):
            yield _undecided_statement(Score(name, value, threshold=limit, reason=metric.why_missing(seen)))


def _undecided_statement(score: Score) -> RequirementResult:
    """That it is not known whether a score reaches its threshold."""
    why = score.error or score.reason or "no number"
    if score.value is None:
        return RequirementResult(score.metric, f"{score.metric} could not be measured: {why}")
    return RequirementResult(score.metric, f"{score.metric} may be below {score.threshold:g}: {why}")


def _share_text(name: str, value: float, limit: float, *, missed: bool = False) -> str:
    """`0.8 of 0.8 wanted`: the share itself for what `threshold` speaks of, and with its name for any other metric."""
    text = f"{value:.4g} of {limit:g} wanted"
    return text if name == "tool_correctness" and not missed else f"{name} {text}"
