"""Tests of the documentation: its examples run as shown, its links resolve, and it names every setting."""

from __future__ import annotations

import ast
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from inspect import signature
from pathlib import Path

import pytest

import goldspan
from goldspan import judge, semconv
from goldspan.sinks.drop_counters import DROP_COUNTERS
from support import docs_examples
from support.docs_examples import ROOT, Block, Command, ExampleError, blocks, commands, matches

PAGES_WITH_EXAMPLES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLE_PAGES = sorted((ROOT / "examples").rglob("README.md"))
PAGES = [
    *PAGES_WITH_EXAMPLES,
    *EXAMPLE_PAGES,
    *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")),
]
PACKAGES = sorted(path.parent for path in (ROOT / "src" / "goldspan").rglob("*/__init__.py"))
MODULES = sorted((ROOT / "src" / "goldspan").rglob("*.py"))
NAMES = {"argnames": "page", "ids": lambda page: str(page.relative_to(ROOT))}


QUICK_PAGES = [ROOT / "README.md", ROOT / "docs" / "live.md"]
"""The pages whose examples `make test` runs: most readers see them first."""


@pytest.mark.parametrize(
    argvalues=[
        page if page in QUICK_PAGES else pytest.param(page, marks=pytest.mark.e2e) for page in PAGES_WITH_EXAMPLES
    ],
    **NAMES,
)
def test_the_examples_of_a_page_run_as_shown(page: Path, tmp_path: Path) -> None:
    """Each page runs in its own process and directory, because examples may set up a whole application."""
    if (ROOT / "examples").is_dir():
        shutil.copytree(ROOT / "examples", tmp_path / "examples")
    done = _run(page, tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(argvalues=PAGES, **NAMES)
def test_every_link_inside_the_project_resolves(page: Path) -> None:
    text = _without_code(page)
    links = re.findall(r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|(?:src|href)=\"([^\"]+)\"", text)
    broken = [
        target
        for target in (plain or html for plain, html in links)
        if not re.match(r"[a-z]+:", target) and not _link_resolves(page, target)
    ]
    assert broken == []


def test_the_page_of_conventions_matches_the_code() -> None:
    """`make docs` generates the page."""
    generator = runpy.run_path(str(ROOT / "docs" / "generate_conventions.py"))
    page = (ROOT / "docs" / "conventions.md").read_text(encoding="utf-8")
    assert generator["page"](page) == page


def test_the_diagrams_match_the_code_that_draws_them() -> None:
    """`make docs` draws them."""
    script = runpy.run_path(str(ROOT / "docs" / "generate_diagrams.py"))
    drawn = {f"{name}.svg": draw().to_svg() for name, draw in script["DIAGRAMS"].items()}
    assert drawn == {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "diagrams").iterdir()}


@pytest.mark.parametrize(argvalues=PAGES_WITH_EXAMPLES, **NAMES)
def test_each_example_is_run_or_states_why_not(page: Path) -> None:
    reasons = [block.notes["not run"] for block in blocks(page.read_text("utf-8")) if "not run" in block.notes]
    assert all(len(reason) > 5 for reason in reasons)


def test_the_program_in_examples_scores_an_agent_and_a_component() -> None:
    program = ROOT / "examples" / "agent.py"
    done = subprocess.run([sys.executable, "-W", "error", program], capture_output=True, encoding="utf-8", check=True)
    component, agent = done.stdout.splitlines()
    assert component == "look_up_policy: passed=True. All 2 expected tools were called, in order."
    assert agent.startswith("invoke_agent agent: passed=False. Expected list_bookings was called;")
    assert agent.endswith("; cancel_booking was called but forbidden.")


def test_the_page_on_live_scoring_names_every_argument_and_every_limit() -> None:
    page = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")
    arguments = {*signature(goldspan.ScoringProcessor).parameters, *signature(goldspan.Limits).parameters}
    assert {name for name in arguments if f"`{name}`" not in page} == set()


def test_the_page_on_architecture_names_every_package_and_has_at_most_250_lines() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (ROOT / "src" / "goldspan").glob("*/__init__.py")}
    assert {package for package in packages if f"`{package}`" not in page} == set()
    assert len(page.splitlines()) <= 250


