"""Directional derivatives, from two reverse passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toolkit import dtypes, ops, tree
from toolkit.autodiff.tape import GradientTape
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError
from toolkit.ops.symbolic import operation


@operation
def jvp(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool = False,
) -> Any:
    """Compute a directional derivative: the Jacobian of a function times a vector.

    Args:
        fun: a function of tensors, or of structures of tensors, that returns a tensor
            or a structure of tensors.
        primals: the sequence of its arguments.
        tangents: the sequence of directions, with the structure and shapes of
            `primals`.
        has_aux: whether `fun` returns (outputs, aux), where aux is returned unchanged.

    Returns:
        A pair (outputs, derivatives), both with the structure of the outputs; with
        `has_aux`, aux is the third element.

    Raises:
        ArgumentError: the numbers of tangents and primals differ.

    Example:
        >>> from toolkit import ops
        >>> y, t = ops.jvp(ops.square, (ops.array(3.0),), (ops.array(1.0),))
        >>> float(y), float(t)
        (9.0, 6.0)
    """
    leaves, directions = tree.flatten(list(primals)), tree.flatten(list(tangents))
    if len(leaves) != len(directions):
        raise ArgumentError(
            "jvp: expected equal numbers of tangents and primals; received "
            f"{len(directions)} and {len(leaves)}"
        )
    # New tensors, so that a tensor that is passed twice counts as two.
    inputs = [ops.reshape(convert(x), convert(x).shape) for x in leaves]
    pairs = zip(inputs, directions, strict=True)
    directions = [ops.broadcast_to(convert(d, x.dtype), x.shape) for x, d in pairs]
    float_positions = [i for i, x in enumerate(inputs) if dtypes.is_float(x.dtype)]
    sources = [inputs[i] for i in float_positions]
    with GradientTape(watch_accessed_variables=False) as outer:
        with GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(sources)
            outputs = fun(*tree.pack_sequence_as(list(primals), inputs))
        outputs, *aux = outputs if has_aux else (outputs,)
        ys = [convert(y) for y in tree.flatten(outputs)]
        # The gradient is linear in the weights of the outputs. The derivative, by these
        # weights, of its product with the direction is the result.
        weights = [ops.zeros_like(y) for y in ys]
        floats = [i for i, y in enumerate(ys) if dtypes.is_float(y.dtype)]
        outer.watch([weights[i] for i in floats])
        gradients = inner.gradient(
            [ys[i] for i in floats],
            sources,
            [weights[i] for i in floats],
            unconnected_gradients="zero",
        )
        total: Any = ops.zeros(())
        for i, g in zip(float_positions, gradients, strict=True):
            total = total + ops.sum(g * directions[i])
    derivatives: list[Tensor] = outer.gradient(
        total, weights, unconnected_gradients="zero"
    )
    return outputs, tree.pack_sequence_as(outputs, derivatives), *aux
