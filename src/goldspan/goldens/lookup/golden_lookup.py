"""Find the golden of a run, from the most to the least certain way, and never by a guess."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from goldspan.errors import ConfigurationError, GoldenError
from goldspan.goldens.lookup.fuzzy_match import MAX_FUZZY_LENGTH, FuzzyMatcher
from goldspan.goldens.spelling import short_repr
from goldspan.goldens.text_matching import RunCondition, build_run_conditions, is_glob, normalize_text
from goldspan.goldens.tool_names import declaration_defaults
from goldspan.model import (
    NO_VOCABULARY,
    ComponentSelector,
    ExpectedItem,
    ExpectedTool,
    Golden,
    Match,
    MatchMethod,
    Run,
    Vocabulary,
)

ANONYMOUS_GOLDEN_ID = "given"
"""The id of what was expected without a name."""


def golden_from_expected_tools(
    expected: Sequence[Any], named_golden: Golden | None, golden_id: str | None, vocabulary: Vocabulary
) -> Golden:
    """The golden that expects these tools, in the words of a golden's `tools`.

    Where the run names a golden, it is that one with these tools in place of its own. Raises `GoldenError` for what
    cannot be read.
    """
    base = named_golden or _golden_without_tools(golden_id or ANONYMOUS_GOLDEN_ID, vocabulary)
    names = tuple(expected)
    if len(names) == 1 and isinstance(names[0], str) and names[0].lstrip().startswith(("[", "{")):
        # It was handed on as it was, because it could not be read. What is too long to be captured ends in an ellipsis.
        raise GoldenError("expected_tools is " + ("too long, and cut off" if names[0].endswith("…") else "no JSON"))
    if all(type(name) is str and name for name in names):
        return _golden_with_tool_names(base, names)
    return replace(base, tools=_parse_items(names, vocabulary), policy=False)


@lru_cache(maxsize=1024)
def _golden_without_tools(golden_id: str, vocabulary: Vocabulary) -> Golden:
    return Golden(golden_id, vocabulary=vocabulary)


@lru_cache(maxsize=1024)
def _golden_with_tool_names(base: Golden, names: tuple[str, ...]) -> Golden:
    """Lists of names come again and again; the golden of one keeps what was once found out about it."""
    known = declaration_defaults(base.vocabulary)
    return replace(base, tools=tuple(known(ExpectedTool(name)) for name in names), policy=False)


def _parse_items(expected: tuple[Any, ...], vocabulary: Vocabulary) -> tuple[ExpectedItem, ...]:
    from goldspan.goldens.schema.golden_parser import (
        parse_expected_tools,  # it loads pydantic, which names need not pay for
    )

    return parse_expected_tools(expected, "expected_tools", declaration_defaults(vocabulary))


DEFAULT_NEAR = 90.0
DEFAULT_MARGIN = 3.0


class Candidates(NamedTuple):
    """The goldens of a run that the first step of the lookup found that found any."""

    how: MatchMethod
    goldens: Sequence[Golden]
    similarity: float = 1.0
    no_match_reason: str = ""
    """Why none of them is the run's golden, in half a sentence; empty: the first one is."""


_VALUE_MARKERS = re.compile(r", not |: regex '")
"""Where messages about what is wrong begin to repeat it."""
_DID_YOU_MEAN = ". Did you mean "


