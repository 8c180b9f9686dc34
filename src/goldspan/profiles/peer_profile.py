"""`score`, `prepare`, `describe` and `metric`: computes the score of a peer with its options."""

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
"""Returns a clause from the total weight of the matches, the number of calls and the number of expectations."""


def score_reason(formula: Formula, value: float, matched: float | None, called: int, expected: int) -> str:
    """Returns the reason for a score."""
    if not called or not expected:
        reason = _empty_side_reason(called, expected)
    elif matched is None:
        reason = _GATE_REASONS[formula.gate](called, expected)
    else:
        pairing_reason = _PAIRING_REASONS.get(formula.pairing, "")
        reason = _MEASURE_REASONS[formula.measure](matched, called, expected) + pairing_reason
        if formula.is_strict and not value and matched:
            reason += "; a partial match scores 0"
    return f"{reason[0].upper()}{reason[1:]}."


def _empty_side_reason(called: int, expected: int) -> str:
    if expected:
        return f"{_count_noun(expected, 'call was', 'calls were')} expected, but none was made"
    outcome = f"but {_count_noun(called, 'call was', 'calls were')} made" if called else "and nothing was called"
    return f"nothing was expected, {outcome}"


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
"""Reasons by the axis `measure`."""

_PAIRING_REASONS: Mapping[str, str] = {
    "position": ", each at the same position",
    "sorted": ", each at the same position after sorting",
    "lcs": ", in order",
    "walk": ", in order up to the first missing call",
}
"""Additions to the reasons by the axis `pairing`."""

_GATE_REASONS: Mapping[str, Callable[[int, int], str]] = {
    "same_count": lambda called, expected: (
        f"{_count_noun(called, 'call was', 'calls were')} made, but {_count_noun(expected, 'was', 'were')} expected"
    ),
    "same_names": lambda called, expected: "the called tools are not the expected ones in the same order",
    "same_names_in_any_order": lambda called, expected: "the called tools are not the expected ones",
}


def _count_noun(count: int, singular: str, plural: str) -> str:
    return f"{count} {singular if count == 1 else plural}"


SANE_OPTION = "sane"
"""The option of all profiles that removes the quirks of the peer from its score."""


class Profile:
    """A peer with its options, which computes scores. Created by `prepare`."""

    def __init__(self, peer: Peer, formula: Formula) -> None:
        self.peer = peer
        self.formula = formula
        """The formula with all options applied."""
        self.engine = FormulaEngine(formula)
        by_names = self.engine.needs_only_names
        self._read: Callable[[Iterable[SideItem], str], Any] = read_side_names if by_names else read_side
        self._count_matches: Callable[..., MatchCounts] = (
            self.engine.count_name_matches if by_names else self.engine.count_matches
        )
        # Creating a score takes longer than pairing a few names, and few combinations of counts occur.
        self._cached_score = lru_cache(maxsize=1024)(self._build_score)

    def score(
        self, called: Iterable[SideItem], expected: Iterable[SideItem], *, case: Mapping[str, Any] | None = None
    ) -> Score:
        """Returns the score of the peer; it has no value if the peer computes none.

        Raises `GoldspanError` for lists with items that are not tools.
        """
        if case is not None and not self.peer.uses_case_data:
            raise ConfigurationError(f"{self.peer.name} uses only the two lists; `case` is for bfcl.")
        called_side, expected_side = self._read(called, "called"), self._read(expected, "expected")
        try:
            return self._cached_score(*self._count_matches(called_side, expected_side, case))
        except NotScoredError as outcome:
            return self._not_scored(f"{self.peer.name} {outcome}.")
        except GoldspanError:
            raise
        except Exception as error:  # noqa: BLE001 - values that cannot be compared have no score
            problem = short_repr(str(error))[1:-1]
            return self._not_scored(f"{self.peer.name} cannot compare these values: {type(error).__name__}: {problem}.")

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
    """Returns the score that a peer computes.

    Args:
        peer: The name of the peer, one of `NAMES`, or of its package.
        called: The called tools: names, dictionaries (`name`, `args` or `arguments`, optionally `output` and `type`),
            or values of `goldspan.model`.
        expected: The expected tools, in the same form.
        case: Further data that the checker of BFCL uses: `func_descriptions` and `possible_answers`.
        options: The options of the peer under its own names; `sane=True` removes its quirks.

    Returns:
        The score. If the peer raises for this case, the score has no value, and the reason states the error.

    Raises:
        ConfigurationError: The peer or an option is unknown, or the value of an option is invalid.
        GoldspanError: A list has an item that is not a tool.

    Examples:
        >>> score("deepeval", ["search", "cancel"], ["search", "book"], threshold=0.7).passed
        False
    """
    return prepare(peer, **options).score(called, expected, case=case)


