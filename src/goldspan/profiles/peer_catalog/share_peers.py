"""Peers that score a share of calls, and the checkers of two benchmarks."""

from __future__ import annotations

from goldspan.profiles.peer_options import (
    BoolOption,
    ChoiceOption,
    ChoicesOption,
    Formula,
    ModelOption,
    NumberOption,
    Peer,
    Quirk,
    ReplaceValue,
    ToolOption,
    UnusedOption,
    Variant,
)

SAME_CALLS_IN_PLACE = {"gate": "same_count", "pairing": "position", "measure": "all", "empty_scores": (1, 0, 0)}
"""The same calls at the same positions, and no other calls."""

DEEPEVAL = Peer(
    "deepeval",
    "ToolCorrectnessMetric",
    "4.3.1",
    {
        "": Variant(
            Formula(compares_types=True, missing_arguments="none", assignment="best_by_content"),
            {
                "evaluation_params": ChoicesOption(
                    {"input_parameters": {"argument_rule": "union_share"}, "output": {"compares_outputs": True}}
                ),
                "should_consider_ordering": BoolOption(False, on={"pairing": "lcs"}),
                "should_exact_match": BoolOption(
                    False, on={**SAME_CALLS_IN_PLACE, "argument_rule": ReplaceValue({"union_share": "equal"})}
                ),
                "threshold": NumberOption(0.5, "threshold"),
                "strict_mode": BoolOption(False, on={"threshold": 1.0, "is_strict": True}),
                "available_tools": ModelOption(
                    "asks a language model which of the available tools were the right ones; "
                    "so does goldspan's judge, beside this number or lowering it"
                ),
                "model": UnusedOption(),
                "include_reason": UnusedOption(True),
                "async_mode": UnusedOption(True),
                "verbose_mode": UnusedOption(False),
            },
        )
    },
    quirks=(
        Quirk(
            "A call that was used is remembered by its content, so two identical calls can be used only once: "
            "[A, A] for [A, A] scores 0.5, even where arguments are not evaluated.",
            "each call counts by itself",
            {"assignment": ReplaceValue({"best_by_content": "optimal"})},
        ),
        Quirk(
            "Each expectation takes the best call that is left, so the order of the list can change the score.",
            "the best pairing of all",
            {"assignment": ReplaceValue({"best_by_content": "optimal"})},
        ),
        Quirk(
            "Input parameters that are missing on one side only raise AttributeError, for None against {} as well.",
            "no parameters are {}",
            {"missing_arguments": "empty"},
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
            Formula(empty_scores=(1, 1, 0)),
            {
                "evaluation_params": UnusedOption(()),
                "check_ordering": BoolOption(False, on={"pairing": "lcs"}),
                "exact_match": BoolOption(False, on=SAME_CALLS_IN_PLACE),
                "threshold": NumberOption(0.5, "threshold"),
            },
        )
    },
    aliases=("eval-ai-library",),
    quirks=(
        Quirk(
            "Where nothing is expected, any calls at all score 1.0 (but not with exact_match).",
            "0.0",
            {"empty_scores": (1, 0, 0)},
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
                "parameter_matching_strategy": ChoiceOption(
                    "exact",
                    {
                        "exact": {"argument_rule": "equal"},
                        "subset": {"argument_rule": "deep_superset"},
                        "fuzzy": {"argument_rule": "fuzzy"},
                    },
                ),
                "check_parameters": BoolOption(False, off={"argument_rule": "ignore"}),
                "fuzzy_threshold": NumberOption(0.8, "min_similarity"),
                "scoring": ChoiceOption(
                    "recall",
                    {
                        "recall": {},
                        "precision": {"measure": "precision", "empty_scores": (1, 0, 1)},
                        "f1": {"measure": "f1"},
                    },
                ),
                "strict_order": BoolOption(False, on=SAME_CALLS_IN_PLACE),
                "threshold": NumberOption(0.5, "threshold", zero_value=0.5),
            },
        )
    },
    quirks=(
        Quirk(
            "Each expectation takes the first call that passes, which loses matches under subset and fuzzy.",
            "the best pairing of all",
            {"assignment": ReplaceValue({"first": "optimal"})},
        ),
        Quirk(
            "The precision of an agent that calls nothing is 1.0, and passes.",
            "0.0 where calls were expected",
            {"empty_scores": (1, 0, 0)},
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
            Formula(argument_rule="expected_share"),
            {
                "api": ChoiceOption("legacy", {"legacy": {}, "collections": {}}),
                "strict_order": BoolOption(
                    True,
                    on={"gate": "same_names", "pairing": "position"},
                    off={"gate": "same_names_in_any_order", "pairing": "sorted"},
                ),
            },
        ),
        "ToolCallF1": Variant(
            Formula(argument_rule="hash_equal", collapse="both", measure="f1", digits=4, empty_scores=(0, 0, 0)),
            {"api": ChoiceOption("legacy", {"legacy": {}, "collections": {}})},
        ),
    },
    variant_option="metric",
    quirks=(
        Quirk(
            "ToolCallAccuracy is 0 as soon as one call is missing or extra.",
            "no such gate: the share of what was expected",
            {"gate": "none"},
            variants=("ToolCallAccuracy",),
        ),
        Quirk(
            "Without strict_order, pairs are made by sorting, so one different argument can shift all later pairs.",
            "the best pairing of all",
            {"pairing": ReplaceValue({"sorted": "one_to_one"}), "assignment": "optimal"},
        ),
        Quirk(
            "Arguments are compared as text: 7 is '7' and None is 'None', but 1 is not 1.0.",
            "equal values; a tool's schema says which texts are numbers",
        ),
        Quirk(
            "ToolCallF1 counts repeated calls once.",
            "every call counts",
            {"collapse": "none", "argument_rule": ReplaceValue({"hash_equal": "equal"})},
        ),
        Quirk(
            "Nothing expected and nothing called is 1.0 for ToolCallAccuracy and 0.0 for ToolCallF1.",
            "1.0 for both",
            {"empty_scores": (1, 0, 0)},
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
                pairing="position",
                empty_scores=("raises", "raises", 0),
                raised_error="ZeroDivisionError where nothing is expected",
            )
        ),
        "in_order_match_scorer": Variant(Formula(pairing="walk", empty_scores=(1, 1, 0))),
        "any_order_match_scorer": Variant(Formula(collapse="matched", empty_scores=(1, 1, 0))),
        "ToolCalled": Variant(
            Formula(
                selection="one_tool",
                measure="all_expected",
                empty_scores=("raises", "raises", 0),
                raised_error="TypeError unless it is told a tool to look for",
                threshold=1,
            ),
            {"tool": ToolOption(first_tool_keyword="first_expected")},
        ),
    },
    variant_option="scorer",
    aliases=("strands-agents-evals",),
    quirks=(
        Quirk(
            "exact_match_scorer gives 1.0 whatever follows the expected calls.",
            "the same number of calls",
            {"gate": "same_count"},
            variants=("exact_match_scorer",),
        ),
        Quirk(
            "in_order_match_scorer stops at the first expected call that is missing: [B, C] for [A, B, C] is 0.",
            "the longest common sequence: 2/3",
            {"pairing": ReplaceValue({"walk": "lcs"})},
        ),
        Quirk(
            "any_order_match_scorer counts distinct names above the line and all below: [A, A] for [A, A] is 0.5.",
            "every call counts",
            {"collapse": "none"},
        ),
        Quirk(
            "Where nothing is expected, exact_match_scorer divides by zero and the others give 1.0.",
            "1.0 if nothing was called, else 0.0",
            {"empty_scores": (1, 0, 0)},
        ),
    ),
)

