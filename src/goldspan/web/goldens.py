"""How goldens stand: how often their runs pass, which of them nothing meets, and which tools trouble them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args
from urllib.parse import urlencode

from goldspan.errors import ConfigurationError
from goldspan.extraction.hints import Hint, gathered
from goldspan.goldens import Goldens
from goldspan.goldens.statements import ANONYMOUS
from goldspan.goldens.writing import UnwritableError, as_yaml
from goldspan.model import Golden
from goldspan.model.rendering import asked
from goldspan.online.intervals import wilson_interval
from goldspan.store import Counts, RunFilter, SqliteStore
from goldspan.store.protocol import EVERY_RUN, Substitution, Tally, ToolTally
from goldspan.web.entries import Entry, entry_of, found_by
from goldspan.web.filters import Pairs
from goldspan.web.texts import meant

State = Literal["failing", "stale", "never matched", "gone", "not judged", "fine"]
"""How a golden stands, in the order of how much there is to do about it."""
Sort = Literal["worst", "name", "runs", "rate", "newest"]

LEAST_RATE = 0.95
STALE_AFTER_DAYS = 7
STATES: Mapping[State, str] = {
    "failing": f"Fewer than {LEAST_RATE:.0%} of its runs pass, and not by chance: the whole interval is below.",
    "stale": f"No run for {STALE_AFTER_DAYS} days before the newest run of any golden.",
    "never matched": "It is in the golden files in use, and no stored run was judged by it.",
    "gone": "It has runs, and is in none of the golden files in use.",
    "not judged": "It has runs, and nothing that its gates measure was known of any of them.",
    "fine": "Its runs pass, as far as their number can tell.",
}
"""What each state means."""
AT_ONCE = 100
"""Goldens on one page."""
MOST_TOOLS = 50
"""So many tools, and so many substitutions, are shown."""
_NEWEST_FAILURES = 10
_LOOKED_AT = 100
"""So many of the newest runs tell how a golden is found."""
_LONGEST_DEFINITION = 20_000
_DAY_NS = 24 * 60 * 60 * 10**9


@dataclass(frozen=True, slots=True)
class Rate:
    """How often runs pass."""

    counts: Counts
    share: float | None
    """Of the runs that were judged, the share that passed; `None`: none was judged."""
    low: float | None
    high: float | None
    """The ends of its 95 % interval (`wilson_interval`)."""


@dataclass(frozen=True, slots=True)
class GoldenRow:
    """One golden among others."""

    golden_id: str
    rate: Rate
    last_ns: int | None
    """When its newest run began; `None`: it has none."""
    state: State
    asked: str = ""
    """The beginning of its input, where it is known and has one."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools in some runs, most trouble first, and which was called in place of which."""

    tallies: tuple[ToolTally, ...]
    left: int
    """So many more tools are not shown."""
    substitutions: tuple[Substitution, ...]
    substitutions_left: int


@dataclass(frozen=True, slots=True)
class Look:
    """How somebody looks at the goldens: the order, the part of them and the page."""

    sort: Sort = "worst"
    find: str = ""
    """Stands in the id or in the input; case does not matter."""
    state: State | None = None
    page: int = 1
    filters: tuple[tuple[str, str], ...] = ()
    """What else the URL says: which runs count."""

    def address(self, **other: Any) -> str:
        """Where the goldens are shown, looked at in another way; the first page, unless it is said."""
        said = {"sort": self.sort, "find": self.find, "state": self.state, **other}
        usual = {"sort": PLAIN_LOOK.sort, "page": 1}
        told = [(name, str(value)) for name, value in said.items() if value and usual.get(name) != value]
        return "/goldens?" + urlencode([*self.filters, *told], errors="replace") if told or self.filters else "/goldens"


PLAIN_LOOK = Look()


@dataclass(frozen=True, slots=True)
class Board:
    """How all goldens stand."""

    rows: tuple[GoldenRow, ...]
    """Those of this page."""
    look: Look
    found: int
    """How many goldens are meant, on all pages."""
    pages: int
    total: int
    """How many goldens there are."""
    states: tuple[tuple[State, int, str], ...]
    """Each state that any golden is in, how many are, and what it means."""
    known: bool
    """Whether the goldens in use are known."""
    covered: Counts
    """The runs that were judged by a golden."""
    uncovered: int
    """The runs without one."""
    tools: Tools

    @property
    def first(self) -> int:
        """The number of the first row of this page."""
        return (self.look.page - 1) * AT_ONCE + 1


