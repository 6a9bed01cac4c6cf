"""The shapes of EinsumDense's weights, from its equation."""

from __future__ import annotations

from typing import Any

from toolkit.errors import ArgumentError, ShapeError


def analyse_einsum(
    equation: str, bias_axes: str | None, input_shape: Any, output_shape: Any
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """The shapes of kernel and bias.

    Args:
        equation: "inputs,kernel->outputs"; both ends may have an ellipsis.
        bias_axes: letters of the outputs, or None.
        input_shape: with the batch.
        output_shape: without the batch; None where it is known from the inputs.
    """
    inputs, kernel, outputs = expanded_equation(equation, len(input_shape))
    if len(inputs) != len(input_shape):
        raise ShapeError(
            f"EinsumDense: {equation!r} expects inputs with {len(inputs)} axes; "
            f"received shape {tuple(input_shape)}"
        )
    missing = len(outputs) - len(output_shape)
    if missing > 1 and equation.replace(" ", "").endswith("..."):
        # After the batch, what the ellipsis covers at the end is left out too.
        output_shape = (input_shape[0], *output_shape, *input_shape[1 - missing :])
    elif missing > 0:
        output_shape = (*input_shape[:missing], *output_shape)
    if len(output_shape) != len(outputs):
        raise ArgumentError(
            f"EinsumDense: {equation!r} has outputs with {len(outputs)} axes; "
            f"received output_shape {tuple(output_shape)}"
        )
    extents = dict(zip(outputs, output_shape, strict=True))
    for letter, n in zip(inputs, input_shape, strict=True):
        given = extents.get(letter)
        if given is not None and n is not None and given != n:
            raise ShapeError(
                f"EinsumDense: axis {letter!r} of {equation!r} has extent {n} in the "
                f"inputs and {given} in output_shape"
            )
        extents[letter] = n if given is None else given
    kernel_shape = _extents(equation, kernel, extents)
    if bias_axes is None:
        return kernel_shape, None
    return kernel_shape, _bias_shape(equation, outputs, bias_axes, extents)


def split_equation(equation: str) -> tuple[str, str, str]:
    """The three parts of "inputs,kernel->outputs"."""
    operands, arrow, outputs = equation.replace(" ", "").partition("->")
    parts = operands.split(",")
    dots = ["..." in side for side in (parts[0], outputs)]
    if not arrow or len(parts) != 2 or "." in parts[1] or dots[0] != dots[1]:
        raise ArgumentError(
            "EinsumDense: expected an equation such as 'abc,cd->abd' or "
            f"'...c,cd->...d'; received {equation!r}"
        )
    return parts[0], parts[1], outputs


def expanded_equation(equation: str, ndim: int) -> tuple[str, str, str]:
    """The three parts, with digits for the axes of inputs that an ellipsis covers."""
    inputs, kernel, outputs = split_equation(equation)
    covered = ndim - len(inputs.replace("...", ""))
    return _expand(inputs, covered), kernel, _expand(outputs, covered)


def _expand(side: str, covered: int) -> str:
    """`side` with digits for the axes that its ellipsis covers."""
    return side.replace("...", "".join(map(str, range(max(covered, 0)))))


def _extents(equation: str, letters: str, extents: dict[str, Any]) -> tuple[int, ...]:
    shape = tuple(extents.get(letter) for letter in letters)
    if None in shape:
        raise ArgumentError(
            f"EinsumDense: an extent of the weight {letters!r} of {equation!r} is not "
            f"known; received {shape}"
        )
    return shape  # type: ignore[return-value]


def _bias_shape(
    equation: str, outputs: str, bias_axes: str, extents: dict[str, Any]
) -> tuple[int, ...]:
    """Extents of the bias's axes, and 1 for those between and after them."""
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
