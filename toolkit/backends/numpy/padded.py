"""Generated code for special functions of few elements.

NumPy needs dozens of calls for one of them. Operands are flat, and padded to a power of
two: so a few programs compute all shapes. They run from the first call on, and all
calls have equal bits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.kernels import Attributes, Kernel
from toolkit.ir import Kind, Primitive, Spec

if TYPE_CHECKING:
    from toolkit.backends.numpy.eager import EagerPrograms

Array = Any
# Calls of NumPy in one call of a primitive. From the first number on NumPy is slow.
# From the second number on the compilation takes more than half a second.
_SLOW = {"erf": 30, "erfinv": 50}
_MIN_STEPS, _MAX_STEPS = 16, 1000
_ELEMENTWISE = (Kind.ELEMENTWISE, Kind.COMPOSITE)
# The fewest elements of a program.
_MIN_ELEMENTS = 16
IsSlow = Callable[[Sequence[Any], Attributes], bool]


@cache
def slow_in_numpy(primitive: Primitive) -> IsSlow | None:
    """Return whether NumPy is slow for few elements, as a function of a call.

    Args:
        primitive: the primitive.

    Returns:
        The function of the operands, or of their specs, and of the attributes. None if
        NumPy is fast for all calls.
    """
    if primitive.name in _SLOW:
        return lambda operands, attrs: True
    if primitive.kind is not Kind.COMPOSITE:
        return None
    known: dict[Hashable, bool] = {}

    def has_long_body(operands: Sequence[Array | Spec], attrs: Attributes) -> bool:
        key = tuple(attrs.values())
        if key not in known:
            specs = [
                x if isinstance(x, Spec) else Spec(x.shape, dtypes.name_of(x.dtype))
                for x in operands
            ]
            trace: Any = primitive.graph
            nodes = trace(specs, attrs).pruned().nodes
            steps = sum(_SLOW.get(node.op.name, 1) for node in nodes)
            is_elementwise = all(x.op.kind in _ELEMENTWISE for x in nodes)
            known[key] = is_elementwise and _MIN_STEPS <= steps < _MAX_STEPS
        return known[key]

    return has_long_body


class PaddedPrograms:
    """Programs of an elementwise primitive for few elements.

    Args:
        programs: the programs by shapes.
        kernel: the kernel without generated code.
    """

    def __init__(self, programs: EagerPrograms, kernel: Kernel) -> None:
        self._programs, self._kernel = programs, kernel

    def __call__(self, *arrays: Array, **attrs: object) -> Array | None:
        shape = np.broadcast_shapes(*[x.shape for x in arrays])
        count = prod(shape)
        if not count:
            return self._kernel(*arrays, **attrs)
        padded = [_padded(x, shape, count) for x in arrays]
        result = self._programs(*padded, **attrs)
        return None if result is None else result[:count].reshape(shape)

    def bind(self, specs: Sequence[Spec], attrs: Attributes) -> Kernel:
        """Return a kernel for operands of these specs.

        Args:
            specs: the specs of the operands.
            attrs: the attributes.
        """
        shapes = {x.shape for x in specs}
        count = specs[0].size
        if len(shapes) == 1 and count and _size(count) == count:
            flat = [Spec((count,), x.dtype) for x in specs]
            (shape,) = shapes
            return self._programs.bind(flat, attrs, self, shape) or self
        return self


def _size(count: int) -> int:
    """Return the elements of the program for this number of elements."""
    return max(_MIN_ELEMENTS, 1 << (count - 1).bit_length())


def _padded(x: Array, shape: tuple[int, ...], count: int) -> Array:
    """Return the elements of an operand, broadcast to a shape, and more elements."""
    size = _size(count)
    if count == size and x.shape == shape:
        return x.reshape(-1)
    y = np.empty(size, x.dtype)
    y[:count].reshape(shape)[...] = x
    y[count:] = y[0]
    return y
