"""Groups runs whose requests ask for the same, and finds the `input` or `when` that selects a group."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rapidfuzz.fuzz import ratio

from goldspan.goldens.lookup.fuzzy_match import numbers_and_negations
from goldspan.goldens.text_matching import normalize_text
from goldspan.model import Run, When
from goldspan.model.name_folding import fold_name
from goldspan.model.value_matchers import Folded, OneOf, Regex

SIMILARITY_THRESHOLD = 80.0
"""The minimum `rapidfuzz.fuzz.ratio` of two masked texts in one group."""
_NEIGHBOURHOOD_SIZE = 12
"""Following texts with which each text is compared, in each of two sort orders. The time is linear in the texts."""
_EXCERPT_LENGTH = 150
"""Characters at the beginning, and at the end, of a long text that are compared."""


def group_similar(texts: Sequence[str | None], threshold: float = SIMILARITY_THRESHOLD) -> list[list[int]]:
    """Return the indexes of similar texts, group by group. The order of the texts changes no group.

    Sorted neighbourhoods: M. A. Hernández, S. J. Stolfo, "The merge/purge problem for large databases", SIGMOD 1995.
    """
    indexes: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        indexes.setdefault(mask_variables(text), []).append(index)
    sets = _DisjointSets(indexes)
    for ordered in (sorted(indexes), sorted(indexes, key=lambda text: text.split()[::-1])):
        for position, text in enumerate(ordered):
            for other in ordered[position + 1 : position + 1 + _NEIGHBOURHOOD_SIZE]:
                if text and not sets.is_joined(text, other) and ratio(text, other, score_cutoff=threshold):
                    sets.join(text, other)
    return [sorted(index for text in group for index in indexes[text]) for group in sets.groups()]


def mask_variables(text: str | None) -> str:
    """Replace the parts of a text that vary between similar requests: quotations, numbers, ids and addresses.

    >>> mask_variables('Refund order AB-17 to "Ann Lee", please!')
    'refund order # to # please'
    """
    masked = normalize_text(_excerpt(text or "")).replace("#", " ")
    masked = _IDENTIFIER.sub(" # ", _QUOTED.sub(" # ", masked))
    return " ".join(_PUNCTUATION.sub(" ", masked).split())


def _excerpt(text: str) -> str:
    return text if len(text) <= 2 * _EXCERPT_LENGTH else f"{text[:_EXCERPT_LENGTH]} {text[-_EXCERPT_LENGTH:]}"


_QUOTED = re.compile(r""""[^"]*"|“[^”]*”|„[^“”]*[“”]|«[^»]*»|`[^`]*`|(?<!\w)'[^']*'(?!\w)""")
_IDENTIFIER = re.compile(r"[\w./:@+-]*[\d@][\w./:@+-]*", re.ASCII)
"""Numbers, ids, dates and addresses: words with a digit or an @."""
_PUNCTUATION = re.compile(r"[^\w#]+")


class _DisjointSets:
    """Groups texts that are joined directly or through other texts (union-find)."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._parent = {text: text for text in texts}

    def is_joined(self, one: str, other: str) -> bool:
        return self._root(one) == self._root(other)

    def join(self, one: str, other: str) -> None:
        first, second = sorted((self._root(one), self._root(other)))
        self._parent[second] = first

    def groups(self) -> Iterator[list[str]]:
        by_root: dict[str, list[str]] = {}
        for text in self._parent:
            by_root.setdefault(self._root(text), []).append(text)
        yield from by_root.values()

    def _root(self, text: str) -> str:
        while (parent := self._parent[text]) != text:
            self._parent[text] = self._parent[parent]
            text = parent
        return text


# --- groups of runs ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs that ask for the same."""

    runs: tuple[Run, ...]
    """The runs, sorted by id."""
    golden_id: str | None
    """The golden that all of them name."""
    component: str | None
    """The component that all of them are."""

    @property
    def texts(self) -> Counter[str]:
        """The texts of the requests without white space around them, each with the number of runs."""
        return Counter(run.input.strip() for run in self.runs if run.input and run.input.strip())


