"""The operations of the API, and the OpenAPI document generated from them.

https://spec.openapis.org/oas/v3.1.1.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from goldspan._version import __version__
from goldspan.model import RunUnit
from goldspan.store.query_parameters import ARRIVAL_PARAMETERS, PAGE_PARAMETERS, RUN_ID, TRACE_ID, JsonSchema, Parameter
from goldspan.store.store_protocol import Verdict

OperationName: TypeAlias = Literal["runs", "run", "evaluations", "rescore", "delete_trace", "openapi"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the API."""

    name: OperationName
    method: Literal["GET", "POST", "DELETE"]
    path: str
    summary: str
    response_schema: str
    """Name of the schema of the response."""
    query_parameters: tuple[Parameter, ...] = ()
    path_parameter: Parameter | None = None
    error_statuses: tuple[int, ...] = ()
    """Error statuses in addition to those that every operation may return."""


OPERATIONS = (
    Operation("runs", "GET", "/api/v1/runs", "Runs, newest first.", "RunPage", query_parameters=PAGE_PARAMETERS),
    # Must precede `run`, because a run id may contain slashes.
    Operation(
        "rescore",
        "POST",
        "/api/v1/runs/{run_id}/rescore",
        "Evaluate a stored run again with the current goldens; store a new revision if anything changed.",
        "Rescored",
        path_parameter=RUN_ID,
        error_statuses=(404, 409),
    ),
    Operation(
        "run",
        "GET",
        "/api/v1/runs/{run_id}",
        "One run, with all its evaluations.",
        "RunWithEvaluations",
        path_parameter=RUN_ID,
        error_statuses=(404,),
    ),
    Operation(
        "evaluations",
        "GET",
        "/api/v1/evaluations",
        "Evaluations in the order in which they were stored. Polling with `after` misses none.",
        "Arrivals",
        query_parameters=ARRIVAL_PARAMETERS,
    ),
    Operation(
        "delete_trace",
        "DELETE",
        "/api/v1/traces/{trace_id}",
        "Delete the runs with spans in a trace; spans of it that arrive within a day are not stored.",
        "Deleted",
        path_parameter=TRACE_ID,
    ),
    Operation("openapi", "GET", "/api/v1/openapi.json", "The OpenAPI document of this API.", "Document"),
)
"""Every operation, in the order in which paths are matched."""

ERROR_DESCRIPTIONS: Mapping[int, str] = {
    400: "A parameter is invalid; the message names it.",
    401: "The token is missing or wrong.",
    403: "Host or Origin is not allowed.",
    404: "The resource does not exist.",
    405: "The path does not support the method; `Allow` lists the supported ones.",
    409: "The stored data is not sufficient to evaluate the run again, or the run changed meanwhile.",
    429: "Too many concurrent requests; retry after the seconds in `Retry-After`.",
    503: "The store is unavailable; retry after the seconds in `Retry-After`.",
}
_COMMON_ERRORS = (400, 401, 403, 405, 429, 503)
"""Error statuses that every operation may return."""


