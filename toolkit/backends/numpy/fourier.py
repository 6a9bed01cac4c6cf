"""Fourier transforms as products of matrices, for which there is generated code.

A transform of n = a * b elements is transforms of a elements, a factor for each of
their results, and transforms of b elements: of order n * (a + b) instead of n * n.
Those of few elements, and of a prime number of them, are products with a matrix.

Reference: Cooley and Tukey (1965), https://doi.org/10.1090/S0025-5718-1965-0178586-1
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.loops.iteration_space import number_of
from toolkit.backends.target import Target
from toolkit.ir import PRIMITIVES, Constant, Graph, Kind, Node, Value

# A transform of so many elements is one product; if they are a prime number, up to so
# many. Longer ones are left to NumPy.
_AT_ONCE, _PRIME = 64, 512
_DTYPES = ("float32", "float64")

# The real and the imaginary part; no imaginary part: it is 0 everywhere.
Pair = tuple[Any, Any]
# Constants of one graph, by what they hold.
Turns = dict[tuple[int, int, int, int, str], tuple[Constant, Constant]]


def transforms_as_products(graph: Graph, target: Target) -> Graph:
    """Write transforms as products."""
    if all(node.op.name != "dft" for node in graph.nodes):
        return graph
    turns: Turns = {}
    owned = set(graph.outputs)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op.name == "dft" and _is_generated(node):
            nodes += _Transform(node, turns).results(owned)
        else:
            nodes.append(node)
    return graph.replace(nodes)


def _is_generated(node: Node) -> bool:
    """Whether there is code for the dtype, and no large prime factor."""
    spec = node.inputs[0].spec
    if spec.dtype not in _DTYPES or not spec.size:
        return False
    return _is_smooth(spec.shape[node.attrs["axis"]])


def _is_smooth(n: int) -> bool:
    """Whether no prime factor of n is above `_PRIME`."""
    if n <= _AT_ONCE:
        return True
    a = _divisor(n)
    return n <= _PRIME if a == 1 else _is_smooth(a) and _is_smooth(n // a)


def _divisor(n: int) -> int:
    """The largest divisor up to the square root."""
    return next(a for a in range(math.isqrt(n), 0, -1) if n % a == 0)


class _Transform:
    """The nodes that a transform becomes.

    Args:
        node: the transform.
        turns: constants of the graph, to which new ones are added.
    """

    def __init__(self, node: Node, turns: Turns) -> None:
        self.node = node
        self.turns = turns
        self.nodes: list[Node] = []
        self.dtype: str = node.inputs[0].spec.dtype
        self.sign = 1 if node.attrs["inverse"] else -1

    def results(self, owned: set[Value]) -> list[Node]:
        """The nodes; the last ones make what the transform does.

        Args:
            owned: what is to have memory of its own: outputs of the graph.
        """
        real, imag = self.node.inputs
        axis, last = self.node.attrs["axis"], real.spec.ndim - 1
        zero = number_of(imag)
        pair = real, None if zero is not None and zero == 0 else imag
        found = self._along_last(self._swapped(pair, axis, last))
        found = self._swapped(found, axis, last)
        if (
            owned.intersection(self.node.outputs)
            and self.nodes[-1].op.kind is Kind.VIEW
        ):
            found = self._each("stop_gradient", found)
        names = dict(zip(found, self.node.outputs, strict=True))
        return [
            Node(n.op, n.inputs, n.attrs, [names.get(n.outputs[0], n.outputs[0])])
            for n in self.nodes
        ]

    def _bind(self, name: str, *inputs: Any, **attrs: Any) -> Value:
        op = PRIMITIVES[name]
        y = Value(op.spec(*(x.spec for x in inputs), **attrs))
        self.nodes.append(Node(op, inputs, attrs, [y]))
        return y

    def _each(self, name: str, pair: Pair, **attrs: Any) -> Pair:
        real, imag = pair
        found = self._bind(name, real, **attrs)
        return found, None if imag is None else self._bind(name, imag, **attrs)

    def _swapped(self, pair: Pair, a: int, b: int) -> Pair:
        axes = list(range(pair[0].spec.ndim))
        axes[a], axes[b] = b, a
        return self._each("transpose", pair, axes=tuple(axes)) if a != b else pair

    def _turns(self, a: int, b: int, n: int) -> tuple[Constant, Constant]:
        """cos and sin of 2 pi j k / n for j < a and k < b, in the sense of rotation."""
        key = a, b, n, self.sign, self.dtype
        if key not in self.turns:
            angles = np.outer(np.arange(a), np.arange(b)) % n * (2 * np.pi / n)
            dtype = dtypes.numpy_dtype(self.dtype)
            cos, sin = np.cos(angles), self.sign * np.sin(angles)
            self.turns[key] = Constant(cos.astype(dtype)), Constant(sin.astype(dtype))
        return self.turns[key]

    def _times(self, name: str, pair: Pair, factor: tuple[Constant, Constant]) -> Pair:
        """The product with complex constants, of matrices or of elements."""
        (real, imag), (cos, sin) = pair, factor
        found = [self._bind(name, real, part) for part in (cos, sin)]
        if imag is not None:
            turned = self._bind(name, imag, sin)
            found[0] = self._bind("subtract", found[0], turned)
            found[1] = self._bind("add", self._bind(name, imag, cos), found[1])
        return found[0], found[1]

    def _along_last(self, pair: Pair) -> Pair:
        """The transform along the last axis."""
        *rest, n = pair[0].spec.shape
        a = 1 if n <= _AT_ONCE else _divisor(n)
        if a == 1:
            return self._of_rows(pair, n)
        b, axis = n // a, len(rest)
        # (j1, j2) -> (j2, k1) -> (k1, k2) -> (k2, k1)
        pair = self._each("reshape", pair, shape=(*rest, a, b))
        pair = self._along_last(self._swapped(pair, axis, axis + 1))
        pair = self._times("multiply", pair, self._turns(b, a, n))
        pair = self._along_last(self._swapped(pair, axis, axis + 1))
        pair = self._swapped(pair, axis, axis + 1)
        return self._each("reshape", pair, shape=(*rest, n))

    def _of_rows(self, pair: Pair, n: int) -> Pair:
        """The transform of few elements."""
        shape = pair[0].spec.shape
        if len(shape) < 2:
            pair = self._each("reshape", pair, shape=(1, n))
        found = self._times("matmul", pair, self._turns(n, n, n))
        return found if len(shape) > 1 else self._each("reshape", found, shape=shape)
