"""What is known of a peer: its options, its formula, and where that surprises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from goldspan.scoring.profiles.formula import Formula
from goldspan.scoring.profiles.options import Axes, Option


@dataclass(frozen=True, slots=True)
class Quirk:
    """Something about a peer's number that surprises people."""

    text: str
    sane: str
    """What a careful engineer would rather have, and how to have it."""
    axes: Axes = field(default_factory=dict)
    """The same as values of axes: what `sane=True` changes in the formula. Empty where the peer's own options, or
    another metric, do it."""
    of: tuple[str, ...] = ()
    """The metrics of the peer that have it; empty: all."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the metrics of a peer."""

    formula: Formula
    """As it is without options."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """In the order in which they are applied."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A product whose number can be had here."""

    name: str
    title: str
    """What its number is called there."""
    version: str
    """The version whose formula this is."""
    variants: Mapping[str, Variant]
    """Its metrics, by the word that `chooser` takes for them; the first is meant where nothing is said."""
    chooser: str | None = None
    """The option that says which metric is meant; `None`: there is one."""
    also_called: tuple[str, ...] = ()
    """Other names of the peer, such as that of its package."""
    reads_case: bool = False
    """Whether it looks at more than the two lists."""
    quirks: tuple[Quirk, ...] = ()
