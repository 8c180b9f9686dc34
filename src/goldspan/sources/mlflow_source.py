"""MLflow: traces of an experiment.

`POST /api/3.0/mlflow/traces/search` lists the traces that began in a window, `GET /api/3.0/mlflow/traces/batchGet`
returns them with their spans, which are OTLP (checked against MLflow 3.17). MLflow leaves out a trace whose spans have
not all arrived, and one whose spans are not in the tracking store.

MLflow keeps neither resources nor scopes. It parses the attributes that are JSON texts; mappings and most lists are
written as text again, as instrumentations write them. To each span that arrives over OTLP it adds attributes of its
own, which it derives from those of other instrumentations. They are removed again, because the derived type of a span
can differ from what goldspan reads from the original attributes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from goldspan.errors import ConfigurationError
from goldspan.integrations.http_client import DeliveryError
from goldspan.integrations.mlflow import MLflow
from goldspan.integrations.product import ProductRequest
from goldspan.sources.otlp_documents import hex_id, plain_value, request_document, to_proto_json
from goldspan.sources.trace_source import (
    JsonObject,
    PageRequest,
    Send,
    TracePage,
    TraceSource,
    object_of,
    objects_of,
    reply_object,
    text_of,
)

DEFAULT_EXPERIMENT = "0"
_TRACES_PATH = "/api/3.0/mlflow/traces"
_DERIVED_ATTRIBUTES = frozenset(
    {
        *("mlflow.spanType", "mlflow.spanInputs", "mlflow.spanOutputs", "mlflow.llm.provider", "mlflow.llm.model"),
        *("mlflow.llm.cost", "mlflow.chat.tokenUsage", "mlflow.chat.tools"),
    }
)
"""The attributes that MLflow derives. MLflow's own spans have them as the original attributes."""
_OTHER_INSTRUMENTATIONS = (
    *("gen_ai.", "openinference.", "llm.", "traceloop.", "langfuse.", "langwatch.", "langsmith.", "lmnr.", "lk."),
    *("ai.", "gcp.vertex.agent.", "voltagent."),
)
"""The namespaces of the attributes from which MLflow derives its own (`mlflow.tracing.otel.translation`)."""
_CONTENT_ATTRIBUTE = re.compile(r"(.*[._])?(arguments|content|input|output|result|value)")
"""The attributes in which a list of texts was JSON. In others, such as `finish_reasons`, it was a list before."""
_EXPERIMENT_PATH = "/api/2.0/mlflow/experiments/get-by-name"


class MLflowSource(TraceSource):
    """Reads the traces of one experiment.

    Args:
        product: The address and the credentials.
        experiment: The id of the experiment if it consists of digits, else its name.
    """

    name = "mlflow"
    variables = (
        *("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"),
        *("MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"),
    )
    parameters = ("experiment",)

    def __init__(self, product: MLflow, *, experiment: str = DEFAULT_EXPERIMENT) -> None:
        self.base_url, self.headers = product.base_url, product.headers
        self._experiment = experiment
        self._experiment_id = experiment if experiment.isdecimal() else None

    @classmethod
    def create(
        cls, base_url: str | None, parameters: Mapping[str, str], environment: Mapping[str, str]
    ) -> MLflowSource:
        """Return the source as MLflow's own variables describe it; the URL has precedence."""
        experiment = parameters.get("experiment") or next(
            (value for name in ("MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME") if (value := environment.get(name))),
            DEFAULT_EXPERIMENT,
        )
        return cls(MLflow.from_environment(base_url, environment), experiment=experiment)

    def read_page(self, request: PageRequest, send: Send) -> TracePage:
        """Read the next traces, the latest first."""
        if self._experiment_id is None:
            self._experiment_id = self._read_experiment_id(send)
        window = request.window
        search: dict[str, Any] = {
            "locations": [
                {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": self._experiment_id}},
            ],
            # MLflow knows when a trace began in milliseconds.
            "filter": f"timestamp_ms >= {window.start_ns // 1_000_000} AND timestamp_ms < {window.end_ns // 1_000_000}",
            "order_by": ["timestamp_ms DESC"],
            "max_results": request.page_size,
        }
        if request.cursor is not None:
            search["page_token"] = request.cursor
        reply = reply_object(send(ProductRequest("POST", f"{_TRACES_PATH}/search", search)), self)
        trace_ids = [text_of(trace, "trace_id", self) for trace in objects_of(reply, "traces", self)]
        traces = self._read_traces(trace_ids, send) if trace_ids else []
        notices = []
        if missing := len(trace_ids) - len(traces):
            notices = [f"MLflow returned no spans of {missing} traces: they are not complete, or are not in its store"]
        documents = [request_document(list(map(_otlp_span, objects_of(trace, "spans", self)))) for trace in traces]
        return TracePage(documents, trace_ids, reply.get("next_page_token"), notices)

    def _read_experiment_id(self, send: Send) -> str:
        query = {"experiment_name": self._experiment}
        try:
            reply = reply_object(send(ProductRequest("GET", _EXPERIMENT_PATH, query=query)), self)
        except DeliveryError as error:
            if error.kind == "not_found":
                raise ConfigurationError(f"MLflow has no experiment {self._experiment!r}") from None
            raise
        return text_of(object_of(reply, "experiment", self), "experiment_id", self)

    def _read_traces(self, trace_ids: list[str], send: Send) -> list[dict[str, Any]]:
        request = ProductRequest("GET", f"{_TRACES_PATH}/batchGet", query={"trace_ids": trace_ids})
        return objects_of(reply_object(send(request), self), "traces", self)


def _otlp_span(span: JsonObject) -> dict[str, Any]:
    otlp: dict[str, Any] = to_proto_json(span)
    for name in ("traceId", "spanId", "parentSpanId"):
        if name in otlp:
            otlp[name] = hex_id(otlp[name])
    attributes = [_restore_text(attribute) for attribute in otlp.get("attributes", ())]
    if any(attribute["key"].startswith(_OTHER_INSTRUMENTATIONS) for attribute in attributes):
        attributes = [each for each in attributes if each["key"] not in _DERIVED_ATTRIBUTES]
    return otlp | {"attributes": attributes}


def _restore_text(attribute: dict[str, Any]) -> dict[str, Any]:
    """Return an attribute with the JSON text that MLflow parsed, if it was one."""
    key, value = attribute["key"], attribute.get("value", {})
    items = value.get("arrayValue", {}).get("values", ())
    was_text = "kvlistValue" in value or (
        "arrayValue" in value
        and (_CONTENT_ATTRIBUTE.fullmatch(key) or not all("stringValue" in item for item in items))
    )
    if not was_text:
        return attribute
    return {"key": key, "value": {"stringValue": json.dumps(plain_value(value), ensure_ascii=False)}}
