"""Layers that combine several tensors into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Unpack

from toolkit import ops
from toolkit.arguments import is_int
from toolkit.core.masks import mask_of
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.layers.layer import Layer
from toolkit.type_aliases import Array, Axis, RegularizedLayerOptions, TensorLike


class Merge(Layer):
    """Base class of merging layers: checks the list and matches tensor ranks."""

    def __init__(self, **kwargs: Unpack[RegularizedLayerOptions]) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def merge(self, inputs: list[Any], masks: list[Any]) -> Any:
        """Combine tensors of equal rank, given their masks.

        Args:
            inputs: tensors of equal rank.
            masks: a mask, or None, for each tensor.

        Returns:
            The combined tensor.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define `merge`")

    def build(self, input_shape: Any) -> None:
        # A later call can combine a batch of 1, such as a table of positions, with any
        # batch.
        shapes = [s for s in input_shape or () if isinstance(s, (list, tuple))]
        _check_batches(self, shapes)
        self.built = True

    def call(self, inputs: Any) -> Tensor:
        tensors = _of_one_rank(_listed(self, inputs))
        pairs = zip(map(mask_of, inputs), tensors, strict=True)
        masks = [m if m is None else _expand_mask(m, x) for m, x in pairs]
        try:
            return self.merge(tensors, masks)
        except ShapeError as error:
            raise ShapeError(f"{error}{self._fix_of_shapes(tensors)}") from error

    def _fix_of_shapes(self, tensors: list[Tensor]) -> str:
        """Return the layers that make the shapes equal, for a message."""
        first, *remaining = tensors
        other = next((x for x in remaining if x.shape[-1] != first.shape[-1]), None)
        if other is None or first.shape[1:-1] != other.shape[1:-1]:
            return ""
        return (
            f". Dense({first.shape[-1]}) before the other input makes them equal, and "
            "Concatenate joins different ones"
        )

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Return the logical OR of the masks, or None if an input has no mask.

        Args:
            inputs: a list of tensors.
            mask: a list with a mask or None for each input.
        """
        masks = _checked_masks(self, inputs, mask)
        if any(mask is None for mask in masks):
            return None
        return reduce(ops.logical_or, masks)


def _listed(layer: Layer, inputs: list[Tensor]) -> list[Any]:
    """Return `inputs` as a list; raise unless they are several tensors."""
    if not isinstance(inputs, (list, tuple)) or not inputs:
        received = getattr(inputs, "shape", inputs)
        raise ArgumentError(
            f"{type(layer).__name__}: expected a list of tensors; received {received}"
        )
    return list(inputs)


def _check_batches(layer: Layer, shapes: Sequence[Any]) -> None:
    """Raise if two known batch sizes differ."""
    if len({n for shape in shapes for n in shape[:1]} - {None}) > 1:
        raise ShapeError(
            f"{type(layer).__name__}: expected tensors of one batch size; "
            f"received shapes {', '.join(str(tuple(shape)) for shape in shapes)}"
        )


def _checked_masks(layer: Layer, inputs: Any, masks: Any) -> list[Any]:
    """Return `masks` as a list, one or None for each input."""
    if masks is None:
        return [None]
    for name, value in (("inputs", inputs), ("mask", masks)):
        if not isinstance(value, (list, tuple)):
            raise ArgumentError(
                f"{type(layer).__name__}.compute_mask: `{name}` should be a list; "
                f"received {value}"
            )
    if len(masks) != len(inputs):
        raise ArgumentError(
            f"{type(layer).__name__}.compute_mask: the lists `inputs` and `mask` "
            f"should have the same length; received {len(inputs)} and {len(masks)}"
        )
    return list(masks)


def _of_one_rank(inputs: list[Any]) -> list[Any]:
    """Insert axes after the batch axis into tensors of lower rank."""
    ndim = max(x.ndim for x in inputs)
    if all(x.ndim == ndim for x in inputs):
        return inputs
    return [ops.expand_dims(x, tuple(range(1, 1 + ndim - x.ndim))) for x in inputs]


class Add(Merge):
    """Elementwise sum of tensors: `x1 + x2 + ...`.

    Input shape: a list of tensors whose shapes broadcast after the batch.
    Output shape: the broadcast shape.

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.ones((2, 3))
        >>> float(toolkit.ops.max(toolkit.layers.Add()([x, x, x])))
        3.0
    """

    def merge(self, inputs: list[Any], masks: list[Any]) -> Tensor:
        return reduce(ops.add, inputs)


class Subtract(Merge):
    """Elementwise difference of two tensors: `x1 - x2`.

    Input shape: a list of two tensors whose shapes broadcast after the batch.
    Output shape: the broadcast shape.

    Example:
        >>> import toolkit
        >>> x, y = toolkit.ops.array([[1.0, 5.0]]), toolkit.ops.array([[3.0, 4.0]])
        >>> toolkit.layers.Subtract()([x, y]).tolist()
        [[-2.0, 1.0]]
    """

    def merge(self, inputs: list[Any], masks: list[Any]) -> Tensor:
        if len(inputs) != 2:
            raise ArgumentError(f"Subtract: expected 2 tensors; received {len(inputs)}")
        return ops.subtract(*inputs)


class Multiply(Merge):
    """Elementwise product of tensors: `x1 * x2 * ...`.

    Input shape: a list of tensors whose shapes broadcast after the batch.
    Output shape: the broadcast shape.

    Example:
        >>> import toolkit
        >>> x, y = toolkit.ops.array([[1.0, 5.0]]), toolkit.ops.array([[3.0, 4.0]])
        >>> toolkit.layers.Multiply()([x, y]).tolist()
        [[3.0, 20.0]]
    """

    def merge(self, inputs: list[Any], masks: list[Any]) -> Tensor:
        factors = [
            x if mask is None else ops.where(mask, x, 1)
            for x, mask in zip(inputs, masks, strict=True)
        ]
        product = reduce(ops.multiply, factors)
        present = [mask for mask in masks if mask is not None]
        if len(present) < len(masks):
            return product
        return ops.where(reduce(ops.logical_or, present), product, 0)


class Average(Merge):
    """Elementwise mean of tensors.

    Input shape: a list of tensors whose shapes broadcast after the batch.
    Output shape: the broadcast shape.

    Example:
        >>> import toolkit
        >>> x, y = toolkit.ops.array([[1.0, 5.0]]), toolkit.ops.array([[3.0, 4.0]])
        >>> toolkit.layers.Average()([x, y]).tolist()
        [[2.0, 4.5]]
    """

    def merge(self, inputs: list[Any], masks: list[Any]) -> Tensor:
        return reduce(ops.add, inputs) / len(inputs)


class Maximum(Merge):
    """Elementwise maximum of tensors.

    Input shape: a list of tensors whose shapes broadcast after the batch.
    Output shape: the broadcast shape.

    Example:
        >>> import toolkit
        >>> x, y = toolkit.ops.array([[1.0, 5.0]]), toolkit.ops.array([[3.0, 4.0]])
        >>> toolkit.layers.Maximum()([x, y]).tolist()
        [[3.0, 5.0]]
    """

    def merge(self, inputs: list[Any], masks: list[Any]) -> Tensor:
        return _of_unmasked(ops.maximum, inputs, masks)


class Minimum(Merge):
    """Elementwise minimum of tensors.

    Input shape: a list of tensors whose shapes broadcast after the batch.
    Output shape: the broadcast shape.

    Example:
        >>> import toolkit
        >>> x, y = toolkit.ops.array([[1.0, 5.0]]), toolkit.ops.array([[3.0, 4.0]])
        >>> toolkit.layers.Minimum()([x, y]).tolist()
        [[1.0, 4.0]]
    """

    def merge(self, inputs: list[Any], masks: list[Any]) -> Tensor:
        return _of_unmasked(ops.minimum, inputs, masks)


class Concatenate(Merge):
    """Concatenation of tensors along an axis.

    Args:
        axis: the axis; the batch is axis 0.

    Input shape: a list of tensors whose shapes differ along `axis` only.
    Output shape: the input shape, with the sum of the extents along `axis`.

    Example:
        >>> import toolkit
        >>> parts = [toolkit.ops.ones((2, 3)), toolkit.ops.ones((2, 5))]
        >>> toolkit.layers.Concatenate()(parts).shape
        (2, 8)
    """

    def __init__(
        self, axis: int = -1, **kwargs: Unpack[RegularizedLayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def build(self, input_shape: Any) -> None:
        # Batch sizes can differ: the batch can be the concatenated axis.
        self.built = True

    def call(self, inputs: Any) -> Tensor:
        return ops.concatenate(_listed(self, inputs), axis=self.axis)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Return the concatenated masks; an input without a mask counts as unmasked.

        Args:
            inputs: a list of tensors.
            mask: a list with a mask or None for each input.
        """
        arguments = _checked_masks(self, inputs, mask)
        if all(mask is None for mask in arguments):
            return None
        pairs = zip(inputs, arguments, strict=True)
        masks = [_mask_of_shape(mask, x) for x, mask in pairs]
        return ops.any(ops.concatenate(masks, axis=self.axis), axis=-1)