SHARE_PEERS = (DEEPEVAL, EVAL_AI_LIBRARY, AXION, RAGAS, STRANDS)


LANGCHAIN_BENCHMARKS = Peer(
    "langchain_benchmarks",
    "compare_outputs",
    "0.0.14",
    {
        "": Variant(
            Formula(
                gate="same_count",
                measure="all",
                empty_scores=("raises", "raises", 0),
                raised_error="ZeroDivisionError where nothing is expected: it also divides actual by expected calls",
                threshold=1,
            ),
            {"order_matters": BoolOption(True, on={"pairing": "position"})},
        )
    },
    aliases=("langchain-benchmarks",),
    quirks=(
        Quirk(
            "That nothing is to be called cannot be tested: an empty expectation divides by zero.",
            "1 if nothing was called, else 0",
            {"empty_scores": (1, 0, 0)},
        ),
    ),
)

BFCL = Peer(
    "bfcl",
    "the AST checker",
    "2026.3.23",
    {
        "": Variant(
            Formula(
                argument_rule="allowed", preprocessing="allowed_answers", gate="same_count", measure="all", threshold=1
            ),
            {
                # One rule for all: a simple or multiple case is one whose list of expectations holds one.
                "test_category": ChoiceOption("auto", {"auto": {}, "simple": {}, "multiple": {}, "parallel": {}}),
                "optional": UnusedOption("none", "how the case's possible answers were made"),
                "alternatives": UnusedOption(False, "how the case's possible answers were made"),
            },
        )
    },
    aliases=("bfcl-eval",),
    uses_case_data=True,
    quirks=(
        Quirk(
            "Each answer takes the first call that passes, which can fail where a pairing of all exists.",
            "the best pairing of all",
            {"assignment": "optimal"},
        ),
        Quirk(
            "Text is compared without case, blanks and , . / - _ * ^, so `April 1, 2024` is `april12024`.",
            "folded or similar in a golden",
        ),
        Quirk(
            "The mark of an argument that may be left out is read, for a list, as an empty list that is allowed.",
            "optional arguments with match: subset",
        ),
    ),
)

BENCHMARK_PEERS = (LANGCHAIN_BENCHMARKS, BFCL)
