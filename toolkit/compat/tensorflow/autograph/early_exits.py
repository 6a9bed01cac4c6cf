"""Early exits as flags: the result has no `return`, `break` or `continue` in a branch
or loop.

`if c: return a` before other statements becomes an `if` with these statements as its
`else`. After a conditional exit, the next statements run only `if not` the flag of the
exit. A loop stops when a flag is set: its node has their names as `stops`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

FLAG = "autograph_exit_"
RETURNED, RESULT = f"{FLAG}function", "autograph_result"
LOOPS = (ast.For, ast.While)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def is_flag(name: str) -> bool:
    """Return whether a name is a flag."""
    return name.startswith(FLAG)


@dataclass
class Lowered:
    """Statements without exits, the flags that they can set, and whether they always
    exit."""

    statements: list[ast.stmt]
    flags: frozenset[str] = frozenset()
    always: bool = False


def walk(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Iterate over all nodes, without the content of inner functions and classes."""
    for node in nodes:
        yield node
        if not isinstance(node, SCOPES):
            yield from walk(list(ast.iter_child_nodes(node)))


def lower_exits(body: list[ast.stmt]) -> list[ast.stmt]:
    """Lower the exits in a function body; the only `return` is its last statement."""
    inner = [child for statement in body for child in ast.iter_child_nodes(statement)]
    if not any(isinstance(node, ast.Return) for node in walk(inner)):
        ends = [isinstance(statement, ast.Return) for statement in body]
        last = ends.index(True) if True in ends else len(body)
        return [*_Lowering().block(body[:last]).statements, *body[last : last + 1]]
    end = ast.Return(value=None)
    ast.copy_location(end, body[-1])
    lowered = _Lowering().block([*body, end]).statements
    start = [_assign(RETURNED, ast.Constant(False), body[0])]
    result = ast.Return(value=_name(RESULT))
    return [*start, *lowered, ast.copy_location(result, body[-1])]


def _name(name: str, context: ast.expr_context | None = None) -> ast.Name:
    return ast.Name(id=name, ctx=context or ast.Load())


def _assign(name: str, value: ast.expr, where: ast.AST) -> ast.stmt:
    node = ast.Assign(targets=[_name(name, ast.Store())], value=value)
    return ast.fix_missing_locations(ast.copy_location(node, where))


def build_none_of(flags: Sequence[str]) -> ast.expr:
    """Build `not a and not b` for the flags a and b."""
    tests: list[ast.expr] = [
        ast.UnaryOp(op=ast.Not(), operand=_name(flag)) for flag in sorted(flags)
    ]
    return tests[0] if len(tests) == 1 else ast.BoolOp(op=ast.And(), values=tests)


def _build_unless(flags: Sequence[str], body: list[ast.stmt], where: ast.AST) -> ast.If:
    node = ast.If(test=build_none_of(flags), body=body, orelse=[])
    return ast.fix_missing_locations(ast.copy_location(node, where))


