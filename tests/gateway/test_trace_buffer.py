"""Tests of the trace buffer: it holds spans until they are due, within its limits, and loses none."""

from __future__ import annotations

import random
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.gateway.scoring.trace_buffer import FlushPolicy, TraceBuffer, TraceBufferLimits, TraceGroup
from support.laws import examples

PATIENCE = FlushPolicy(grace=1.0, idle=10.0, late=60.0, lifetime=100.0)
A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))


def new_buffer(patience: FlushPolicy = PATIENCE, **room: int) -> TraceBuffer:
    return TraceBuffer(patience, TraceBufferLimits(**room))


def add(
    held: TraceBuffer, key: Any, entry: int, now: float, *, rooted: bool = False, journal: int = 0, **more: Any
) -> None:
    size, spans = more.get("size", 10), more.get("spans", 1)
    held.add(journal, entry, key, b"part", now, size=size, span_count=spans, has_root=rooted)


def due(held: TraceBuffer, now: float) -> list[TraceGroup]:
    """Returns the due groups and marks each as scored, as the consumer does."""
    found = []
    for group in held.pop_due(now):
        found.append(group)
        held.mark_scored(group)
    return found


def keys(found: list[TraceGroup]) -> list[Any]:
    return [group.keys[0] for group in found]


def test_a_trace_is_due_after_grace_with_its_root_and_after_idle_without() -> None:
    held = new_buffer()
    add(held, A, 1, 0.0)
    add(held, B, 2, 0.0)
    add(held, A, 3, 0.5, rooted=True)
    assert due(held, 1.4) == []
    assert keys(due(held, 1.5)) == [A]
    assert due(held, 9.9) == []
    assert keys(due(held, 10.0)) == [B]


def test_further_spans_postpone_a_trace_up_to_its_lifetime() -> None:
    held = new_buffer()
    for entry in range(1, 1000):
        now = entry / 2
        add(held, A, entry, now, rooted=True)
        found = due(held, now)
        if found:
            break
    assert now == pytest.approx(100.5)


def test_a_late_span_makes_a_scored_trace_due_again_without_chunks_in_memory() -> None:
    held = new_buffer()
    add(held, A, 1, 0.0, rooted=True)
    (group,) = due(held, 1.0)
    assert (group.chunks, group.is_in_memory, held.memory_bytes) == ([], False, 0)
    add(held, A, 7, 30.0)
    assert keys(due(held, 31.0)) == [A]
    assert group.entries_by_journal == {0: [1, 7]}


def test_a_span_of_a_released_trace_starts_a_new_group() -> None:
    held = new_buffer()
    add(held, A, 1, 0.0, rooted=True)
    due(held, 1.0)
    due(held, 61.0)
    assert len(held) == 0
    assert held.oldest_entry(0) is None
    add(held, A, 9, 62.0)
    (group,) = due(held, 72.0)
    assert (group.entries_by_journal, group.revisions) == ({0: [9]}, {})


def test_later_spans_of_a_shed_trace_are_not_scored() -> None:
    held = new_buffer()
    held.shed(0, 1, A, 0.0, span_count=3)
    due(held, 10.0)
    due(held, 100.0)
    assert len(held) == 0
    add(held, A, 9, 101.0, rooted=True)
    (group,) = due(held, 102.0)
    assert group.is_lost
    assert held.unscored_spans == 4


def test_a_scored_trace_without_its_root_is_held_longer() -> None:
    held = new_buffer()
    add(held, A, 1, 0.0)
    due(held, 10.0)
    assert due(held, 599.0) == []
    assert len(held) == 1
    assert due(held, 600.0) == []
    assert len(held) == 0


def test_the_oldest_entry_is_the_first_entry_of_the_held_groups() -> None:
    held = new_buffer()
    add(held, A, 4, 0.0, rooted=True)
    add(held, B, 5, 0.0)
    add(held, A, 6, 0.0, journal=1)
    assert (held.oldest_entry(0), held.oldest_entry(1), held.oldest_entry(2)) == (4, 6, None)
    held.release(held.find(A))  # type: ignore[arg-type]
    assert (held.oldest_entry(0), held.oldest_entry(1)) == (5, None)


def test_joined_groups_have_the_entries_of_both() -> None:
    held = new_buffer()
    add(held, A, 1, 0.0, rooted=True)
    add(held, B, 2, 1.0)
    add(held, B, 3, 1.0, journal=1)
    first, second = held.find(A), held.find(B)
    assert first is not None
    assert second is not None
    joined = held.join_groups([second, first], ("session", "s"))
    assert joined is held.find(A) is held.find(B) is held.find(("session", "s"))
    assert (joined.entries_by_journal, joined.span_count, len(held)) == ({0: [1, 2], 1: [3]}, 3, 1)
    assert held.oldest_entry(0) == 1
    assert keys(due(held, 2.0)) == [B]
    add(held, C, 9, 5.0)
    held.release(joined)
    assert (held.oldest_entry(0), held.oldest_entry(1)) == (9, None)


