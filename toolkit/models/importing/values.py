"""Values of an imported graph, each in one or more orders of axes.

Convolutions compute with channels last; ONNX files have channels first. A value can
exist in both orders, and is transposed only if an operation needs a missing order. So a
convolutional network is transposed once, at its input. The file's own `Transpose` is
free until an operation needs a contiguous result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.dtypes import NAMES, numpy_dtype
from toolkit.errors import UnsupportedError
from toolkit.type_aliases import Array

Order: TypeAlias = tuple[int, ...]
Shape: TypeAlias = tuple[int, ...]


def file_order(ndim: int) -> Order:
    """Return the order of axes in the file."""
    return tuple(range(ndim))


def channels_last(ndim: int) -> Order:
    """Return the order with axis 1 last."""
    return (0, *range(2, ndim), 1) if ndim > 2 else file_order(ndim)


def kernel_order(ndim: int) -> Order:
    """Return the order of a convolution's kernel: (*size, channels, filters)."""
    return (*range(2, ndim), 1, 0)


class Value:
    """Tensor of a graph.

    Args:
        tensor: the tensor, with the axes of the file in this order: axis i is the
            file's `order[i]`.
        order: None for the order of the file.

    Attributes:
        shape, dtype: shape and dtype in the file.
        static_array: the array, if it exists before the graph runs; else None.
    """

    __slots__ = ("_orders", "dtype", "static_array", "shape")

    def __init__(self, tensor: Tensor, order: Order | None = None) -> None:
        order = file_order(tensor.ndim) if order is None else order
        self._orders: dict[Order, Tensor] = {order: tensor}
        self.shape: Shape = tuple(tensor.shape[i] for i in _inverse(order))
        self.dtype: str = tensor.dtype
        self.static_array: Array | None = None

    @classmethod
    def of(cls, array: Any) -> Value:
        """Return a static value of an array."""
        value = cls.__new__(cls)
        value.static_array = np.asarray(array)
        value._orders = {}
        value.shape, value.dtype = (
            value.static_array.shape,
            NAMES[value.static_array.dtype],
        )
        return value

    def copy(self) -> Value:
        """Copy it for another scope, so that transposes are not shared."""
        value = Value.__new__(Value)
        value._orders = dict(self._orders)
        value.shape, value.dtype, value.static_array = (
            self.shape,
            self.dtype,
            self.static_array,
        )
        return value

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def reach(self) -> int:
        """Return the number of elements, with extents of 0 counted as 1."""
        return math.prod(max(n, 1) for n in self.shape)

    @property
    def nbytes(self) -> int:
        """Return the number of bytes."""
        return self.size * numpy_dtype(self.dtype).itemsize

    @property
    def tensor(self) -> Tensor:
        """Return the tensor in the order of the file."""
        return self.ordered(file_order(self.ndim))

    @property
    def orders(self) -> tuple[Order, ...]:
        """Return the existing orders; for a static value, the file's."""
        if self.static_array is not None:
            return (file_order(self.ndim),)
        return tuple(self._orders)

    def ordered(self, order: Order) -> Tensor:
        """Return the tensor in an order of axes; transpose it if needed."""
        if order not in self._orders and self.static_array is not None:
            array = np.ascontiguousarray(self.static_array.transpose(order))
            array = array.reshape(self._extents(order))
            self._orders[order] = ops.convert_to_tensor(array)
        if order not in self._orders:
            current, tensor = next(iter(self._orders.items()))
            self._orders[order] = self._transpose(tensor, current, order)
        return self._orders[order]

    def _extents(self, order: Order) -> Shape:
        return tuple(self.shape[i] for i in order)

    def _transpose(self, tensor: Tensor, current: Order, order: Order) -> Tensor:
        if self._axes_with_data(current) == self._axes_with_data(order):
            return ops.reshape(tensor, self._extents(order))
        return ops.transpose(tensor, tuple(current.index(i) for i in order))

    def _axes_with_data(self, order: Order) -> list[int]:
        """Return the axes whose extent is not 1."""
        return [i for i in order if self.shape[i] != 1]

    def aligned(self, order: Order) -> Tensor:
        """Return the tensor as an operand with the rank of the order."""
        n = len(order)
        if self.size == 1:  # a scalar is fused into the operation that reads it
            return ops.reshape(self.tensor, ())
        if self.ndim == n:
            return self.ordered(order)
        shape = (*(1,) * (n - self.ndim), *self.shape)
        if self.static_array is not None:
            return Value.of(self.static_array.reshape(shape)).ordered(order)
        return Value(ops.reshape(self.tensor, shape)).ordered(order)

    def permuted(self, axes: Order) -> Value:
        """Return ONNX's Transpose of the value, without moving data."""
        if self.static_array is not None:
            return Value.of(self.static_array.transpose(axes))
        first, *remaining = (
            (tuple(axes.index(i) for i in order), tensor)
            for order, tensor in self._orders.items()
        )
        value = Value(first[1], first[0])
        value._orders.update(remaining)
        return value


class ValueList(Value):
    """Sequence of tensors. Operators for tensors reject it.

    Args:
        items: the tensors.
        dtype: the dtype of all tensors.
    """

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Value], dtype: str) -> None:
        self.items = tuple(items)
        self.shape, self.dtype, self.static_array, self._orders = (), dtype, None, {}

    def copy(self) -> Value:
        """Copy it for another scope."""
        return ValueList([value.copy() for value in self.items], self.dtype)

    @property
    def reach(self) -> int:
        """Return the number of elements of all tensors."""
        return sum(value.reach for value in self.items)

    @property
    def nbytes(self) -> int:
        """Return the number of bytes of all tensors."""
        return sum(value.nbytes for value in self.items)

    @property
    def orders(self) -> tuple[Order, ...]:
        """Return none: a sequence has no axes."""
        raise self._refusal()

    def ordered(self, order: Order) -> Tensor:
        """Raise: a sequence is not a tensor."""
        raise self._refusal()

    def permuted(self, axes: Order) -> Value:
        """Raise: a sequence has no axes."""
        raise self._refusal()

    def _refusal(self) -> UnsupportedError:
        count = len(self.items)
        return UnsupportedError(
            f"expected a tensor; received a sequence of {count} tensors"
        )


def _inverse(order: Order) -> Order:
    return tuple(order.index(i) for i in range(len(order)))


def common_order(values: Sequence[Value], ndim: int) -> Order:
    """Return the order of axes that moves the fewest elements of these operands."""
    full = [
        v for v in values if v.ndim == ndim and v.size > 1 and v.static_array is None
    ]
    candidates = dict.fromkeys(order for v in full for order in v.orders)
    plain = file_order(ndim)

    def moved(order: Order) -> tuple[int, bool]:
        cost = sum(v.size for v in full if order not in v.orders)
        return cost, order == plain

    return min(candidates, key=moved, default=plain)


def without_axes(order: Order, axes: set[int]) -> Order:
    """Return the order of the remaining axes after the removal of file axes."""
    remaining = [i for i in order if i not in axes]
    ranks = {axis: rank for rank, axis in enumerate(sorted(remaining))}
    return tuple(ranks[i] for i in remaining)
