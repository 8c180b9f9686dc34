"""The HTTP API of the store: lists runs and evaluations, re-evaluates runs and deletes traces.

The module `openapi` lists the operations. They use the store in threads, never in the event loop. Concurrency is
limited, because other components need the threads too, and because a response is in memory until it is sent.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from goldspan._extras import require_extra
from goldspan.errors import ConfigurationError, GoldspanError, StoreError
from goldspan.gateway.openapi import OPERATIONS, Operation, OperationName, openapi_document
from goldspan.judge.tool_selection import TOOL_SELECTION, Combination, failed_score, with_threshold, with_tool_selection
from goldspan.model import ABSENT, Evaluation, Golden, Judgement, Run, Score
from goldspan.scoring.metrics import JUDGE_METRICS, METRICS
from goldspan.sinks.serialization import to_json
from goldspan.store import Store, StoredEvaluation, StoredRun
from goldspan.store.query_parameters import filter_from_query, format_time, parse_parameter, parse_query
from goldspan.store.run_records import MAX_INPUT_LENGTH, evaluation_to_document, run_from_document


class MissingRunDataError(GoldspanError):
    """Raised if the store lacks data that is needed to evaluate a run again. The message says what to do."""


def reevaluate_stored(
    history: Sequence[StoredEvaluation],
    evaluate: Callable[[Run], Evaluation],
    *,
    combination: Combination = "apart",
    threshold: float | None = None,
) -> Evaluation | None:
    """Evaluates a stored run again. Returns the next revision, or `None` if the result equals the stored one.

    The store may lack data that the verdict depends on; evaluating without it could lose a correct score. The function
    raises `MissingRunDataError` if that is possible:

    - The run states its own expectations, or attributes of its span or the end of a long input take part in finding its
      golden. These are never stored.
    - Without `keep_arguments`: the golden states arguments or results, or ignores duplicates; a call failed, and its
      arguments would show whether a later call replaced it; a known score that needs no golden would be lost; or a
      metric is not one of goldspan's, and may use any data.

    A revision that was created without the values lacks them too, so all revisions must have them.

    No model is asked again. The stored score of the judge is kept and combined with `combination`, using the threshold
    of the golden or else `threshold`.
    """
    current = history[-1]
    with_values = all("schemas" in stored.document for stored in history)
    attributes = _MissingAttributes()
    run = replace(run_from_document(current.document), attributes=attributes)
    evaluation = evaluate(run)
    if (judge_score := _stored_judge_score(current.document)) is not None:
        limit = evaluation.golden.thresholds.get(TOOL_SELECTION, threshold) if evaluation.golden else threshold
        combined = with_tool_selection(evaluation, with_threshold(judge_score, limit), combination=combination)
        evaluation = replace(combined, changes=None)  # the goldens may have changed as well
    reason = next(_missing_data_reasons(current.document, evaluation, attributes), None)
    if reason is None and not with_values:
        reason = next(_missing_value_reasons(current.document, evaluation), None)
        reason = reason and f"{reason} Run the gateway with --keep-arguments to be able to rescore later runs."
    if reason is not None:
        raise MissingRunDataError(reason)
    document = json.loads(to_json(evaluation_to_document(evaluation, keep_arguments=with_values)))
    if all(document[name] == current.document.get(name) for name in _COMPARED_KEYS):
        return None
    return replace(evaluation, revision=current.revision + 1)


_COMPARED_KEYS = (
    *("golden_id", "golden_match", "passed", "reason", "expected_tools"),
    *("scores", "faults", "broken", "unjudged", "rows", "scoring_version"),
)
"""The keys that are compared to find out whether an evaluation changed."""


def _stored_judge_score(evaluation_document: Mapping[str, Any]) -> Score | None:
    """Returns the judge's stored score or failure of a run; `None` if no model was asked."""
    for stored in evaluation_document["scores"]:
        if stored["metric"] == TOOL_SELECTION and (stored["value"] is not None or stored["error"] is not None):
            document = stored.get("judgement") or {}
            values = {field.name: document[field.name] for field in fields(Judgement) if field.name in document}
            judgement = Judgement(**values | {"votes": tuple(values["votes"])}) if values else None
            if stored["value"] is None:
                return failed_score(stored["error"])
            return Score(TOOL_SELECTION, stored["value"], reason=stored["reason"], judgement=judgement)
    return None


