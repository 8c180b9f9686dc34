"""What scoring costs: an evaluation, each peer's number against the peer itself, and similar texts against difflib.

    python benchmarks/scoring.py [--peers FOLDER [--only PEER ...]] [--rounds N] [--check]

All is measured over the same 1,000 cases (`scoring_cases.py`), in one thread. Whatever stands ready for a peer stands
ready for its profile, too: the metric with its options, and the inputs in its own types, which are bare names where the
peer takes no more. The two sides take turns, round after round; medians are shown. Time is that of the
process alone, so other work on the machine counts for little.

*Peers* are installed from PyPI into FOLDER on first use, an environment each: 4 GB in all. Each runs in a process of
its own, without a language model, without telemetry and without a display of progress. A peer that cannot be installed
is named, and the others go on. `--check` ends with 1 where a budget is missed or a number differs.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from peers import PEERS, Options, Peer
from peers.environments import Unavailable, Worker, environment
from scoring_cases import Call, Case, cases, right_cases

import goldspan
from goldspan.model import ExpectedTool, Score, ToolCall
from goldspan.model.value_matchers import Similar
from goldspan.scoring.arguments.agreement import argument_share
from goldspan.scoring.arguments.matcher_evaluation import agrees

EVALUATION_BUDGET_US = 45.0
"""What the default evaluation of a five-call run may take, on average over those of the cases."""
EXPECTED_BUDGET_US = 25.0
"""The same over those of the cases that are as expected."""
PEER_BUDGET = 1.0
"""How many times faster than any peer its profile must be."""
PEER_BUDGETS = {"deepeval": 20.0}
"""The same for a peer of which more is wanted."""
TEXTS_BUDGET = 100.0
"""How many times faster than difflib a matrix of calls with similar texts must be."""

TURN_S = 0.2
"""How long a profile, and its peer, is timed before it is the other's turn."""
CALLS = 5
"""How long the runs are whose evaluation is timed."""
TEXTS = 20
"""How many texts the matrix has on either side."""
SAME = 1e-9
"""Up to which difference two scores are the same."""


