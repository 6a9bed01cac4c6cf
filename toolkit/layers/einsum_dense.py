"""EinsumDense: an einsum with a kernel, plus a bias."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Unpack

from toolkit import activations, ops
from toolkit.arguments import Positive, is_int
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ShapeError
from toolkit.initializers import VarianceScaling
from toolkit.layers.adapters.quantizable import QuantizableLayer
from toolkit.layers.adapters.whole import ScaleLayout
from toolkit.layers.weights import create_weight, declare_weight
from toolkit.type_aliases import (
    ActivationLike,
    ConstraintLike,
    InitializerLike,
    RegularizedLayerOptions,
    RegularizerLike,
    Shape,
)


class EinsumDense(QuantizableLayer):
    """Dense layer along any axes: `activation(einsum(inputs, kernel) + bias)`.

    Args:
        equation: inputs, kernel and outputs, such as "abc,cd->abd" or "...x,xy->...y".
        output_shape: extents of the outputs without the batch; None for extents of the
            inputs. An integer for a single extent.
        activation: a name or a function; None for none.
        bias_axes: the letters of output axes in the bias, such as "d"; None for no
            bias.
        kernel_initializer: initializer of the kernel.
        bias_initializer: initializer of the bias.
        kernel_regularizer: regularizer of the kernel.
        bias_regularizer: regularizer of the bias.
        kernel_constraint: constraint of the kernel, applied after each update.
        bias_constraint: constraint of the bias, applied after each update.
        lora_rank: rank of a LoRA adaptation of the kernel (see `enable_lora`), or None.
        lora_alpha: the adaptation is scaled by `lora_alpha / lora_rank`.

    Input shape: as the first operand of the equation.
    Output shape: as the equation's result.

    Example:
        >>> import toolkit
        >>> layer = toolkit.layers.EinsumDense("abc,cd->abd", (None, 64), bias_axes="d")
        >>> layer(toolkit.ops.ones((2, 32, 128))).shape
        (2, 32, 64)
    """

    _kernel: Variable

    def __init__(
        self,
        equation: str,
        output_shape: Any,
        activation: ActivationLike | None = None,
        bias_axes: str | None = None,
        kernel_initializer: InitializerLike | None = "glorot_uniform",
        bias_initializer: InitializerLike | None = "zeros",
        kernel_regularizer: RegularizerLike | None = None,
        bias_regularizer: RegularizerLike | None = None,
        kernel_constraint: ConstraintLike | None = None,
        bias_constraint: ConstraintLike | None = None,
        lora_rank: Positive | None = None,
        lora_alpha: float | None = None,
        **kwargs: Unpack[RegularizedLayerOptions],
    ) -> None:
        super().__init__(lora_rank=lora_rank, lora_alpha=lora_alpha, **kwargs)
        self.equation = equation
        single = is_int(output_shape)
        self.partial_output_shape: tuple[Any, ...] = (
            (output_shape,) if single else tuple(output_shape)
        )
        self.activation: Any = activations.get(activation)
        self.bias_axes = bias_axes
        declare_weight(
            self, "kernel", kernel_initializer, kernel_regularizer, kernel_constraint
        )
        declare_weight(
            self, "bias", bias_initializer, bias_regularizer, bias_constraint
        )

    def build(self, input_shape: Any) -> None:
        self._letters = expanded_equation(self.equation, len(input_shape))
        kernel_shape, bias_shape = analyse_einsum(
            self.equation, self.bias_axes, input_shape, self.partial_output_shape
        )
        self._create_adapted(kernel_shape)
        self.bias: Variable | None = None
        if bias_shape is not None:
            self.bias = create_weight(self, "bias", bias_shape)
        self._adapt_if_asked()

    def _main_initializer(self) -> Any:
        """Return the kernel's initializer; the summed axes are the inputs of a unit."""
        initializer = super()._main_initializer()
        if not isinstance(initializer, VarianceScaling):
            return initializer
        _, kernel, outputs = self._letters
        axes = range(len(kernel))
        return initializer.for_axes(
            [i for i in axes if kernel[i] not in outputs],
            [i for i in axes if kernel[i] in outputs],
        )

    @property
    def kernel(self) -> Any:
        """Return the second operand of the equation, including the adapter."""
        return self._main_weight()

    def _scale_layout(self) -> ScaleLayout:
        return _EinsumScales(*self._letters)

    def call(self, inputs: Any) -> Tensor:
        product = partial(ops.einsum, self.equation)
        if self._adapter is None:
            x = product(inputs, self._kernel)
        else:
            x = self._adapter.multiply(product, inputs)
        if self.bias is not None:
            x = x + self.bias
        return x if self.activation is None else self.activation(x)


