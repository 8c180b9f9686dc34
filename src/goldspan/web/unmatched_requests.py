"""Groups requests without a golden by similar text, and drafts a golden for each group."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from rapidfuzz.fuzz import ratio

from goldspan.extraction.capture_diagnostics import Hint, merge_hints
from goldspan.goldens.golden_files.golden_writer import draft_golden, draft_to_yaml
from goldspan.goldens.text_matching import normalize_text
from goldspan.model.rendering import shorten_request, truncate
from goldspan.store import RunFilter, SqliteStore, StoredRun
from goldspan.store.run_records import MAX_INPUT_LENGTH, run_from_document
from goldspan.store.store_protocol import ALL_RUNS
from goldspan.web.run_list import stored_capture_hints

_SIMILARITY_THRESHOLD = 80.0
"""From this `rapidfuzz.fuzz.ratio` on, two texts without what varies in them ask for the same."""
_NEIGHBOURHOOD_SIZE = 12
"""Each text is compared with so many behind it, in each of two orders: time grows with the number of texts."""
_EXCERPT_LENGTH = 150
"""Of a long text so many characters at its beginning and at its end decide: what many have in common stands before."""


def group_similar(texts: Sequence[str | None]) -> list[list[int]]:
    """The positions of texts that ask for the same, group by group; what the order of the texts is does not matter.

    Sorted neighbourhoods: M. A. Hernández, S. J. Stolfo, "The merge/purge problem for large databases", SIGMOD 1995.
    """
    having: dict[str, list[int]] = {}
    for at, text in enumerate(texts):
        having.setdefault(mask_variables(text), []).append(at)
    joined = _DisjointSets(having)
    for ordered in (sorted(having), sorted(having, key=lambda text: text.split()[::-1])):
        for at, text in enumerate(ordered):
            for other in ordered[at + 1 : at + 1 + _NEIGHBOURHOOD_SIZE]:
                if (
                    text
                    and not joined.is_joined(text, other)
                    and ratio(text, other, score_cutoff=_SIMILARITY_THRESHOLD)
                ):
                    joined.join(text, other)
    return [sorted(at for text in group for at in having[text]) for group in joined.groups()]


def mask_variables(text: str | None) -> str:
    """A text without what varies from one request of its kind to the next.

    >>> masked('Refund order AB-17 to "Ann Lee", please!')
    'refund order # to # please'
    """
    told = normalize_text(_excerpt(text or "")).replace("#", " ")
    told = _IDENTIFIER.sub(" # ", _QUOTED.sub(" # ", told))
    return " ".join(_PUNCTUATION.sub(" ", told).split())


def _excerpt(text: str) -> str:
    return text if len(text) <= 2 * _EXCERPT_LENGTH else f"{text[:_EXCERPT_LENGTH]} {text[-_EXCERPT_LENGTH:]}"


_QUOTED = re.compile(r""""[^"]*"|“[^”]*”|„[^“”]*[“”]|«[^»]*»|`[^`]*`|(?<!\w)'[^']*'(?!\w)""")
_IDENTIFIER = re.compile(r"[\w./:@+-]*[\d@][\w./:@+-]*", re.ASCII)
"""Numbers, ids, dates, addresses: what has a digit or an @ in it."""
_PUNCTUATION = re.compile(r"[^\w#]+")


class _DisjointSets:
    """Which texts belong together, directly or by way of others: disjoint sets."""

    def __init__(self, texts: Sequence[str] | dict[str, list[int]]) -> None:
        self._parent = {text: text for text in texts}

    def is_joined(self, one: str, other: str) -> bool:
        return self._root(one) == self._root(other)

    def join(self, one: str, other: str) -> None:
        first, second = sorted((self._root(one), self._root(other)))
        self._parent[second] = first

    def groups(self) -> Iterator[list[str]]:
        found: dict[str, list[str]] = {}
        for text in self._parent:
            found.setdefault(self._root(text), []).append(text)
        yield from found.values()

    def _root(self, text: str) -> str:
        while (above := self._parent[text]) != text:
            self._parent[text] = self._parent[above]
            text = above
        return text


MAX_REQUESTS = 1000
"""So many of the newest requests without a golden are grouped."""
_MAX_GROUPS = 40
_MAX_EXAMPLES = 5
_MAX_TOOLS = 12
_MAX_NAMES = 4
_MAX_REQUEST_LENGTH = 240
"""So many groups, runs of a group, tools of a sequence, names of agents and characters of a request are shown."""
_MAX_GROUP_DRAFT_LENGTH = 4_000
"""Characters of a draft beside a group; a longer one stands at its run."""
_MAX_DRAFT_LENGTH = 30_000
"""Characters of a draft at its run: of longer texts templates show the beginning."""
_MAX_ARGUMENTS_LENGTH = 20_000
"""Characters of arguments that a draft may state."""


