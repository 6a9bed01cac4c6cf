"""`vectorize`: apply a function of single elements to whole tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from functools import wraps
from typing import Any

from toolkit import ops, tree
from toolkit.control_flow.loops import vectorized_map
from toolkit.core.convert import convert
from toolkit.errors import ArgumentError
from toolkit.ops.checks import broadcast_shapes


def vectorize(
    pyfunc: Callable[..., Any],
    *,
    excluded: Collection[int] | None = None,
    signature: str | None = None,
) -> Callable[..., Any]:
    """Return a function that applies another function to each element of its arguments.

    Args:
        pyfunc: a function of scalars, or of arrays as defined by `signature`.
        excluded: indices of arguments that are passed unchanged. None means no
            argument.
        signature: the axes of single elements, such as "(m,n),(n)->(m)" for the product
            of a matrix and a vector. Leading axes broadcast. None means scalars.

    Returns:
        A function with the arguments of `pyfunc`. It returns tensors with the broadcast
        leading axes.

    Raises:
        ArgumentError: `pyfunc` is not a function, or the number of arguments
            contradicts `signature`.

    Example:
        >>> from toolkit import ops
        >>> largest = ops.vectorize(lambda a, b: ops.maximum(a, b))
        >>> largest([1, 5, 3], 2).tolist()
        [2, 5, 3]
    """
    if not callable(pyfunc):
        raise ArgumentError(f"vectorize: expected a function; received {pyfunc!r}")
    excluded_indices = set(excluded or ())
    ranks = None if signature is None else _parse_ranks(signature)

    @wraps(pyfunc)
    def vectorized(*args: Any) -> Any:
        indices = [i for i in range(len(args)) if i not in excluded_indices]
        core_ranks = [0] * len(indices) if ranks is None else ranks
        if len(core_ranks) != len(indices):
            raise ArgumentError(
                f"vectorize: expected {len(core_ranks)} arguments for the signature "
                f"{signature!r}; received {len(indices)}"
            )
        xs = [convert(args[i]) for i in indices]
        batch_ranks = [x.ndim - rank for x, rank in zip(xs, core_ranks, strict=True)]
        pairs = list(zip(xs, batch_ranks, strict=True))
        batch = broadcast_shapes("vectorize", *(x.shape[:n] for x, n in pairs))
        rows = [
            ops.reshape(
                ops.broadcast_to(x, (*batch, *x.shape[n:])),
                (math.prod(batch), *x.shape[n:]),
            )
            for x, n in pairs
        ]

        def apply(elements: Any) -> Any:
            by_index = dict(zip(indices, elements, strict=True))
            return pyfunc(*(by_index.get(i, args[i]) for i in range(len(args))))

        results = vectorized_map(apply, tuple(rows))
        return tree.map_structure(
            lambda y: ops.reshape(y, (*batch, *y.shape[1:])), results
        )

    return vectorized


def _parse_ranks(signature: str) -> list[int]:
    """Return the number of axes of each argument of a signature."""
    inputs, arrow, outputs = signature.replace(" ", "").partition("->")
    if not (arrow and inputs.startswith("(") and outputs.endswith(")")):
        raise ArgumentError(
            f"vectorize: expected a signature like '(m,n),(n)->(m)'; "
            f"received {signature!r}"
        )
    groups = inputs[1:-1].split("),(")
    return [len([axis for axis in group.split(",") if axis]) for group in groups]
