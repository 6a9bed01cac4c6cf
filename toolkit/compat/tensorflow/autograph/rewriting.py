"""Python's control flow as calls: `if x:` becomes `ag__.if_(x, body, orelse, ...)`.

Each branch and body becomes a function inside the user's function, and shares its names
by `nonlocal`. The callee selects Python or a graph by the value. Every node keeps its
line number, so that tracebacks show the user's code.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any

from toolkit.compat.tensorflow.autograph.assignment_targets import (
    Part,
    assigned_targets,
)
from toolkit.compat.tensorflow.autograph.early_exits import (
    SCOPES,
    build_none_of,
    lower_exits,
    walk,
)

RUNTIME = "ag__"  # the module with the runtime functions


def rewrite(function: Any) -> Any:
    """Rewrite the control flow in the node of a function or lambda as calls."""
    return _Rewriter(Names([])).visit(function)


class Names:
    """The names of a function and their uses.

    Args:
        body: its statements.
    """

    def __init__(self, body: Sequence[ast.stmt]) -> None:
        nodes = list(walk(body))
        self.loads: Counter[str] = _count_loads(nodes)
        self.globals: set[str] = _declared(nodes, ast.Global)
        self.outer: set[str] = _declared(nodes, ast.Nonlocal)

    def declaration(self, names: Sequence[str]) -> list[ast.stmt]:
        """Return the statements that declare names as nonlocal."""
        of_module = [name for name in names if name in self.globals]
        nonlocal_names = [name for name in names if name not in self.globals]
        statements = (ast.Global(of_module), ast.Nonlocal(nonlocal_names))
        return [node for node in statements if node.names]


def _declared(
    nodes: Sequence[ast.AST], kind: type[ast.Global | ast.Nonlocal]
) -> set[str]:
    return {name for node in nodes if isinstance(node, kind) for name in node.names}


def _count_loads(nodes: Sequence[ast.AST]) -> Counter[str]:
    """Count the reads of each name, inner functions included."""
    inner_nodes = (
        inner for node in nodes if isinstance(node, SCOPES) for inner in ast.walk(node)
    )
    read = [*nodes, *inner_nodes]
    return Counter(
        node.id
        for node in read
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )


def assigned_names(nodes: Sequence[ast.AST]) -> list[str]:
    """Return the names that statements assign, in alphabetical order."""
    names: set[str] = set()
    for node in walk(nodes):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, SCOPES) and not isinstance(node, ast.Lambda):
            names.add(node.name)
        elif (
            isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar)
            and node.name
        ):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {
                (alias.asname or alias.name).split(".")[0] for alias in node.names
            }
    return sorted(names - _comprehension_targets(nodes))


def _comprehension_targets(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the targets of comprehensions, which are not names of the function."""
    inner: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for node in walk(nodes):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            every[node.id] += 1
        if isinstance(node, ast.comprehension):
            inner.update(x.id for x in ast.walk(node.target) if isinstance(x, ast.Name))
    return {name for name, times in inner.items() if every[name] <= times}


def _call(name: str, *args: ast.expr) -> ast.Call:
    runtime = ast.Name(RUNTIME, ast.Load())
    function = ast.Attribute(runtime, name, ast.Load())
    return ast.Call(function, list(args), [])


def _arguments(*names: str) -> ast.arguments:
    args = [ast.arg(name) for name in names]
    return ast.arguments([], args, None, [], [], None, [])


def _undefined(name: str) -> ast.stmt:
    value = _call("Undefined", ast.Constant(name))
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _build_lambda(value: ast.expr) -> ast.Lambda:
    """Build `lambda: value`."""
    return ast.Lambda(_arguments(), value)


def _build_strings(names: Sequence[str]) -> ast.Tuple:
    return ast.Tuple([ast.Constant(name) for name in names], ast.Load())


def _build_load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _build_read(text: str, target: Part) -> ast.Call:
    """Build the read of an item or attribute."""
    read = copy.copy(target)
    read.ctx = ast.Load()
    return _call("read", _build_lambda(read), ast.Constant(text))


def _assign_target(target: Part, value: str) -> ast.stmt:
    """Build the statement that assigns the value of a name to an item or attribute."""
    if isinstance(target, ast.Attribute):
        key: ast.expr = ast.Constant(target.attr)
        return ast.Expr(_call("set_attribute", target.value, key, _build_load(value)))
    return ast.Expr(_call("set_item", target.value, target.slice, _build_load(value)))