def _missing_data_reasons(
    document: Mapping[str, Any], evaluation: Evaluation, attributes: _MissingAttributes
) -> Iterator[str]:
    """Yields sentences about data that the verdict depends on and that no store keeps."""
    if "states_expectations" not in document:
        yield "An older goldspan stored this run without the data needed to rescore it. Send its trace again."
    elif document["states_expectations"]:
        yield "The run states its own expectations, so no golden applies to it. Send its trace again."
    if attributes.requested_keys:
        yield (
            f"Goldens or metrics use the attribute {min(attributes.requested_keys)} of the run's span, which is not "
            "stored. Send its trace again."
        )
    named = evaluation.match is not None and evaluation.match.how == "id"
    if len(document["input"] or "") >= MAX_INPUT_LENGTH and not named:
        yield (
            f"Only the first {MAX_INPUT_LENGTH} characters of the input are stored, and goldens are matched by the "
            "whole input. Send its trace again."
        )


def _missing_value_reasons(document: Mapping[str, Any], evaluation: Evaluation) -> Iterator[str]:
    """Yields sentences about arguments and results that the verdict depends on."""
    golden = evaluation.golden
    if golden is not None and _depends_on_values(golden):
        yield f"The golden {golden.id} compares arguments or results, which were not stored for this run."
    calls = evaluation.run.tool_calls
    matters = golden is not None and golden.attempts == "effective" and len(calls) > 1
    if matters and not all(call.error is None and call.error_guess is None for call in calls):
        yield "A call failed or may have failed. Only arguments, which were not stored, show whether it was retried."
    known = {score["metric"] for score in document["scores"] if score["value"] is not None}
    for score in evaluation.scores:
        if score.metric in JUDGE_METRICS:
            continue
        if score.metric not in METRICS:
            yield f"The metric {score.metric} may use arguments or results, which were not stored for this run."
        elif score.value is None and score.metric in known and not METRICS[score.metric].needs_golden:
            yield f"The score of {score.metric} depends on arguments, which were not stored for this run."


def _depends_on_values(golden: Golden) -> bool:
    states_values = any(tool.arguments is not None or tool.result is not ABSENT for tool in golden.expected_calls)
    return states_values or golden.duplicates == "ignore"


class _MissingAttributes(Mapping[str, Any]):
    """Replaces span attributes that were not stored. Records the requested keys: the verdict depends on them."""

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


with require_extra("server"):
    from starlette.concurrency import run_in_threadpool
    from starlette.convertors import PathConvertor, register_url_convertor
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Match, Route
    from starlette.types import Receive, Scope, Send

_log = logging.getLogger(__name__)

MAX_CONCURRENT_API_REQUESTS = 4
"""Number of requests that use the store or send a response at the same time; further requests wait."""
PAGE_BATCH = 50
"""Number of documents that are read from the store in one batch."""
MAX_PAGE_CHARACTERS = 8 * 1024 * 1024
"""A page ends after the batch that exceeds this size, even if `limit` is larger."""
STORE_RETRY_AFTER_SECONDS = 2
"""Seconds in `Retry-After` when the store is busy."""

RequestParameters: TypeAlias = Mapping[str, Any]
"""The parsed parameters of a request."""


class ApiResponse(NamedTuple):
    """Status, body and headers of a response."""

    status: int
    body: str
    headers: Mapping[str, str] = {}


