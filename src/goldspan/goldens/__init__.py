"""Goldens: what was expected for a request, read from files and found again for a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from goldspan.goldens.lookup.golden_lookup import Goldens

if TYPE_CHECKING:
    from goldspan.goldens.golden_files.golden_loader import load_goldens

__all__ = ["Goldens", "load_goldens"]


def __getattr__(name: str) -> Any:
    # Reading files takes pydantic, and scoring with goldens made in code should not pay for loading it.
    if name == "load_goldens":
        from goldspan.goldens.golden_files.golden_loader import load_goldens

        return load_goldens
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
