"""Tests of the parsing of times."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan import ConfigurationError
from goldspan.store.query_parameters import format_time, parse_time

NOW = 1_800_000_000 * 10**9
MORNING = 1_769_846_400 * 10**9
"""2026-01-31T08:00:00Z."""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2026-01-31", MORNING - 8 * 3600 * 10**9),
        ("2026-01-31T08:00", MORNING),
        ("2026-01-31 08:00", MORNING),
        ("2026-01-31T08:00:00Z", MORNING),
        ("2026-01-31t08:00:00z", MORNING),
        ("2026-01-31T10:00:00+02:00", MORNING),
        ("2026-01-31T04:30:00-03:30", MORNING),
        ("2026-01-31T08:00:00.5Z", MORNING + 5 * 10**8),
        ("2026-01-31T08:00:00.000000001", MORNING + 1),
        ("1969-12-31T23:59:59.5Z", -5 * 10**8),
        ("0001-01-01T00:00:00+23:59", -62_135_596_800 * 10**9 - 86_340 * 10**9),
        ("9999-12-31T23:59:59-23:59", 253_402_300_799 * 10**9 + 86_340 * 10**9),
        ("24h", NOW - 86_400 * 10**9),
        ("7d", NOW - 7 * 86_400 * 10**9),
    ],
)
def test_a_time_is_a_date_a_date_with_a_time_or_an_age(text: str, told: int) -> None:
    assert parse_time(text, NOW) == told


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "7", "d", "7y", "1234567d", "2026-02-30", "2026-13-01", "2026-01-31T24:30", "26-01-31"),
        *(
            "2026-01-31T08",
            "2026-01-31T08:00:00+24:00",
            "2026-01-31Z",
            "20260131",
            "2026-W05",
            "٢٠٢٦-01-31",
            "0000-01-01",
        ),
        *("2026-01-31T08:00:00 02:00", "2026-01-31T08:00:00.Z", "2026-01-31\n"),
    ],
)
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a time; write it as 2026-01-31, 2026-01-31T08:00 or 7d"):
        parse_time(text, NOW)


@given(st.integers(0, 2**63 - 1))
def test_a_formatted_time_is_parsed_as_the_same_time(time_ns: int) -> None:
    text = format_time(time_ns)
    assert parse_time(text, NOW) == time_ns
    assert datetime.fromisoformat(f"{text[:26]}+00:00") == datetime.fromtimestamp(
        time_ns // 10**9, timezone.utc
    ).replace(microsecond=time_ns // 1000 % 10**6)
