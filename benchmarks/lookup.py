"""What finding a golden costs: by its very input, and by a near one, against comparing with all of them.

    python benchmarks/lookup.py [--goldens N ...] [--queries N] [--rounds N] [--check]

There are two sets of goldens, with inputs of 80 to 200 characters: *words*, drawn as often as words are in speech, and
*templates*, 200 sentences with three gaps, so that many inputs are like many others. What is asked is an input with 1
to 8 % of its characters mistyped (a near hit), or one of which nothing comes near enough: half of them are other texts,
half are inputs with a third of their words replaced (a miss). Nothing is asked twice, so no answer is remembered.

Comparing with all is rapidfuzz's `process.extractOne`, and where the next best is asked, too, `process.extract`. The
two sides take turns, round after round; medians are shown, and whether all answers are the same. Time is that of the
process alone. `--check` ends with 1 where a budget is missed or an answer differs.
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
"""What finding a golden by its very input may take."""
NEAR_BUDGET = 10.0
"""How many times faster than comparing with all a near hit must be."""
MISS_BUDGET = 1 / 1.1
"""The same where nothing is near."""

CUTOFF = 90.0
LOWER = 80.0
"""A cutoff at which little can be left out: there is no budget for a hit."""
MARGIN = 5.0
"""How far below the best the next best is asked for, where it is."""
MISTYPED = tuple(percent / 100 for percent in range(1, 9))
REPLACED = 1 / 3
WEIGHED = 10_000
"""Of so many texts at most the memory is measured: measuring takes several times as long as preparing them."""


def main() -> int:
    """Measure, print, and compare with the budgets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--goldens", type=int, nargs="+", default=[10_000, 100_000], metavar="N")
    parser.add_argument("--queries", type=int, default=24, metavar="N", help="of each kind and in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="end with 1 where a budget is missed or an answer differs")
    options = parser.parse_args()

    print(f"medians of {options.rounds} interleaved rounds, Python {sys.version.split()[0]}")
    results = []
    for number in options.goldens:
        for corpus in (Words(), Templates()):
            results.extend(_measured(corpus, number, options.queries, options.rounds))
    return 1 if options.check and not all(results) else 0


def _measured(corpus: Words, number: int, queries: int, rounds: int) -> Iterator[bool]:
    """Print what was measured with one set of goldens, and tell of each budget whether it is kept."""
    texts = corpus.texts(number)
    began = time.process_time()
    near_texts = SimilarityIndex(texts)
    took = time.process_time() - began
    print(
        f"{number} goldens of {type(corpus).__name__.lower()}: prepared in {took:.2f} s, {weight(texts):.0f} bytes each"
    )
    gc.collect()
    gc.freeze()  # the collector is to look at what is made for an answer, not at what stands ready

    exact = exact_hit(texts, queries, rounds)
    yield _judged(f"exact hit: {exact:.1f} us, at most {EXACT_BUDGET_US:g}", exact <= EXACT_BUDGET_US)
    for asked, cutoff, margin, least in (
        ("near hit", CUTOFF, 0.0, NEAR_BUDGET),
        ("miss", CUTOFF, 0.0, MISS_BUDGET),
        ("near hit", CUTOFF, MARGIN, None),
        ("near hit", LOWER, 0.0, None),
        ("miss", LOWER, 0.0, MISS_BUDGET),
    ):
        made = corpus.near if asked == "near hit" else corpus.far
        found = duel(near_texts, texts, made, Asked(cutoff, margin, asked == "near hit"), queries, rounds)
        told = f"{asked} at {cutoff:g}{' and the next best' if margin else ''}"
        yield _shown(told, found, least)
    gc.unfreeze()


def exact_hit(texts: Sequence[str], queries: int, rounds: int) -> float:
    """Microseconds to find the golden of a run that has its very input."""
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
    """Bytes that prepared texts take, for each of them, beside the texts."""
    weighed = list(texts[:WEIGHED])
    tracemalloc.start()
    prepared = SimilarityIndex(weighed)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return taken / len(prepared)


# --- against comparing with all ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What is asked."""

    cutoff: float
    margin: float
    near: bool
    """Whether there is an answer."""


@dataclass(frozen=True)
class Duel:
    """The two sides, in milliseconds an answer."""

    ours: float
    slowest: float
    """Of our rounds."""
    theirs: float
    different: int
    """Answers that are not the same."""
    answers: int


Answer = tuple[float | None, ...]
"""The best ratio and where it is, and the next best ratio where it is asked; nothing where nothing is near."""


def duel(
    near_texts: SimilarityIndex,
    texts: Sequence[str],
    made: Callable[[Sequence[str], random.Random], str],
    asked: Asked,
    queries: int,
    rounds: int,
) -> Duel:
    """Ask both sides the same, in turns."""
    chance = random.Random(f"{asked}")
    ours, theirs, different, answers = [], [], 0, 0
    for round_number in range(rounds + 1):
        chosen = _chosen(texts, made, asked, queries, chance)
        began = time.process_time()
        found = [near_texts.nearest(text, asked.cutoff, margin=asked.margin) for text in chosen]
        between = time.process_time()
        all_found = [_compared_with_all(text, texts, asked) for text in chosen]
        ended = time.process_time()
        different += sum(_said(one, asked) != other for one, other in zip(found, all_found, strict=True))
        answers += len(chosen)
        if round_number:  # the first is to warm up
            ours.append((between - began) / len(chosen) * 1e3)
            theirs.append((ended - between) / len(chosen) * 1e3)
    return Duel(statistics.median(ours), max(ours), statistics.median(theirs), different, answers)


def _chosen(
    texts: Sequence[str],
    made: Callable[[Sequence[str], random.Random], str],
    asked: Asked,
    queries: int,
    chance: random.Random,
) -> list[str]:
    """Texts that have an answer, or none, as is asked."""
    chosen: list[str] = []
    while len(chosen) < queries:
        text = made(texts, chance)
        found = process.extractOne(text, texts, scorer=fuzz.ratio, score_cutoff=asked.cutoff)
        if (found is not None) == asked.near:
            chosen.append(text)
    return chosen


def _compared_with_all(text: str, texts: Sequence[str], asked: Asked) -> Answer:
    if not asked.margin:
        found = process.extractOne(text, texts, scorer=fuzz.ratio, score_cutoff=asked.cutoff)
        return (found[1], found[2]) if found else ()
    best = process.extract(text, texts, scorer=fuzz.ratio, score_cutoff=asked.cutoff - asked.margin, limit=2)
    next_best = best[1][1] if len(best) > 1 and best[1][1] >= best[0][1] - asked.margin else None
    return best[0][1], best[0][2], next_best


def _said(near: NearestText | None, asked: Asked) -> Answer:
    if near is None:
        return ()
    return (near.similarity, near.index, near.runner_up) if asked.margin else (near.similarity, near.index)


# --- what is asked ----------------------------------------------------------------------------------------------------


class Words:
    """Texts of 5,000 words, the n-th of them as often as 1 / n."""

    def __init__(self) -> None:
        chance = random.Random("words")
        self._words = ["".join(chance.choices(ascii_lowercase, k=chance.randint(2, 9))) for _ in range(5_000)]
        self._weights = list(accumulate(1 / rank for rank in range(1, 5_001)))

    def texts(self, number: int) -> list[str]:
        """So many different texts."""
        chance = random.Random("texts")
        texts: dict[str, None] = {}
        while len(texts) < number:
            texts[self.text(chance)] = None
        return list(texts)

    def text(self, chance: random.Random) -> str:
        """A text of 80 to 200 characters."""
        return " ".join(self._drawn(60, chance))[: chance.randint(80, 200)].rstrip()

    def near(self, texts: Sequence[str], chance: random.Random) -> str:
        """One of the texts with 1 to 8 % of its characters mistyped: another one, one too many, or one left out."""
        text = list(chance.choice(texts))
        for _ in range(max(1, round(len(text) * chance.choice(MISTYPED)))):
            at = chance.randrange(len(text))
            text[at] = chance.choice(("", chance.choice(ascii_lowercase), text[at] + chance.choice(ascii_lowercase)))
        return "".join(text)

    def far(self, texts: Sequence[str], chance: random.Random) -> str:
        """Another text, or one of these with a third of its words replaced."""
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
        """A text of 80 to 200 characters."""
        while True:
            which = chance.randrange(len(self._sentences))
            words = list(self._sentences[which])
            for gap in self._gaps[which]:
                words[gap] = str(chance.randint(1_000, 99_999)) if chance.random() < 0.3 else chance.choice(self._words)
            if 80 <= len(text := " ".join(words)) <= 200:
                return text


# --- what is told -----------------------------------------------------------------------------------------------------


def _shown(told: str, found: Duel, least: float | None) -> bool:
    times = found.theirs / found.ours
    same = f"{found.different} of {found.answers} answers differ" if found.different else "same answers"
    wanted = "" if least is None else f", at least {least:.2g}"
    return _judged(
        f"{told}: {found.ours:.2f} ms (at most {found.slowest:.2f}), {times:.1f} times as fast as all with their "
        f"{found.theirs:.2f} ms{wanted}; {same}",
        (least is None or times >= least) and not found.different,
    )


def _judged(sentence: str, good: bool) -> bool:
    print(f"  {'OK    ' if good else 'MISSED'} {sentence}", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
