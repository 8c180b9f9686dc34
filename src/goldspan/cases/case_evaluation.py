"""`evaluate_cases`: evaluates rows of called and expected tools without a trace.

rows = [{"input": "Book the Ritz.", "tools_called": ["search", "book"], "expected_tools": ["book"]}]
results = goldspan.evaluate_cases(rows)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from goldspan.cases import case_fields
from goldspan.errors import ConfigurationError, GoldspanError
from goldspan.goldens.lookup.golden_lookup import Goldens
from goldspan.goldens.spelling import short_repr
from goldspan.model import NO_VOCABULARY, Evaluation, Golden, Run, Vocabulary
from goldspan.scoring.coercion import as_calls, as_golden
from goldspan.scoring.evaluator import evaluate
from goldspan.scoring.metrics.registry import resolve_metrics

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from goldspan.scoring.coercion import GoldenOverrides
    from goldspan.scoring.metrics import MetricLike

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT")

_QUEUED_ITEMS_PER_WORKER = 4
"""The number of items per worker that are queued ahead."""

_INTERRUPT_POLL_S = 0.5
"""How often a wait checks for an interrupt. On Windows a wait itself cannot be interrupted."""


def map_in_order(
    function: Callable[[InputT], OutputT], items: Iterable[InputT], *, concurrency: int = 1
) -> Generator[OutputT, None, None]:
    """Yields `function(item)` for each item in order, computed in `concurrency` threads. Raises what `function` raises.

    Closing the generator drops the items that have not started. Started items continue in their threads, but nothing
    waits for them: the threads are daemons, so that an interrupted program exits at once.
    """
    if concurrency == 1:
        yield from map(function, items)
        return
    tasks: SimpleQueue[tuple[Future[OutputT], InputT] | None] = SimpleQueue()
    for number in range(concurrency):
        Thread(target=_run_tasks, args=(function, tasks), daemon=True, name=f"goldspan-worker-{number}").start()
    pending: deque[Future[OutputT]] = deque()
    try:
        for item in items:
            pending.append(Future())
            tasks.put((pending[-1], item))
            if len(pending) >= concurrency * _QUEUED_ITEMS_PER_WORKER:
                yield _wait_for_result(pending.popleft())
        while pending:
            yield _wait_for_result(pending.popleft())
    finally:
        for future in pending:
            future.cancel()
        for _ in range(concurrency):
            tasks.put(None)


def _wait_for_result(future: Future[OutputT]) -> OutputT:
    """Returns the result of a worker, or raises its error. Polls, so that an interrupt is noticed at any time."""
    while not future.done():
        wait([future], timeout=_INTERRUPT_POLL_S)
    return future.result()


def _run_tasks(
    function: Callable[[InputT], OutputT], tasks: SimpleQueue[tuple[Future[OutputT], InputT] | None]
) -> None:
    while (task := tasks.get()) is not None:
        future, item = task
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(function(item))
        except BaseException as error:  # noqa: BLE001 - `Future.result` raises it again
            future.set_exception(error)


OnProgress = Callable[[int, int], None]
"""Called with the number of evaluated rows and the number of all rows."""


def evaluate_cases(
    rows: Iterable[Any],
    goldens: Goldens | None = None,
    *,
    metrics: Iterable[MetricLike] | None = None,
    thresholds: Mapping[str, float] | None = None,
    strict: bool = False,
    reasons: bool = True,
    verbose: bool = False,
    concurrency: int = 1,
    on_progress: OnProgress | None = None,
    **rules: Unpack[GoldenOverrides],
) -> list[Evaluation]:
    """Evaluates rows of called and expected tools.

    A row is a dictionary, or an object with these attributes: `tools_called` (or `tools_used`, `actual_tools`) and
    `expected_tools` (or `reference_tools`), which are lists of names, dictionaries or objects; and optionally `input`
    (or `query`), `output` (or `actual_output`), `id` (the `run_id` of the evaluation), `session_id`, `agent`,
    `available_tools` and `metadata`. Other keys of a dictionary are kept in the metadata of the run.

    A row without expected tools and without golden is not evaluated, and the reason states this. An empty list expects
    that no tool is called.

    Args:
        rows: The rows.
        goldens: Goldens for rows without expected tools, or with a `golden_id`.
        metrics: The metrics to compute, as in `evaluate`.
        thresholds: Thresholds by metric, as in `evaluate`.
        strict: As in `evaluate`.
        reasons: As in `evaluate`.
        verbose: As in `evaluate`.
        concurrency: The number of rows that are evaluated at once, for metrics that wait for I/O.
        on_progress: Called after each row with the number of evaluated rows and the number of all rows.
        rules: Rules of the golden, as in `evaluate`.

    Returns:
        One evaluation per row, in the order of the rows.

    Raises:
        GoldspanError: A row is invalid. The message names the row; no row has been evaluated.
        ConfigurationError: An argument is invalid.
    """
    if concurrency < 1:
        raise ConfigurationError(f"concurrency must be 1 or more, not {short_repr(concurrency)}.")
    if not isinstance(goldens, Goldens | None):
        raise ConfigurationError(f"goldens must be what load_goldens() returns, not {short_repr(goldens)}.")
    if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable):
        raise GoldspanError(f"rows must be a list of cases, not {short_repr(rows)}.")
    vocabulary = goldens.vocabulary if goldens is not None else NO_VOCABULARY
    cases = [parse_case(row, number, vocabulary=vocabulary) for number, row in enumerate(rows, start=1)]
    evaluate_case = case_evaluator(
        goldens, metrics=metrics, thresholds=thresholds, strict=strict, reasons=reasons, verbose=verbose, **rules
    )
    results: list[Evaluation] = []
    with closing(map_in_order(evaluate_case, cases, concurrency=concurrency)) as evaluations:
        for evaluation in evaluations:
            results.append(evaluation)
            if on_progress is not None:
                on_progress(len(results), len(cases))
    return results


@dataclass(frozen=True, slots=True)
class Case:
    """A parsed row: the run, and the golden of its expected tools."""

    run: Run
    golden: Golden | None = None
    """`None` if the row has no expected tools."""


def parse_case(row: Any, number: int, *, location: str | None = None, vocabulary: Vocabulary = NO_VOCABULARY) -> Case:
    """Parses one row. Raises `GoldspanError` with the location of the row and the problem."""
    try:
        if row is None or isinstance(row, str | int | float | list | tuple):
            raise GoldspanError(f"a case must be a dictionary, not {short_repr(row)}.")
        return _build_case(row, number, vocabulary)
    except GoldspanError as error:
        raise GoldspanError(f"{location or f'row {number}'}{_row_label(row)}: {error}") from None
    except (ValueError, RecursionError) as error:  # huge integers and deeply nested values
        raise GoldspanError(
            f"{location or f'row {number}'}: holds a value that cannot be converted to text: {error}."
        ) from None


def case_evaluator(
    goldens: Goldens | None = None,
    *,
    metrics: Iterable[MetricLike] | None = None,
    thresholds: Mapping[str, float] | None = None,
    **options: Any,
) -> Callable[[Case], Evaluation]:
    """Returns a function that evaluates cases. Raises `ConfigurationError` for unknown metrics."""
    resolved = resolve_metrics(metrics, thresholds)
    explicit_metrics = None if metrics is None else resolved  # without explicit metrics, those of the golden apply
    return partial(_evaluate_case, goldens=goldens, metrics=explicit_metrics, thresholds=thresholds, **options)


def _evaluate_case(case: Case, *, goldens: Goldens | None, **options: Any) -> Evaluation:
    """Evaluates a row. Its golden id takes precedence over its expected tools."""
    by_id = goldens is not None and case.run.golden_id is not None
    return evaluate(case.run, goldens if by_id or case.golden is None else case.golden, **options)


def _build_case(row: Any, number: int, vocabulary: Vocabulary) -> Case:
    fields, other_fields = case_fields.split_fields(row, case_fields.CASE_FIELDS, is_present=case_fields.is_not_blank)
    called, expected = fields.get("tools_called"), fields.get("expected_tools")
    if called is None:
        hint = case_fields.unknown_key_hint(row, "tools_called", case_fields.CASE_FIELDS)
        raise GoldspanError(hint or "tools_called is missing; write [] if no tool was called.")
    if (
        expected is None
        and "golden_id" not in fields
        and (hint := case_fields.unknown_key_hint(row, "expected_tools", case_fields.CASE_FIELDS))
    ):
        raise GoldspanError(hint)
    run = Run(
        run_id=_identifier(fields, "id") or f"row {number}",
        input=case_fields.text_field(fields, "input"),
        output=case_fields.text_field(fields, "output"),
        session_id=_identifier(fields, "session_id"),
        agent=case_fields.text_field(fields, "agent"),
        tool_calls=as_calls(map(case_fields.normalize_call, case_fields.parse_tool_list(called, "tools_called"))),
        available_tools=tuple(
            map(
                case_fields.parse_tool_definition,
                case_fields.parse_tool_list(fields.get("available_tools", ()), "available_tools"),
            )
        ),
        golden_id=_identifier(fields, "golden_id"),
        metadata={**other_fields, **_metadata(fields.get("metadata"))},
    )
    if expected is None:
        return Case(run)
    items = [
        case_fields.normalize_expected_call(item) for item in case_fields.parse_tool_list(expected, "expected_tools")
    ]
    return Case(run, Golden(run.run_id, run.input, as_golden(items).tools, vocabulary=vocabulary))


def _identifier(fields: Mapping[str, Any], field: str) -> str | None:
    value = fields.get(field)
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        raise GoldspanError(f"{field} must be text or a number, not {short_repr(value)}.")
    return None if value is None else str(value).strip()


def _metadata(value: Any) -> dict[str, Any]:
    """Returns metadata as a dictionary; any other value under the key `metadata`."""
    if isinstance(value, Mapping):
        return {str(key): inner for key, inner in value.items()}
    return {} if value is None else {"metadata": value}


def _row_label(row: Any) -> str:
    """Returns ` ('refund-7')` for a row with an id, else an empty text."""
    row_id = case_fields.split_fields(row, case_fields.CASE_FIELDS, is_present=case_fields.is_not_blank)[0].get("id")
    return f" ({short_repr(row_id)})" if isinstance(row_id, str | int) else ""
