"""Identity, Masking and Lambda."""

from __future__ import annotations

import inspect
from typing import Any, Unpack

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentTypeError
from toolkit.layers.layer import Layer
from toolkit.ops.symbolic import KerasTensor, is_symbolic
from toolkit.serialization import custom_object_scope
from toolkit.serialization.reading import replace_lambda
from toolkit.type_aliases import RegularizedLayerOptions


class Identity(Layer):
    """Identity layer: returns its inputs.

    Output shape: same as the inputs, which can be any structure of tensors.

    Example:
        >>> import toolkit
        >>> toolkit.layers.Identity()(toolkit.ops.array([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """

    def __init__(self, **kwargs: Unpack[RegularizedLayerOptions]) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        return inputs


class Masking(Layer):
    """Layer that masks the steps of sequences whose features all equal `mask_value`.

    These steps become 0, and later layers receive a mask with False for them.

    Args:
        mask_value: the value of masked steps.

    Input and output shape: (batch, steps, features).

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.convert_to_tensor([[[1.0, 2.0], [0.0, 0.0]]])
        >>> toolkit.layers.Masking()(x)._keras_mask.tolist()
        [[True, False]]
    """

    def __init__(
        self, mask_value: float = 0.0, **kwargs: Unpack[RegularizedLayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.mask_value = mask_value

    def call(self, inputs: Any) -> Any:
        is_valid = ops.any(
            ops.not_equal(inputs, self.mask_value), axis=-1, keepdims=True
        )
        return inputs * ops.cast(is_valid, inputs.dtype)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Tensor:
        return ops.any(ops.not_equal(inputs, self.mask_value), axis=-1)


class Lambda(Layer):
    """Layer without weights that applies a function of tensors.

    A file contains the function's name, never its code. To load the file, register the
    function with `register_keras_serializable` or pass it in `custom_objects`. A lambda
    has no name: pass it in `custom_objects` under the layer's name.

    Args:
        function: a function of the inputs; it also receives `mask` and `training` if it
            has these parameters.
        output_shape: the outputs' shape without the batch, or a function of the inputs'
            shape that returns the full shape; inferred if None.
        mask: the outputs' mask, or a function of (inputs, mask) that returns it.
        arguments: additional arguments of the function, by name.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Lambda(lambda x, n: x**n, arguments={"n": 2})
        >>> layer(toolkit.ops.arange(4)).tolist()
        [0, 1, 4, 9]
    """

    _lambdas = ("function",)

    def __init__(
        self,
        function: Any,
        output_shape: Any = None,
        mask: Any = None,
        arguments: dict[str, Any] | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if not callable(function):
            raise ArgumentTypeError(
                f"Lambda: expected a function; received {function!r}"
            )
        self.function = function
        self.arguments: dict[str, Any] = dict(arguments or {})
        self.mask = mask
        self._computes_mask = mask is not None
        self.supports_masking: bool = self._computes_mask
        if output_shape is not None and not callable(output_shape):
            output_shape = tuple(output_shape)
        self._output_shape = output_shape
        self._takes = set(inspect.signature(function).parameters)

    def call(self, inputs: Any, mask: Any = None, training: bool | None = None) -> Any:
        options = dict(self.arguments)
        if "mask" in self._takes:
            options["mask"] = mask
        if "training" in self._takes:
            options["training"] = training
        return self.function(inputs, **options)

    def compute_output_spec(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if self._output_shape is None or not is_symbolic(inputs):
            return super().compute_output_spec(inputs, *args, **kwargs)
        if callable(self._output_shape):
            shape = tuple(self._output_shape(inputs.shape))
        else:
            shape = (inputs.shape[0], *self._output_shape)
        return KerasTensor(shape, dtype=self.compute_dtype)

    @classmethod
    def from_config(
        cls,
        config: dict[str, Any],
        custom_objects: dict[str, Any] | None = None,
        safe_mode: bool | None = None,
    ) -> Any:
        """Build a layer from the result of `get_config`.

        Args:
            config: the result of `get_config`.
            custom_objects: functions by name; a lambda by the name of the layer.
            safe_mode: ignored: the code of a lambda is never run.

        Returns:
            The layer.
        """
        with custom_object_scope(custom_objects or {}):
            return super().from_config(replace_lambda(config, custom_objects))

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return self.mask(inputs, mask) if callable(self.mask) else self.mask
