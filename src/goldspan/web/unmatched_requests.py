"""Groups requests without a golden by similar text, and drafts a golden for each group."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from goldspan.curation.request_groups import group_similar
from goldspan.extraction.capture_diagnostics import Hint, capture_hints, merge_hints
from goldspan.goldens.golden_files.golden_writer import draft_golden, draft_to_yaml
from goldspan.model import Run
from goldspan.model.markup import shorten_request, truncate
from goldspan.store import RunFilter, Store, StoredRun
from goldspan.store.run_records import MAX_INPUT_LENGTH, run_from_document
from goldspan.store.store_protocol import ALL_RUNS

MAX_REQUESTS = 1000
"""The newest requests without a golden, which are grouped."""
_MAX_GROUPS = 40
_MAX_EXAMPLES = 5
_MAX_TOOLS = 12
_MAX_NAMES = 4
_MAX_REQUEST_LENGTH = 240
_MAX_GROUP_DRAFT_LENGTH = 4_000
"""Characters of a draft in a group. A longer draft is shown in the view of its run."""
_MAX_DRAFT_LENGTH = 30_000
"""Characters of a draft in the view of its run: templates truncate longer texts."""
_MAX_ARGUMENTS_LENGTH = 20_000
"""Characters of the arguments in a draft."""


@dataclass(frozen=True, slots=True)
class GoldenDraft:
    """A draft of a golden for a run, as YAML, to be reviewed and copied into a golden file."""

    text: str | None
    """The draft with the names of the tools, or `None` if it is too long."""
    with_arguments: str | None
    """The draft with arguments as well, or `None` if they are not stored or too long."""


@dataclass(frozen=True, slots=True)
class ExampleRequest:
    """A run of a group."""

    run_id: str
    time_ns: int
    request: str


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """Requests with similar texts."""

    count: int
    typical: str | None
    """The newest request with the most frequent sequence of tools; `None`: the requests were not captured."""
    tools: tuple[str, ...]
    """The beginning of the most frequent sequence of tools."""
    omitted_tools: int
    """The number of further calls in that sequence."""
    tools_count: int
    """The number of requests with that sequence."""
    sequences: int
    """The number of different sequences."""
    reason: str
    """Why the typical request has no golden."""
    newest_ns: int
    examples: tuple[ExampleRequest, ...]
    agents: tuple[str, ...]
    services: tuple[str, ...]
    draft: str | None
    """A draft golden for the group, or `None` if it is too long."""


@dataclass(frozen=True, slots=True)
class UnmatchedRequests:
    """Requests without a golden, in groups."""

    groups: tuple[RequestGroup, ...]
    """The largest groups."""
    total: int
    """The number of requests without a golden."""
    grouped: int
    """The number of the newest ones that are in a group."""
    omitted_groups: int
    """The number of further groups."""
    omitted_requests: int
    """The number of requests in further groups."""
    covered: int
    """The number of runs with a golden."""
    health: Sequence[tuple[Hint, int]]
    """The capture problems of the newest run of each shown group, each with the number of groups."""


def unmatched_requests(store: Store, run_filter: RunFilter = ALL_RUNS) -> UnmatchedRequests:
    """Return the newest of the selected requests that have no golden, grouped by similar text, large groups first."""
    unmatched = replace(run_filter, covered=False, unit=run_filter.unit or "request")
    runs = [_request_of(run) for run in islice(store.iter_runs(unmatched), MAX_REQUESTS)]
    groups = sorted(group_similar([run.input for run in runs]), key=lambda group: (-len(group), group))
    shown = [[runs[index] for index in group] for group in groups[:_MAX_GROUPS]]
    stored = _StoredRuns(store)
    return UnmatchedRequests(
        groups=tuple(_request_group(stored, group) for group in shown),
        total=store.count(unmatched).total,
        grouped=len(runs),
        omitted_groups=len(groups[_MAX_GROUPS:]),
        omitted_requests=sum(map(len, groups[_MAX_GROUPS:])),
        covered=store.count(replace(run_filter, covered=True)).total,
        health=merge_hints(hint for newest, *_ in shown for hint in stored.hints(newest)),
    )


def draft_stored_run(document: Mapping[str, Any]) -> GoldenDraft:
    """Return a draft golden that the stored run passes."""
    run = run_from_document(document)
    text = _draft_text(run)
    arguments = [call.arguments for call in run.tool_calls if call.arguments is not None]
    if not arguments or len(json.dumps(arguments)) > _MAX_ARGUMENTS_LENGTH:
        return GoldenDraft(_draft_if_short(text), None)
    with_arguments = _draft_text(run, arguments=True)
    return GoldenDraft(_draft_if_short(text), None if with_arguments == text else _draft_if_short(with_arguments))


def _draft_text(run: Run, *, arguments: bool = False) -> str:
    is_truncated = run.input is not None and len(run.input) >= MAX_INPUT_LENGTH
    return draft_to_yaml(draft_golden(run, arguments=arguments, is_input_truncated=is_truncated))


def _draft_if_short(text: str) -> str | None:
    return text if len(text) <= _MAX_DRAFT_LENGTH else None


@dataclass(frozen=True, slots=True)
class _Request:
    """The fields of a run that grouping needs; the document may be large, so it is not kept."""

    run_id: str
    time_ns: int
    input: str | None
    tools: tuple[str, ...]
    reason: str
    agent: str | None
    service: str | None


class _StoredRuns:
    """Reads runs of a store, each once: the newest request of a group is usually the typical one, too."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs: dict[str, Run | None] = {}

    def draft(self, request: _Request) -> str | None:
        """Return a draft golden, or `None` if the run was deleted meanwhile."""
        run = self._run(request.run_id)
        return None if run is None else _draft_text(run)

    def hints(self, request: _Request) -> list[Hint]:
        """Return its capture problems."""
        run = self._run(request.run_id)
        return [] if run is None else capture_hints(run)

    def _run(self, run_id: str) -> Run | None:
        if run_id not in self._runs:
            found = self._store.run(run_id)
            self._runs[run_id] = None if found is None else run_from_document(found.current.document)
        return self._runs[run_id]


