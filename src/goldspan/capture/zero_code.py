"""What `opentelemetry-instrument` calls in every program that it starts, once the providers are there."""

from __future__ import annotations

import os
import sys

_EXPORTER = "goldspan.capture.exporter"


def post_instrument() -> None:
    """Score the program's runs where `OTEL_TRACES_EXPORTER`, `GOLDSPAN_GOLDENS` or `GOLDSPAN_ENABLED` asks for it."""
    wanted = _EXPORTER in sys.modules or os.environ.get("GOLDSPAN_GOLDENS") or os.environ.get("GOLDSPAN_ENABLED")
    if wanted:
        from goldspan.capture import exporter  # most programs that are started so have nothing to do with goldspan

        exporter.start_from_environment()
