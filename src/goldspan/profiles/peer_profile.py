"""A profile as a metric: a peer's number for a run that was laid beside its golden."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from typing import Any, TypeAlias, TypeGuard

from goldspan.errors import ConfigurationError, GoldspanError
from goldspan.goldens.spelling import join_words, short_repr
from goldspan.model import (
    COUNTED_TOOL_KINDS,
    AnyOf,
    Comparison,
    ExpectedItem,
    ExpectedTool,
    Golden,
    Parallel,
    Score,
    ScoreLabel,
    ToolCall,
)
from goldspan.model.value_matchers import MATCHERS
from goldspan.profiles.case_sides import SideItem, read_side, read_side_names
from goldspan.profiles.formula_engine import FormulaEngine, MatchCounts, NotScoredError
from goldspan.profiles.peer_catalog import PEERS
from goldspan.profiles.peer_options import (
    Formula,
    InvalidOptionValue,
    Option,
    Peer,
    Quirk,
    Variant,
    apply_changes,
    parse_choice,
    unknown_name_error,
)
from goldspan.scoring.metrics import Metric

ReasonTemplate: TypeAlias = Callable[[float, int, int], str]
"""Half a sentence of the worth of all matches, the number of calls, and that of expectations."""


def score_reason(formula: Formula, value: float, matched: float | None, called: int, expected: int) -> str:
    """Why the score is what it is."""
    if not called or not expected:
        told = _empty_side_reason(called, expected)
    elif matched is None:
        told = _GATE_REASONS[formula.gate](called, expected)
    else:
        told = _MEASURE_REASONS[formula.measure](matched, called, expected) + _PAIRING_REASONS.get(formula.pairing, "")
        if formula.is_strict and not value and matched:
            told += "; less than all counts for nothing"
    return f"{told[0].upper()}{told[1:]}."


def _empty_side_reason(called: int, expected: int) -> str:
    if expected:
        return f"{_count_noun(expected, 'call was', 'calls were')} expected, and none was made"
    made = f"but {_count_noun(called, 'call was', 'calls were')} made" if called else "and nothing was called"
    return f"nothing was expected, {made}"


def _recall_reason(matched: float, called: int, expected: int) -> str:
    return f"{matched:g} of {_count_noun(expected, 'expected call', 'expected calls')} found"


def _precision_reason(matched: float, called: int, expected: int) -> str:
    return f"{matched:g} of {_count_noun(called, 'call', 'calls')} expected"


def _matched_reason(matched: float, called: int, expected: int) -> str:
    return f"{matched:g} matched of {_count_noun(called, 'call', 'calls')} and {expected} expected"


_MEASURE_REASONS: Mapping[str, ReasonTemplate] = {
    "recall": _recall_reason,
    "precision": _precision_reason,
    "f1": _matched_reason,
    "all_expected": _recall_reason,
    "all_called": _precision_reason,
    "all": _matched_reason,
    "count": lambda matched, called, expected: f"{_count_noun(int(matched), 'call', 'calls')} of the tool",
    "calls": lambda matched, called, expected: f"{_count_noun(called, 'call was', 'calls were')} made",
}
"""By the axis `measure`."""

_PAIRING_REASONS: Mapping[str, str] = {
    "position": ", each at its place",
    "sorted": ", each at its place once sorted",
    "lcs": ", in order",
    "walk": ", in order up to the first that is missing",
}
"""By the axis `pairing`, where it says more than that each call counts once."""

_GATE_REASONS: Mapping[str, Callable[[int, int], str]] = {
    "same_count": lambda called, expected: (
        f"{_count_noun(called, 'call was', 'calls were')} made where {expected} {'was' if expected == 1 else 'were'} expected"
    ),
    "same_names": lambda called, expected: "the tools called are not those expected, in this order",
    "same_names_in_any_order": lambda called, expected: "the tools called are not those expected",
}


def _count_noun(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


SANE_OPTION = "sane"
"""The option that every profile has: its number without the peer's quirks."""


