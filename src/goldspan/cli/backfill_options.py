"""Sends scores to other products for `export` and `score`: options, progress, summary and exit status."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goldspan.errors import ConfigurationError

if TYPE_CHECKING:
    from goldspan.integrations.backfill import BackfillResult
    from goldspan.integrations.delivery_log import DeliveryLog
    from goldspan.integrations.http_client import ProductClient
    from goldspan.integrations.product import Product
    from goldspan.integrations.scored_runs import ScoredRun
    from goldspan.model import Evaluation

NOT_ALL_WRITTEN = 1
_PANEL = "Scores in other products"

ToOption = Annotated[
    list[str] | None,
    typer.Option(
        "--to",
        metavar="PRODUCT",
        help="Write the scores into this product: phoenix, mlflow, langfuse, langsmith, datadog, braintrust or opik; "
        "or NAME:URL. Tokens are in the product's own variables only. May be repeated.",
        rich_help_panel=_PANEL,
    ),
]
DryRunFlag = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Print the requests that --to would send, without headers and tokens, and send nothing. With --json: one "
        "JSON object per line.",
        rich_help_panel=_PANEL,
    ),
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="FILE",
        help="The file that records which runs were written, so that the repeated command continues. Default: for "
        "export, STORE.delivered beside the store; for score, none.",
        rich_help_panel=_PANEL,
    ),
]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--rate",
        metavar="N",
        min=0,
        help="The maximum number of runs written in a second; 0 for no limit. Default: 50",
        rich_help_panel=_PANEL,
    ),
]
GiveUpAfterOption = Annotated[
    str | None,
    typer.Option(
        "--give-up-after",
        metavar="TIME",
        help="How long to wait for a product that accepts nothing: 30s, 10m, 2h. Default: 10m",
        rich_help_panel=_PANEL,
    ),
]

RunSource = Callable[[], "Iterable[ScoredRun | None]"]
"""Returns the runs from the first one on; `None` stands for a run without a trace."""


@dataclass(frozen=True)
class ScoreBackfill:
    """The products that the options name, and how scores are sent to them."""

    products: Sequence[Product]
    is_dry_run: bool
    state: Path | None
    rate: float | None
    """Runs in a second; `None` for no limit."""
    give_up_after: float

    def send(self, runs: RunSource, total: int, *, as_json: bool) -> int:
        """Write the runs into each product and print the results; return the exit status.

        0: each product has the scores of every run that it can show. A dry run prints the requests instead. Raises
        `KeyboardInterrupt` after Ctrl-C.
        """
        from goldspan.integrations.delivery_log import DeliveryLog
        from goldspan.integrations.http_client import ProductClient

        status = 0
        with ExitStack() as stack:
            # Each address and token is checked before anything is sent.
            clients = [stack.enter_context(closing(ProductClient(product))) for product in self.products]
            log = stack.enter_context(DeliveryLog(self.state, read_only=self.is_dry_run))
            if self.is_dry_run:
                for product in self.products:
                    _print_requests(product, log, runs(), as_json=as_json)
                return status
            is_stopped = stack.enter_context(_interrupt_flag())
            for product, client in zip(self.products, clients, strict=True):
                result = self._write(product, client, log, runs, total, is_stopped)
                self._print_result(product, result)
                if result.stopped_by == "interrupted":
                    raise KeyboardInterrupt
                if not result.is_complete:
                    status = NOT_ALL_WRITTEN
        return status

    def send_evaluations(self, evaluations: Sequence[Evaluation], *, as_json: bool) -> int:
        """Write evaluations as `send` does."""
        from goldspan.integrations.scored_runs import scored_run

        return self.send(lambda: map(scored_run, evaluations), len(evaluations), as_json=as_json)

    def _write(
        self,
        product: Product,
        client: ProductClient,
        log: DeliveryLog,
        runs: RunSource,
        total: int,
        is_stopped: Callable[[], bool],
    ) -> BackfillResult:
        from goldspan.cli.console import with_progress_bar
        from goldspan.integrations.backfill import Backfill

        backfill = Backfill(
            product, client, log, rate=self.rate, give_up_after=self.give_up_after, is_stopped=is_stopped
        )
        with closing(with_progress_bar(runs(), total, f"writing to {product.name}")) as shown:
            return backfill.write(shown, total)

    def _print_result(self, product: Product, result: BackfillResult) -> None:
        counts = {
            "written": result.written,
            "already there": result.unchanged,
            "without a trace": result.without_trace,
            "refused": result.refused,
            "not found": result.not_found,
            "pending": result.pending,
        }
        shown = [f"{count} {what}" for what, count in counts.items() if count or what == "written"]
        lines = [f"{product.name} ({product.base_url}): {', '.join(shown)}"]
        lines += [f"  refused: run {refusal.run_id}: {refusal.reason}" for refusal in result.refusals]
        lines += _more(result.refused - len(result.refusals), "refused")
        lines += [f"  not found: run {run.run_id}, trace {run.trace_id}" for run in result.unknown_runs]
        lines += _more(result.not_found - len(result.unknown_runs), "not found")
        if result.error is not None:
            lines.append(f"  {result.error}")
        advice = "continue" if self.state is not None else "write all runs again, which updates them"
        if result.stopped_by == "misconfigured":
            lines.append(f"  correct the address or the token, and repeat the command to {advice}")
        elif result.stopped_by == "unavailable":
            lines.append(f"  {product.name} accepted nothing for too long; repeat the command to {advice}")
        elif result.stopped_by == "interrupted":
            lines.append(f"  interrupted; repeat the command to {advice}")
        _print_lines(lines)


def backfill_from(
    to: list[str] | None,
    *,
    dry_run: bool,
    state: Path | None,
    rate: float | None,
    give_up_after: str | None,
    default_state: Path | None = None,
) -> ScoreBackfill | None:
    """Return what the options state; `None` without `--to`. Raises `ConfigurationError`."""
    if not to:
        others = {"--dry-run": dry_run, "--state": state, "--rate": rate, "--give-up-after": give_up_after}
        for option, value in others.items():
            if value is not None and value is not False:
                raise ConfigurationError(f"{option} needs --to: it says how scores are written into that product")
        return None
    from goldspan.integrations.backfill import DEFAULT_GIVE_UP_SECONDS, DEFAULT_RATE
    from goldspan.integrations.catalog import create_product

    return ScoreBackfill(
        [create_product(name) for name in dict.fromkeys(to)],
        is_dry_run=dry_run,
        state=state or default_state,
        rate=DEFAULT_RATE if rate is None else rate or None,
        give_up_after=DEFAULT_GIVE_UP_SECONDS if give_up_after is None else _seconds(give_up_after),
    )


def _seconds(text: str) -> float:
    from goldspan.store.query_parameters import duration_seconds

    seconds = duration_seconds(text)
    if seconds is None:
        raise ConfigurationError(f"--give-up-after: {text[:60]!r} is not a duration; write it as 30s, 10m or 2h")
    return seconds


def _print_requests(product: Product, log: DeliveryLog, runs: Iterable[ScoredRun | None], *, as_json: bool) -> None:
    """Print the requests to a product, and how they can differ from those that would be sent."""
    import json

    from goldspan.cli.console import stdout_console
    from goldspan.integrations.backfill import preview

    output, count = stdout_console(), 0
    for request in preview(product, log, runs):
        output.write_line(json.dumps(request) if as_json else _readable(request))
        count += 1
    requests = f"{count} request{'s' * (count != 1)}"
    _print_lines([f"dry run: {requests} to {product.name} ({product.base_url}), none was sent"])
    if count and product.preview_note:
        _print_lines([f"  what is sent can differ: {product.preview_note}"])


def _readable(request: dict[str, Any]) -> str:
    import json

    body = request["body"]
    return f"{request['method']} {request['url']}\n" + ("" if body is None else f"{json.dumps(body, indent=2)}\n")


def _more(count: int, what: str) -> list[str]:
    return [f"  and {count} more {what}"] if count > 0 else []


def _print_lines(lines: Iterable[str]) -> None:
    from goldspan.cli.console import stderr_console
    from goldspan.terminal.escapes import escape_control_characters

    console = stderr_console()
    for line in lines:
        console.print(escape_control_characters(line), markup=False)


@contextmanager
def _interrupt_flag() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed. A second Ctrl-C ends the program at once."""
    is_interrupted = False

    def remember(_signal: int, _frame: Any) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        signal.signal(signal.SIGINT, previous)

    previous = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: is_interrupted
    finally:
        signal.signal(signal.SIGINT, previous)
