"""The one place where reading looks at environment variables."""

from __future__ import annotations

import os

from goldspan.extraction import GOLDEN_ID_ATTRIBUTES

GOLDEN_ID_VARIABLE = "GOLDSPAN_GOLDEN_ID_ATTRIBUTE"


def golden_id_attributes() -> tuple[str, ...]:
    """The attributes in which a span may name its golden, the first one found wins; comma separated when set."""
    names = (name.strip() for name in os.environ.get(GOLDEN_ID_VARIABLE, "").split(","))
    return tuple(filter(None, names)) or GOLDEN_ID_ATTRIBUTES
