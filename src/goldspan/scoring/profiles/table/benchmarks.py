"""The checkers of two benchmarks."""

from __future__ import annotations

from goldspan.scoring.profiles.formula import Formula
from goldspan.scoring.profiles.options import Switch, Unused, Word
from goldspan.scoring.profiles.peers import Peer, Quirk, Variant

LANGCHAIN_BENCHMARKS = Peer(
    "langchain_benchmarks",
    "compare_outputs",
    "0.0.14",
    {
        "": Variant(
            Formula(
                gate="same_count",
                measure="all",
                empty=("raises", "raises", 0),
                raises="ZeroDivisionError where nothing is expected: it also reckons calls made by calls expected",
                threshold=1,
            ),
            {"order_matters": Switch(True, on={"pairing": "position"})},
        )
    },
    also_called=("langchain-benchmarks",),
    quirks=(
        Quirk(
            "That nothing is to be called cannot be tested: an empty expectation divides by zero.",
            "1 if nothing was called, else 0",
            {"empty": (1, 0, 0)},
        ),
    ),
)

BFCL = Peer(
    "bfcl",
    "the AST checker",
    "2026.3.23",
    {
        "": Variant(
            Formula(args="allowed", view="allowed_answers", gate="same_count", measure="all", threshold=1),
            {
                # One rule for all: a simple or multiple case is one whose list of expectations holds one.
                "test_category": Word("auto", {"auto": {}, "simple": {}, "multiple": {}, "parallel": {}}),
                "optional": Unused("none", "how the case's possible answers were made"),
                "alternatives": Unused(False, "how the case's possible answers were made"),
            },
        )
    },
    also_called=("bfcl-eval",),
    reads_case=True,
    quirks=(
        Quirk(
            "Each answer takes the first call that passes, which can fail where a pairing of all exists.",
            "the best pairing of all",
            {"assign": "optimal"},
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

BENCHMARKS = (LANGCHAIN_BENCHMARKS, BFCL)