@dataclass(frozen=True, slots=True)
class Standing:
    """How one golden stands."""

    row: GoldenRow
    failures: tuple[Entry, ...]
    """The newest runs that failed."""
    health: Sequence[tuple[Hint, int]]
    """What is amiss with the capture of these, and with how many."""
    found_by: tuple[tuple[str, int], ...]
    """How its newest runs found it, and how many of them."""
    looked_at: int
    """How many those are."""
    tools: Tools
    definition: str | None
    """What its file says, as YAML; `None`: it is not known."""
    cut_off: bool
    """Whether that is only the beginning."""
    known: bool
    """Whether the goldens in use are known."""

    @property
    def meaning(self) -> str:
        """What its state means."""
        return STATES[self.row.state]


def read_look(pairs: Pairs) -> tuple[Look, list[tuple[str, str]]]:
    """How somebody looks at the goldens, from a URL, and what else it says.

    Raises `ConfigurationError` for what means nothing.
    """
    pairs = list(pairs)
    said = {name: meant(text.strip()) for name, text in pairs if name in _LOOKS and text.strip()}
    for name, words in (("sort", get_args(Sort)), ("state", get_args(State))):
        if said.get(name, words[0]) not in words:
            raise ConfigurationError(f"{name} must be {', '.join(words[:-1])} or {words[-1]}, not {said[name][:40]!r}.")
    page = said.get("page", "1")
    if not (page.isascii() and page.isdecimal() and 0 < len(page) < 7 and int(page)):
        raise ConfigurationError(f"page must be a number from 1 on, not {page[:40]!r}.")
    looks: Any = {name: said[name] for name in ("sort", "find", "state") if name in said}
    filters = tuple((name, text) for name, text in pairs if name not in _LOOKS and text.strip())
    return Look(**looks, page=int(page), filters=filters), list(filters)


_LOOKS = ("sort", "find", "state", "page")


def standings(store: SqliteStore, goldens: Goldens | None, wanted: RunFilter, look: Look = PLAIN_LOOK) -> Board:
    """How the goldens of the runs that are meant stand; with every run meant, those that no run met as well."""
    tallies = store.tallies("golden", wanted)
    rows = list(_rows([tally for tally in tallies if tally.name is not None], goldens, every=wanted == EVERY_RUN))
    meant = [row for row in rows if _is_meant(row, look, goldens)]
    meant.sort(key=lambda row: row.golden_id)
    meant.sort(key=_ORDERS[look.sort])
    pages = max(1, math.ceil(len(meant) / AT_ONCE))
    look = replace(look, page=min(look.page, pages))
    begin = (look.page - 1) * AT_ONCE
    numbers = Counter(row.state for row in rows)
    return Board(
        rows=tuple(_told(row, goldens) for row in meant[begin : begin + AT_ONCE]),
        look=look,
        found=len(meant),
        pages=pages,
        total=len(rows),
        states=tuple((state, numbers[state], meaning) for state, meaning in STATES.items() if numbers[state]),
        known=goldens is not None,
        covered=_sum(tally.counts for tally in tallies if tally.name is not None),
        uncovered=sum(tally.counts.total for tally in tallies if tally.name is None),
        tools=_tools(store, _with_golden(wanted)),
    )


def golden_standing(store: SqliteStore, goldens: Goldens | None, golden_id: str) -> Standing | None:
    """How one golden stands; `None` where no run was judged by it and no golden in use has that id."""
    wanted = RunFilter(golden=golden_id)
    newest = store.runs(wanted, limit=_LOOKED_AT).items
    golden = _in_use(golden_id, goldens)
    if not newest and golden is None:
        return None
    row = _row_of_one(store, golden_id, newest[0].time_ns, goldens) if newest else _unmet(golden_id)
    failures = tuple(map(entry_of, store.runs(replace(wanted, verdict="fail"), limit=_NEWEST_FAILURES).items))
    ways = Counter(found_by(run.current.document) for run in newest)
    definition = None if golden is None else _definition(golden)
    return Standing(
        row=_told(row, goldens),
        failures=failures,
        health=gathered(hint for entry in failures for hint in entry.hints),
        found_by=tuple((way, runs) for way, runs in ways.most_common() if way is not None),
        looked_at=len(newest),
        tools=_tools(store, wanted),
        definition=definition and definition[:_LONGEST_DEFINITION],
        cut_off=definition is not None and len(definition) > _LONGEST_DEFINITION,
        known=goldens is not None,
    )