def openapi_document() -> dict[str, Any]:
    """Returns the OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation_object(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "goldspan",
            "summary": "Runs of agents and their evaluations.",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "A token for reading."}},
        },
        "security": [{"token": []}, {}],
    }


def _operation_object(operation: Operation) -> dict[str, Any]:
    parameters = [_parameter_object(parameter, "query") for parameter in operation.query_parameters]
    if operation.path_parameter is not None:
        parameters.append(_parameter_object(operation.path_parameter, "path"))
    return {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {str(status): response for status, response in _response_objects(operation)},
    }


def _parameter_object(parameter: Parameter, location: str) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": location,
        "required": location == "path",
        "description": parameter.description,
        "schema": parameter.schema,
    }


def _response_objects(operation: Operation) -> Iterator[tuple[int, dict[str, Any]]]:
    yield 200, {"description": "Success.", "content": _json_content(operation.response_schema)}
    for status in sorted({*_COMMON_ERRORS, *operation.error_statuses}):
        yield status, {"description": ERROR_DESCRIPTIONS[status], "content": _json_content("Error")}


def _json_content(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": _schema_ref(schema)}}


# --- schemas ----------------------------------------------------------------------------------------------------------


def _schema_ref(schema: str) -> JsonSchema:
    return {"$ref": f"#/components/schemas/{schema}"}


def _object_schema(
    properties: Mapping[str, JsonSchema], *, all_of: tuple[str, ...] = (), optional: tuple[str, ...] = ()
) -> JsonSchema:
    """Returns an object schema with these properties and those of `all_of`. Later versions may add properties."""
    required = [name for name in properties if name not in optional]
    schema = {"type": "object", "properties": properties, "required": required}
    return {"allOf": [*map(_schema_ref, all_of), schema]} if all_of else schema


def _list_schema(items: JsonSchema) -> JsonSchema:
    return {"type": "array", "items": items}


def _nullable(kind: str) -> JsonSchema:
    return {"type": [kind, "null"]}


_TEXT_SCHEMA: JsonSchema = {"type": "string"}
_TIME_SCHEMA: JsonSchema = {"type": "string", "format": "date-time", "description": "RFC 3339, in UTC."}
_COUNT_SCHEMA: JsonSchema = {"type": "integer", "minimum": 0}

SCHEMAS: Mapping[str, JsonSchema] = {
    "Error": _object_schema({"error": _object_schema({"code": _TEXT_SCHEMA, "message": _TEXT_SCHEMA})}),
    "ToolCall": _object_schema(
        {
            "name": _TEXT_SCHEMA,
            "server": _TEXT_SCHEMA,
            "agent": _TEXT_SCHEMA,
            "outcome": _TEXT_SCHEMA,
            "error": _TEXT_SCHEMA,
            "arguments": {},
        },
        optional=("server", "agent", "outcome", "error", "arguments"),
    ),
    "Score": _object_schema(
        {
            "metric": _TEXT_SCHEMA,
            "value": _nullable("number"),
            "passed": _nullable("boolean"),
            "threshold": _nullable("number"),
            "reason": _nullable("string"),
            "error": _nullable("string"),
            "judgement": {"type": "object", "description": "How the model was asked, if a model gave the score."},
        },
        optional=("judgement",),
    ),
    "Evaluation": _object_schema(
        {
            "run_id": _TEXT_SCHEMA,
            "unit": {"enum": list(get_args(RunUnit))},
            "trace_ids": _list_schema(_TEXT_SCHEMA),
            "revision": {"type": "integer", "minimum": 1},
            "digest": {
                "type": "string",
                "description": "Equal digests mean equal deterministic results; a judge may add a score.",
            },
            "stored": _TIME_SCHEMA,
            "verdict": {"enum": list(get_args(Verdict))},
            "status": {"enum": ["scored", "not_evaluated"]},
            "passed": _nullable("boolean"),
            "reason": {"type": "string", "description": "The verdict explained in one sentence."},
            "golden_id": _nullable("string"),
            "input": _nullable("string"),
            "agent": _nullable("string"),
            "service": _nullable("string"),
            "environment": _nullable("string"),
            "session_id": _nullable("string"),
            "tools_used": _list_schema(_TEXT_SCHEMA),
            "tool_calls": _list_schema(_schema_ref("ToolCall")),
            "scores": _list_schema(_schema_ref("Score")),
        }
    ),
    "Run": _object_schema({"time": _TIME_SCHEMA, "evaluation_count": _COUNT_SCHEMA}, all_of=("Evaluation",)),
    "RunWithEvaluations": _object_schema({"evaluations": _list_schema(_schema_ref("Evaluation"))}, all_of=("Run",)),
    "RunPage": _object_schema({"runs": _list_schema(_schema_ref("Run")), "next_cursor": _nullable("string")}),
    "Arrivals": _object_schema({"evaluations": _list_schema(_schema_ref("Evaluation")), "next_after": _COUNT_SCHEMA}),
    "Rescored": _object_schema({"changed": {"type": "boolean"}, "run": _schema_ref("Run")}),
    "Deleted": _object_schema({"deleted": _COUNT_SCHEMA}),
    "Document": {"type": "object"},
}
