"""How texts, times and numbers are formatted for display."""

from __future__ import annotations

import unicodedata
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.web import display_text

_NOTHING_TO_SEE = ("Cc", "Cs")
_S = 10**9
_WRITTEN = st.text(st.characters(exclude_categories=("Cs",)), min_size=1)


@given(st.text(st.characters(exclude_categories=())))
def test_escaped_text_contains_no_invisible_or_direction_characters(text: str) -> None:
    shown = display_text.escape_invisible(text)
    hidden = [each for each in shown if unicodedata.category(each) in _NOTHING_TO_SEE and each not in "\t\n"]
    assert hidden == []
    assert not any(each in shown for each in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
    shown.encode()  # it can be encoded


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs"))))
def test_visible_characters_are_not_escaped(text: str) -> None:
    assert display_text.escape_invisible(text) == text


def test_line_breaks_and_joined_emoji_are_not_escaped() -> None:
    assert display_text.escape_invisible("a\n\tb 👩\u200d🚀") == "a\n\tb 👩\u200d🚀"


def test_tags_and_joiners_that_hide_text_are_escaped() -> None:
    assert display_text.escape_invisible("\u200b\ufeff\U000e0041") == "⟨U+200B⟩⟨U+FEFF⟩⟨U+E0041⟩"


@pytest.mark.parametrize(
    ("nanoseconds", "told"),
    [
        (None, "not known"),
        (-1, "not known"),
        (0, "0 ns"),
        (999, "999 ns"),
        (1_500, "1.5 µs"),
        (999_400, "999 µs"),
        (999_600, "1 ms"),
        (999_999_999, "1 s"),
        (40_000_000, "40 ms"),
        (_S, "1 s"),
        (59 * _S, "59 s"),
        (60 * _S, "1 min 0 s"),
        (3_725 * _S, "62 min 5 s"),
    ],
)
def test_a_duration_is_shown_in_the_suitable_unit(nanoseconds: int | None, told: str) -> None:
    assert display_text.duration(nanoseconds) == told


@given(st.integers(0, 10**15))
def test_a_duration_never_uses_scientific_notation(nanoseconds: int) -> None:
    assert "e" not in display_text.duration(nanoseconds)


@pytest.mark.parametrize(
    ("share", "told"),
    [
        (None, "not known"),
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.00001, "0.1 %"),
        (0.99999, "99.9 %"),
        (0.5, "50.0 %"),
    ],
)
def test_a_percentage_is_rounded_to_0_or_100_only_if_it_is_exact(share: float | None, told: str) -> None:
    assert display_text.percent(share) == told


@pytest.mark.parametrize(
    ("value", "told"),
    [(None, "—"), (0.0, "0"), (1.0, "1"), (0.5, "0.5"), (1 / 3, "0.3333"), (10.0, "10"), (100, "100")],
)
def test_a_score_has_four_digits_at_most(value: float | None, told: str) -> None:
    assert display_text.number(value) == told


def test_counts_have_a_unit_and_thin_space_separators() -> None:
    assert display_text.plural(0, "run") == "0 runs"
    assert display_text.plural(1, "run") == "1 run"
    assert display_text.plural(1_234_567, "run") == "1\u202f234\u202f567 runs"
    assert display_text.grouped(999) == "999"


def test_times_are_formatted_as_iso_8601_and_as_readable_utc() -> None:
    moment = 1_767_225_600_123_456_789
    assert display_text.instant(moment) == "2026-01-01T00:00:00.123Z"
    assert display_text.instant_utc(moment) == "2026-01-01 00:00:00 UTC"


@given(_WRITTEN)
def test_an_address_decodes_to_its_id_and_contains_no_special_characters(name: str) -> None:
    for address, before in (
        (display_text.run_address(name), "/runs/"),
        (display_text.golden_address(name), "/goldens/"),
    ):
        assert unquote(address.removeprefix(before)) == name
        assert address.isascii()
        assert not {*"?#%&\"'<> "} & {*address.replace("%", "", address.count("%"))}
        assert urlsplit(address)[:2] == ("", "")


def test_addresses_may_contain_a_revision_and_filters() -> None:
    assert display_text.run_address("a:1", 2) == "/runs/a:1?revision=2"
    assert display_text.run_address("\ud800") == "/runs/%3F"
    assert display_text.list_address() == display_text.list_address(text="", agent=None) == "/"
    assert display_text.list_address(text="a b&c", below=0.5) == "/?text=a+b%26c&below=0.5"
    assert display_text.list_address(text="\ud800") == "/?text=%3F"


@given(st.dictionaries(st.sampled_from(("text", "agent", "tool")), _WRITTEN))
def test_the_address_of_a_list_contains_its_filters(filters: dict[str, str]) -> None:
    assert dict(parse_qsl(urlsplit(display_text.list_address(**filters)).query)) == filters
