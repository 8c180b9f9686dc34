"""Runs the examples of a documentation page in the current directory, for tests/test_docs.py.

As a program: `python tests/support/docs_examples.py PAGE`. The language of a fenced block determines what happens:

- `python`: the block is executed; the blocks of a page share one namespace.
- `console`: each `$ goldspan ...` and `$ pytest ...` is run in a shell, and its output must equal the text that the
  block shows below it. A shown `...` matches any text in its line, or any lines if it is alone in a line. Other
  commands are not run.

An HTML comment directly above a block controls it:

- `<!-- not run: REASON -->`: the block is skipped.
- `<!-- file: NAME -->`: the block is written to that file before any block is run.
- `<!-- output -->`: the block is the output of the preceding `python` block or command.
- `<!-- exit status: N -->`: the exit status of the commands of a `console` block, if it is not 0.

`<!-- files: FOLDER -->` anywhere in the page copies the files of a folder of the project before any block is run.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"(?P<indent>\s*)(?P<marks>`{3,}|~{3,})\s*(?P<language>[\w+-]*)[^`]*")
_NOTE = re.compile(r"\s*<!--\s*(?P<name>not run|file|output|exit status)(?:\s*:\s*(?P<value>.*?))?\s*-->\s*")
_FILES = re.compile(r"^<!--\s*files:\s*(.*?)\s*-->", re.MULTILINE)
_SAME_COMMAND = {"make demo": "goldspan demo --out .demo"}


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int
    """The first line of its text, counted from 1."""
    notes: Mapping[str, str]
    """The comments directly above it, by name."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a `console` block, and the output shown for it."""

    text: str
    shown: str


class ExampleError(Exception):
    """An example does not do what its page shows."""


def blocks(page: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page, in order."""
    lines = page.splitlines()
    notes: dict[str, str] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if fence := _FENCE.fullmatch(line):
            end = _closing(lines, at, fence["marks"])
            text = "".join(f"{_outdented(line, len(fence['indent']))}\n" for line in lines[at:end])
            yield Block(fence["language"], text, line=at + 1, notes=notes)
            at, notes = end + 1, {}
        elif note := _NOTE.fullmatch(line):
            notes[note["name"]] = note["value"] or ""
        elif line.strip():
            notes = {}


def commands(text: str) -> Iterator[Command]:
    """Yield the commands of a `console` block. A backslash at the end of a line continues the command."""
    for hit in re.finditer(r"^\$ (?P<command>(?:.*\\\n)*.*)\n?(?P<shown>(?:(?!\$ ).*\n)*)", text, flags=re.MULTILINE):
        command = re.sub(r"\\\n(?:> )?\s*", "", hit["command"])
        yield Command(command.strip(), hit["shown"].rstrip())


def matches(shown: str, output: str) -> bool:
    """Whether the shown output matches the actual one, apart from its `...` and from white space around its lines."""
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else _line_pattern(line) for line in _trimmed(shown))
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _trimmed(output))) is not None


def run_page(page: Path) -> int:
    """Run the examples of a page, and return their number."""
    text = page.read_text(encoding="utf-8")
    for folder in _FILES.findall(text):
        shutil.copytree(ROOT / folder, ".", dirs_exist_ok=True)
    found = [block for block in blocks(text) if "not run" not in block.notes]
    for block in found:
        if name := block.notes.get("file"):
            Path(name).write_text(block.text, encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    output = ""
    ran = 0
    for block in found:
        where = f"{page.name}, line {block.line}"
        if block.language == "python":
            output = _run_python(block, where, namespace)
        elif block.language == "console":
            output = _run_console(block, where)
        elif "output" in block.notes:
            _compare(block.text, output, where)
        else:
            continue
        ran += 1
    return ran


def _closing(lines: list[str], start: int, marks: str) -> int:
    for at in range(start, len(lines)):
        line = lines[at].strip()
        if len(line) >= len(marks) and set(line) == {marks[0]}:
            return at
    raise ExampleError(f"the block that starts in line {start} has no end")


def _outdented(line: str, indent: int) -> str:
    """Return the line without the indentation of its fence, or without its own indentation if that is smaller."""
    return line[indent:] if not line[:indent].strip() else line.lstrip()


def _trimmed(text: str) -> list[str]:
    """Return the lines of a text without trailing white space, and without blank lines around them."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n").split("\n")


def _line_pattern(line: str) -> str:
    return ".*?".join(re.escape(part) for part in line.split("...")) + r"\n"


def _run_python(block: Block, where: str, namespace: dict[str, Any]) -> str:
    """Execute a block, and return its output. Blank lines before it make a traceback show the line of the page."""
    code = compile("\n" * (block.line - 1) + block.text, where.partition(",")[0], "exec", dont_inherit=True)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, namespace)
    return printed.getvalue()


def _run_console(block: Block, where: str) -> str:
    """Run the commands of a block, and return the output of the last one."""
    output = ""
    for command in commands(block.text):
        line = _SAME_COMMAND.get(command.text, command.text)
        if not line.startswith(("goldspan ", "pytest ")):
            continue
        done = subprocess.run(
            line, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=False
        )
        expected = int(block.notes.get("exit status", "0"))
        if done.returncode != expected:
            raise ExampleError(f"{where}: `{line}` exits with {done.returncode}, not {expected}:\n{done.stdout}")
        output = done.stdout
        if command.shown:
            _compare(command.shown, output, f"{where}: `{line}`")
    return output


def _compare(shown: str, output: str, where: str) -> None:
    if not matches(shown, output):
        raise ExampleError(f"{where}: the output differs from {_difference(_trimmed(shown), output)} on:\n{output}")


def _difference(shown: list[str], output: str) -> str:
    """Return the first shown line that the output does not match."""
    for number, line in enumerate(shown):
        if not matches("\n".join([*shown[: number + 1], "..."]), output):
            return repr(line)
    return "the end"


if __name__ == "__main__":
    sys.path.insert(0, "")  # examples import the files of their page
    print(f"{run_page(Path(sys.argv[1]))} examples run")