def _mask_of_shape(mask: Array | Tensor | None, x: Tensor) -> Any:
    """Return a mask with all axes of x."""
    if mask is None:
        return ops.ones_like(x, dtype="bool")
    if mask.ndim == x.ndim:
        return mask
    return ops.logical_or(ops.expand_dims(mask, -1), ops.zeros_like(x, dtype="bool"))


class Dot(Merge):
    """Batched dot product of two tensors along one axis of each.

    Args:
        axes: the axis of both tensors, or (axis of the first, of the second); not 0.
        normalize: whether to normalize both along the axis to length 1, for the cosine.

    Input shape: a list of two tensors, (batch, ...).
    Output shape: (batch, other axes of the first, other axes of the second), or (batch,
    1) without other axes.

    Example:
        >>> import toolkit
        >>> x, y = toolkit.ops.ones((2, 3, 5)), toolkit.ops.ones((2, 10, 3))
        >>> toolkit.layers.Dot(axes=(1, 2))([x, y]).shape
        (2, 5, 10)
    """

    def __init__(
        self,
        axes: Axis,
        normalize: bool = False,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        arguments: Any = axes
        pair = (arguments, arguments) if is_int(arguments) else tuple(arguments)
        if len(pair) != 2 or not all(is_int(axis) for axis in pair):
            raise ArgumentError(
                f"Dot: axes must be an integer or two of them; received {axes!r}"
            )
        self.axes = axes
        self.normalize = normalize
        self._pair = pair

    def call(self, inputs: Any) -> Tensor:
        tensors = _listed(self, inputs)
        _check_batches(self, [x.shape for x in tensors])
        if len(tensors) != 2:
            raise ArgumentError(f"Dot: expected 2 tensors; received {len(tensors)}")
        axes = [a % x.ndim for a, x in zip(self._pair, tensors, strict=True)]
        x, y = tensors
        extents = {x.shape[axes[0]], y.shape[axes[1]]}
        if 0 in axes or (len(extents) > 1 and None not in extents):
            raise ShapeError(
                f"Dot: expected equal extents along the axes {tuple(axes)}, none of "
                f"them the batch; received shapes {x.shape} and {y.shape}"
            )
        if self.normalize:
            x, y = _of_length_1(x, axes[0]), _of_length_1(y, axes[1])
        letters = iter("cdefghijklmnopqrst")
        x_letters, y_letters = (
            ["a", *(next(letters) for _ in range(t.ndim - 1))] for t in (x, y)
        )
        x_letters[axes[0]] = y_letters[axes[1]] = "z"
        remaining = [*x_letters[1:], *y_letters[1:]]
        result = "a" + "".join(letter for letter in remaining if letter != "z")
        total = ops.einsum(f"{''.join(x_letters)},{''.join(y_letters)}->{result}", x, y)
        return ops.expand_dims(total, -1) if total.ndim == 1 else total

    def compute_mask(self, inputs: Any, mask: Any = None) -> None:
        """Return None: the sum removes the masked axis.

        Args:
            inputs: a list of tensors.
            mask: a list with a mask or None for each input.
        """


def _of_length_1(x: TensorLike, axis: int) -> Tensor:
    squared = ops.sum(ops.square(x), axis=axis, keepdims=True)
    return x * ops.rsqrt(ops.maximum(squared, 1e-12))


def _expand_mask(mask: Tensor, x: Tensor) -> Tensor:
    """Insert axes into a mask, (batch, ...), to match the rank of its tensor."""
    return ops.reshape(mask, (*mask.shape, *(1,) * (x.ndim - mask.ndim)))


def _of_unmasked(
    function: Callable[..., Any], inputs: list[Any], masks: list[Any]
) -> Tensor:
    """Reduce pairs of tensors; a masked element yields to the unmasked one."""
    result, is_valid = inputs[0], masks[0]
    for x, mask in zip(inputs[1:], masks[1:], strict=True):
        x = x if mask is None else ops.where(mask, x, result)
        result = result if is_valid is None else ops.where(is_valid, result, x)
        present = is_valid is not None and mask is not None
        is_valid = ops.logical_or(is_valid, mask) if present else None
        result = function(result, x)
    return result


def add(inputs: Any, **kwargs: Unpack[RegularizedLayerOptions]) -> Tensor:
    """Return the sum of tensors: `Add(**kwargs)(inputs)`.

    Args:
        inputs: a list of tensors whose shapes broadcast after the batch.

    Returns:
        A tensor of the broadcast shape.

    Example:
        >>> import toolkit
        >>> x, y = toolkit.ops.array([[1.0, 5.0]]), toolkit.ops.array([[3.0, 4.0]])
        >>> toolkit.layers.add([x, y]).tolist()
        [[4.0, 9.0]]
    """
    return Add(**kwargs)(inputs)


def subtract(inputs: Any, **kwargs: Unpack[RegularizedLayerOptions]) -> Tensor:
    """Return the difference of two tensors: `Subtract(**kwargs)(inputs)`.

    Args:
        inputs: a list of two tensors whose shapes broadcast after the batch.

    Returns:
        A tensor of the broadcast shape.

    Example:
        >>> import toolkit
        >>> x, y = toolkit.ops.array([[1.0, 5.0]]), toolkit.ops.array([[3.0, 4.0]])
        >>> toolkit.layers.subtract([x, y]).tolist()
        [[-2.0, 1.0]]
    """
    return Subtract(**kwargs)(inputs)


def multiply(inputs: Any, **kwargs: Unpack[RegularizedLayerOptions]) -> Any:
    """Return the product of tensors: `Multiply(**kwargs)(inputs)`.

    Args:
        inputs: a list of tensors whose shapes broadcast after the batch.

    Returns:
        A tensor of the broadcast shape.

    Example:
        >>> import toolkit
        >>> x, y = toolkit.ops.array([[1.0, 5.0]]), toolkit.ops.array([[3.0, 4.0]])
        >>> toolkit.layers.multiply([x, y]).tolist()
        [[3.0, 20.0]]
    """
    return Multiply(**kwargs)(inputs)


def average(inputs: Any, **kwargs: Unpack[RegularizedLayerOptions]) -> Tensor:
    """Return the mean of tensors: `Average(**kwargs)(inputs)`.

    Args:
        inputs: a list of tensors whose shapes broadcast after the batch.

    Returns:
        A tensor of the broadcast shape.

    Example:
        >>> import toolkit
        >>> x, y = toolkit.ops.array([[1.0, 5.0]]), toolkit.ops.array([[3.0, 4.0]])
        >>> toolkit.layers.average([x, y]).tolist()
        [[2.0, 4.5]]
    """
    return Average(**kwargs)(inputs)


def maximum(inputs: Any, **kwargs: Unpack[RegularizedLayerOptions]) -> Any:
    """Return the maximum of tensors: `Maximum(**kwargs)(inputs)`.

    Args:
        inputs: a list of tensors whose shapes broadcast after the batch.

    Returns:
        A tensor of the broadcast shape.

    Example:
        >>> import toolkit
        >>> x, y = toolkit.ops.array([[1.0, 5.0]]), toolkit.ops.array([[3.0, 4.0]])
        >>> toolkit.layers.maximum([x, y]).tolist()
        [[3.0, 5.0]]
    """
    return Maximum(**kwargs)(inputs)


def minimum(inputs: Any, **kwargs: Unpack[RegularizedLayerOptions]) -> Any:
    """Return the minimum of tensors: `Minimum(**kwargs)(inputs)`.

    Args:
        inputs: a list of tensors whose shapes broadcast after the batch.

    Returns:
        A tensor of the broadcast shape.

    Example:
        >>> import toolkit
        >>> x, y = toolkit.ops.array([[1.0, 5.0]]), toolkit.ops.array([[3.0, 4.0]])
        >>> toolkit.layers.minimum([x, y]).tolist()
        [[1.0, 4.0]]
    """
    return Minimum(**kwargs)(inputs)


def concatenate(
    inputs: Any, axis: int = -1, **kwargs: Unpack[RegularizedLayerOptions]
) -> Tensor:
    """Concatenate tensors along an axis: `Concatenate(axis, **kwargs)(inputs)`.

    Args:
        inputs: a list of tensors whose shapes differ along `axis` only.
        axis: the axis; the batch is axis 0.

    Returns:
        A tensor of the input shape, with the sum of the extents along `axis`.

    Example:
        >>> import toolkit
        >>> x, y = toolkit.ops.ones((2, 3)), toolkit.ops.ones((2, 5))
        >>> toolkit.layers.concatenate([x, y]).shape
        (2, 8)
    """
    return Concatenate(axis=axis, **kwargs)(inputs)


def dot(
    inputs: Any, axes: Axis = -1, **kwargs: Unpack[RegularizedLayerOptions]
) -> Tensor:
    """Return the batched dot product of two tensors: `Dot(axes, **kwargs)(inputs)`.

    Args:
        inputs: a list of two tensors, (batch, ...).
        axes: the axis of both tensors, or (axis of the first, of the second); not 0.

    Returns:
        A tensor, (batch, other axes of the first, other axes of the second), or (batch,
        1) without other axes.

    Example:
        >>> import toolkit
        >>> x, y = toolkit.ops.array([[1.0, 2.0]]), toolkit.ops.array([[3.0, 4.0]])
        >>> toolkit.layers.dot([x, y], axes=1).tolist()
        [[11.0]]
    """
    return Dot(axes=axes, **kwargs)(inputs)
