"""The API over the store: which runs came out how, one run with all its revisions, what came since, and deletions.

`openapi` lists the operations, and this is what they do. The store works in threads, never in the event loop, and at
most a few requests at once: the threads are there for others too, and an answer is in memory until it is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from goldspan.errors import ConfigurationError, StoreError
from goldspan.gateway.api.openapi import OPERATIONS, Name, Operation, document
from goldspan.gateway.api.rescoring import NotKeptError, judged_again
from goldspan.gateway.extra import needed
from goldspan.judge.selection import Combination
from goldspan.model import Evaluation, Run
from goldspan.sinks.documents import to_json
from goldspan.store import SqliteStore, StoredEvaluation, StoredRun
from goldspan.store.instants import shown_instant
from goldspan.store.parameters import filter_of, read_query, read_value

with needed():
    from starlette.concurrency import run_in_threadpool
    from starlette.convertors import PathConvertor, register_url_convertor
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Match, Route
    from starlette.types import Receive, Scope, Send

_log = logging.getLogger(__name__)

AT_ONCE = 4
"""So many requests are with the store, or their answers sent, at once; further ones wait for their turn."""
BATCH = 50
"""So many documents are read from the store at once."""
MOST_CHARACTERS = 8 * 1024 * 1024
"""A page ends with the batch that goes beyond this, however many were asked for."""
RETRY_AFTER = 2
"""Seconds after which a store that was busy may be asked again."""

Said: TypeAlias = Mapping[str, Any]
"""The parameters of a request, read."""


class Answer(NamedTuple):
    """What is answered to a request."""

    status: int
    body: str
    headers: Mapping[str, str] = {}


class RefusalError(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def routes(
    store: SqliteStore,
    *,
    rescore: Callable[[Run], Evaluation],
    forget: Callable[[str], None],
    combination: Combination = "apart",
    threshold: float | None = None,
) -> list[Route]:
    """The routes of the API.

    `rescore` judges a run by the goldens of now; what a model said of it before is weighed in that `combination`, and
    by that `threshold` where the golden has none. `forget` lets go of what is held of a trace beside the store; it gets
    the id, 32 hexadecimal digits in lower case. Both are called in threads, perhaps in several at once.
    """
    again = partial(judged_again, rescore=rescore, combination=combination, threshold=threshold)
    api = _Api(store, again, forget)
    turns = asyncio.Semaphore(AT_ONCE)
    return [*(_Route(operation, api, turns) for operation in OPERATIONS), _Elsewhere()]


class _AnyText(PathConvertor):
    """A part of a path that may have line breaks in it, beside slashes."""

    regex = r"[\s\S]*"


register_url_convertor("any_text", _AnyText())


class _Route(Route):
    """An operation at its path, of which it is the only one. It refuses other methods itself, as the API refuses."""

    def __init__(self, operation: Operation, api: _Api, turns: asyncio.Semaphore) -> None:
        async def endpoint(request: Request) -> Response:
            answer = await run_in_threadpool(
                api.answer, operation, request.path_params, request.query_params.multi_items()
            )
            return _response(answer)

        self._turns = turns
        path = operation.path.replace("{run_id}", "{run_id:any_text}")
        super().__init__(path, endpoint, methods=[operation.method], name=operation.name)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return (Match.NONE if match is Match.NONE else Match.FULL), child

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        methods = self.methods or set()
        if scope["method"] in methods:
            async with self._turns:  # until it is sent, for until then it is in memory
                await super().handle(scope, receive, send)
            return
        allowed = ", ".join(sorted(methods))
        refusal = RefusalError(405, "method_not_allowed", f"{scope['method'][:20]} is not for this path; {allowed} is.")
        await _response(_refused(refusal, {"Allow": allowed}))(scope, receive, send)


class _Elsewhere(Route):
    """Every other path of the API."""

    def __init__(self) -> None:
        async def endpoint(request: Request) -> Response:
            told = "The API has no such path; /api/v1/openapi.json lists those that there are."
            return _response(_refused(RefusalError(404, "not_found", told)))

        super().__init__("/api/{path:any_text}", endpoint, name="elsewhere")
        self.methods = None  # whatever the method


class _Api:
    """What the operations do. Any thread may use it."""

    def __init__(
        self,
        store: SqliteStore,
        rescore: Callable[[Sequence[StoredEvaluation]], Evaluation | None],
        forget: Callable[[str], None],
    ) -> None:
        self._store = store
        self._rescore = rescore
        self._forget = forget
        self._operations: Mapping[Name, Callable[[Said], str]] = {
            "runs": self._runs,
            "run": self._run,
            "evaluations": self._evaluations,
            "rescore": self._rescored,
            "delete_trace": self._delete_trace,
            "openapi": lambda said: to_json(document()),
        }

    def answer(self, operation: Operation, path: Mapping[str, str], query: Iterable[tuple[str, str]]) -> Answer:
        """Do what is asked, or say why not."""
        try:
            said = read_query(query, operation.query)
            if (place := operation.in_path) is not None:
                said[place.name] = read_value(place, path[place.name])
            return Answer(200, self._operations[operation.name](said))
        except ConfigurationError as error:
            return _refused(RefusalError(400, "invalid_parameter", str(error)))
        except NotKeptError as error:
            return _refused(RefusalError(409, "not_kept", str(error)))
        except StoreError as error:
            # It names the file and what is wrong with it, which is for whoever runs the gateway.
            _log.warning("The API cannot answer: %s", error)
            refusal = RefusalError(503, "unavailable", "The store cannot do that now, and the gateway's log says why.")
            return _refused(refusal, {"Retry-After": str(RETRY_AFTER)})
        except RefusalError as refusal:
            return _refused(refusal)

    def _runs(self, said: Said) -> str:
        wanted = filter_of(said)
        cursor = said.get("cursor")
        page = _Page(said.get("limit", BATCH))
        while page.room:
            found = self._store.runs(wanted, limit=page.room, cursor=cursor)
            page.add(map(_run, found.items))
            cursor = found.next_cursor
            if cursor is None:
                break
        return page.written("runs", next_cursor=cursor)

    def _run(self, said: Said) -> str:
        run = self._known(said["run_id"])
        evaluations = self._store.evaluations(run.run_id)
        return to_json({**_run(run), "evaluations": list(map(_evaluation, evaluations))})

    def _evaluations(self, said: Said) -> str:
        after = said.get("after", 0)
        page = _Page(said.get("limit", BATCH))
        while page.room:
            found = self._store.arrivals(after, page.room)
            page.add(map(_evaluation, found.items))
            after = found.next_after
            if not found.items:
                break
        return page.written("evaluations", next_after=after)

    def _rescored(self, said: Said) -> str:
        history = self._store.evaluations(said["run_id"])
        if not history:
            raise _no_run(said["run_id"])
        judged = self._rescore(history)
        seen = history[-1].revision, history[-1].digest
        if judged is not None and not self._store.supersede(judged, seen):
            raise RefusalError(409, "changed_meanwhile", "More became known of the run meanwhile; ask once more.")
        return to_json({"changed": judged is not None, "run": _run(self._known(said["run_id"]))})

    def _delete_trace(self, said: Said) -> str:
        self._forget(said["trace_id"])
        return to_json({"deleted": self._store.delete_trace(said["trace_id"])})

    def _known(self, run_id: str) -> StoredRun:
        run = self._store.run(run_id)
        if run is None:
            raise _no_run(run_id)
        return run


class _Page:
    """Documents that are answered together."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._pieces: list[str] = []
        self._characters = 0

    @property
    def room(self) -> int:
        """How many may be added now."""
        return min(BATCH, self._left) if self._characters < MOST_CHARACTERS else 0

    def add(self, documents: Iterable[dict[str, Any]]) -> None:
        """Add some."""
        pieces = list(map(to_json, documents))
        self._pieces += pieces
        self._left -= len(pieces)
        self._characters += sum(map(len, pieces))

    def written(self, name: str, **more: Any) -> str:
        """The answer as JSON, with what else there is to say."""
        return f'{{"{name}": [{", ".join(self._pieces)}], {to_json(more)[1:]}'


def _evaluation(stored: StoredEvaluation) -> dict[str, Any]:
    verdict = {True: "pass", False: "fail", None: "not_evaluated"}[stored.document["passed"]]
    return {**stored.document, "verdict": verdict, "stored": shown_instant(stored.stored_ns)}


def _run(run: StoredRun) -> dict[str, Any]:
    more = {"time": shown_instant(run.time_ns), "evaluation_count": run.evaluations}
    return {**_evaluation(run.current), **more}


def _no_run(run_id: str) -> RefusalError:
    return RefusalError(404, "not_found", f"No run is stored under the id {run_id[:100]!r}.")


def _refused(refusal: RefusalError, headers: Mapping[str, str] = {}) -> Answer:
    return Answer(refusal.status, to_json({"error": {"code": refusal.code, "message": str(refusal)}}), headers)


def _response(answer: Answer) -> Response:
    return Response(answer.body, answer.status, answer.headers, media_type="application/json")
