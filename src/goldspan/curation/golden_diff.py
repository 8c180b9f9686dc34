"""Compares two sets of goldens: what they state, and their verdicts on the same runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from goldspan.goldens import Goldens
from goldspan.goldens.text_matching import normalize_text
from goldspan.model import ABSENT, AnyOf, ExpectedItem, ExpectedTool, Golden, Parallel, Run, Times, When
from goldspan.model.telemetry import content_digest
from goldspan.model.value_matchers import format_value
from goldspan.scoring import evaluate

ChangeKind = Literal["added", "removed", "changed"]
Outcome = Literal["pass", "fail", "not_evaluated", "no_golden"]

_RULES = ("order", "max_calls", "attempts", "duplicates", "extra", "depth", "mode", "threshold", "unknown", "policy")
"""Rules with one value."""
_CALL_KEYS = ("match", "server", "agent", "ignore", "defaults")


@dataclass(frozen=True, slots=True)
class GoldenChange:
    """A difference between two sets of goldens."""

    kind: ChangeKind
    golden_id: str
    sentences: tuple[str, ...] = ()
    """What changed, as clauses: `now requires search_hotels`."""


def diff_goldens(old: Goldens, new: Goldens) -> list[GoldenChange]:
    """Return the goldens that were added, removed or changed, in the order of the new file, then of the old one."""
    changes = []
    for golden in new:
        if golden.id not in old:
            changes.append(GoldenChange("added", golden.id, tuple(_summary(golden))))
        elif sentences := tuple(describe_changes(old[golden.id], golden)):
            changes.append(GoldenChange("changed", golden.id, sentences))
    changes += [GoldenChange("removed", golden.id, tuple(_summary(golden))) for golden in old if golden.id not in new]
    return changes


def _summary(golden: Golden) -> Iterator[str]:
    """Yield what an added or removed golden states."""
    if golden.policy:
        yield f"a policy that forbids {', '.join(golden.forbid)}" if golden.forbid else "a policy"
    elif golden.tools:
        yield f"requires {', '.join(item.name for item in golden.tools)}"
    else:
        yield "allows no tool"


def describe_changes(old: Golden, new: Golden) -> Iterator[str]:
    """Yield the differences in what two goldens state, as clauses. Metadata and notation do not matter."""
    if normalize_text(old.input) != normalize_text(new.input):
        yield f"input {_shown(old.input)} -> {_shown(new.input)}"
    if old.when != new.when:
        yield f"when {_shown_when(old.when)} -> {_shown_when(new.when)}"
    if old.component != new.component:
        yield f"component {_shown(old.component)} -> {_shown(new.component)}"
    yield from _tool_changes(old, new)
    yield from _rule_changes(old, new)
    if old.vocabulary.digest != new.vocabulary.digest:
        yield "the declarations of tools and servers changed"


def _rule_changes(old: Golden, new: Golden) -> Iterator[str]:
    for name in _RULES:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            yield f"{name} {_shown_rule(before)} -> {_shown_rule(after)}"
    for verb, names in (("forbids", "forbid"), ("declares as writing", "write_tools"), ("measures", "metrics")):
        before, after = getattr(old, names) or (), getattr(new, names) or ()
        yield from (f"now {verb} {name}" for name in after if name not in before)
        yield from (f"no longer {verb} {name}" for name in before if name not in after)
    for metric in sorted({*old.thresholds, *new.thresholds}):
        before, after = old.thresholds.get(metric), new.thresholds.get(metric)
        if before != after:
            yield f"threshold of {metric} {_shown_rule(before)} -> {_shown_rule(after)}"


# --- tools ------------------------------------------------------------------------------------------------------------


def _tool_changes(old: Golden, new: Golden) -> Iterator[str]:
    """Yield the differences between expected calls, and at last whether only their arrangement differs."""
    before, after = _flat_items(old.tools), _flat_items(new.tools)
    sentences = list(_call_changes(before, after))
    yield from sentences
    if not sentences and content_digest([old.tools]) != content_digest([new.tools]):
        is_ordered = old.order != "any" or new.order != "any"
        if is_ordered:
            yield f"order of the calls: {_shown_items(old.tools)} -> {_shown_items(new.tools)}"


def _flat_items(items: Sequence[ExpectedItem]) -> list[ExpectedTool | AnyOf]:
    flat: list[ExpectedTool | AnyOf] = []
    for item in items:
        flat += item.items if isinstance(item, Parallel) else (item,)
    return flat


def _call_changes(before: Sequence[ExpectedTool | AnyOf], after: Sequence[ExpectedTool | AnyOf]) -> Iterator[str]:
    """Yield the differences between calls of each name, in the order of the new golden, then of the old one."""
    for name in dict.fromkeys(item.name for item in (*after, *before)):
        old = [item for item in before if item.name == name]
        new = [item for item in after if item.name == name]
        kept_old, kept_new = _without_equal(old, new)
        for one, other in zip(kept_old, kept_new, strict=False):
            yield from _item_changes(one, other)
        yield from (f"now {_verb(item)} {_described(item)}" for item in kept_new[len(kept_old) :])
        yield from (f"no longer {_verb(item)} {_described(item)}" for item in kept_old[len(kept_new) :])


def _without_equal(old: list[Any], new: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the items of each list that the other one does not have."""
    in_new = Counter(content_digest([item]) for item in new)
    in_old = Counter(content_digest([item]) for item in old)
    return _left_over(old, in_new), _left_over(new, in_old)


