"""Tests of time windows and their slices."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.sources.time_window import SliceCursor, TimeWindow, nanoseconds, rfc3339

windows = st.builds(
    lambda start, length: TimeWindow(start, start + length),
    st.integers(0, 2**62),
    st.integers(1, 10**15),
)


@given(window=windows, unit=st.sampled_from([1, 1000, 10**9]), data=st.data())
def test_the_slices_cover_the_window_once(window: TimeWindow, unit: int, data: st.DataObject) -> None:
    cursor: SliceCursor | None = SliceCursor.first(window)
    end_ns, steps = window.end_ns, 0
    while cursor is not None:
        part = cursor.slice_of(window)
        assert part.start_ns < part.end_ns == end_ns
        assert part.start_ns >= window.start_ns
        steps += 1
        has_too_many = steps < 40 and data.draw(st.booleans())
        if has_too_many and (half := cursor.halved(window, unit)):
            assert half.slice_of(window).start_ns > part.start_ns
            cursor = half
            continue
        end_ns, cursor = part.start_ns, cursor.following(window)
    assert end_ns == window.start_ns


@given(window=windows, unit=st.sampled_from([1000, 10**9]))
def test_a_slice_is_halved_until_it_is_one_unit_long(window: TimeWindow, unit: int) -> None:
    cursor, last = SliceCursor.first(window), None
    while (half := cursor.halved(window, unit)) is not None:
        assert half.width_ns % unit == 0
        cursor, last = half, half.width_ns
    assert last in (None, unit)


def test_a_slice_is_read_from_the_state_of_a_folder() -> None:
    cursor = SliceCursor(5_000, 3_000)
    assert SliceCursor.from_json(json.loads(json.dumps(cursor.to_json()))) == cursor


@given(st.integers(0, 4 * 10**18))
def test_a_time_is_the_same_after_it_was_written_with_microseconds(time_ns: int) -> None:
    assert nanoseconds(rfc3339(time_ns)) == time_ns // 1000 * 1000


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("1970-01-01T00:00:01Z", 10**9),
        ("1970-01-01T02:00:01+02:00", 10**9),
        ("1970-01-01T00:00:00.000001", 1000),
        ("2026-11-26T12:00:00.123456Z", 1_795_694_400_123_456_000),
    ],
)
def test_a_time_of_a_tool_is_read(text: str, time_ns: int) -> None:
    assert nanoseconds(text) == time_ns


def test_another_text_is_not_a_time() -> None:
    with pytest.raises(ValueError, match="Invalid isoformat"):
        nanoseconds("yesterday")