@dataclass(frozen=True, slots=True)
class GoldenDraft:
    """A golden that could be written for a run, as YAML: to be copied, looked over and put into a golden file."""

    text: str | None
    """It names the tools; `None`: it is too long to be shown whole, and half a golden is none."""
    with_arguments: str | None
    """It states their arguments as well; `None`: they are not kept, too many, or it is too long."""


@dataclass(frozen=True, slots=True)
class ExampleRequest:
    """A run of a group."""

    run_id: str
    time_ns: int
    asked: str


@dataclass(frozen=True, slots=True)
class RequestGroup:
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
    examples: tuple[ExampleRequest, ...]
    agents: tuple[str, ...]
    services: tuple[str, ...]
    draft: str | None
    """A golden for them; `None`: it is too long to stand here."""


@dataclass(frozen=True, slots=True)
class UnmatchedRequests:
    """What there is to cover."""

    groups: tuple[RequestGroup, ...]
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


def unmatched_requests(store: SqliteStore, run_filter: RunFilter = ALL_RUNS) -> UnmatchedRequests:
    """Of the runs that are meant the newest requests without a golden, grouped by similar text, large groups first."""
    without = replace(run_filter, covered=False, unit=run_filter.unit or "request")
    runs = [_request_of(run) for run in islice(store.iter_runs(without), MAX_REQUESTS)]
    found = sorted(group_similar([run.input for run in runs]), key=lambda group: (-len(group), group))
    shown = [[runs[at] for at in group] for group in found[:_MAX_GROUPS]]
    return UnmatchedRequests(
        groups=tuple(_request_group(store, group) for group in shown),
        total=store.count(without).total,
        looked_at=len(runs),
        left_groups=len(found[_MAX_GROUPS:]),
        left_runs=sum(map(len, found[_MAX_GROUPS:])),
        covered=store.count(replace(run_filter, covered=True)).total,
        health=merge_hints(hint for newest, *_ in shown for hint in newest.hints(store)),
    )


def draft_stored_run(document: Mapping[str, Any]) -> GoldenDraft:
    """A golden for a stored run, that the run passes."""
    run = run_from_document(document)
    cut_off = run.input is not None and len(run.input) >= MAX_INPUT_LENGTH
    text = draft_to_yaml(draft_golden(run, is_input_truncated=cut_off))
    kept = [call.arguments for call in run.tool_calls if call.arguments is not None]
    if not kept or len(json.dumps(kept)) > _MAX_ARGUMENTS_LENGTH:
        return GoldenDraft(_draft_if_short(text), None)
    with_arguments = draft_to_yaml(draft_golden(run, arguments=True, is_input_truncated=cut_off))
    return GoldenDraft(_draft_if_short(text), None if with_arguments == text else _draft_if_short(with_arguments))


def _draft_if_short(text: str) -> str | None:
    return text if len(text) <= _MAX_DRAFT_LENGTH else None


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
        return None if run is None else draft_stored_run(run.current.document).text

    def hints(self, store: SqliteStore) -> list[Hint]:
        """What is amiss with its capture."""
        run = store.run(self.run_id)
        return [] if run is None else stored_capture_hints(run.current.document)


def _request_of(run: StoredRun) -> _Request:
    document = run.current.document
    tools = tuple(map(sys.intern, document["tools_used"]))
    told = (document[name] for name in ("reason", "agent", "service"))
    return _Request(run.run_id, run.time_ns, document["input"], tools, *told)


def _request_group(store: SqliteStore, runs: Sequence[_Request]) -> RequestGroup:
    """What there is to say of some runs, the newest first."""
    sequences = Counter(run.tools for run in runs)
    ((tools, often),) = sequences.most_common(1)
    typical = next(run for run in runs if run.tools == tools)
    draft = typical.draft(store)
    return RequestGroup(
        count=len(runs),
        typical=None if typical.input is None else truncate(" ".join(typical.input.split()), _MAX_REQUEST_LENGTH),
        tools=tuple(map(truncate, tools[:_MAX_TOOLS])),
        tools_left=len(tools[_MAX_TOOLS:]),
        tools_count=often,
        sequences=len(sequences),
        why=typical.reason,
        newest_ns=runs[0].time_ns,
        examples=tuple(
            ExampleRequest(run.run_id, run.time_ns, shorten_request(run.input)) for run in runs[:_MAX_EXAMPLES]
        ),
        agents=_unique_names(run.agent for run in runs),
        services=_unique_names(run.service for run in runs),
        draft=draft if draft is not None and len(draft) <= _MAX_GROUP_DRAFT_LENGTH else None,
    )


def _unique_names(told: Iterator[str | None]) -> tuple[str, ...]:
    return tuple(islice(map(truncate, dict.fromkeys(filter(None, told))), _MAX_NAMES))
