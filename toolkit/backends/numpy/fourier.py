"""Fourier transforms of any length, composed of transforms with generated code.

Code is generated for lengths with small prime factors, up to a maximum. A transform of
n = a * b elements is otherwise composed of transforms of a elements, a multiplication
by twiddle factors, and transforms of b elements. This costs O(n * (a + b)) instead of
O(n * n). Short transforms are matrix products. A transform of a longer prime length is
a convolution with a chirp, by two transforms of a length with generated code.

References: Cooley and Tukey (1965), https://doi.org/10.1090/S0025-5718-1965-0178586-1,
and Bluestein, "A linear filtering approach to the computation of the discrete Fourier
transform" (1970)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.numpy.jit.kernels.fourier.plan import (
    DTYPES,
    fills_vectors,
    is_axis_supported,
    is_real_supported,
    is_supported,
)
from toolkit.backends.numpy.jit.kernels.fourier.twiddles import unit_circle
from toolkit.backends.target import Target
from toolkit.ir import Constant, Graph, Kind, Node, Value, node_of
from toolkit.plans.loops.iteration_space import uniform_value

# A transform of up to `_MAX_PRODUCT_LENGTH` elements is one matrix product, and one
# of a prime length up to `_MAX_PRIME_LENGTH`. Measured for 1e5 elements in rows of 101
# and 127: a product takes 423 and 489 us, and a convolution 535 and 209 us.
_MAX_PRODUCT_LENGTH, _MAX_PRIME_LENGTH = 64, 110
# For up to this number of real elements a product is faster than generated code.
_MAX_REAL_PRODUCT_LENGTH = 16

# The real and the imaginary part; None: the imaginary part is 0.
Pair = tuple[Any, Any]
# Twiddle factors and chirps of one graph, by their parameters.
Twiddles = dict[tuple[int, int, int, int, str], tuple[Constant, ...]]


def rewrite_transforms(graph: Graph, target: Target) -> Graph:
    """Rewrite transforms of a graph in terms of transforms with generated code."""
    if all(node.op.name not in _REWRITTEN for node in graph.nodes):
        return graph
    twiddles: Twiddles = {}
    owned = set(graph.outputs)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op.name in _REWRITTEN and _needs_rewrite(node):
            nodes += _REWRITTEN[node.op.name](node, twiddles).build_nodes(owned)
        else:
            nodes.append(node)
    return graph.replace(nodes)


def _needs_rewrite(node: Node) -> bool:
    """Return whether only the components of a transform have generated code."""
    spec = node.inputs[0].spec
    if spec.dtype not in DTYPES or not spec.size:
        return False
    axis = node.attrs.get("axis", spec.ndim - 1)
    n = node.attrs.get("length", spec.shape[axis])
    if node.op.name == "dft":
        is_generated = is_axis_supported(spec.shape, axis)
    else:
        # Other rows are transformed with one row in each lane of a vector.
        is_row_filled = n <= _MAX_PRODUCT_LENGTH or fills_vectors(n // 2)
        is_supported_row = is_real_supported(n) and is_row_filled
        is_generated = n > _MAX_REAL_PRODUCT_LENGTH and is_supported_row
    return not is_generated and n > 0


def _is_long_prime(n: int) -> bool:
    """Return whether a transform of n elements is a convolution."""
    return n > _MAX_PRIME_LENGTH and _largest_divisor(n) == 1


def _largest_divisor(n: int) -> int:
    """Return the largest divisor up to the square root."""
    return next(a for a in range(math.isqrt(n), 0, -1) if n % a == 0)


def _convolution_length(least: int) -> int:
    """Return the next length with efficient code: a multiple of 16, 3 and 5."""
    n = -(-least // 16) * 16
    while not _has_factors(n, (2, 3, 5)):
        n += 16
    return n


def _has_factors(n: int, primes: Sequence[int]) -> bool:
    """Return whether n has no other prime factors."""
    for prime in primes:
        while n % prime == 0:
            n //= prime
    return n == 1


class _Transform:
    """The nodes that replace a transform.

    Args:
        node: the transform.
        twiddles: the twiddle factors of the graph; new factors are added.
    """

    def __init__(self, node: Node, twiddles: Twiddles) -> None:
        self.node = node
        self.twiddles = twiddles
        self.nodes: list[Node] = []
        self.dtype: str = node.inputs[0].spec.dtype
        self.inverse: bool = node.attrs.get("inverse", False)

    def build_nodes(self, owned: set[Value]) -> list[Node]:
        """Return the nodes; the last nodes compute the outputs of the transform.

        Args:
            owned: values that must own their memory: outputs of the graph.
        """
        results = self.build_results()
        makers = {y: node for node in self.nodes for y in node.outputs}
        if owned.intersection(self.node.outputs):
            results = [
                self._bind("stop_gradient", x) if makers[x].op.kind is Kind.VIEW else x
                for x in results
            ]
        names = dict(zip(results, self.node.outputs, strict=True))
        return [
            Node(n.op, n.inputs, n.attrs, [names.get(y, y) for y in n.outputs])
            for n in self.nodes
        ]

    def build_results(self) -> list[Value]:
        """Return the results of the transform."""
        real, imag = self.node.inputs
        axis, last = self.node.attrs["axis"], real.spec.ndim - 1
        zero = uniform_value(imag)
        pair = real, None if zero is not None and zero == 0 else imag
        transformed = self._transform_last_axis(self._swap_axes(pair, axis, last))
        return list(self._swap_axes(transformed, axis, last))

    def _bind(self, name: str, *inputs: Any, **attrs: Any) -> Value:
        (y,) = self._bind_all(name, *inputs, **attrs)
        return y

    def _bind_all(self, name: str, *inputs: Any, **attrs: Any) -> Sequence[Value]:
        node = node_of(name, inputs, attrs)
        self.nodes.append(node)
        return node.outputs

    def _bind_pair(self, name: str, pair: Pair, **attrs: Any) -> Pair:
        real, imag = pair
        new_real = self._bind(name, real, **attrs)
        return new_real, None if imag is None else self._bind(name, imag, **attrs)

    def _swap_axes(self, pair: Pair, a: int, b: int) -> Pair:
        axes = list(range(pair[0].spec.ndim))
        axes[a], axes[b] = b, a
        return self._bind_pair("transpose", pair, axes=tuple(axes)) if a != b else pair

    def _twiddle_factors(self, a: int, b: int, n: int) -> tuple[Constant, Constant]:
        """Return cos and sin of ±2 pi j k / n for j < a and k < b."""
        sign = 1 if self.inverse else -1
        key = a, b, n, sign, self.dtype
        if key not in self.twiddles:
            steps = np.outer(np.arange(a), np.arange(b)) % n
            cos, sin = unit_circle(sign * steps / n)
            dtype = dtypes.numpy_dtype(self.dtype)
            self.twiddles[key] = (
                Constant(cos.astype(dtype)),
                Constant(sin.astype(dtype)),
            )
        cos_factor, sin_factor = self.twiddles[key]
        return cos_factor, sin_factor

    def _chirps(self, size: int, count: int, n: int) -> tuple[Constant, ...]:
        """Return the chirps of the elements and of the results, and the spectrum.

        The chirp is c[j] = exp(±pi i j**2 / n). The convolution is with 1 / c[j], where
        -size < j < count. The spectrum is its transform, divided by the length.
        """
        sign = 1 if self.inverse else -1
        key = size, count, n, 2 * sign, self.dtype
        if key not in self.twiddles:
            steps = np.arange(1 - size, count)
            # Integers of Python do not overflow.
            squares = np.array([int(j) ** 2 % (2 * n) for j in steps])
            cos, sin = unit_circle(sign * squares / (2 * n))
            length = _convolution_length(size + count - 1)
            inverse = np.zeros(length, "complex128")
            inverse[steps] = cos - 1j * sin
            spectrum = (np.fft.ifft if self.inverse else np.fft.fft)(inverse)
            spectrum /= 1 if self.inverse else length
            dtype, results = dtypes.numpy_dtype(self.dtype), slice(size - 1, None)
            elements = slice(size - 1, None, -1)
            planes = (cos[elements], sin[elements], cos[results], sin[results])
            self.twiddles[key] = tuple(
                Constant(np.ascontiguousarray(plane, dtype))
                for plane in (*planes, spectrum.real, spectrum.imag)
            )
        return self.twiddles[key]

    def _convolve_chirp(self, pair: Pair, n: int, count: int) -> Pair:
        """Return the first results of the transform of n elements.

        Args:
            pair: the first elements; the following elements are 0.
            n: the length of the transform.
            count: the number of results.
        """
        *batch, size = pair[0].spec.shape
        *chirps, real_spectrum, imag_spectrum = self._chirps(int(size), count, n)
        pair = self._multiply_complex("multiply", pair, (chirps[0], chirps[1]))
        length = real_spectrum.spec.shape[0]
        widths = ((0, 0),) * len(batch) + ((0, length - size),)
        pair = self._bind_pair("pad", pair, widths=widths, value=0)
        pair = self._transform_last_axis(pair)
        pair = self._multiply_complex("multiply", pair, (real_spectrum, imag_spectrum))
        # A transform of exchanged parts is an inverse transform.
        imag, real = self._transform_last_axis((pair[1], pair[0]))
        pair = self._take_first((real, imag), count)
        return self._multiply_complex("multiply", pair, (chirps[2], chirps[3]))

    def _cut(self, pair: Pair, ranges: Sequence[tuple[int, int, int]]) -> Pair:
        """Return a range of the last axis of each part: its start, stop and step."""
        slices = []
        for x, (first, stop, step) in zip(pair, ranges, strict=True):
            *batch, _ = x.spec.shape
            zeros, ones = (0,) * len(batch), (1,) * len(batch)
            bounds = {
                "start": (*zeros, first),
                "stop": (*batch, stop),
                "step": (*ones, step),
            }
            slices.append(self._bind("slice", x, **bounds))
        return slices[0], slices[1]

    def _multiply_parts(self, pair: Pair, factors: Pair) -> Pair:
        """Return the products of the real parts and of the imaginary parts."""
        (real, imag), (real_factor, imag_factor) = pair, factors
        return (
            self._bind("multiply", real, real_factor),
            self._bind("multiply", imag, imag_factor),
        )

    def _join(self, values: Sequence[Value], axis: int) -> Value:
        """Return the concatenation of values along an axis."""
        return self._bind("concatenate", *values, axis=axis % values[0].spec.ndim)

    def _combine_halves(
        self, x: Pair, y: Pair, n: int, sign: int
    ) -> tuple[Value, Value]:
        """Return half of S ± i w D with w = exp(±2 pi i k / n).

        S and D are x[k] plus and minus conj(y[k]).
        """
        count = x[0].spec.shape[-1]
        cos, sin = unit_circle(sign * np.arange(count) / n)
        dtype = dtypes.numpy_dtype(self.dtype)
        # ± i w / 2
        real_factor = Constant((-0.5 * sign * sin).astype(dtype))
        imag_factor = Constant((0.5 * sign * cos).astype(dtype))
        half = Constant(np.array(0.5, dtype))
        sums = self._bind("add", x[0], y[0]), self._bind("subtract", x[1], y[1])
        real, imag = self._bind("subtract", x[0], y[0]), self._bind("add", x[1], y[1])
        products = self._multiply_complex(
            "multiply", (real, imag), (real_factor, imag_factor)
        )
        halves = [self._bind("multiply", z, half) for z in sums]
        return (
            self._bind("add", halves[0], products[0]),
            self._bind("add", halves[1], products[1]),
        )

    def _take_first(self, pair: Pair, count: int) -> Pair:
        """Return the first elements of the last axis."""
        *batch, size = pair[0].spec.shape
        if size == count:
            return pair
        start, step = (0,) * (len(batch) + 1), (1,) * (len(batch) + 1)
        stop = (*batch, count)
        return self._bind_pair("slice", pair, start=start, stop=stop, step=step)

    def _multiply_complex(
        self, name: str, pair: Pair, factor: tuple[Constant, Constant]
    ) -> Pair:
        """Return the product with complex constants, matrix or elementwise."""
        (real, imag), (cos, sin) = pair, factor
        product = [self._bind(name, real, constant) for constant in (cos, sin)]
        if imag is not None:
            imag_product = self._bind(name, imag, sin)
            product[0] = self._bind("subtract", product[0], imag_product)
            product[1] = self._bind("add", self._bind(name, imag, cos), product[1])
        return product[0], product[1]

    def _transform_last_axis(self, pair: Pair) -> Pair:
        """Return the transform along the last axis."""
        *batch, n = pair[0].spec.shape
        n = int(n)  # it selects the algorithm, so a free extent is fixed
        if is_supported(n) and (n > _MAX_PRODUCT_LENGTH or pair[1] is not None):
            return self._bind_generated(pair, len(batch))
        a = 1 if n <= _MAX_PRODUCT_LENGTH else _largest_divisor(n)
        if _is_long_prime(n):
            return self._convolve_chirp(pair, n, n)
        if a == 1:
            return self._multiply_matrix(pair, self._twiddle_factors(n, n, n))
        b, axis = n // a, len(batch)
        # (j1, j2) -> (j2, k1) -> (k1, k2) -> (k2, k1)
        pair = self._bind_pair("reshape", pair, shape=(*batch, a, b))
        pair = self._transform_last_axis(self._swap_axes(pair, axis, axis + 1))
        pair = self._multiply_complex("multiply", pair, self._twiddle_factors(b, a, n))
        pair = self._transform_last_axis(self._swap_axes(pair, axis, axis + 1))
        pair = self._swap_axes(pair, axis, axis + 1)
        return self._bind_pair("reshape", pair, shape=(*batch, n))

    def _bind_generated(self, pair: Pair, axis: int) -> Pair:
        """Return the transform along an axis of a length with generated code."""
        real, imag = pair
        if imag is None:
            zero = Constant(np.zeros((), dtypes.numpy_dtype(self.dtype)))
            imag = self._bind("broadcast_to", zero, shape=real.spec.shape)
        attrs = {"axis": axis, "inverse": self.inverse}
        real, imag = self._bind_all("dft", real, imag, **attrs)
        return real, imag

    def _multiply_matrix(self, pair: Pair, twiddles: tuple[Constant, Constant]) -> Pair:
        """Return the product of rows with a matrix."""
        *batch, n = pair[0].spec.shape
        if not batch:
            pair = self._bind_pair("reshape", pair, shape=(1, n))
        product = self._multiply_complex("matmul", pair, twiddles)
        if batch:
            return product
        return self._bind_pair("reshape", product, shape=product[0].spec.shape[1:])


class _RealTransform(_Transform):
    """The transform of real numbers along the last axis."""

    def build_results(self) -> list[Value]:
        """Return the first half of the results."""
        (x,) = self.node.inputs
        shape = self.node.outputs[0].spec.shape
        n = x.spec.shape[-1]
        if n <= _MAX_PRODUCT_LENGTH:
            return list(
                self._multiply_matrix((x, None), self._twiddle_factors(n, shape[-1], n))
            )
        if _is_long_prime(n):
            return list(self._convolve_chirp((x, None), n, shape[-1]))
        if n % 2 == 0:
            return self._transform_pairs(x, n)
        return list(self._take_first(self._transform_last_axis((x, None)), shape[-1]))

    def _transform_pairs(self, x: Value, n: int) -> list[Value]:
        """Return the results by a transform of the pairs of numbers, n / 2 of them.

        With the transform Z and w = exp(-2 pi i k / n), the result at k is half of
        S - i w D, where S and D are Z[k] plus and minus conj(Z[n/2 - k]).
        """
        half = n // 2
        pair = self._cut((x, x), [(0, n, 2), (1, n, 2)])
        pair = self._transform_last_axis(pair)
        first = self._cut(pair, [(0, 1, 1)] * 2)
        z = [self._join((x, y), -1) for x, y in zip(pair, first, strict=True)]
        mirrored = self._cut((z[0], z[1]), [(half, -1, -1)] * 2)
        results = self._combine_halves((z[0], z[1]), mirrored, n, -1)
        return list(results)


class _InverseRealTransform(_Transform):
    """The inverse transform of the first half of the frequencies to real numbers."""

    def build_results(self) -> list[Value]:
        """Return the real part of the results."""
        self.inverse = True
        n, shape = self.node.attrs["length"], self.node.inputs[0].spec.shape
        pair: Pair = tuple(self.node.inputs)
        if n <= _MAX_PRODUCT_LENGTH:
            return [
                self._multiply_matrix(pair, self._twiddle_factors(shape[-1], n, n))[0]
            ]
        if _is_long_prime(n):
            return [self._convolve_chirp(pair, n, n)[0]]
        if n % 2 == 0:
            return [self._interleave_pairs(pair, n)]
        widths = ((0, 0),) * (len(shape) - 1) + ((0, n - shape[-1]),)
        pair = self._bind_pair("pad", pair, widths=widths, value=0)
        return [self._transform_last_axis(pair)[0]]

    def _interleave_pairs(self, pair: Pair, n: int) -> Value:
        """Return the results as pairs of numbers, n / 2 of them.

        They are the transform of half of S + i w D with w = exp(2 pi i k / n), where S
        and D are X[k] plus and minus conj(X[n/2 - k]). The imaginary parts of the first
        and the last frequency have no effect, and their real parts count twice.
        """
        half = n // 2
        dtype = dtypes.numpy_dtype(self.dtype)
        ends = np.arange(half) == 0
        weights = Constant(np.where(ends, 2, 1).astype(dtype))
        factors = weights, Constant(np.where(ends, 0, 1).astype(dtype))
        low = self._cut(pair, [(0, half, 1)] * 2)
        high = self._cut(pair, [(half, 0, -1)] * 2)
        pair = self._combine_halves(
            self._multiply_parts(low, factors),
            self._multiply_parts(high, factors),
            n,
            1,
        )
        real, imag = self._transform_last_axis(pair)
        *batch, _ = real.spec.shape
        columns = [
            self._bind("reshape", x, shape=(*batch, half, 1)) for x in (real, imag)
        ]
        return self._bind("reshape", self._join(columns, -1), shape=(*batch, n))


_REWRITTEN = {"dft": _Transform, "rdft": _RealTransform, "irdft": _InverseRealTransform}
