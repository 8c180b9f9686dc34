"""A profile: a peer with its options, made once and then scored by as often as needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from goldspan.errors import ConfigurationError, GoldspanError
from goldspan.goldens.words import shown
from goldspan.model import Label, Score
from goldspan.scoring.profiles.engine import Engine, NotScored, Tally
from goldspan.scoring.profiles.formula import Formula
from goldspan.scoring.profiles.options import WrongValue, changed, unknown, word_of
from goldspan.scoring.profiles.peers import Peer, Variant
from goldspan.scoring.profiles.reading import Item, read, read_names
from goldspan.scoring.profiles.sentences import sentence
from goldspan.scoring.profiles.table import PEERS

SANE = "sane"
"""The option that every profile has: its number without the peer's quirks."""


class Profile:
    """A peer with its options. Ask `prepare` for it."""

    def __init__(self, peer: Peer, formula: Formula) -> None:
        self.peer = peer
        self.formula = formula
        """What the options come to."""
        self.engine = Engine(formula)
        by_names = self.engine.reads_names
        self._read: Callable[[Iterable[Item], str], Any] = read_names if by_names else read
        self._tally: Callable[..., Tally] = self.engine.tally_names if by_names else self.engine.tally
        # Few tallies differ, and a score is a value: making one takes longer than pairing a handful of names.
        self._told = lru_cache(maxsize=1024)(self._tell)

    def score(
        self, called: Iterable[Item], expected: Iterable[Item], *, case: Mapping[str, Any] | None = None
    ) -> Score:
        """The peer's number; a score without a value where the peer has none.

        Raises `GoldspanError` for lists that hold something else than tools.
        """
        if case is not None and not self.peer.reads_case:
            raise ConfigurationError(f"{self.peer.name} looks at nothing beside the two lists: `case` is for bfcl.")
        made, wanted = self._read(called, "called"), self._read(expected, "expected")
        try:
            return self._told(*self._tally(made, wanted, case))
        except NotScored as outcome:
            return self._not_scored(f"{self.peer.name} {outcome}.")
        except GoldspanError:
            raise
        except Exception as error:  # noqa: BLE001 - what cannot be compared has no score, whatever the values are
            why = shown(str(error))[1:-1]
            return self._not_scored(f"{self.peer.name} cannot compare these values: {type(error).__name__}: {why}.")

    def _tell(self, matched: float | None, called: int, expected: int) -> Score:
        value, threshold = self.engine.value(matched, called, expected), self.formula.threshold
        passed = None if threshold is None else value >= threshold
        label: Label | None = None if passed is None else "pass" if passed else "fail"
        reason = sentence(self.formula, value, matched, called, expected)
        return Score(self.peer.name, float(value), passed, threshold, label, reason)

    def _not_scored(self, reason: str) -> Score:
        return Score(self.peer.name, threshold=self.formula.threshold, label="not_evaluated", reason=reason)


def score(
    peer: str,
    called: Iterable[Item],
    expected: Iterable[Item],
    *,
    case: Mapping[str, Any] | None = None,
    **options: Any,
) -> Score:
    """The number that a peer would give, with its own options by its own names.

    `called` and `expected` are names, dictionaries (`name`, `args` or `arguments`, and perhaps `output` and `type`), or
    the values of the model. `sane=True` gives the number without the peer's quirks. `case` is what BFCL's checker looks
    at beside the two lists: `func_descriptions` and `possible_answers`.

    Where the peer raises there is no value, and the reason says what it does. Raises `ConfigurationError` for an
    unknown peer or option and for a wrong value, `GoldspanError` for lists that hold something else than tools.

        >>> score("deepeval", ["search", "cancel"], ["search", "book"], threshold=0.7).passed
        False
    """
    return prepare(peer, **options).score(called, expected, case=case)


def prepare(peer: str, **options: Any) -> Profile:
    """A peer's number, ready to be asked for. Raises `ConfigurationError`, as `score` does."""
    for name, value in options.items():
        if type(value) is list:
            options[name] = tuple(value)  # which can be hashed
    try:
        return _prepared(peer, **options)
    except TypeError:  # dictionaries among them
        return _prepared.__wrapped__(peer, **options)


@lru_cache(maxsize=256, typed=True)
def _prepared(peer: str, **options: Any) -> Profile:
    known = peer_named(peer)
    sane = options.pop(SANE, False)
    if not isinstance(sane, bool):
        raise ConfigurationError(f"{known.name}: {SANE} must be true or false, not {shown(sane)}.")
    word, variant = _variant(known, options)
    formula = variant.formula
    for name, option in variant.options.items():
        try:
            formula = changed(formula, option.axes(options.get(name, option.default)))
        except WrongValue as wrong:
            raise ConfigurationError(f"{known.name}: {name} {wrong}") from None
    for quirk in known.quirks if sane else ():
        if word in (quirk.of or (word,)):
            formula = changed(formula, quirk.axes)
    return Profile(known, formula)


def peer_named(name: str) -> Peer:
    """The peer of that name, or of that package. Raises `ConfigurationError`."""
    known = _BY_ANY_NAME.get(name)
    if known is None:
        raise unknown("peer", name, tuple(PEERS), also=tuple(_BY_ANY_NAME))
    return known


_BY_ANY_NAME = {name: peer for peer in PEERS.values() for name in (peer.name, *peer.also_called)}


def _variant(peer: Peer, options: dict[str, Any]) -> tuple[str, Variant]:
    """Which of the peer's metrics is meant; only options of its own are left. Raises `ConfigurationError`."""
    word = next(iter(peer.variants))
    if peer.chooser is not None and peer.chooser in options:
        try:
            word = word_of(options.pop(peer.chooser), peer.variants)
        except WrongValue as wrong:
            raise ConfigurationError(f"{peer.name}: {peer.chooser} {wrong}") from None
    variant = peer.variants[word]
    for name in options:
        if name not in variant.options:
            known = (*filter(None, [peer.chooser]), *variant.options, SANE)
            raise unknown("option", name, known, of=" ".join(filter(None, [peer.name, word])))
    return word, variant
