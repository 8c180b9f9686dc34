"""Which traces are extracted together."""

from __future__ import annotations

import pytest

from goldspan.batch.link_groups import LinkWriter, TraceGroups
from goldspan.extraction.trace_links import ANY_SIDE, TraceLink

ONE, OTHER = 1, 2


@pytest.fixture
def groups(tmp_path):
    """The groups of traces with these links; half of them are in a second file."""

    def groups(*links):
        files = []
        half = len(links) // 2
        for number, (first, part) in enumerate([(0, links[:half]), (half, links[half:])]):
            writer = LinkWriter(tmp_path / str(number))
            for trace, own in enumerate(part):
                writer.add(own, trace)
            files.append((writer.finish(), first))
        found = TraceGroups(len(links))
        found.join(files)
        by_root = {}
        for trace, root in sorted(found.members().items()):
            by_root.setdefault(root, []).append(trace)
        return sorted(by_root.values())

    return groups


def test_traces_with_a_key_on_different_sides_are_connected(groups):
    assert groups([TraceLink(7, ONE)], [TraceLink(7, OTHER)], [TraceLink(8, ONE)], [TraceLink(8, ONE)]) == [[0, 1]]


def test_a_key_for_any_side_connects_all_traces_that_have_it(groups):
    assert groups([TraceLink(7, ANY_SIDE)], [], [TraceLink(7, ANY_SIDE)], [TraceLink(9, ANY_SIDE)]) == [[0, 2]]


def test_a_single_trace_on_both_sides_is_connected_with_none(groups):
    assert groups([TraceLink(7, ONE), TraceLink(7, OTHER)], [TraceLink(8, ONE)]) == []


def test_traces_are_connected_only_without_a_gap_in_time(groups):
    links = [
        [TraceLink(7, ONE, 0, 10)],
        [TraceLink(7, OTHER, 10, 20)],
        [TraceLink(7, OTHER, 21, 30)],
        [TraceLink(7, OTHER, 25, 26)],
    ]
    assert groups(*links) == [[0, 1]]


def test_traces_are_connected_through_others(groups):
    links = [[TraceLink(1, ANY_SIDE)], [TraceLink(1, ANY_SIDE), TraceLink(2, ONE)], [TraceLink(2, OTHER)], []]
    assert groups(*links) == [[0, 1, 2]]


def test_a_group_is_active_from_its_first_trace_to_its_last(groups):
    links = [
        [TraceLink(1, ANY_SIDE), TraceLink(2, ONE, 0, 10)],
        [TraceLink(1, ANY_SIDE), TraceLink(2, ONE, 90, 100)],
        [TraceLink(2, OTHER, 50, 60)],  # between the two traces, which are one group
        [TraceLink(2, OTHER, 150, 160)],
    ]
    assert groups(*links) == [[0, 1, 2]]


def test_many_links_are_written_in_pieces(groups):
    many = [TraceLink(64 * number, ONE, 0, number) for number in range(5000)]
    assert groups(many, [TraceLink(64 * 4999, OTHER)], [TraceLink(64 * 5000, OTHER)]) == [[0, 1]]