def group_requests(runs: Iterable[Run], threshold: float = SIMILARITY_THRESHOLD) -> list[RunGroup]:
    """Return the runs in groups, large groups first. The order of the runs changes no group.

    Runs that name the same golden ask for the same. Of the others, those with the same text do, and those with similar
    texts in which the same words are negated: "cancel it" is not "do not cancel it". Runs without a text that name no
    golden are in no group.
    """
    named: dict[tuple[str | None, str | None], list[Run]] = {}
    unnamed: dict[str | None, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.run_id):
        component = fold_name(run.component) if run.unit == "component" and run.component else None
        if run.golden_id is not None:
            named.setdefault((component, run.golden_id), []).append(run)
        elif run.input and run.input.strip():
            unnamed.setdefault(component, []).append(run)
    groups = [_request_group(members, golden_id) for (_, golden_id), members in named.items()]
    for members in unnamed.values():
        groups += [_request_group(similar, None) for similar in _similar_runs(members, threshold)]
    return sorted(groups, key=lambda group: (-len(group.runs), group.runs[0].run_id))


def _request_group(runs: Sequence[Run], golden_id: str | None) -> RunGroup:
    component = runs[0].component if runs[0].unit == "component" else None
    return RunGroup(tuple(runs), golden_id, component)


def _similar_runs(runs: Sequence[Run], threshold: float) -> Iterator[list[Run]]:
    by_text: dict[str, list[Run]] = {}
    for run in runs:
        by_text.setdefault(normalize_text(run.input), []).append(run)
    texts = sorted(by_text)
    for group in group_similar(texts, threshold):
        by_negation: dict[tuple[str, ...], list[Run]] = {}
        for index in group:
            negated = numbers_and_negations(mask_variables(texts[index]))[1]
            by_negation.setdefault(negated, []).extend(by_text[texts[index]])
        yield from (sorted(members, key=lambda run: run.run_id) for members in by_negation.values())


# --- the condition that selects a group -------------------------------------------------------------------------------

_MAX_PATTERNS = 10
"""Patterns of one `when`."""


def most_frequent_text(group: RunGroup) -> str | None:
    """Return the most frequent text of a group; of several, the first in alphabetical order."""
    return min(group.texts.items(), key=lambda item: (-item[1], item[0]), default=(None, 0))[0]


def condition_of_group(group: RunGroup) -> tuple[str | None, When | None]:
    """Return the `input` of a golden for a group, or the `when` if the texts of the group differ.

    A group that names a golden needs no condition, and gets an `input` only if all its texts are equal.
    """
    texts = group.texts
    if len({normalize_text(text) for text in texts}) == 1:
        return most_frequent_text(group), None
    if group.golden_id is not None or not texts:
        return None, None
    patterns = _text_patterns(texts)
    return None, When(input=patterns[0] if len(patterns) == 1 else OneOf(tuple(patterns)))


def _text_patterns(texts: Counter[str]) -> list[Regex | Folded]:
    """Return patterns that match the texts, those of most runs first."""
    weights: Counter[str] = Counter()
    masked_texts: Counter[tuple[str, ...]] = Counter()
    for text, count in texts.items():
        if len(text) > 2 * _EXCERPT_LENGTH:
            weights[text] += count
        else:
            masked_texts[tuple(mask_variables(text).split())] += count
    patterns: Counter[str] = Counter()
    for words, count in _merge_templates(masked_texts).items():
        patterns[_template_pattern(words)] += count
    found: list[tuple[int, str, Regex | Folded]] = [(-count, text, Folded(text)) for text, count in weights.items()]
    found += [(-count, pattern, Regex(pattern)) for pattern, count in patterns.items()]
    return [pattern for _, _, pattern in sorted(found, key=lambda each: each[:2])[:_MAX_PATTERNS]]


def _merge_templates(texts: Counter[tuple[str, ...]]) -> Counter[tuple[str, ...]]:
    """Merge masked texts of the same length that differ in few words, which become variable."""
    by_length: dict[int, Counter[tuple[str, ...]]] = {}
    for words, count in texts.items():
        by_length.setdefault(len(words), Counter())[words] += count
    merged: Counter[tuple[str, ...]] = Counter()
    for same_length in by_length.values():
        template = tuple(column[0] if len(set(column)) == 1 else "#" for column in zip(*same_length, strict=True))
        if any(word != "#" for word in template) and template.count("#") * 3 <= 2 * len(template):
            merged[template] += same_length.total()
        else:
            merged += same_length
    return merged


def _template_pattern(words: Sequence[str]) -> str:
    r"""Return the regular expression for a masked text.

    >>> _template_pattern(["refund", "order", "#", "please"])
    '(?is)^\\W*refund\\W+order\\W.+\\Wplease\\W*$'
    """
    pattern = ""
    for word, following in zip(words, (*words[1:], None), strict=True):
        pattern += ".+" if word == "#" else re.escape(word)
        if following is not None:
            pattern += r"\W*" if word == following == "#" else r"\W" if "#" in (word, following) else r"\W+"
    return rf"(?is)^\W*{pattern}\W*$"
