"""Runs the code cells of a notebook without Jupyter, and prints their outputs as JSON, one list for the notebook.

python tests/support/notebook_cells.py NOTEBOOK

The output of a cell is what it prints under `stream`, or the representations of its last expression under their MIME
types, as Jupyter saves them.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import sys
from pathlib import Path
from typing import Any

Output = dict[str, str]


def saved_outputs(notebook: Path) -> list[Output]:
    """Return the output that a notebook holds for each of its code cells."""
    return [_saved_output(cell["outputs"]) for cell in _code_cells(notebook)]


def _saved_output(outputs: list[dict[str, Any]]) -> Output:
    saved: Output = {}
    for output in outputs:
        texts = {"stream": output["text"]} if output["output_type"] == "stream" else output["data"]
        saved |= {kind: "".join(text) for kind, text in texts.items()}
    return saved


def _code_cells(notebook: Path) -> list[dict[str, Any]]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


async def _run_cells(notebook: Path) -> list[Output]:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    return [await _run_cell("".join(cell["source"]), namespace) for cell in _code_cells(notebook)]


async def _run_cell(source: str, namespace: dict[str, Any]) -> Output:
    body = ast.parse(source)
    last = body.body.pop() if isinstance(body.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        await _evaluate(body, "exec", namespace)
        value = await _evaluate(ast.Expression(last.value), "eval", namespace) if isinstance(last, ast.Expr) else None
    output = {"stream": printed.getvalue()} if printed.getvalue() else {}
    if hasattr(value, "_repr_html_"):
        return output | {
            "text/plain": value._repr_markdown_(),
            "text/html": value._repr_html_(),
            "text/markdown": value._repr_markdown_(),
        }
    return output if value is None else output | {"text/plain": repr(value)}


async def _evaluate(tree: ast.Module | ast.Expression, mode: str, namespace: dict[str, Any]) -> Any:
    code = compile(tree, "cell", mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    value = eval(code, namespace)
    return await value if inspect.iscoroutine(value) else value


if __name__ == "__main__":
    sys.path.insert(0, "")
    json.dump(asyncio.run(_run_cells(Path(sys.argv[1]))), sys.stdout)
