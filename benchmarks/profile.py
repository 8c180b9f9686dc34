"""Show where the time goes when an OTLP request is turned into runs: the tables of `docs/architecture.md`.

    python benchmarks/profile.py [--seconds N] [--functions N]

A timer interrupts the process after each half millisecond of CPU time. A sample counts for the innermost function of
goldspan on the stack, so that the time of the standard library counts for its caller. This distorts less than a
tracing profiler, which makes short functions look expensive. The payloads are those of `extraction.py`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType

import payloads

from goldspan.extraction import extract
from goldspan.otlp.otlp_protobuf import decode_traces

_INTERVAL_SECONDS = 0.0005
_PACKAGE = "goldspan."

STAGES: dict[str, tuple[str, ...]] = {
    "decode the request": ("goldspan.otlp",),
    "classify spans": ("goldspan.conventions",),
    "build trees": ("goldspan.extraction.span_tree", "goldspan.extraction.span_node"),
    "find requests": ("goldspan.extraction.segmentation", "goldspan.extraction"),
    "read and group model turns": ("goldspan.extraction.model_turns", "goldspan.extraction.turn_attribution"),
    "decode messages, arguments and results": ("goldspan.content",),
    "read and merge calls": (
        "goldspan.extraction.observed_calls",
        "goldspan.extraction.reconciliation.call_reconciliation",
        "goldspan.extraction.reconciliation.call_index",
        "goldspan.extraction.reconciliation.call_registry",
    ),
    "assemble and check runs": ("goldspan.extraction.reconciliation", "goldspan.model"),
}
"""The modules of each stage. The longest name that fits a module decides."""


class Sampler:
    """Counts, by module and function, what the process does at regular moments of its CPU time."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def run(self, work: Callable[[], object], seconds: float) -> None:
        """Repeat some work for so many seconds and sample it."""
        work()  # fills the caches, which a service does once
        before = signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, _INTERVAL_SECONDS, _INTERVAL_SECONDS)
        try:
            until = time.process_time() + seconds
            while time.process_time() < until:
                work()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)

    def _sample(self, signal_number: int, frame: FrameType | None) -> None:
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            if module.startswith(_PACKAGE):
                code = frame.f_code
                self.counts[module, code.co_qualname if sys.version_info >= (3, 11) else code.co_name] += 1
                return
            frame = frame.f_back


def stage_of(module: str) -> str:
    """The stage that a module belongs to."""
    fitting = [
        (len(name), stage)
        for stage, names in STAGES.items()
        for name in names
        if module == name or module.startswith(f"{name}.")
    ]
    return max(fitting)[1] if fitting else "other"


def sample_payload(requests: list[bytes], seconds: float) -> Counter[tuple[str, str]]:
    """The samples of turning some requests into runs."""

    def work() -> None:
        for request in requests:
            extract(decode_traces(request).spans)

    sampler = Sampler()
    sampler.run(work, seconds)
    return sampler.counts


def stage_table(samples: dict[str, Counter[tuple[str, str]]]) -> str:
    """A Markdown table: the share of each stage, for each payload."""
    lines = [
        f"| stage | modules | {' | '.join(samples)} |",
        f"|---|---|{'--:|' * len(samples)}",
    ]
    for stage, modules in STAGES.items():
        shares = [
            f"{sum(n for (module, _), n in counts.items() if stage_of(module) == stage) / counts.total():.0%}"
            for counts in samples.values()
        ]
        names = ", ".join(f"`{name.removeprefix(_PACKAGE)}`" for name in modules)
        lines.append(f"| {stage} | {names} | {' | '.join(shares)} |")
    return "\n".join(lines)


def function_table(counts: Counter[tuple[str, str]], most: int) -> str:
    """A Markdown table of the functions that take the most time themselves."""
    lines = ["| function | share |", "|---|--:|"]
    for (module, name), count in counts.most_common(most):
        lines.append(f"| `{module.removeprefix(_PACKAGE)}.{name}` | {count / counts.total():.1%} |")
    return "\n".join(lines)


def main() -> None:
    """Sample both payloads and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="CPU time for each payload")
    parser.add_argument("--functions", type=int, default=12, help="functions to list for each payload")
    options = parser.parse_args()
    samples = {
        "payload A": sample_payload([payloads.payload_a()], options.seconds),
        "payload B": sample_payload(payloads.payload_b(), options.seconds),
    }
    print(stage_table(samples))
    for name, counts in samples.items():
        print(f"\n{name}: {counts.total()} samples\n\n{function_table(counts, options.functions)}")


if __name__ == "__main__":
    main()
