"""Peers that compare trajectories, such as agentevals, Google ADK and pydantic-evals."""

from __future__ import annotations

from collections.abc import Mapping

from goldspan.profiles.peer_options import (
    BoolOption,
    ChoiceOption,
    Formula,
    FormulaChanges,
    NumberOption,
    Peer,
    Quirk,
    ReplaceValue,
    RulesByToolOption,
    ToolOption,
    Variant,
    apply_changes,
)

EXACT_ORDER: FormulaChanges = {"gate": "same_count", "pairing": "position", "measure": "all", "empty_scores": (1, 0, 0)}
IN_ORDER: FormulaChanges = {"pairing": "walk", "measure": "all_expected", "empty_scores": (1, 1, 0)}
ANY_ORDER: FormulaChanges = {"measure": "all_expected", "empty_scores": (1, 1, 0)}

ONE_TOOL_EXPECTED: FormulaChanges = {
    "empty_scores": ("raises", "raises", 0),
    "raised_error": "TypeError unless it is told a tool to look for",
}

GREEDY_QUIRK = Quirk(
    "Each call takes the first that passes, which can fail where a pairing of all exists.",
    "the best pairing of all",
    {"assignment": "optimal"},
)

# --- agentevals and openevals: the same evaluator twice, once with a bug mended --------------------------------------

_ARGUMENT_RULES = {"exact": "equal", "ignore": "ignore", "subset": "top_subset", "superset": "top_superset"}


def _trajectory_match(*, swapped: bool, absent_is_none: bool) -> Mapping[str, Variant]:
    """The evaluator. `swapped`: whether it takes the calls for the expectations where the calls ask."""
    modes: Mapping[str, FormulaChanges] = {
        "strict": {"gate": "same_count", "pairing": "position", "driving_side": "called", "measure": "all"},
        "unordered": {"driving_side": "each", "swap_sides": swapped, "measure": "all"},
        "subset": {"driving_side": "called", "swap_sides": swapped, "measure": "all_called", "empty_scores": (1, 0, 1)},
        "superset": ANY_ORDER,
    }
    layouts: Mapping[str, FormulaChanges] = {
        "one_message": {"pairing": ReplaceValue({"position": "one_to_one"})},
        "message_per_call": {},
    }
    rules: Mapping[str, FormulaChanges] = {word: {"argument_rule": rule} for word, rule in _ARGUMENT_RULES.items()}
    return {
        "": Variant(
            Formula(threshold=1),
            {
                "trajectory_match_mode": ChoiceOption("strict", modes),
                "tool_args_match_mode": ChoiceOption("exact", rules),
                "tool_args_match_overrides": RulesByToolOption(_ARGUMENT_RULES, missing_is_none=absent_is_none),
                "layout": ChoiceOption("one_message", layouts),
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
            {"swap_sides": False},
        ),
        GREEDY_QUIRK,
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
        GREEDY_QUIRK,
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
            Formula(argument_rule="equal", missing_arguments="none"),
            {
                "match_type": ChoiceOption(
                    "EXACT", {"EXACT": EXACT_ORDER, "IN_ORDER": IN_ORDER, "ANY_ORDER": ANY_ORDER}
                ),
                "ignore_args": BoolOption(False, on={"argument_rule": "ignore"}),
                "threshold": NumberOption(1.0, "threshold"),
            },
        )
    },
    aliases=("google-adk",),
    quirks=(
        Quirk(
            "No arguments (None) are not the same as empty ones ({}).",
            "no arguments are {}",
            {"missing_arguments": "empty"},
        ),
        Quirk(
            "Where nothing is expected, IN_ORDER and ANY_ORDER give 1 whatever is called.",
            "0 if anything was called",
            {"empty_scores": (1, 0, 0)},
        ),
        Quirk("One invocation is 0 or 1; only the mean over invocations says more.", "tool_correctness is a share"),
    ),
)

