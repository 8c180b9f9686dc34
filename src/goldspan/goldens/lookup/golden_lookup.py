"""`Goldens`: an immutable set of goldens that finds the golden of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

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
from goldspan.model.notebook_display import NotebookDisplay

if TYPE_CHECKING:
    from goldspan.model.markup import Block
    from goldspan.model.value_matchers import Redaction

NO_INPUT_REASON = "the run has no input to look up"
ANONYMOUS_GOLDEN_ID = "given"
"""The id of a golden that a run declares without an id."""


def golden_from_expected_tools(
    expected: Sequence[Any], named_golden: Golden | None, golden_id: str | None, vocabulary: Vocabulary
) -> Golden:
    """Returns a golden that expects these tools, which have the format of a golden's `tools`.

    If the run names a golden, the tools replace those of that golden. Raises `GoldenError` for invalid tools.
    """
    base = named_golden or _golden_without_tools(golden_id or ANONYMOUS_GOLDEN_ID, vocabulary)
    items = tuple(expected)
    if len(items) == 1 and isinstance(items[0], str) and items[0].lstrip().startswith(("[", "{")):
        # Extraction keeps an attribute that it cannot parse as text. A truncated attribute ends in an ellipsis.
        raise GoldenError("expected_tools is " + ("truncated" if items[0].endswith("…") else "not valid JSON"))
    if all(type(item) is str and item for item in items):
        return _golden_with_tool_names(base, items)
    return replace(base, tools=_parse_items(items, vocabulary), policy=False)


@lru_cache(maxsize=1024)
def _golden_without_tools(golden_id: str, vocabulary: Vocabulary) -> Golden:
    return Golden(golden_id, vocabulary=vocabulary)


@lru_cache(maxsize=1024)
def _golden_with_tool_names(base: Golden, names: tuple[str, ...]) -> Golden:
    """Returns a golden for a list of names; cached, because runs repeat the same lists."""
    add_declared = declaration_defaults(base.vocabulary)
    return replace(base, tools=tuple(add_declared(ExpectedTool(name)) for name in names), policy=False)


def _parse_items(expected: tuple[Any, ...], vocabulary: Vocabulary) -> tuple[ExpectedItem, ...]:
    # It imports pydantic, which a list of names does not need.
    from goldspan.goldens.schema.golden_parser import parse_expected_tools

    return parse_expected_tools(expected, "expected_tools", declaration_defaults(vocabulary))


DEFAULT_NEAR = 90.0
DEFAULT_MARGIN = 3.0


class Candidates(NamedTuple):
    """The goldens that the first successful step of the lookup found for a run."""

    how: MatchMethod
    goldens: Sequence[Golden]
    similarity: float = 1.0
    no_match_reason: str = ""
    """Why none of them is the golden of the run, as a clause; empty if the first one is."""


_VALUE_MARKERS = re.compile(r", not |: regex '")
"""Where an error message begins to quote a value."""
_DID_YOU_MEAN = ". Did you mean "


class Goldens(NotebookDisplay):
    """An immutable set of goldens with unique ids. Lookup takes constant time.

    Iteration yields the goldens in their original order; `"refund" in goldens` tests for an id, `goldens["refund"]`
    returns the golden with that id.

    Args:
        goldens: The goldens.
        vocabulary: The vocabulary of every golden that has none.
        components: The spans that golden files declare as components.
        near: The least similarity, in percent, at which the input of a run matches that of a golden; `None` disables
            matching by similar input.
        margin: By how many percentage points the best match must exceed every golden with different expectations.

    Raises:
        GoldenError: Two goldens have the same id, or an item is not a golden.
        ConfigurationError: `near` or `margin` is out of range.
    """

    __slots__ = (
        *("_by_id", "_by_input", "_conditions", "_conditional", "_fuzzy_matcher", "_policies"),
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
        """The tools and servers that are declared for all goldens."""
        self.components = tuple(components)
        """The spans that are declared as components."""
        self.near = None if near is None else _check_percentage("near", near)
        """The least similarity of a near match, 0 to 100; `None` disables near matches."""
        self.margin = _check_percentage("margin", margin)
        """By how much the similarity must exceed that of every golden with different expectations."""
        self._by_id: dict[str, Golden] = {}
        self._by_input: dict[str, list[Golden]] = {}
        self._conditional: dict[str | None, list[Golden]] = {}
        """The goldens without input that have conditions, by folded agent name; `None`: any agent, or a pattern."""
        self._policies: list[Golden] = []
        self._conditions: dict[str, tuple[RunCondition, ...]] = {}
        """The conditions of the goldens that do not apply to every request and conversation, by golden id."""
        self._fuzzy_matcher: FuzzyMatcher | None = None
        for golden in goldens:
            self._add(golden)

    def _add(self, golden: Golden) -> None:
        if not isinstance(golden, Golden):
            raise GoldenError(
                f"goldens must be a list of Golden, not of {short_repr(golden)}; load_goldens reads them from files."
            )
        if not isinstance(golden.input, str | None):
            raise GoldenError(f"golden {short_repr(golden.id)}: input must be text, not {short_repr(golden.input)}.")
        if golden.id in self._by_id:
            raise GoldenError(f"golden {golden.id!r} is defined twice; ids must be unique.")
        if self.vocabulary is not NO_VOCABULARY and golden.vocabulary is NO_VOCABULARY:
            golden = replace(golden, vocabulary=self.vocabulary)
        self._by_id[golden.id] = golden
        if has_conditions := golden.when is not None or golden.component is not None:
            self._conditions[golden.id] = tuple(build_run_conditions(golden))
        if golden.policy:
            self._policies.append(golden)
        elif key := normalize_text(golden.input):
            self._by_input.setdefault(key, []).append(golden)
        elif has_conditions:
            self._conditional.setdefault(_single_agent(golden), []).append(golden)

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

    def _display_blocks(self, *, values: bool = False, redact: Redaction | None = None) -> Iterable[Block]:
        from goldspan.goldens.golden_table import golden_blocks  # most processes never render anything

        return golden_blocks(tuple(self), values=values, redact=redact)

    def __reduce__(self) -> tuple[Any, ...]:
        # The indexes hold functions, which cannot be pickled; unpickling builds the indexes again.
        return _unpickle_goldens, (tuple(self), self.vocabulary, self.components, self.near, self.margin)

    def find(self, run: Run) -> Match | None:
        """Returns the golden of a run and how it was found, or `None`; `explain` returns the reason.

        The first step that finds a golden decides: the expected tools that the run itself declares; the golden id that
        the run names; goldens whose `when` and `component` fit the run; goldens with the same input; the golden with
        the most similar input; policies. An unknown golden id is ignored. If one step finds several goldens with
        different expectations, the result is `None`: the lookup never resolves ambiguity by a guess.
        """
        return self.find_with_reason(run)[0]

    def explain(self, run: Run) -> str:
        """Returns the reason for the result of `find` as a clause."""
        match, no_match_reason = self.find_with_reason(run)
        if match is None:
            return no_match_reason
        name = repr(match.golden.id)
        reason = {
            "given": "the run itself declares the expected tools",
            "id": f"golden {name} was found by its id",
            "when": f"golden {name} was found by its conditions on runs",
            "input": f"golden {name} was found by its input",
            "near": f"golden {name} was found by near text ({match.similarity:.2f})",
            "policy": f"golden {name} is the policy for this run",
        }[match.how]
        is_id_unknown = run.golden_id is not None and run.golden_id not in self._by_id and match.how != "given"
        return f"{reason}; {self._unknown_id_reason(run)}" if is_id_unknown else reason

    def find_with_reason(self, run: Run) -> tuple[Match | None, str]:
        """Returns the result of `find`, and the reason if it is `None`, else an empty text."""
        text = normalize_text(run.input)
        candidates = self.candidates(run, text)
        if candidates is None:
            return None, self._no_golden_reason(run, text)
        if candidates.no_match_reason:
            return None, candidates.no_match_reason
        return Match(candidates.goldens[0], candidates.how, candidates.similarity), ""

    def prepare(self) -> None:
        """Builds the index for similar inputs before the first lookup: a few seconds for 100,000 goldens."""
        if self.near is not None and self._by_input:
            self._get_fuzzy_matcher().prepare()

    def candidates(self, run: Run, text: str | None = None) -> Candidates | None:
        """Returns the goldens of the first lookup step that finds any; `text` is the normalized input of the run."""
        if run.expected_tools is not None:
            return self._golden_from_run(run)
        if run.golden_id is not None and (golden := self._by_id.get(run.golden_id)):
            return Candidates("id", (golden,))
        text = normalize_text(run.input) if text is None else text
        same_input = [golden for golden in self._by_input.get(text, ()) if self._applies_to(golden, run)]
        fitting = [golden for golden in same_input if golden.when is not None]
        fitting = fitting or self._goldens_with_matching_conditions(run)
        # Goldens that state only a component have less priority than goldens that also state the input.
        if fitting and not (same_input and all(golden.when is None for golden in fitting)):
            return _unambiguous("when", fitting, "fit this run")
        if same_input:
            return _unambiguous("input", same_input, "share this input")
        if self.near is not None and text and (near := self._find_near(run, text, self.near)):
            return near
        policies = [golden for golden in self._policies if self._applies_to(golden, run)]
        policies = [golden for golden in policies if golden.id in self._conditions] or policies
        return _unambiguous("policy", policies, "are policies for this run") if policies else None

    def _applies_to(self, golden: Golden, run: Run) -> bool:
        """Whether the unit, the component and the conditions of a golden fit the run."""
        conditions = self._conditions.get(golden.id)
        if conditions is None:
            return run.unit != "component"
        for is_met in conditions:  # noqa: SIM110 - `all` takes twice as long, and this runs for each run and golden
            if not is_met(run):
                return False
        return True

    def _goldens_with_matching_conditions(self, run: Run) -> list[Golden]:
        if not self._conditional:
            return []
        possible = self._conditional.get(None, [])
        if run.agent is not None:
            possible = possible + self._conditional.get(run.agent.casefold(), [])
        return [golden for golden in possible if self._applies_to(golden, run)]

    def _find_near(self, run: Run, text: str, near: float) -> Candidates | None:
        if not self._by_input or len(text) > MAX_FUZZY_LENGTH:
            return None
        component = run.component if run.unit == "component" else None
        matches = self._get_fuzzy_matcher().nearest(text, component, near, self.margin)
        if not matches:
            return None
        goldens, best_similarity = [golden for golden, _ in matches], matches[0][1] / 100
        no_match_reason = ""
        if len(matches) > 1:
            listed = ", ".join(f"{golden.id} {percent / 100:.2f}" for golden, percent in matches[:_MAX_LISTED_IDS])
            more = f" and {len(matches) - _MAX_LISTED_IDS} more" if len(matches) > _MAX_LISTED_IDS else ""
            no_match_reason = f"{len(matches)} goldens are similarly near to this input and disagree ({listed}{more})"
        return Candidates("near", goldens, best_similarity, no_match_reason)

    def _get_fuzzy_matcher(self) -> FuzzyMatcher:
        if self._fuzzy_matcher is None:  # two threads may both create it; the result is the same
            self._fuzzy_matcher = FuzzyMatcher(self._by_input)
        return self._fuzzy_matcher

    def _golden_from_run(self, run: Run) -> Candidates:
        named_golden = self._by_id.get(run.golden_id) if run.golden_id is not None else None
        try:
            golden = golden_from_expected_tools(run.expected_tools or (), named_golden, run.golden_id, self.vocabulary)
        except GoldenError as error:
            # The rest of the message may quote a value of the telemetry, which the reason must not repeat.
            message = _VALUE_MARKERS.split(str(error), maxsplit=1)[0].rstrip(" .")
            problem, has_hint, hint = message.partition(_DID_YOU_MEAN)
            problem += f" (did you mean {hint.rstrip('?')}?)" if has_hint else ""
            reason = f"the expected tools that the run declares are invalid: {problem}"
            return Candidates("given", (), no_match_reason=reason)
        return Candidates("given", (golden,))

    def _no_golden_reason(self, run: Run, text: str) -> str:
        if run.golden_id is not None:
            return self._unknown_id_reason(run)
        if not text:
            return NO_INPUT_REASON
        reason = "no golden for this input"
        if run.unit == "component" and run.component is not None:
            reason += f" of the component {short_repr(run.component)}"
        if self.near is not None and len(text) > MAX_FUZZY_LENGTH:
            reason += f", which is too long for similarity matching: {MAX_FUZZY_LENGTH:,} characters at most"
        return reason

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
    """Returns the folded agent name of a golden; `None` if it applies to other agents too."""
    agent = golden.when.agent if golden.when else None
    return None if agent is None or is_glob(agent) else agent.casefold()


def _unambiguous(how: MatchMethod, goldens: Sequence[Golden], relation: str) -> Candidates:
    """Returns the goldens as candidates, with a reason against them if their expectations differ."""
    if len(goldens) == 1 or len({golden.digest for golden in goldens}) == 1:
        return Candidates(how, goldens)
    return Candidates(
        how, goldens, no_match_reason=f"{len(goldens)} goldens {relation} and disagree ({_format_ids(goldens)})"
    )


def _format_ids(goldens: Sequence[Golden]) -> str:
    listed = ", ".join(golden.id for golden in goldens[:_MAX_LISTED_IDS])
    return listed if len(goldens) <= _MAX_LISTED_IDS else f"{listed} and {len(goldens) - _MAX_LISTED_IDS} more"


_MAX_LISTED_IDS = 5