class Goldens:
    """A set of goldens, each with an id of its own, to be looked up in constant time. Never changes.

    Iterates over its goldens in the order given; `"refund" in goldens` asks for an id, `goldens["refund"]` takes the
    golden of that id. A `vocabulary` is that of every golden that has none of its own; `components` are the spans that
    golden files declare to be components. From which similarity on, in per cent, a text is `near` that of a golden may
    be set (`None`: never), and by which `margin` it must be nearer than to that of any other. Raises `GoldenError` for
    an id that is there twice and for what is no golden, and `ConfigurationError` for a number that is out of bounds.
    """

    __slots__ = (
        *("_by_id", "_by_input", "_conditions", "_policies", "_resemblance", "_rules"),
        *("components", "margin", "near", "vocabulary"),
    )

    def __init__(
        self,
        goldens: Iterable[Golden] = (),
        *,
        vocabulary: Vocabulary = NO_VOCABULARY,
        components: Iterable[ComponentSelector] = (),
        near: float | None = DEFAULT_NEAR,
        margin: float = DEFAULT_MARGIN,
    ) -> None:
        self.vocabulary = vocabulary
        """The tools and servers that are declared for all of them."""
        self.components = tuple(components)
        """Which spans of an instrumentation are components."""
        self.near = None if near is None else _check_percentage("near", near)
        """From which similarity on, 0 to 100, a text is near; `None`: never."""
        self.margin = _check_percentage("margin", margin)
        """How much nearer it must be than the text of any golden that demands something else."""
        self._by_id: dict[str, Golden] = {}
        self._by_input: dict[str, list[Golden]] = {}
        self._rules: dict[str | None, list[Golden]] = {}
        """Those that are found by what they say of runs alone, by the agent where that is one name."""
        self._policies: list[Golden] = []
        self._conditions: dict[str, tuple[RunCondition, ...]] = {}
        """Of those that are not for every request and conversation, by their ids."""
        self._resemblance: FuzzyMatcher | None = None
        for golden in goldens:
            self._add(golden)

    def _add(self, golden: Golden) -> None:
        if not isinstance(golden, Golden):
            raise GoldenError(
                f"goldens are a list of Golden, not of {short_repr(golden)}; load_goldens reads them from files."
            )
        if not isinstance(golden.input, str | None):
            raise GoldenError(f"golden {short_repr(golden.id)}: input must be text, not {short_repr(golden.input)}.")
        if golden.id in self._by_id:
            raise GoldenError(f"golden {golden.id!r} is there twice; ids must differ.")
        if self.vocabulary is not NO_VOCABULARY and golden.vocabulary is NO_VOCABULARY:
            golden = replace(golden, vocabulary=self.vocabulary)
        self._by_id[golden.id] = golden
        if selects := golden.when is not None or golden.component is not None:
            self._conditions[golden.id] = tuple(build_run_conditions(golden))
        if golden.policy:
            self._policies.append(golden)
        elif key := normalize_text(golden.input):
            self._by_input.setdefault(key, []).append(golden)
        elif selects:
            self._rules.setdefault(_single_agent(golden), []).append(golden)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Golden]:
        return iter(self._by_id.values())

    def __getitem__(self, golden_id: str) -> Golden:
        return self._by_id[golden_id]

    def __contains__(self, golden_id: object) -> bool:
        return golden_id in self._by_id

    def __repr__(self) -> str:
        return f"<Goldens: {len(self)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # What is found out about the goldens holds functions, and is found out again where they are unpacked.
        return _unpickle_goldens, (tuple(self), self.vocabulary, self.components, self.near, self.margin)

    def find(self, run: Run) -> Match | None:
        """The golden of that run and how it was found, or `None`: `explain` says why.

        The first of these that applies decides: what the run itself says is expected; the golden that it names; the
        one whose `when` and `component` fit it; the one of the same input; the one whose input is near; the policy for
        all other runs. An id that names none of these goldens is passed over. Goldens that apply alike and demand
        different things are no answer: ambiguity is never settled by a guess.
        """
        return self.find_with_reason(run)[0]

    def explain(self, run: Run) -> str:
        """Why `find` answers as it does for that run, in half a sentence."""
        match, why = self.find_with_reason(run)
        if match is None:
            return why
        name = repr(match.golden.id)
        told = {
            "given": "the run itself says what is expected",
            "id": f"golden {name} was found by its id",
            "when": f"golden {name} was found by what it says of runs",
            "input": f"golden {name} was found by its input",
            "near": f"golden {name} was found by near text ({match.similarity:.2f})",
            "policy": f"golden {name} is the policy for this run",
        }[match.how]
        unknown = run.golden_id is not None and run.golden_id not in self._by_id and match.how != "given"
        return f"{told}; {self._unknown_id_reason(run)}" if unknown else told

    def find_with_reason(self, run: Run) -> tuple[Match | None, str]:
        """What `find` answers, and why it is `None` where it is; otherwise an empty text."""
        text = normalize_text(run.input)
        candidates = self.candidates(run, text)
        if candidates is None:
            return None, self._no_golden_reason(run, text)
        if candidates.no_match_reason:
            return None, candidates.no_match_reason
        return Match(candidates.goldens[0], candidates.how, candidates.similarity), ""

    def prepare(self) -> None:
        """Make now what the first lookup of a near text would make: with 100,000 goldens it takes a few seconds."""
        if self.near is not None and self._by_input:
            self._get_fuzzy_matcher().prepare()

    def candidates(self, run: Run, text: str | None = None) -> Candidates | None:
        """What the first step of the lookup found that found any; `text` is the run's normalized input."""
        if run.expected_tools is not None:
            return self._golden_from_run(run)
        if run.golden_id is not None and (golden := self._by_id.get(run.golden_id)):
            return Candidates("id", (golden,))
        text = normalize_text(run.input) if text is None else text
        same = [golden for golden in self._by_input.get(text, ()) if self._applies_to(golden, run)]
        fitting = [golden for golden in same if golden.when is not None] or self._goldens_with_matching_conditions(run)
        # What says no more than the component stands back behind what says its input, too.
        if fitting and not (same and all(golden.when is None for golden in fitting)):
            return _unambiguous("when", fitting, "fit this run")
        if same:
            return _unambiguous("input", same, "share this input")
        if self.near is not None and text and (near := self._find_near(run, text, self.near)):
            return near
        applying = [golden for golden in self._policies if self._applies_to(golden, run)]
        applying = [golden for golden in applying if golden.id in self._conditions] or applying
        return _unambiguous("policy", applying, "are policies for this run") if applying else None

    def _applies_to(self, golden: Golden, run: Run) -> bool:
        """Whether the unit, the component and the conditions of a golden fit that run."""
        special = self._conditions.get(golden.id)
        if special is None:
            return run.unit != "component"
        for holds in special:  # noqa: SIM110 - `all` takes twice as long, and every rule is asked for every run
            if not holds(run):
                return False
        return True

    def _goldens_with_matching_conditions(self, run: Run) -> list[Golden]:
        if not self._rules:
            return []
        asked = self._rules.get(None, [])
        if run.agent is not None:
            asked = asked + self._rules.get(run.agent.casefold(), [])
        return [golden for golden in asked if self._applies_to(golden, run)]

    def _find_near(self, run: Run, text: str, near: float) -> Candidates | None:
        if not self._by_input or len(text) > MAX_FUZZY_LENGTH:
            return None
        found = self._get_fuzzy_matcher().nearest(
            text, run.component if run.unit == "component" else None, near, self.margin
        )
        if not found:
            return None
        goldens, similarity = [golden for golden, _ in found], found[0][1] / 100
        trouble = ""
        if len(found) > 1:
            told = ", ".join(f"{golden.id} {likeness / 100:.2f}" for golden, likeness in found[:_MAX_LISTED_IDS])
            more = f" and {len(found) - _MAX_LISTED_IDS} more" if len(found) > _MAX_LISTED_IDS else ""
            trouble = f"{len(found)} goldens are about as near to this input and disagree ({told}{more})"
        return Candidates("near", goldens, similarity, trouble)

    def _get_fuzzy_matcher(self) -> FuzzyMatcher:
        if self._resemblance is None:  # two threads that come at once make it twice, and either one will do
            self._resemblance = FuzzyMatcher(self._by_input)
        return self._resemblance

    def _golden_from_run(self, run: Run) -> Candidates:
        named = self._by_id.get(run.golden_id) if run.golden_id is not None else None
        try:
            golden = golden_from_expected_tools(run.expected_tools or (), named, run.golden_id, self.vocabulary)
        except GoldenError as error:
            # What follows may be a value, and stands in the telemetry anyway.
            told, meant, hint = _VALUE_MARKERS.split(str(error), maxsplit=1)[0].rstrip(" .").partition(_DID_YOU_MEAN)
            told += f" (did you mean {hint.rstrip('?')}?)" if meant else ""
            return Candidates(
                "given", (), no_match_reason=f"what the run itself says is expected cannot be read: {told}"
            )
        return Candidates("given", (golden,))

    def _no_golden_reason(self, run: Run, text: str) -> str:
        if run.golden_id is not None:
            return self._unknown_id_reason(run)
        if not text:
            return "the run shows no input to look up"
        told = "no golden for this input"
        if run.unit == "component" and run.component is not None:
            told += f" of the component {short_repr(run.component)}"
        if self.near is not None and len(text) > MAX_FUZZY_LENGTH:
            told += f", which is too long to be near another: {MAX_FUZZY_LENGTH:,} characters at most"
        return told

    def _unknown_id_reason(self, run: Run) -> str:
        return f"golden id {run.golden_id!r} is not in the file"


