"""The evaluation suites of larger platforms."""

from __future__ import annotations

from collections.abc import Mapping

from goldspan.profiles.peer_options import (
    BoolOption,
    ChoiceOption,
    Formula,
    FormulaChanges,
    MappingOption,
    NumberOption,
    Peer,
    Quirk,
    ReplaceValue,
    RulesByToolOption,
    TextListOption,
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


_RAISES_WITHOUT_EXPECTATION: FormulaChanges = {"empty_scores": ("raises", "raises", 0)}

GALTEA = Peer(
    "galtea",
    "Tool Correctness",
    "as documented: the service computes it",
    {
        "": Variant(
            Formula(name_rule="canonical", collapse="both", measure="all", threshold=1),
            {"metric": ChoiceOption("galtea_tool_correctness", {"galtea_tool_correctness": {}})},
        )
    },
    quirks=(
        Quirk(
            "Repeated calls count once, so an agent that loops passes.",
            "each call counts",
            {"collapse": "none", "assignment": "optimal"},
        ),
        Quirk(
            "Which prefixes of names are stripped is not published; here it is what goldspan itself knows: functions., "
            "default_api: and mcp__server__.",
            "declare aliases and servers in the golden file",
        ),
    ),
)

MLFLOW = Peer(
    "mlflow",
    "ToolCallCorrectness",
    "3.17.2",
    {
        "": Variant(
            Formula(
                argument_rule="json_equal",
                missing_arguments="none",
                preprocessing="all_or_none",
                gate="same_count",
                measure="all",
                empty_scores=("raises", "raises", 0),
                raised_error="MlflowException where nothing is expected: an empty list counts as no expectation at all",
                threshold=1,
            ),
            {
                "should_exact_match": BoolOption(
                    True, off={"needs_model": "asks a language model without exact match"}
                ),
                "should_consider_ordering": BoolOption(False, on={"pairing": "position"}, off={"collapse": "both"}),
            },
        )
    },
    quirks=(
        Quirk(
            "Without ordering, sets are compared after their lengths: [A, A, B] passes for [A, B, B].",
            "each call counts",
            {"collapse": "none", "assignment": "optimal"},
        ),
        Quirk(
            "One expectation without arguments switches the arguments of all off.",
            "such an expectation takes any arguments, and the others are judged",
            {"preprocessing": "as_given", "argument_rule": "equal_where_stated"},
        ),
        Quirk(
            "Arguments are compared as JSON text: 1 is not 1.0.", "1 is 1.0", {"argument_rule": "equal_where_stated"}
        ),
        Quirk(
            "That nothing is to be called cannot be tested: an empty expectation raises.",
            "1 if nothing was called, else 0",
            {"empty_scores": (1, 0, 0)},
        ),
    ),
)

AZURE = Peer(
    "azure",
    "_TaskNavigationEfficiencyEvaluator",
    "1.18.10",
    {
        "": Variant(
            Formula(
                name_rule="strip",
                missing_arguments="none",
                raised_error="EvaluationException where nothing is expected",
                threshold=1,
            ),
            {
                "matching_mode": ChoiceOption(
                    "exact_match",
                    {
                        "exact_match": {**EXACT_ORDER, **_RAISES_WITHOUT_EXPECTATION},
                        "in_order_match": {**IN_ORDER, **_RAISES_WITHOUT_EXPECTATION},
                        "any_order_match": {**ANY_ORDER, **_RAISES_WITHOUT_EXPECTATION},
                    },
                ),
                "with_parameters": BoolOption(
                    False, on={"argument_rule": "text_equal", "preprocessing": "one_set_per_name"}
                ),
            },
        )
    },
    aliases=("azure-ai-evaluation",),
    quirks=(
        Quirk(
            "There is one set of parameters for each name, so two calls of one tool with different arguments cannot be "
            "expected: the last one wins.",
            "each expectation has its own arguments",
            {"preprocessing": "as_given"},
        ),
        Quirk(
            "Parameters are compared as text: 7 is '7' and True is 'True', but 1 is not 1.0.",
            "equal values",
            {"argument_rule": ReplaceValue({"text_equal": "equal"}), "missing_arguments": "empty"},
        ),
        Quirk(
            "That nothing is to be called cannot be tested: an empty expectation raises.",
            "1 if nothing was called, else 0",
            {"empty_scores": (1, 0, 0)},
        ),
    ),
)

PROMPTFOO = Peer(
    "promptfoo",
    "tool-call-f1, trajectory:tool-used, trajectory:tool-sequence, trajectory:tool-args-match",
    "0.121.20",
    {
        "tool-call-f1": Variant(
            Formula(
                collapse="both",
                measure="f1",
                empty_scores=("raises", "raises", 0),
                raised_error="Error where nothing is expected",
            ),
            {"threshold": NumberOption(1, "threshold")},
        ),
        "trajectory:tool-used": Variant(
            Formula(
                name_rule="glob",
                pairing="any",
                measure="all_expected",
                empty_scores=("raises", "raises", 0),
                raised_error="Error where nothing is expected",
                threshold=1,
            ),
            {
                "min": NumberOption(None, "min_count", maximum=float("inf"), is_integer=True),
                "max": NumberOption(None, "max_count", maximum=float("inf"), is_integer=True),
                "value": ChoiceOption(
                    "all_expected",
                    {
                        "all_expected": {},
                        "first_expected_count": {
                            "selection": "one_tool",
                            "driving_side": "called",
                            "measure": "count",
                            "empty_scores": ("raises", "raises", "measured"),
                            "min_count": ReplaceValue({0: 1}),
                        },
                    },
                ),
            },
        ),
        "trajectory:tool-sequence": Variant(
            Formula(name_rule="glob", raised_error="Error where nothing is expected", threshold=1),
            {
                "mode": ChoiceOption(
                    "in_order",
                    {
                        "in_order": {**IN_ORDER, **_RAISES_WITHOUT_EXPECTATION},
                        "exact": {**EXACT_ORDER, **_RAISES_WITHOUT_EXPECTATION},
                    },
                )
            },
        ),
        "trajectory:tool-args-match": Variant(
            Formula(
                name_rule="glob",
                missing_arguments="none",
                preprocessing="stripped",
                selection="one_tool",
                pairing="any",
                measure="all_expected",
                empty_scores=("raises", "raises", 0),
                raised_error="Error where nothing is expected",
                threshold=1,
            ),
            {
                "mode": ChoiceOption(
                    "partial", {"partial": {"argument_rule": "partial"}, "exact": {"argument_rule": "js_equal"}}
                ),
                "defaults": MappingOption("defaults"),
                "ignore": TextListOption("ignored_arguments"),
            },
        ),
    },
    variant_option="assertion",
    quirks=(
        Quirk(
            "tool-call-f1 compares sets of names, and its threshold is 1 unless another is given.",
            "every call counts",
            {"collapse": "none"},
            variants=("tool-call-f1",),
        ),
        Quirk(
            "An empty expectation throws, so that nothing is to be called cannot be tested.",
            "1 if nothing was called, else 0",
            {"empty_scores": (1, 0, 0)},
        ),
        Quirk(
            "trajectory:tool-args-match looks at the first expectation only.", "argument_correctness judges them all"
        ),
        Quirk(
            "Defaults are removed from the calls only, so under exact an expectation that states a default fails.",
            "defaults of a tool in a golden are filled in on both sides",
        ),
        Quirk(
            "Calls named shell, exec_command or local_shell that carry a command are no tools to it.",
            "nothing to set: here they are tools",
        ),
    ),
)

SUITE_PEERS = (GALTEA, MLFLOW, AZURE, PROMPTFOO)