VERTEX = Peer(
    "vertex",
    "trajectory_exact_match and its siblings",
    "google-cloud-aiplatform 2.7.0, as documented: the service computes them",
    {
        "trajectory_exact_match": Variant(apply_changes(Formula(argument_rule="equal"), EXACT_ORDER)),
        "trajectory_in_order_match": Variant(apply_changes(Formula(argument_rule="equal"), IN_ORDER)),
        "trajectory_any_order_match": Variant(apply_changes(Formula(argument_rule="equal"), ANY_ORDER)),
        "trajectory_precision": Variant(
            Formula(argument_rule="equal", pairing="any", driving_side="called", measure="precision")
        ),
        "trajectory_recall": Variant(Formula(argument_rule="equal", pairing="any")),
        "trajectory_single_tool_use": Variant(
            apply_changes(Formula(selection="one_tool", pairing="any", measure="all_expected"), ONE_TOOL_EXPECTED),
            {"tool_name": ToolOption()},
        ),
    },
    variant_option="metric",
    aliases=("vertexai", "google-cloud-aiplatform"),
    quirks=(
        Quirk(
            "What repeated calls and empty sides give is not documented; here each of two equal calls is looked for "
            "by itself, so [A, A] has a recall of 1.0 with one call of A.",
            "each call counts once",
            {"pairing": ReplaceValue({"any": "one_to_one"}), "assignment": "optimal"},
        ),
    ),
)

AGENTCORE = Peer(
    "agentcore",
    "Builtin.TrajectoryExactOrderMatch and its siblings",
    "bedrock-agentcore 1.25.0, as documented: the service computes them",
    {
        "Builtin.TrajectoryExactOrderMatch": Variant(apply_changes(Formula(), EXACT_ORDER)),
        "Builtin.TrajectoryInOrderMatch": Variant(apply_changes(Formula(), IN_ORDER)),
        "Builtin.TrajectoryAnyOrderMatch": Variant(apply_changes(Formula(), ANY_ORDER)),
    },
    variant_option="evaluator_id",
    aliases=("bedrock-agentcore",),
    quirks=(
        Quirk("Only names are compared.", "argument_correctness judges arguments"),
        Quirk(
            "What repeated calls and empty sides give is not documented; here it is as with google_adk.",
            "0 where nothing is expected and something is called",
            {"empty_scores": (1, 0, 0)},
        ),
    ),
)

# --- pydantic-evals ---------------------------------------------------------------------------------------------------

_FAILED_CALLS_OPTION = BoolOption(False, off={"failed_calls": "skip"})

PYDANTIC_EVALS = Peer(
    "pydantic_evals",
    "ToolCorrectness, TrajectoryMatch, ArgumentCorrectness, MaxToolCalls",
    "2.62.0",
    {
        "ToolCorrectness": Variant(
            Formula(gate="same_count", measure="all", threshold=1),
            {
                "allow_extra": BoolOption(False, on={**ANY_ORDER, "gate": "none"}),
                "include_failed": _FAILED_CALLS_OPTION,
            },
        ),
        "TrajectoryMatch": Variant(
            Formula(),
            {
                "order": ChoiceOption(
                    "in_order",
                    {
                        "exact": EXACT_ORDER,
                        "in_order": {"pairing": "lcs", "measure": "f1"},
                        "any_order": {"measure": "f1"},
                    },
                ),
                "include_failed": _FAILED_CALLS_OPTION,
            },
        ),
        "ArgumentCorrectness": Variant(
            apply_changes(
                Formula(selection="nth_call", missing_arguments="none", measure="all_expected", threshold=1),
                ONE_TOOL_EXPECTED,
            ),
            {
                "tool_name": ToolOption(),
                "match_mode": ChoiceOption(
                    "subset", {"subset": {"argument_rule": "top_superset"}, "exact": {"argument_rule": "equal"}}
                ),
                "occurrence": ChoiceOption(
                    "first", {"first": {"call_index": 0}, "last": {"call_index": -1}}, number_field="call_index"
                ),
                "include_failed": _FAILED_CALLS_OPTION,
            },
        ),
        "MaxToolCalls": Variant(
            Formula(measure="calls", empty_scores=("measured", "measured", "measured"), threshold=1),
            {"max_calls": NumberOption(None, "max_count", maximum=float("inf"), is_integer=True)},
        ),
    },
    variant_option="evaluator",
    aliases=("pydantic-evals",),
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


TRAJECTORY_PEERS = (AGENTEVALS, OPENEVALS, GOOGLE_ADK, VERTEX, AGENTCORE, PYDANTIC_EVALS)
