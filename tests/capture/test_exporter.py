"""`TraceReassembler` puts batches of ended spans back into trees."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

from goldspan.capture.exporter import TraceReassembler
from goldspan.online import Limits


def span(name: str, parent: str | None = None, *, trace: int = 1, remote: bool = False) -> ReadableSpan:
    """A span whose id is derived from its name."""
    over = SpanContext(trace, _id(parent), remote) if parent else None
    return ReadableSpan(name, SpanContext(trace, _id(name), False), over)


def _id(name: str) -> int:
    return int.from_bytes(name.encode(), "big")


def names(trees: Iterable[Iterable[ReadableSpan]]) -> list[list[str]]:
    return [[one.name for one in tree] for tree in trees]


def test_children_wait_for_their_root_and_follow_their_parents() -> None:
    gathering = TraceReassembler(Limits())
    assert names(gathering.add([span("grandchild", "child")], 0)) == []
    assert names(gathering.add([span("child", "root")], 1)) == []
    assert len(gathering) == 2
    assert names(gathering.add([span("root")], 2)) == [["root", "child", "grandchild"]]
    assert len(gathering) == 0


def test_a_span_with_a_remote_parent_is_released_as_a_root() -> None:
    gathering = TraceReassembler(Limits())
    assert names(gathering.add([span("tool", "root"), span("root", "caller", remote=True)], 0)) == [["root", "tool"]]


def test_two_requests_in_one_trace_are_released_each_with_its_own_root() -> None:
    gathering = TraceReassembler(Limits())
    batch = [span("a1", "a"), span("b1", "b"), span("a", "caller", remote=True)]
    assert names(gathering.add(batch, 0)) == [["a", "a1"]]
    assert names(gathering.add([span("b", "caller", remote=True)], 1)) == [["b", "b1"]]


def test_a_span_that_arrives_after_its_tree_is_released_immediately() -> None:
    gathering = TraceReassembler(Limits())
    assert names(gathering.add([span("root")], 0)) == [["root"]]
    assert names(gathering.add([span("late", "root")], 1)) == [["late"]]
    assert names(gathering.add([span("later", "late")], 2)) == [["later"]]


def test_a_tree_without_its_root_is_released_after_the_idle_time() -> None:
    gathering = TraceReassembler(Limits(idle=10))
    assert names(gathering.add([span("b", "lost"), span("c", "b")], 0)) == []
    assert names(gathering.add([span("other", "else", trace=2)], 9)) == []
    assert names(gathering.add([], 10)) == [["b", "c"]]
    assert names(gathering.release_all()) == [["other"]]


def test_waiting_spans_are_released_at_the_span_limit() -> None:
    gathering = TraceReassembler(Limits(max_spans=2))
    batch = [span("a", "lost"), span("b", "lost", trace=2), span("c", "lost", trace=2)]
    assert names(gathering.add(batch, 0)) == [["a"]]


def test_spans_with_cyclic_parents_are_released_at_the_end() -> None:
    gathering = TraceReassembler(Limits())
    assert names(gathering.add([span("a", "b"), span("b", "a")], 0)) == []
    assert names(gathering.release_all()) == [["a", "b"]]


PARENTS = {"root": None, "a": "root", "b": "a", "c": "a", "d": "c", "orphan": "lost", "below": "orphan"}


@given(st.permutations(sorted(PARENTS)), st.lists(st.integers(0, len(PARENTS)), max_size=4))
def test_every_span_is_released_once_and_after_its_parent_for_any_order_and_batches(
    order: list[str], cuts: list[int]
) -> None:
    gathering = TraceReassembler(Limits())
    out: list[str] = []
    ends = sorted({0, *cuts, len(order)})
    for start, end in pairwise(ends):
        batch = [span(name, PARENTS[name]) for name in order[start:end]]
        out += [name for tree in names(gathering.add(batch, 0)) for name in tree]
    out += [name for tree in names(gathering.release_all()) for name in tree]
    assert sorted(out) == sorted(PARENTS)
    known = {None, "lost"}
    for name in out:
        assert PARENTS[name] in known
        known.add(name)
