"""Normalized texts are equal whatever their case, white space and Unicode composition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.goldens.text_matching import normalize_text

E_ACUTE, ACUTE = "\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{COMBINING ACUTE ACCENT}"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param("New York", " new\t YORK\n", True, id="case and white space"),
        pytest.param("New York", "NewYork", False, id="words"),
        pytest.param(f"Caf{E_ACUTE}", f"CAFE{ACUTE}", True, id="composition"),
        pytest.param(f"Caf{E_ACUTE}" * 500, f"CAFE{ACUTE}" * 500, True, id="composition in a long text"),
        pytest.param("Straße", "STRASSE", True, id="case that changes the length"),
        pytest.param("", " \n", True, id="nothing but white space"),
        pytest.param("ok", "ok.", False, id="punctuation"),
    ],
)
def test_texts_are_equal_whatever_their_case_white_space_and_composition(one: str, other: str, same: bool) -> None:
    assert (normalize_text(one) == normalize_text(other)) is same


def test_none_is_normalized_to_an_empty_text() -> None:
    assert normalize_text(None) == ""


@pytest.mark.e2e
def test_a_sequence_of_millions_of_combining_accents_is_not_normalized() -> None:
    accents = "a" + f"{ACUTE}\N{COMBINING CEDILLA}" * 5_000_000
    assert normalize_text(accents) == accents


@given(st.text())
def test_normalization_is_idempotent(text: str) -> None:
    assert normalize_text(normalize_text(text)) == normalize_text(text)