@pytest.mark.parametrize("package", PACKAGES, ids=[str(path.relative_to(ROOT / "src")) for path in PACKAGES])
def test_the_docstring_of_a_package_names_each_of_its_modules(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    modules = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__", "_version"}
    assert {module for module in modules if f"`{module}`" not in docstring} == set()


def test_the_first_line_of_a_module_has_at_most_100_characters() -> None:
    texts = {path: path.read_text(encoding="utf-8").removeprefix("r") for path in MODULES}
    assert [path for path, text in texts.items() if not text.startswith('"""')] == []
    first_lines = {path: text.strip('"').splitlines()[0].rstrip('"') for path, text in texts.items()}
    assert {path: line for path, line in first_lines.items() if len(line) > 100} == {}


def test_the_page_on_the_judge_names_every_argument_every_attribute_and_every_counter() -> None:
    page = (ROOT / "docs" / "judge.md").read_text(encoding="utf-8")
    arguments = {*signature(judge.Judge).parameters, *signature(judge.ModelEndpoint).parameters}
    published = {value for name, value in vars(semconv).items() if name.startswith("JUDGE_")} - {
        counter.name for counter in DROP_COUNTERS
    }
    assert len(published) == 15
    assert {name for name in (*arguments, *published) if not re.search(rf"[`(\s]{re.escape(name)}[`=,]", page)} == set()


def test_the_page_on_sinks_names_every_drop_counter() -> None:
    page = (ROOT / "docs" / "sinks.md").read_text(encoding="utf-8")
    assert {counter.name for counter in DROP_COUNTERS if f"| `{counter.name}` |" not in page} == set()


def test_blocks_are_found_with_their_language_place_and_notes() -> None:
    page = """\
<!-- file: goldens.yaml -->

```yaml
goldens:
  - id: a
```

<!-- not run: needs a collector -->
<!-- exit status: 1 -->
~~~~ console title="x"
$ goldspan score
```
~~~~

Text with `code` and ```` ``` ```` in it.

<!-- output -->
A paragraph, so the note above belongs to nothing.

1. In a list:

   ```python
   def f():
       return 1

   ```
"""
    assert list(blocks(page)) == [
        Block("yaml", "goldens:\n  - id: a\n", 4, {"file": "goldens.yaml"}),
        Block("console", "$ goldspan score\n```\n", 11, {"not run": "needs a collector", "exit status": "1"}),
        Block("python", "def f():\n    return 1\n\n", 23, {}),
    ]


def test_a_block_without_an_end_is_reported() -> None:
    with pytest.raises(ExampleError, match="starts in line 2 has no end"):
        list(blocks("text\n```python\nx = 1\n"))


def test_a_page_without_blocks_has_none() -> None:
    assert list(blocks("# Title\n\nOnly words.\n")) == []


def test_commands_are_separated_from_their_output() -> None:
    text = (
        "$ pip install goldspan\n$ goldspan score \\\n>   traces.jsonl\nline one \\\n\n  line two\n\n$ goldspan demo\n"
    )
    assert list(commands(text)) == [
        Command("pip install goldspan", ""),
        Command("goldspan score traces.jsonl", "line one \\\n\n  line two"),
        Command("goldspan demo", ""),
    ]


@pytest.mark.parametrize(
    ("shown", "output", "same"),
    [
        pytest.param("a\nb", "a\nb\n", True, id="equal"),
        pytest.param("a\nb", "a   \nb", True, id="white space at the end of a line"),
        pytest.param("a", "\n  \na\n\n", True, id="blank lines around it"),
        pytest.param("a\nb", "a\n\nb", False, id="blank lines in between count"),
        pytest.param("a\nb", "a\nc", False, id="another line"),
        pytest.param("a", "a\nb", False, id="the output is longer than shown"),
        pytest.param("a\nb", "a", False, id="the output is shorter than shown"),
        pytest.param("a\n...\nd", "a\nb\nc\nd", True, id="lines left out"),
        pytest.param("a\n...\nd", "a\nd", True, id="no line left out"),
        pytest.param("a\n...", "a\nb\nc", True, id="the rest left out"),
        pytest.param("a\n...\nd", "a\nb\nc", False, id="the end differs"),
        pytest.param("took ... ms", "took 3.1 ms", True, id="text left out"),
        pytest.param("took ... ms", "took 3\n1 ms", False, id="left out text stays in its line"),
        pytest.param("a+b [x]", "a+b [x]", True, id="shown text is no pattern"),
        pytest.param("  a", "a", False, id="indentation counts"),
    ],
)
def test_shown_output_is_compared_with_the_actual_output(shown: str, output: str, same: bool) -> None:
    assert matches(shown, output) is same


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        pytest.param("```python\nx = 1\n```\n```python\nassert x == 1\n```", None, id="blocks share names"),
        pytest.param("words\n```python\n1 / 0\n```", r'page.md", line 3', id="an error shows the line of the page"),
        pytest.param("<!-- not run: why -->\n```python\n1 / 0\n```", None, id="not run"),
        pytest.param(
            "```python\nprint(open('a.txt').read())\n```\n<!-- output -->\n```text\nhello\n```\n"
            "<!-- file: a.txt -->\n```text\nhello\n```",
            None,
            id="files are written first, and output is compared",
        ),
        pytest.param(
            "```python\nprint('a')\n```\n<!-- output -->\n```text\nb\n```",
            "line 6: the output differs from 'b' on",
            id="another output",
        ),
        pytest.param(
            "```python\nprint('a', 'b', 'c', sep='\\n')\n```\n<!-- output -->\n```text\na\n...\nd\n```",
            "the output differs from 'd' on",
            id="the first line that differs is named",
        ),
        pytest.param(
            "```python\nprint('a', 'b', sep='\\n')\n```\n<!-- output -->\n```text\na\n```",
            "the output differs from the end on",
            id="the output is longer than shown",
        ),
        pytest.param("```console\n$ exit 7\n```", None, id="other commands are not run"),
        pytest.param("```console\n$ goldspan --help\n...Usage: goldspan...\n...\n```", None, id="a command"),
        pytest.param(
            "```console\n$ goldspan --help\nnonsense\n```",
            "--help`: the output differs from 'nonsense'",
            id="a command with another output",
        ),
        pytest.param(
            "```console\n$ goldspan --version\n```\n<!-- output -->\n```text\ngoldspan...\n```",
            None,
            id="the output of a command in a block of its own",
        ),
        pytest.param(
            "<!-- files: tests/typing -->\n\n```python\nprint(open('api.py').readline())\n```\n"
            "<!-- output -->\n```\n...type checker...\n```",
            None,
            id="files of the project",
        ),
        pytest.param("```console\n$ goldspan no-such\n```", "exits with 2, not 0", id="a command that fails"),
        pytest.param(
            "<!-- exit status: 2 -->\n```console\n$ goldspan no-such\n```",
            None,
            id="a command with an expected failure",
        ),
    ],
)
def test_examples_that_differ_from_their_page_are_reported(page: str, complaint: str | None, tmp_path: Path) -> None:
    written = tmp_path / "page.md"
    written.write_text(page)
    done = _run(written, tmp_path)
    assert (done.returncode == 0) is (complaint is None), done.stdout
    assert re.search(complaint or "examples run", done.stdout)


def _run(page: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    scripts = Path(sys.executable).parent
    environment = {
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PYTHONUTF8": "1",
        "COLUMNS": "100",
        **{f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "LOGS", "METRICS")},  # the tests run no collector
    }
    return subprocess.run(
        [sys.executable, "-W", "error", docs_examples.__file__, str(page)],
        cwd=directory,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )


def _without_code(page: Path) -> str:
    text = re.sub(r"^\s*(`{3,}|~{3,}).*?^\s*\1", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "`code`", text)


def _link_resolves(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    return file.exists() and (not anchor or anchor in _anchors(file))


def _anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub generates for the headings of a page."""
    seen: Counter[str] = Counter()
    anchors = set()
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*$", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return anchors
