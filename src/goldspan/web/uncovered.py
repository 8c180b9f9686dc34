"""Requests that no golden is for, grouped by what they ask, each group with a golden that could be written for it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from goldspan.extraction.hints import Hint, gathered
from goldspan.goldens.drafts import draft_of_run, written
from goldspan.model.rendering import asked, short
from goldspan.store import RunFilter, SqliteStore, StoredRun
from goldspan.store.documents import LONGEST_INPUT, run_of
from goldspan.store.protocol import EVERY_RUN
from goldspan.web.entries import hints_of
from goldspan.web.similar import groups

LOOKED_AT = 1000
"""So many of the newest requests without a golden are grouped."""
_GROUPS = 40
_EXAMPLES = 5
_TOOLS = 12
_NAMES = 4
_TYPICAL = 240
"""So many groups, runs of a group, tools of a sequence, names of agents and characters of a request are shown."""
_LONGEST_DRAFT = 4_000
"""Characters of a draft beside a group; a longer one stands at its run."""
_LONGEST_WHOLE = 30_000
"""Characters of a draft at its run: of longer texts templates show the beginning."""
_MOST_VALUES = 20_000
"""Characters of arguments that a draft may state."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A golden that could be written for a run, as YAML: to be copied, looked over and put into a golden file."""

    text: str | None
    """It names the tools; `None`: it is too long to be shown whole, and half a golden is none."""
    with_arguments: str | None
    """It states their arguments as well; `None`: they are not kept, too many, or it is too long."""


@dataclass(frozen=True, slots=True)
class Example:
    """A run of a group."""

    run_id: str
    time_ns: int
    asked: str


@dataclass(frozen=True, slots=True)
class Group:
    """Requests that ask for much the same."""

    count: int
    typical: str | None
    """What one of them asked, one of those with the most frequent sequence; `None`: what they ask is not known."""
    tools: tuple[str, ...]
    """The beginning of the most frequent sequence of tools."""
    tools_left: int
    """So many more calls are in it."""
    tools_count: int
    """In how many of them it is."""
    sequences: int
    """How many different sequences there are."""
    why: str
    """Why one of them has no golden."""
    newest_ns: int
    examples: tuple[Example, ...]
    agents: tuple[str, ...]
    services: tuple[str, ...]
    draft: str | None
    """A golden for them; `None`: it is too long to stand here."""


@dataclass(frozen=True, slots=True)
class Uncovered:
    """What there is to cover."""

    groups: tuple[Group, ...]
    """Those of the most requests."""
    total: int
    """How many requests have no golden."""
    looked_at: int
    """How many of them, the newest, are grouped here."""
    left_groups: int
    left_runs: int
    """So many more groups, and requests in them, are not shown."""
    covered: int
    """How many runs have a golden."""
    health: Sequence[tuple[Hint, int]]
    """What is amiss with the capture of the newest run of each group that is shown, and of how many groups."""


def uncovered(store: SqliteStore, wanted: RunFilter = EVERY_RUN) -> Uncovered:
    """Of the runs that are meant the newest requests without a golden, grouped by similar text, large groups first."""
    without = replace(wanted, covered=False, unit=wanted.unit or "request")
    runs = [_request(run) for run in islice(store.every(without), LOOKED_AT)]
    found = sorted(groups([run.input for run in runs]), key=lambda group: (-len(group), group))
    shown = [[runs[at] for at in group] for group in found[:_GROUPS]]
    return Uncovered(
        groups=tuple(_group(store, group) for group in shown),
        total=store.count(without).total,
        looked_at=len(runs),
        left_groups=len(found[_GROUPS:]),
        left_runs=sum(map(len, found[_GROUPS:])),
        covered=store.count(replace(wanted, covered=True)).total,
        health=gathered(hint for newest, *_ in shown for hint in newest.hints(store)),
    )


def draft_of(document: Mapping[str, Any]) -> Draft:
    """A golden for a stored run, that the run passes."""
    run = run_of(document)
    cut_off = run.input is not None and len(run.input) >= LONGEST_INPUT
    text = written(draft_of_run(run, cut_off=cut_off))
    kept = [call.arguments for call in run.tool_calls if call.arguments is not None]
    if not kept or len(json.dumps(kept)) > _MOST_VALUES:
        return Draft(_whole(text), None)
    with_arguments = written(draft_of_run(run, arguments=True, cut_off=cut_off))
    return Draft(_whole(text), None if with_arguments == text else _whole(with_arguments))


def _whole(text: str) -> str | None:
    return text if len(text) <= _LONGEST_WHOLE else None


@dataclass(frozen=True, slots=True)
class _Request:
    """What is kept of a run while all are looked at: their documents may be large."""

    run_id: str
    time_ns: int
    input: str | None
    tools: tuple[str, ...]
    reason: str
    agent: str | None
    service: str | None

    def draft(self, store: SqliteStore) -> str | None:
        """A golden for it; `None`: it is too long, or the run was deleted just now."""
        run = store.run(self.run_id)
        return None if run is None else draft_of(run.current.document).text

    def hints(self, store: SqliteStore) -> list[Hint]:
        """What is amiss with its capture."""
        run = store.run(self.run_id)
        return [] if run is None else hints_of(run.current.document)


def _request(run: StoredRun) -> _Request:
    document = run.current.document
    tools = tuple(map(sys.intern, document["tools_used"]))
    told = (document[name] for name in ("reason", "agent", "service"))
    return _Request(run.run_id, run.time_ns, document["input"], tools, *told)


def _group(store: SqliteStore, runs: Sequence[_Request]) -> Group:
    """What there is to say of some runs, the newest first."""
    sequences = Counter(run.tools for run in runs)
    ((tools, often),) = sequences.most_common(1)
    typical = next(run for run in runs if run.tools == tools)
    draft = typical.draft(store)
    return Group(
        count=len(runs),
        typical=None if typical.input is None else short(" ".join(typical.input.split()), _TYPICAL),
        tools=tuple(map(short, tools[:_TOOLS])),
        tools_left=len(tools[_TOOLS:]),
        tools_count=often,
        sequences=len(sequences),
        why=typical.reason,
        newest_ns=runs[0].time_ns,
        examples=tuple(Example(run.run_id, run.time_ns, asked(run.input)) for run in runs[:_EXAMPLES]),
        agents=_names(run.agent for run in runs),
        services=_names(run.service for run in runs),
        draft=draft if draft is not None and len(draft) <= _LONGEST_DRAFT else None,
    )


def _names(told: Iterator[str | None]) -> tuple[str, ...]:
    return tuple(islice(map(short, dict.fromkeys(filter(None, told))), _NAMES))
