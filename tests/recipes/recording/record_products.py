"""Records what Phoenix and MLflow reply for recorded traces, for `make recordings`.

python tests/recipes/recording/record_products.py

The real servers get the traces of `tests/fixtures/captures` over OTLP. Their replies go to `tests/fixtures/pulled`: for
each product a document with the traces as its search lists them, and with their spans.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))  # a script: makes the tests' packages importable

from support.product_programs import MLflowProgram, PhoenixProgram, ProductProgram  # noqa: E402

FIXTURES = HERE.parents[1] / "fixtures"
FILES = sorted((FIXTURES / "captures").glob("*.pb.gz"))
_SETTLE_S = 10
"""Phoenix stores spans after it has accepted them."""


def main() -> None:
    """Record both products."""
    (FIXTURES / "pulled").mkdir(exist_ok=True)
    for program_class, replies_of in ((PhoenixProgram, _phoenix), (MLflowProgram, _mlflow)):
        with tempfile.TemporaryDirectory() as folder:
            program = program_class(Path(folder))
            program.start()
            try:
                for path in FILES:
                    headers = {"content-type": "application/x-protobuf", **program.otlp_headers}
                    body = gzip.decompress(path.read_bytes())
                    urllib.request.urlopen(urllib.request.Request(f"{program.url}/v1/traces", body, headers)).close()
                time.sleep(_SETTLE_S)
                replies = replies_of(program)
            finally:
                program.stop()
        text = json.dumps(replies, separators=(",", ":"), ensure_ascii=False)
        (FIXTURES / "pulled" / f"{program.name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        print(f"{program.name}: {len(replies['traces'])} traces")


def _phoenix(program: ProductProgram) -> dict[str, Any]:
    traces = program.get("/v1/projects/default/traces", [("limit", "1000")])["data"]
    query = [("limit", "1000"), *(("trace_id", trace["trace_id"]) for trace in traces)]
    return {"traces": traces, "spans": program.get("/v1/projects/default/spans/otlpv1", query)["data"]}


def _mlflow(program: ProductProgram) -> dict[str, Any]:
    locations = [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}}]
    search = {"locations": locations, "order_by": ["timestamp_ms DESC"], "max_results": 500}
    traces = program.post("/api/3.0/mlflow/traces/search", search)["traces"]
    spans = []
    for start in range(0, len(traces), 20):
        query = [("trace_ids", trace["trace_id"]) for trace in traces[start : start + 20]]
        spans += program.get("/api/3.0/mlflow/traces/batchGet", query)["traces"]
    return {"traces": traces, "spans": spans}


if __name__ == "__main__":
    main()
