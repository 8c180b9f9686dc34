"""The text nearest to another among many, by `rapidfuzz.fuzz.ratio`: the answer of comparing all, sooner.

The ratio of two texts is 100 * (1 - distance / (length + length)), where the distance counts the characters that are
deleted and inserted (Indel). So a ratio that must be reached says how great the distance may be, and that how far
lengths may differ and how many trigrams may be missing. Both are bounds that never leave out a text that reaches it;
what they leave is compared. A likely text is compared first: what it reaches, the answer must reach.
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
"""How many kinds of trigrams are told apart. Two trigrams of one kind make a bound weaker, never wrong."""
_TRIGRAMS_PER_DELETION = 3
"""How many trigrams of a text may go with one of its characters."""
_TRIGRAMS_PER_INSERTION = 2
"""How many trigrams of a text may go where a character is put in between."""


def trigram_buckets(text: str) -> set[int]:
    """The kinds of the trigrams of a text, before which two more characters are thought, the same for every text."""
    found: set[int] = set()
    add = found.add
    kind = 0
    for code in map(ord, text):
        kind = (kind << _HASH_SHIFT ^ code) & _HASH_MASK  # what was there three characters ago is shifted out
        add(kind)
    return found


_HASH_SHIFT = -(-_BUCKET_BITS // 3)
_HASH_MASK = BUCKET_COUNT - 1


def max_missing_buckets(length: int, other: int, distance: float) -> float:
    """How many kinds of a text of that length another may lack at most, if their Indel distance is no greater.

    Where `d` characters are deleted and `i` inserted, `d + i` is the distance and `d - i` the difference of lengths;
    a deletion takes at most three trigrams away and an insertion two. (Ukkonen 1992, "Approximate string-matching with
    q-grams and maximal matches", theorem 5.1, with both told apart.)
    """
    deletions = (distance + length - other) / 2
    return _TRIGRAMS_PER_DELETION * deletions + _TRIGRAMS_PER_INSERTION * (distance - deletions)


class TrigramBand:
    """Some texts, of which it is counted how many kinds of trigrams they share with another."""

    __slots__ = ("_bit_planes", "size")

    def __init__(self, texts: Sequence[str]) -> None:
        self.size = len(texts)
        """How many texts there are."""
        rows = [bytearray(b"0") * len(texts) for _ in range(BUCKET_COUNT)]
        for place, text in enumerate(texts, 1):
            for kind in trigram_buckets(text):
                rows[kind][-place] = 49  # "1"; the first text has the lowest bit
        self._bit_planes = [int(row, 2) for row in rows]

    def frequencies(self) -> Iterator[int]:
        """Of how many texts each kind is a part."""
        return (plane.bit_count() for plane in self._bit_planes)

    def counts(self, buckets: Iterable[int], initial_counts: Sequence[int] = ()) -> list[int]:
        """How many of these kinds each text has, in columns: bit n of number i is bit i of the count of text n.

        `onto`: what was counted of others, to go on from.
        """
        columns: list[int] = []
        level = [plane for kind in buckets if (plane := self._bit_planes[kind])]
        rest = iter(initial_counts)
        while level or initial_counts[len(columns) :]:
            level += islice(rest, 1)
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
            columns += level
            level = carried
        return columns


def greatest_count(counts: Sequence[int], candidates: int) -> tuple[int, int]:
    """The greatest count among some texts (the bits of a number), and the texts that have it."""
    most = 0
    for place in reversed(range(len(counts))):
        if having := candidates & counts[place]:
            candidates = having
            most += 1 << place
    return most, candidates


def with_count_at_least(counts: Sequence[int], minimum: int, candidates: int) -> int:
    """Those of some texts (the bits of a number) whose count is no less."""
    if minimum <= 0:
        return candidates
    if minimum >> len(counts):
        return 0
    more = 0  # those whose count is greater than one less
    for place, column in enumerate(counts):
        more = more & column if (minimum - 1) >> place & 1 else more | column
    return more & candidates


def set_bit_positions(bits: int) -> list[int]:
    """Which bits are set, the lowest first."""
    digits = f"{bits:b}"[::-1]
    if bits.bit_count() * _DENSE_BITS_RATIO > len(digits):
        return list(compress(range(len(digits)), digits.encode().translate(_DIGITS_TO_BOOLS)))
    found = []
    at = digits.find("1")
    while at >= 0:
        found.append(at)
        at = digits.find("1", at + 1)
    return found


_DIGITS_TO_BOOLS = bytes.maketrans(b"01", b"\0\1")
_DENSE_BITS_RATIO = 12
"""Where more than one bit in so many is set, going through all of them is faster than going from one to the next."""


_BAND_SIZE = 3072
"""How many texts are counted at once. Fewer differ less in length and are told apart better; more cost less each."""
_MIN_TEXTS_FOR_BANDS = 1_000
"""So many texts are all compared about as fast as something is known of all of them."""
_MAX_COUNTED_BUCKETS = 255
"""How many kinds of trigrams are counted: the rarest, which tell the most."""
_BUCKETS_PER_ROUND = 32
"""How many of them are counted before it is seen whether that is enough."""
_MIN_TEXTS_TO_COUNT = 100
"""How many texts of a band cost as much to compare as some more kinds cost to count."""
_PROBED_BANDS = 2, 4
"""In how many bands a likely text is looked for before it is seen whether counting tells much: half of them, from the
one to the other."""
_MAX_MISSING_SHARE = 0.9
"""What share of the kinds may be missing at most: texts that share the rest by chance are too many beyond it."""
_SCATTERED_ACCESS_SHARE = 2 / 3
"""What share of the texts costs as much in order of length, here and there in memory, as all do in order of theirs."""
_MAX_PROBED_TEXTS = 8
"""How many of the likeliest texts are compared before all that are likely enough."""
_ROUNDING_SLACK = 1e-6
"""What rounding may cost. The bounds are wider by it, which leaves out nothing."""
_CUTOFF_MARGIN = 1e-4
"""How much lower than a ratio a cutoff must be for rapidfuzz to say that it is reached: it rounds one of them."""
_CACHE_SIZE = 1024
"""How many answers are remembered."""
_MAX_CACHED_LENGTH = 4096
"""Up to how many characters a text is remembered with its answer: a few MiB at most for all of them."""


@dataclass(frozen=True, slots=True)
class NearestText:
    """The text nearest to another, and the one that comes next."""

    index: int
    """Where it stands among the texts: the first of those that are as near."""
    similarity: float
    """The ratio of the two texts, 0 to 100."""
    runner_up: float | None = None
    """The ratio of the nearest of all texts that differ from it; `None` where that is less by more than the margin."""
    runner_up_index: int | None = None
    """Where that one stands: the first of those that are as near."""


class SimilarityIndex:
    """Texts, prepared so that the one nearest to another is found soon. Never changes; any thread may ask.

    Texts are compared as they are: whoever asks has normalized both. Preparing is done once, here, and takes some 30
    microseconds for a text of 140 characters; it keeps about 360 bytes of it beside the text itself. The last 1,024
    answers are remembered, also that there is none.
    """

    __slots__ = ("_answer", "_search", "_texts")

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = tuple(texts)
        index = _BandedTexts(self._texts)

        def search(text: str, cutoff: float, margin: float) -> NearestText | None:
            return _NearestSearch(index, text).nearest(cutoff, margin)

        self._search = search
        self._answer = lru_cache(maxsize=_CACHE_SIZE)(search)

    def __len__(self) -> int:
        return len(self._texts)

    def __reduce__(self) -> tuple[Any, ...]:
        return SimilarityIndex, (self._texts,)

    def nearest(self, text: str, cutoff: float, *, margin: float = 0.0) -> NearestText | None:
        """The text nearest to this one, if its ratio is at least the cutoff (0 to 100), else `None`.

        It is that of `rapidfuzz.process.extractOne(text, texts, scorer=fuzz.ratio, score_cutoff=cutoff)`, always. The
        runner-up is exact where its ratio is less by no more than the margin, and left out otherwise.
        """
        return (self._answer if len(text) <= _MAX_CACHED_LENGTH else self._search)(text, cutoff, margin)


class _BandedTexts:
    """The different texts, the shortest first, in bands."""

    __slots__ = ("_frequencies", "bands", "original_positions", "original_texts", "texts")

    def __init__(self, texts: Sequence[str]) -> None:
        self.original_texts = texts
        """All of them as they were given, which is how they most likely stand in memory."""
        first: dict[str, int] = {}
        for index, text in enumerate(texts):
            first.setdefault(text, index)
        self.texts = sorted(first, key=len)
        self.original_positions = [first[text] for text in self.texts]
        """Where each of them stands among those that were given."""
        starts = range(0, len(self.texts), _BAND_SIZE) if len(self.texts) > _MIN_TEXTS_FOR_BANDS else ()
        self.bands = [TrigramBand(self.texts[start : start + _BAND_SIZE]) for start in starts]
        self._frequencies = [sum(each) for each in zip(*(band.frequencies() for band in self.bands), strict=True)]

    def length_window(self, length: int, ratio: float) -> tuple[int, int]:
        """From which to before which text lengths are near enough to this one for that ratio."""
        share = ratio / 100
        shortest = ceil(length * share / (2 - share) - _ROUNDING_SLACK)
        start = bisect_left(self.texts, shortest, key=len)
        if share <= _ROUNDING_SLACK:
            return start, len(self.texts)
        longest = floor(length * (2 - share) / share + _ROUNDING_SLACK)
        return start, bisect_right(self.texts, longest, lo=start, key=len)

    def rarest_buckets(self, text: str) -> list[int]:
        """The kinds of trigrams of that text that are counted."""
        return sorted(trigram_buckets(text), key=self._frequencies.__getitem__)[:_MAX_COUNTED_BUCKETS]


@dataclass(slots=True)
class _BandSlice:
    """What of a band has lengths that come into question: the texts from `start` to before `end` of the index."""

    band: int
    start: int
    end: int

    @property
    def bits(self) -> int:
        """These texts, as bits of the band."""
        return (1 << self.end - self.offset) - (1 << self.start - self.offset)

    @property
    def offset(self) -> int:
        """Where the band begins."""
        return self.band * _BAND_SIZE


class _NearestSearch:
    """One text beside all others. What was counted for one ratio stays for the next."""

    __slots__ = ("_buckets", "_counters", "_index", "_text", "_unselective_ratio")

    def __init__(self, index: _BandedTexts, text: str) -> None:
        self._index = index
        self._text = text
        self._buckets: list[int] | None = None
        self._unselective_ratio = -inf
        """Up to which ratio counting told too few texts apart to be worth it."""
        self._counters: dict[int, _BucketCounter] = {}

    def nearest(self, cutoff: float, margin: float) -> NearestText | None:
        """See `NearTexts.nearest`."""
        likely = self._best_probed_ratio(cutoff)
        if likely is None and (likely := self._best_ratio(cutoff)) is None:
            return None
        best, *others = nsmallest(2, self._texts_reaching(likely - margin))
        least = -best[0] - margin
        next_best = [(-score, index) for score, index in others if -score >= least]
        return NearestText(best[1], -best[0], *(next_best[0] if next_best else ()))

    def _best_probed_ratio(self, ratio: float) -> float | None:
        """The best ratio of the texts that share most, band by band, if one of them reaches this one.

        Bands with lengths like the text's come first: what is found there may leave nothing to look for elsewhere.
        """
        found = None
        start, end = self._index.length_window(len(self._text), ratio)
        parts = self._slices_by_length(ratio)
        fewest, most = _PROBED_BANDS
        trials = min(most, max(fewest, len(parts) // 2))
        for tried, part in enumerate(parts):
            if tried == trials and found is None and not self._is_filter_selective(ratio):
                return None
            if part.start >= end or part.end <= start or (tally := self._counter_for(part)) is None:
                continue
            count, having = greatest_count(tally.counts, part.bits)
            if tally.counted - count > self._max_missing_buckets(part, ratio):
                continue
            likely = [self._index.texts[part.offset + place] for place in set_bit_positions(having)[:_MAX_PROBED_TEXTS]]
            if (better := self._best_ratio_among(likely, ratio)) is not None:
                found = ratio = better
                start, end = self._index.length_window(len(self._text), ratio)
        return found

    def _best_ratio(self, ratio: float) -> float | None:
        """The best ratio of all texts, if one of them reaches this one."""
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
        """All texts that reach that ratio: what theirs is, below zero so that the best sorts first, and their index."""
        cutoff = max(0.0, ratio - _CUTOFF_MARGIN)
        for texts, where in self._candidates(ratio):
            found = process.extract(self._text, texts, scorer=fuzz.ratio, score_cutoff=cutoff, limit=None)
            yield from [
                (-score, self._index.original_positions[where[place]]) for _, score, place in found if score >= ratio
            ]

    def _candidates(self, ratio: float) -> Iterator[tuple[list[str], Sequence[int]]]:
        """The texts that may reach that ratio, and where they stand in the index, band by band."""
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
        """The places in the band of those that may reach that ratio; `None` for all of the part."""
        if ratio <= self._unselective_ratio or (tally := self._counter_for(part)) is None:
            return None
        missing = self._max_missing_buckets(part, ratio)
        if not tally.is_selective(missing):
            return None
        near = tally.with_at_most_missing(missing, part.bits)
        while near.bit_count() > _MIN_TEXTS_TO_COUNT and tally.count_more():
            near = tally.with_at_most_missing(missing, part.bits)
        if near.bit_count() * 2 > part.end - part.start:
            self._unselective_ratio = ratio
            return None
        return set_bit_positions(near)

    def _max_missing_buckets(self, part: _BandSlice, ratio: float) -> int:
        """How many kinds of trigrams a text of that part may lack, at most. It is linear in the length of the text."""
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
        """The parts, the one with lengths most like the text's first."""
        middle = self._index.length_window(len(self._text), 100)[0]
        return sorted(self._band_slices(ratio), key=lambda part: abs(part.start + part.end - 2 * middle))

    def _is_filter_selective(self, ratio: float) -> bool:
        """Whether counting leaves few of the texts whose lengths are most like the text's: if not, then of none."""
        large = (part for part in self._slices_by_length(ratio) if part.end - part.start > _MIN_TEXTS_TO_COUNT)
        return (part := next(large, None)) is not None and self._filtered_positions(part, ratio) is not None

    def _counter_for(self, part: _BandSlice) -> _BucketCounter | None:
        """The counts of a band; `None` where so little of it comes into question that comparing is as fast."""
        if part.end - part.start <= _MIN_TEXTS_TO_COUNT:
            return None
        if part.band not in self._counters:
            if self._buckets is None:
                self._buckets = self._index.rarest_buckets(self._text)
            self._counters[part.band] = _BucketCounter(self._index.bands[part.band], self._buckets)
        return self._counters[part.band]


class _BucketCounter:
    """How many of some kinds of trigrams each text of a band has, the first of them counted first."""

    __slots__ = ("_band", "_buckets", "counted", "counts")

    def __init__(self, band: TrigramBand, kinds: Sequence[int]) -> None:
        self._band = band
        self._buckets = kinds
        self.counted = 0
        self.counts: list[int] = []
        """In columns, as `Band.counts` gives them."""
        self.count_more()

    def count_more(self) -> bool:
        """Count some more of the kinds. Whether there were any left."""
        further = self._buckets[self.counted : self.counted + _BUCKETS_PER_ROUND]
        self.counts = self._band.counts(further, self.counts)
        self.counted += len(further)
        return bool(further)

    def is_selective(self, max_missing: int) -> bool:
        """Whether counting tells texts apart, where one may lack so many of the kinds."""
        return max_missing < _MAX_MISSING_SHARE * len(self._buckets)

    def with_at_most_missing(self, max_missing: int, candidates: int) -> int:
        """Those of some texts (the bits of a number) that lack no more of the kinds that are counted."""
        return with_count_at_least(self.counts, self.counted - max_missing, candidates)
