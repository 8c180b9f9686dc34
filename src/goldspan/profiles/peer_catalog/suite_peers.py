"""Peers: the evaluation suites of larger platforms, galtea, mlflow, azure and promptfoo."""

from __future__ import annotations

from goldspan.profiles.peer_catalog.trajectory_peers import (
    ANY_ORDER,
    EXACT_ORDER,
    IN_ORDER,
)
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
    TextListOption,
    Variant,
)

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