def main() -> int:
    """Measure, print, and compare with the budgets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="install the peers here and measure them, too")
    parser.add_argument("--only", nargs="+", metavar="PEER", choices=[peer.name for peer in PEERS])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--check", action="store_true", help="end with 1 where a budget is missed or a number differs")
    options = parser.parse_args()

    measured = cases()
    gc.freeze()  # the collector is to look at what scoring makes, not at what stands ready for it
    results = [*_ours(measured, options.rounds)]
    if options.peers:
        print("each profile against its peer, us a case, and how many times as fast it is")
        for peer in PEERS:
            if not options.only or peer.name in options.only:
                results.extend(_against(peer, options.peers.resolve(), measured, options.rounds))
        print("         axion is not measured: it is on GitHub only")
    return 1 if options.check and not all(results) else 0


# --- ours alone -------------------------------------------------------------------------------------------------------


def _ours(measured: Sequence[Case], rounds: int) -> Iterator[bool]:
    """Print what needs no peer, and tell of each budget whether it is kept."""
    called = statistics.mean(len(case.called) for case in measured)
    expected = statistics.mean(len(case.expected) for case in measured)
    print(f"medians of {rounds} interleaved rounds, Python {sys.version.split()[0]}")
    print(f"{len(measured)} cases: on average {called:.1f} calls and {expected:.1f} expected, all with their arguments")
    long = [case for case in measured if len(case.called) == CALLS]
    right, wrong = ([case for case in long if (case.called == case.expected) is same] for same in (True, False))
    took = evaluation(long, rounds)
    yield _judged(
        f"the default evaluation of a run of {CALLS} calls takes {took:.1f} us, at most {EVALUATION_BUDGET_US:g}",
        took <= EVALUATION_BUDGET_US,
    )
    took = evaluation(right, rounds)
    yield _judged(
        f"of the {len(right)} that are as expected {took:.1f} us, at most {EXPECTED_BUDGET_US:g}",
        took <= EXPECTED_BUDGET_US,
    )
    print(f"         of the {len(wrong)} with a mistake, found and told, {evaluation(wrong, rounds):.1f} us")
    simple = evaluation(right_cases(CALLS), rounds)
    print(f"         of other runs, as expected and with {CALLS} different tools, {simple:.1f} us")
    matrix = text_matrix(rounds)
    times = {way: matrix["difflib"] / seconds for way, seconds in matrix.items()}
    shown = {way: f"{seconds * 1e3:.2f} ms" for way, seconds in matrix.items()}
    yield _judged(
        f"{TEXTS} by {TEXTS} similar arguments take {shown['arguments']}, {times['arguments']:.0f} times as fast as "
        f"difflib's {shown['difflib']}, at least {TEXTS_BUDGET:g}",
        times["arguments"] >= TEXTS_BUDGET,
    )
    print(f"         the bare texts: {shown['texts']}, {times['texts']:.0f} times")


def evaluation(measured: Sequence[Case], rounds: int) -> float:
    """Microseconds of the default evaluation of a run, all default metrics and the reason: a median of many rounds."""
    goldens = [case.golden() for case in measured]

    def once() -> float:
        runs = [case.run() for case in measured]  # goldens stay and runs are new, as in a service
        gc.collect()
        began = time.process_time()
        for run, golden in zip(runs, goldens, strict=True):
            goldspan.evaluate(run, golden)
        return (time.process_time() - began) / len(measured) * 1e6

    once()
    return statistics.median(once() for _ in range(5 * rounds))


def text_matrix(rounds: int) -> dict[str, float]:
    """Seconds to compare all pairs of two lists of texts: medians over interleaved rounds.

    `texts`: whether each is similar to the other. `arguments`: the same of calls whose argument the text is: how far
    the arguments of every pair agree, by which calls are paired. `difflib`: the ratio of each pair.
    """
    wanted, given = texts()
    matchers = [Similar(text) for text in wanted]
    tools = [ExpectedTool("send_email", arguments={"body": matcher}) for matcher in matchers]
    calls = [ToolCall("send_email", arguments={"body": text}) for text in given]
    ways: dict[str, Callable[[], object]] = {
        "texts": lambda: [agrees(matcher, text) for matcher in matchers for text in given],
        "arguments": lambda: [argument_share(tool, call) for tool in tools for call in calls],
        "difflib": lambda: [SequenceMatcher(None, one, other).ratio() for one in wanted for other in given],
    }
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for round_number in range(rounds + 1):
        for way, run in ways.items():
            seconds = _seconds(run)
            if round_number:  # the first is to warm up
                taken[way].append(seconds)
    return {way: statistics.median(times) for way, times in taken.items()}


def texts() -> tuple[list[str], list[str]]:
    """Texts of 60 to 200 characters, and each of them with some other words, in another order."""
    chance = random.Random("texts")
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(300)]
    wanted = []
    for _ in range(TEXTS):
        length, text = chance.randint(60, 194), ""
        while len(text) < length:
            text += f"{chance.choice(words)} "
        wanted.append(text.rstrip())
    given = [" ".join(word if chance.random() < 0.9 else word[::-1] for word in text.split()) for text in wanted]
    chance.shuffle(given)
    return wanted, given


def _seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def _steadily(run: Callable[[], object], at_least: float) -> float:
    """Seconds that it takes once, where it is done again and again for so many; the first time does not count."""
    run()
    times, began = 0, time.process_time()
    while (taken := time.process_time() - began) < at_least:
        run()
        times += 1
    return taken / times


# --- against the peers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Duel:
    """A profile and its peer, with the same options over the same cases."""

    ours: float
    """Microseconds a case."""
    theirs: float
    raised: int
    """Cases in which the peer raised."""
    different: int
    """Cases in which it did not, and the two numbers are not the same."""


def _against(peer: Peer, folder: Path, measured: Sequence[Case], rounds: int) -> Iterator[bool]:
    """Print a line for each of the options, and tell of each whether it is within its budget and right."""
    try:
        python = environment(peer, folder)
        with Worker(peer, python, list(map(asdict, measured))) as worker:
            for options in peer.measured:
                yield _shown(peer, options, duel(peer, options, worker, measured, rounds))
    except Unavailable as why:
        print(f"         {peer.requirement} {why}")


def duel(peer: Peer, options: Options, worker: Worker, measured: Sequence[Case], rounds: int) -> Duel:
    """Time a profile and its peer in turns.

    In each round either side scores all cases for a while, and the first time does not count. So neither pays for the
    caches that the other has filled with its own, or for a processor that slows down while it waits for its turn.
    """

    score, inputs = _ready(peer, options, measured)

    def ours() -> list[float | None]:
        return [score(called, expected, **beside).value for called, expected, beside in inputs]

    worker.prepare(options)
    _, theirs = worker.round(0)
    pairs = [(one, other) for one, other in zip(ours(), theirs, strict=True) if other is not None]
    if not pairs:
        raise Unavailable("cannot be run: it raises in every case")
    taken = [(_steadily(ours, TURN_S), worker.round(TURN_S)[0]) for _ in range(rounds)]
    return Duel(
        ours=statistics.median(ours for ours, _ in taken) / len(measured) * 1e6,
        theirs=statistics.median(theirs for _, theirs in taken) / len(measured) * 1e6,
        raised=len(measured) - len(pairs),
        different=sum(one is None or abs(one - other) > SAME for one, other in pairs),
    )


def _ready(
    peer: Peer, options: Options, measured: Sequence[Case]
) -> tuple[Callable[..., Score], list[tuple[list[Any], list[Any], dict[str, Any]]]]:
    """What scores a case, and for each of them both lists and what is looked at beside them."""

    def calls(made: list[Call]) -> list[Any]:
        return [call["name"] for call in made] if peer.takes_names else made

    inputs = [
        (calls(case.called), calls(case.expected), {"case": case.beside} if peer.name in READS_BESIDE else {})
        for case in measured
    ]
    return goldspan.profiles.prepare(peer.name, **options).score, inputs


READS_BESIDE = ("bfcl",)
"""Profiles that look at something beside the two lists."""


def _shown(peer: Peer, options: Options, found: Duel) -> bool:
    times, least = found.theirs / found.ours, PEER_BUDGETS.get(peer.name, PEER_BUDGET)
    good = times >= least and not found.different
    numbers = f"{found.different} numbers differ" if found.different else "same numbers"
    raised = f"; it raises in {found.raised}" if found.raised else ""
    print(
        f"  {_word(good)} {peer.name:20} {_in_short(options):42} {found.ours:5.1f} {found.theirs:6.1f} {times:6.2f}, "
        f"at least {least:g}; {numbers}{raised}",
        flush=True,
    )
    return good


def _in_short(options: Options) -> str:
    """The options in few words."""
    told: list[str] = []
    for name, value in options.items():
        told += value if isinstance(value, list) else [name if value is True else value or f"not {name}"]
    return ", ".join(told) or "as it comes"


def _judged(sentence: str, good: bool) -> bool:
    print(f"  {_word(good)} {sentence}", flush=True)
    return good


def _word(good: bool) -> str:
    return "ok    " if good else "MISSED"


if __name__ == "__main__":
    sys.exit(main())
