"""Peers that say yes or no to a trajectory: the same calls, all of them in order, or all of them in any order."""

from __future__ import annotations

from collections.abc import Mapping

from goldspan.scoring.profiles.formula import Formula
from goldspan.scoring.profiles.options import Axes, Instead, Number, RulesByTool, Switch, Tool, Word, changed
from goldspan.scoring.profiles.peers import Peer, Quirk, Variant

EXACT: Axes = {"gate": "same_count", "pairing": "position", "measure": "all", "empty": (1, 0, 0)}
IN_ORDER: Axes = {"pairing": "walk", "measure": "all_expected", "empty": (1, 1, 0)}
ANY_ORDER: Axes = {"measure": "all_expected", "empty": (1, 1, 0)}

ONE_TOOL: Axes = {"empty": ("raises", "raises", 0), "raises": "TypeError unless it is told a tool to look for"}

GREEDY = Quirk(
    "Each call takes the first that passes, which can fail where a pairing of all exists.",
    "the best pairing of all",
    {"assign": "optimal"},
)

# --- agentevals and openevals: the same evaluator twice, once with a bug mended --------------------------------------

_ARGUMENT_RULES = {"exact": "equal", "ignore": "ignore", "subset": "top_subset", "superset": "top_superset"}


def _trajectory_match(*, swapped: bool, absent_is_none: bool) -> Mapping[str, Variant]:
    """The evaluator. `swapped`: whether it takes the calls for the expectations where the calls ask."""
    modes: Mapping[str, Axes] = {
        "strict": {"gate": "same_count", "pairing": "position", "drive": "called", "measure": "all"},
        "unordered": {"drive": "each", "swapped": swapped, "measure": "all"},
        "subset": {"drive": "called", "swapped": swapped, "measure": "all_called", "empty": (1, 0, 1)},
        "superset": ANY_ORDER,
    }
    layouts: Mapping[str, Axes] = {
        "one_message": {"pairing": Instead({"position": "one_to_one"})},
        "message_per_call": {},
    }
    rules: Mapping[str, Axes] = {word: {"args": rule} for word, rule in _ARGUMENT_RULES.items()}
    return {
        "": Variant(
            Formula(threshold=1),
            {
                "trajectory_match_mode": Word("strict", modes),
                "tool_args_match_mode": Word("exact", rules),
                "tool_args_match_overrides": RulesByTool(_ARGUMENT_RULES, absent_is_none=absent_is_none),
                "layout": Word("one_message", layouts),
            },
        )
    }


AGENTEVALS = Peer(
    "agentevals",
    "create_trajectory_match_evaluator",
    "0.0.9",
    _trajectory_match(swapped=True, absent_is_none=True),
    quirks=(
        Quirk(
            "In the modes subset and unordered the two sides are handed over the wrong way round: the argument mode "
            "`subset` then means `superset`.",
            "what openevals does",
            {"swapped": False},
        ),
        GREEDY,
        Quirk(
            "strict compares message by message: calls in one message may swap, calls in two may not; one more message "
            "of any role fails it.",
            'layout="message_per_call" where every call has a message of its own; order: exact in a golden',
        ),
        Quirk("A key of tool_args_match_overrides that both sides lack agrees.", "openevals says that it does not"),
    ),
)

OPENEVALS = Peer(
    "openevals",
    "create_trajectory_match_evaluator",
    "0.2.2",
    _trajectory_match(swapped=False, absent_is_none=False),
    quirks=(
        GREEDY,
        Quirk(
            "strict compares message by message: calls in one message may swap, calls in two may not; one more message "
            "of any role fails it.",
            'layout="message_per_call" where every call has a message of its own; order: exact in a golden',
        ),
        Quirk(
            "A key of tool_args_match_overrides that both sides lack does not agree.", "agentevals says that it does"
        ),
    ),
)

# --- Google ADK and the services that took its words -----------------------------------------------------------------

GOOGLE_ADK = Peer(
    "google_adk",
    "TrajectoryEvaluator (tool_trajectory_avg_score)",
    "2.13.0",
    {
        "": Variant(
            Formula(args="equal", no_args="none"),
            {
                "match_type": Word("EXACT", {"EXACT": EXACT, "IN_ORDER": IN_ORDER, "ANY_ORDER": ANY_ORDER}),
                "ignore_args": Switch(False, on={"args": "ignore"}),
                "threshold": Number(1.0, "threshold"),
            },
        )
    },
    also_called=("google-adk",),
    quirks=(
        Quirk("No arguments (None) are not the same as empty ones ({}).", "no arguments are {}", {"no_args": "empty"}),
        Quirk(
            "Where nothing is expected, IN_ORDER and ANY_ORDER give 1 whatever is called.",
            "0 if anything was called",
            {"empty": (1, 0, 0)},
        ),
        Quirk("One invocation is 0 or 1; only the mean over invocations says more.", "tool_correctness is a share"),
    ),
)

