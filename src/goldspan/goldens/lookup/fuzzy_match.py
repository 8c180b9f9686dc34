"""Finds the golden with the most similar input, if no other golden is similarly near.

A single word can change the meaning of a text: "order 7" is not "order 8", and "cancel it" is not "do not cancel it".
Two texts are therefore compared only if they have the same numbers in the same order and negate the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from goldspan.model import Golden
from goldspan.model.name_folding import fold_name

if TYPE_CHECKING:
    from goldspan.goldens.lookup.similarity_index import SimilarityIndex

MAX_FUZZY_LENGTH = 10_000
"""Longer texts are not matched: a few words that change the meaning would hardly change the similarity."""

TextSignature: TypeAlias = "tuple[str | None, tuple[str, ...], tuple[str, ...]]"
"""The folded component, the numbers and the negated words. Texts with different signatures never match."""


class FuzzyMatcher:
    """Finds goldens by similar input. Groups the inputs by signature."""

    def __init__(self, goldens: Mapping[str, Iterable[Golden]]) -> None:
        self._groups: dict[TextSignature, _TextGroup] = {}
        for text, goldens_of_text in goldens.items():
            if len(text) <= MAX_FUZZY_LENGTH:
                self._add(text, goldens_of_text)

    def _add(self, text: str, goldens: Iterable[Golden]) -> None:
        by_component: dict[str | None, list[Golden]] = {}
        for golden in goldens:
            if golden.when is None:  # goldens with conditions match by their conditions only
                by_component.setdefault(_fold_component(golden.component), []).append(golden)
        decisive_words = numbers_and_negations(text) if by_component else ((), ())
        for component, component_goldens in by_component.items():
            self._groups.setdefault((component, *decisive_words), _TextGroup()).add(text, component_goldens)

    def prepare(self) -> None:
        """Builds the indexes, which the first lookups otherwise build."""
        for group in self._groups.values():
            group.prepare()

    def nearest(self, text: str, component: str | None, cutoff: float, margin: float) -> Sequence[tuple[Golden, float]]:
        """Returns the golden with the nearest text and the similarity in percent; nothing below the cutoff.

        If goldens within the margin have different expectations, all of them are returned, the nearest first.
        """
        group = self._groups.get((_fold_component(component), *numbers_and_negations(text)))
        return group.nearest(text, cutoff, margin) if group else ()


class _TextGroup:
    """Texts with the same signature, and the goldens of each text."""

    __slots__ = ("_goldens", "_index", "_texts")

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._goldens: list[list[Golden]] = []
        self._index: SimilarityIndex | None = None

    def add(self, text: str, goldens: list[Golden]) -> None:
        self._texts.append(text)
        self._goldens.append(goldens)

    def prepare(self) -> None:
        """Builds the index if there are enough texts for it."""
        if self._index is None and len(self._texts) > _MIN_TEXTS_FOR_INDEX:
            # It imports rapidfuzz, which takes longer than importing the core of goldspan.
            from goldspan.goldens.lookup.similarity_index import SimilarityIndex

            self._index = SimilarityIndex(self._texts)  # two threads may both build it; the result is the same

    def nearest(self, text: str, cutoff: float, margin: float) -> Sequence[tuple[Golden, float]]:
        """See `FuzzyMatcher.nearest`."""
        best = self._nearest_text(text, cutoff, margin)
        if best is None:
            return ()
        position, similarity, has_competitors = best
        matches = [(golden, similarity) for golden in self._goldens[position]]
        if has_competitors and not _do_expectations_differ(matches):
            matches += self._near_competitors(text, position, similarity, margin)
        return matches if _do_expectations_differ(matches) else matches[:1]

    def _nearest_text(self, text: str, cutoff: float, margin: float) -> tuple[int, float, bool] | None:
        """Returns the position of the nearest text, its similarity, and whether another may be within the margin."""
        self.prepare()
        if self._index is not None:
            near = self._index.nearest(text, cutoff, margin=margin)
            return (near.index, near.similarity, near.runner_up is not None) if near else None
        from rapidfuzz import fuzz, process

        found = process.extractOne(text, self._texts, scorer=fuzz.ratio, score_cutoff=cutoff)
        return (found[2], found[1], len(self._texts) > 1) if found else None

    def _near_competitors(
        self, text: str, nearest: int, similarity: float, margin: float
    ) -> Iterator[tuple[Golden, float]]:
        """Yields all other goldens within the margin; possibly only the last of many has different expectations."""
        from rapidfuzz import fuzz, process

        cutoff = max(0.0, similarity - margin - _ROUNDING_SLACK)
        for _, other, position in process.extract(
            text, self._texts, scorer=fuzz.ratio, score_cutoff=cutoff, limit=None
        ):
            if position != nearest and (similarity - other < margin or other == similarity):
                yield from ((golden, other) for golden in self._goldens[position])


_MIN_TEXTS_FOR_INDEX = 512
"""Up to this number of texts, comparing all of them is as fast as an index."""
_ROUNDING_SLACK = 1e-6
"""rapidfuzz rounds, and may omit a text that reaches the cutoff exactly."""


def _do_expectations_differ(matches: Sequence[tuple[Golden, float]]) -> bool:
    return len(matches) > 1 and len({golden.digest for golden, _ in matches}) > 1


def _fold_component(component: str | None) -> str | None:
    return None if component is None else fold_name(component)


# --- numbers and negations --------------------------------------------------------------------------------------------


def numbers_and_negations(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the numbers of a normalized text in order, and the words that follow a negation.

    Numbers are digits, with a sign, unit or prefix that changes their meaning (`-5`, `ab-17`, `7 pm`, `$7`), and
    English number words. Negations are words of several languages.
    """
    numbers: list[str] = []
    negated: list[str] = []
    after_negation = False
    for word in _TOKENS.findall(text):
        if after_negation:
            negated.append(word)
        after_negation = _NEGATION.fullmatch(word) is not None
        if _NUMBER.fullmatch(word) or not (word.isalpha() or _DIGIT.search(word) is None):
            numbers.append(_OPTIONAL_SEPARATORS.sub("", word))
    if after_negation:
        negated.append("")
    return tuple(numbers), tuple(negated)