def prepare(peer: str, **options: Any) -> Profile:
    """Returns the profile of a peer, to compute many scores. Raises `ConfigurationError` as `score` does."""
    for name, value in options.items():
        if type(value) is list:
            options[name] = tuple(value)  # hashable, for the cache
    try:
        return _cached_profile(peer, **options)
    except TypeError:  # unhashable values
        return _cached_profile.__wrapped__(peer, **options)


@lru_cache(maxsize=256, typed=True)
def _cached_profile(peer: str, **options: Any) -> Profile:
    found = find_peer(peer)
    sane = options.pop(SANE_OPTION, False)
    if not isinstance(sane, bool):
        raise ConfigurationError(f"{found.name}: {SANE_OPTION} must be true or false, not {short_repr(sane)}.")
    variant_name, variant = _choose_variant(found, options)
    formula = variant.formula
    for name, option in variant.options.items():
        try:
            formula = apply_changes(formula, option.formula_changes(options.get(name, option.default)))
        except InvalidOptionValue as error:
            raise ConfigurationError(f"{found.name}: {name} {error}") from None
    for quirk in found.quirks if sane else ():
        if variant_name in (quirk.variants or (variant_name,)):
            formula = apply_changes(formula, quirk.formula_changes)
    return Profile(found, formula)


def find_peer(name: str) -> Peer:
    """Returns the peer with this name or package name. Raises `ConfigurationError` if there is none."""
    peer = _PEER_BY_NAME.get(name)
    if peer is None:
        raise unknown_name_error("peer", name, tuple(PEERS), unlisted=tuple(_PEER_BY_NAME))
    return peer


_PEER_BY_NAME = {name: peer for peer in PEERS.values() for name in (peer.name, *peer.aliases)}


def _choose_variant(peer: Peer, options: dict[str, Any]) -> tuple[str, Variant]:
    """Selects the variant and removes its option from `options`. Raises `ConfigurationError` for unknown options."""
    variant_name = next(iter(peer.variants))
    if peer.variant_option is not None and peer.variant_option in options:
        try:
            variant_name = parse_choice(options.pop(peer.variant_option), peer.variants)
        except InvalidOptionValue as error:
            raise ConfigurationError(f"{peer.name}: {peer.variant_option} {error}") from None
    variant = peer.variants[variant_name]
    for name in options:
        if name not in variant.options:
            known = (*filter(None, [peer.variant_option]), *variant.options, SANE_OPTION)
            raise unknown_name_error("option", name, known, owner=" ".join(filter(None, [peer.name, variant_name])))
    return variant_name, variant


@dataclass(frozen=True, slots=True)
class Description:
    """The options and quirks of a peer. `str` returns a readable page."""

    peer: str
    title: str
    """The name of its score."""
    version: str
    """The version of the peer that the formula reproduces."""
    options: Mapping[str, str]
    """The accepted values and the default of each option."""
    quirks: tuple[Quirk, ...]
    """Surprising properties of the score, each with a sane alternative."""

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.peer}: {self.title} ({self.version})"
        yield "Options"
        for name, accepted_values in self.options.items():
            yield f"  {name}: {accepted_values}"
        yield "Quirks"
        for quirk in self.quirks:
            yield f"  - {quirk.text}"
            yield f"    {f'{SANE_OPTION}=True' if quirk.formula_changes else 'Instead'}: {quirk.sane}."


def describe(peer: str) -> Description:
    """Returns the options of a peer and its quirks, each with a sane setting. Raises `ConfigurationError`."""
    found = find_peer(peer)
    return Description(found.name, found.title, found.version, dict(_describe_options(found)), found.quirks)


