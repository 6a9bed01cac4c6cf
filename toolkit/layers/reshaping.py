"""Layers that move, repeat or remove elements without arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack

from toolkit import ops
from toolkit.arguments import is_int
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ShapeError
from toolkit.layers.call import context
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.layer import Layer
from toolkit.layers.masks import warn_of_mask
from toolkit.layers.weights import positive
from toolkit.ops.checks import fix_of_target
from toolkit.ops.symbolic import KerasTensor
from toolkit.settings import standardize_data_format
from toolkit.type_aliases import IntOrInts, RegularizedLayerOptions


class Flatten(Layer):
    """Flattening of all axes except the batch.

    Args:
        data_format: "channels_first" moves the channels to the end first; the global
            setting if None.

    Input shape: (batch, ...).
    Output shape: (batch, features), also for inputs without features: (batch, 1).

    Example:
        >>> import toolkit
        >>> toolkit.layers.Flatten()(toolkit.ops.ones((2, 3, 4))).shape
        (2, 12)
    """

    def __init__(
        self, data_format: str | None = None, **kwargs: Unpack[RegularizedLayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.data_format: str = standardize_data_format(data_format)
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs: Any) -> Tensor:
        if inputs.ndim > 2 and self.data_format == "channels_first":
            inputs = ops.moveaxis(inputs, 1, -1)
        return ops.reshape(inputs, (inputs.shape[0], math.prod(inputs.shape[1:])))


class Reshape(Layer):
    """Reshaping of each sample.

    Args:
        target_shape: the shape without the batch; one extent can be -1.

    Input shape: (batch, ...).
    Output shape: (batch, *target_shape). The mask is kept if its axes stay unchanged.

    Example:
        >>> import toolkit
        >>> toolkit.layers.Reshape((-1, 2))(toolkit.ops.ones((5, 12))).shape
        (5, 6, 2)
    """

    def __init__(
        self, target_shape: IntOrInts, **kwargs: Unpack[RegularizedLayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        shape: Any = target_shape
        target: tuple[int, ...] = (shape,) if is_int(shape) else tuple(shape)
        if not all(hasattr(n, "__index__") and n >= -1 for n in target):
            raise ArgumentError(
                "Reshape: each extent is a non-negative integer or -1; "
                f"received target_shape={target}"
            )
        if target.count(-1) > 1:
            raise ArgumentError(
                "Reshape: there can be at most one unknown dimension, -1; "
                f"received target_shape={target}"
            )
        self.target_shape: tuple[int, ...] = target
        self._pass_masks_only()

    def compute_output_spec(self, inputs: Any) -> Any:
        if context.layer is self and -1 not in self.target_shape:
            if None in inputs.shape[1:]:
                shape = (inputs.shape[0], *self.target_shape)
                return KerasTensor(shape, inputs.dtype)
        return super().compute_output_spec(inputs)

    def _target(self, inputs: Tensor) -> tuple[int, ...]:
        """Return the target shape without -1."""
        fixed = math.prod(n for n in self.target_shape if n != -1)
        inferred = math.prod(inputs.shape[1:]) // fixed if fixed else 0
        return tuple(inferred if n == -1 else n for n in self.target_shape)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Return the mask if its axes stay as they are, else None.

        Args:
            inputs: the inputs of the call.
            mask: the mask of the inputs, or None.
        """
        if mask is None or None in inputs.shape[1:]:
            return None  # unknown for symbols without extents
        if self._target(inputs)[: mask.ndim - 1] == tuple(inputs.shape[1 : mask.ndim]):
            return mask
        return warn_of_mask(self)

    def call(self, inputs: Any) -> Tensor:
        size = math.prod(inputs.shape[1:])
        target = self._target(inputs)
        if math.prod(target) != size:
            raise ShapeError(
                f"Reshape: a sample of shape {inputs.shape[1:]} has {size} elements; "
                f"they do not fit target_shape {self.target_shape}"
                f"{fix_of_target(size, self.target_shape)}"
            )
        return ops.reshape(inputs, (inputs.shape[0], *target))


class Permute(Layer):
    """Permutation of the axes of each sample.

    Args:
        dims: a permutation of 1, 2, ...; axis 0, the batch, is fixed. The mask is
            permuted, too, if its axes are still first.

    Example:
        >>> import toolkit
        >>> toolkit.layers.Permute((2, 1))(toolkit.ops.ones((5, 10, 64))).shape
        (5, 64, 10)
    """

    def __init__(
        self, dims: Sequence[int], **kwargs: Unpack[RegularizedLayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.dims: tuple[Any, ...] = tuple(dims)
        if sorted(self.dims) != list(range(1, len(self.dims) + 1)):
            raise ArgumentError(
                "Permute: Invalid permutation for argument `dims`: expected all of "
                f"1, 2, ..., once; received dims={self.dims}"
            )
        self.input_spec = InputSpec(ndim=len(self.dims) + 1)
        self._pass_masks_only()

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Return the mask with permuted axes; None if they are no longer first.

        Args:
            inputs: the inputs of the call.
            mask: the mask of the inputs, or None.
        """
        if mask is None:
            return None
        axes = self.dims[: mask.ndim - 1]
        if sorted(axes) == list(range(1, mask.ndim)):
            return ops.transpose(mask, (0, *axes))
        return warn_of_mask(self)

    def call(self, inputs: Any) -> Tensor:
        return ops.transpose(inputs, (0, *self.dims))


class RepeatVector(Layer):
    """Repetition of each vector n times.

    Args:
        n: the number of repetitions.

    Input shape: (batch, features).
    Output shape: (batch, n, features).

    Example:
        >>> import toolkit
        >>> toolkit.layers.RepeatVector(2)(toolkit.ops.array([[1.0, 2.0]])).tolist()
        [[[1.0, 2.0], [1.0, 2.0]]]
    """

    def __init__(self, n: int, **kwargs: Unpack[RegularizedLayerOptions]) -> None:
        super().__init__(**kwargs)
        self.n: int = positive(self, "n", n)
        self.input_spec = InputSpec(ndim=2)

    def call(self, inputs: Any) -> Tensor:
        shape = (inputs.shape[0], self.n, inputs.shape[1])
        return ops.broadcast_to(ops.expand_dims(inputs, 1), shape)
