"""Starts the servers of real products, each from an environment of its own, and reads scores through their APIs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldspan.integrations.mlflow import MLflow
from goldspan.integrations.phoenix import Phoenix
from goldspan.integrations.product import Product
from recipes.environments import python_of

START_S = 180
STOP_S = 30


@dataclass(frozen=True)
class ShownScore:
    """A score as a product shows it."""

    value: Any
    comment: str | None
    label: str | None = None
    metadata: Mapping[str, Any] | None = None


class ProductProgram(ABC):
    """A product with its own data folder. It can be stopped and started again at the same address."""

    name: str
    health_path: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._other_port = _free_ports(2)
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        folder = python_of(self.name).parent
        environment = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        environment |= {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "NO_PROXY": "*", "DO_NOT_TRACK": "1"}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(folder / self.command[0]), *self.command[1:]],
                stdout=log,
                stderr=log,
                env=environment | self.settings,
                cwd=self.folder,
                start_new_session=True,
            )
        until = time.monotonic() + START_S
        while True:
            try:
                return self._check_health()
            except OSError:
                assert self._process.poll() is None, f"{self.name} ended: {(self.folder / 'log').read_text()[-2000:]}"
                assert time.monotonic() < until, f"{self.name} did not start"
                time.sleep(0.2)

    def stop(self) -> None:
        """Stop the server and its workers."""
        if self._process is not None:
            os.killpg(self._process.pid, 15)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, 9)
                self._process.wait()
            self._process = None

    def _check_health(self) -> None:
        with urllib.request.urlopen(f"{self.url}{self.health_path}", timeout=5):
            pass

    def get(self, path: str, query: Sequence[tuple[str, str]] = ()) -> Any:
        """Return the JSON reply of the product's API."""
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(query)}", timeout=60) as reply:
            return json.load(reply)

    def post(self, path: str, body: Any) -> Any:
        """Return the JSON reply of the product's API to a JSON body."""
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    @property
    @abstractmethod
    def command(self) -> list[str]:
        """The command of the server."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, str]:
        """The variables of the server, which also turn its telemetry off."""

    @property
    @abstractmethod
    def product(self) -> Product:
        """The product for a sink."""

    @property
    def otlp_headers(self) -> dict[str, str]:
        """The headers with which it accepts OTLP at `/v1/traces`."""
        return {}

    @property
    @abstractmethod
    def failed_traces(self) -> set[str]:
        """The trace ids of the failed runs, found with the product's own filter."""

    @abstractmethod
    def scores(self, trace_id: str, span_id: str) -> dict[str, list[ShownScore]]:
        """Return the scores of a span by their names."""


class PhoenixProgram(ProductProgram):
    name = "phoenix"
    health_path = "/healthz"

    @property
    def command(self) -> list[str]:
        return ["phoenix", "serve"]

    @property
    def settings(self) -> dict[str, str]:
        return {
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(self.port),
            "PHOENIX_GRPC_PORT": str(self._other_port),
            "PHOENIX_WORKING_DIR": str(self.folder),
            "PHOENIX_TELEMETRY_ENABLED": "false",
            "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
        }

    @property
    def product(self) -> Product:
        return Phoenix(self.url)

    @property
    def failed_traces(self) -> set[str]:
        query = """query($condition: String!) {
            projects { edges { node {
                spans(first: 1000, filterCondition: $condition) { edges { node { trace { traceId } } } }
            } } }
        }"""
        condition = "annotations['goldspan.passed'].label == 'fail'"
        reply = self.post("/graphql", {"query": query, "variables": {"condition": condition}})
        projects = [edge["node"] for edge in reply["data"]["projects"]["edges"]]
        return {edge["node"]["trace"]["traceId"] for project in projects for edge in project["spans"]["edges"]}

    def scores(self, trace_id: str, span_id: str) -> dict[str, list[ShownScore]]:
        reply = self.get("/v1/projects/default/span_annotations", [("span_ids", span_id), ("limit", "1000")])
        found: dict[str, list[ShownScore]] = {}
        for one in reply["data"]:
            assert (one["span_id"], one["annotator_kind"]) == (span_id, "CODE")
            result = one["result"]
            shown = ShownScore(result["score"], result["explanation"], result["label"], one["metadata"])
            found.setdefault(one["name"], []).append(shown)
        return found


class MLflowProgram(ProductProgram):
    name = "mlflow"
    health_path = "/health"

    @property
    def command(self) -> list[str]:
        database = f"sqlite:///{self.folder / 'mlflow.db'}"
        address = ["--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        artifacts = str(self.folder / "artifacts")
        return ["mlflow", "server", *address, "--backend-store-uri", database, "--default-artifact-root", artifacts]

    @property
    def settings(self) -> dict[str, str]:
        return {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}

    @property
    def product(self) -> Product:
        return MLflow(self.url)

    @property
    def failed_traces(self) -> set[str]:
        experiment = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}}
        search = {"locations": [experiment], "filter": "feedback.goldspan.passed = 'false'", "max_results": 500}
        reply = self.post("/api/3.0/mlflow/traces/search", search)
        assert "next_page_token" not in reply
        return {info["trace_id"].removeprefix("tr-") for info in reply["traces"]}

    @property
    def otlp_headers(self) -> dict[str, str]:
        return {"x-mlflow-experiment-id": "0"}

    def scores(self, trace_id: str, span_id: str) -> dict[str, list[ShownScore]]:
        info = self.get(f"/api/3.0/mlflow/traces/tr-{trace_id}")["trace"]["trace_info"]
        found: dict[str, list[ShownScore]] = {}
        for one in info.get("assessments", ()):
            assert one["source"] == {"source_type": "CODE", "source_id": "goldspan"}
            assert one["valid"] is True
            if one.get("span_id") == span_id:
                shown = ShownScore(_value(one), one.get("rationale"), metadata=one["metadata"])
                found.setdefault(one["assessment_name"], []).append(shown)
        return found


def _value(assessment: Mapping[str, Any]) -> Any:
    if "expectation" in assessment:
        return json.loads(assessment["expectation"]["serialized_value"]["value"])
    feedback = assessment["feedback"]
    return feedback["error"] if "error" in feedback else feedback["value"]


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