class ApiError(Exception):
    """Raised by an operation to respond with a status other than 200."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def api_routes(
    store: Store,
    *,
    evaluate: Callable[[Run], Evaluation],
    drop_pending_trace: Callable[[str], None],
    combination: Combination = "apart",
    threshold: float | None = None,
) -> list[Route]:
    """Returns the routes of the API.

    Both callables are called in threads, possibly concurrently.

    Args:
        store: The store with the runs.
        evaluate: Evaluates a run with the current goldens.
        drop_pending_trace: Drops what is held of a trace outside the store; its argument is the trace id, 32 lower-case
            hexadecimal digits.
        combination: How the judge's stored score is combined with the evaluation.
        threshold: Threshold of the judge's score if the golden has none.
    """
    reevaluate = partial(reevaluate_stored, evaluate=evaluate, combination=combination, threshold=threshold)
    api = _Api(store, reevaluate, drop_pending_trace)
    semaphore = asyncio.Semaphore(MAX_CONCURRENT_API_REQUESTS)
    return [*(_OperationRoute(operation, api, semaphore) for operation in OPERATIONS), _UnknownPathRoute()]


class _AnyTextConvertor(PathConvertor):
    """Matches a part of a path that may contain slashes and line breaks."""

    regex = r"[\s\S]*"


register_url_convertor("any_text", _AnyTextConvertor())


class _OperationRoute(Route):
    """The only operation of its path. It rejects other methods itself, with an error in the format of the API."""

    def __init__(self, operation: Operation, api: _Api, semaphore: asyncio.Semaphore) -> None:
        async def endpoint(request: Request) -> Response:
            response = await run_in_threadpool(
                api.respond, operation, request.path_params, request.query_params.multi_items()
            )
            return _to_starlette(response)

        self._semaphore = semaphore
        path = operation.path.replace("{run_id}", "{run_id:any_text}")
        super().__init__(path, endpoint, methods=[operation.method], name=operation.name)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        return (Match.NONE if match is Match.NONE else Match.FULL), child

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        methods = self.methods or set()
        if scope["method"] in methods:
            async with self._semaphore:  # held until the response is sent, because it is in memory until then
                await super().handle(scope, receive, send)
            return
        allowed = ", ".join(sorted(methods))
        error = ApiError(405, "method_not_allowed", f"{scope['method'][:20]} is not allowed here; {allowed} is.")
        await _to_starlette(_error_response(error, {"Allow": allowed}))(scope, receive, send)


class _UnknownPathRoute(Route):
    """Responds with 404 to every other path of the API."""

    def __init__(self) -> None:
        async def endpoint(request: Request) -> Response:
            message = "The path does not exist; /api/v1/openapi.json lists the paths of the API."
            return _to_starlette(_error_response(ApiError(404, "not_found", message)))

        super().__init__("/api/{path:any_text}", endpoint, name="elsewhere")
        self.methods = None  # any method


class _Api:
    """Implements the operations. Thread-safe."""

    def __init__(
        self,
        store: Store,
        reevaluate: Callable[[Sequence[StoredEvaluation]], Evaluation | None],
        drop_pending_trace: Callable[[str], None],
    ) -> None:
        self._store = store
        self._reevaluate = reevaluate
        self._drop_pending_trace = drop_pending_trace
        self._operations: Mapping[OperationName, Callable[[RequestParameters], str]] = {
            "runs": self._list_runs,
            "run": self._get_run,
            "evaluations": self._list_evaluations,
            "rescore": self._rescore_run,
            "delete_trace": self._delete_trace,
            "openapi": lambda parameters: to_json(openapi_document()),
        }

    def respond(self, operation: Operation, path: Mapping[str, str], query: Iterable[tuple[str, str]]) -> ApiResponse:
        """Execute an operation. Returns its response or an error response."""
        try:
            parameters = parse_query(query, operation.query_parameters)
            if (parameter := operation.path_parameter) is not None:
                parameters[parameter.name] = parse_parameter(parameter, path[parameter.name])
            return ApiResponse(200, self._operations[operation.name](parameters))
        except ConfigurationError as error:
            return _error_response(ApiError(400, "invalid_parameter", str(error)))
        except MissingRunDataError as error:
            return _error_response(ApiError(409, "not_kept", str(error)))
        except StoreError as error:
            # The message names the file, so it goes to the log and not to the client.
            _log.warning("The API cannot use the store: %s", error)
            unavailable = ApiError(503, "unavailable", "The store is unavailable. The gateway's log has the reason.")
            return _error_response(unavailable, {"Retry-After": str(STORE_RETRY_AFTER_SECONDS)})
        except ApiError as error:
            return _error_response(error)

    def _list_runs(self, parameters: RequestParameters) -> str:
        run_filter = filter_from_query(parameters)
        cursor = parameters.get("cursor")
        page = _PageBuilder(parameters.get("limit", PAGE_BATCH))
        while page.remaining:
            found = self._store.runs(run_filter, limit=page.remaining, cursor=cursor)
            page.add(map(_run_json, found.items))
            cursor = found.next_cursor
            if cursor is None:
                break
        return page.to_json("runs", next_cursor=cursor)

    def _get_run(self, parameters: RequestParameters) -> str:
        run = self._require_run(parameters["run_id"])
        evaluations = self._store.evaluations(run.run_id)
        return to_json({**_run_json(run), "evaluations": list(map(_evaluation_json, evaluations))})

    def _list_evaluations(self, parameters: RequestParameters) -> str:
        after = parameters.get("after", 0)
        page = _PageBuilder(parameters.get("limit", PAGE_BATCH))
        while page.remaining:
            found = self._store.evaluations_after(after, page.remaining)
            page.add(map(_evaluation_json, found.items))
            after = found.next_after
            if not found.items:
                break
        return page.to_json("evaluations", next_after=after)

    def _rescore_run(self, parameters: RequestParameters) -> str:
        history = self._store.evaluations(parameters["run_id"])
        if not history:
            raise _run_not_found(parameters["run_id"])
        evaluation = self._reevaluate(history)
        current = history[-1].revision, history[-1].digest
        if evaluation is not None and not self._store.replace_if_current(evaluation, current):
            raise ApiError(409, "changed_meanwhile", "The run changed meanwhile. Try again.")
        return to_json({"changed": evaluation is not None, "run": _run_json(self._require_run(parameters["run_id"]))})

    def _delete_trace(self, parameters: RequestParameters) -> str:
        self._drop_pending_trace(parameters["trace_id"])
        return to_json({"deleted": self._store.delete_trace(parameters["trace_id"])})

    def _require_run(self, run_id: str) -> StoredRun:
        run = self._store.run(run_id)
        if run is None:
            raise _run_not_found(run_id)
        return run


class _PageBuilder:
    """Collects the documents of one page."""

    def __init__(self, limit: int) -> None:
        self._remaining = limit
        self._items: list[str] = []
        self._characters = 0

    @property
    def remaining(self) -> int:
        """Number of documents that may be added in the next batch."""
        return min(PAGE_BATCH, self._remaining) if self._characters < MAX_PAGE_CHARACTERS else 0

    def add(self, documents: Iterable[dict[str, Any]]) -> None:
        """Add one batch."""
        items = list(map(to_json, documents))
        self._items += items
        self._remaining -= len(items)
        self._characters += sum(map(len, items))

    def to_json(self, name: str, **more: Any) -> str:
        """Returns the page as JSON, with the members in `more`."""
        return f'{{"{name}": [{", ".join(self._items)}], {to_json(more)[1:]}'


def _evaluation_json(stored: StoredEvaluation) -> dict[str, Any]:
    verdict = {True: "pass", False: "fail", None: "not_evaluated"}[stored.document["passed"]]
    return {**stored.document, "verdict": verdict, "stored": format_time(stored.stored_ns)}


def _run_json(run: StoredRun) -> dict[str, Any]:
    more = {"time": format_time(run.time_ns), "evaluation_count": run.evaluation_count}
    return {**_evaluation_json(run.current), **more}


def _run_not_found(run_id: str) -> ApiError:
    return ApiError(404, "not_found", f"No run has the id {run_id[:100]!r}.")


def _error_response(error: ApiError, headers: Mapping[str, str] = {}) -> ApiResponse:
    return ApiResponse(error.status, to_json({"error": {"code": error.code, "message": str(error)}}), headers)


def _to_starlette(response: ApiResponse) -> Response:
    return Response(response.body, response.status, response.headers, media_type="application/json")
