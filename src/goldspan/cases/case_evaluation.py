"""Cases: what was called and what was expected, in one row each, judged without a trace.

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
"""So many items a worker are taken before the first of them is done."""

_INTERRUPT_POLL_S = 0.5
"""How long the program waits before it looks whether it was interrupted. On Windows waiting cannot be interrupted."""


def map_in_order(
    function: Callable[[InputT], OutputT], items: Iterable[InputT], *, concurrency: int = 1
) -> Generator[OutputT, None, None]:
    """What `work` makes of each item. What it raises is raised here, in the item's turn.

    Once it is closed, what was not begun is dropped. What was begun runs on in its thread, but keeps nobody
    waiting: the threads are daemons, so that a program that is interrupted ends at once.
    """
    if concurrency == 1:
        yield from map(function, items)
        return
    tasks: SimpleQueue[tuple[Future[OutputT], InputT] | None] = SimpleQueue()
    for number in range(concurrency):
        Thread(target=_run_tasks, args=(function, tasks), daemon=True, name=f"goldspan-worker-{number}").start()
    begun: deque[Future[OutputT]] = deque()
    try:
        for item in items:
            begun.append(Future())
            tasks.put((begun[-1], item))
            if len(begun) >= concurrency * _QUEUED_ITEMS_PER_WORKER:
                yield _wait_for_result(begun.popleft())
        while begun:
            yield _wait_for_result(begun.popleft())
    finally:
        for future in begun:
            future.cancel()
        for _ in range(concurrency):
            tasks.put(None)


def _wait_for_result(future: Future[OutputT]) -> OutputT:
    """What a worker made, or raised. An interrupt that comes just before the waiting would else not be heard."""
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
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            future.set_exception(error)


OnProgress = Callable[[int, int], None]
"""Called with how many rows are judged and how many there are."""


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
    """Judge rows that say what was called and what was expected; one evaluation a row, in the order of the rows.

    A row is a dictionary, or an object with these attributes: `tools_called` (or `tools_used`, `actual_tools`) and
    `expected_tools` (or `reference_tools`), lists of names, of dictionaries or of objects; and if it likes `input` (or
    `query`), `output` (or `actual_output`), `id`, which comes back as `run_id`, `session_id`, `agent`,
    `available_tools`, `metadata`. What else it says is kept in the run's metadata.

    `goldens` are for rows that say nothing of expected tools, or have a `golden_id`. A row for which there is no
    expectation is not evaluated, and its reason says so; `[]` expects that no tool is called.

    `concurrency` is how many rows are judged at once, which helps metrics that wait for something; `on_progress` is
    called after each row with how many are done and how many there are. Everything else is as in `evaluate`. Raises
    `GoldspanError`, naming the row, before any row is judged.
    """
    if concurrency < 1:
        raise ConfigurationError(f"concurrency must be 1 or more, not {short_repr(concurrency)}.")
    if not isinstance(goldens, Goldens | None):
        raise ConfigurationError(f"goldens must be what load_goldens() returns, not {short_repr(goldens)}.")
    if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable):
        raise GoldspanError(f"rows must be a list of cases, not {short_repr(rows)}.")
    vocabulary = goldens.vocabulary if goldens is not None else NO_VOCABULARY
    cases = [parse_case(row, number, vocabulary=vocabulary) for number, row in enumerate(rows, start=1)]
    judge = case_evaluator(
        goldens, metrics=metrics, thresholds=thresholds, strict=strict, reasons=reasons, verbose=verbose, **rules
    )
    results: list[Evaluation] = []
    with closing(map_in_order(judge, cases, concurrency=concurrency)) as judged:
        for evaluation in judged:
            results.append(evaluation)
            if on_progress is not None:
                on_progress(len(results), len(cases))
    return results


@dataclass(frozen=True, slots=True)
class Case:
    """A row, read: what happened, and what the row itself expected."""

    run: Run
    golden: Golden | None = None
    """`None`: the row says nothing of expected tools."""


def parse_case(row: Any, number: int, *, location: str | None = None, vocabulary: Vocabulary = NO_VOCABULARY) -> Case:
    """Read one row. Raises `GoldspanError` that says which row it is and what is wrong with it."""
    try:
        if row is None or isinstance(row, str | int | float | list | tuple):
            raise GoldspanError(f"a case must be a dictionary, not {short_repr(row)}.")
        return _build_case(row, number, vocabulary)
    except GoldspanError as error:
        raise GoldspanError(f"{location or f'row {number}'}{_row_label(row)}: {error}") from None
    except (ValueError, RecursionError) as error:  # Python writes no endless number, and nothing nested without end
        raise GoldspanError(f"{location or f'row {number}'}: holds what cannot be written down: {error}.") from None


def case_evaluator(
    goldens: Goldens | None = None,
    *,
    metrics: Iterable[MetricLike] | None = None,
    thresholds: Mapping[str, float] | None = None,
    **how: Any,
) -> Callable[[Case], Evaluation]:
    """A function that judges cases. Raises `ConfigurationError` at once for metrics that there are not."""
    chosen = resolve_metrics(metrics, thresholds)
    wanted = None if metrics is None else chosen  # only where none are asked for, a golden's own are measured
    return partial(_evaluate_case, goldens=goldens, metrics=wanted, thresholds=thresholds, **how)


def _evaluate_case(case: Case, *, goldens: Goldens | None, **how: Any) -> Evaluation:
    """A row that names one of the goldens is judged by it, even where it says what it expected itself."""
    by_id = goldens is not None and case.run.golden_id is not None
    return evaluate(case.run, goldens if by_id or case.golden is None else case.golden, **how)


def _build_case(row: Any, number: int, vocabulary: Vocabulary) -> Case:
    fields, rest = case_fields.split_fields(row, case_fields.CASE_FIELDS, is_present=case_fields.is_not_blank)
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
        metadata={**rest, **_metadata(fields.get("metadata"))},
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
    """A dictionary of metadata; any other is kept under its own name."""
    if isinstance(value, Mapping):
        return {str(key): inner for key, inner in value.items()}
    return {} if value is None else {"metadata": value}


def _row_label(row: Any) -> str:
    """` ('refund-7')`, where the row has an id."""
    known = case_fields.split_fields(row, case_fields.CASE_FIELDS, is_present=case_fields.is_not_blank)[0].get("id")
    return f" ({short_repr(known)})" if isinstance(known, str | int) else ""
