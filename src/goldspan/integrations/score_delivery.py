"""`ScoreDelivery` writes the scores of runs into a product, and classifies what could not be written."""

from __future__ import annotations

import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from goldspan import _guard
from goldspan.integrations.http_client import DeliveryError, FailureKind, ProductClient
from goldspan.integrations.product import Product
from goldspan.integrations.scored_runs import ScoredRun

_log = logging.getLogger("goldspan")

_FIRST_PAUSE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 60.0
_MISCONFIGURED_PAUSE_SECONDS = 15.0
"""The first pause if the address or the token is wrong: a repetition succeeds only after somebody corrected it."""
_MAX_RETRY_AFTER_SECONDS = 600.0
_MAX_OWN_FAILURES = 3
"""How often a run may fail while the product accepts another one, before the run itself counts as the cause."""


class Refusal(NamedTuple):
    """A run that the product will never accept."""

    run_id: str
    reason: str


@dataclass(slots=True)
class DeliveryResult:
    """What became of some runs. Each run is listed once."""

    written_runs: list[ScoredRun] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    not_found: list[ScoredRun] = field(default_factory=list)
    """The runs whose trace or span the product does not know, perhaps because it has not arrived yet."""
    pending: list[ScoredRun] = field(default_factory=list)
    """The runs that must be written again, after the pause."""
    pause: float = 0.0
    """The seconds to wait."""
    failure: FailureKind | None = None
    """What a failure of the product means. `None`: the product answered."""
    error: str | None = None
    """The reply that says why there are pending runs, or runs of unknown traces."""

    @property
    def written_count(self) -> int:
        """The number of runs that were written."""
        return len(self.written_runs)

    @property
    def refused(self) -> list[str]:
        """Why the product will never accept a run, one text for each run."""
        return [refusal.reason for refusal in self.refusals]

    @property
    def count(self) -> int:
        """The number of runs."""
        return self.written_count + len(self.refusals) + len(self.not_found) + len(self.pending)

    def add(self, other: DeliveryResult) -> None:
        """Add what became of further runs."""
        self.written_runs += other.written_runs
        self.refusals += other.refusals
        self.not_found += other.not_found
        self.pending += other.pending
        self.pause = max(self.pause, other.pause)
        self.failure = other.failure or self.failure
        self.error = other.error or self.error


class ScoreDelivery:
    """Writes runs into one product. It never waits: the caller repeats what is pending after the pause.

    A request that the product refuses is split in half until the runs that it refuses are alone. While the product
    fails, one run at a time is tried. A run that fails while others are accepted is itself at fault and is refused.
    It is not thread-safe.
    """

    def __init__(
        self, product: Product, client: ProductClient, *, random_fraction: Callable[[], float] = random.random
    ) -> None:
        self.product = product
        self._client = client
        self._random_fraction = random_fraction
        self._failures = 0
        self._failed_alone: set[str] = set()
        self._own_failures: Counter[str] = Counter()
        self._is_outage_logged = False

    def deliver(self, runs: Sequence[ScoredRun]) -> DeliveryResult:
        """Write some runs, in their order. Stops at the first failure that concerns the product and not a run."""
        result = DeliveryResult()
        for part in self.deliver_parts(runs):
            result.add(part)
        return result

    def deliver_parts(self, runs: Sequence[ScoredRun]) -> Iterator[DeliveryResult]:
        """Write some runs as `deliver` does, and yield the result of each part of them as soon as it is known."""
        waiting = deque(self._batches(runs))
        while waiting:
            batch = waiting.popleft()
            try:
                refused = self.product.write(batch, self._client.send)
            except DeliveryError as error:
                if error.kind not in ("refused", "not_found"):
                    yield self._record_failure(error, batch, chain.from_iterable(waiting))
                    return
                self._record_reachable(batch)
                if error.kind == "not_found" and (unknown := set(error.unknown_run_ids)):
                    not_found = [run for run in batch if run.run_id in unknown]
                    written = [run for run in batch if run.run_id not in unknown]
                    yield DeliveryResult(written, not_found=not_found, error=str(error))
                elif len(batch) > 1:
                    _split(batch, waiting)
                elif error.kind == "not_found":
                    yield DeliveryResult(not_found=list(batch), error=str(error))
                else:
                    yield DeliveryResult(refusals=[Refusal(batch[0].run_id, str(error))])
            except Exception as error:  # noqa: BLE001 - one run must not keep the others from being written
                if len(batch) > 1:
                    _split(batch, waiting)
                    continue
                _guard.report_error(f"write scores to {self.product.name}", error)
                text = f"{type(error).__name__} in the integration {self.product.name}"
                yield DeliveryResult(refusals=[Refusal(batch[0].run_id, text)])
            else:
                self._record_reachable(batch)
                written = [run for run in batch if run.run_id not in refused]
                yield DeliveryResult(written, [Refusal(*refusal) for refusal in refused.items()])

    def _batches(self, runs: Sequence[ScoredRun]) -> list[Sequence[ScoredRun]]:
        if self._failures:
            return [[run] for run in runs]
        suspects = [run for run in runs if run.run_id in self._own_failures]
        others = [run for run in runs if run.run_id not in self._own_failures] if suspects else runs
        size = self.product.max_runs
        return [*(others[at : at + size] for at in range(0, len(others), size)), *([run] for run in suspects)]

    def _record_failure(
        self, error: DeliveryError, batch: Sequence[ScoredRun], waiting: Iterable[ScoredRun]
    ) -> DeliveryResult:
        """Return the result of a batch that failed because of the product, and of the runs after it."""
        self._failures += 1
        first = _MISCONFIGURED_PAUSE_SECONDS if error.kind == "misconfigured" else _FIRST_PAUSE_SECONDS
        pause = min(_MAX_PAUSE_SECONDS, first * 2.0 ** min(self._failures - 1, 16)) * self._random_fraction()
        result = DeliveryResult(
            # The next attempt starts with another run, because this one may be the cause.
            pending=[*waiting],
            pause=max(pause, min(error.retry_after or 0.0, _MAX_RETRY_AFTER_SECONDS)),
            failure=error.kind,
            error=str(error),
        )
        if len(batch) == 1 and error.kind == "unavailable":
            run_id = batch[0].run_id
            if self._own_failures[run_id] >= _MAX_OWN_FAILURES:
                del self._own_failures[run_id]
                text = f"{error} ({_MAX_OWN_FAILURES} times, while it accepted other runs)"
                result.refusals.append(Refusal(run_id, text))
                return result
            self._failed_alone.add(run_id)
        result.pending += batch
        if not self._is_outage_logged:
            self._is_outage_logged = True
            _log.error("scores cannot be written now and are kept: %s", error)
        return result

    def _record_reachable(self, batch: Sequence[ScoredRun]) -> None:
        """The product works, so what failed alone before may be at fault itself."""
        self._failures = 0
        for run in batch:
            self._failed_alone.discard(run.run_id)
            self._own_failures.pop(run.run_id, None)
        self._own_failures.update(self._failed_alone)
        self._failed_alone.clear()
        if self._is_outage_logged:
            self._is_outage_logged = False
            _log.warning("%s accepts scores again", self.product.name)


def _split(batch: Sequence[ScoredRun], waiting: deque[Sequence[ScoredRun]]) -> None:
    half = len(batch) // 2
    waiting.extendleft((batch[half:], batch[:half]))
