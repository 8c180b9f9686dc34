"""Which golden has an input that nearly is a text, and no other golden one about as near.

Some words decide what a text asks for however much of it is the same: "order 7" is not "order 8", and "cancel it" is
not "do not cancel it". Texts are laid beside each other only where they have the same numbers in the same order, and
negate the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from goldspan.content.tools import fold_name
from goldspan.model import Golden

if TYPE_CHECKING:
    from goldspan.goldens.lookup.similarity_index import SimilarityIndex

MAX_FUZZY_LENGTH = 10_000
"""Characters of a text that is looked up: in longer ones, a few words that change everything are too small a part."""

TextSignature: TypeAlias = "tuple[str | None, tuple[str, ...], tuple[str, ...]]"
"""The component, folded, the numbers, and the words that are negated. Texts of two kinds are never near."""


class FuzzyMatcher:
    """The inputs of goldens, by kinds."""

    def __init__(self, goldens: Mapping[str, Iterable[Golden]]) -> None:
        self._groups: dict[TextSignature, _TextGroup] = {}
        for text, same in goldens.items():
            if len(text) <= MAX_FUZZY_LENGTH:
                self._add(text, same)

    def _add(self, text: str, same: Iterable[Golden]) -> None:
        of_component: dict[str | None, list[Golden]] = {}
        for golden in same:
            if golden.when is None:  # what is for some runs only is no rival to what is for all of them
                of_component.setdefault(_fold_component(golden.component), []).append(golden)
        told = numbers_and_negations(text) if of_component else ((), ())
        for component, alike in of_component.items():
            self._groups.setdefault((component, *told), _TextGroup()).add(text, alike)

    def prepare(self) -> None:
        """Make now what the first lookups would make."""
        for texts in self._groups.values():
            texts.prepare()

    def nearest(self, text: str, component: str | None, cutoff: float, margin: float) -> Sequence[tuple[Golden, float]]:
        """The golden whose text is nearest, with the similarity of the two in per cent; nothing below the cutoff.

        All that are nearer than the margin allows, the nearest first, where they do not demand the same.
        """
        texts = self._groups.get((_fold_component(component), *numbers_and_negations(text)))
        return texts.nearest(text, cutoff, margin) if texts else ()


class _TextGroup:
    """Texts of one kind, each with its goldens."""

    __slots__ = ("_goldens", "_index", "_texts")

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._goldens: list[list[Golden]] = []
        self._index: SimilarityIndex | None = None

    def add(self, text: str, goldens: list[Golden]) -> None:
        self._texts.append(text)
        self._goldens.append(goldens)

    def prepare(self) -> None:
        """Make the index, where an index is of use."""
        if self._index is None and len(self._texts) > _MIN_TEXTS_FOR_INDEX:
            from goldspan.goldens.lookup.similarity_index import (
                SimilarityIndex,  # rapidfuzz takes longer to load than all of our core
            )

            self._index = SimilarityIndex(
                self._texts
            )  # two threads that come at once make it twice, and either one will do

    def nearest(self, text: str, cutoff: float, margin: float) -> Sequence[tuple[Golden, float]]:
        """See `Resemblance.nearest`."""
        best = self._nearest_text(text, cutoff, margin)
        if best is None:
            return ()
        at, similarity, has_rivals = best
        found = [(golden, similarity) for golden in self._goldens[at]]
        if has_rivals and not _are_different(found):
            found += self._near_competitors(text, at, similarity, margin)
        return found if _are_different(found) else found[:1]

    def _nearest_text(self, text: str, cutoff: float, margin: float) -> tuple[int, float, bool] | None:
        """Where the nearest text stands, its similarity, and whether another may be about as near."""
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
        """All others that are about as near: there may be many, of which only the last demands something else."""
        from rapidfuzz import fuzz, process

        least = max(0.0, similarity - margin - _ROUNDING_SLACK)
        for _, other, at in process.extract(text, self._texts, scorer=fuzz.ratio, score_cutoff=least, limit=None):
            if at != nearest and (similarity - other < margin or other == similarity):
                yield from ((golden, other) for golden in self._goldens[at])


_MIN_TEXTS_FOR_INDEX = 512
"""So many texts are compared as fast as an index is asked."""
_ROUNDING_SLACK = 1e-6
"""rapidfuzz rounds, and leaves out what reaches a cutoff exactly."""


def _are_different(found: Sequence[tuple[Golden, float]]) -> bool:
    return len(found) > 1 and len({golden.digest for golden, _ in found}) > 1


def _fold_component(component: str | None) -> str | None:
    return None if component is None else fold_name(component)


# --- what decides -----------------------------------------------------------------------------------------------------


def numbers_and_negations(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The numbers of a normalized text, in their order, and the words before which something is negated.

    Numbers are told in digits, with whatever makes another one of them (`-5`, `ab-17`, `7 pm`, `$7`), and by the words
    of English; negations by the words of a few languages.
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
"""Words, numbers, and what is both."""
_DIGIT = re.compile(_DIGIT_CHARACTERS)
_OPTIONAL_SEPARATORS = re.compile(r"[ .]")
"""What may be left out between a number and its unit."""
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
