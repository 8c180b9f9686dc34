"""Patterns match whole texts in bounded time, and an invalid pattern is refused with the reason."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.goldens.text_matching import compile_regex


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        pytest.param("(", "unclosed group", id="a parenthesis"),
        pytest.param("a)(b", "unopened group", id="parentheses the wrong way round"),
        pytest.param("*", "repetition operator missing expression", id="nothing to repeat"),
        pytest.param("(?=a)b", "look-around, including look-ahead and look-behind, is not supported", id="look-around"),
        pytest.param(r"(a)\1", "backreferences are not supported", id="a back-reference"),
        pytest.param(r"\w{5000}", "Compiled regex exceeds size limit of 10485760 bytes.", id="too large"),
    ],
)
def test_an_unsupported_pattern_is_refused_with_the_reason(wrong: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        compile_regex(wrong)


@pytest.mark.parametrize(
    ("text", "longest"),
    [
        pytest.param("", 100_000, id="no pattern"),
        pytest.param(r"\d+", 100_000, id="a light one"),
        pytest.param("(a|aa)+b*", 100_000, id="one that other engines despair of"),
        pytest.param("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", 55_555, id="a UUID"),
        pytest.param("a{1000}", 2_000, id="many states"),
        pytest.param("(?:a{0,100}){100}", 194, id="repetitions of repetitions"),
        pytest.param(r"(?:(?:ab)[{}]{3,}\)\({50}){20}", 1_612, id="with what only looks like one"),
        pytest.param("(?:a{300}|b){300}", 21, id="as heavy as can be"),
    ],
)
def test_the_maximum_text_length_shrinks_with_the_cost_of_the_pattern(text: str, longest: int) -> None:
    ready = compile_regex(text)
    assert ready.max_text_length == longest
    assert not ready.matches_whole("a" * (longest + 1))


def test_an_expensive_pattern_still_matches_correctly() -> None:
    assert compile_regex("a{1000}").matches_whole("a" * 1000)
    assert not compile_regex("a{1000}").matches_whole("a" * 999)
    assert compile_regex("a{1000}").worst_case_microseconds("a" * 1000) == 50_000


@given(st.sampled_from(["a", "a*", "a|b", "(ab)+", "[ab]{2}", "a.b", "(?i)ab"]), st.text("abAB\n", max_size=4))
def test_simple_patterns_match_the_same_texts_as_in_the_re_module(text: str, candidate: str) -> None:
    assert compile_regex(text).matches_whole(candidate) is (re.fullmatch(text, candidate) is not None)