def _unpickle_goldens(
    goldens: tuple[Golden, ...], vocabulary: Vocabulary, components: Any, near: Any, margin: float
) -> Goldens:
    return Goldens(goldens, vocabulary=vocabulary, components=components, near=near, margin=margin)


def _check_percentage(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:  # type: ignore[redundant-expr]
        raise ConfigurationError(f"{name} must be a number from 0 to 100, not {short_repr(value)}.")
    return value


def _single_agent(golden: Golden) -> str | None:
    """The one agent that a golden is for, folded; `None`: there may be others."""
    agent = golden.when.agent if golden.when else None
    return None if agent is None or is_glob(agent) else agent.casefold()


def _unambiguous(how: MatchMethod, goldens: Sequence[Golden], relation: str) -> Candidates:
    """Some goldens that apply alike: one answer where they demand the same, else none."""
    if len(goldens) == 1 or len({golden.digest for golden in goldens}) == 1:
        return Candidates(how, goldens)
    return Candidates(
        how, goldens, no_match_reason=f"{len(goldens)} goldens {relation} and disagree ({_format_ids(goldens)})"
    )


def _format_ids(goldens: Sequence[Golden]) -> str:
    told = ", ".join(golden.id for golden in goldens[:_MAX_LISTED_IDS])
    return told if len(goldens) <= _MAX_LISTED_IDS else f"{told} and {len(goldens) - _MAX_LISTED_IDS} more"


_MAX_LISTED_IDS = 5
