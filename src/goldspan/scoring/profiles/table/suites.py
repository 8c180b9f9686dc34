"""The evaluation suites of larger platforms."""

from __future__ import annotations

from goldspan.scoring.profiles.formula import Formula
from goldspan.scoring.profiles.options import Axes, Instead, Number, Switch, Texts, Values, Word
from goldspan.scoring.profiles.peers import Peer, Quirk, Variant
from goldspan.scoring.profiles.table.trajectories import ANY_ORDER, EXACT, IN_ORDER

_EMPTY_RAISES: Axes = {"empty": ("raises", "raises", 0)}

GALTEA = Peer(
    "galtea",
    "Tool Correctness",
    "as documented: the service computes it",
    {
        "": Variant(
            Formula(name="canonical", collapse="both", measure="all", threshold=1),
            {"metric": Word("galtea_tool_correctness", {"galtea_tool_correctness": {}})},
        )
    },
    quirks=(
        Quirk(
            "Repeated calls count once, so an agent that loops passes.",
            "each call counts",
            {"collapse": "none", "assign": "optimal"},
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
                args="json_equal",
                no_args="none",
                view="all_or_none",
                gate="same_count",
                measure="all",
                empty=("raises", "raises", 0),
                raises="MlflowException where nothing is expected: an empty list counts as no expectation at all",
                threshold=1,
            ),
            {
                "should_exact_match": Switch(True, off={"needs_model": "asks a language model without exact match"}),
                "should_consider_ordering": Switch(False, on={"pairing": "position"}, off={"collapse": "both"}),
            },
        )
    },
    quirks=(
        Quirk(
            "Without ordering, sets are compared after their lengths: [A, A, B] passes for [A, B, B].",
            "each call counts",
            {"collapse": "none", "assign": "optimal"},
        ),
        Quirk(
            "One expectation without arguments switches the arguments of all off.",
            "such an expectation takes any arguments, and the others are judged",
            {"view": "as_given", "args": "equal_where_stated"},
        ),
        Quirk("Arguments are compared as JSON text: 1 is not 1.0.", "1 is 1.0", {"args": "equal_where_stated"}),
        Quirk(
            "That nothing is to be called cannot be tested: an empty expectation raises.",
            "1 if nothing was called, else 0",
            {"empty": (1, 0, 0)},
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
                name="strip",
                no_args="none",
                raises="EvaluationException where nothing is expected",
                threshold=1,
            ),
            {
                "matching_mode": Word(
                    "exact_match",
                    {
                        "exact_match": {**EXACT, **_EMPTY_RAISES},
                        "in_order_match": {**IN_ORDER, **_EMPTY_RAISES},
                        "any_order_match": {**ANY_ORDER, **_EMPTY_RAISES},
                    },
                ),
                "with_parameters": Switch(False, on={"args": "text_equal", "view": "one_set_per_name"}),
            },
        )
    },
    also_called=("azure-ai-evaluation",),
    quirks=(
        Quirk(
            "There is one set of parameters for each name, so two calls of one tool with different arguments cannot be "
            "expected: the last one wins.",
            "each expectation has its own arguments",
            {"view": "as_given"},
        ),
        Quirk(
            "Parameters are compared as text: 7 is '7' and True is 'True', but 1 is not 1.0.",
            "equal values",
            {"args": Instead({"text_equal": "equal"}), "no_args": "empty"},
        ),
        Quirk(
            "That nothing is to be called cannot be tested: an empty expectation raises.",
            "1 if nothing was called, else 0",
            {"empty": (1, 0, 0)},
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
                collapse="both", measure="f1", empty=("raises", "raises", 0), raises="Error where nothing is expected"
            ),
            {"threshold": Number(1, "threshold")},
        ),
        "trajectory:tool-used": Variant(
            Formula(
                name="glob",
                pairing="any",
                measure="all_expected",
                empty=("raises", "raises", 0),
                raises="Error where nothing is expected",
                threshold=1,
            ),
            {
                "min": Number(None, "least", most=float("inf"), whole=True),
                "max": Number(None, "most", most=float("inf"), whole=True),
                "value": Word(
                    "all_expected",
                    {
                        "all_expected": {},
                        "first_expected_count": {
                            "probe": "one_tool",
                            "drive": "called",
                            "measure": "count",
                            "empty": ("raises", "raises", "measured"),
                            "least": Instead({0: 1}),
                        },
                    },
                ),
            },
        ),
        "trajectory:tool-sequence": Variant(
            Formula(name="glob", raises="Error where nothing is expected", threshold=1),
            {
                "mode": Word(
                    "in_order",
                    {"in_order": {**IN_ORDER, **_EMPTY_RAISES}, "exact": {**EXACT, **_EMPTY_RAISES}},
                )
            },
        ),
        "trajectory:tool-args-match": Variant(
            Formula(
                name="glob",
                no_args="none",
                view="stripped",
                probe="one_tool",
                pairing="any",
                measure="all_expected",
                empty=("raises", "raises", 0),
                raises="Error where nothing is expected",
                threshold=1,
            ),
            {
                "mode": Word("partial", {"partial": {"args": "partial"}, "exact": {"args": "js_equal"}}),
                "defaults": Values("defaults"),
                "ignore": Texts("leave_out"),
            },
        ),
    },
    chooser="assertion",
    quirks=(
        Quirk(
            "tool-call-f1 compares sets of names, and its threshold is 1 unless another is given.",
            "every call counts",
            {"collapse": "none"},
            of=("tool-call-f1",),
        ),
        Quirk(
            "An empty expectation throws, so that nothing is to be called cannot be tested.",
            "1 if nothing was called, else 0",
            {"empty": (1, 0, 0)},
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

SUITES = (GALTEA, MLFLOW, AZURE, PROMPTFOO)
