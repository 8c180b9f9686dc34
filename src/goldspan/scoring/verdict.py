"""The verdict: a run fails where anything that its golden states is broken.

It is not evaluated where nothing is broken and something that is stated cannot be judged, and passes otherwise. A
threshold that is stated accepts a share instead of everything. Metrics decide nothing else: they are numbers beside the
verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from goldspan.model import ABSENT, Comparison, ExpectedTool, Golden, Row, Score, Statement, Unknown
from goldspan.scoring.breaches import breaches
from goldspan.scoring.guesses import failures_in_doubt, if_failed
from goldspan.scoring.matching import Reading, compare_run
from goldspan.scoring.metrics import METRICS, effects, tools
from goldspan.scoring.metrics.metric import TOLERANCE, Metric
from goldspan.scoring.unjudged import INVISIBLE, doubtful_tool, in_doubt, is_invisible, unjudged

_MEASURED_BY: Mapping[str, tuple[str, ...]] = {
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

_BY_THRESHOLD = frozenset({"tool_correctness", "argument_correctness", "result_correctness"})
"""The metrics whose threshold is the golden's `threshold` where `thresholds` does not name them. That they reach 1 says
nothing beyond that each of the calls, arguments and results is as stated."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of everything that a golden states."""

    broken: tuple[Statement, ...] = ()
    unjudged: tuple[Statement, ...] = ()
    accepted: tuple[str, ...] = ()
    """The shares that a threshold accepts in place of everything: `0.8 of 0.8 wanted`."""


ALL_KEPT = Verdict()
"""Each row is an expected call, made as it is stated, as in most runs."""


def passes(broken: Sequence[Statement], unjudged: Sequence[Statement], unknown: Unknown) -> bool | None:
    """Whether a run passes, by what is broken and what cannot be judged; `None`: it is not evaluated."""
    if broken:
        return False
    if not unjudged:
        return True
    if unknown == "ignore" and not any(each.about == CALLS for each in unjudged):
        return True
    return False if unknown == "fail" else None


CALLS = "calls"
"""What a statement is about that concerns all calls of a run: nothing at all can be judged."""


def verdict_of(
    seen: Comparison, scores: Iterable[Score], stated: Mapping[str, float], *, strict: bool
) -> Verdict | None:
    """The verdict on a comparison; `None` where nothing is stated.

    `stated` are the thresholds of single metrics, those of the golden and those that go before them; `strict` accepts
    no share of anything.
    """
    golden = seen.golden
    if golden is None:
        return None
    if is_invisible(seen):
        done = [each for each in breaches(seen, golden) if each.about != "missing"]
        return Verdict(tuple(done), (Statement(CALLS, INVISIBLE),))
    below = [
        score
        for score in scores
        if score.threshold is not None
        and score.passed is not True
        and (score.value is not None or _must_have_number(score, seen, stated))
    ]
    if not below and not stated and golden.max_calls is None and all(map(_is_kept, seen.rows)):
        return None if golden.policy and not golden.forbid else ALL_KEPT
    if golden.policy and not (golden.forbid or golden.max_calls is not None or stated or below):
        return None
    limits = {} if strict else _limits(golden, stated)
    broken, accepted = _broken(seen, golden, limits)
    doubt = _doubt(seen, golden, limits)
    doubts = [*([] if doubt is None else [doubt]), *_failures_in_doubt(seen, golden, limits)]
    if doubts:
        broken = []
    left = [each for each in unjudged(seen, golden) if not _accepts_anything(each.about, limits)]
    left += doubts
    left += [_undecided(score) for score in below if score.passed is None]
    unmeasured = _limits_unmeasured(golden, stated, scores, strict=strict)
    left += _undecided_unmeasured(unmeasured, seen)
    broken += _missed([score for score in below if score.passed is False], unmeasured, broken, seen)
    return Verdict(tuple(broken), tuple(left), tuple(accepted))


def _broken(seen: Comparison, golden: Golden, limits: Mapping[str, float]) -> tuple[list[Statement], Iterable[str]]:
    """What is broken, and the shares that are accepted of what else would be."""
    broken: list[Statement] = []
    accepted: dict[str, None] = {}
    for each in breaches(seen, golden):
        told = _told_by_limits(each.about, seen, limits)
        if told is None:
            broken.append(each)
        else:
            accepted.update(dict.fromkeys(told))
    return broken, accepted


def _doubt(seen: Comparison, golden: Golden, limits: Mapping[str, float]) -> Statement | None:
    """What has to be known of arguments that were not captured, where the verdict depends on it."""
    tool = doubtful_tool(seen, golden)
    if tool is None:
        return None
    strictly, mildly = (compare_run(seen.run, golden, reading) for reading in (_STRICTLY, _MILDLY))
    return in_doubt(tool) if _depends(strictly, mildly, golden, limits) else None


def _failures_in_doubt(seen: Comparison, golden: Golden, limits: Mapping[str, float]) -> Iterable[Statement]:
    """What has to be known of calls that may have failed, where the verdict depends on it."""
    failed = None if golden.policy else if_failed(seen)
    return failures_in_doubt(seen) if failed is not None and _depends(seen, failed, golden, limits) else ()


def _depends(one: Comparison, other: Comparison, golden: Golden, limits: Mapping[str, float]) -> bool:
    """Whether anything is broken by one reading of a run, and nothing by the other."""
    return bool(_broken(one, golden, limits)[0]) is not bool(_broken(other, golden, limits)[0])


_STRICTLY, _MILDLY = Reading(retries=True, repeats=False), Reading(retries=False, repeats=True)
"""A failure that is made once more counts for nothing, and a call that is made once more counts again; and neither."""


