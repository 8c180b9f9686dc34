"""The API over the store: which runs came out how, one run with all its revisions, what came since, and deletions.

`openapi` lists the operations, and this is what they do. The store works in threads, never in the event loop, and at
most a few requests at once: the threads are there for others too, and an answer is in memory until it is sent.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from goldspan._extras import require_server_extra
from goldspan.errors import ConfigurationError, GoldspanError, StoreError
from goldspan.gateway.openapi import OPERATIONS, Operation, OperationName, openapi_document
from goldspan.judge.tool_selection import TOOL_SELECTION, Combination, failed_score, with_threshold, with_tool_selection
from goldspan.model import ABSENT, Evaluation, Golden, Judgement, Run, Score
from goldspan.scoring.metrics import JUDGE_METRICS, METRICS
from goldspan.sinks.serialization import to_json
from goldspan.store import SqliteStore, StoredEvaluation, StoredRun
from goldspan.store.query_parameters import filter_from_query, format_time, parse_parameter, parse_query
from goldspan.store.run_records import MAX_INPUT_LENGTH, evaluation_to_document, run_from_document


class MissingRunDataError(GoldspanError):
    """What would have to be known to judge a run once more is not in the store; the text says what to do."""


def reevaluate_stored(
    history: Sequence[StoredEvaluation],
    evaluate: Callable[[Run], Evaluation],
    *,
    combination: Combination = "apart",
    threshold: float | None = None,
) -> Evaluation | None:
    """The next revision of a run, of which all that is stored is given; `None` where it would say what is stored.

    A store may lack what a verdict depends on, and a run that is judged without it could lose a score that was right.
    Raises `NotKeptError` where that is not out of the question:

    - the run says itself what is expected of it, or attributes of its span, or the end of a long input, take part in
      finding its golden: these are never kept;
    - without `keep_arguments`: the golden states arguments or results, or ignores duplicates; a call failed, and its
      arguments would tell what made it good; a score that needs no golden is known and would not be; or a metric is
      none of goldspan's, so that it may look at anything.

    A revision that was itself made without the values lacks them too, so all revisions must have them.

    No model is asked again: what it said of the run stays, and is weighed as verdicts are now, by the golden's
    `threshold` or else this one, and in this `combination`.
    """
    current = history[-1]
    with_values = all("schemas" in each.document for each in history)
    attributes = _MissingAttributes()
    run = replace(run_from_document(current.document), attributes=attributes)
    judged = evaluate(run)
    if (said := _stored_judge_score(current.document)) is not None:
        limit = judged.golden.thresholds.get(TOOL_SELECTION, threshold) if judged.golden else threshold
        combined = with_tool_selection(judged, with_threshold(said, limit), combination=combination)
        judged = replace(combined, changes=None)  # the goldens are new as well
    lacking = next(_missing_data_reasons(current.document, judged, attributes), None)
    if lacking is None and not with_values:
        lacking = next(_missing_value_reasons(current.document, judged), None)
        lacking = lacking and f"{lacking} Run the gateway with --keep-arguments to be able to rescore what comes then."
    if lacking is not None:
        raise MissingRunDataError(lacking)
    document = json.loads(to_json(evaluation_to_document(judged, keep_arguments=with_values)))
    if all(document[name] == current.document.get(name) for name in _COMPARED_KEYS):
        return None
    return replace(judged, revision=current.revision + 1)


_COMPARED_KEYS = (
    *("golden_id", "golden_match", "passed", "reason", "expected_tools"),
    *("scores", "faults", "broken", "unjudged", "rows", "scoring_version"),
)
"""What is said of a run; where all of it is the same, nothing has changed."""


def _stored_judge_score(document: Mapping[str, Any]) -> Score | None:
    """What a model said of a stored run, or why it said nothing; `None`: none was asked."""
    for stored in document["scores"]:
        if stored["metric"] == TOOL_SELECTION and (stored["value"] is not None or stored["error"] is not None):
            asked = stored.get("judgement")
            known = {each.name: asked[each.name] for each in fields(Judgement) if each.name in asked} if asked else {}
            judgement = Judgement(**known | {"votes": tuple(known["votes"])}) if known else None
            if stored["value"] is None:
                return failed_score(stored["error"])
            return Score(TOOL_SELECTION, stored["value"], reason=stored["reason"], judgement=judgement)
    return None


def _missing_data_reasons(
    document: Mapping[str, Any], evaluation: Evaluation, attributes: _MissingAttributes
) -> Iterator[str]:
    """Sentences about what no store keeps and this verdict depends on."""
    if "states_expectations" not in document:
        yield "An older goldspan stored this run, and with too little to rescore it. Send its trace once more."
    elif document["states_expectations"]:
        yield "The run says itself what is expected of it, so that goldens are not for it. Send its trace once more."
    if attributes.requested_keys:
        yield (
            f"Goldens or metrics look at the attribute {min(attributes.requested_keys)} of the run's span, which is not kept. "
            "Send its trace once more."
        )
    named = evaluation.match is not None and evaluation.match.how == "id"
    if len(document["input"] or "") >= MAX_INPUT_LENGTH and not named:
        told = f"The input is kept only up to {MAX_INPUT_LENGTH} characters, and a golden is found by all of it."
        yield f"{told} Send its trace once more."


def _missing_value_reasons(document: Mapping[str, Any], evaluation: Evaluation) -> Iterator[str]:
    """Sentences about arguments and results that this verdict depends on."""
    golden = evaluation.golden
    if golden is not None and _depends_on_values(golden):
        yield f"The golden {golden.id} looks at arguments or results, which were not kept of this run."
    calls = evaluation.run.tool_calls
    weighed = golden is not None and golden.attempts == "effective" and len(calls) > 1
    if weighed and not all(call.error is None and call.error_guess is None for call in calls):
        yield "A call failed, or may have. Whether it was made once more shows in arguments, which were not kept."
    known = {score["metric"] for score in document["scores"] if score["value"] is not None}
    for score in evaluation.scores:
        if score.metric in JUDGE_METRICS:
            continue
        if score.metric not in METRICS:
            yield f"The metric {score.metric} may look at arguments or results, which were not kept of this run."
        elif score.value is None and score.metric in known and not METRICS[score.metric].needs_golden:
            yield f"The score of {score.metric} would be lost with the arguments, which were not kept of this run."


def _depends_on_values(golden: Golden) -> bool:
    stating = any(tool.arguments is not None or tool.result is not ABSENT for tool in golden.expected_calls)
    return stating or golden.duplicates == "ignore"


class _MissingAttributes(Mapping[str, Any]):
    """The attributes of a span that nobody kept. It takes note of what is looked for, since that decides something."""

    def __init__(self) -> None:
        self.requested_keys: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.requested_keys.add(key)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        self.requested_keys.add("*")
        return iter(())

    def __len__(self) -> int:
        self.requested_keys.add("*")
        return 0


with require_server_extra():
    from starlette.concurrency import run_in_threadpool
    from starlette.convertors import PathConvertor, register_url_convertor
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Match, Route
    from starlette.types import Receive, Scope, Send

_log = logging.getLogger(__name__)

MAX_CONCURRENT_API_REQUESTS = 4
"""So many requests are with the store, or their answers sent, at once; further ones wait for their turn."""
PAGE_BATCH = 50
"""So many documents are read from the store at once."""
MAX_PAGE_CHARACTERS = 8 * 1024 * 1024
"""A page ends with the batch that goes beyond this, however many were asked for."""
STORE_RETRY_AFTER_SECONDS = 2
"""Seconds after which a store that was busy may be asked again."""

RequestParameters: TypeAlias = Mapping[str, Any]
"""The parameters of a request, read."""


class ApiResponse(NamedTuple):
    """What is answered to a request."""

    status: int
    body: str
    headers: Mapping[str, str] = {}


class ApiError(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def api_routes(
    store: SqliteStore,
    *,
    evaluate: Callable[[Run], Evaluation],
    drop_pending_trace: Callable[[str], None],
    combination: Combination = "apart",
    threshold: float | None = None,
) -> list[Route]:
    """The routes of the API.

    `rescore` judges a run by the goldens of now; what a model said of it before is weighed in that `combination`, and
    by that `threshold` where the golden has none. `forget` lets go of what is held of a trace beside the store; it gets
    the id, 32 hexadecimal digits in lower case. Both are called in threads, perhaps in several at once.
    """
    again = partial(reevaluate_stored, evaluate=evaluate, combination=combination, threshold=threshold)
    api = _Api(store, again, drop_pending_trace)
    turns = asyncio.Semaphore(MAX_CONCURRENT_API_REQUESTS)
    return [*(_OperationRoute(operation, api, turns) for operation in OPERATIONS), _UnknownPathRoute()]


class _AnyTextConvertor(PathConvertor):
    """A part of a path that may have line breaks in it, beside slashes."""

    regex = r"[\s\S]*"


register_url_convertor("any_text", _AnyTextConvertor())


class _OperationRoute(Route):
    """An operation at its path, of which it is the only one. It refuses other methods itself, as the API refuses."""

    def __init__(self, operation: Operation, api: _Api, turns: asyncio.Semaphore) -> None:
        async def endpoint(request: Request) -> Response:
            answer = await run_in_threadpool(
                api.respond, operation, request.path_params, request.query_params.multi_items()
            )
            return _to_starlette(answer)

        self._semaphore = turns
        path = operation.path.replace("{run_id}", "{run_id:any_text}")
        super().__init__(path, endpoint, methods=[operation.method], name=operation.name)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return (Match.NONE if match is Match.NONE else Match.FULL), child

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        methods = self.methods or set()
        if scope["method"] in methods:
            async with self._semaphore:  # until it is sent, for until then it is in memory
                await super().handle(scope, receive, send)
            return
        allowed = ", ".join(sorted(methods))
        refusal = ApiError(405, "method_not_allowed", f"{scope['method'][:20]} is not for this path; {allowed} is.")
        await _to_starlette(_error_response(refusal, {"Allow": allowed}))(scope, receive, send)


class _UnknownPathRoute(Route):
    """Every other path of the API."""

    def __init__(self) -> None:
        async def endpoint(request: Request) -> Response:
            told = "The API has no such path; /api/v1/openapi.json lists those that there are."
            return _to_starlette(_error_response(ApiError(404, "not_found", told)))

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
        self._reevaluate = rescore
        self._drop_pending_trace = forget
        self._operations: Mapping[OperationName, Callable[[RequestParameters], str]] = {
            "runs": self._list_runs,
            "run": self._get_run,
            "evaluations": self._list_evaluations,
            "rescore": self._rescore_run,
            "delete_trace": self._delete_trace,
            "openapi": lambda said: to_json(openapi_document()),
        }

    def respond(self, operation: Operation, path: Mapping[str, str], query: Iterable[tuple[str, str]]) -> ApiResponse:
        """Do what is asked, or say why not."""
        try:
            said = parse_query(query, operation.query_parameters)
            if (place := operation.path_parameter) is not None:
                said[place.name] = parse_parameter(place, path[place.name])
            return ApiResponse(200, self._operations[operation.name](said))
        except ConfigurationError as error:
            return _error_response(ApiError(400, "invalid_parameter", str(error)))
        except MissingRunDataError as error:
            return _error_response(ApiError(409, "not_kept", str(error)))
        except StoreError as error:
            # It names the file and what is wrong with it, which is for whoever runs the gateway.
            _log.warning("The API cannot answer: %s", error)
            refusal = ApiError(503, "unavailable", "The store cannot do that now, and the gateway's log says why.")
            return _error_response(refusal, {"Retry-After": str(STORE_RETRY_AFTER_SECONDS)})
        except ApiError as refusal:
            return _error_response(refusal)

    def _list_runs(self, said: RequestParameters) -> str:
        wanted = filter_from_query(said)
        cursor = said.get("cursor")
        page = _PageBuilder(said.get("limit", PAGE_BATCH))
        while page.remaining:
            found = self._store.runs(wanted, limit=page.remaining, cursor=cursor)
            page.add(map(_run_json, found.items))
            cursor = found.next_cursor
            if cursor is None:
                break
        return page.to_json("runs", next_cursor=cursor)

    def _get_run(self, said: RequestParameters) -> str:
        run = self._require_run(said["run_id"])
        evaluations = self._store.evaluations(run.run_id)
        return to_json({**_run_json(run), "evaluations": list(map(_evaluation_json, evaluations))})

    def _list_evaluations(self, said: RequestParameters) -> str:
        after = said.get("after", 0)
        page = _PageBuilder(said.get("limit", PAGE_BATCH))
        while page.remaining:
            found = self._store.evaluations_after(after, page.remaining)
            page.add(map(_evaluation_json, found.items))
            after = found.next_after
            if not found.items:
                break
        return page.to_json("evaluations", next_after=after)

    def _rescore_run(self, said: RequestParameters) -> str:
        history = self._store.evaluations(said["run_id"])
        if not history:
            raise _run_not_found(said["run_id"])
        judged = self._reevaluate(history)
        seen = history[-1].revision, history[-1].digest
        if judged is not None and not self._store.replace_if_current(judged, seen):
            raise ApiError(409, "changed_meanwhile", "More became known of the run meanwhile; ask once more.")
        return to_json({"changed": judged is not None, "run": _run_json(self._require_run(said["run_id"]))})

    def _delete_trace(self, said: RequestParameters) -> str:
        self._drop_pending_trace(said["trace_id"])
        return to_json({"deleted": self._store.delete_trace(said["trace_id"])})

    def _require_run(self, run_id: str) -> StoredRun:
        run = self._store.run(run_id)
        if run is None:
            raise _run_not_found(run_id)
        return run


class _PageBuilder:
    """Documents that are answered together."""

    def __init__(self, limit: int) -> None:
        self._remaining = limit
        self._items: list[str] = []
        self._characters = 0

    @property
    def remaining(self) -> int:
        """How many may be added now."""
        return min(PAGE_BATCH, self._remaining) if self._characters < MAX_PAGE_CHARACTERS else 0

    def add(self, documents: Iterable[dict[str, Any]]) -> None:
        """Add some."""
        pieces = list(map(to_json, documents))
        self._items += pieces
        self._remaining -= len(pieces)
        self._characters += sum(map(len, pieces))

    def to_json(self, name: str, **more: Any) -> str:
        """The answer as JSON, with what else there is to say."""
        return f'{{"{name}": [{", ".join(self._items)}], {to_json(more)[1:]}'


def _evaluation_json(stored: StoredEvaluation) -> dict[str, Any]:
    verdict = {True: "pass", False: "fail", None: "not_evaluated"}[stored.document["passed"]]
    return {**stored.document, "verdict": verdict, "stored": format_time(stored.stored_ns)}


def _run_json(run: StoredRun) -> dict[str, Any]:
    more = {"time": format_time(run.time_ns), "evaluation_count": run.evaluation_count}
    return {**_evaluation_json(run.current), **more}


def _run_not_found(run_id: str) -> ApiError:
    return ApiError(404, "not_found", f"No run is stored under the id {run_id[:100]!r}.")


def _error_response(refusal: ApiError, headers: Mapping[str, str] = {}) -> ApiResponse:
    return ApiResponse(refusal.status, to_json({"error": {"code": refusal.code, "message": str(refusal)}}), headers)


def _to_starlette(answer: ApiResponse) -> Response:
    return Response(answer.body, answer.status, answer.headers, media_type="application/json")
