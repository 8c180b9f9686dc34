"""Cases: what was called and what was expected, in one row each, judged without a trace.

rows = [{"input": "Book the Ritz.", "tools_called": ["search", "book"], "expected_tools": ["book"]}]
results = goldspan.evaluate_cases(rows)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from goldspan.cases import dialects
from goldspan.cases.workers import in_order
from goldspan.errors import ConfigurationError, GoldspanError
from goldspan.goldens.lookup import Goldens
from goldspan.goldens.words import shown
from goldspan.model import NO_VOCABULARY, Evaluation, Golden, Run, Vocabulary
from goldspan.scoring.calls import as_calls, as_golden
from goldspan.scoring.evaluator import evaluate
from goldspan.scoring.registry import resolve

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from goldspan.scoring.calls import Rules
    from goldspan.scoring.metrics import MetricLike

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
    **rules: Unpack[Rules],
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
        raise ConfigurationError(f"concurrency must be 1 or more, not {shown(concurrency)}.")
    if not isinstance(goldens, Goldens | None):
        raise ConfigurationError(f"goldens must be what load_goldens() returns, not {shown(goldens)}.")
    if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable):
        raise GoldspanError(f"rows must be a list of cases, not {shown(rows)}.")
    vocabulary = goldens.vocabulary if goldens is not None else NO_VOCABULARY
    cases = [case_of(row, number, vocabulary=vocabulary) for number, row in enumerate(rows, start=1)]
    judge = judge_of(
        goldens, metrics=metrics, thresholds=thresholds, strict=strict, reasons=reasons, verbose=verbose, **rules
    )
    results: list[Evaluation] = []
    with closing(in_order(judge, cases, concurrency=concurrency)) as judged:
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


def case_of(row: Any, number: int, *, where: str | None = None, vocabulary: Vocabulary = NO_VOCABULARY) -> Case:
    """Read one row. Raises `GoldspanError` that says which row it is and what is wrong with it."""
    try:
        if row is None or isinstance(row, str | int | float | list | tuple):
            raise GoldspanError(f"a case must be a dictionary, not {shown(row)}.")
        return _case(row, number, vocabulary)
    except GoldspanError as error:
        raise GoldspanError(f"{where or f'row {number}'}{_named(row)}: {error}") from None
    except (ValueError, RecursionError) as error:  # Python writes no endless number, and nothing nested without end
        raise GoldspanError(f"{where or f'row {number}'}: holds what cannot be written down: {error}.") from None


def judge_of(
    goldens: Goldens | None = None,
    *,
    metrics: Iterable[MetricLike] | None = None,
    thresholds: Mapping[str, float] | None = None,
    **how: Any,
) -> Callable[[Case], Evaluation]:
    """A function that judges cases. Raises `ConfigurationError` at once for metrics that there are not."""
    chosen = resolve(metrics, thresholds)
    wanted = None if metrics is None else chosen  # only where none are asked for, a golden's own are measured
    return partial(_judged, goldens=goldens, metrics=wanted, thresholds=thresholds, **how)


def _judged(case: Case, *, goldens: Goldens | None, **how: Any) -> Evaluation:
    """A row that names one of the goldens is judged by it, even where it says what it expected itself."""
    by_id = goldens is not None and case.run.golden_id is not None
    return evaluate(case.run, goldens if by_id or case.golden is None else case.golden, **how)


def _case(row: Any, number: int, vocabulary: Vocabulary) -> Case:
    fields, rest = dialects.fields_of(row, dialects.CASE, states=dialects.is_filled)
    called, expected = fields.get("tools_called"), fields.get("expected_tools")
    if called is None:
        hint = dialects.slip(row, "tools_called", dialects.CASE)
        raise GoldspanError(hint or "tools_called is missing; write [] if no tool was called.")
    if expected is None and "golden_id" not in fields and (hint := dialects.slip(row, "expected_tools", dialects.CASE)):
        raise GoldspanError(hint)
    run = Run(
        run_id=_identifier(fields, "id") or f"row {number}",
        input=dialects.text_of(fields, "input"),
        output=dialects.text_of(fields, "output"),
        session_id=_identifier(fields, "session_id"),
        agent=dialects.text_of(fields, "agent"),
        tool_calls=as_calls(map(dialects.call_of, dialects.listed_in(called, "tools_called"))),
        available_tools=tuple(
            map(dialects.definition_of, dialects.listed_in(fields.get("available_tools", ()), "available_tools"))
        ),
        golden_id=_identifier(fields, "golden_id"),
        metadata={**rest, **_metadata(fields.get("metadata"))},
    )
    if expected is None:
        return Case(run)
    items = [dialects.expected_of(item) for item in dialects.listed_in(expected, "expected_tools")]
    return Case(run, Golden(run.run_id, run.input, as_golden(items).tools, vocabulary=vocabulary))


def _identifier(fields: Mapping[str, Any], field: str) -> str | None:
    value = fields.get(field)
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        raise GoldspanError(f"{field} must be text or a number, not {shown(value)}.")
    return None if value is None else str(value).strip()


def _metadata(value: Any) -> dict[str, Any]:
    """A dictionary of metadata; any other is kept under its own name."""
    if isinstance(value, Mapping):
        return {str(key): inner for key, inner in value.items()}
    return {} if value is None else {"metadata": value}


def _named(row: Any) -> str:
    """` ('refund-7')`, where the row has an id."""
    known = dialects.fields_of(row, dialects.CASE, states=dialects.is_filled)[0].get("id")
    return f" ({shown(known)})" if isinstance(known, str | int) else ""
