"""Conversion of a Python function: find its source, rewrite it, compile it."""

from __future__ import annotations

import ast
import copy
import linecache
import sys
import sysconfig
from functools import lru_cache, partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from toolkit.compat.tensorflow.autograph.rewriting import RUNTIME, rewrite

if TYPE_CHECKING:
    from toolkit.ir import Node

# Functions in these folders are libraries, and are not rewritten.
_INSTALLED = tuple(
    path for path in map(sysconfig.get_path, ("stdlib", "purelib", "platlib")) if path
)


def convert(function: Any, runtime: Any) -> Any:
    """Return the function with its control flow as calls of `runtime`, or unchanged.

    Functions without source, generators, coroutines, functions of libraries and
    functions with `do_not_convert` do not change.
    """
    if isinstance(function, MethodType):
        return MethodType(convert(function.__func__, runtime), function.__self__)
    if isinstance(function, partial):
        inner = convert(function.func, runtime)
        return partial(inner, *function.args, **function.keywords)
    if not isinstance(function, FunctionType) or not _is_user_function(function):
        return function
    code = _converted_code(_Key(function.__code__, function.__qualname__))
    if code is None:
        return function
    cells = dict(
        zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    )
    cells[RUNTIME] = CellType(runtime)
    if not cells.keys() >= set(code.co_freevars):  # `super()` outside of a class
        return function
    closure = tuple(cells[name] for name in code.co_freevars)
    new = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, closure
    )
    new.__kwdefaults__ = function.__kwdefaults__
    new.__dict__.update(function.__dict__)
    new.__qualname__, new.__module__ = function.__qualname__, function.__module__
    return new


def _is_user_function(function: FunctionType) -> bool:
    if getattr(function, "autograph_do_not_convert", False):
        return False
    if RUNTIME in function.__code__.co_freevars:  # defined inside a converted function
        return False
    top = (function.__module__ or "").partition(".")[0]
    if top == "toolkit" or top in sys.stdlib_module_names - {"__main__"}:
        return False
    return not function.__code__.co_filename.startswith(_INSTALLED)


class _Key:
    """Key for code by identity: functions of two files can have equal code."""

    def __init__(self, code: CodeType, qualname: str) -> None:
        self.code, self.qualname = code, qualname

    def __eq__(self, other: Any) -> bool:
        return self.code is other.code

    def __hash__(self) -> int:
        return hash(self.code)


@lru_cache(maxsize=1024)
def _converted_code(key: _Key) -> CodeType | None:
    """Return the code of the rewritten function; None if its source is not
    available."""
    code = key.code
    node = _find_node(code)
    if node is None:
        return None
    if isinstance(node, ast.FunctionDef):
        node.decorator_list = []
    owner = key.qualname.rpartition(".")[0].rpartition(".")[2].lstrip("_")
    if owner and not owner.startswith("<"):
        node = _Mangler(owner).visit(node)
    new = rewrite(node)
    names = [RUNTIME, *(name for name in code.co_freevars if name != RUNTIME)]
    if "__class__" not in names:
        names.append("__class__")
    body = new if isinstance(new, ast.stmt) else ast.Expr(new)
    parameters = ast.arguments(
        [], [ast.arg(name) for name in names], None, [], [], None, []
    )
    factory: Any = ast.parse("def factory(): pass").body[0]
    factory.args, factory.body = parameters, [body]
    module = ast.fix_missing_locations(ast.Module([factory], []))
    outer = compile(
        module, code.co_filename, "exec", dont_inherit=True, flags=_future_flag(code)
    )
    inner = _only_code(outer)
    function_code = next(
        constant
        for constant in inner.co_consts
        if isinstance(constant, CodeType) and constant.co_name == code.co_name
    )
    return function_code.replace(co_qualname=code.co_qualname)


def _only_code(code: CodeType) -> CodeType:
    return next(
        constant for constant in code.co_consts if isinstance(constant, CodeType)
    )


def _future_flag(code: CodeType) -> int:
    """Return the flag of `from __future__ import annotations`, if the file has it."""
    import __future__

    return code.co_flags & __future__.annotations.compiler_flag


@lru_cache(maxsize=16)
def _parse_functions(text: str) -> tuple[Any, ...]:
    """Return the nodes of all functions and lambdas in a source; none if it is
    invalid."""
    try:
        nodes = ast.walk(ast.parse(text))
    except (SyntaxError, ValueError):
        return ()
    return tuple(x for x in nodes if isinstance(x, ast.FunctionDef | ast.Lambda))


def _find_node(code: CodeType) -> Any:
    """Return a copy of the node of a function or lambda in the source of its file."""
    nodes = _parse_functions("".join(linecache.getlines(code.co_filename)))
    is_it = _is_lambda if code.co_name == "<lambda>" else _is_function
    matches = [node for node in nodes if is_it(node, code)]
    # Of nested lambdas, the innermost has the fewest nodes.
    return copy.deepcopy(min(matches, key=_count_nodes)) if matches else None


def _count_nodes(node: ast.AST) -> int:
    return sum(1 for _ in ast.walk(node))


def _is_function(node: Any, code: CodeType) -> bool:
    if isinstance(node, ast.Lambda) or node.name != code.co_name:
        return False
    lines = [node.lineno, *(x.lineno for x in node.decorator_list)]
    return min(lines) == code.co_firstlineno


def _is_lambda(node: Node, code: CodeType) -> bool:
    """Return whether all instructions are inside a lambda with these arguments."""
    if not isinstance(node, ast.Lambda):
        return False
    args = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    count = code.co_argcount + code.co_kwonlyargcount
    start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    positions = {(line, column) for line, _, column, _ in code.co_positions()}
    # the nominal position of the first instruction
    positions -= {(code.co_firstlineno, 0)}
    is_inside = all(
        start <= position <= end for position in positions if None not in position
    )
    return is_inside and [arg.arg for arg in args] == list(code.co_varnames[:count])


class _Mangler(ast.NodeTransformer):
    """Mangler of `__x` inside a class to `_Class__x`, as in Python."""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    def _mangle(self, name: str) -> str:
        is_private = name.startswith("__") and not name.endswith("__")
        return f"_{self.owner}{name}" if is_private else name

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.attr = self._mangle(node.attr)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._mangle(node.id)
        return node
