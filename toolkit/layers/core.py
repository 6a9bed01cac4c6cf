"""Dense, EinsumDense and Embedding: the layers that are one product or one lookup."""

from __future__ import annotations

from typing import Any

from toolkit import activations, dtypes, ops
from toolkit.layers.einsum_shapes import analyse_einsum
from toolkit.layers.input_spec import InputSpec
from toolkit.layers.layer import Layer
from toolkit.layers.weights import create_weight, declare_weight, known, positive


class Dense(Layer):
    """A fully connected layer: `activation(inputs @ kernel + bias)`.

    Args:
        units: extent of the outputs' last axis.
        activation: a name or a function; None for none.
        use_bias: whether there is a bias.
        kernel_initializer: how the kernel, (features, units), starts.
        bias_initializer: how the bias, (units,), starts.
        kernel_regularizer: a penalty on the kernel.
        bias_regularizer: a penalty on the bias.
        activity_regularizer: a penalty on the outputs.
        kernel_constraint: applied to the kernel after each update.
        bias_constraint: applied to the bias after each update.

    Input shape: (batch, ..., features).
    Output shape: (batch, ..., units).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Dense(4, activation="relu")
        >>> layer(toolkit.ops.ones((2, 3))).shape
        (2, 4)
    """

    def __init__(
        self,
        units: int,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self.units = positive(self, "units", units)
        self.activation = activations.get(activation)
        self.use_bias = use_bias
        declare_weight(
            self, "kernel", kernel_initializer, kernel_regularizer, kernel_constraint
        )
        declare_weight(
            self, "bias", bias_initializer, bias_regularizer, bias_constraint
        )
        self.input_spec = InputSpec(min_ndim=2)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        features = known(self, input_shape)
        self.kernel = create_weight(self, "kernel", (features, self.units))
        self.bias = (
            create_weight(self, "bias", (self.units,)) if self.use_bias else None
        )
        self.input_spec = InputSpec(min_ndim=2, axes={-1: features})

    def call(self, inputs: Any) -> Any:
        x = ops.matmul(inputs, self.kernel)
        if self.bias is not None:
            x = x + self.bias
        return self.activation(x)


class EinsumDense(Layer):
    """A dense layer along any axes: `activation(einsum(inputs, kernel) + bias)`.

    Args:
        equation: such as "abc,cd->abd" or "...x,xy->...y": inputs, kernel, outputs.
        output_shape: extents of the outputs without the batch; None where they are
            those of the inputs. An integer if there is only one.
        activation: a name or a function; None for none.
        bias_axes: the letters of the outputs' axes that the bias has, "d"; None for no
            bias.
        kernel_initializer: how the kernel starts.
        bias_initializer: how the bias starts.
        kernel_regularizer: a penalty on the kernel.
        bias_regularizer: a penalty on the bias.
        kernel_constraint: applied to the kernel after each update.
        bias_constraint: applied to the bias after each update.

    Input shape: as the first operand of the equation.
    Output shape: as the equation's result.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.EinsumDense("abc,cd->abd", (None, 64), bias_axes="d")
        >>> layer(toolkit.ops.ones((2, 32, 128))).shape
        (2, 32, 64)
    """

    def __init__(
        self,
        equation: str,
        output_shape: Any,
        activation: Any = None,
        bias_axes: str | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.equation = equation
        single = isinstance(output_shape, int)
        self.partial_output_shape = (output_shape,) if single else tuple(output_shape)
        self.activation = activations.get(activation)
        self.bias_axes = bias_axes
        declare_weight(
            self, "kernel", kernel_initializer, kernel_regularizer, kernel_constraint
        )
        declare_weight(
            self, "bias", bias_initializer, bias_regularizer, bias_constraint
        )

    def build(self, input_shape: Any) -> None:
        kernel_shape, bias_shape = analyse_einsum(
            self.equation, self.bias_axes, input_shape, self.partial_output_shape
        )
        self.kernel = create_weight(self, "kernel", kernel_shape)
        self.bias = None
        if bias_shape is not None:
            self.bias = create_weight(self, "bias", bias_shape)

    def call(self, inputs: Any) -> Any:
        x = ops.einsum(self.equation, inputs, self.kernel)
        if self.bias is not None:
            x = x + self.bias
        return self.activation(x)


class Embedding(Layer):
    """A table of vectors: `embeddings[inputs]`.

    Args:
        input_dim: number of rows; indices are in [0, input_dim).
        output_dim: extent of each vector.
        embeddings_initializer: how the table, (input_dim, output_dim), starts.
        embeddings_regularizer: a penalty on the table.
        embeddings_constraint: applied to the table after each update.
        mask_zero: whether index 0 means padding: then the outputs carry a mask.
        weights: the table's first value, instead of the initializer's.

    Input shape: any, of integers.
    Output shape: (*input shape, output_dim).

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.Embedding(1000, 64)
        >>> layer(toolkit.ops.ones((32, 10), dtype="int32")).shape
        (32, 10, 64)
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        mask_zero: bool = False,
        weights: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.input_dim = positive(self, "input_dim", input_dim)
        self.output_dim = positive(self, "output_dim", output_dim)
        declare_weight(
            self,
            "embeddings",
            embeddings_initializer,
            embeddings_regularizer,
            embeddings_constraint,
        )
        self.mask_zero = self.supports_masking = self._computes_mask = mask_zero
        # The caller's array is no configuration: files hold weights apart.
        self._arguments = {**(self._arguments or {}), "weights": None}
        # Indices are no floats to be cast: 16 bits could not tell them apart.
        self._input_dtype = None
        if weights is not None:
            self.build(None)
            self.set_weights(weights if isinstance(weights, list) else [weights])

    def build(self, input_shape: Any = None) -> None:
        shape = (self.input_dim, self.output_dim)
        self.embeddings = create_weight(self, "embeddings", shape)

    def call(self, inputs: Any) -> Any:
        if inputs.dtype not in ("int32", "int64"):
            inputs = ops.cast(inputs, "int32")
        x = ops.take(self.embeddings, inputs, axis=0)
        return x if dtypes.is_float(x.dtype) else ops.cast(x, self.compute_dtype)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        return ops.not_equal(inputs, 0) if self.mask_zero else None
