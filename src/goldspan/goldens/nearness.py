"""The text nearest to another among many, by `rapidfuzz.fuzz.ratio`: the answer of comparing all, sooner.

The ratio of two texts is 100 * (1 - distance / (length + length)), where the distance counts the characters that are
deleted and inserted (Indel). So a ratio that must be reached says how great the distance may be, and that how far
lengths may differ and how many trigrams may be missing. Both are bounds that never leave out a text that reaches it;
what they leave is compared. A likely text is compared first: what it reaches, the answer must reach.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest
from math import ceil, floor, inf
from typing import Any

from rapidfuzz import fuzz, process

from goldspan.goldens.trigrams import Band, at_least, greatest, kinds, most_missing, places

_BAND = 3072
"""How many texts are counted at once. Fewer differ less in length and are told apart better; more cost less each."""
_FEW = 1_000
"""So many texts are all compared about as fast as something is known of all of them."""
_KINDS = 255
"""How many kinds of trigrams are counted: the rarest, which tell the most."""
_AT_ONCE = 32
"""How many of them are counted before it is seen whether that is enough."""
_WORTH = 100
"""How many texts of a band cost as much to compare as some more kinds cost to count."""
_TRIALS = 2, 4
"""In how many bands a likely text is looked for before it is seen whether counting tells much: half of them, from the
one to the other."""
_TELLING = 0.9
"""What share of the kinds may be missing at most: texts that share the rest by chance are too many beyond it."""
_SCATTERED = 2 / 3
"""What share of the texts costs as much in order of length, here and there in memory, as all do in order of theirs."""
_LIKELY = 8
"""How many of the likeliest texts are compared before all that are likely enough."""
_SLACK = 1e-6
"""What rounding may cost. The bounds are wider by it, which leaves out nothing."""
_JUST_BELOW = 1e-4
"""How much lower than a ratio a cutoff must be for rapidfuzz to say that it is reached: it rounds one of them."""
_REMEMBERED = 1024
"""How many answers are remembered."""
_LONG = 4096
"""Up to how many characters a text is remembered with its answer: a few MiB at most for all of them."""


@dataclass(frozen=True, slots=True)
class Near:
    """The text nearest to another, and the one that comes next."""

    index: int
    """Where it stands among the texts: the first of those that are as near."""
    similarity: float
    """The ratio of the two texts, 0 to 100."""
    runner_up: float | None = None
    """The ratio of the nearest of all texts that differ from it; `None` where that is less by more than the margin."""
    runner_up_index: int | None = None
    """Where that one stands: the first of those that are as near."""


class NearTexts:
    """Texts, prepared so that the one nearest to another is found soon. Never changes; any thread may ask.

    Texts are compared as they are: whoever asks has normalized both. Preparing is done once, here, and takes some 30
    microseconds for a text of 140 characters; it keeps about 360 bytes of it beside the text itself. The last 1,024
    answers are remembered, also that there is none.
    """

    __slots__ = ("_answer", "_search", "_texts")

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = tuple(texts)
        index = _Index(self._texts)

        def search(text: str, cutoff: float, margin: float) -> Near | None:
            return _Search(index, text).nearest(cutoff, margin)

        self._search = search
        self._answer = lru_cache(maxsize=_REMEMBERED)(search)

    def __len__(self) -> int:
        return len(self._texts)

    def __reduce__(self) -> tuple[Any, ...]:
        return NearTexts, (self._texts,)

    def nearest(self, text: str, cutoff: float, *, margin: float = 0.0) -> Near | None:
        """The text nearest to this one, if its ratio is at least the cutoff (0 to 100), else `None`.

        It is that of `rapidfuzz.process.extractOne(text, texts, scorer=fuzz.ratio, score_cutoff=cutoff)`, always. The
        runner-up is exact where its ratio is less by no more than the margin, and left out otherwise.
        """
        return (self._answer if len(text) <= _LONG else self._search)(text, cutoff, margin)


class _Index:
    """The different texts, the shortest first, in bands."""

    __slots__ = ("_frequencies", "bands", "first", "given", "texts")

    def __init__(self, texts: Sequence[str]) -> None:
        self.given = texts
        """All of them as they were given, which is how they most likely stand in memory."""
        first: dict[str, int] = {}
        for index, text in enumerate(texts):
            first.setdefault(text, index)
        self.texts = sorted(first, key=len)
        self.first = [first[text] for text in self.texts]
        """Where each of them stands among those that were given."""
        starts = range(0, len(self.texts), _BAND) if len(self.texts) > _FEW else ()
        self.bands = [Band(self.texts[start : start + _BAND]) for start in starts]
        self._frequencies = [sum(each) for each in zip(*(band.frequencies() for band in self.bands), strict=True)]

    def window(self, length: int, ratio: float) -> tuple[int, int]:
        """From which to before which text lengths are near enough to this one for that ratio."""
        share = ratio / 100
        shortest = ceil(length * share / (2 - share) - _SLACK)
        start = bisect_left(self.texts, shortest, key=len)
        if share <= _SLACK:
            return start, len(self.texts)
        longest = floor(length * (2 - share) / share + _SLACK)
        return start, bisect_right(self.texts, longest, lo=start, key=len)

    def rarest(self, text: str) -> list[int]:
        """The kinds of trigrams of that text that are counted."""
        return sorted(kinds(text), key=self._frequencies.__getitem__)[:_KINDS]


@dataclass(slots=True)
class _Part:
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
        return self.band * _BAND


class _Search:
    """One text beside all others. What was counted for one ratio stays for the next."""

    __slots__ = ("_hopeless", "_index", "_kinds", "_tallies", "_text")

    def __init__(self, index: _Index, text: str) -> None:
        self._index = index
        self._text = text
        self._kinds: list[int] | None = None
        self._hopeless = -inf
        """Up to which ratio counting told too few texts apart to be worth it."""
        self._tallies: dict[int, _Tally] = {}

    def nearest(self, cutoff: float, margin: float) -> Near | None:
        """See `NearTexts.nearest`."""
        likely = self._likely(cutoff)
        if likely is None and (likely := self._best(cutoff)) is None:
            return None
        best, *others = nsmallest(2, self._reaching(likely - margin))
        least = -best[0] - margin
        next_best = [(-score, index) for score, index in others if -score >= least]
        return Near(best[1], -best[0], *(next_best[0] if next_best else ()))

    def _likely(self, ratio: float) -> float | None:
        """The best ratio of the texts that share most, band by band, if one of them reaches this one.

        Bands with lengths like the text's come first: what is found there may leave nothing to look for elsewhere.
        """
        found = None
        start, end = self._index.window(len(self._text), ratio)
        parts = self._nearest_in_length(ratio)
        fewest, most = _TRIALS
        trials = min(most, max(fewest, len(parts) // 2))
        for tried, part in enumerate(parts):
            if tried == trials and found is None and not self._tells(ratio):
                return None
            if part.start >= end or part.end <= start or (tally := self._tally(part)) is None:
                continue
            count, having = greatest(tally.counts, part.bits)
            if tally.counted - count > self._most_missing(part, ratio):
                continue
            likely = [self._index.texts[part.offset + place] for place in places(having)[:_LIKELY]]
            if (better := self._compared(likely, ratio)) is not None:
                found = ratio = better
                start, end = self._index.window(len(self._text), ratio)
        return found

    def _best(self, ratio: float) -> float | None:
        """The best ratio of all texts, if one of them reaches this one."""
        index = self._index
        many = _SCATTERED * len(index.given)
        start, end = index.window(len(self._text), ratio)
        texts = index.given
        if self._tells(ratio):
            texts = [text for texts, _ in self._candidates(ratio) for text in texts]
        elif end - start < many:
            texts = index.texts[start:end]
        return self._compared(texts if len(texts) < many else index.given, ratio)

    def _compared(self, texts: Sequence[str], ratio: float) -> float | None:
        found = process.extractOne(self._text, texts, scorer=fuzz.ratio, score_cutoff=ratio)
        return found[1] if found else None

    def _reaching(self, ratio: float) -> Iterator[tuple[float, int]]:
        """All texts that reach that ratio: what theirs is, below zero so that the best sorts first, and their index."""
        cutoff = max(0.0, ratio - _JUST_BELOW)
        for texts, where in self._candidates(ratio):
            found = process.extract(self._text, texts, scorer=fuzz.ratio, score_cutoff=cutoff, limit=None)
            yield from [(-score, self._index.first[where[place]]) for _, score, place in found if score >= ratio]

    def _candidates(self, ratio: float) -> Iterator[tuple[list[str], Sequence[int]]]:
        """The texts that may reach that ratio, and where they stand in the index, band by band."""
        index = self._index
        if not index.bands:
            window = slice(*index.window(len(self._text), ratio))
            yield index.texts[window], range(len(index.texts))[window]
        for part in self._parts(ratio):
            near = self._near(part, ratio)
            if near is None:
                yield index.texts[part.start : part.end], range(part.start, part.end)
            elif near:
                where = [part.offset + place for place in near]
                yield [index.texts[place] for place in where], where

    def _near(self, part: _Part, ratio: float) -> list[int] | None:
        """The places in the band of those that may reach that ratio; `None` for all of the part."""
        if ratio <= self._hopeless or (tally := self._tally(part)) is None:
            return None
        missing = self._most_missing(part, ratio)
        if not tally.tells(missing):
            return None
        near = tally.lacking(missing, part.bits)
        while near.bit_count() > _WORTH and tally.count_more():
            near = tally.lacking(missing, part.bits)
        if near.bit_count() * 2 > part.end - part.start:
            self._hopeless = ratio
            return None
        return places(near)

    def _most_missing(self, part: _Part, ratio: float) -> int:
        """How many kinds of trigrams a text of that part may lack, at most. It is linear in the length of the text."""
        texts, length = self._index.texts, len(self._text)
        ends = len(texts[part.start]), len(texts[part.end - 1])
        return floor(max(most_missing(length, end, (1 - ratio / 100) * (length + end)) for end in ends) + _SLACK)

    def _parts(self, ratio: float) -> Iterator[_Part]:
        start, end = self._index.window(len(self._text), ratio)
        if start < end:
            for band in range(start // _BAND, min(len(self._index.bands), (end - 1) // _BAND + 1)):
                yield _Part(band, max(start, band * _BAND), min(end, (band + 1) * _BAND))

    def _nearest_in_length(self, ratio: float) -> list[_Part]:
        """The parts, the one with lengths most like the text's first."""
        middle = self._index.window(len(self._text), 100)[0]
        return sorted(self._parts(ratio), key=lambda part: abs(part.start + part.end - 2 * middle))

    def _tells(self, ratio: float) -> bool:
        """Whether counting leaves few of the texts whose lengths are most like the text's: if not, then of none."""
        large = (part for part in self._nearest_in_length(ratio) if part.end - part.start > _WORTH)
        return (part := next(large, None)) is not None and self._near(part, ratio) is not None

    def _tally(self, part: _Part) -> _Tally | None:
        """The counts of a band; `None` where so little of it comes into question that comparing is as fast."""
        if part.end - part.start <= _WORTH:
            return None
        if part.band not in self._tallies:
            if self._kinds is None:
                self._kinds = self._index.rarest(self._text)
            self._tallies[part.band] = _Tally(self._index.bands[part.band], self._kinds)
        return self._tallies[part.band]


class _Tally:
    """How many of some kinds of trigrams each text of a band has, the first of them counted first."""

    __slots__ = ("_band", "_kinds", "counted", "counts")

    def __init__(self, band: Band, kinds: Sequence[int]) -> None:
        self._band = band
        self._kinds = kinds
        self.counted = 0
        self.counts: list[int] = []
        """In columns, as `Band.counts` gives them."""
        self.count_more()

    def count_more(self) -> bool:
        """Count some more of the kinds. Whether there were any left."""
        further = self._kinds[self.counted : self.counted + _AT_ONCE]
        self.counts = self._band.counts(further, self.counts)
        self.counted += len(further)
        return bool(further)

    def tells(self, at_most: int) -> bool:
        """Whether counting tells texts apart, where one may lack so many of the kinds."""
        return at_most < _TELLING * len(self._kinds)

    def lacking(self, at_most: int, among: int) -> int:
        """Those of some texts (the bits of a number) that lack no more of the kinds that are counted."""
        return at_least(self.counts, self.counted - at_most, among)
