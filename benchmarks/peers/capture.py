"""Lists the peers whose decorators are measured: their overhead, and the tools that they lose in threads."""

from __future__ import annotations

from peers import Peer

_SDK = ("opentelemetry-sdk",)
"""Creates the bare spans with which a decorator is compared. Most peers depend on the SDK themselves."""

CAPTURE_PEERS = (
    Peer("deepeval", "deepeval==4.3.1", (), needs=_SDK),
    Peer("galtea", "galtea==5.12.0", (), needs=_SDK),
    Peer("traceloop", "traceloop-sdk==0.62.4", (), needs=(*_SDK, "httpx")),
    Peer("opik", "opik==2.2.122", (), needs=_SDK),
    Peer("logfire", "logfire==5.2.0", (), needs=_SDK),
    Peer("langfuse", "langfuse==5.0.4", (), needs=_SDK),
    Peer("openinference", "openinference-instrumentation==0.1.72", (), needs=_SDK),
    Peer("mlflow", "mlflow==3.17.2", (), needs=_SDK),
)
"""The name of a peer is the name of the function in `capture_worker.py` that prepares it."""
