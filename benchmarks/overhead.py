"""What capturing and scoring cost the application, as ratios to bare OpenTelemetry spans.

    python benchmarks/overhead.py [--peers FOLDER [--only PEER ...]] [--rounds N] [--check]

One request is an agent's span around ten tool calls. *Bare*: the same eleven spans made with the OpenTelemetry API,
with the same attributes as constants, exported in batches to nowhere. All take turns, a few requests each; medians are
shown.

The *application's* time is what its own thread spends in the requests. What is done in the background comes on top of
that and is in *all*: the time of the whole process until everything is flushed.

*Peers* are installed from PyPI into FOLDER on first use, an environment each: 3 GB in all. Each is measured in a
process of its own against bare spans made there, and so is goldspan; what it would send is dropped where it would be
sent. `--check` ends with 1 where a budget is missed or a peer is ahead.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from peers.capture import CAPTURE_PEERS
from peers.capture_worker import (
    NAMES,
    QUESTION,
    REQUESTS,
    TOOLS,
    Kept,
    Prepared,
    bare_requests,
    decorated_requests,
    ratio,
)
from peers.environments import Unavailable, answer, environment

import goldspan
from goldspan.model import ExpectedTool, Golden

DECORATOR_BUDGET = 1.1
"""How many times a bare span a call of a decorated function may take, arguments and result captured."""
SCORING_BUDGET = 1.15
"""How many times as much a request may take where it is scored."""
PROCESS_BUDGET = 6.0
"""How many times the bare spans a decorated and scored request may take, all threads together."""

WORKER = Path(__file__).parent / "peers" / "capture_worker.py"
GOLDEN = Golden("g", QUESTION, tuple(ExpectedTool(name) for name in NAMES))


def main() -> int:
    """Measure, print, and compare with the budgets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="install the peers here and measure them, too")
    parser.add_argument("--only", nargs="+", metavar="PEER", choices=[peer.name for peer in CAPTURE_PEERS])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--check", action="store_true", help="end with 1 where a budget is missed or a peer is ahead")
    options = parser.parse_args()

    print(
        f"{TOOLS} tool calls a request, medians of {options.rounds} interleaved turns, Python {sys.version.split()[0]}"
    )
    ours = answer("goldspan", Path(sys.executable), WORKER, "overhead", options.rounds)
    results = [*_decorator(ours), *_scoring(options.rounds)]
    if options.peers:
        print(f"decorators in processes of their own         bare     sync    async\n{_row('goldspan', ours)}")
        for peer in CAPTURE_PEERS:
            if not options.only or peer.name in options.only:
                try:
                    python = environment(peer, options.peers.resolve())
                    theirs = answer(peer.name, python, WORKER, "overhead", max(options.rounds // 4, 1))
                except Unavailable as why:
                    print(f"         {peer.requirement} {why}")
                    continue
                ahead = all(ours[way] < theirs[way] for way in ("sync", "async"))
                results.append(ahead)
                print(f"{_row(peer.requirement, theirs)}   {'goldspan is ahead' if ahead else 'MISSED: it is ahead'}")
    return 1 if options.check and not all(results) else 0


def _decorator(ours: dict[str, float]) -> Iterator[bool]:
    for way in ("sync", "async"):
        yield _judged(
            f"a call of a decorated {way} function takes {ours[way]:.2f} bare spans, at most {DECORATOR_BUDGET:g}",
            ours[way] <= DECORATOR_BUDGET,
        )


def _row(name: str, found: dict[str, float]) -> str:
    return f"  {name:38} {found['bare']:5.1f} us {found['sync']:8.2f} {found['async']:8.2f}"


# --- scoring ----------------------------------------------------------------------------------------------------------


@dataclass
class Variant:
    """One way to make and handle the spans of a request."""

    run: Callable[[int], None]
    provider: TracerProvider
    application: list[float] = field(default_factory=list)
    """Microseconds a span on the application's own thread, turn by turn."""
    process: list[float] = field(default_factory=list)
    """The same of the whole process, until everything is flushed."""


def _scoring(rounds: int) -> Iterator[bool]:
    """Print what each variant takes, and tell of those that score whether they are within the budget."""
    variants = measure(rounds)
    bare = variants["bare spans"]
    print("                              the application's           all")
    for name, variant in variants.items():
        columns = [
            f"{statistics.median(own):6.1f} us a span {ratio(own, base):6.2f}"
            for own, base in ((variant.application, bare.application), (variant.process, bare.process))
        ]
        print(f"  {name:24}  {'   '.join(columns)}")
    for name in ("bare spans", "@goldspan.trace"):
        found = ratio(variants[f"{name}, scored"].application, variants[name].application)
        yield _judged(
            f"{name}: scored, a request takes the application {found:.2f} times as long, at most {SCORING_BUDGET:g}",
            found <= SCORING_BUDGET,
        )
    found = ratio(variants["@goldspan.trace, scored"].process, bare.process)
    yield _judged(
        f"@goldspan.trace, scored: all threads take {found:.2f} times the bare spans, at most {PROCESS_BUDGET:g}",
        found <= PROCESS_BUDGET,
    )


def measure(rounds: int) -> dict[str, Variant]:
    """All variants, taking turns."""
    peer = Prepared(goldspan.trace(kind="agent"), goldspan.trace, Kept(), lambda: None)
    decorated = decorated_requests(peer)["sync"]
    variants = {}
    for name, processor in (("", exporting), (", scored", scoring)):
        for spans in ("bare spans", "@goldspan.trace"):
            provider = TracerProvider()
            provider.add_span_processor(processor())
            run = bare_requests(provider)["sync"] if spans == "bare spans" else decorated
            variants[spans + name] = Variant(run, provider)
    gc.collect()
    gc.freeze()
    order = list(variants.values())
    for number in range(rounds + 1):
        for variant in order:
            _take_turn(variant, counts=number > 0)
        order.reverse()  # so that nobody always follows the same one
    for variant in variants.values():
        variant.provider.shutdown()
    return variants


def exporting() -> SpanProcessor:
    return BatchSpanProcessor(Kept(), max_queue_size=1_000_000)


def scoring() -> SpanProcessor:
    return goldspan.ScoringProcessor([GOLDEN], then=exporting())


def _take_turn(variant: Variant, *, counts: bool) -> None:
    # The decorator takes the global provider, of which a process has one; here they take turns.
    trace._TRACER_PROVIDER = variant.provider
    variant.provider.force_flush()
    process = time.process_time()
    variant.run(1)  # the thread waited for another one, and its caches are cold
    application = time.thread_time()
    variant.run(REQUESTS)
    application = time.thread_time() - application
    variant.provider.force_flush()
    process = time.process_time() - process
    if counts:  # the first turn is to warm up
        variant.application.append(_a_span(application, REQUESTS))
        variant.process.append(_a_span(process, REQUESTS + 1))


def _a_span(seconds: float, requests: int) -> float:
    return seconds / requests / (TOOLS + 1) * 1e6


def _judged(sentence: str, good: bool) -> bool:
    print(f"  {'ok    ' if good else 'MISSED'} {sentence}", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
