"""The operations of the API as one table, and the OpenAPI document that is made of it.

https://spec.openapis.org/oas/v3.1.1.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from goldspan._version import __version__
from goldspan.model import Unit
from goldspan.store.parameters import ARRIVALS, PAGE, RUN_ID, TRACE_ID, Parameter, Schema
from goldspan.store.protocol import Verdict

Name: TypeAlias = Literal["runs", "run", "evaluations", "rescore", "delete_trace", "openapi"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that the API does."""

    name: Name
    method: Literal["GET", "POST", "DELETE"]
    path: str
    summary: str
    answer: str
    """The name of the schema of what it answers."""
    query: tuple[Parameter, ...] = ()
    in_path: Parameter | None = None
    refusals: tuple[int, ...] = ()
    """The statuses, beside those that any request may get, with which it may refuse."""


OPERATIONS = (
    Operation("runs", "GET", "/api/v1/runs", "Runs, newest first.", "RunPage", query=PAGE),
    # Before the next one: the id of a run may be nearly any text, with slashes in it.
    Operation(
        "rescore",
        "POST",
        "/api/v1/runs/{run_id}/rescore",
        "Judge a stored run once more, by the goldens of now; a new revision where anything changed.",
        "Rescored",
        in_path=RUN_ID,
        refusals=(404, 409),
    ),
    Operation(
        "run",
        "GET",
        "/api/v1/runs/{run_id}",
        "One run, with all its evaluations.",
        "RunWithEvaluations",
        in_path=RUN_ID,
        refusals=(404,),
    ),
    Operation(
        "evaluations",
        "GET",
        "/api/v1/evaluations",
        "Evaluations in the order in which they were stored: who asks again and again misses nothing.",
        "Arrivals",
        query=ARRIVALS,
    ),
    Operation(
        "delete_trace",
        "DELETE",
        "/api/v1/traces/{trace_id}",
        "Delete the runs with spans in a trace; what comes of it within a day is not stored again.",
        "Deleted",
        in_path=TRACE_ID,
    ),
    Operation("openapi", "GET", "/api/v1/openapi.json", "This document.", "Document"),
)
"""All of them, in the order in which a path is looked up."""

REFUSALS: Mapping[int, str] = {
    400: "Something that was said means nothing; the message says what.",
    401: "The token is missing or wrong.",
    403: "Host or Origin is not allowed.",
    404: "There is no such thing.",
    405: "The method is not one of this path; `Allow` has those that are.",
    409: "Too little was kept of the run to judge it once more, or it changed meanwhile.",
    429: "Too many requests at once; `Retry-After` says when to come back.",
    503: "The store cannot answer now; `Retry-After` says when to come back.",
}
_ANY = (400, 401, 403, 405, 429, 503)
"""What any request may get."""


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "goldspan",
            "summary": "Runs of agents, and how they came out.",
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


def _described(operation: Operation) -> dict[str, Any]:
    parameters = [_parameter(each, "query") for each in operation.query]
    if operation.in_path is not None:
        parameters.append(_parameter(operation.in_path, "path"))
    return {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {str(status): told for status, told in _responses(operation)},
    }


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": place,
        "required": place == "path",
        "description": parameter.meaning,
        "schema": parameter.schema,
    }


def _responses(operation: Operation) -> Iterator[tuple[int, dict[str, Any]]]:
    yield 200, {"description": "Done.", "content": _content(operation.answer)}
    for status in sorted({*_ANY, *operation.refusals}):
        yield status, {"description": REFUSALS[status], "content": _content("Error")}


def _content(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": _named(schema)}}


# --- schemas ----------------------------------------------------------------------------------------------------------


def _named(schema: str) -> Schema:
    return {"$ref": f"#/components/schemas/{schema}"}


def _object(
    properties: Mapping[str, Schema], *, all_of: tuple[str, ...] = (), optional: tuple[str, ...] = ()
) -> Schema:
    """An object with these properties, and with those of other schemas. Further ones may come with later versions."""
    required = [name for name in properties if name not in optional]
    said = {"type": "object", "properties": properties, "required": required}
    return {"allOf": [*map(_named, all_of), said]} if all_of else said


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _or_null(kind: str) -> Schema:
    return {"type": [kind, "null"]}


_TEXT: Schema = {"type": "string"}
_TIME: Schema = {"type": "string", "format": "date-time", "description": "RFC 3339, in UTC."}
_COUNT: Schema = {"type": "integer", "minimum": 0}

SCHEMAS: Mapping[str, Schema] = {
    "Error": _object({"error": _object({"code": _TEXT, "message": _TEXT})}),
    "ToolCall": _object(
        {"name": _TEXT, "server": _TEXT, "agent": _TEXT, "outcome": _TEXT, "error": _TEXT, "arguments": {}},
        optional=("server", "agent", "outcome", "error", "arguments"),
    ),
    "Score": _object(
        {
            "metric": _TEXT,
            "value": _or_null("number"),
            "passed": _or_null("boolean"),
            "threshold": _or_null("number"),
            "reason": _or_null("string"),
            "error": _or_null("string"),
            "judgement": {"type": "object", "description": "Where a model gave the score: how it was asked."},
        },
        optional=("judgement",),
    ),
    "Evaluation": _object(
        {
            "run_id": _TEXT,
            "unit": {"enum": list(get_args(Unit))},
            "trace_ids": _list(_TEXT),
            "revision": {"type": "integer", "minimum": 1},
            "digest": {
                "type": "string",
                "description": "Equal digests mean the same comparison; a model may say more of it.",
            },
            "stored": _TIME,
            "verdict": {"enum": list(get_args(Verdict))},
            "status": {"enum": ["scored", "not_evaluated"]},
            "passed": _or_null("boolean"),
            "reason": {"type": "string", "description": "One sentence for people."},
            "golden_id": _or_null("string"),
            "input": _or_null("string"),
            "agent": _or_null("string"),
            "service": _or_null("string"),
            "environment": _or_null("string"),
            "session_id": _or_null("string"),
            "tools_used": _list(_TEXT),
            "tool_calls": _list(_named("ToolCall")),
            "scores": _list(_named("Score")),
        }
    ),
    "Run": _object({"time": _TIME, "evaluation_count": _COUNT}, all_of=("Evaluation",)),
    "RunWithEvaluations": _object({"evaluations": _list(_named("Evaluation"))}, all_of=("Run",)),
    "RunPage": _object({"runs": _list(_named("Run")), "next_cursor": _or_null("string")}),
    "Arrivals": _object({"evaluations": _list(_named("Evaluation")), "next_after": _COUNT}),
    "Rescored": _object({"changed": {"type": "boolean"}, "run": _named("Run")}),
    "Deleted": _object({"deleted": _COUNT}),
    "Document": {"type": "object"},
}
