"""The forms in which goldens may be handed to `ScoringProcessor` and `instrument`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias, TypedDict, cast

from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens
from goldspan.model import Golden

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from goldspan.goldens.reloading import ReloadingGoldens

Paths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"
GoldensLike: TypeAlias = "Goldens | ReloadingGoldens | Iterable[Golden] | Paths | None"
"""One path or several, goldens made in code or read elsewhere, or none."""

RELOAD_S = 1.0
"""Seconds between two looks at golden files, where nothing else is said."""


class Lookup(TypedDict, total=False):
    """How goldens are found by text; see `Goldens`, which has its own where it was made elsewhere."""

    near: float | None
    margin: float


def goldens_from(
    source: GoldensLike, *, reload: float | None = None, **lookup: Unpack[Lookup]
) -> Goldens | ReloadingGoldens:
    """The goldens meant; those of files are read again when these change, which is looked for every `reload` seconds.

    Raises `GoldspanError` where a file is missing or wrong, or the source is of another type.
    """
    if source is None:
        return Goldens(**lookup)
    if isinstance(source, Goldens) or _is_read_elsewhere(source):
        return cast("Goldens | ReloadingGoldens", source)
    items = [source] if isinstance(source, (str, os.PathLike)) else _listed(source)
    made = [item for item in items if isinstance(item, Golden)]
    paths = [item for item in items if isinstance(item, (str, os.PathLike))]
    if len(made) == len(items):
        return Goldens(made, **lookup)
    if len(paths) == len(items):
        # Files take pydantic, which goldens made in code should not pay for.
        if reload is not None:
            from goldspan.goldens.reloading import ReloadingGoldens

            return ReloadingGoldens(paths, interval=reload, **lookup)
        from goldspan.goldens import load_goldens

        return load_goldens(*paths, **lookup)
    if len(made) + len(paths) == len(items):
        raise ConfigurationError("goldens are all paths or all Golden, not some of each")
    raise _wrong(next(item for item in items if not isinstance(item, (Golden, str, os.PathLike))))


def _is_read_elsewhere(source: object) -> bool:
    """Whether it is `ReloadingGoldens`; where nobody has imported these, or is about to, it is none."""
    kind = getattr(sys.modules.get("goldspan.goldens.reloading"), "ReloadingGoldens", None)
    return kind is not None and isinstance(source, kind)


def _listed(source: object) -> list[object]:
    if isinstance(source, Iterable) and not isinstance(source, bytes):
        return list(source)
    raise _wrong(source)


def _wrong(odd: object) -> ConfigurationError:
    kind = type(odd).__name__
    return ConfigurationError(f"goldens are a path, several paths, Goldens or a list of Golden, not {kind}")