def _request_of(run: StoredRun) -> _Request:
    document = run.current.document
    tools = tuple(map(sys.intern, document["tools_used"]))
    texts = (document[name] for name in ("reason", "agent", "service"))
    return _Request(run.run_id, run.time_ns, document["input"], tools, *texts)


def _request_group(stored: _StoredRuns, runs: Sequence[_Request]) -> RequestGroup:
    """Return the group of some requests, which are sorted newest first."""
    sequences = Counter(run.tools for run in runs)
    ((tools, tools_count),) = sequences.most_common(1)
    typical = next(run for run in runs if run.tools == tools)
    draft = stored.draft(typical)
    return RequestGroup(
        count=len(runs),
        typical=None if typical.input is None else truncate(" ".join(typical.input.split()), _MAX_REQUEST_LENGTH),
        tools=tuple(map(truncate, tools[:_MAX_TOOLS])),
        omitted_tools=len(tools[_MAX_TOOLS:]),
        tools_count=tools_count,
        sequences=len(sequences),
        reason=typical.reason,
        newest_ns=runs[0].time_ns,
        examples=tuple(
            ExampleRequest(run.run_id, run.time_ns, shorten_request(run.input)) for run in runs[:_MAX_EXAMPLES]
        ),
        agents=_unique_names(run.agent for run in runs),
        services=_unique_names(run.service for run in runs),
        draft=draft if draft is not None and len(draft) <= _MAX_GROUP_DRAFT_LENGTH else None,
    )


def _unique_names(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(islice(map(truncate, dict.fromkeys(filter(None, names))), _MAX_NAMES))
