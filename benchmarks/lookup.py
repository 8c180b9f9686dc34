"""Measures the lookup of a golden by equal and by similar input, against a comparison with all goldens.

    python benchmarks/lookup.py [--goldens N ...] [--queries N] [--rounds N] [--check]

There are two sets of goldens, with inputs of 80 to 200 characters: *words* with the frequencies of natural language,
and *templates*, which are 200 sentences with three gaps, so that many inputs are similar to many others. A query is an
input with 1 to 8 % of its characters mistyped (a near hit), or a text to which no input is similar enough (a miss):
half of the misses are other texts, half are inputs with a third of their words replaced. No query is repeated, so no
cache helps.

The comparison with all goldens is rapidfuzz's `process.extractOne`, or `process.extract` if the second best is queried
too. The two sides alternate in each round. The script prints medians of CPU time, and whether all answers are equal.
`--check` exits with 1 if a budget is missed or an answer differs.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from string import ascii_lowercase

from rapidfuzz import fuzz, process

from goldspan.goldens import Goldens
from goldspan.goldens.lookup.similarity_index import NearestText, SimilarityIndex
from goldspan.model import Golden, Run

EXACT_BUDGET_US = 10.0
"""The budget for the lookup of a golden by equal input."""
NEAR_BUDGET = 10.0
"""The required speed-up of a near hit over the comparison with all goldens."""
MISS_BUDGET = 1 / 1.1
"""The required speed-up of a miss."""

CUTOFF = 90.0
LOWER = 80.0
"""A cutoff at which the index can skip little. A hit has no budget."""
MARGIN = 5.0
"""The largest difference between the best and the second best, if the second best is queried."""
MISTYPED = tuple(percent / 100 for percent in range(1, 9))
REPLACED = 1 / 3
MEASURED_TEXTS = 10_000
"""The largest number of texts whose memory is measured: that takes several times as long as the index itself."""


def main() -> int:
    """Measure, print, and compare with the budgets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--goldens", type=int, nargs="+", default=[10_000, 100_000], metavar="N")
    parser.add_argument("--queries", type=int, default=24, metavar="N", help="of each kind and in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a budget is missed or an answer differs")
    options = parser.parse_args()

    print(f"medians of {options.rounds} interleaved rounds, Python {sys.version.split()[0]}")
    results = []
    for number in options.goldens:
        for corpus in (Words(), Templates()):
            results.extend(_measured(corpus, number, options.queries, options.rounds))
    return 1 if options.check and not all(results) else 0


def _measured(corpus: Words, number: int, queries: int, rounds: int) -> Iterator[bool]:
    """Print the results of one set of goldens, and yield for each budget whether it is met."""
    texts = corpus.texts(number)
    began = time.process_time()
    near_texts = SimilarityIndex(texts)
    took = time.process_time() - began
    print(
        f"{number} goldens of {type(corpus).__name__.lower()}: prepared in {took:.2f} s, {weight(texts):.0f} bytes each"
    )
    gc.collect()
    gc.freeze()  # the collector should scan the objects of an answer, not the index

    exact = exact_hit(texts, queries, rounds)
    yield _print_result(f"exact hit: {exact:.1f} us, at most {EXACT_BUDGET_US:g}", exact <= EXACT_BUDGET_US)
    for kind, cutoff, margin, least in (
        ("near hit", CUTOFF, 0.0, NEAR_BUDGET),
        ("miss", CUTOFF, 0.0, MISS_BUDGET),
        ("near hit", CUTOFF, MARGIN, None),
        ("near hit", LOWER, 0.0, None),
        ("miss", LOWER, 0.0, MISS_BUDGET),
    ):
        made = corpus.near if kind == "near hit" else corpus.far
        found = duel(near_texts, texts, made, Query(cutoff, margin, kind == "near hit"), queries, rounds)
        label = f"{kind} at {cutoff:g}{' and the second best' if margin else ''}"
        yield _print_duel(label, found, least)
    gc.unfreeze()


def exact_hit(texts: Sequence[str], queries: int, rounds: int) -> float:
    """Return the microseconds to find the golden of a run with the same input."""
    goldens = Goldens(Golden(id=str(index), input=text) for index, text in enumerate(texts))
    chance = random.Random("exact")

    def once() -> float:
        runs = [Run(text, input=text) for text in chance.sample(texts, min(len(texts), 10 * queries))]
        began = time.process_time()
        found = [goldens.find(run) for run in runs]
        taken = time.process_time() - began
        if None in found:
            raise AssertionError("a golden was not found by its own input")
        return taken / len(runs) * 1e6

    once()
    return statistics.median(once() for _ in range(rounds))


def weight(texts: Sequence[str]) -> float:
    """Return the bytes of the index for each text, without the texts."""
    weighed = list(texts[:MEASURED_TEXTS])
    tracemalloc.start()
    prepared = SimilarityIndex(weighed)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return taken / len(prepared)


# --- against a comparison with all ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Query:
    """The parameters of a query."""

    cutoff: float
    margin: float
    near: bool
    """Whether a golden is similar enough."""


@dataclass(frozen=True)
class Duel:
    """The times of the two sides, in milliseconds for each answer."""

    ours: float
    slowest: float
    """The slowest round of the index."""
    theirs: float
    different: int
    """The number of answers that differ."""
    answers: int


Answer = tuple[float | None, ...]
"""The best ratio and its index, and the second best ratio if it is queried; empty if nothing is similar enough."""


