"""The span attributes in which telemetry may name the golden of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from goldspan import semconv

VARIABLE = "GOLDSPAN_GOLDEN_ID_ATTRIBUTE"
DEFAULT = (semconv.GOLDEN_ID, semconv.TEST_CASE_NAME)


def golden_id_attributes(
    given: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """The attributes to try, in this order: those given, else those of the variable (comma separated), else ours."""
    if given is not None:
        return tuple(given)
    names = (name.strip() for name in environment.get(VARIABLE, "").split(","))
    return tuple(filter(None, names)) or DEFAULT
