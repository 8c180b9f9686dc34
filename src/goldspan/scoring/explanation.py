"""Writes the reason of an evaluation: one sentence with names of tools and arguments, no values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Sized
from itertools import starmap

from goldspan.model import AnyOf, Comparison, ComparisonRow, Golden, Run, ToolDefinition
from goldspan.scoring.matching.best_match import EXTRA
from goldspan.scoring.metrics.metric import alternative_calls
from goldspan.scoring.name_suggestions import NameCollision, NearMiss, find_collisions, find_near_misses
from goldspan.scoring.run_comparison import DUPLICATE
from goldspan.scoring.verdict import ABOUT_CALLS, ALL_MET, RunVerdict

_MAX_SHOWN = 5
_MAX_NAME_CHARACTERS = 60


def explain_evaluation(
    comparison: Comparison, available_tools: Sequence[ToolDefinition] = (), verdict: RunVerdict | None = None
) -> str:
    """Returns one sentence about a comparison and its verdict.

    The sentence lists missing, unexpected, forbidden, failed and out-of-order calls, and differing arguments:
    "Expected book_hotel was not called; cancel_trip was called but not expected." From the `verdict` it adds missed
    thresholds, accepted shares, and requirements that cannot be evaluated, with the setting that would capture more.
    `available_tools` are the tools that the agent was offered: one of them may have a similar name to a missing one.
    """
    if comparison.golden is None:
        return "No golden applies to this run."
    if verdict is not None and not verdict.broken and any(each.about == ABOUT_CALLS for each in verdict.undetermined):
        return _finish_sentence(_verdict_clauses(comparison.golden, verdict), comparison.run)
    if comparison.golden.policy:
        clauses = [
            f"Policy {_shorten(comparison.golden.id)}: {'; '.join(_policy_clauses(comparison, comparison.golden))}"
        ]
        return _full_sentence(clauses, comparison, verdict)
    clauses = [_expected_clause(comparison)]
    if verdict is not ALL_MET or any(row.called and row.called.server for row in comparison.rows):
        clauses += [*_additional_call_clauses(comparison, _over_limit_positions(verdict)), *_defect_clauses(comparison)]
        clauses += map(_near_miss_clause, find_near_misses(comparison, available_tools))
        clauses += map(_collision_clause, find_collisions(comparison))
    if comparison.golden.max_calls is not None and len(comparison.calls) > comparison.golden.max_calls:
        clauses.append(_over_budget_clause(len(comparison.calls), comparison.golden.max_calls))
    if comparison.approximation_reason:
        clauses.append(f"there may be a better pairing, with {comparison.approximation_reason}")
    return (
        f"{clauses[0]}." if verdict is ALL_MET and len(clauses) == 1 else _full_sentence(clauses, comparison, verdict)
    )


def _full_sentence(clauses: Sequence[str], comparison: Comparison, verdict: RunVerdict | None) -> str:
    """Returns the sentence with the clauses of the verdict."""
    if comparison.golden is None or verdict is None:
        return _finish_sentence(clauses, None)
    is_in_content = not verdict.broken and any(each.about not in _NOT_CONTENT for each in verdict.undetermined)
    return _finish_sentence(
        [*clauses, *_verdict_clauses(comparison.golden, verdict)], comparison.run if is_in_content else None
    )


def _finish_sentence(clauses: Iterable[str], run: Run | None) -> str:
    """Returns the clauses as a sentence; for a run that was not captured completely, with the setting to change."""
    text = "; ".join(clauses)
    sentence = f"{text[:1].upper()}{text[1:]}."
    advice = "" if run is None or not run.conventions else capture_advice(run)
    return f"{sentence} {advice}".rstrip()


def capture_advice(run: Run) -> str:
    """Returns the setting that would record the content of a run, as a sentence; empty if it is not known."""
    from goldspan.extraction.capture_diagnostics import (
        content_switches,  # it loads every convention, for the few runs that need it
    )

    return content_switches(run)


def _verdict_clauses(golden: Golden, verdict: RunVerdict) -> Iterator[str]:
    """Yield the clauses that do not follow from rows: thresholds, call limits, and what cannot be evaluated."""
    beyond = [each.text for each in verdict.broken if each.about not in _ABOUT_ROWS]
    yield from list(dict.fromkeys(beyond))[:_MAX_SHOWN]
    if verdict.accepted and not verdict.broken:
        yield f"accepted: {', '.join(verdict.accepted)}"
    if verdict.undetermined and not verdict.broken:
        lead = {
            "not_evaluated": "not evaluated",
            "ignore": "ignored",
            "fail": "cannot be evaluated, so the run fails",
        }
        texts = list(dict.fromkeys(each.text for each in verdict.undetermined))
        more = f", and {len(texts) - _MAX_SHOWN} more" if len(texts) > _MAX_SHOWN else ""
        yield f"{lead[golden.unknown]}: {', '.join(texts[:_MAX_SHOWN])}{more}"


_NOT_CONTENT = frozenset({"agent", "server"})
"""Requirements that do not depend on whether an instrumentation records content."""

_ABOUT_ROWS = frozenset({"missing", "unexpected", "order", "arguments", "result", "forbidden", "max_calls"})
"""Requirements that the other clauses of the sentence cover."""


def _policy_clauses(comparison: Comparison, policy: Golden) -> Iterator[str]:
    """Yield the rules of a policy that the run breaks, else those that it keeps."""
    over = policy.max_calls is not None and len(comparison.calls) > policy.max_calls
    if comparison.forbidden:
        names = list(dict.fromkeys(map(_name, comparison.forbidden)))
        yield f"{_join_counted(names)} {'is' if len(names) == 1 else 'are'} forbidden"
    elif policy.forbid and not over:
        yield "nothing forbidden was called"
    if policy.max_calls is not None and (over or not comparison.forbidden):
        yield _over_budget_clause(len(comparison.calls), policy.max_calls)
    elif not policy.forbid:
        yield "it forbids and limits nothing"


def _expected_clause(comparison: Comparison) -> str:
    if comparison.missing:
        return f"Expected {_missing_clause(comparison)}"
    if len(comparison.pairs) > 1:
        ordered = "" if False in [pair.in_order for pair in comparison.pairs] else ", in order"
        return f"All {len(comparison.pairs)} expected tools were called{ordered}"
    if comparison.pairs:
        return f"Expected {_names(comparison.pairs)} was called"
    if comparison.tolerated and any(row.expected for row in comparison.tolerated):
        return "No tool had to be called"
    if comparison.unexpected or comparison.forbidden or _rows_with_note(comparison, EXTRA):
        return "No tool was expected"
    return f"No tool was expected and none {'that counts ' if comparison.rows else ''}was called"


def _missing_clause(comparison: Comparison) -> str:
    """Returns `book_hotel was not called; search was called 1 of 3 times; refund was called by billing, ...`."""
    wrong_agent_at = {row.expected_at for row, _ in comparison.wrong_agent_pairs}
    missing = [row for row in comparison.missing if row.expected_at not in wrong_agent_at]
    called = {_name(pair) for pair in comparison.pairs}
    never = [row for row in missing if _name(row) not in called]
    clauses = [f"{_names(never)} {_was_or_were(never)} not called"] if never else []
    if len(never) < len(missing):
        clauses += _too_few_calls_clauses(comparison, missing)
    clauses += starmap(_wrong_agent_clause, comparison.wrong_agent_pairs[:_MAX_SHOWN])
    if len(comparison.wrong_agent_pairs) > _MAX_SHOWN:
        clauses.append(
            f"{len(comparison.wrong_agent_pairs) - _MAX_SHOWN} more calls were made by another agent than expected"
        )
    return "; ".join(clauses)


def _wrong_agent_clause(missing: ComparisonRow, call: ComparisonRow) -> str:
    agents = [tool.agent for tool in alternative_calls(missing.expected) if tool.agent] if missing.expected else []
    made_by = call.called.agent if call.called else None
    expected = " or ".join(map(_shorten, dict.fromkeys(agents)))
    return f"{_name(call)} was called by {_shorten(made_by or '')}, not by {expected}"


def _too_few_calls_clauses(comparison: Comparison, rows: Sequence[ComparisonRow]) -> Iterator[str]:
    called = Counter(map(_name, comparison.pairs))
    missing = Counter(name for row in rows if (name := _name(row)) in called)
    for name, count in list(missing.items())[:_MAX_SHOWN]:
        yield f"{_shorten(name)} was called {called[name]} of {called[name] + count} times"


def _over_limit_positions(verdict: RunVerdict | None) -> set[int | None]:
    """Returns the positions of the calls beyond what `times` allows, which the verdict lists."""
    return {each.called_at for each in verdict.broken if each.about == "times"} if verdict else set()


def _additional_call_clauses(comparison: Comparison, elsewhere: Collection[int | None] = ()) -> Iterator[str]:
    """Yield clauses about additional calls, except those that other clauses mention."""
    mentioned = {call.called_at for _, call in comparison.wrong_agent_pairs}.union(elsewhere)
    if unexpected := [row for row in comparison.unexpected if row.called_at not in mentioned]:
        but = " but not expected" if comparison.pairs or comparison.missing else ""
        yield f"{_names(unexpected)} {_was_or_were(unexpected)} called{but}"
    if comparison.forbidden:
        yield f"{_names(comparison.forbidden)} {_was_or_were(comparison.forbidden)} called but forbidden"
    if not comparison.tolerated:
        return
    if (optional := [row for row in comparison.tolerated if row.expected and row.called]) and not comparison.pairs:
        yield f"optional {_names(optional)} {_was_or_were(optional)} called"
    if extra := [row for row in _rows_with_note(comparison, EXTRA) if row.called_at not in mentioned]:
        yield f"{_names(extra)} {_was_or_were(extra)} called besides, which is allowed"
    if repeated := _rows_with_note(comparison, DUPLICATE):
        yield f"{_names(repeated)} {_was_or_were(repeated)} called again, which does not count"


def _rows_with_note(comparison: Comparison, note: str) -> list[ComparisonRow]:
    return [row for row in comparison.tolerated if row.called and row.note == note]


def _defect_clauses(comparison: Comparison) -> Iterator[str]:
    """Yield clauses about expected calls that were made with defects."""
    matched = [row for row in comparison.rows if row.expected and row.called]
    misplaced = [row for row in matched if row.in_order is False]
    if misplaced and comparison.golden and comparison.golden.order != "any":
        yield f"{_names(misplaced)} {_was_or_were(misplaced)} called out of order"
    if failed := [row for row in matched if row.called and row.called.error is not None]:
        yield f"{_names(failed)} failed"
    differing = [(row, paths) for row in matched if (paths := _difference_paths(row))]
    for row, paths in differing[:_MAX_SHOWN]:
        yield f"{_names([row])} differs in {_join_counted(paths)}"
        yield from _hint_clauses(row)
    if len(differing) > _MAX_SHOWN:
        yield f"{len(differing) - _MAX_SHOWN} more calls differ"


def _hint_clauses(row: ComparisonRow) -> Iterator[str]:
    """Yield the matchers that accept a difference: `city differs only in case: {folded: ...} accepts it`."""
    for agreement, subject in ((row.agreement, "the arguments"), (row.result_agreement, "the result")):
        for difference in agreement.differences[:_MAX_SHOWN] if agreement else ():
            if difference.hint:
                yield f"{_shorten(difference.key or subject)} {difference.hint}"


def _difference_paths(row: ComparisonRow) -> list[str]:
    """Returns the paths of the arguments, and of the parts of the result, that differ."""
    paths: list[str] = []
    if row.agreement and row.agreement.differences:
        keys = [difference.key for difference in row.agreement.differences]
        paths = keys if all(keys) else ["all its arguments"]
    if row.result_agreement and row.result_agreement.differences:
        keys = [difference.key for difference in row.result_agreement.differences]
        paths += [f"result.{key}" if key else "its result" for key in keys]
    return paths


def _over_budget_clause(made: int, allowed: int) -> str:
    """Returns `12 calls were made and 8 are allowed`."""
    calls_were = "call was" if made == 1 else "calls were"
    are = "is" if allowed <= 1 else "are"
    return f"{made} {calls_were} made and {allowed or 'none'} {are} allowed"


def _near_miss_clause(near: NearMiss) -> str:
    expected, name = _shorten(near.expected), _shorten(near.name)
    if near.server:
        return f"the {name} that was called is a tool of the server {_shorten(near.server)}"
    alias = f"under tools as an alias of {expected}"
    advice = f"{_shorten(near.prefix)} under servers, or {name} {alias}" if near.prefix else f"it {alias}"
    offered = "" if near.was_called else f"the agent has no {expected}; "
    return f"{offered}did you mean {name}? declare {advice}"


def _collision_clause(shared: NameCollision) -> str:
    """Returns `add is a tool of orders and stock; name the one you mean, as in orders_add`."""
    name, example = _shorten(shared.name), _shorten(f"{shared.servers[0]}_{shared.name}")
    return f"{name} is a tool of {_join_counted(shared.servers)}; name the one you mean, as in {example}"


def _names(rows: Sequence[ComparisonRow]) -> str:
    """Returns the tools of rows with their counts: `search x2, book and either send_email or send_sms`."""
    words = list(map(_name, rows))
    if len(set(words)) > 1:
        words = [
            f"either {word}" if isinstance(row.expected, AnyOf) else word for row, word in zip(rows, words, strict=True)
        ]
    return _join_counted(words)


def _name(row: ComparisonRow) -> str:
    tool = row.expected or row.called
    return tool.name if tool else ""


def _join_counted(words: Sequence[str]) -> str:
    if len(words) == 1:
        return _shorten(words[0])
    counts = Counter(words)
    shown = [_shorten(word) + (f" x{count}" if count > 1 else "") for word, count in counts.items()][:_MAX_SHOWN]
    if len(counts) > _MAX_SHOWN:
        return f"{', '.join(shown)} and {len(counts) - _MAX_SHOWN} more"
    *others, last = shown
    return f"{', '.join(others)} and {last}" if others else last


def _shorten(word: str) -> str:
    return word if len(word) <= _MAX_NAME_CHARACTERS else f"{word[: _MAX_NAME_CHARACTERS - 3]}..."


def _was_or_were(rows: Sized) -> str:
    return "was" if len(rows) == 1 else "were"
