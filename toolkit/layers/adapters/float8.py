"""Weight for training with 8-bit float products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import ops
from toolkit.core.tensor import Tensor
from toolkit.dtype_policies import QuantizedFloat8DTypePolicy
from toolkit.layers.adapters.weight import Weight
from toolkit.quantizers.float8 import (
    FORMATS,
    compute_float8_amax_history,
    compute_float8_scale,
    quantize_and_dequantize,
)
from toolkit.type_aliases import TensorLike

_FORWARD, _BACKWARD = "float8_e4m3fn", "float8_e5m2"
_ROUNDED = ("inputs", "kernel", "outputs_grad")


class Float8Weight(Weight):
    """Floating weight whose product rounds inputs, weight and gradients to 8 bits.

    Scales follow the history of absolute maxima. They are trainable variables: their
    gradients are their next values.
    """

    mode: str = "float8"
    scales: tuple[str, ...] = tuple(
        f"{factor}_{suffix}"
        for factor in _ROUNDED
        for suffix in ("scale", "amax_history")
    )

    def create_scales(self) -> None:
        """Create a scale, and a history of absolute maxima, for each factor."""
        length = getattr(
            self.layer.dtype_policy,
            "amax_history_length",
            QuantizedFloat8DTypePolicy.default_amax_history_length,
        )
        for name in self.scales:
            is_scale = name.endswith("scale")
            weight = self.layer.add_weight(
                () if is_scale else (length,),
                "ones" if is_scale else "zeros",
                "float32",
                autocast=False,
                overwrite_with_gradient=True,
                name=name,
            )
            setattr(self.layer, name, weight)

    def multiply(self, product: Callable[[Any, Any], Any], inputs: Any) -> Any:
        x, kernel, gradient = (
            [
                getattr(self.layer, f"{factor}_{suffix}")
                for suffix in ("scale", "amax_history")
            ]
            for factor in _ROUNDED
        )
        dtype = self.layer.compute_dtype
        weight = ops.convert_to_tensor(self.value())
        y = product(_rounded(inputs, x, dtype), _rounded(weight, kernel, dtype))
        return _with_rounded_gradient(y, gradient, dtype)


def _next(x: TensorLike, scale: Tensor, history: Tensor, kind: str) -> tuple[Any, Any]:
    """Return scale and history after x."""
    scale = compute_float8_scale(ops.max(history), scale, FORMATS[kind].largest)
    return scale, compute_float8_amax_history(x, history)


def _rounded(x: TensorLike, state: list[Any], dtype: str) -> Tensor:
    @ops.custom_gradient
    def rounded(x: TensorLike, scale: Tensor, history: Tensor) -> Any:
        y = quantize_and_dequantize(x, scale, _FORWARD, dtype)
        return y, lambda g: (g, *_next(x, scale, history, _FORWARD))

    return rounded(x, *state)


def _with_rounded_gradient(y: Tensor, state: list[Any], dtype: str) -> Tensor:
    @ops.custom_gradient
    def same(y: Tensor, scale: Tensor, history: Tensor) -> Any:
        def grad(g: Tensor) -> tuple[Tensor, ...]:
            rounded = quantize_and_dequantize(g, scale, _BACKWARD, dtype)
            return rounded, *_next(g, scale, history, _BACKWARD)

        return y, grad

    return same(y, *state)