def _describe_options(peer: Peer) -> Iterator[tuple[str, str]]:
    if peer.variant_option is not None:
        yield (
            peer.variant_option,
            f"{join_words(map(repr, peer.variants), last='or')} (default {next(iter(peer.variants))!r})",
        )
    variants_by_option: dict[str, dict[str, list[str]]] = {}
    for variant_name, variant in peer.variants.items():
        for name, option in variant.options.items():
            variants_by_option.setdefault(name, {}).setdefault(_describe_option(option), []).append(variant_name)
    for name, variants_by_description in variants_by_option.items():
        yield (
            name,
            "; ".join(
                description if len(variants) == len(peer.variants) else f"for {join_words(variants)} {description}"
                for description, variants in variants_by_description.items()
            ),
        )
    yield SANE_OPTION, "true or false: the score without the quirks below (default False)"


def _describe_option(option: Option) -> str:
    default = list(option.default) if isinstance(option.default, tuple) else option.default
    return option.accepted_values if default is None else f"{option.accepted_values} (default {default!r})"


def metric(peer: str, **options: Any) -> Metric:
    """Returns the score of a peer as a metric with its name: `evaluate(run, goldens, metrics=[metric("deepeval")])`.

    The metric compares the counted calls of the run, under the names that the instrumentation recorded, with the list
    of calls of the golden. It ignores the rules of the golden. The metric has no value if the golden uses features that
    the peer does not support (alternatives, optional calls, matchers), or if compared arguments were not captured.

    Raises `ConfigurationError` as `score` does.
    """
    profile = prepare(peer, **options)
    return Metric(
        profile.peer.name,
        lambda comparison: _score_comparison(profile, comparison).value,
        threshold=profile.formula.threshold,
        why_missing=lambda comparison: (_score_comparison(profile, comparison).reason or "").rstrip("."),
    )


def _score_comparison(profile: Profile, comparison: Comparison) -> Score:
    calls = [row.called for row in comparison.rows if row.called is not None and _is_counted(row.called, row.expected)]
    expected = list(_expected_items(comparison.golden)) if comparison.golden else []
    reason = _not_evaluated_reason(profile, calls, expected)
    if reason is not None:
        return Score(profile.peer.name, reason=reason)
    return profile.score(calls, [tool for tool in expected if isinstance(tool, ExpectedTool)])


def _is_counted(call: ToolCall, expected: ExpectedTool | AnyOf | None) -> bool:
    return call.was_made and (call.kind in COUNTED_TOOL_KINDS or expected is not None)


def _expected_items(golden: Golden) -> Iterator[ExpectedItem]:
    """Yields the calls of a golden one by one, and other items unchanged."""
    for item in golden.tools:
        for tool in item.items if isinstance(item, Parallel) else (item,):
            yield from repeat(tool, tool.times.least if _has_fixed_count(tool) else 1)


def _has_fixed_count(item: ExpectedItem) -> TypeGuard[ExpectedTool]:
    """Whether an item expects a fixed number of calls."""
    return (
        isinstance(item, ExpectedTool)
        and 0 < item.times.least == item.times.most
        and item.times.least <= _MAX_REPEATED_CALLS
    )


_MAX_REPEATED_CALLS = 2_000
"""The greatest number of expected calls of one tool that is expanded to single calls."""


def _not_evaluated_reason(profile: Profile, calls: Iterable[ToolCall], expected: Iterable[ExpectedItem]) -> str | None:
    """Returns why the peer has no score for the golden and the calls, or `None`."""
    name = profile.peer.name
    tools_with_arguments = set()
    for tool in expected:
        if not _has_fixed_count(tool):
            return f"{name} does not support alternative, optional or repeatable calls, and the golden has some"
        if tool.arguments:
            tools_with_arguments.add(tool.name)
        if profile.engine.compares_content and _uses_matchers(tool):
            return f"{name} does not support matchers, and the golden has some"
    if profile.engine.compares_content and any(
        call.arguments is None and call.raw_name in tools_with_arguments for call in calls
    ):
        return "the arguments of the calls were not captured"
    return None


def _uses_matchers(tool: ExpectedTool) -> bool:
    pending, visited = [tool.arguments, tool.result], set[int]()
    while pending:
        value = pending.pop()
        if isinstance(value, MATCHERS):
            return True
        if isinstance(value, Mapping | list | tuple) and id(value) not in visited:
            visited.add(id(value))
            pending.extend(value.values() if isinstance(value, Mapping) else value)
    return False
