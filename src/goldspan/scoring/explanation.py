"""A comparison in one sentence for people. It names tools and arguments, and never shows a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Sized
from itertools import starmap

from goldspan.model import AnyOf, Comparison, ComparisonRow, Golden, Run, ToolDefinition
from goldspan.scoring.metrics.metric import alternative_calls
from goldspan.scoring.name_suggestions import NameCollision, NearMiss, find_collisions, find_near_misses
from goldspan.scoring.run_comparison import DUPLICATE, EXTRA
from goldspan.scoring.verdict import ABOUT_CALLS, ALL_MET, RunVerdict

_MAX_SHOWN = 5
_MAX_NAME_CHARACTERS = 60


def explain_evaluation(
    seen: Comparison, available_tools: Sequence[ToolDefinition] = (), verdict: RunVerdict | None = None
) -> str:
    """What is missing, unexpected, forbidden, out of order, over budget or failed, and what differs.

    Of the `verdict` it tells which thresholds are missed, what a threshold accepts, and what cannot be judged, with
    what to switch on.

    "Expected book_hotel was not called; cancel_trip was called but not expected." Names that nearly match are told as
    well: `available` are the tools that the agent was offered, where that is known, and one of them may nearly have
    the name of a missing one.
    """
    if seen.golden is None:
        return "No golden applies to this run."
    if verdict is not None and not verdict.broken and any(each.about == ABOUT_CALLS for each in verdict.unjudged):
        return _finish_sentence(_verdict_clauses(seen.golden, verdict), seen.run)
    if seen.golden.policy:
        clauses = [f"Policy {_shorten(seen.golden.id)}: {'; '.join(_policy_clauses(seen, seen.golden))}"]
        return _full_sentence(clauses, seen, verdict)
    clauses = [_expected_clause(seen)]
    if verdict is not ALL_MET or any(row.called and row.called.server for row in seen.rows):
        clauses += [*_additional_call_clauses(seen, _over_limit_positions(verdict)), *_defect_clauses(seen)]
        clauses += map(_near_miss_clause, find_near_misses(seen, available_tools))
        clauses += map(_collision_clause, find_collisions(seen))
    if seen.golden.max_calls is not None and len(seen.calls) > seen.golden.max_calls:
        clauses.append(_over_budget_clause(len(seen.calls), seen.golden.max_calls))
    if seen.approximation_reason:
        clauses.append(f"there may be a better pairing, with {seen.approximation_reason}")
    return f"{clauses[0]}." if verdict is ALL_MET and len(clauses) == 1 else _full_sentence(clauses, seen, verdict)


def _full_sentence(clauses: Sequence[str], seen: Comparison, verdict: RunVerdict | None) -> str:
    """The sentence with what the verdict says beyond the rows."""
    if seen.golden is None or verdict is None:
        return _finish_sentence(clauses, None)
    is_in_content = not verdict.broken and any(each.about not in _NOT_CONTENT for each in verdict.unjudged)
    return _finish_sentence([*clauses, *_verdict_clauses(seen.golden, verdict)], seen.run if is_in_content else None)


def _finish_sentence(clauses: Iterable[str], run: Run | None) -> str:
    """The clauses as a sentence, and where it is about a run that was not captured whole what to switch on."""
    told = "; ".join(clauses)
    sentence = f"{told[:1].upper()}{told[1:]}."
    advice = "" if run is None or not run.conventions else _capture_advice(run)
    return f"{sentence} {advice}".rstrip()


def _capture_advice(run: Run) -> str:
    from goldspan.extraction.capture_diagnostics import (
        content_switches,  # it loads every convention, for the few runs that need it
    )

    return content_switches(run)


def _verdict_clauses(golden: Golden, verdict: RunVerdict) -> Iterator[str]:
    """What the verdict says beyond the rows: thresholds, calls too many, and what cannot be judged."""
    beyond = [each.text for each in verdict.broken if each.about not in _ABOUT_ROWS]
    yield from list(dict.fromkeys(beyond))[:_MAX_SHOWN]
    if verdict.accepted and not verdict.broken:
        yield f"accepted: {', '.join(verdict.accepted)}"
    if verdict.unjudged and not verdict.broken:
        lead = {"not_evaluated": "not evaluated", "ignore": "not judged", "fail": "cannot be judged, and so it fails"}
        texts = list(dict.fromkeys(each.text for each in verdict.unjudged))
        more = f", and {len(texts) - _MAX_SHOWN} more" if len(texts) > _MAX_SHOWN else ""
        yield f"{lead[golden.unknown]}: {', '.join(texts[:_MAX_SHOWN])}{more}"


_NOT_CONTENT = frozenset({"agent", "server"})
"""What an instrumentation tells or does not, whether or not it records content."""

_ABOUT_ROWS = frozenset({"missing", "unexpected", "order", "arguments", "result", "forbidden", "max_calls"})
"""What the rest of the sentence tells."""


def _policy_clauses(seen: Comparison, policy: Golden) -> Iterator[str]:
    """What it forbids or limits and was done all the same, else what was kept."""
    over = policy.max_calls is not None and len(seen.calls) > policy.max_calls
    if seen.forbidden:
        names = list(dict.fromkeys(map(_name, seen.forbidden)))
        yield f"{_join_counted(names)} {'is' if len(names) == 1 else 'are'} forbidden"
    elif policy.forbid and not over:
        yield "nothing forbidden was called"
    if policy.max_calls is not None and (over or not seen.forbidden):
        yield _over_budget_clause(len(seen.calls), policy.max_calls)
    elif not policy.forbid:
        yield "it forbids and limits nothing"


def _expected_clause(seen: Comparison) -> str:
    if seen.missing:
        return f"Expected {_missing_clause(seen)}"
    if len(seen.pairs) > 1:
        ordered = "" if False in [pair.in_order for pair in seen.pairs] else ", in order"
        return f"All {len(seen.pairs)} expected tools were called{ordered}"
    if seen.pairs:
        return f"Expected {_names(seen.pairs)} was called"
    if seen.tolerated and any(row.expected for row in seen.tolerated):
        return "No tool had to be called"
    if seen.unexpected or seen.forbidden or _rows_with_note(seen, EXTRA):
        return "No tool was expected"
    return f"No tool was expected and none {'that counts ' if seen.rows else ''}was called"


def _missing_clause(seen: Comparison) -> str:
    """`book_hotel was not called; search was called 1 of 3 times; refund was called by billing, not by support`."""
    by_others = {row.expected_at for row, _ in seen.wrong_agent_pairs}
    missing = [row for row in seen.missing if row.expected_at not in by_others]
    called = {_name(pair) for pair in seen.pairs}
    never = [row for row in missing if _name(row) not in called]
    clauses = [f"{_names(never)} {_was_or_were(never)} not called"] if never else []
    if len(never) < len(missing):
        clauses += _too_few_calls_clauses(seen, missing)
    clauses += starmap(_wrong_agent_clause, seen.wrong_agent_pairs[:_MAX_SHOWN])
    if len(seen.wrong_agent_pairs) > _MAX_SHOWN:
        clauses.append(
            f"{len(seen.wrong_agent_pairs) - _MAX_SHOWN} more calls were made by another agent than expected"
        )
    return "; ".join(clauses)


def _wrong_agent_clause(missing: ComparisonRow, call: ComparisonRow) -> str:
    agents = [tool.agent for tool in alternative_calls(missing.expected) if tool.agent] if missing.expected else []
    made_by = call.called.agent if call.called else None
    return f"{_name(call)} was called by {_shorten(made_by or '')}, not by {' or '.join(map(_shorten, dict.fromkeys(agents)))}"


def _too_few_calls_clauses(seen: Comparison, rows: Sequence[ComparisonRow]) -> Iterator[str]:
    called = Counter(map(_name, seen.pairs))
    missing = Counter(name for row in rows if (name := _name(row)) in called)
    for name, count in list(missing.items())[:_MAX_SHOWN]:
        yield f"{_shorten(name)} was called {called[name]} of {called[name] + count} times"


def _over_limit_positions(verdict: RunVerdict | None) -> set[int | None]:
    """The calls beyond what `times` allows, of which the verdict tells."""
    return {each.called_at for each in verdict.broken if each.about == "times"} if verdict else set()


def _additional_call_clauses(seen: Comparison, elsewhere: Collection[int | None] = ()) -> Iterator[str]:
    """What was called besides the expected calls, without the calls that are told of elsewhere."""
    told = {call.called_at for _, call in seen.wrong_agent_pairs}.union(elsewhere)
    if unexpected := [row for row in seen.unexpected if row.called_at not in told]:
        but = " but not expected" if seen.pairs or seen.missing else ""
        yield f"{_names(unexpected)} {_was_or_were(unexpected)} called{but}"
    if seen.forbidden:
        yield f"{_names(seen.forbidden)} {_was_or_were(seen.forbidden)} called but forbidden"
    if not seen.tolerated:
        return
    if (optional := [row for row in seen.tolerated if row.expected and row.called]) and not seen.pairs:
        yield f"optional {_names(optional)} {_was_or_were(optional)} called"
    if extra := [row for row in _rows_with_note(seen, EXTRA) if row.called_at not in told]:
        yield f"{_names(extra)} {_was_or_were(extra)} called besides, which is allowed"
    if repeated := _rows_with_note(seen, DUPLICATE):
        yield f"{_names(repeated)} {_was_or_were(repeated)} called again, which does not count"


def _rows_with_note(seen: Comparison, note: str) -> list[ComparisonRow]:
    return [row for row in seen.tolerated if row.called and row.note == note]


def _defect_clauses(seen: Comparison) -> Iterator[str]:
    """What is wrong with expected calls that were made."""
    answers = [row for row in seen.rows if row.expected and row.called]
    misplaced = [row for row in answers if row.in_order is False]
    if misplaced and seen.golden and seen.golden.order != "any":
        yield f"{_names(misplaced)} {_was_or_were(misplaced)} called out of order"
    if failed := [row for row in answers if row.called and row.called.error is not None]:
        yield f"{_names(failed)} failed"
    differing = [(row, paths) for row in answers if (paths := _difference_paths(row))]
    for row, paths in differing[:_MAX_SHOWN]:
        yield f"{_names([row])} differs in {_join_counted(paths)}"
        yield from _hint_clauses(row)
    if len(differing) > _MAX_SHOWN:
        yield f"{len(differing) - _MAX_SHOWN} more calls differ"


def _hint_clauses(row: ComparisonRow) -> Iterator[str]:
    """Which matchers would have accepted what differs: `city differs only in case: {folded: ...} accepts it`."""
    for agreement, whole in ((row.agreement, "the arguments"), (row.result_agreement, "the result")):
        for difference in agreement.differences[:_MAX_SHOWN] if agreement else ():
            if difference.hint:
                yield f"{_shorten(difference.key or whole)} {difference.hint}"


def _difference_paths(row: ComparisonRow) -> list[str]:
    """Where a call differs: in which arguments, and where in its result."""
    paths: list[str] = []
    if row.agreement and row.agreement.differences:
        keys = [difference.key for difference in row.agreement.differences]
        paths = keys if all(keys) else ["all its arguments"]
    if row.result_agreement and row.result_agreement.differences:
        keys = [difference.key for difference in row.result_agreement.differences]
        paths += [f"result.{key}" if key else "its result" for key in keys]
    return paths


def _over_budget_clause(made: int, allowed: int) -> str:
    """`12 calls were made and 8 are allowed`."""
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
    """`add is a tool of orders and stock; name the one that is meant, as in orders_add`."""
    name, example = _shorten(shared.name), _shorten(f"{shared.servers[0]}_{shared.name}")
    return f"{name} is a tool of {_join_counted(shared.servers)}; name the one you mean, as in {example}"


def _names(rows: Sequence[ComparisonRow]) -> str:
    """The tools of some rows, each once: `search x2, book and either send_email or send_sms`."""
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
