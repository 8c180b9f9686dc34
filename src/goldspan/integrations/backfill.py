"""`Backfill` writes scored runs into a product one after another, for `goldspan export` and `score`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, Literal
from urllib.parse import urlencode

from goldspan.integrations.delivery_log import DeliveryLog
from goldspan.integrations.http_client import ProductClient
from goldspan.integrations.product import Product
from goldspan.integrations.score_delivery import DeliveryResult, Refusal, ScoreDelivery
from goldspan.integrations.scored_runs import ScoredRun, latest_revisions

StopCause = Literal["interrupted", "misconfigured", "unavailable"]
"""Why a backfill ended before its last run: the caller ended it, the product rejects the token or the address, or the
product accepted nothing for too long."""

DEFAULT_RATE = 50.0
"""The runs in a second that a backfill writes at most."""
DEFAULT_GIVE_UP_SECONDS = 600.0
MAX_EXAMPLES = 5
"""The number of refused and of unknown runs that a result names."""
_STOP_CHECK_SECONDS = 0.1
"""The seconds between two checks whether to stop, during a pause."""


@dataclass(slots=True)
class BackfillResult:
    """What became of the runs. Each run is counted once."""

    written: int = 0
    unchanged: int = 0
    """Runs whose scores the log has as written."""
    without_trace: int = 0
    """Runs that no product can show, such as cases."""
    refused: int = 0
    not_found: int = 0
    """Runs whose trace or span the product does not know."""
    pending: int = 0
    """Runs that were not written, because the backfill stopped."""
    stopped_by: StopCause | None = None
    error: str | None = None
    """The reply of the product that stopped the backfill."""
    refusals: list[Refusal] = field(default_factory=list)
    """The first refused runs, and why."""
    unknown_runs: list[ScoredRun] = field(default_factory=list)
    """The first runs whose trace or span the product does not know."""

    @property
    def is_complete(self) -> bool:
        """Whether the product has the scores of every run that it can show."""
        return not (self.refused or self.not_found or self.pending or self.stopped_by)

    @property
    def count(self) -> int:
        """The number of runs."""
        counted = self.written + self.unchanged + self.without_trace + self.refused + self.not_found
        return counted + self.pending

    def add(self, part: DeliveryResult) -> None:
        """Add what became of some runs. Pending ones are not counted: they are written again."""
        self.written += part.written_count
        self.refused += len(part.refusals)
        self.not_found += len(part.not_found)
        self.refusals += part.refusals[: MAX_EXAMPLES - len(self.refusals)]
        self.unknown_runs += part.not_found[: MAX_EXAMPLES - len(self.unknown_runs)]


class Backfill:
    """Writes runs into one product, waits as long as the product asks, and records in a log what was written.

    It holds at most `max_runs` runs of the product in memory. A run is written again if its scores differ from those in
    the log.

    Args:
        product: The product.
        client: Sends the requests.
        log: What was written before.
        rate: The maximum number of runs in a second; `None` for no limit.
        give_up_after: The seconds after which to stop if the product accepts nothing.
        is_stopped: Returns whether to stop. The request that is being sent is completed first.
    """

    def __init__(
        self,
        product: Product,
        client: ProductClient,
        log: DeliveryLog,
        *,
        rate: float | None = DEFAULT_RATE,
        give_up_after: float = DEFAULT_GIVE_UP_SECONDS,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._product = product
        self._delivery = ScoreDelivery(product, client)
        self._log = log
        self._rate = rate
        self._give_up_after = give_up_after
        self._is_stopped = is_stopped
        self._failing_since: float | None = None
        self._result = BackfillResult()

    def write(self, runs: Iterable[ScoredRun | None], total: int) -> BackfillResult:
        """Write the scores of `total` runs, in their order. `None` stands for a run without a trace."""
        result = self._result = BackfillResult()
        self._failing_since = None
        source = self._unwritten(runs)
        size = self._product.max_runs
        if self._rate is not None:
            size = min(size, max(1, int(self._rate)))  # no more in one go than in a second
        pending: Sequence[ScoredRun] = ()
        while chunk := self._without_repetitions([*pending, *islice(source, size - len(pending))]):
            if self._is_stopped():
                break
            began = time.monotonic()
            pending, pause = self._deliver(chunk)
            if result.stopped_by is not None:
                break
            next_at = began + (len(chunk) / self._rate if self._rate is not None else 0.0)
            self._wait(max(pause, next_at - time.monotonic()))
        if self._is_stopped() and total > result.count:
            result.stopped_by = "interrupted"
        if result.stopped_by is not None:
            result.pending = max(0, total - result.count)
        return result

    def _unwritten(self, runs: Iterable[ScoredRun | None]) -> Iterator[ScoredRun]:
        """Yield the runs that must be written, until the backfill is stopped."""
        for run in runs:
            if self._is_stopped():  # also while no run must be written
                return
            if run is None:
                self._result.without_trace += 1
            elif (is_delivered := self._log.is_delivered(self._product, run)) is None:
                yield run
            elif is_delivered:
                self._result.unchanged += 1
            else:
                yield _as_revision(run)

    def _without_repetitions(self, runs: Sequence[ScoredRun]) -> list[ScoredRun]:
        latest = latest_revisions(runs)
        self._result.unchanged += len(runs) - len(latest)
        return latest

    def _deliver(self, runs: Sequence[ScoredRun]) -> tuple[Sequence[ScoredRun], float]:
        """Write some runs; return those that must be written again, and the seconds to wait before."""
        result, part = self._result, DeliveryResult()
        for part in self._delivery.deliver_parts(runs):
            self._log.record(self._product, part.written_runs)
            result.add(part)
            if part.failure is None:
                self._failing_since = None
            if self._is_stopped():
                return (), 0.0
        if part.failure is None:
            return (), 0.0
        now = time.monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        if part.failure == "misconfigured":
            result.stopped_by = "misconfigured"
        elif now + part.pause - self._failing_since > self._give_up_after:
            result.stopped_by = "unavailable"
        result.error = part.error if result.stopped_by else None
        return part.pending, part.pause

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._is_stopped():
            time.sleep(min(left, _STOP_CHECK_SECONDS))


def preview(product: Product, log: DeliveryLog, runs: Iterable[ScoredRun | None]) -> Iterator[dict[str, Any]]:
    """Yield the requests that would write the runs which the log does not have, as JSON values.

    Nothing is sent, and no headers are shown. `Product.preview_note` says how they can differ from what a
    backfill sends.
    """
    known = ((run, log.is_delivered(product, run)) for run in runs if run is not None)
    source = (run if is_delivered is None else _as_revision(run) for run, is_delivered in known if not is_delivered)
    for first in source:
        chunk = latest_revisions(chain((first,), islice(source, product.max_runs - 1)))
        for request in product.requests(chunk):
            query = f"?{urlencode(request.query)}" if request.query else ""
            url = f"{product.base_url.rstrip('/')}{request.path}{query}"
            yield {"product": product.name, "method": request.method, "url": url, "body": request.body}


def _as_revision(run: ScoredRun) -> ScoredRun:
    """Return a run as a later revision: the product has other scores of it, which must be updated or removed."""
    return replace(run, revision=max(2, run.revision))
