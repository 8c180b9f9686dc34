"""Finds the mutations of a Python module: small changes of its code that tests should notice.

Two options are not mutated because no result depends on them: `slots` of a dataclass, and `maxsize` of a cache. Nor are
`False` where a function returns it (it becomes `True`, not None), texts, annotations and docstrings.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
REMOVABLE = (ast.Raise, ast.Continue, ast.Break, ast.AugAssign, ast.Delete)
TEXTS = (ast.JoinedStr,)
WITHOUT_EFFECT = ("slots", "maxsize")
"""Keywords whose values change memory and speed only."""


@dataclass(frozen=True)
class Mutation:
    """One change of one module: the bytes from `start` to `end` become `after`."""

    line: int
    """The line at which the change begins; the tests that run this line can notice it."""
    start: int
    end: int
    before: str
    after: str

    def apply(self, source: str) -> str:
        """The source of the module with the change made."""
        data = source.encode()
        return (data[: self.start] + self.after.encode() + data[self.end :]).decode()

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{before}  →  {after}"


@cache
def find_mutations(source: str) -> Sequence[Mutation]:
    """All mutations of a module, in the order of their place; each leaves a module that compiles."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return sorted({each for each in finder.found if _compiles(each.apply(source))}, key=lambda each: each.start)


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


class _Finder(ast.NodeVisitor):
    """Collects the mutations of the nodes that it visits; annotations, docstrings and type checks are left out."""

    def __init__(self, source: str) -> None:
        self.found: list[Mutation] = []
        self._source = source.encode()
        self._line_starts = [0]
        for line in self._source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))

    def _replace(self, node: ast.expr | ast.stmt, after: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._line_starts[node.lineno - 1] + node.col_offset
        end = self._line_starts[node.end_lineno - 1] + node.end_col_offset
        self.found.append(Mutation(node.lineno, start, end, self._source[start:end].decode(), after))

    # Expressions

    def visit_Compare(self, node: ast.Compare) -> None:
        for place, operator in enumerate(node.ops):
            changed = copy.deepcopy(node)
            changed.ops[place] = COMPARISONS[type(operator)]()
            self._replace(node, ast.unparse(changed))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        changed = copy.deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._replace(node, f"({ast.unparse(changed)})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace(node, f"bool({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in ARITHMETIC and not (_is_text(node.left) or _is_text(node.right)):
            changed = copy.deepcopy(node)
            changed.op = ARITHMETIC[type(node.op)]()
            self._replace(node, f"({ast.unparse(changed)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace(node, str(not value))
        elif isinstance(value, int | float):
            self._replace(node, str(value + 1))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Not inside texts: before Python 3.12 the places of their expressions are not known."""

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        for keyword in node.keywords:
            if isinstance(keyword.value, ast.Constant) and keyword.value.value is None:
                self._replace(keyword.value, "0")
        if isinstance(node.func, ast.Name) and node.func.id in ("cast", "TypeVar"):
            return
        for part in (node.func, *node.args, *(each for each in node.keywords if each.arg not in WITHOUT_EFFECT)):
            self.visit(part)

    # Statements

    def visit_If(self, node: ast.If) -> None:
        if not ast.unparse(node.test).endswith("TYPE_CHECKING"):
            self._negate(node.test)
            self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        """Only where the condition has no operator of its own that is changed anyway."""
        if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.NamedExpr | ast.Constant):
            self._replace(test, f"not ({ast.unparse(test)})")

    def visit_Return(self, node: ast.Return) -> None:
        if isinstance(node.value, ast.Constant) and node.value.value is None:
            self._replace(node.value, "0")
        elif node.value is not None and not _is_false(node.value):
            self._replace(node, "return None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call | ast.Await):
            self._replace(node, "pass")
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._replace(node, "pass")
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arguments(self, node: ast.arguments) -> None:
        for default in (*node.defaults, *node.kw_defaults):
            if isinstance(default, ast.Constant) and default.value is None:
                self._replace(default, "0")
            elif default is not None:
                self.visit(default)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.visit(node.args)
        for statement in node.body:
            self.visit(statement)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit(self, node: ast.AST) -> Iterator[None] | None:
        if isinstance(node, REMOVABLE):
            self._replace(node, "pass")
        self.generic_visit(node) if isinstance(node, ast.Module) else super().visit(node)
        return None


def _is_false(node: ast.expr) -> bool:
    """Whether this is `False`, which most callers cannot tell from None; it is changed to `True` anyway."""
    return isinstance(node, ast.Constant) and node.value is False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, TEXTS) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