def duel(
    near_texts: SimilarityIndex,
    texts: Sequence[str],
    made: Callable[[Sequence[str], random.Random], str],
    query: Query,
    queries: int,
    rounds: int,
) -> Duel:
    """Query both sides with the same texts, alternating."""
    chance = random.Random(f"{query}")
    ours, theirs, different, answers = [], [], 0, 0
    for round_number in range(rounds + 1):
        chosen = _chosen(texts, made, query, queries, chance)
        began = time.process_time()
        found = [near_texts.nearest(text, query.cutoff, margin=query.margin) for text in chosen]
        between = time.process_time()
        all_found = [_compared_with_all(text, texts, query) for text in chosen]
        ended = time.process_time()
        different += sum(_comparable(one, query) != other for one, other in zip(found, all_found, strict=True))
        answers += len(chosen)
        if round_number:  # the first round is a warm-up
            ours.append((between - began) / len(chosen) * 1e3)
            theirs.append((ended - between) / len(chosen) * 1e3)
    return Duel(statistics.median(ours), max(ours), statistics.median(theirs), different, answers)


def _chosen(
    texts: Sequence[str],
    made: Callable[[Sequence[str], random.Random], str],
    query: Query,
    queries: int,
    chance: random.Random,
) -> list[str]:
    """Choose texts with an answer, or without one, as the query states."""
    chosen: list[str] = []
    while len(chosen) < queries:
        text = made(texts, chance)
        found = process.extractOne(text, texts, scorer=fuzz.ratio, score_cutoff=query.cutoff)
        if (found is not None) == query.near:
            chosen.append(text)
    return chosen


def _compared_with_all(text: str, texts: Sequence[str], query: Query) -> Answer:
    if not query.margin:
        found = process.extractOne(text, texts, scorer=fuzz.ratio, score_cutoff=query.cutoff)
        return (found[1], found[2]) if found else ()
    best = process.extract(text, texts, scorer=fuzz.ratio, score_cutoff=query.cutoff - query.margin, limit=2)
    next_best = best[1][1] if len(best) > 1 and best[1][1] >= best[0][1] - query.margin else None
    return best[0][1], best[0][2], next_best


def _comparable(near: NearestText | None, query: Query) -> Answer:
    if near is None:
        return ()
    return (near.similarity, near.index, near.runner_up) if query.margin else (near.similarity, near.index)


# --- the queries ------------------------------------------------------------------------------------------------------


class Words:
    """Texts of 5,000 words, of which the n-th has the frequency 1 / n."""

    def __init__(self) -> None:
        chance = random.Random("words")
        self._words = ["".join(chance.choices(ascii_lowercase, k=chance.randint(2, 9))) for _ in range(5_000)]
        self._weights = list(accumulate(1 / rank for rank in range(1, 5_001)))

    def texts(self, number: int) -> list[str]:
        """Return `number` different texts."""
        chance = random.Random("texts")
        texts: dict[str, None] = {}
        while len(texts) < number:
            texts[self.text(chance)] = None
        return list(texts)

    def text(self, chance: random.Random) -> str:
        """Return a text of 80 to 200 characters."""
        return " ".join(self._drawn(60, chance))[: chance.randint(80, 200)].rstrip()

    def near(self, texts: Sequence[str], chance: random.Random) -> str:
        """Return one of the texts with 1 to 8 % of its characters replaced, doubled or omitted."""
        text = list(chance.choice(texts))
        for _ in range(max(1, round(len(text) * chance.choice(MISTYPED)))):
            at = chance.randrange(len(text))
            text[at] = chance.choice(("", chance.choice(ascii_lowercase), text[at] + chance.choice(ascii_lowercase)))
        return "".join(text)

    def far(self, texts: Sequence[str], chance: random.Random) -> str:
        """Return another text, or one of the texts with a third of its words replaced."""
        if chance.random() < 0.5:
            return self.text(chance)
        words = chance.choice(texts).split()
        for at in chance.sample(range(len(words)), round(len(words) * REPLACED)):
            words[at] = chance.choice(self._words)
        return " ".join(words)

    def _drawn(self, number: int, chance: random.Random) -> list[str]:
        return chance.choices(self._words, cum_weights=self._weights, k=number)


class Templates(Words):
    """Texts that fill three gaps in one of 200 sentences, each with a word or a number."""

    def __init__(self) -> None:
        super().__init__()
        chance = random.Random("templates")
        self._sentences = [self._drawn(chance.randint(16, 30), chance) for _ in range(200)]
        self._gaps = [chance.sample(range(len(sentence)), 3) for sentence in self._sentences]

    def text(self, chance: random.Random) -> str:
        """Return a text of 80 to 200 characters."""
        while True:
            number = chance.randrange(len(self._sentences))
            words = list(self._sentences[number])
            for gap in self._gaps[number]:
                words[gap] = str(chance.randint(1_000, 99_999)) if chance.random() < 0.3 else chance.choice(self._words)
            if 80 <= len(text := " ".join(words)) <= 200:
                return text


# --- the output -------------------------------------------------------------------------------------------------------


def _print_duel(label: str, found: Duel, least: float | None) -> bool:
    times = found.theirs / found.ours
    same = f"{found.different} of {found.answers} answers differ" if found.different else "same answers"
    wanted = "" if least is None else f", at least {least:.2g}"
    return _print_result(
        f"{label}: {found.ours:.2f} ms (at most {found.slowest:.2f}), {times:.1f} times as fast as all with their "
        f"{found.theirs:.2f} ms{wanted}; {same}",
        (least is None or times >= least) and not found.different,
    )


def _print_result(sentence: str, is_met: bool) -> bool:
    print(f"  {'OK    ' if is_met else 'MISSED'} {sentence}", flush=True)
    return is_met


if __name__ == "__main__":
    sys.exit(main())
