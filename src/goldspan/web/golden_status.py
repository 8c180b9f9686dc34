"""Computes the pass rate and state of each golden, and the tools in its runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args
from urllib.parse import urlencode

from goldspan.errors import ConfigurationError
from goldspan.extraction.capture_diagnostics import Hint, merge_hints
from goldspan.goldens import Goldens
from goldspan.goldens.golden_files.golden_writer import UnwritableError, goldens_to_yaml
from goldspan.goldens.lookup.golden_lookup import ANONYMOUS_GOLDEN_ID
from goldspan.model import Golden
from goldspan.model.rendering import shorten_request
from goldspan.online.pass_rate_statistics import wilson_interval
from goldspan.store import RunFilter, SqliteStore, VerdictCounts
from goldspan.store.store_protocol import ALL_RUNS, GroupCounts, Substitution, ToolCounts
from goldspan.web.display_text import unescape_invisible
from goldspan.web.run_list import QueryPairs, RunEntry, match_description, run_entry

GoldenState = Literal["failing", "stale", "never matched", "gone", "not judged", "fine"]
"""How a golden stands, in the order of how much there is to do about it."""
GoldenSort = Literal["worst", "name", "runs", "rate", "newest"]

FAILING_BELOW_RATE = 0.95
STALE_AFTER_DAYS = 7
STATE_MEANINGS: Mapping[GoldenState, str] = {
    "failing": f"Fewer than {FAILING_BELOW_RATE:.0%} of its runs pass, and not by chance: the whole interval is below.",
    "stale": f"No run for {STALE_AFTER_DAYS} days before the newest run of any golden.",
    "never matched": "It is in the golden files in use, and no stored run was judged by it.",
    "gone": "It has runs, and is in none of the golden files in use.",
    "not judged": "It has runs, and nothing that its gates measure was known of any of them.",
    "fine": "Its runs pass, as far as their number can tell.",
}
"""What each state means."""
GOLDENS_PER_PAGE = 100
"""Goldens on one page."""
MAX_TOOLS = 50
"""So many tools, and so many substitutions, are shown."""
_MAX_FAILURES = 10
_SAMPLED_RUNS = 100
"""So many of the newest runs tell how a golden is found."""
_MAX_DEFINITION_LENGTH = 20_000
_DAY_NS = 24 * 60 * 60 * 10**9


@dataclass(frozen=True, slots=True)
class PassRateEstimate:
    """How often runs pass."""

    counts: VerdictCounts
    share: float | None
    """Of the runs that were judged, the share that passed; `None`: none was judged."""
    low: float | None
    high: float | None
    """The ends of its 95 % interval (`wilson_interval`)."""


@dataclass(frozen=True, slots=True)
class GoldenRow:
    """One golden among others."""

    golden_id: str
    rate: PassRateEstimate
    last_ns: int | None
    """When its newest run began; `None`: it has none."""
    state: GoldenState
    asked: str = ""
    """The beginning of its input, where it is known and has one."""


@dataclass(frozen=True, slots=True)
class ToolStatistics:
    """The tools in some runs, most trouble first, and which was called in place of which."""

    tallies: tuple[ToolCounts, ...]
    left: int
    """So many more tools are not shown."""
    substitutions: tuple[Substitution, ...]
    substitutions_left: int


@dataclass(frozen=True, slots=True)
class TableView:
    """How somebody looks at the goldens: the order, the part of them and the page."""

    sort: GoldenSort = "worst"
    find: str = ""
    """Stands in the id or in the input; case does not matter."""
    state: GoldenState | None = None
    page: int = 1
    filters: tuple[tuple[str, str], ...] = ()
    """What else the URL says: which runs count."""

    def address(self, **other: Any) -> str:
        """Where the goldens are shown, looked at in another way; the first page, unless it is said."""
        said = {"sort": self.sort, "find": self.find, "state": self.state, **other}
        usual = {"sort": DEFAULT_VIEW.sort, "page": 1}
        told = [(name, str(value)) for name, value in said.items() if value and usual.get(name) != value]
        return "/goldens?" + urlencode([*self.filters, *told], errors="replace") if told or self.filters else "/goldens"


DEFAULT_VIEW = TableView()


@dataclass(frozen=True, slots=True)
class GoldenTable:
    """How all goldens stand."""

    rows: tuple[GoldenRow, ...]
    """Those of this page."""
    look: TableView
    found: int
    """How many goldens are meant, on all pages."""
    pages: int
    total: int
    """How many goldens there are."""
    states: tuple[tuple[GoldenState, int, str], ...]
    """Each state that any golden is in, how many are, and what it means."""
    known: bool
    """Whether the goldens in use are known."""
    covered: VerdictCounts
    """The runs that were judged by a golden."""
    uncovered: int
    """The runs without one."""
    tools: ToolStatistics

    @property
    def first(self) -> int:
        """The number of the first row of this page."""
        return (self.look.page - 1) * GOLDENS_PER_PAGE + 1


@dataclass(frozen=True, slots=True)
class GoldenStatus:
    """How one golden stands."""

    row: GoldenRow
    failures: tuple[RunEntry, ...]
    """The newest runs that failed."""
    health: Sequence[tuple[Hint, int]]
    """What is amiss with the capture of these, and with how many."""
    found_by: tuple[tuple[str, int], ...]
    """How its newest runs found it, and how many of them."""
    looked_at: int
    """How many those are."""
    tools: ToolStatistics
    definition: str | None
    """What its file says, as YAML; `None`: it is not known."""
    cut_off: bool
    """Whether that is only the beginning."""
    known: bool
    """Whether the goldens in use are known."""

    @property
    def meaning(self) -> str:
        """What its state means."""
        return STATE_MEANINGS[self.row.state]


def parse_table_view(pairs: QueryPairs) -> tuple[TableView, list[tuple[str, str]]]:
    """How somebody looks at the goldens, from a URL, and what else it says.

    Raises `ConfigurationError` for what means nothing.
    """
    pairs = list(pairs)
    said = {name: unescape_invisible(text.strip()) for name, text in pairs if name in _VIEW_PARAMETERS and text.strip()}
    for name, words in (("sort", get_args(GoldenSort)), ("state", get_args(GoldenState))):
        if said.get(name, words[0]) not in words:
            raise ConfigurationError(f"{name} must be {', '.join(words[:-1])} or {words[-1]}, not {said[name][:40]!r}.")
    page = said.get("page", "1")
    if not (page.isascii() and page.isdecimal() and 0 < len(page) < 7 and int(page)):
        raise ConfigurationError(f"page must be a number from 1 on, not {page[:40]!r}.")
    looks: Any = {name: said[name] for name in ("sort", "find", "state") if name in said}
    filters = tuple((name, text) for name, text in pairs if name not in _VIEW_PARAMETERS and text.strip())
    return TableView(**looks, page=int(page), filters=filters), list(filters)


_VIEW_PARAMETERS = ("sort", "find", "state", "page")


def golden_table(
    store: SqliteStore, goldens: Goldens | None, wanted: RunFilter, view: TableView = DEFAULT_VIEW
) -> GoldenTable:
    """How the goldens of the runs that are meant stand; with every run meant, those that no run met as well."""
    tallies = store.count_by("golden", wanted)
    rows = list(_golden_rows([tally for tally in tallies if tally.name is not None], goldens, every=wanted == ALL_RUNS))
    meant = [row for row in rows if _matches_view(row, view, goldens)]
    meant.sort(key=lambda row: row.golden_id)
    meant.sort(key=_SORT_KEYS[view.sort])
    pages = max(1, math.ceil(len(meant) / GOLDENS_PER_PAGE))
    view = replace(view, page=min(view.page, pages))
    begin = (view.page - 1) * GOLDENS_PER_PAGE
    numbers = Counter(row.state for row in rows)
    return GoldenTable(
        rows=tuple(_with_request(row, goldens) for row in meant[begin : begin + GOLDENS_PER_PAGE]),
        look=view,
        found=len(meant),
        pages=pages,
        total=len(rows),
        states=tuple((state, numbers[state], meaning) for state, meaning in STATE_MEANINGS.items() if numbers[state]),
        known=goldens is not None,
        covered=_sum_counts(tally.counts for tally in tallies if tally.name is not None),
        uncovered=sum(tally.counts.total for tally in tallies if tally.name is None),
        tools=_tool_statistics(store, _covered_only(wanted)),
    )


def golden_status(store: SqliteStore, goldens: Goldens | None, golden_id: str) -> GoldenStatus | None:
    """How one golden stands; `None` where no run was judged by it and no golden in use has that id."""
    wanted = RunFilter(golden=golden_id)
    newest = store.runs(wanted, limit=_SAMPLED_RUNS).items
    golden = _find_golden(golden_id, goldens)
    if not newest and golden is None:
        return None
    row = _single_golden_row(store, golden_id, newest[0].time_ns, goldens) if newest else _unmatched_row(golden_id)
    failures = tuple(map(run_entry, store.runs(replace(wanted, verdict="fail"), limit=_MAX_FAILURES).items))
    ways = Counter(match_description(run.current.document) for run in newest)
    definition = None if golden is None else _golden_yaml(golden)
    return GoldenStatus(
        row=_with_request(row, goldens),
        failures=failures,
        health=merge_hints(hint for entry in failures for hint in entry.hints),
        found_by=tuple((way, runs) for way, runs in ways.most_common() if way is not None),
        looked_at=len(newest),
        tools=_tool_statistics(store, wanted),
        definition=definition and definition[:_MAX_DEFINITION_LENGTH],
        cut_off=definition is not None and len(definition) > _MAX_DEFINITION_LENGTH,
        known=goldens is not None,
    )


# --- rows -------------------------------------------------------------------------------------------------------------


def pass_rate(counts: VerdictCounts) -> PassRateEstimate:
    """How often runs pass, of those that were judged."""
    judged = counts.passed + counts.failed
    low, high = wilson_interval(counts.passed, judged) or (None, None)
    return PassRateEstimate(counts, counts.passed / judged if judged else None, low, high)


def _golden_rows(tallies: Sequence[GroupCounts], goldens: Goldens | None, *, every: bool) -> Iterator[GoldenRow]:
    latest = max((tally.last_ns for tally in tallies), default=0)
    for tally in tallies:
        yield _golden_row(tally, goldens, latest)
    if every and goldens is not None:
        met = {tally.name for tally in tallies}
        yield from (_unmatched_row(golden.id) for golden in goldens if golden.id not in met)


def _golden_row(tally: GroupCounts, goldens: Goldens | None, latest_ns: int) -> GoldenRow:
    golden_id, rate = tally.name or "", pass_rate(tally.counts)
    state: GoldenState = "fine"
    if goldens is not None and golden_id not in goldens and golden_id != ANONYMOUS_GOLDEN_ID:
        state = "gone"
    elif rate.high is None:
        state = "not judged"
    elif rate.high < FAILING_BELOW_RATE:
        state = "failing"
    elif latest_ns - tally.last_ns > STALE_AFTER_DAYS * _DAY_NS:
        state = "stale"
    return GoldenRow(golden_id, rate, tally.last_ns, state)


def _single_golden_row(store: SqliteStore, golden_id: str, last_ns: int, goldens: Goldens | None) -> GoldenRow:
    latest = max([last_ns, *(run.time_ns for run in store.runs(RunFilter(covered=True), limit=1).items)])
    return _golden_row(GroupCounts(golden_id, store.count(RunFilter(golden=golden_id)), last_ns), goldens, latest)


def _unmatched_row(golden_id: str) -> GoldenRow:
    return GoldenRow(golden_id, pass_rate(VerdictCounts()), None, "never matched")


def _with_request(row: GoldenRow, goldens: Goldens | None) -> GoldenRow:
    """A row with what its golden is about."""
    golden = _find_golden(row.golden_id, goldens)
    stated = _STATED_BY_RUN if row.golden_id == ANONYMOUS_GOLDEN_ID else ""
    return replace(row, asked=stated if golden is None else shorten_request(golden.input))


_STATED_BY_RUN = "what runs say themselves is expected"


def _find_golden(golden_id: str, goldens: Goldens | None) -> Golden | None:
    return goldens[golden_id] if goldens is not None and golden_id in goldens else None


def _matches_view(row: GoldenRow, look: TableView, goldens: Goldens | None) -> bool:
    if look.state not in (None, row.state):
        return False
    find = look.find.casefold()
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


def _tool_statistics(store: SqliteStore, wanted: RunFilter) -> ToolStatistics:
    tallies, substitutions = store.tool_counts(wanted), store.substitutions(wanted)
    return ToolStatistics(
        tallies[:MAX_TOOLS], len(tallies[MAX_TOOLS:]), substitutions[:MAX_TOOLS], len(substitutions[MAX_TOOLS:])
    )


def _covered_only(wanted: RunFilter) -> RunFilter:
    """Of the runs that are meant those with a golden: of the others nobody said what was expected."""
    return wanted if wanted.covered is not None else replace(wanted, covered=True)


def _sum_counts(counts: Iterator[VerdictCounts]) -> VerdictCounts:
    each = list(counts)
    return VerdictCounts(*(sum(getattr(one, name) for one in each) for name in ("passed", "failed", "not_evaluated")))


def _golden_yaml(golden: Golden) -> str | None:
    try:
        return goldens_to_yaml(golden)
    except UnwritableError:
        return None
