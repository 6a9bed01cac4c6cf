"""Products with int4 weights of Keras, without a float kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

from toolkit import ops
from toolkit.ops.int4 import matmul_int4

# The layers whose kernel Keras packs as (rows, ceil(columns / 2)), in groups of rows.
LAYERS = ("keras.src.layers.core.dense", "keras.src.layers.core.einsum_dense")


def multiply_packed(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method `_int4_call` that multiplies by the packed kernel.

    Keras unpacks and scales the whole kernel in each call. `matmul_int4` unpacks it in
    registers. Both compute `x @ ((number - zero[group]) * scale[group])`. The call of
    Keras remains for kernels without groups, for LoRA, for other dtypes than float32,
    and for equations that are not a matrix product.

    Args:
        call: the method of the layer.
    """

    @wraps(call)
    def _int4_call(self: Any, inputs: Any, training: Any = None) -> Any:
        columns = column_extents(self)
        if columns is None or self.lora_enabled or inputs.dtype != "float32":
            return call(self, inputs, training=training)
        values = self._kernel, self.kernel_scale, self.kernel_zero, self.g_idx
        packed, *scales = map(ops.convert_to_tensor, values)
        rows = packed.shape[0]
        batch = list(inputs.shape)
        while math.prod(inputs.shape[len(batch) :]) < rows:
            batch.pop()
        x = matmul_int4(ops.reshape(inputs, (*batch, rows)), packed, *scales)
        x = ops.reshape(x, (*batch, *columns))
        if self.bias is not None:
            x = ops.add(x, self.bias)
        return x if self.activation is None else self.activation(x)

    return _int4_call


def column_extents(layer: Any) -> tuple[int, ...] | None:
    """Return the extents of the columns of an int4 kernel, if it is a grouped matrix.

    Args:
        layer: a Dense or an EinsumDense.

    Returns:
        (units,) for a Dense. For an EinsumDense the last axes of the kernel if the
        equation is `inputs @ kernel` with flattened axes, such as "abc,cde->abde".
        None for other kernels.
    """
    if not getattr(layer, "_int4_block_size", None) or layer._int4_block_size == -1:
        return None
    if not hasattr(layer, "equation"):
        return (layer._orig_output_dim,)
    inputs, _, right = layer.equation.replace(" ", "").partition(",")
    kernel, _, output = right.partition("->")
    inputs, output = inputs.replace("...", "."), output.replace("...", ".")
    reduced = "".join(axis for axis in kernel if axis in inputs and axis not in output)
    columns = kernel.removeprefix(reduced)
    is_matrix_product = (
        kernel == reduced + columns
        and inputs.endswith(reduced)
        and output == inputs.removesuffix(reduced) + columns
    )
    extents = layer.original_kernel_shape
    rows = math.prod(extents[: len(reduced)])
    if not is_matrix_product or rows != layer._kernel.shape[0]:
        return None
    return tuple(extents[len(reduced) :])