class Profile:
    """A peer with its options. Ask `prepare` for it."""

    def __init__(self, peer: Peer, formula: Formula) -> None:
        self.peer = peer
        self.formula = formula
        """What the options come to."""
        self.engine = FormulaEngine(formula)
        by_names = self.engine.needs_only_names
        self._read: Callable[[Iterable[SideItem], str], Any] = read_side_names if by_names else read_side
        self._count_matches: Callable[..., MatchCounts] = (
            self.engine.count_name_matches if by_names else self.engine.count_matches
        )
        # Few tallies differ, and a score is a value: making one takes longer than pairing a handful of names.
        self._cached_score = lru_cache(maxsize=1024)(self._build_score)

    def score(
        self, called: Iterable[SideItem], expected: Iterable[SideItem], *, case: Mapping[str, Any] | None = None
    ) -> Score:
        """The peer's number; a score without a value where the peer has none.

        Raises `GoldspanError` for lists that hold something else than tools.
        """
        if case is not None and not self.peer.uses_case_data:
            raise ConfigurationError(f"{self.peer.name} looks at nothing beside the two lists: `case` is for bfcl.")
        made, wanted = self._read(called, "called"), self._read(expected, "expected")
        try:
            return self._cached_score(*self._count_matches(made, wanted, case))
        except NotScoredError as outcome:
            return self._not_scored(f"{self.peer.name} {outcome}.")
        except GoldspanError:
            raise
        except Exception as error:  # noqa: BLE001 - what cannot be compared has no score, whatever the values are
            why = short_repr(str(error))[1:-1]
            return self._not_scored(f"{self.peer.name} cannot compare these values: {type(error).__name__}: {why}.")

    def _build_score(self, matched: float | None, called: int, expected: int) -> Score:
        value, threshold = self.engine.score_of(matched, called, expected), self.formula.threshold
        passed = None if threshold is None else value >= threshold
        label: ScoreLabel | None = None if passed is None else "pass" if passed else "fail"
        reason = score_reason(self.formula, value, matched, called, expected)
        return Score(self.peer.name, float(value), passed, threshold, label, reason)

    def _not_scored(self, reason: str) -> Score:
        return Score(self.peer.name, threshold=self.formula.threshold, label="not_evaluated", reason=reason)