def test_groups_beyond_max_bytes_lose_only_their_chunks_in_memory() -> None:
    held = new_buffer(max_bytes=25)
    for entry, key in enumerate((A, B, C), start=1):
        add(held, key, entry, 0.0, rooted=True)
    assert held.memory_bytes == 20
    found = due(held, 1.0)
    assert keys(found) == [A, B, C]
    assert [group.entries_by_journal for group in found] == [{0: [1]}, {0: [2]}, {0: [3]}]


def test_groups_beyond_max_groups_are_evicted_oldest_first() -> None:
    held = new_buffer(max_groups=2)
    for entry, key in enumerate((A, B, C), start=1):
        add(held, key, entry, 0.0)
    assert keys(due(held, 0.0)) == [A]
    assert (held.evicted, len(held)) == (1, 2)


def test_a_trace_with_too_many_spans_is_lost_and_its_spans_are_counted() -> None:
    held = new_buffer(max_spans_per_group=5)
    add(held, A, 1, 0.0, spans=3, rooted=True)
    add(held, A, 2, 0.0, spans=3)
    add(held, A, 3, 0.0, spans=2)
    assert (held.unscored_spans, held.memory_bytes) == (8, 0)
    (group,) = due(held, 1.0)
    assert group.is_lost


def test_shedding_an_entry_marks_its_whole_trace_as_lost() -> None:
    held = new_buffer()
    add(held, A, 1, 0.0, spans=3, rooted=True)
    held.shed(0, 2, A, 0.5, span_count=2)
    held.shed(0, 3, B, 0.5, span_count=4)
    add(held, A, 4, 0.6, spans=1)
    assert held.unscored_spans == 10
    assert all(group.is_lost for group in due(held, 20.0))


def test_complete_groups_are_those_with_a_root_that_await_no_session() -> None:
    held = new_buffer()
    add(held, A, 1, 0.0, rooted=True)
    add(held, B, 2, 0.0)
    add(held, C, 3, 0.0, rooted=True)
    held.await_session(held.find(C))  # type: ignore[arg-type]
    assert keys(held.complete_groups()) == [A]


def test_the_next_due_time_is_none_for_an_empty_buffer() -> None:
    held = new_buffer()
    assert held.next_due_time() is None
    add(held, A, 1, 0.0)
    assert held.next_due_time() == 10.0


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans(), st.floats(0, 20)), max_size=60),
    st.sampled_from([2, 1000]),
    st.sampled_from([30, 10_000]),
)
def test_every_entry_is_scored_with_its_trace_and_kept_until_then(
    steps: list[tuple[str, bool, float]], max_groups: int, max_bytes: int
) -> None:
    held = new_buffer(max_groups=max_groups, max_bytes=max_bytes)
    now, seen = 0.0, set()
    for entry, (key, rooted, pause) in enumerate(steps, start=1):
        now += pause
        add(held, key, entry, now, rooted=rooted)
        waiting = {place for place in range(1, entry + 1) if place not in seen}
        oldest = held.oldest_entry(0)
        assert not waiting or (oldest is not None and oldest <= min(waiting))
        for group in held.pop_due(now):
            seen.update(group.entries_by_journal[0])
            held.mark_scored(group)
        assert held.memory_bytes <= max_bytes
        assert len(held) <= max_groups
    for group in held.pop_due(now + 1_000):
        seen.update(group.entries_by_journal[0])
        held.mark_scored(group)
    assert seen == set(range(1, len(steps) + 1))


@pytest.mark.e2e
def test_released_groups_leave_no_first_entries_behind_long_held_groups() -> None:
    held = new_buffer()
    chance = random.Random(5)

    def come() -> int:
        entry = next(entries)
        add(held, entry.to_bytes(16, "big"), entry, 0.0, rooted=True)
        return entry

    def go(entry: int) -> None:
        held.release(held.find(entry.to_bytes(16, "big")))  # type: ignore[arg-type]

    entries = count(1)
    kept = {come() for _ in range(1_000)}
    while kept:
        for entry in chance.sample(sorted(kept), min(len(kept), 200)):
            go(entry)
            kept.remove(entry)
            assert held.oldest_entry(0) == min(kept, default=None)
        for _ in range(10_000):
            go(come())
            assert len(held._first_entries[0]) <= _max_first_entries(len(kept) + 1)


