"""Computes the pass rate and the state of each golden, and statistics of the tools in its runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args
from urllib.parse import urlencode

from goldspan.errors import ConfigurationError
from goldspan.extraction.capture_diagnostics import Hint, merge_hints
from goldspan.goldens import Goldens
from goldspan.goldens.golden_files.golden_writer import UnwritableError, goldens_to_yaml
from goldspan.goldens.lookup.golden_lookup import ANONYMOUS_GOLDEN_ID
from goldspan.model import Golden
from goldspan.model.markup import shorten_request
from goldspan.online.pass_rate_statistics import wilson_interval
from goldspan.store import RunFilter, Store, VerdictCounts
from goldspan.store.store_protocol import ALL_RUNS, GroupCounts, Substitution, ToolCounts
from goldspan.web.display_text import unescape_invisible
from goldspan.web.run_list import QueryPairs, RunEntry, match_description, run_entry

GoldenState = Literal["failing", "stale", "never matched", "gone", "not evaluated", "fine"]
"""The state of a golden; the most urgent state is first."""
GoldenSort = Literal["worst", "name", "runs", "rate", "newest"]

FAILING_BELOW_RATE = 0.95
STALE_AFTER_DAYS = 7
STATE_MEANINGS: Mapping[GoldenState, str] = {
    "failing": f"Fewer than {FAILING_BELOW_RATE:.0%} of its runs pass: the whole 95 % interval is below this rate.",
    "stale": f"Its newest run is {STALE_AFTER_DAYS} days older than the newest run of any golden.",
    "never matched": "The golden files in use contain it, and no stored run matched it.",
    "gone": "It has runs, and the golden files in use do not contain it.",
    "not evaluated": "It has runs, and none of them could be evaluated.",
    "fine": "Its pass rate is not significantly too low, and its runs are recent.",
}
GOLDENS_PER_PAGE = 100
MAX_TOOLS = 50
"""Tools, and substitutions, in a table."""
_MAX_FAILURES = 10
_SAMPLED_RUNS = 100
"""Newest runs from which `GoldenStatus.match_descriptions` is counted."""
_MAX_DEFINITION_LENGTH = 20_000
_DAY_NS = 24 * 60 * 60 * 10**9


@dataclass(frozen=True, slots=True)
class PassRateEstimate:
    """The pass rate of some runs, with its confidence interval."""

    counts: VerdictCounts
    share: float | None
    """The share of passed runs among the evaluated runs, or `None` without an evaluated run."""
    low: float | None
    high: float | None
    """`low` and `high` are the bounds of its 95 % interval (`wilson_interval`)."""


@dataclass(frozen=True, slots=True)
class GoldenRow:
    """One row of the table of goldens."""

    golden_id: str
    rate: PassRateEstimate
    last_ns: int | None
    """The start of its newest run, or `None` without a run."""
    state: GoldenState
    request: str = ""
    """The beginning of its input, if it is known."""


@dataclass(frozen=True, slots=True)
class ToolStatistics:
    """The tools in some runs, those with most errors first, and the tools that were called instead of others."""

    tools: tuple[ToolCounts, ...]
    omitted: int
    """The number of further tools."""
    substitutions: tuple[Substitution, ...]
    omitted_substitutions: int


@dataclass(frozen=True, slots=True)
class TableView:
    """The sort order, the search and the page of the table of goldens, as in its URL."""

    sort: GoldenSort = "worst"
    find: str = ""
    """A part of the id or of the input; case is ignored."""
    state: GoldenState | None = None
    page: int = 1
    filters: tuple[tuple[str, str], ...] = ()
    """The other parameters of the URL: filters that select the runs."""

    def address(self, **other: Any) -> str:
        """Return the address of this view with other values; the page is the first unless `other` has another one."""
        values = {"sort": self.sort, "find": self.find, "state": self.state, **other}
        defaults = {"sort": DEFAULT_VIEW.sort, "page": 1}
        changed = [(name, str(value)) for name, value in values.items() if value and defaults.get(name) != value]
        pairs = [*self.filters, *changed]
        return "/goldens?" + urlencode(pairs, errors="replace") if pairs else "/goldens"


DEFAULT_VIEW = TableView()


@dataclass(frozen=True, slots=True)
class GoldenTable:
    """One page of the table of goldens, with totals."""

    rows: tuple[GoldenRow, ...]
    view: TableView
    matching: int
    """The number of goldens that match the view, on all pages."""
    pages: int
    total: int
    """The number of all goldens."""
    states: tuple[tuple[GoldenState, int, str], ...]
    """The states that occur, each with the number of goldens and its meaning."""
    goldens_known: bool
    """Whether the goldens in use are known."""
    covered: VerdictCounts
    """The runs with a golden."""
    uncovered: int
    """The number of runs without a golden."""
    tools: ToolStatistics

    @property
    def first(self) -> int:
        """The number of the first row of this page."""
        return (self.view.page - 1) * GOLDENS_PER_PAGE + 1


@dataclass(frozen=True, slots=True)
class GoldenStatus:
    """The data of the view of one golden."""

    row: GoldenRow
    failures: tuple[RunEntry, ...]
    """The newest failed runs."""
    health: Sequence[tuple[Hint, int]]
    """The capture problems of `failures`, each with the number of runs."""
    match_descriptions: tuple[tuple[str, int], ...]
    """How the newest runs were matched to the golden, each with the number of runs."""
    sampled_runs: int
    """The number of these newest runs."""
    tools: ToolStatistics
    definition: str | None
    """The golden as YAML, or `None` if it is not known."""
    cut_off: bool
    """Whether `definition` is truncated."""
    goldens_known: bool
    """Whether the goldens in use are known."""

    @property
    def meaning(self) -> str:
        """The meaning of its state."""
        return STATE_MEANINGS[self.row.state]


def parse_table_view(pairs: QueryPairs) -> tuple[TableView, list[tuple[str, str]]]:
    """Return the view that a URL describes, and the other parameters of the URL.

    Raises `ConfigurationError` for a value that is not valid.
    """
    pairs = list(pairs)
    values = {
        name: unescape_invisible(text.strip()) for name, text in pairs if name in _VIEW_PARAMETERS and text.strip()
    }
    for name, choices in (("sort", get_args(GoldenSort)), ("state", get_args(GoldenState))):
        if values.get(name, choices[0]) not in choices:
            expected = f"{', '.join(choices[:-1])} or {choices[-1]}"
            raise ConfigurationError(f"{name} must be {expected}, not {values[name][:40]!r}.")
    page = values.get("page", "1")
    if not (page.isascii() and page.isdecimal() and 0 < len(page) < 7 and int(page)):
        raise ConfigurationError(f"page must be a number of at least 1, not {page[:40]!r}.")
    fields: Any = {name: values[name] for name in ("sort", "find", "state") if name in values}
    filters = tuple((name, text) for name, text in pairs if name not in _VIEW_PARAMETERS and text.strip())
    return TableView(**fields, page=int(page), filters=filters), list(filters)


_VIEW_PARAMETERS = ("sort", "find", "state", "page")


def golden_table(
    store: Store, goldens: Goldens | None, run_filter: RunFilter, view: TableView = DEFAULT_VIEW
) -> GoldenTable:
    """Return the goldens of the selected runs. Without a filter, goldens that no run matched are included."""
    groups = store.count_by("golden", run_filter)
    covered_groups = [group for group in groups if group.name is not None]
    rows = list(_golden_rows(covered_groups, goldens, include_unmatched=run_filter == ALL_RUNS))
    matching = [row for row in rows if _matches_view(row, view, goldens)]
    matching.sort(key=lambda row: row.golden_id)
    matching.sort(key=_SORT_KEYS[view.sort])
    pages = max(1, math.ceil(len(matching) / GOLDENS_PER_PAGE))
    view = replace(view, page=min(view.page, pages))
    first = (view.page - 1) * GOLDENS_PER_PAGE
    state_counts = Counter(row.state for row in rows)
    return GoldenTable(
        rows=tuple(_with_request(row, goldens) for row in matching[first : first + GOLDENS_PER_PAGE]),
        view=view,
        matching=len(matching),
        pages=pages,
        total=len(rows),
        states=tuple(
            (state, state_counts[state], meaning) for state, meaning in STATE_MEANINGS.items() if state_counts[state]
        ),
        goldens_known=goldens is not None,
        covered=_sum_counts(group.counts for group in covered_groups),
        uncovered=sum(group.counts.total for group in groups if group.name is None),
        tools=_tool_statistics(store, _covered_only(run_filter)),
    )


def golden_status(store: Store, goldens: Goldens | None, golden_id: str) -> GoldenStatus | None:
    """Return the data of one golden, or `None` if no stored run and no golden in use has the id."""
    run_filter = RunFilter(golden=golden_id)
    newest = store.runs(run_filter, limit=_SAMPLED_RUNS).items
    golden = _find_golden(golden_id, goldens)
    if not newest and golden is None:
        return None
    row = _single_golden_row(store, golden_id, newest[0].time_ns, goldens) if newest else _unmatched_row(golden_id)
    failures = tuple(map(run_entry, store.runs(replace(run_filter, verdict="fail"), limit=_MAX_FAILURES).items))
    descriptions = Counter(match_description(run.current.document) for run in newest)
    definition = None if golden is None else _golden_yaml(golden)
    return GoldenStatus(
        row=_with_request(row, goldens),
        failures=failures,
        health=merge_hints(hint for entry in failures for hint in entry.hints),
        match_descriptions=tuple((text, runs) for text, runs in descriptions.most_common() if text is not None),
        sampled_runs=len(newest),
        tools=_tool_statistics(store, run_filter),
        definition=definition and definition[:_MAX_DEFINITION_LENGTH],
        cut_off=definition is not None and len(definition) > _MAX_DEFINITION_LENGTH,
        goldens_known=goldens is not None,
    )


# --- rows -------------------------------------------------------------------------------------------------------------


def pass_rate(counts: VerdictCounts) -> PassRateEstimate:
    """Return the pass rate of the evaluated runs."""
    evaluated = counts.passed + counts.failed
    low, high = wilson_interval(counts.passed, evaluated) or (None, None)
    return PassRateEstimate(counts, counts.passed / evaluated if evaluated else None, low, high)


def _golden_rows(
    groups: Sequence[GroupCounts], goldens: Goldens | None, *, include_unmatched: bool
) -> Iterator[GoldenRow]:
    newest_ns = max((group.last_ns for group in groups), default=0)
    for group in groups:
        yield _golden_row(group, goldens, newest_ns)
    if include_unmatched and goldens is not None:
        matched = {group.name for group in groups}
        yield from (_unmatched_row(golden.id) for golden in goldens if golden.id not in matched)


def _golden_row(group: GroupCounts, goldens: Goldens | None, newest_ns: int) -> GoldenRow:
    golden_id, rate = group.name or "", pass_rate(group.counts)
    state: GoldenState = "fine"
    if goldens is not None and golden_id not in goldens and golden_id != ANONYMOUS_GOLDEN_ID:
        state = "gone"
    elif rate.high is None:
        state = "not evaluated"
    elif rate.high < FAILING_BELOW_RATE:
        state = "failing"
    elif newest_ns - group.last_ns > STALE_AFTER_DAYS * _DAY_NS:
        state = "stale"
    return GoldenRow(golden_id, rate, group.last_ns, state)


def _single_golden_row(store: Store, golden_id: str, last_ns: int, goldens: Goldens | None) -> GoldenRow:
    newest_ns = max([last_ns, *(run.time_ns for run in store.runs(RunFilter(covered=True), limit=1).items)])
    group = GroupCounts(golden_id, store.count(RunFilter(golden=golden_id)), last_ns)
    return _golden_row(group, goldens, newest_ns)


def _unmatched_row(golden_id: str) -> GoldenRow:
    return GoldenRow(golden_id, pass_rate(VerdictCounts()), None, "never matched")


def _with_request(row: GoldenRow, goldens: Goldens | None) -> GoldenRow:
    """Return the row with the beginning of the input of its golden."""
    golden = _find_golden(row.golden_id, goldens)
    fallback = _STATED_BY_RUNS if row.golden_id == ANONYMOUS_GOLDEN_ID else ""
    return replace(row, request=fallback if golden is None else shorten_request(golden.input))


_STATED_BY_RUNS = "expectations that the runs themselves state"


def _find_golden(golden_id: str, goldens: Goldens | None) -> Golden | None:
    return goldens[golden_id] if goldens is not None and golden_id in goldens else None


def _matches_view(row: GoldenRow, view: TableView, goldens: Goldens | None) -> bool:
    if view.state not in (None, row.state):
        return False
    find = view.find.casefold()
    if not find or find in row.golden_id.casefold():
        return True
    golden = _find_golden(row.golden_id, goldens)
    return golden is not None and find in (golden.input or "").casefold()


def _worst_key(row: GoldenRow) -> tuple[float, ...]:
    high = 1.0 if row.rate.high is None else row.rate.high
    return (_STATE_RANKS[row.state], high, -row.rate.counts.total)


_STATE_RANKS: Mapping[GoldenState, int] = {state: rank for rank, state in enumerate(STATE_MEANINGS)}


_SORT_KEYS: Mapping[GoldenSort, Callable[[GoldenRow], Any]] = {
    "worst": _worst_key,
    "name": lambda row: row.golden_id.casefold(),
    "runs": lambda row: -row.rate.counts.total,
    "rate": lambda row: (2.0 if row.rate.share is None else row.rate.share, -row.rate.counts.total),
    "newest": lambda row: -(row.last_ns or 0),
}


# --- parts ------------------------------------------------------------------------------------------------------------


def _tool_statistics(store: Store, run_filter: RunFilter) -> ToolStatistics:
    tools, substitutions = store.tool_counts(run_filter), store.substitutions(run_filter)
    return ToolStatistics(
        tools[:MAX_TOOLS], len(tools[MAX_TOOLS:]), substitutions[:MAX_TOOLS], len(substitutions[MAX_TOOLS:])
    )


def _covered_only(run_filter: RunFilter) -> RunFilter:
    """Restrict the filter to runs with a golden: without one, no tool is expected or unexpected."""
    return run_filter if run_filter.covered is not None else replace(run_filter, covered=True)


def _sum_counts(counts: Iterable[VerdictCounts]) -> VerdictCounts:
    summands = list(counts)
    fields = ("passed", "failed", "not_evaluated")
    return VerdictCounts(*(sum(getattr(summand, name) for summand in summands) for name in fields))


def _golden_yaml(golden: Golden) -> str | None:
    try:
        return goldens_to_yaml(golden)
    except UnwritableError:
        return None
