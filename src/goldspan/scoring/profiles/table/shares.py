"""Peers whose number is the share of the expected calls that were made."""

from __future__ import annotations

from goldspan.scoring.profiles.formula import Formula
from goldspan.scoring.profiles.options import ForModel, Instead, Number, Switch, Tool, Unused, Word, Words
from goldspan.scoring.profiles.peers import Peer, Quirk, Variant

SAME_PLACES = {"gate": "same_count", "pairing": "position", "measure": "all", "empty": (1, 0, 0)}
"""The same calls at the same places, and nothing else."""

DEEPEVAL = Peer(
    "deepeval",
    "ToolCorrectnessMetric",
    "4.3.1",
    {
        "": Variant(
            Formula(types=True, no_args="none", assign="best_by_content"),
            {
                "evaluation_params": Words({"input_parameters": {"args": "union_share"}, "output": {"output": True}}),
                "should_consider_ordering": Switch(False, on={"pairing": "lcs"}),
                "should_exact_match": Switch(False, on={**SAME_PLACES, "args": Instead({"union_share": "equal"})}),
                "threshold": Number(0.5, "threshold"),
                "strict_mode": Switch(False, on={"threshold": 1.0, "strict": True}),
                "available_tools": ForModel(
                    "asks a language model which of the available tools were the right ones; "
                    "so does goldspan's judge, beside this number or lowering it"
                ),
                "model": Unused(),
                "include_reason": Unused(True),
                "async_mode": Unused(True),
                "verbose_mode": Unused(False),
            },
        )
    },
    quirks=(
        Quirk(
            "A call that was used is remembered by its content, so two identical calls can be used only once: "
            "[A, A] for [A, A] scores 0.5, even where arguments are not evaluated.",
            "each call counts by itself",
            {"assign": Instead({"best_by_content": "optimal"})},
        ),
        Quirk(
            "Each expectation takes the best call that is left, so the order of the list can change the score.",
            "the best pairing of all",
            {"assign": Instead({"best_by_content": "optimal"})},
        ),
        Quirk(
            "Input parameters that are missing on one side only raise AttributeError, for None against {} as well.",
            "no parameters are {}",
            {"no_args": "empty"},
        ),
        Quirk(
            "The documentation divides by the tools called; the code divides by those expected, so extra calls cost "
            "nothing.",
            "look at tool_precision or tool_f1 beside it",
        ),
    ),
)

EVAL_AI_LIBRARY = Peer(
    "eval_ai_library",
    "ToolCorrectnessMetric",
    "0.8.2",
    {
        "": Variant(
            Formula(empty=(1, 1, 0)),
            {
                "evaluation_params": Unused(()),
                "check_ordering": Switch(False, on={"pairing": "lcs"}),
                "exact_match": Switch(False, on=SAME_PLACES),
                "threshold": Number(0.5, "threshold"),
            },
        )
    },
    also_called=("eval-ai-library",),
    quirks=(
        Quirk(
            "Where nothing is expected, any calls at all score 1.0 (but not with exact_match).",
            "0.0",
            {"empty": (1, 0, 0)},
        ),
        Quirk("evaluation_params is accepted and ignored.", "argument_correctness judges arguments"),
        Quirk("exact_match wants the same order, though its page says `set`.", "mode: set, or order: exact"),
    ),
)

AXION = Peer(
    "axion",
    "ToolCorrectness",
    "7ab96dc",
    {
        "": Variant(
            Formula(),
            {
                "parameter_matching_strategy": Word(
                    "exact",
                    {"exact": {"args": "equal"}, "subset": {"args": "deep_superset"}, "fuzzy": {"args": "fuzzy"}},
                ),
                "check_parameters": Switch(False, off={"args": "ignore"}),
                "fuzzy_threshold": Number(0.8, "least_similarity"),
                "scoring": Word(
                    "recall",
                    {"recall": {}, "precision": {"measure": "precision", "empty": (1, 0, 1)}, "f1": {"measure": "f1"}},
                ),
                "strict_order": Switch(False, on=SAME_PLACES),
                "threshold": Number(0.5, "threshold", zero_is=0.5),
            },
        )
    },
    quirks=(
        Quirk(
            "Each expectation takes the first call that passes, which loses matches under subset and fuzzy.",
            "the best pairing of all",
            {"assign": Instead({"first": "optimal"})},
        ),
        Quirk(
            "The precision of an agent that calls nothing is 1.0, and passes.",
            "0.0 where calls were expected",
            {"empty": (1, 0, 0)},
        ),
        Quirk("A threshold of 0 is taken for 0.5.", "leave the threshold out and read the value"),
        Quirk(
            "Under fuzzy, 5 and 5.0 are of different types, and None agrees with nothing, not even None.",
            "similar, approx and type in a golden",
        ),
        Quirk("subset forgives further arguments, never another value.", "fuzzy, or similar in a golden"),
        Quirk("strict_order ignores scoring.", "order: in_order gives a share"),
    ),
)