def _left_over(items: list[Any], others: Counter[str]) -> list[Any]:
    left = []
    for item in items:
        digest = content_digest([item])
        if others[digest]:
            others[digest] -= 1
        else:
            left.append(item)
    return left


def _verb(item: ExpectedTool | AnyOf) -> str:
    return "allows" if item.is_optional else "requires"


def _described(item: ExpectedTool | AnyOf) -> str:
    name = f"one of {item.name}" if isinstance(item, AnyOf) else item.name
    return f"{name}, {_shown_times(item.times)}" if item.times.stated else name


def _item_changes(old: ExpectedTool | AnyOf, new: ExpectedTool | AnyOf) -> Iterator[str]:
    name = new.name
    if old.is_optional != new.is_optional:
        yield f"{name} is now {'optional' if new.is_optional else 'required'}"
    elif content_digest([old.times]) != content_digest([new.times]):
        yield f"{name}: {_shown_times(old.times)} -> {_shown_times(new.times)}"
    if isinstance(old, AnyOf) or isinstance(new, AnyOf):
        if isinstance(old, AnyOf) and isinstance(new, AnyOf) and old.options != new.options:
            before, after = ([tool for option in item.options for tool in _flat_items(option)] for item in (old, new))
            yield from _call_changes(before, after)
        return
    yield from _argument_changes(name, old.arguments, new.arguments)
    if old.result != new.result:
        yield f"{name}: result {_shown_value(old.result)} -> {_shown_value(new.result)}"
    for key in _CALL_KEYS:
        before, after = getattr(old, key), getattr(new, key)
        if before != after:
            yield f"{name}: {key} {format_value(before)} -> {format_value(after)}"


def _argument_changes(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> Iterator[str]:
    if (old is None) != (new is None):
        yield f"{name}: {'no longer states' if new is None else 'now states'} arguments"
    before, after = old or {}, new or {}
    for key in dict.fromkeys((*after, *before)):
        if before.get(key, ABSENT) != after.get(key, ABSENT):
            values = f"{_shown_value(before.get(key, ABSENT))} -> {_shown_value(after.get(key, ABSENT))}"
            yield f"{name}: argument {key} {values}"


def _shown_value(value: Any) -> str:
    return "any" if value is ABSENT else format_value(value)


def _shown_times(times: Times) -> str:
    if times.least == times.most:
        counted = "once" if times.least == 1 else f"{times.least} times"
        return f"exactly {counted}" if times.stated else counted
    return f"{times.least} or more times" if times.most is None else f"{times.least} to {times.most} times"


def _shown_items(items: Sequence[ExpectedItem]) -> str:
    return ", ".join(f"({item.name})" if isinstance(item, Parallel) else item.name for item in items)


def _shown(text: str | None) -> str:
    return "none" if text is None else format_value(text)


def _shown_rule(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _shown_when(when: When | None) -> str:
    if when is None:
        return "none"
    stated = {each.name: getattr(when, each.name) for each in fields(when)}
    return format_value({name: value for name, value in stated.items() if value is not None and value != {}})


# --- verdicts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VerdictChange:
    """A run whose verdict or golden differs between two sets of goldens."""

    run_id: str
    old_golden: str | None
    new_golden: str | None
    old: Outcome
    new: Outcome
    reason: str
    """The reason of the new verdict."""


@dataclass(frozen=True, slots=True)
class VerdictDiff:
    """The verdicts of two sets of goldens on the same runs."""

    runs: int
    counts: Mapping[tuple[Outcome, Outcome], int]
    """The number of runs with each old and new outcome, equal ones included."""
    changes: tuple[VerdictChange, ...]
    """The runs whose outcome or golden differs."""


def diff_verdicts(old: Goldens, new: Goldens, runs: Iterable[Run]) -> VerdictDiff:
    """Evaluate each run with both sets of goldens."""
    counts: Counter[tuple[Outcome, Outcome]] = Counter()
    changes: list[VerdictChange] = []
    for run in runs:
        before, after = evaluate(run, old), evaluate(run, new)
        old_outcome, new_outcome = _outcome(before.match, before.passed), _outcome(after.match, after.passed)
        counts[old_outcome, new_outcome] += 1
        old_golden = before.match.golden.id if before.match else None
        new_golden = after.match.golden.id if after.match else None
        if (old_outcome, old_golden) != (new_outcome, new_golden):
            change = VerdictChange(run.run_id, old_golden, new_golden, old_outcome, new_outcome, after.reason)
            changes.append(change)
    return VerdictDiff(sum(counts.values()), counts, tuple(changes))


def _outcome(match: object, passed: bool | None) -> Outcome:
    if match is None:
        return "no_golden"
    return "not_evaluated" if passed is None else "pass" if passed else "fail"