class _Lowering:
    """The lowering of one function; `loops` has the flags of the enclosing loops."""

    def __init__(self) -> None:
        self.loops: list[tuple[str, str]] = []
        self.numbers = count(1)

    def block(self, statements: list[ast.stmt]) -> Lowered:
        """Lower a sequence of statements."""
        lowered: list[ast.stmt] = []
        for i, statement in enumerate(statements):
            remaining = statements[i + 1 :]
            if isinstance(statement, ast.If) and remaining:
                joined = self._lower_if_with_remaining(statement, remaining)
                if joined is not None:
                    return Lowered(
                        [*lowered, *joined.statements], joined.flags, joined.always
                    )
            current = self.statement(statement)
            lowered += current.statements
            if current.always or not remaining:
                return Lowered(lowered, current.flags, current.always)
            if current.flags:
                later = self.block(remaining)
                lowered.append(
                    _build_unless(sorted(current.flags), later.statements, remaining[0])
                )
                return Lowered(lowered, current.flags | later.flags, later.always)
        return Lowered(lowered)

    def _lower_if_with_remaining(
        self, node: ast.If, remaining: list[ast.stmt]
    ) -> Lowered | None:
        """Lower an `if` with one branch that always exits: the rest moves to the other
        one."""
        yes, no = self.block(node.body), self.block(node.orelse)
        if yes.always == no.always:
            return None
        if yes.always:
            no = self.block([*node.orelse, *remaining])
        else:
            yes = self.block([*node.body, *remaining])
        return self._branches(node, yes, no)

    def _branches(self, node: ast.If, yes: Lowered, no: Lowered) -> Lowered:
        new = ast.If(node.test, yes.statements or [_build_pass(node)], no.statements)
        flags, always = yes.flags | no.flags, yes.always and no.always
        return Lowered([ast.copy_location(new, node)], flags, always)

    def statement(self, node: ast.stmt) -> Lowered:
        """Lower one statement."""
        if isinstance(node, ast.Return):
            value = node.value or ast.copy_location(ast.Constant(None), node)
            return self._exit(node, RETURNED, _assign(RESULT, value, node))
        if isinstance(node, ast.Break):
            return self._exit(node, self.loops[-1][0])
        if isinstance(node, ast.Continue):
            return self._exit(node, self.loops[-1][1])
        if isinstance(node, ast.If):
            return self._branches(node, self.block(node.body), self.block(node.orelse))
        if isinstance(node, LOOPS):
            return self._loop(node)
        if isinstance(node, SCOPES):
            return Lowered([node])
        return self._lower_blocks(node)

    def _exit(self, node: ast.stmt, flag: str, *before: ast.stmt) -> Lowered:
        statements = [*before, _assign(flag, ast.Constant(True), node)]
        return Lowered(statements, frozenset([flag]), True)

    def _loop(self, node: Any) -> Lowered:
        number = next(self.numbers)
        broken, skipped = f"{FLAG}loop_{number}", f"{FLAG}step_{number}"
        self.loops.append((broken, skipped))
        body = self.block(node.body)
        self.loops.pop()
        after = self.block(node.orelse)
        statements, used = body.statements, body.flags
        before = []
        if skipped in used:
            statements = [_assign(skipped, ast.Constant(False), node), *statements]
        if broken in used:
            before = [_assign(broken, ast.Constant(False), node)]
        new = type(node)(
            **{**dict(ast.iter_fields(node)), "body": statements, "orelse": []}
        )
        new.stops = sorted(used - {skipped})
        result = [*before, ast.copy_location(new, node)]
        if after.statements:
            stops = new.stops
            exit_statements = (
                [_build_unless(stops, after.statements, node)]
                if stops
                else after.statements
            )
            result += exit_statements
        return Lowered(result, used - {broken, skipped} | after.flags)

    def _lower_blocks(self, node: ast.stmt) -> Lowered:
        """Lower the blocks of `with`, `try`, `match` and other statements."""
        flags: frozenset[str] = frozenset()
        always = isinstance(node, ast.With)
        new: Any = type(node)(**dict(ast.iter_fields(node)))
        for field, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                lowered = self.block(value)
                flags, always = flags | lowered.flags, always and lowered.always
                setattr(new, field, lowered.statements)
            elif isinstance(value, list) and field in ("handlers", "cases"):
                lowered_cases = [self._lower_blocks(case) for case in value]
                flags = flags.union(*(lowered.flags for lowered in lowered_cases))
                setattr(
                    new, field, [lowered.statements[0] for lowered in lowered_cases]
                )
        if isinstance(node, (ast.Try, ast.TryStar)) and flags and node.orelse:
            new.orelse = [_build_unless(sorted(flags), new.orelse, node.orelse[0])]
        return Lowered([ast.copy_location(new, node)], flags, always and bool(flags))


def _build_pass(where: ast.AST) -> ast.stmt:
    return ast.copy_location(ast.Pass(), where)
