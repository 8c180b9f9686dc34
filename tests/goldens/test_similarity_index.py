from __future__ import annotations

import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz import fuzz, process

from goldspan.goldens.lookup import similarity_index
from goldspan.goldens.lookup.similarity_index import (
    NearestText,
    SimilarityIndex,
    TrigramBand,
    greatest_count,
    set_bit_positions,
    trigram_buckets,
    with_count_at_least,
)

ALPHABET = "abcdefghijklmnopqrstuvwxyz "


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the thresholds so that small examples use the code path of large sets, with many bands."""
    _count_few(monkeypatch)


def _count_few(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"_MIN_TEXTS_FOR_BANDS": 0, "_MIN_TEXTS_TO_COUNT": 0, "_BAND_SIZE": 5, "_BUCKETS_PER_ROUND": 4}
    for name, value in sizes.items():
        monkeypatch.setattr(similarity_index, name, value)


def brute_force(text: str, texts: list[str], cutoff: float) -> tuple[int, float] | None:
    found = process.extractOne(text, texts, scorer=fuzz.ratio, score_cutoff=cutoff)
    return (found[2], found[1]) if found else None


def assert_same(near_texts: SimilarityIndex, text: str, texts: list[str], cutoff: float, margin: float = 0.0) -> None:
    near = near_texts.nearest(text, cutoff, margin=margin)
    assert (near and (near.index, near.similarity)) == brute_force(text, texts, cutoff)
    if near is None:
        return
    others = [(-fuzz.ratio(text, other), at) for at, other in enumerate(texts) if other != texts[near.index]]
    ratio, at = min(others, default=(inf, -1))
    if -ratio >= near.similarity - margin:
        assert (near.runner_up, near.runner_up_index) == (-ratio, at)
    else:
        assert (near.runner_up, near.runner_up_index) == (None, None)


# --- laws -------------------------------------------------------------------------------------------------------------

words = st.text(st.sampled_from("ab c"), max_size=12) | st.text(max_size=12) | st.just("")
sentences = st.lists(st.sampled_from(["refund", "order", "please", "my", "4711", "straße", "東京"]), max_size=9).map(
    " ".join
)
texts_of_all_kinds = st.lists(words | sentences, max_size=40)
cutoffs = st.floats(0, 100) | st.sampled_from([0.0, 50.0, 60.0, 75.0, 80.0, 90.0, 100.0])


@given(texts_of_all_kinds, words | sentences, cutoffs, st.sampled_from([0.0, 3.0, 25.0, 100.0]))
def test_nearest_equals_a_comparison_with_all_texts(texts: list[str], text: str, cutoff: float, margin: float) -> None:
    assert_same(SimilarityIndex(texts), text, texts, cutoff, margin)
    with pytest.MonkeyPatch.context() as patch:
        _count_few(patch)
        assert_same(SimilarityIndex(texts), text, texts, cutoff, margin)


@given(st.data(), cutoffs)
def test_nearest_equals_a_full_comparison_for_edited_copies_of_a_text(data: st.DataObject, cutoff: float) -> None:
    texts = data.draw(st.lists(sentences, min_size=1, max_size=40))
    text = list(data.draw(st.sampled_from(texts)))
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 2))] = data.draw(st.text(ALPHABET, max_size=2))
    with pytest.MonkeyPatch.context() as patch:
        _count_few(patch)
        assert_same(SimilarityIndex(texts), "".join(text), texts, cutoff, margin=5.0)


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param((80, 120, ALPHABET), id="sentences"),
        pytest.param((1, 9, ALPHABET), id="very short texts"),
        pytest.param((60, 90, "ab"), id="texts that share all trigrams"),
        pytest.param((20, 40, "".join(map(chr, range(0x4E00, 0x4F00)))), id="Chinese"),
    ],
)
def test_nearest_equals_a_full_comparison_among_thousands_of_texts(shape: tuple[int, int, str]) -> None:
    shortest, longest, alphabet = shape
    chance = random.Random("nearness")
    texts = ["".join(chance.choices(alphabet, k=chance.randint(shortest, longest))) for _ in range(4_000)]
    near_texts = SimilarityIndex(texts)
    for near in chance.sample(texts, 8):
        text = "".join(character for character in near if chance.random() > 0.04)
        for cutoff, margin in ((90.0, 0.0), (90.0, 4.0), (60.0, 0.0), (100.0, 0.0)):
            assert_same(near_texts, text, texts, cutoff, margin)
            assert_same(near_texts, text[::-1], texts, cutoff, margin)


# --- results ----------------------------------------------------------------------------------------------------------


def test_the_first_of_equal_texts_is_nearest_and_the_others_are_not_runners_up() -> None:
    texts = ["cancel it", "refund my order", "refund my order", "refund my older"]
    near = SimilarityIndex(texts).nearest("refund my order", 90, margin=10)
    assert near == NearestText(1, 100.0, fuzz.ratio("refund my order", "refund my older"), 3)


def test_a_runner_up_is_reported_only_within_the_margin() -> None:
    near_texts = SimilarityIndex(["refund my order", "refund my older"])
    assert near_texts.nearest("refund my order", 90) == NearestText(0, 100.0)
    assert near_texts.nearest("refund my order", 90, margin=50) == NearestText(
        0, 100.0, pytest.approx(93.33, abs=0.01), 1
    )


def test_a_runner_up_can_be_below_the_cutoff() -> None:
    near = SimilarityIndex(["refund my order", "refund me"]).nearest("refund my order", 95, margin=60)
    assert near is not None
    assert near.runner_up is not None
    assert near.runner_up < 95


@pytest.mark.parametrize("texts", [pytest.param([], id="no texts"), pytest.param(["refund"], id="other texts")])
def test_nearest_is_none_when_no_text_reaches_the_cutoff(texts: list[str]) -> None:
    assert SimilarityIndex(texts).nearest("what is the weather", 90) is None
    assert len(SimilarityIndex(texts)) == len(texts)


def test_an_empty_text_matches_only_an_empty_text(counting: None) -> None:
    near_texts = SimilarityIndex(["refund", "", "order"])
    assert near_texts.nearest("", 1) == NearestText(1, 100.0)
    assert SimilarityIndex(["refund", "order"]).nearest("", 1) is None


def test_a_text_too_long_for_the_cache_is_still_found() -> None:
    text = "refund my order " * 500
    assert SimilarityIndex([text, "refund"]).nearest(text[:-1], 90) == NearestText(0, pytest.approx(99.99, abs=0.01))


def test_concurrent_lookups_return_correct_results() -> None:
    chance = random.Random("threads")
    texts = ["".join(chance.choices(ALPHABET, k=60)) for _ in range(3_000)]
    near_texts = SimilarityIndex(texts)
    asked = [text[:-3] for text in chance.sample(texts, 50)] * 4
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda text: near_texts.nearest(text, 90), asked))
    assert [near and near.index for near in answers] == [
        texts.index(next(t for t in texts if t[:-3] == a)) for a in asked
    ]


def test_a_similarity_index_survives_pickling() -> None:
    again = pickle.loads(pickle.dumps(SimilarityIndex(["refund", "order"])))
    assert again.nearest("ordre", 70) == SimilarityIndex(["refund", "order"]).nearest("ordre", 70)


# --- counting ---------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.text(ALPHABET, max_size=30), min_size=1, max_size=20), st.text(ALPHABET, max_size=60), st.integers(1, 9)
)
def test_bit_parallel_trigram_counts_equal_counts_text_by_text(texts: list[str], text: str, at_once: int) -> None:
    wanted = sorted(trigram_buckets(text))
    band = TrigramBand(texts)
    counts: list[int] = []
    for start in range(0, len(wanted), at_once):
        counts = band.counts(wanted[start : start + at_once], counts)
    shared = [len(trigram_buckets(text) & trigram_buckets(other)) for other in texts]
    everything = (1 << len(texts)) - 1
    most, having = greatest_count(counts, everything)
    assert most == max(shared)
    assert set_bit_positions(having) == [at for at, count in enumerate(shared) if count == most]
    for least in range(-1, len(wanted) + 3):
        enough = with_count_at_least(counts, least, everything)
        assert set_bit_positions(enough) == [at for at, count in enumerate(shared) if count >= least]


def test_trigram_buckets_depend_only_on_three_consecutive_characters() -> None:
    assert trigram_buckets("a text and order") - trigram_buckets("ABC order") <= trigram_buckets("a text and o")
    assert len(trigram_buckets("xyzxyzxyzxyz")) == len(trigram_buckets("xyzxyz"))


@pytest.mark.parametrize("bits", [0, 1, 1 << 3000, (1 << 3000) - 1, int("10" * 900, 2), (1 << 2000) + (1 << 7) + 1])
def test_set_bit_positions_lists_the_positions_of_all_set_bits(bits: int) -> None:
    assert set_bit_positions(bits) == [at for at in range(bits.bit_length()) if bits >> at & 1]
