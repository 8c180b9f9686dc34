"""Finds goldens that recent runs no longer use, or that state what has become the exception."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from goldspan.goldens import Goldens
from goldspan.goldens.tool_names import ToolNameMatcher, tool_name_matcher
from goldspan.model import AnyOf, ExpectedItem, ExpectedTool, Golden, Parallel, Run, ToolCall
from goldspan.model.goldens import iter_expected_calls
from goldspan.scoring import evaluate

StaleKind = Literal["unmatched", "unused_tool", "ruling_alternative", "common_failure"]

MIN_RUNS = 10
"""The least number of runs of a golden that show what most of them do."""
RULING_SHARE = 0.9
"""The share of its runs in which one alternative is the rule."""
COMMON_FAILURE_SHARE = 0.5
"""The share of its runs that break a golden in the same way."""


@dataclass(frozen=True, slots=True)
class StaleFinding:
    """A reason to review a golden."""

    kind: StaleKind
    golden_id: str
    sentence: str
    runs: int
    """The number of runs that show it; 0 for a golden without runs."""


@dataclass(slots=True)
class _GoldenUse:
    """What the runs of one golden did."""

    runs: int = 0
    evaluated: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """How many runs break each requirement."""
    options: dict[int, Counter[int]] = field(default_factory=dict)
    """How many runs follow each option of each alternative, by their positions."""


def find_stale_goldens(
    goldens: Goldens, runs: Iterable[tuple[Run, str | None]], last_matched: Mapping[str, str]
) -> list[StaleFinding]:
    """Return what the runs show about the goldens, in the order of the goldens.

    Args:
        goldens: The goldens to review.
        runs: The recent runs, each with the id of the golden that it was evaluated with when it was stored.
        last_matched: The time of the newest run of each golden, recent or not.
    """
    names = tool_name_matcher(goldens.vocabulary)
    uses: dict[str, _GoldenUse] = {}
    known_tools: set[str] = set()
    seen: set[tuple[str, str, str | None]] = set()
    for run, stored_golden in runs:
        for call in (*run.tool_calls, *(ToolCall(tool.name) for tool in run.available_tools)):
            if (key := (call.name, call.raw_name, call.server)) not in seen:
                seen.add(key)
                known_tools |= names.called_keys(call)
        golden = _golden_of(run, stored_golden, goldens)
        if golden is not None:
            _add_run(uses.setdefault(golden.id, _GoldenUse()), golden, run, names)
    findings: list[StaleFinding] = []
    for golden in goldens:
        use = uses.get(golden.id, _GoldenUse())
        findings += _findings(golden, use, names, frozenset(known_tools), last_matched.get(golden.id))
    return findings


def _golden_of(run: Run, stored_golden: str | None, goldens: Goldens) -> Golden | None:
    """Return the golden of a run: the stored one if it still exists, because a store keeps no attributes of spans."""
    if stored_golden is not None and stored_golden in goldens:
        return goldens[stored_golden]
    match = goldens.find(run)
    return None if match is None or match.golden.id not in goldens else match.golden


def _add_run(use: _GoldenUse, golden: Golden, run: Run, names: ToolNameMatcher) -> None:
    use.runs += 1
    evaluation = evaluate(run, golden, reasons=False)
    use.evaluated += evaluation.passed is not None
    use.failures.update({result.text for result in evaluation.broken})
    called = frozenset[str]().union(*(names.called_keys(call) for call in run.tool_calls if call.was_made))
    for position, alternatives in enumerate(_alternatives(golden.tools)):
        followed = [index for index, option in enumerate(alternatives.options) if _is_followed(option, called, names)]
        if len(followed) == 1:
            use.options.setdefault(position, Counter())[followed[0]] += 1


def _alternatives(items: Sequence[ExpectedItem]) -> Iterator[AnyOf]:
    for item in items:
        if isinstance(item, AnyOf):
            yield item
        elif isinstance(item, Parallel):
            yield from _alternatives(item.items)


def _is_followed(option: Sequence[ExpectedItem], called: frozenset[str], names: ToolNameMatcher) -> bool:
    """Whether every required tool of an option was called."""
    required = [tool for tool in iter_expected_calls(option) if not tool.is_optional]
    return all(not names.expected_keys(tool).isdisjoint(called) for tool in required)


def _findings(
    golden: Golden, use: _GoldenUse, names: ToolNameMatcher, known_tools: frozenset[str], last_matched: str | None
) -> Iterator[StaleFinding]:
    if not use.runs:
        last = f"the last one was at {last_matched}" if last_matched else "no stored run ever did"
        yield StaleFinding("unmatched", golden.id, f"no run matched it; {last}", 0)
    for name in _unused_tools(golden, names, known_tools):
        yield StaleFinding("unused_tool", golden.id, f"{name} was neither called nor offered in any run", 0)
    if use.runs >= MIN_RUNS:
        for position, alternatives in enumerate(_alternatives(golden.tools)):
            counts = use.options.get(position, Counter())
            for index, count in counts.most_common(1):
                if count >= RULING_SHARE * use.runs:
                    chosen = " + ".join(item.name for item in alternatives.options[index])
                    sentence = f"{chosen} of {alternatives.name} was chosen in {count} of {use.runs} runs"
                    yield StaleFinding("ruling_alternative", golden.id, sentence, count)
    if use.evaluated >= MIN_RUNS:
        for text, count in sorted(use.failures.items(), key=lambda item: (-item[1], item[0])):
            if count >= COMMON_FAILURE_SHARE * use.evaluated:
                sentence = f"{text} in {count} of {use.evaluated} evaluated runs"
                yield StaleFinding("common_failure", golden.id, sentence, count)


def _unused_tools(golden: Golden, names: ToolNameMatcher, known_tools: frozenset[str]) -> list[str]:
    def is_unused(tool: ExpectedTool) -> bool:
        return names.expected_keys(tool).isdisjoint(known_tools)

    return list(dict.fromkeys(tool.name for tool in golden.expected_calls if is_unused(tool)))
