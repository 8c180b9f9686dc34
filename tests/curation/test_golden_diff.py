"""Two sets of goldens are compared by meaning, and by their verdicts on the same runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from goldspan import Goldens, Run, ToolCall, load_goldens
from goldspan.curation.golden_diff import GoldenChange, VerdictChange, describe_changes, diff_goldens, diff_verdicts


def golden_file(folder: Path, name: str, text: str) -> Goldens:
    (path := folder / name).write_text(text)
    return load_goldens(path)


@pytest.mark.parametrize(
    ("old", "new", "sentences"),
    [
        ("tools: [a]", "tools: [a]", []),
        ("tools: [a]", "tools: [{name: a}]", []),
        ("tools: [a, b]", "tools: [b, a]", []),
        ("tools: [a]", "tools: [a, search_hotels]", ["now requires search_hotels"]),
        ("tools: [a, b]", "tools: [a]", ["no longer requires b"]),
        ("tools: [a]", "tools: [a, a]", ["now requires a"]),
        ("tools: [a]", "tools: [a, {name: b, optional: true}]", ["now allows b"]),
        ("tools: [{name: b, times: {min: 0}}]", "tools: []", ["no longer allows b, 0 or more times"]),
        ("tools: [a]", "tools: [{name: a, optional: true}]", ["a is now optional"]),
        ("tools: [{name: a, optional: true}]", "tools: [a]", ["a is now required"]),
        ("tools: [a]", "tools: [{name: a, times: 1}]", ["a: once -> exactly once"]),
        (
            "tools: [{name: a, times: 2}]",
            "tools: [{name: a, times: {min: 1, max: 3}}]",
            ["a: exactly 2 times -> 1 to 3 times"],
        ),
        ("tools: [a]", "tools: [{name: a, times: {min: 2}}]", ["a: once -> 2 or more times"]),
        (
            "tools: [{name: a, arguments: {x: 1, y: 2}}]",
            "tools: [{name: a, arguments: {x: {regex: b}, z: 3}}]",
            ["a: argument x 1 -> {'regex': 'b'}", "a: argument z any -> 3", "a: argument y 2 -> any"],
        ),
        (
            "tools: [a]",
            "tools: [{name: a, arguments: {x: null}}]",
            ["a: now states arguments", "a: argument x any -> None"],
        ),
        ("tools: [{name: a, arguments: {}}]", "tools: [a]", ["a: no longer states arguments"]),
        ("tools: [{name: a, result: 1}]", "tools: [a]", ["a: result 1 -> any"]),
        (
            "tools: [a]",
            "tools: [{name: a, match: subset, agent: B}]",
            ["a: match 'exact' -> 'subset'", "a: agent None -> 'B'"],
        ),
        (
            "tools: [{any_of: [a, b]}]",
            "tools: [{any_of: [a, b, c]}]",
            ["now requires one of a or b or c", "no longer requires one of a or b"],
        ),
        (
            "tools: [{any_of: [a, b]}]",
            "tools: [{any_of: [a, {name: b, arguments: {x: 1}}]}]",
            ["b: now states arguments", "b: argument x any -> 1"],
        ),
        ("tools: [a, b]", "order: exact\n    tools: [a, b]", ["order any -> exact"]),
        (
            "order: in_order\n    tools: [a, b]",
            "order: in_order\n    tools: [b, a]",
            ["order of the calls: a, b -> b, a"],
        ),
        (
            "order: in_order\n    tools: [a, b]",
            "order: in_order\n    tools: [{parallel: [a, b]}]",
            ["order of the calls: a, b -> (a & b)"],
        ),
        ("tools: [a]", "tools: [a]\n    forbid: ['d*']", ["now forbids d*"]),
        (
            "tools: [a]\n    forbid: ['d*']\n    max_calls: 3",
            "tools: [a]",
            ["max_calls 3 -> none", "no longer forbids d*"],
        ),
        ("tools: [a]", "tools: [a]\n    thresholds: {tool_f1: 0.8}", ["threshold of tool_f1 none -> 0.8"]),
        ("tools: [a]", "tools: [a]\n    input: Hi", ["input none -> 'Hi'"]),
        ("input: ' HI'\n    tools: [a]", "input: hi\n    tools: [a]", []),
        (
            "tools: [a]\n    when: {agent: x}",
            "tools: [a]\n    component: c",
            ["when {'agent': 'x'} -> none", "component none -> 'c'"],
        ),
        ("tools: [a]\n    note: x", "tools: [a]\n    note: y", []),
    ],
)
@pytest.mark.filterwarnings("ignore::goldspan.errors.GoldspanWarning")
def test_changes_are_described_in_terms_of_meaning(tmp_path: Path, old: str, new: str, sentences: list[str]) -> None:
    before, after = (golden_file(tmp_path, "a.yaml", f"goldens:\n  - id: g\n    {text}\n")["g"] for text in (old, new))
    assert list(describe_changes(before, after)) == sentences
    assert list(describe_changes(after, after)) == []


def test_a_change_of_declarations_is_a_change_of_every_golden(tmp_path: Path) -> None:
    before = golden_file(tmp_path, "a.yaml", "goldens: [{id: g, tools: [a]}]")
    after = golden_file(tmp_path, "b.yaml", "tools: {a: {aliases: [b]}}\ngoldens: [{id: g, tools: [a]}]")
    assert diff_goldens(before, after) == [
        GoldenChange("changed", "g", ("the declarations of tools and servers changed",))
    ]


def test_added_and_removed_goldens_are_summarized(tmp_path: Path) -> None:
    before = golden_file(tmp_path, "a.yaml", "goldens: [{id: same, tools: [a]}, {id: gone, tools: []}]")
    after = golden_file(
        tmp_path,
        "b.yaml",
        "goldens: [{id: rule, forbid: [x]}, {id: cap, max_calls: 3}, {id: new, tools: [b, c]}, {id: same, tools: [a]}]",
    )
    assert diff_goldens(before, after) == [
        GoldenChange("added", "rule", ("a policy that forbids x",)),
        GoldenChange("added", "cap", ("a policy",)),
        GoldenChange("added", "new", ("requires b, c",)),
        GoldenChange("removed", "gone", ("allows no tool",)),
    ]


def test_verdicts_of_both_sets_are_compared_run_by_run(tmp_path: Path) -> None:
    before = golden_file(
        tmp_path, "a.yaml", "goldens: [{id: one, input: x, tools: [a]}, {id: two, input: y, tools: [a]}]"
    )
    after = golden_file(
        tmp_path, "b.yaml", "goldens: [{id: one, input: x, tools: [a, b]}, {id: three, input: y, tools: [a]}]"
    )
    runs = [
        Run("r1", input="x", tool_calls=(ToolCall("a"),)),
        Run("r2", input="x", tool_calls=(ToolCall("a"), ToolCall("b"))),
        Run("r3", input="y", tool_calls=(ToolCall("a"),)),
        Run("r4", input="z"),
        Run("r5", input="x", tool_calls=()),
    ]
    found = diff_verdicts(before, after, runs)
    assert found.runs == 5
    assert found.counts == {
        ("pass", "fail"): 1, ("pass", "pass"): 2, ("no_golden", "no_golden"): 1, ("fail", "fail"): 1
    }  # fmt: skip
    assert found.changes == (
        VerdictChange("r1", "one", "one", "pass", "fail", "Expected b was not called."),
        VerdictChange("r3", "two", "three", "pass", "pass", "Expected a was called."),
    )