RAGAS = Peer(
    "ragas",
    "ToolCallAccuracy, ToolCallF1",
    "0.4.3",
    {
        "ToolCallAccuracy": Variant(
            Formula(args="expected_share"),
            {
                "api": Word("legacy", {"legacy": {}, "collections": {}}),
                "strict_order": Switch(
                    True,
                    on={"gate": "same_names", "pairing": "position"},
                    off={"gate": "same_names_in_any_order", "pairing": "sorted"},
                ),
            },
        ),
        "ToolCallF1": Variant(
            Formula(args="hash_equal", collapse="both", measure="f1", digits=4, empty=(0, 0, 0)),
            {"api": Word("legacy", {"legacy": {}, "collections": {}})},
        ),
    },
    chooser="metric",
    quirks=(
        Quirk(
            "ToolCallAccuracy is 0 as soon as one call is missing or extra.",
            "no such gate: the share of what was expected",
            {"gate": "none"},
            of=("ToolCallAccuracy",),
        ),
        Quirk(
            "Without strict_order, pairs are made by sorting, so one different argument can shift all later pairs.",
            "the best pairing of all",
            {"pairing": Instead({"sorted": "one_to_one"}), "assign": "optimal"},
        ),
        Quirk(
            "Arguments are compared as text: 7 is '7' and None is 'None', but 1 is not 1.0.",
            "equal values; a tool's schema says which texts are numbers",
        ),
        Quirk(
            "ToolCallF1 counts repeated calls once.",
            "every call counts",
            {"collapse": "none", "args": Instead({"hash_equal": "equal"})},
        ),
        Quirk(
            "Nothing expected and nothing called is 1.0 for ToolCallAccuracy and 0.0 for ToolCallF1.",
            "1.0 for both",
            {"empty": (1, 0, 0)},
        ),
    ),
)

STRANDS = Peer(
    "strands",
    "exact_match_scorer, in_order_match_scorer, any_order_match_scorer, ToolCalled",
    "1.7.0",
    {
        "exact_match_scorer": Variant(
            Formula(
                pairing="position", empty=("raises", "raises", 0), raises="ZeroDivisionError where nothing is expected"
            )
        ),
        "in_order_match_scorer": Variant(Formula(pairing="walk", empty=(1, 1, 0))),
        "any_order_match_scorer": Variant(Formula(collapse="matched", empty=(1, 1, 0))),
        "ToolCalled": Variant(
            Formula(
                probe="one_tool",
                measure="all_expected",
                empty=("raises", "raises", 0),
                raises="TypeError unless it is told a tool to look for",
                threshold=1,
            ),
            {"tool": Tool(first="first_expected")},
        ),
    },
    chooser="scorer",
    also_called=("strands-agents-evals",),
    quirks=(
        Quirk(
            "exact_match_scorer gives 1.0 whatever follows the expected calls.",
            "the same number of calls",
            {"gate": "same_count"},
            of=("exact_match_scorer",),
        ),
        Quirk(
            "in_order_match_scorer stops at the first expected call that is missing: [B, C] for [A, B, C] is 0.",
            "the longest common sequence: 2/3",
            {"pairing": Instead({"walk": "lcs"})},
        ),
        Quirk(
            "any_order_match_scorer counts distinct names above the line and all below: [A, A] for [A, A] is 0.5.",
            "every call counts",
            {"collapse": "none"},
        ),
        Quirk(
            "Where nothing is expected, exact_match_scorer divides by zero and the others give 1.0.",
            "1.0 if nothing was called, else 0.0",
            {"empty": (1, 0, 0)},
        ),
    ),
)

SHARES = (DEEPEVAL, EVAL_AI_LIBRARY, AXION, RAGAS, STRANDS)