VERTEX = Peer(
    "vertex",
    "trajectory_exact_match and its siblings",
    "google-cloud-aiplatform 2.7.0, as documented: the service computes them",
    {
        "trajectory_exact_match": Variant(changed(Formula(args="equal"), EXACT)),
        "trajectory_in_order_match": Variant(changed(Formula(args="equal"), IN_ORDER)),
        "trajectory_any_order_match": Variant(changed(Formula(args="equal"), ANY_ORDER)),
        "trajectory_precision": Variant(Formula(args="equal", pairing="any", drive="called", measure="precision")),
        "trajectory_recall": Variant(Formula(args="equal", pairing="any")),
        "trajectory_single_tool_use": Variant(
            changed(Formula(probe="one_tool", pairing="any", measure="all_expected"), ONE_TOOL), {"tool_name": Tool()}
        ),
    },
    chooser="metric",
    also_called=("vertexai", "google-cloud-aiplatform"),
    quirks=(
        Quirk(
            "What repeated calls and empty sides give is not documented; here each of two equal calls is looked for "
            "by itself, so [A, A] has a recall of 1.0 with one call of A.",
            "each call counts once",
            {"pairing": Instead({"any": "one_to_one"}), "assign": "optimal"},
        ),
    ),
)

AGENTCORE = Peer(
    "agentcore",
    "Builtin.TrajectoryExactOrderMatch and its siblings",
    "bedrock-agentcore 1.25.0, as documented: the service computes them",
    {
        "Builtin.TrajectoryExactOrderMatch": Variant(changed(Formula(), EXACT)),
        "Builtin.TrajectoryInOrderMatch": Variant(changed(Formula(), IN_ORDER)),
        "Builtin.TrajectoryAnyOrderMatch": Variant(changed(Formula(), ANY_ORDER)),
    },
    chooser="evaluator_id",
    also_called=("bedrock-agentcore",),
    quirks=(
        Quirk("Only names are compared.", "argument_correctness judges arguments"),
        Quirk(
            "What repeated calls and empty sides give is not documented; here it is as with google_adk.",
            "0 where nothing is expected and something is called",
            {"empty": (1, 0, 0)},
        ),
    ),
)

# --- pydantic-evals ---------------------------------------------------------------------------------------------------

_FAILED = Switch(False, off={"failed": "skip"})

PYDANTIC_EVALS = Peer(
    "pydantic_evals",
    "ToolCorrectness, TrajectoryMatch, ArgumentCorrectness, MaxToolCalls",
    "2.62.0",
    {
        "ToolCorrectness": Variant(
            Formula(gate="same_count", measure="all", threshold=1),
            {"allow_extra": Switch(False, on={**ANY_ORDER, "gate": "none"}), "include_failed": _FAILED},
        ),
        "TrajectoryMatch": Variant(
            Formula(),
            {
                "order": Word(
                    "in_order",
                    {"exact": EXACT, "in_order": {"pairing": "lcs", "measure": "f1"}, "any_order": {"measure": "f1"}},
                ),
                "include_failed": _FAILED,
            },
        ),
        "ArgumentCorrectness": Variant(
            changed(Formula(probe="nth_call", no_args="none", measure="all_expected", threshold=1), ONE_TOOL),
            {
                "tool_name": Tool(),
                "match_mode": Word("subset", {"subset": {"args": "top_superset"}, "exact": {"args": "equal"}}),
                "occurrence": Word("first", {"first": {"nth": 0}, "last": {"nth": -1}}, numbers="nth"),
                "include_failed": _FAILED,
            },
        ),
        "MaxToolCalls": Variant(
            Formula(measure="calls", empty=("measured", "measured", "measured"), threshold=1),
            {"max_calls": Number(None, "most", most=float("inf"), whole=True)},
        ),
    },
    chooser="evaluator",
    also_called=("pydantic-evals",),
    quirks=(
        Quirk(
            "TrajectoryMatch carries noise in its last digit: 0.7499999999999999, which misses a threshold of 0.75.",
            "goldspan meets thresholds with a tolerance of 1e-9",
        ),
        Quirk(
            "A run without recorded spans scores 0, as if it had called nothing.", "goldspan gives None and a reason"
        ),
        Quirk("ArgumentCorrectness judges one call of one tool.", "argument_correctness judges every pair"),
    ),
)


TRAJECTORIES = (AGENTEVALS, OPENEVALS, GOOGLE_ADK, VERTEX, AGENTCORE, PYDANTIC_EVALS)
