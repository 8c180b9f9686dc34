"""The hook that `opentelemetry-instrument` calls after it has created the providers."""

from __future__ import annotations

import os
import sys

_EXPORTER = "goldspan.capture.exporter"


def post_instrument() -> None:
    """Scores the program's runs if `OTEL_TRACES_EXPORTER`, `GOLDSPAN_GOLDENS` or `GOLDSPAN_ENABLED` enables it."""
    enabled = _EXPORTER in sys.modules or os.environ.get("GOLDSPAN_GOLDENS") or os.environ.get("GOLDSPAN_ENABLED")
    if enabled:
        from goldspan.capture import exporter  # other programs started by opentelemetry-instrument must not load it

        exporter.start_from_environment()