_DIGIT_CHARACTERS = r"[\d¼-¾⅐-⅞]+"
_UNIT_SUFFIX = r"(?: ?[ap]\.?m\b| ?[%$¢£¤¥₠-₿]|[^\W\d_]+)?"
_SIGN_PREFIX = r"(?:(?<!\S)[-−]|[$¢£¤¥₠-₿] ?)"
_TOKENS = re.compile(
    rf"[^\W\d_]+(?:[-_]?{_DIGIT_CHARACTERS}{_UNIT_SUFFIX}|(?:['’][^\W\d_]+)*)|{_SIGN_PREFIX}?{_DIGIT_CHARACTERS}{_UNIT_SUFFIX}"
)
"""Words, numbers, and words with digits."""
_DIGIT = re.compile(_DIGIT_CHARACTERS)
_OPTIONAL_SEPARATORS = re.compile(r"[ .]")
"""Separators between a number and its unit that have no meaning."""
_NUMBER = re.compile(
    "t(?:wo|hree|en|welve|hirteen|wenty|hirty|housand)|f(?:our|ive|ourteen|ifteen|orty|ifty)|million|dozen"
    "|s(?:ix|even|ixteen|eventeen|ixty|eventy)|e(?:ight|leven|ighteen|ighty)|nine(?:teen|ty)?|hundred|first|third|both"
)
"""`one` is hardly ever a number, as in "the cheapest one", and `second` seldom."""
_NEGATION = re.compile(
    "no|not|never|none|nothing|nobody|neither|nor|without|cannot|(?:do|does|did|is|are|wo|ca|should|must)nt|.+n['’]t"
    "|nichts?|kein(?:e[nmrs]?)?|nie(?:mals)?|ohne|pas|jamais|rien|aucune?|sans|sin|nunca|nada|ningun[oa]?|ningún"
    "|non|senza|nessun[oa]?|não|sem|nenhuma?|niets?|geen|nooit|zonder"
)
