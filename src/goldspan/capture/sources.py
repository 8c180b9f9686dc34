"""The forms in which goldens may be handed to `ScoringProcessor` and `instrument`."""

from __future__ import annotations

import os
from collections.abc import Iterable

from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens
from goldspan.model import Golden

GoldensLike = Goldens | Iterable[Golden] | str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None
"""One path or several, goldens made in code, or none."""


def goldens_from(source: GoldensLike) -> Goldens:
    """The goldens meant. Raises `GoldspanError` where a file is missing or wrong, or the source is of another type."""
    if source is None:
        return Goldens()
    if isinstance(source, Goldens):
        return source
    items = [source] if isinstance(source, (str, os.PathLike)) else _listed(source)
    made = [item for item in items if isinstance(item, Golden)]
    paths = [item for item in items if isinstance(item, (str, os.PathLike))]
    if len(made) == len(items):
        return Goldens(made)
    if len(paths) == len(items):
        from goldspan.goldens import load_goldens  # takes pydantic, which goldens made in code should not pay for

        return load_goldens(*paths)
    raise _wrong(next((item for item in items if not isinstance(item, (Golden, str, os.PathLike))), source))


def _listed(source: object) -> list[object]:
    if isinstance(source, Iterable):
        return list(source)
    raise _wrong(source)


def _wrong(odd: object) -> ConfigurationError:
    kind = type(odd).__name__
    return ConfigurationError(f"goldens are a path, several paths, Goldens or a list of Golden, not {kind}")
