"""Exact nearest-text search by `rapidfuzz.fuzz.ratio`, faster than a comparison of all texts.

The ratio of two texts is 100 * (1 - distance / (length + length)), where the distance is the number of deleted and
inserted characters (Indel distance). A least ratio thus bounds the distance, and the distance bounds the difference of
the lengths and the number of missing trigrams. Neither bound excludes a text that reaches the ratio; the remaining
texts are compared. The search first compares texts that share the most trigrams: their best ratio is a lower bound for
the result.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest
from itertools import compress, islice
from math import ceil, floor, inf
from typing import Any

from rapidfuzz import fuzz, process

_BUCKET_BITS = 11
BUCKET_COUNT = 1 << _BUCKET_BITS
"""The number of hash buckets of trigrams. Two trigrams in one bucket make a bound weaker, never wrong."""
_TRIGRAMS_PER_DELETION = 3
"""How many trigrams a text can lose when one of its characters is deleted."""
_TRIGRAMS_PER_INSERTION = 2
"""How many trigrams a text can lose when a character is inserted."""


def trigram_buckets(text: str) -> set[int]:
    """Returns the buckets of the trigrams of a text, which is padded with two constant characters at its start."""
    buckets: set[int] = set()
    add = buckets.add
    bucket = 0
    for code in map(ord, text):
        bucket = (bucket << _HASH_SHIFT ^ code) & _HASH_MASK  # the shift removes the character before the last three
        add(bucket)
    return buckets


_HASH_SHIFT = -(-_BUCKET_BITS // 3)
_HASH_MASK = BUCKET_COUNT - 1


def max_missing_buckets(length: int, other: int, distance: float) -> float:
    """Returns how many buckets of a text another text can lack, if their Indel distance is at most `distance`.

    `length` and `other` are the lengths of the texts. For `d` deletions and `i` insertions the distance is `d + i` and
    the difference of the lengths is `d - i`. A deletion removes at most three trigrams, an insertion two. (Ukkonen
    1992, "Approximate string-matching with q-grams and maximal matches", theorem 5.1, with separate terms for both.)
    """
    deletions = (distance + length - other) / 2
    return _TRIGRAMS_PER_DELETION * deletions + _TRIGRAMS_PER_INSERTION * (distance - deletions)


class TrigramBand:
    """Counts for each text of a band how many trigram buckets it shares with a query text."""

    __slots__ = ("_bit_planes", "size")

    def __init__(self, texts: Sequence[str]) -> None:
        self.size = len(texts)
        """The number of texts."""
        rows = [bytearray(b"0") * len(texts) for _ in range(BUCKET_COUNT)]
        for position, text in enumerate(texts, 1):
            for bucket in trigram_buckets(text):
                rows[bucket][-position] = 49  # "1"; the first text has the lowest bit
        self._bit_planes = [int(row, 2) for row in rows]

    def frequencies(self) -> Iterator[int]:
        """Yields for each bucket the number of texts that have it."""
        return (plane.bit_count() for plane in self._bit_planes)

    def counts(self, buckets: Iterable[int], initial_counts: Sequence[int] = ()) -> list[int]:
        """Returns how many of the buckets each text has: bit n of bit plane i is bit i of the count of text n.

        The counts are added to `initial_counts`, which have the same form.
        """
        planes: list[int] = []
        level = [plane for bucket in buckets if (plane := self._bit_planes[bucket])]
        remaining = iter(initial_counts)
        while level or initial_counts[len(planes) :]:
            level += islice(remaining, 1)
            carried = []
            while len(level) > 2:
                a, b, c = level.pop(), level.pop(), level.pop()
                odd = a ^ b
                level.append(odd ^ c)
                carried.append(a & b | odd & c)
            if len(level) == 2:
                a, b = level
                level = [a ^ b]
                carried.append(a & b)
            planes += level
            level = carried
        return planes


def greatest_count(counts: Sequence[int], candidates: int) -> tuple[int, int]:
    """Returns the greatest count among the candidates (a bit set of texts), and the candidates that have it."""
    greatest = 0
    for exponent in reversed(range(len(counts))):
        if with_bit := candidates & counts[exponent]:
            candidates = with_bit
            greatest += 1 << exponent
    return greatest, candidates


def with_count_at_least(counts: Sequence[int], minimum: int, candidates: int) -> int:
    """Returns the candidates (a bit set of texts) whose count is at least the minimum."""
    if minimum <= 0:
        return candidates
    if minimum >> len(counts):
        return 0
    greater = 0  # texts whose count is greater than `minimum - 1`, in the bits compared so far
    for exponent, plane in enumerate(counts):
        greater = greater & plane if (minimum - 1) >> exponent & 1 else greater | plane
    return greater & candidates


def set_bit_positions(bits: int) -> list[int]:
    """Returns the positions of the set bits, the lowest first."""
    digits = f"{bits:b}"[::-1]
    if bits.bit_count() * _DENSE_BITS_RATIO > len(digits):
        return list(compress(range(len(digits)), digits.encode().translate(_DIGITS_TO_BOOLS)))
    positions = []
    position = digits.find("1")
    while position >= 0:
        positions.append(position)
        position = digits.find("1", position + 1)
    return positions


_DIGITS_TO_BOOLS = bytes.maketrans(b"01", b"\0\1")
_DENSE_BITS_RATIO = 12
"""If more than one bit in this number is set, visiting all bits is faster than searching for the next set bit."""


_BAND_SIZE = 3072
"""Texts per band. Smaller bands have more similar lengths and tighter bounds; larger bands cost less per text."""
_MIN_TEXTS_FOR_BANDS = 1_000
"""Up to this number of texts, comparing all of them is as fast as counting trigrams."""
_MAX_COUNTED_BUCKETS = 255
"""The number of buckets that are counted: the rarest, which are the most selective."""
_BUCKETS_PER_ROUND = 32
"""The number of buckets that are counted before the search checks whether they suffice."""
_MIN_TEXTS_TO_COUNT = 100
"""Comparing this number of texts costs about as much as one more round of counting."""
_PROBED_BANDS = 2, 4
"""The least and the greatest number of bands that are probed for a likely text before the search checks whether
counting is selective; between them, half of the bands."""
_MAX_MISSING_SHARE = 0.9
"""If more than this share of the buckets may be missing, too many texts share the rest by chance."""
_SCATTERED_ACCESS_SHARE = 2 / 3
"""Comparing this share of the texts in order of length, scattered in memory, costs as much as all in memory order."""
_MAX_PROBED_TEXTS = 8
"""The number of likely texts per band that are compared first."""
_ROUNDING_SLACK = 1e-6
"""Tolerance for rounding. It widens the bounds, so that no text is excluded."""
_CUTOFF_MARGIN = 1e-4
"""How far below a ratio the cutoff must be for rapidfuzz to report a text with that ratio: it rounds one of them."""
_CACHE_SIZE = 1024
"""The number of cached results."""
_MAX_CACHED_LENGTH = 4096
"""The greatest length, in characters, of a query text in the cache, which thus holds a few MiB at most."""


@dataclass(frozen=True, slots=True)
class NearestText:
    """The text nearest to a query text, and the runner-up."""

    index: int
    """The position of the text; the first one if several are equally near."""
    similarity: float
    """The ratio of the text and the query text, 0 to 100."""
    runner_up: float | None = None
    """The ratio of the nearest text that differs from it; `None` if it is lower by more than the margin."""
    runner_up_index: int | None = None
    """The position of the runner-up; the first one if several are equally near."""


class SimilarityIndex:
    """An immutable, thread-safe index that finds the text nearest to a query text.

    Texts are compared without normalization: the caller normalizes both. Building the index takes about 30 microseconds
    and 360 bytes per text of 140 characters. The last 1,024 results are cached, including `None`.
    """

    __slots__ = ("_cached_search", "_search", "_texts")

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = tuple(texts)
        index = _BandedTexts(self._texts)

        def search(text: str, cutoff: float, margin: float) -> NearestText | None:
            return _NearestSearch(index, text).nearest(cutoff, margin)

        self._search = search
        self._cached_search = lru_cache(maxsize=_CACHE_SIZE)(search)

    def __len__(self) -> int:
        return len(self._texts)

    def __reduce__(self) -> tuple[Any, ...]:
        return SimilarityIndex, (self._texts,)

    def nearest(self, text: str, cutoff: float, *, margin: float = 0.0) -> NearestText | None:
        """Returns the text nearest to `text` if its ratio is at least the cutoff (0 to 100), else `None`.

        The result is that of `rapidfuzz.process.extractOne(text, texts, scorer=fuzz.ratio, score_cutoff=cutoff)`. The
        runner-up is exact if its ratio is lower by at most the margin, and omitted otherwise.
        """
        return (self._cached_search if len(text) <= _MAX_CACHED_LENGTH else self._search)(text, cutoff, margin)


class _BandedTexts:
    """The distinct texts, sorted by length and divided into bands."""

    __slots__ = ("_frequencies", "bands", "original_positions", "original_texts", "texts")

    def __init__(self, texts: Sequence[str]) -> None:
        self.original_texts = texts
        """All texts in their original order, which is probably their order in memory."""
        first: dict[str, int] = {}
        for index, text in enumerate(texts):
            first.setdefault(text, index)
        self.texts = sorted(first, key=len)
        self.original_positions = [first[text] for text in self.texts]
        """The position of each sorted text among the original texts."""
        starts = range(0, len(self.texts), _BAND_SIZE) if len(self.texts) > _MIN_TEXTS_FOR_BANDS else ()
        self.bands = [TrigramBand(self.texts[start : start + _BAND_SIZE]) for start in starts]
        self._frequencies = [sum(counts) for counts in zip(*(band.frequencies() for band in self.bands), strict=True)]

    def length_window(self, length: int, ratio: float) -> tuple[int, int]:
        """Returns the range of sorted texts whose lengths allow the ratio for a text of this length."""
        share = ratio / 100
        shortest = ceil(length * share / (2 - share) - _ROUNDING_SLACK)
        start = bisect_left(self.texts, shortest, key=len)
        if share <= _ROUNDING_SLACK:
            return start, len(self.texts)
        longest = floor(length * (2 - share) / share + _ROUNDING_SLACK)
        return start, bisect_right(self.texts, longest, lo=start, key=len)

    def rarest_buckets(self, text: str) -> list[int]:
        """Returns the buckets of the text that are counted."""
        return sorted(trigram_buckets(text), key=self._frequencies.__getitem__)[:_MAX_COUNTED_BUCKETS]


@dataclass(slots=True)
class _BandSlice:
    """The texts of a band whose lengths allow the ratio: positions `start` to `end` (exclusive) of the index."""

    band: int
    start: int
    end: int

    @property
    def bits(self) -> int:
        """Returns these texts as a bit set of the band."""
        return (1 << self.end - self.offset) - (1 << self.start - self.offset)

    @property
    def offset(self) -> int:
        """Returns the position of the first text of the band."""
        return self.band * _BAND_SIZE


class _NearestSearch:
    """The search for one query text. It keeps the trigram counts from one ratio to the next."""

    __slots__ = ("_buckets", "_counters", "_index", "_text", "_unselective_ratio")

    def __init__(self, index: _BandedTexts, text: str) -> None:
        self._index = index
        self._text = text
        self._buckets: list[int] | None = None
        self._unselective_ratio = -inf
        """Up to this ratio, counting excludes too few texts to be worth its cost."""
        self._counters: dict[int, _BucketCounter] = {}

    def nearest(self, cutoff: float, margin: float) -> NearestText | None:
        """See `SimilarityIndex.nearest`."""
        likely = self._best_probed_ratio(cutoff)
        if likely is None and (likely := self._best_ratio(cutoff)) is None:
            return None
        best, *others = nsmallest(2, self._texts_reaching(likely - margin))
        least = -best[0] - margin
        next_best = [(-score, index) for score, index in others if -score >= least]
        return NearestText(best[1], -best[0], *(next_best[0] if next_best else ()))

    def _best_probed_ratio(self, ratio: float) -> float | None:
        """Returns the best ratio of the texts that share the most trigrams, if one of them reaches `ratio`.

        Bands with lengths similar to that of the query text come first: a match there can exclude the other bands.
        """
        found = None
        start, end = self._index.length_window(len(self._text), ratio)
        parts = self._slices_by_length(ratio)
        min_trials, max_trials = _PROBED_BANDS
        trials = min(max_trials, max(min_trials, len(parts) // 2))
        for tried, part in enumerate(parts):
            if tried == trials and found is None and not self._is_filter_selective(ratio):
                return None
            if part.start >= end or part.end <= start or (counter := self._counter_for(part)) is None:
                continue
            count, candidates = greatest_count(counter.counts, part.bits)
            if counter.counted - count > self._max_missing_buckets(part, ratio):
                continue
            likely = [
                self._index.texts[part.offset + place] for place in set_bit_positions(candidates)[:_MAX_PROBED_TEXTS]
            ]
            if (better := self._best_ratio_among(likely, ratio)) is not None:
                found = ratio = better
                start, end = self._index.length_window(len(self._text), ratio)
        return found

    def _best_ratio(self, ratio: float) -> float | None:
        """Returns the best ratio of all texts, if one of them reaches `ratio`."""
        index = self._index
        many = _SCATTERED_ACCESS_SHARE * len(index.original_texts)
        start, end = index.length_window(len(self._text), ratio)
        texts = index.original_texts
        if self._is_filter_selective(ratio):
            texts = [text for texts, _ in self._candidates(ratio) for text in texts]
        elif end - start < many:
            texts = index.texts[start:end]
        return self._best_ratio_among(texts if len(texts) < many else index.original_texts, ratio)

    def _best_ratio_among(self, texts: Sequence[str], ratio: float) -> float | None:
        found = process.extractOne(self._text, texts, scorer=fuzz.ratio, score_cutoff=ratio)
        return found[1] if found else None

    def _texts_reaching(self, ratio: float) -> Iterator[tuple[float, int]]:
        """Yields the negated ratio (the best sorts first) and original position of each text that reaches `ratio`."""
        cutoff = max(0.0, ratio - _CUTOFF_MARGIN)
        for texts, where in self._candidates(ratio):
            found = process.extract(self._text, texts, scorer=fuzz.ratio, score_cutoff=cutoff, limit=None)
            yield from [
                (-score, self._index.original_positions[where[place]]) for _, score, place in found if score >= ratio
            ]

    def _candidates(self, ratio: float) -> Iterator[tuple[list[str], Sequence[int]]]:
        """Yields the texts that may reach the ratio, and their positions in the index, band by band."""
        index = self._index
        if not index.bands:
            window = slice(*index.length_window(len(self._text), ratio))
            yield index.texts[window], range(len(index.texts))[window]
        for part in self._band_slices(ratio):
            near = self._filtered_positions(part, ratio)
            if near is None:
                yield index.texts[part.start : part.end], range(part.start, part.end)
            elif near:
                where = [part.offset + place for place in near]
                yield [index.texts[place] for place in where], where

    def _filtered_positions(self, part: _BandSlice, ratio: float) -> list[int] | None:
        """Returns the positions in the band of the texts that may reach the ratio; `None` for the whole slice."""
        if ratio <= self._unselective_ratio or (counter := self._counter_for(part)) is None:
            return None
        missing = self._max_missing_buckets(part, ratio)
        if not counter.is_selective(missing):
            return None
        near = counter.with_at_most_missing(missing, part.bits)
        while near.bit_count() > _MIN_TEXTS_TO_COUNT and counter.count_more():
            near = counter.with_at_most_missing(missing, part.bits)
        if near.bit_count() * 2 > part.end - part.start:
            self._unselective_ratio = ratio
            return None
        return set_bit_positions(near)

    def _max_missing_buckets(self, part: _BandSlice, ratio: float) -> int:
        """Returns how many buckets a text of the slice can lack. The bound is linear in the length of the text."""
        texts, length = self._index.texts, len(self._text)
        ends = len(texts[part.start]), len(texts[part.end - 1])
        return floor(
            max(max_missing_buckets(length, end, (1 - ratio / 100) * (length + end)) for end in ends) + _ROUNDING_SLACK
        )

    def _band_slices(self, ratio: float) -> Iterator[_BandSlice]:
        start, end = self._index.length_window(len(self._text), ratio)
        if start < end:
            for band in range(start // _BAND_SIZE, min(len(self._index.bands), (end - 1) // _BAND_SIZE + 1)):
                yield _BandSlice(band, max(start, band * _BAND_SIZE), min(end, (band + 1) * _BAND_SIZE))

    def _slices_by_length(self, ratio: float) -> list[_BandSlice]:
        """Returns the slices, those with lengths most similar to that of the query text first."""
        middle = self._index.length_window(len(self._text), 100)[0]
        return sorted(self._band_slices(ratio), key=lambda part: abs(part.start + part.end - 2 * middle))

    def _is_filter_selective(self, ratio: float) -> bool:
        """Whether counting excludes most texts of the most similar lengths; otherwise it does not help elsewhere."""
        large = (part for part in self._slices_by_length(ratio) if part.end - part.start > _MIN_TEXTS_TO_COUNT)
        return (part := next(large, None)) is not None and self._filtered_positions(part, ratio) is not None

    def _counter_for(self, part: _BandSlice) -> _BucketCounter | None:
        """Returns the counter of a band; `None` if the slice is so small that comparing its texts is as fast."""
        if part.end - part.start <= _MIN_TEXTS_TO_COUNT:
            return None
        if part.band not in self._counters:
            if self._buckets is None:
                self._buckets = self._index.rarest_buckets(self._text)
            self._counters[part.band] = _BucketCounter(self._index.bands[part.band], self._buckets)
        return self._counters[part.band]


class _BucketCounter:
    """Counts in rounds how many of the given buckets each text of a band has."""

    __slots__ = ("_band", "_buckets", "counted", "counts")

    def __init__(self, band: TrigramBand, buckets: Sequence[int]) -> None:
        self._band = band
        self._buckets = buckets
        self.counted = 0
        self.counts: list[int] = []
        """Bit planes, as `TrigramBand.counts` returns them."""
        self.count_more()

    def count_more(self) -> bool:
        """Counts the next buckets. Returns whether there were any."""
        further = self._buckets[self.counted : self.counted + _BUCKETS_PER_ROUND]
        self.counts = self._band.counts(further, self.counts)
        self.counted += len(further)
        return bool(further)

    def is_selective(self, max_missing: int) -> bool:
        """Whether counting can exclude texts if a text may lack this many of the buckets."""
        return max_missing < _MAX_MISSING_SHARE * len(self._buckets)

    def with_at_most_missing(self, max_missing: int, candidates: int) -> int:
        """Returns the candidates (a bit set of texts) that lack at most this many of the counted buckets."""
        return with_count_at_least(self.counts, self.counted - max_missing, candidates)