def score(
    peer: str,
    called: Iterable[SideItem],
    expected: Iterable[SideItem],
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
        return _cached_profile(peer, **options)
    except TypeError:  # dictionaries among them
        return _cached_profile.__wrapped__(peer, **options)


@lru_cache(maxsize=256, typed=True)
def _cached_profile(peer: str, **options: Any) -> Profile:
    known = find_peer(peer)
    sane = options.pop(SANE_OPTION, False)
    if not isinstance(sane, bool):
        raise ConfigurationError(f"{known.name}: {SANE_OPTION} must be true or false, not {short_repr(sane)}.")
    word, variant = _choose_variant(known, options)
    formula = variant.formula
    for name, option in variant.options.items():
        try:
            formula = apply_changes(formula, option.formula_changes(options.get(name, option.default)))
        except InvalidOptionValue as wrong:
            raise ConfigurationError(f"{known.name}: {name} {wrong}") from None
    for quirk in known.quirks if sane else ():
        if word in (quirk.variants or (word,)):
            formula = apply_changes(formula, quirk.formula_changes)
    return Profile(known, formula)


def find_peer(name: str) -> Peer:
    """The peer of that name, or of that package. Raises `ConfigurationError`."""
    known = _PEER_BY_NAME.get(name)
    if known is None:
        raise unknown_name_error("peer", name, tuple(PEERS), unlisted=tuple(_PEER_BY_NAME))
    return known


_PEER_BY_NAME = {name: peer for peer in PEERS.values() for name in (peer.name, *peer.aliases)}


def _choose_variant(peer: Peer, options: dict[str, Any]) -> tuple[str, Variant]:
    """Which of the peer's metrics is meant; only options of its own are left. Raises `ConfigurationError`."""
    word = next(iter(peer.variants))
    if peer.variant_option is not None and peer.variant_option in options:
        try:
            word = parse_choice(options.pop(peer.variant_option), peer.variants)
        except InvalidOptionValue as wrong:
            raise ConfigurationError(f"{peer.name}: {peer.variant_option} {wrong}") from None
    variant = peer.variants[word]
    for name in options:
        if name not in variant.options:
            known = (*filter(None, [peer.variant_option]), *variant.options, SANE_OPTION)
            raise unknown_name_error("option", name, known, owner=" ".join(filter(None, [peer.name, word])))
    return word, variant


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
            yield f"    {f'{SANE_OPTION}=True' if quirk.formula_changes else 'Instead'}: {quirk.sane}."


def describe(peer: str) -> Description:
    """A peer's options, its quirks, and the sane setting beside each. Raises `ConfigurationError`."""
    known = find_peer(peer)
    return Description(known.name, known.title, known.version, dict(_describe_options(known)), known.quirks)


def _describe_options(peer: Peer) -> Iterator[tuple[str, str]]:
    if peer.variant_option is not None:
        yield (
            peer.variant_option,
            f"{join_words(map(repr, peer.variants), last='or')} (default {next(iter(peer.variants))!r})",
        )
    of: dict[str, dict[str, list[str]]] = {}
    for word, variant in peer.variants.items():
        for name, option in variant.options.items():
            of.setdefault(name, {}).setdefault(_describe_option(option), []).append(word)
    for name, variants in of.items():
        yield (
            name,
            "; ".join(
                takes if len(words) == len(peer.variants) else f"for {join_words(words)} {takes}"
                for takes, words in variants.items()
            ),
        )
    yield SANE_OPTION, "true or false: the number without the quirks below (default False)"


def _describe_option(option: Option) -> str:
    default = list(option.default) if isinstance(option.default, tuple) else option.default
    return option.accepted_values if default is None else f"{option.accepted_values} (default {default!r})"


def metric(peer: str, **options: Any) -> Metric:
    """A peer's number as a metric of that name: `evaluate(run, goldens, metrics=[metric("deepeval")])`.

    It reads the calls that were made and count, under the names that the instrumentation wrote, and the golden's list
    of calls; the golden's own rules are not the peer's. There is no number where the golden says what the peer has no
    word for (alternatives, optional calls, matchers), and where arguments that matter were not captured.

    Raises `ConfigurationError`, as `score` does.
    """
    profile = prepare(peer, **options)
    return Metric(
        profile.peer.name,
        lambda seen: _score_comparison(profile, seen).value,
        threshold=profile.formula.threshold,
        why_missing=lambda seen: (_score_comparison(profile, seen).reason or "").rstrip("."),
    )


def _score_comparison(profile: Profile, seen: Comparison) -> Score:
    calls = [row.called for row in seen.rows if row.called is not None and _is_counted(row.called, row.expected)]
    expected = list(_expected_items(seen.golden)) if seen.golden else []
    missing = _not_evaluated_reason(profile, calls, expected)
    if missing is not None:
        return Score(profile.peer.name, reason=missing)
    return profile.score(calls, [tool for tool in expected if isinstance(tool, ExpectedTool)])


def _is_counted(call: ToolCall, expected: ExpectedTool | AnyOf | None) -> bool:
    return call.was_made and (call.kind in COUNTED_TOOL_KINDS or expected is not None)


def _expected_items(golden: Golden) -> Iterator[ExpectedItem]:
    """The golden's calls one by one; what is more than a call comes as it is."""
    for item in golden.tools:
        for tool in item.items if isinstance(item, Parallel) else (item,):
            yield from repeat(tool, tool.times.least if _has_fixed_count(tool) else 1)


def _has_fixed_count(item: ExpectedItem) -> TypeGuard[ExpectedTool]:
    """Whether an item stands for a number of calls, and no choice of any kind."""
    return (
        isinstance(item, ExpectedTool)
        and 0 < item.times.least == item.times.most
        and item.times.least <= _MAX_REPEATED_CALLS
    )


_MAX_REPEATED_CALLS = 2_000
"""So many calls of one tool are still written out one by one."""


def _not_evaluated_reason(profile: Profile, calls: Iterable[ToolCall], expected: Iterable[ExpectedItem]) -> str | None:
    """Why the peer's number cannot be known, or `None`."""
    name = profile.peer.name
    stating = set()
    for tool in expected:
        if not _has_fixed_count(tool):
            return f"{name} knows no alternative, optional or repeatable calls, and the golden has some"
        if tool.arguments:
            stating.add(tool.name)
        if profile.engine.compares_content and _uses_matchers(tool):
            return f"{name} knows no matchers, and the golden has some"
    if profile.engine.compares_content and any(call.arguments is None and call.raw_name in stating for call in calls):
        return "the arguments of the calls were not captured"
    return None


def _uses_matchers(tool: ExpectedTool) -> bool:
    waiting, seen = [tool.arguments, tool.result], set[int]()
    while waiting:
        value = waiting.pop()
        if isinstance(value, MATCHERS):
            return True
        if isinstance(value, Mapping | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(value.values() if isinstance(value, Mapping) else value)
    return False
