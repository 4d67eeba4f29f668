"""Generates all small changes of one module, and applies one of them in a process that has imported the module.

A change replaces one node of the syntax tree: another comparison, `and` for `or`, a negated condition, a constant plus
or minus one, a removed statement, `return None`. Assertions, log messages, texts, annotations and default values stay
unchanged. A change inside a function replaces the code of that function object, so it affects every module that has
imported the function. A change of a module's constant replaces its value in all modules that hold it.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

_COMPARISONS: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
}
_ARITHMETIC: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.FloorDiv(),
    ast.Div: ast.Mult(),
    ast.FloorDiv: ast.Mult(),
    ast.Mod: ast.FloorDiv(),
}
_LEFT_ALONE = frozenset({"annotation", "returns", "decorator_list", "defaults", "kw_defaults", "bases", "keywords"})
_EXTREMES = {"min": "max", "max": "min"}


@dataclass(slots=True)
class CodeChange:
    """One change. `scope`: the qualified name of its function, or of its module constant."""

    path: str
    scope: str
    lines: frozenset[int]
    column: int
    text: str
    put: Callable[[], None] = field(repr=False)
    undo: Callable[[], None] = field(repr=False)
    tree: ast.Module = field(repr=False)
    is_constant: bool = False

    @property
    def name(self) -> str:
        """The place and the change as text, which is also the key of the results."""
        return f"{self.path}:{max(self.lines)}:{self.column}: {self.scope}: {self.text}"

    def scope_text(self) -> str:
        """Returns the text of the function or the constant with this change, and restores the tree."""
        self.put()
        text = scope_text(self.tree, self.scope)
        self.undo()
        return text


def changes_of(root: Path, path: str) -> list[CodeChange]:
    """Returns all changes of the module at `path` below `root`, in the order of its text."""
    tree = ast.parse((root / path).read_text(encoding="utf-8"))
    return [change for node in tree.body for change in _in_module(path, tree, node)]


def scope_text(tree: ast.Module, scope: str) -> str:
    """Returns the text of a function or constant in Python's own layout. `scope`: its qualified name in the module."""
    node: Any = tree
    for part in scope.split("."):
        node = next(each for each in node.body if _name(each) == part)
    return ast.unparse(node)


def _name(node: ast.stmt) -> str | None:
    """Returns the name of the class, function or constant that a statement defines; otherwise None."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return node.name
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return None
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return target.id if isinstance(target, ast.Name) else None


def _in_module(path: str, tree: ast.Module, node: ast.stmt, within: str = "") -> Iterator[CodeChange]:
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            yield from _in_module(path, tree, inner, f"{within}{node.name}.")
    elif isinstance(node, ast.FunctionDef):
        for statement in node.body:
            yield from _below(path, tree, within + node.name, node, statement)
    elif not within and (name := _name(node)) is not None and name != "__all__":
        for change in _below(path, tree, name, tree, node):
            change.is_constant = True
            yield change


def _below(path: str, tree: ast.Module, scope: str, parent: ast.AST, statement: ast.stmt) -> Iterator[CodeChange]:
    """Yields the changes of a statement and of all nodes below it."""
    for node, put in _nodes(parent, statement):
        for new in _variants(node):
            ast.fix_missing_locations(ast.copy_location(new, node))
            at = node.test if isinstance(node, ast.If | ast.While) else node
            lines = frozenset({at.lineno, _statement_line(statement, at.lineno)})
            text = f"{_short(node)} → {_short(new)}"
            put_new, put_old = functools.partial(put, new), functools.partial(put, node)
            yield CodeChange(path, scope, lines, at.col_offset, text, put_new, put_old, tree)


def _statement_line(statement: ast.stmt, line: int) -> int:
    """Returns the first line of the innermost statement that contains a line."""
    inner = [each.lineno for each in ast.walk(statement) if isinstance(each, ast.stmt) and each.lineno <= line]
    return max(inner, default=statement.lineno)


def _nodes(parent: ast.AST, node: ast.AST) -> Iterator[tuple[Any, Callable[[ast.AST], None]]]:
    """Yields a node and those below it, each with a function that replaces it."""
    for name, value in ast.iter_fields(parent):
        for number, each in enumerate(value if isinstance(value, list) else [value]):
            if each is not node:
                continue

            def put(new: ast.AST, name: str = name, number: int = number, held: Any = value) -> None:
                if isinstance(held, list):
                    held[number] = new
                else:
                    setattr(parent, name, new)

            yield node, put
    is_check = isinstance(node, ast.keyword) and node.arg == "strict"  # of `zip`: it works as an assertion
    if is_check or isinstance(node, ast.Assert | ast.JoinedStr) or _is_log(node):
        return
    for name, value in ast.iter_fields(node):
        if name in _LEFT_ALONE and not isinstance(node, ast.Call):
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield from _nodes(node, each)


def _is_log(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Expr) else node
    function = call.func if isinstance(call, ast.Call) else None
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "log"


def _variants(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the replacements of a node."""
    match node:
        case ast.Compare():
            for at, operator in enumerate(node.ops):
                ops = [*node.ops[:at], _COMPARISONS[type(operator)], *node.ops[at + 1 :]]
                yield ast.Compare(node.left, ops, node.comparators)
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            yield ast.BinOp(node.left, _ARITHMETIC[type(node.op)], node.right)
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float() as number):
            yield ast.Constant(number + 1)
            yield ast.Constant(number - 1)
        case ast.Call(func=ast.Name(id="min" | "max" as extreme)):
            yield ast.Call(ast.Name(_EXTREMES[extreme], ast.Load()), node.args, node.keywords)
        case ast.IfExp():
            yield ast.IfExp(node.test, node.orelse, node.body)
        case ast.If() | ast.While():
            changed = copy.copy(node)
            changed.test = ast.UnaryOp(ast.Not(), node.test)
            yield changed
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Assign() if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            yield ast.Pass()
        case ast.Expr(value=ast.Call()) if not _is_log(node):
            yield ast.Pass()
        case ast.AugAssign() | ast.Raise() | ast.Break() | ast.Continue() | ast.Delete():
            yield ast.Pass()


def _short(node: ast.AST) -> str:
    return ast.unparse(node).partition("\n")[0].replace("|", "¦")


def take_effect(change: CodeChange, module: ModuleType) -> None:
    """Makes this process run the changed code. Raises ValueError if the code of the function cannot be replaced."""
    change.put()
    code = compile(change.tree, change.path, "exec")
    if change.is_constant:
        _replace_constant(change, module, code)
        return
    held: Any = module
    for part in change.scope.split("."):
        held = vars(held)[part]
        held = getattr(held, "fget", None) or getattr(held, "__func__", held)
    function = inspect.unwrap(held)
    assert isinstance(function, FunctionType), f"{change.scope} is no function"
    changed = next(each for each in _codes(code) if each.co_qualname == change.scope)
    function.__code__ = changed.replace(co_filename=function.__code__.co_filename)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _replace_constant(change: CodeChange, module: ModuleType, code: CodeType) -> None:
    fresh = ModuleType(module.__name__)
    fresh.__file__ = module.__file__
    exec(code, fresh.__dict__)  # noqa: S102  # the product's own text
    old, new = getattr(module, change.scope), getattr(fresh, change.scope)
    for each in list(sys.modules.values()):
        if getattr(each, change.scope, None) is old:
            setattr(each, change.scope, new)
