"""Times in every notation that the SDKs write in JSON."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.otlp.decode_results import DecodeError
from goldspan.otlp.sdk_json import duration_field, time_field

NOW = 1_795_186_056_475_100_200


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param(None, None, id="null"),
        pytest.param([0, 0], None, id="a span that has not ended"),
        pytest.param([1795186056, 475100200], NOW, id="pair"),
        pytest.param([1795186056, 475100199.99999994], NOW, id="pair computed in floats"),
        pytest.param(NOW, NOW, id="nanoseconds"),
        pytest.param(str(NOW), NOW, id="nanoseconds as text"),
        pytest.param(1795186056475100.2, 1_795_186_056_475_100_250, id="microseconds as exact as a float holds them"),
        pytest.param(1795186056475, 1_795_186_056_475_000_000, id="milliseconds"),
        pytest.param(1795186056, 1_795_186_056_000_000_000, id="seconds"),
        pytest.param(1795186056.5, 1_795_186_056_500_000_000, id="seconds and a half"),
        pytest.param("2026-11-20T14:47:36.475100Z", 1_795_186_056_475_100_000, id="as Python writes it"),
        pytest.param("2026-11-20T14:47:36.475Z", 1_795_186_056_475_000_000, id="as JavaScript writes a date"),
        pytest.param("2026-11-20T14:47:36.4751002009Z", NOW, id="finer than nanoseconds"),
        pytest.param("2026-11-20T15:47:36+01:00", 1_795_186_056_000_000_000, id="in another time zone"),
        pytest.param("2026-11-20 14:47:36", 1_795_186_056_000_000_000, id="without a time zone"),
    ],
)
def test_every_notation_of_a_time_is_decoded(written, read):
    assert time_field({"startTime": written}, "startTime") == read


@pytest.mark.parametrize(
    "written",
    [
        *("", "soon", "2026-13-20T14:47:36Z", "2026-11-20T25:47:36Z", "20 Nov 2026", "1969-12-31T23:59:59Z"),
        *("9999-01-01T00:00:00Z", "9" * 5000, "-5", "٢", "2026-11-20T14:47:36Z\n"),
        *(True, -1, 2**64, 10**400, float("nan"), float("inf"), {}),
        *([], [1], [1, 2, 3], [1, "2"], [True, 0], [-1, 0], [2**64 - 1, 0], [float("nan"), 0]),
    ],
    ids=lambda written: str(written)[:20],
)
def test_an_invalid_time_is_refused_with_the_name_of_its_field(written):
    with pytest.raises(DecodeError, match="endTime is neither"):
        time_field({"endTime": written}, "endTime")


@given(st.integers(10**17, 2**63))
def test_a_pair_of_seconds_and_nanoseconds_is_decoded_exactly(nanoseconds):
    assert time_field({"time": list(divmod(nanoseconds, 10**9))}, "time") == nanoseconds


@given(st.integers(10**8, 10**10))
def test_text_and_numbers_in_every_unit_decode_to_the_same_time(seconds):
    text = datetime.fromtimestamp(seconds, timezone.utc).isoformat()
    written = [text, [seconds, 0], *(seconds * unit for unit in (1, 10**3, 10**6, 10**9))]
    assert {time_field({"time": each}, "time") for each in written} == {seconds * 10**9}


@pytest.mark.parametrize(
    ("written", "beside", "read"),
    [
        pytest.param(None, 1795186056475100, None, id="none"),
        pytest.param([0, 200], "2026-11-20T14:47:36Z", 200, id="pair beside anything"),
        pytest.param(160.428, 1795186056475100, 160_428, id="microseconds beside microseconds"),
        pytest.param(2.5, 1795186056475, 2_500_000, id="milliseconds beside milliseconds"),
        pytest.param(2.5, "2026-11-20T14:47:36Z", None, id="a number whose unit nobody tells"),
    ],
)
def test_a_duration_has_the_unit_of_its_start_time(written, beside, read):
    assert duration_field({"duration": written}, "duration", start_time=beside) == read


@pytest.mark.parametrize("written", ["long", -1, [1], {}, True])
def test_an_invalid_duration_is_refused(written):
    with pytest.raises(DecodeError, match="duration is neither"):
        duration_field({"duration": written}, "duration", start_time=1795186056475)
