"""An application whose product fails in every way for ten minutes is not slowed down, and loses no score uncounted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.failing_product import FAILURES, FailingProduct

PHASE_S = max(1.5, 600 * float(os.environ.get("STRESS", "1")) / len(FAILURES))
"""How long each failure lasts: all together take ten minutes; `STRESS=0.1` reduces it to a tenth."""
SPEED = max(1.0, 600 / len(FAILURES) / PHASE_S)
"""Divides the pauses of the delivery, so that a shorter outage has as many attempts."""
REQUESTS_PER_SECOND = 100
MAX_QUEUE = 100
"""The queue is full soon after the start of each failure."""
PATIENCE_S = 180
MAX_SLOWDOWN = 3.0
"""How many times as long a request may take as with a working product.

A request takes 0.2 to 0.4 ms, and 1.7 times as long on a busy machine. A request that waits for a reply takes longer
than the limit. `benchmarks/product_outage.py` is more exact.
"""

Sample = dict[str, Any]


class Program:
    """The application in a process of its own. Each of its samples is checked on arrival."""

    def __init__(self, product: FailingProduct, errors: Path) -> None:
        self.samples: list[Sample] = []
        self.mistakes: list[str] = []
        self.phase = "healthy"
        self._errors = errors
        program = Path(__file__).with_name("outage_application.py")
        arguments = [product.url, str(REQUESTS_PER_SECOND), str(MAX_QUEUE), str(SPEED)]
        environment = {**os.environ, "PYTHONPATH": str(program.parents[1]), "GOLDSPAN_STRICT": "0"}
        with errors.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(program), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()

    def wait_for(self, condition: Callable[[Sample], bool]) -> Sample:
        """Return the first sample from now on that meets the condition."""
        checked, until = len(self.samples), time.monotonic() + PATIENCE_S
        while True:
            for sample in self.samples[checked:]:
                checked += 1
                if condition(sample):
                    return sample
            assert self._process.poll() is None, self.errors
            assert time.monotonic() < until, self.samples[-1:]
            time.sleep(0.02)

    def end(self) -> None:
        self.tell("end")
        assert self._process.wait(PATIENCE_S) == 0, self.errors
        self._reader.join()

    def close(self) -> None:
        """End the program at once, if it still runs."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait()

    @property
    def errors(self) -> str:
        """What the program wrote to its standard error."""
        return self._errors.read_text()

    def of_phase(self, phase: str) -> list[Sample]:
        return [sample for sample in self.samples if sample["phase"] == phase]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            sample = json.loads(line) | {"phase": self.phase}
            if sample["submitted"] != sum(sample[name] for name in ("written", "replaced", "dropped", "held")):
                self.mistakes.append(f"does not add up: {sample}")
            if sample["most_held"] > MAX_QUEUE:
                self.mistakes.append(f"the queue exceeded its bound: {sample}")
            if sample["lost_before"]:
                self.mistakes.append(f"runs were not scored: {sample}")
            self.samples.append(sample)


@contextmanager
def running(product: FailingProduct, errors: Path) -> Iterator[Program]:
    program = Program(product, errors)
    try:
        yield program
    finally:
        program.close()


def request_time(samples: list[Sample], clock: str) -> float:
    """Return what a request takes in the fastest sample, because other programs on the machine only add time."""
    return float(min(sample[clock] for sample in samples if sample[clock] is not None))


def is_settled(sample: Sample) -> bool:
    """Return whether the application rests, and its sink holds nothing."""
    return sample["cpu"] is None and not sample["held"]


@pytest.mark.stress
def test_an_application_survives_every_failure_of_its_product_and_loses_no_score_uncounted(tmp_path: Path) -> None:
    product = FailingProduct(slow_seconds=40 / SPEED, retry_after=2)
    with running(product, tmp_path / "errors") as program:
        program.tell("serve")
        time.sleep(max(2.0, PHASE_S / 2))
        for failure in FAILURES:
            program.phase = failure
            product.play(failure)
            time.sleep(PHASE_S)
            last = program.samples[-1]
            print(f"{failure}: {last}, requests of the product {product.requests}", flush=True)
        program.phase = "after"
        program.tell("rest")
        time.sleep(1)  # the last requests are scored
        before = program.wait_for(lambda sample: sample["cpu"] is None)
        assert "your application goes on" not in program.errors  # a fault of goldspan itself
        product.play("healthy")
        after = program.wait_for(is_settled)
        print(f"recovered: {after}", flush=True)

        # Everything held arrived: nothing was dropped, replaced or submitted after the outage.
        assert before["held"] > 0
        assert after["dropped"] == before["dropped"]
        assert after["submitted"] == before["submitted"]
        assert len(product.stored) > 0
        assert after["written"] == sum(product.acknowledged.values())

        program.phase = "works again"
        program.tell("serve")
        time.sleep(max(2.0, PHASE_S / 2))
        program.tell("rest")
        time.sleep(1)
        end = program.wait_for(is_settled)
        program.end()
    product.close()

    assert program.mistakes == []
    assert product.faults == []
    # Each revision that the sink counts as written is stored, and was acknowledged once.
    assert set(product.acknowledged.values()) == {1}
    assert len(product.acknowledged) == end["written"]
    # A revision whose acknowledgement broke off was written again, replaced by a later one, or counted as dropped.
    assert end["requests"] < end["submitted"] <= end["requests"] + end["late_calls"]
    assert end["submitted"] == end["written"] + end["replaced"] + end["dropped"]
    assert end["dropped"] == after["dropped"]
    assert {*FAILURES} - {"down"} <= product.requests.keys()
    # Each failure had its effect.
    for failure in FAILURES:
        first, last = program.of_phase(failure)[0], program.of_phase(failure)[-1]
        assert last["requests"] > first["requests"]
        assert last["dropped"] > first["dropped"], failure
        assert (last["refused"] > first["refused"]) == (failure == "413"), failure
    for clock in ("cpu", "wall"):
        base = request_time(program.of_phase("healthy"), clock)
        slowdowns = {failure: request_time(program.of_phase(failure), clock) / base for failure in FAILURES}
        print(f"{clock} time of a request: {base:.0f} us, ratios {slowdowns}", flush=True)
        assert max(slowdowns.values()) <= MAX_SLOWDOWN, (clock, slowdowns)