# --- rows -------------------------------------------------------------------------------------------------------------


def rate_of(counts: Counts) -> Rate:
    """How often runs pass, of those that were judged."""
    judged = counts.passed + counts.failed
    low, high = wilson_interval(counts.passed, judged) or (None, None)
    return Rate(counts, counts.passed / judged if judged else None, low, high)


def _rows(tallies: Sequence[Tally], goldens: Goldens | None, *, every: bool) -> Iterator[GoldenRow]:
    latest = max((tally.last_ns for tally in tallies), default=0)
    for tally in tallies:
        yield _row(tally, goldens, latest)
    if every and goldens is not None:
        met = {tally.name for tally in tallies}
        yield from (_unmet(golden.id) for golden in goldens if golden.id not in met)


def _row(tally: Tally, goldens: Goldens | None, latest_ns: int) -> GoldenRow:
    golden_id, rate = tally.name or "", rate_of(tally.counts)
    state: State = "fine"
    if goldens is not None and golden_id not in goldens and golden_id != ANONYMOUS:
        state = "gone"
    elif rate.high is None:
        state = "not judged"
    elif rate.high < LEAST_RATE:
        state = "failing"
    elif latest_ns - tally.last_ns > STALE_AFTER_DAYS * _DAY_NS:
        state = "stale"
    return GoldenRow(golden_id, rate, tally.last_ns, state)


def _row_of_one(store: SqliteStore, golden_id: str, last_ns: int, goldens: Goldens | None) -> GoldenRow:
    latest = max([last_ns, *(run.time_ns for run in store.runs(RunFilter(covered=True), limit=1).items)])
    return _row(Tally(golden_id, store.count(RunFilter(golden=golden_id)), last_ns), goldens, latest)


def _unmet(golden_id: str) -> GoldenRow:
    return GoldenRow(golden_id, rate_of(Counts()), None, "never matched")


def _told(row: GoldenRow, goldens: Goldens | None) -> GoldenRow:
    """A row with what its golden is about."""
    golden = _in_use(row.golden_id, goldens)
    stated = _STATED if row.golden_id == ANONYMOUS else ""
    return replace(row, asked=stated if golden is None else asked(golden.input))


_STATED = "what runs say themselves is expected"


def _in_use(golden_id: str, goldens: Goldens | None) -> Golden | None:
    return goldens[golden_id] if goldens is not None and golden_id in goldens else None


def _is_meant(row: GoldenRow, look: Look, goldens: Goldens | None) -> bool:
    if look.state not in (None, row.state):
        return False
    find = look.find.casefold()
    if not find or find in row.golden_id.casefold():
        return True
    golden = _in_use(row.golden_id, goldens)
    return golden is not None and find in (golden.input or "").casefold()


def _worst(row: GoldenRow) -> tuple[float, ...]:
    high = 1.0 if row.rate.high is None else row.rate.high
    return (_RANKS[row.state], high, -row.rate.counts.total)


_RANKS: Mapping[State, int] = {state: rank for rank, state in enumerate(STATES)}


_ORDERS: Mapping[Sort, Callable[[GoldenRow], Any]] = {
    "worst": _worst,
    "name": lambda row: row.golden_id.casefold(),
    "runs": lambda row: -row.rate.counts.total,
    "rate": lambda row: (2.0 if row.rate.share is None else row.rate.share, -row.rate.counts.total),
    "newest": lambda row: -(row.last_ns or 0),
}


# --- parts ------------------------------------------------------------------------------------------------------------


def _tools(store: SqliteStore, wanted: RunFilter) -> Tools:
    tallies, substitutions = store.tools(wanted), store.substitutions(wanted)
    return Tools(
        tallies[:MOST_TOOLS], len(tallies[MOST_TOOLS:]), substitutions[:MOST_TOOLS], len(substitutions[MOST_TOOLS:])
    )


def _with_golden(wanted: RunFilter) -> RunFilter:
    """Of the runs that are meant those with a golden: of the others nobody said what was expected."""
    return wanted if wanted.covered is not None else replace(wanted, covered=True)


def _sum(counts: Iterator[Counts]) -> Counts:
    each = list(counts)
    return Counts(*(sum(getattr(one, name) for one in each) for name in ("passed", "failed", "not_evaluated")))


def _definition(golden: Golden) -> str | None:
    try:
        return as_yaml(golden)
    except UnwritableError:
        return None