def _is_kept(row: Row) -> bool:
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


def is_relaxed(golden: Golden, stated: Mapping[str, float]) -> bool:
    """Whether a golden accepts by the threshold of another metric what `tool_correctness` would want whole."""
    names = ("tool_recall", "tool_f1", "tool_order")
    is_default = golden.threshold == 1 and "tool_correctness" not in stated
    return is_default and any(stated.get(name, 1) < 1 for name in names)


# --- thresholds -------------------------------------------------------------------------------------------------------


def _limits(golden: Golden, stated: Mapping[str, float]) -> Mapping[str, float]:
    """What metrics must reach where that is less than everything."""
    limits = dict.fromkeys(_BY_THRESHOLD, golden.threshold) | dict(stated)
    return {name: limit for name, limit in limits.items() if limit < 1}


def _told_by_limits(about: str, seen: Comparison, limits: Mapping[str, float]) -> list[str] | None:
    """The shares that are accepted of what a statement is about; `None`: it has to be kept."""
    shares = [(name, _share(name, about, seen), limits[name]) for name in _MEASURED_BY[about] if name in limits]
    known = [(name, share, limit) for name, share, limit in shares if share is not None]
    if not known or any(share < limit - TOLERANCE for _, share, limit in known):
        return None
    return [_of_wanted(*each) for each in known]


def _share(name: str, about: str, seen: Comparison) -> float | None:
    """The number that a threshold is laid beside."""
    golden = seen.golden
    if name == "tool_correctness" and golden is not None and (seen.pairs or seen.missing):
        # What the mode does not measure is measured as the mode does that measures it.
        if about in ("missing", "order") and golden.mode in ("precision", "set"):
            return tools.share_met(seen)
        if about in ("unexpected", "times") and golden.mode in ("recall", "set") and golden.order != "exact":
            return tools.tool_precision(seen)
    return METRICS[name].measure(seen)


def _accepts_anything(about: str, limits: Mapping[str, float]) -> bool:
    return any(limits.get(name) == 0 for name in _MEASURED_BY.get(about, ()))


def _limits_unmeasured(
    golden: Golden, stated: Mapping[str, float], scores: Iterable[Score], *, strict: bool
) -> Mapping[str, float]:
    """What metrics must reach of which there is no score: a threshold counts, whichever metrics were asked for."""
    limits = dict(stated)
    if effects.threshold_of(golden) is not None:
        limits.setdefault(_EFFECTS, 1.0)
    measured = {score.metric for score in scores}
    return {name: 1.0 if strict else limit for name, limit in limits.items() if name in METRICS.keys() - measured}


def _missed(
    below: Iterable[Score], unmeasured: Mapping[str, float], broken: Iterable[Statement], seen: Comparison
) -> list[Statement]:
    """The thresholds that are not reached, but for those that say once more what is broken already."""
    told = {name for each in broken for name in _MEASURED_BY.get(each.about, ())}
    found = [(score.metric, score.value or 0.0, score.threshold or 0.0) for score in below]
    known = {name: limit for name, limit in unmeasured.items() if not METRICS[name].is_undecided(seen, limit)}
    values = [(name, METRICS[name].measure(seen), limit) for name, limit in known.items()]
    found += [(name, value, limit) for name, value, limit in values if value is not None and value < limit - TOLERANCE]
    return [
        Statement(name, _of_wanted(name, value, limit, missed=True))
        for name, value, limit in found
        if (limit < 1 or (name not in told and name not in _BY_THRESHOLD))
        and not (name == _EFFECTS and effects.stated_share(seen) in (None, 1.0))
    ]


_EFFECTS = "effect_correctness"
"""What the telemetry alone says of what tools change is a number, and nothing that the golden states."""


def _must_have_number(score: Score, seen: Comparison, stated: Mapping[str, float]) -> bool:
    """Whether a gate without a number leaves something unjudged, and not merely has nothing to measure."""
    if score.metric not in METRICS:
        return True
    is_stated = score.metric in stated or score.metric == _EFFECTS
    return is_stated and _lacks(METRICS[score.metric], seen, score.threshold or 0.0)


def _lacks(metric: Metric, seen: Comparison, limit: float) -> bool:
    """Whether what is not known keeps a metric without a number, and decides if its threshold is reached."""
    if metric.name == _EFFECTS:
        return effects.stated_share(seen) is None
    return metric.lacks(seen) and (metric.bounds is None or metric.is_undecided(seen, limit))


def _undecided_unmeasured(unmeasured: Mapping[str, float], seen: Comparison) -> Iterator[Statement]:
    """The thresholds of which it is not known whether they are reached, among those of which there is no score."""
    for name, limit in unmeasured.items():
        metric = METRICS[name]
        value = metric.measure(seen)
        if metric.is_undecided(seen, limit) or (value is None and _lacks(metric, seen, limit)):
            yield _undecided(Score(name, value, threshold=limit, reason=metric.unknown(seen)))


def _undecided(score: Score) -> Statement:
    """That it is not known whether a score reaches its threshold."""
    why = score.error or score.reason or "no number"
    if score.value is None:
        return Statement(score.metric, f"{score.metric} could not be measured: {why}")
    return Statement(score.metric, f"{score.metric} may be below {score.threshold:g}: {why}")


def _of_wanted(name: str, value: float, limit: float, *, missed: bool = False) -> str:
    """`0.8 of 0.8 wanted`: the share itself for what `threshold` speaks of, and with its name for any other metric."""
    text = f"{value:.4g} of {limit:g} wanted"
    return text if name == "tool_correctness" and not missed else f"{name} {text}"
