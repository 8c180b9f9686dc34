"""What there is to know of a profile before its number is put in a chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from goldspan.goldens.words import listed
from goldspan.scoring.profiles.options import Option
from goldspan.scoring.profiles.peers import Peer, Quirk
from goldspan.scoring.profiles.profile import SANE, peer_named


@dataclass(frozen=True, slots=True)
class Description:
    """A peer's options, and where its number surprises. Printed, it is a page to read."""

    peer: str
    title: str
    """What its number is called there."""
    version: str
    """The version whose formula this is."""
    options: Mapping[str, str]
    """What each option takes, and what it is where nothing is said."""
    quirks: tuple[Quirk, ...]
    """What surprises people, each with what a careful engineer would rather have."""

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.peer}: {self.title} ({self.version})"
        yield "Options"
        for name, takes in self.options.items():
            yield f"  {name}: {takes}"
        yield "Quirks"
        for quirk in self.quirks:
            yield f"  - {quirk.text}"
            yield f"    {f'{SANE}=True' if quirk.axes else 'Instead'}: {quirk.sane}."


def describe(peer: str) -> Description:
    """A peer's options, its quirks, and the sane setting beside each. Raises `ConfigurationError`."""
    known = peer_named(peer)
    return Description(known.name, known.title, known.version, dict(_options(known)), known.quirks)


def _options(peer: Peer) -> Iterator[tuple[str, str]]:
    if peer.chooser is not None:
        yield peer.chooser, f"{listed(map(repr, peer.variants), last='or')} (default {next(iter(peer.variants))!r})"
    of: dict[str, dict[str, list[str]]] = {}
    for word, variant in peer.variants.items():
        for name, option in variant.options.items():
            of.setdefault(name, {}).setdefault(_takes(option), []).append(word)
    for name, variants in of.items():
        yield (
            name,
            "; ".join(
                takes if len(words) == len(peer.variants) else f"for {listed(words)} {takes}"
                for takes, words in variants.items()
            ),
        )
    yield SANE, "true or false: the number without the quirks below (default False)"


def _takes(option: Option) -> str:
    default = list(option.default) if isinstance(option.default, tuple) else option.default
    return option.takes if default is None else f"{option.takes} (default {default!r})"