def _has_walrus(*nodes: ast.AST) -> bool:
    """Return whether an expression assigns a name: a lambda would assign another
    one."""
    return any(isinstance(x, ast.NamedExpr | ast.Await) for x in walk(nodes))


class _Rewriter(ast.NodeTransformer):
    """Rewriter of one function and its inner functions.

    Args:
        names: the names of the function.
        first: the name of its first argument, for `super()`.
    """

    def __init__(self, names: Names, first: str = "") -> None:
        self.names, self.first = names, first
        self.numbers = count(1)
        self.changed: set[str] = set()  # the names that branches and loops assign

    # --- functions --------------------------------------------------------------------

    def visit_FunctionDef(self, node: Any) -> Any:
        if any(isinstance(x, ast.Yield | ast.YieldFrom) for x in walk(node.body)):
            return node
        arguments = [*node.args.posonlyargs, *node.args.args]
        lowered = lower_exits(node.body)
        names = Names(lowered)
        inner = _Rewriter(names, arguments[0].arg if arguments else "")
        body = inner.statements(lowered)
        changed = sorted(
            inner.changed - _parameters(node.args) - names.globals - names.outer
        )
        start = [
            ast.copy_location(
                ast.Assign(
                    [ast.Name(name, ast.Store())],
                    _call("Undefined", ast.Constant(name)),
                ),
                node.body[0],
            )
            for name in changed
        ]
        fields = {**dict(ast.iter_fields(node)), "body": [*start, *body]}
        return ast.fix_missing_locations(
            ast.copy_location(ast.FunctionDef(**fields), node)
        )

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        new = ast.Lambda(node.args, self.visit(node.body))
        return ast.fix_missing_locations(ast.copy_location(new, node))

    def visit_AsyncFunctionDef(self, node: ast.AST) -> ast.AST:
        return node

    visit_ClassDef = visit_AsyncFunctionDef

    # --- statements -------------------------------------------------------------------

    def statements(self, nodes: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Rewrite the statements of a block."""
        result: list[ast.stmt] = []
        for node in nodes:
            new = self.visit(node)
            result += new if isinstance(new, list) else [new]
        return result

    def visit_Delete(self, node: ast.Delete) -> Any:
        names = [x.id for x in node.targets if isinstance(x, ast.Name)]
        node.targets = [x for x in node.targets if not isinstance(x, ast.Name)]
        statements: list[ast.stmt] = [
            _copy_locations(_undefined(name), node) for name in names
        ]
        return [*statements, *([node] if node.targets else [])]

    def visit_If(self, node: ast.If) -> Any:
        names = assigned_names([*node.body, *node.orelse])
        functions = {"body": node.body, "orelse": node.orelse}
        return self._build_staged(
            "if_", node, [self.visit(node.test)], functions, names
        )

    def visit_While(self, node: Any) -> Any:
        names = assigned_names(node.body)
        test = self.visit(_build_test(node))
        extra = [self._read_outside(node, names)]
        functions = {"body": node.body}
        return self._build_staged(
            "while_", node, [_build_lambda(test)], functions, names, extra
        )

    def visit_For(self, node: Any) -> Any:
        item = "ag__item"
        set_target = ast.copy_location(
            ast.Assign([node.target], _build_load(item)), node
        )
        body = [set_target, *node.body]
        names = assigned_names(body)
        stop: ast.expr = ast.Constant(None)
        if stops := getattr(node, "stops", ()):
            stop = _build_lambda(
                self.visit(_copy_locations(build_none_of(stops), node))
            )
        first = [self._rewrite_iterable(node.iter), stop]
        extra = [self._read_outside(node, names)]
        return self._build_staged(
            "for_", node, first, {"body": body}, names, extra, item
        )

    def _rewrite_iterable(self, node: ast.expr) -> ast.expr:
        """Rewrite the iterable of a loop; a range can have ends that a graph
        computes."""
        if isinstance(node, ast.Call) and not _has_stars(node):
            function, *args = (self.visit(x) for x in (node.func, *node.args))
            keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
            new = _call("iterated", function, *args)
            new.keywords = keywords
            return ast.copy_location(new, node)
        return self.visit(node)

    def _read_outside(self, node: Any, names: Sequence[str]) -> ast.Tuple:
        """Return the names that a loop assigns and that are read outside of it."""
        body_loads = _count_loads(list(walk(node.body)))
        return _build_strings(
            [name for name in names if self.names.loads[name] > body_loads[name]]
        )

    def _build_staged(
        self,
        kind: str,
        node: ast.stmt,
        first: list[ast.expr],
        functions: dict[str, list[ast.stmt]],
        names: Sequence[str],
        extra: Sequence[ast.expr] = (),
        *parameters: str,
    ) -> list[ast.stmt]:
        """Return the functions of a statement, and the call that runs it."""
        number = next(self.numbers)
        self.changed |= set(names)
        every = [statement for body in functions.values() for statement in body]
        assigned_items = assigned_targets(every, names)
        shared = self.names.declaration(names)
        definitions: list[ast.stmt] = []
        for name, body in functions.items():
            statements = [*shared, *self.statements(body)] or [ast.Pass()]
            definitions.append(_define(f"{name}_{number}", statements, *parameters))
        getter, setter = f"get_{number}", f"set_{number}"
        values = [
            *map(_build_load, names),
            *(_build_read(*target) for target in assigned_items.items()),
        ]
        parameter_names = [
            *names,
            *(f"ag__part_{i}" for i in range(len(assigned_items))),
        ]
        targets = ast.Tuple(
            [ast.Name(x, ast.Store()) for x in parameter_names], ast.Store()
        )
        stores: list[ast.stmt] = [ast.Assign([targets], _build_load("ag__values"))]
        stores += map(
            _assign_target, assigned_items.values(), parameter_names[len(names) :]
        )
        tuple_ = ast.Tuple(values, ast.Load())
        definitions.append(_define(getter, [ast.Return(tuple_)]))
        definitions.append(_define(setter, [*shared, *stores], "ag__values"))
        function_names = [_build_load(f"{name}_{number}") for name in functions]
        state_arguments = [
            _build_load(getter),
            _build_load(setter),
            _build_strings([*names, *assigned_items]),
        ]
        call = ast.Expr(_call(kind, *first, *function_names, *state_arguments, *extra))
        return [_copy_locations(new, node) for new in (*definitions, call)]

    # --- expressions ------------------------------------------------------------------

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        self.generic_visit(node)
        if _has_walrus(node.body, node.orelse):
            return node
        branches = _build_lambda(node.body), _build_lambda(node.orelse)
        return _copy_locations(_call("if_expression", node.test, *branches), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        self.generic_visit(node)
        if _has_walrus(node):
            return node
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        return _copy_locations(_call(name, *map(_build_lambda, node.values)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not):
            return _copy_locations(_call("not_", node.operand), node)
        return node

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if len(node.ops) == 1 or _has_walrus(node):
            return node
        kinds = _build_strings([type(op).__name__ for op in node.ops])
        values = [_build_lambda(value) for value in (node.left, *node.comparators)]
        return _copy_locations(_call("compare", kinds, *values), node)

    def visit_Call(self, node: ast.Call) -> Any:
        if _is_super(node) and self.first:
            node.args = [
                _copy_locations(_build_load(name), node)
                for name in ("__class__", self.first)
            ]
            return node
        self.generic_visit(node)
        function = _copy_locations(_call("called", node.func), node)
        return ast.copy_location(ast.Call(function, node.args, node.keywords), node)


def _define(name: str, body: list[ast.stmt], *parameters: str) -> ast.FunctionDef:
    fields: dict[str, Any] = {
        "name": name,
        "args": _arguments(*parameters),
        "body": body,
    }
    if "type_params" in ast.FunctionDef._fields:
        fields["type_params"] = []
    return ast.FunctionDef(**fields, decorator_list=[])


def _copy_locations(node: Any, where: ast.AST) -> Any:
    """Set the line of another node for all new nodes without a line."""
    return ast.fix_missing_locations(ast.copy_location(node, where))


def _build_test(node: Any) -> ast.expr:
    """Return the test of a loop, with the flags that stop it."""
    stops = getattr(node, "stops", ())
    if not stops:
        return node.test
    return _copy_locations(
        ast.BoolOp(ast.And(), [build_none_of(stops), node.test]), node
    )


def _parameters(args: ast.arguments) -> set[str]:
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    return {arg.arg for arg in every if arg is not None}


def _is_super(node: ast.Call) -> bool:
    is_name = isinstance(node.func, ast.Name) and node.func.id == "super"
    return is_name and not node.args


def _has_stars(node: ast.Call) -> bool:
    return any(isinstance(x, ast.Starred) for x in node.args)