class _EinsumScales(ScaleLayout):
    """Scales for the axes of a kernel that are also axes of the outputs."""

    def __init__(self, inputs: str, kernel: str, outputs: str) -> None:
        summed = set(inputs) & set(kernel) - set(outputs)
        super().__init__(
            tuple(i for i, letter in enumerate(kernel) if letter not in outputs),
            tuple(i for i, letter in enumerate(inputs) if letter in summed),
        )
        self._inputs, self._kernel, self._outputs = inputs, kernel, outputs
        # An axis that is summed in the inputs only has a scale per position.
        self.is_separable = set(inputs) <= summed | set(outputs)
        kernel_only = [letter for letter in kernel if letter not in inputs]
        self.is_matrix = (
            self.is_separable
            and self.shared == tuple(range(len(summed)))
            and len(summed) + len(kernel_only) == len(kernel)
        )
        axes = [kernel.index(letter) for letter in outputs if letter in kernel]
        self._order = [*axes, *self.shared]

    def rows_of(self, inputs: Tensor) -> Tensor:
        summed = [self._kernel[i] for i in self.shared]
        letters = [letter for letter in self._inputs if letter not in summed]
        order = [self._inputs.index(letter) for letter in (*letters, *summed)]
        rows = math.prod(inputs.shape[i] for i in order[len(letters) :])
        return ops.reshape(ops.transpose(inputs, order), (-1, rows))

    def to_stored_scale(self, scale: Tensor) -> Tensor:
        """Return the scale with the axes of the outputs, extent 1 for missing axes."""
        shape = [
            scale.shape[self._kernel.index(x)] if x in self._kernel else 1
            for x in self._outputs
        ]
        return ops.reshape(ops.transpose(scale, self._order), shape)

    def of_outputs(self, scale: Tensor) -> Tensor:
        axes = [letter for letter in self._outputs if letter in self._inputs]
        summed = [letter for letter in self._inputs if letter not in axes]
        order = [self._inputs.index(letter) for letter in (*axes, *summed)]
        extents = dict(zip(self._inputs, scale.shape, strict=True))
        shape = [extents.get(letter, 1) for letter in self._outputs]
        return ops.reshape(ops.transpose(scale, order), shape)

    def of_weight(self, scale: Any, shape: Shape) -> Tensor:
        axes = self.scale_shape(shape)
        back = sorted(range(len(axes)), key=self._order.__getitem__)
        return ops.transpose(ops.reshape(scale, [axes[i] for i in self._order]), back)


# --- weight shapes ------------------------------------------------------------------


def analyse_einsum(
    equation: str, bias_axes: str | None, input_shape: Shape, output_shape: Any
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return the shapes of kernel and bias.

    Args:
        equation: "inputs,kernel->outputs"; inputs and outputs can have an ellipsis.
        bias_axes: letters of the outputs, or None.
        input_shape: with the batch.
        output_shape: without the batch; None if the inputs determine the extent.
    """
    inputs, kernel, outputs = expanded_equation(equation, len(input_shape))
    if len(inputs) != len(input_shape):
        raise ShapeError(
            f"EinsumDense: {equation!r} expects inputs with {len(inputs)} axes; "
            f"received shape {tuple(input_shape)}"
        )
    missing_axes = len(outputs) - len(output_shape)
    if missing_axes > 1 and equation.replace(" ", "").endswith("..."):
        # After the batch, the axes of a trailing ellipsis can also be omitted.
        output_shape = (input_shape[0], *output_shape, *input_shape[1 - missing_axes :])
    elif missing_axes > 0:
        output_shape = (*input_shape[:missing_axes], *output_shape)
    if len(output_shape) != len(outputs):
        raise ArgumentError(
            f"EinsumDense: {equation!r} has outputs with {len(outputs)} axes; "
            f"received output_shape {tuple(output_shape)}"
        )
    extents = dict(zip(outputs, output_shape, strict=True))
    for letter, n in zip(inputs, input_shape, strict=True):
        extent = extents.get(letter)
        if extent is not None and n is not None and extent != n:
            raise ShapeError(
                f"EinsumDense: axis {letter!r} of {equation!r} has extent {n} in the "
                f"inputs and {extent} in output_shape"
            )
        extents[letter] = n if extent is None else extent
    kernel_shape = _extents(equation, kernel, extents)
    if bias_axes is None:
        return kernel_shape, None
    return kernel_shape, _bias_shape(equation, outputs, bias_axes, extents)


def split_equation(equation: str) -> tuple[str, str, str]:
    """Return the three parts of "inputs,kernel->outputs"."""
    operands, arrow, outputs = equation.replace(" ", "").partition("->")
    terms = operands.split(",")
    dots = ["..." in side for side in (terms[0], outputs)]
    if not arrow or len(terms) != 2 or "." in terms[1] or dots[0] != dots[1]:
        raise ArgumentError(
            "EinsumDense: expected an equation such as 'abc,cd->abd' or "
            f"'...c,cd->...d'; received {equation!r}"
        )
    return terms[0], terms[1], outputs


def expanded_equation(equation: str, ndim: int) -> tuple[str, str, str]:
    """Return the three parts, with digits for the axes of the inputs' ellipsis."""
    inputs, kernel, outputs = split_equation(equation)
    covered = ndim - len(inputs.replace("...", ""))
    return _expand(inputs, covered), kernel, _expand(outputs, covered)


def _expand(side: str, covered: int) -> str:
    """Replace the ellipsis of `side` by digits for its axes."""
    return side.replace("...", "".join(map(str, range(max(covered, 0)))))


def _extents(equation: str, letters: str, extents: dict[str, Any]) -> tuple[int, ...]:
    shape = tuple(extents.get(letter) for letter in letters)
    static = tuple(n for n in shape if n is not None)
    if len(static) < len(shape):
        raise ArgumentError(
            f"EinsumDense: an extent of the weight {letters!r} of {equation!r} is "
            f"unknown; received {shape}"
        )
    return static


def _bias_shape(
    equation: str, outputs: str, bias_axes: str, extents: dict[str, Any]
) -> tuple[int, ...]:
    """Return the extents of the bias's axes, and 1 for axes between and after them."""
    unknown = [letter for letter in bias_axes if letter not in outputs]
    if unknown:
        raise ArgumentError(
            f"EinsumDense: bias_axes {bias_axes!r} has {unknown[0]!r}, which is not "
            f"among the outputs of {equation!r}"
        )
    if not bias_axes:
        return ()
    first = min(map(outputs.index, bias_axes))
    return tuple(
        _extents(equation, letter, extents)[0] if letter in bias_axes else 1
        for letter in outputs[first:]
    )