@given(
    st.lists(
        st.sampled_from(["come", "more", "join", "go first", "go last", "go"]).flatmap(
            lambda what: st.tuples(st.just(what), st.integers(1, 40))
        )
        | st.tuples(st.just("come and go"), st.integers(1, 2_000)),
        max_size=15,
    ),
    st.randoms(use_true_random=False),
)
@examples(0.4)
def test_the_oldest_entry_is_correct_after_any_sequence_of_operations(
    steps: list[tuple[str, int]], chance: random.Random
) -> None:
    held = new_buffer()
    model: dict[bytes, dict[int, int]] = {}
    """The first entry in each journal, by group key."""
    keys, entries, most = count(), count(1), 0
    for what, number in [("come", 20), ("more", 20), *steps]:
        for _ in range(number if what.startswith("come") else min(number, len(model) - 1)):
            if what.startswith("come"):
                key, journal, entry = next(keys).to_bytes(16, "big"), chance.randrange(2), next(entries)
                add(held, key, entry, 0.0, journal=journal)
                model[key] = {journal: entry}
                most = max(most, len(model))
            elif what == "more":
                key, journal, entry = _one_of(model, "go", chance), chance.randrange(2), next(entries)
                add(held, key, entry, 0.0, journal=journal)
                model[key].setdefault(journal, entry)
            elif what == "join":
                one, other = _one_of(model, "go", chance), _one_of(model, "go last", chance)
                held.join_groups([held.find(one), held.find(other)], one)  # type: ignore[list-item]
                for journal, entry in model.pop(other).items() if one != other else ():
                    model[one][journal] = min(entry, model[one].get(journal, entry))
            if "go" in what:
                key = _one_of(model, "go last" if what == "come and go" else what, chance)
                held.release(held.find(key))  # type: ignore[arg-type]
                del model[key]
        assert len(held) == len(model)
        for journal in range(2):
            assert len(held._first_entries.get(journal, ())) <= _max_first_entries(most)
            needed = [firsts[journal] for firsts in model.values() if journal in firsts]
            assert held.oldest_entry(journal) == min(needed, default=None)


def test_joining_many_traces_to_a_session_does_not_accumulate_first_entries() -> None:
    held = new_buffer()
    session = ("session", "s")
    add(held, session, 1, 0.0)
    for entry in range(2, 1_500):
        key = entry.to_bytes(16, "big")
        add(held, key, entry, 0.0)
        held.join_groups([held.find(session), held.find(key)], session)  # type: ignore[list-item]
        assert len(held._first_entries[0]) <= _max_first_entries(2)
    assert (len(held), held.oldest_entry(0)) == (1, 1)


def test_groups_can_join_up_to_max_spans_per_group() -> None:
    held = new_buffer(max_spans_per_group=5)
    for entry, key in enumerate((A, B, C), start=1):
        add(held, key, entry, 0.0, spans=2)
    a, b, c = (held.find(key) for key in (A, B, C))
    assert held.can_join(a, b)  # type: ignore[arg-type]
    assert held.can_join(a, a, b)  # type: ignore[arg-type]
    assert not held.can_join(a, b, c)  # type: ignore[arg-type]


def test_the_rest_of_a_shed_session_is_not_scored() -> None:
    held = new_buffer()
    session = ("session", "s")
    held.shed(0, 1, session, 0.0, span_count=0)
    due(held, 10.0)
    due(held, 100.0)
    assert len(held) == 0
    add(held, A, 2, 101.0)
    held.join_groups([held.find(A)], session)  # type: ignore[list-item]
    (group,) = due(held, 111.0)
    assert group.is_lost
    assert held.unscored_spans == 1


def test_replayed_traces_are_held_only_until_the_replay_deadline() -> None:
    held = TraceBuffer(PATIENCE, TraceBufferLimits(), held_until=1_002.0)
    held.add(0, 1, A, b"part", 1_000.0, size=1, span_count=1, has_root=False, arrived=1.0)
    held.add(0, 2, B, b"part", 1_000.0, size=1, span_count=1, has_root=True, arrived=999.0)
    assert keys(due(held, 1_001.0)) == [B]
    held.mark_scored(held.find(A))  # type: ignore[arg-type]
    assert due(held, 1_001.9) == []
    assert len(held) == 2
    assert due(held, 1_002.0) == []
    assert (held.find(A), len(held)) == (None, 1)


def _max_first_entries(held: int) -> int:
    """Returns the maximum number of recorded first entries of a journal for this number of groups."""
    return 4 * held + 1_000


def _one_of(model: dict[bytes, Any], which: str, chance: random.Random) -> bytes:
    """Selects the first group, the last, or any."""
    if which == "go first":
        return next(iter(model))
    return next(reversed(model)) if which == "go last" else chance.choice(list(model))
