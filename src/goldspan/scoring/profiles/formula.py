"""The axes along which peers differ: a formula says, axis by axis, how a number is made of calls and expectations.

Most axes are words, and a table beside the functions says which one a word stands for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from goldspan.scoring.profiles.arguments import Weigh

WhenEmpty: TypeAlias = float | Literal["measured", "raises"]
"""The score of a case of which a side is empty; `measured`: as any other case; `raises`: there is none."""


@dataclass(frozen=True, slots=True)
class Formula:
    """How a number is made of what was called and what was expected.

    The defaults are the recall of tool names: each expectation takes one call of its name, and the score is the share
    of them that found one.
    """

    # What a pair is worth.
    name: str = "equal"
    """How names are compared: a word of `names.NAMES`."""
    types: bool = False
    """Whether a tool's type (`function`, `mcp`) is part of its name."""
    args: str = "ignore"
    """How arguments are weighed: a word of `arguments.WEIGHTS`, or `fuzzy`, or `allowed`."""
    least_similarity: float = 0.8
    """From which similarity on `fuzzy` takes arguments for the same."""
    args_of: Mapping[str, Weigh] = field(default_factory=dict)
    """Other rules for the arguments of some tools."""
    no_args: Literal["empty", "none"] = "empty"
    """What a tool without arguments has: an empty dictionary, or `None`, which is something else."""
    output: bool = False
    """Whether a pair with different outputs is worth nothing."""

    # What is looked at.
    failed: Literal["count", "skip"] = "count"
    """Whether a call that failed is one."""
    view: str = "as_given"
    """What is made of both sides first: a word of `views.VIEWS`."""
    leave_out: Sequence[str] = ()
    """For the view `stripped`: arguments that neither side is judged by, as globs."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """For the view `stripped`: arguments that a call is not judged by where they have these values."""
    probe: str = "all"
    """Which of the expectations and of the calls are looked at: a word of `views.PROBES`."""
    tool: str | None = None
    """For probes: the tool that is expected; `None`: the first that is."""
    nth: int = 0
    """For the probe `nth`: which call of the tool, counted from 0."""
    collapse: Literal["none", "both", "matched"] = "none"
    """Whether repeated calls are one: on both sides, or only where matches are counted."""

    # How sides are paired, and what that gives.
    gate: str = "none"
    """What must hold for the score to be more than 0: a word of `measures.GATES`."""
    pairing: str = "one_to_one"
    """How the sides are paired: `one_to_one`, or a word of `pairing.PAIRINGS`."""
    assign: str = "first"
    """For `one_to_one`, who gets which answer: a word of `pairing.ASSIGNMENTS`."""
    drive: Literal["expected", "called", "each"] = "expected"
    """Which side asks and is served in its order; `each`: both do, and the lower outcome counts."""
    swapped: bool = False
    """Whether, where the calls ask, the rule for arguments takes them for the expectations."""
    measure: str = "recall"
    """What is made of the matches: a word of `measures.MEASURES`."""
    least: float = 0
    most: float = float("inf")
    """For measures that count: how many there must be."""
    empty: tuple[WhenEmpty, WhenEmpty, WhenEmpty] = (1, 0, 0)
    """The score where both sides are empty, where nothing was expected, and where nothing was called."""
    raises: str = ""
    """What the peer raises where `empty` says that it does."""
    needs_model: str | None = None
    """What the peer asks a language model for, where it computes nothing itself."""

    # What is made of the number.
    digits: int | None = None
    """To how many digits it is rounded."""
    threshold: float | None = None
    """From where on it passes, without any tolerance; `None`: the peer has no such rule."""
    strict: bool = False
    """Whether only 1 passes, and whatever is less becomes 0."""
