"""Table of ONNX translation rules, or reasons why a primitive is unsupported.

A rule is a function `rule(writer, node)` that returns the name of each result. Rules of
elementwise primitives also receive the names of their inputs, in the layout that the
writer selects. A primitive without rule or reason is decomposed as a composite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

Rule: TypeAlias = Callable[..., Any]
_F = TypeVar("_F", bound=Rule)

RULES: dict[str, Rule] = {}
# Rules of elementwise primitives: `rule(writer, node, *names)`.
ELEMENTWISE: dict[str, Rule] = {}

_LINEAR_ALGEBRA = "ONNX has no operator for this decomposition"
_GRADIENT = "it is the gradient of another operation, which inference does not compute"
_COMPLEX = "ONNX does not support complex arithmetic"

# Name -> the reason why it is unsupported.
UNSUPPORTED: dict[str, str] = {
    **dict.fromkeys(("cholesky", "eig", "eigh", "lu", "qr", "svd"), _LINEAR_ALGEBRA),
    **dict.fromkeys(
        ("solve", "solve_triangular", "slogdet"),
        "ONNX has no operator for linear systems",
    ),
    **dict.fromkeys(("as_complex", "as_real", "conjugate"), _COMPLEX),
    **dict.fromkeys(("conv_kernel_grad", "max_pool_gather"), _GRADIENT),
    **dict.fromkeys(("max_pool_scatter", "sum_pool_grad"), _GRADIENT),
    **dict.fromkeys(
        ("bitcast", "reinterpret"),
        "ONNX has an operator for it only in opset 26 and later",
    ),
}


def _registration(table: dict[str, Rule], names: Sequence[str]) -> Callable[[_F], _F]:
    def register(function: _F) -> _F:
        table.update(dict.fromkeys(names, function))
        return function

    return register


def rule(*names: str) -> Callable[[_F], _F]:
    """Register a function as the rule of primitives."""
    return _registration(RULES, names)


def elementwise(*names: str) -> Callable[[_F], _F]:
    """Register a function as the rule of elementwise primitives."""
    return _registration(ELEMENTWISE, names)


def register_operators(operators: Mapping[str, str]) -> None:
    """Register elementwise primitives with one ONNX operator each."""
    for name, operator in operators.items():
        ELEMENTWISE[name] = _single_operator(operator)


def _single_operator(operator: str) -> Rule:
    return lambda writer, node, *names: writer.node(operator, names)


def has_rule(name: str) -> bool:
    """Return whether a primitive has a rule."""
    return name in RULES or name in ELEMENTWISE
