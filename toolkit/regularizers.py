"""Regularizers: penalties on weights or activations that are added to the loss."""

from __future__ import annotations

import math
from typing import Any

from toolkit import ops, serialization
from toolkit.arguments import is_real
from toolkit.core.tensor import Tensor
from toolkit.definitions.namespaces import lazy_namespace
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.serialization.recording import Recorded


class Regularizer(Recorded):
    """Base of all regularizers: a function from a tensor to a penalty.

    Subclasses define `__call__(x)`. Their config is the arguments of the constructor.

    Example:
        >>> from toolkit import ops, regularizers
        >>> class Square(regularizers.Regularizer):
        ...     def __init__(self, factor):
        ...         self.factor = factor
        ...     def __call__(self, x):
        ...         return self.factor * ops.sum(ops.square(x))
        >>> float(Square(0.5)(ops.ones((2, 2))))
        2.0
    """

    def __call__(self, x: Any) -> Tensor:
        """Return the penalty of x, a 0-d tensor.

        Args:
            x: a weight, or the outputs of a layer.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define `__call__`")


def _check_factor(regularizer: Any, name: str, value: Any) -> float:
    is_valid = is_real(value) and not isinstance(value, bool)
    if not is_valid or not math.isfinite(value) or value < 0:
        raise ArgumentError(
            f"{type(regularizer).__name__}: {name} must be a finite number >= 0; "
            f"received {value!r}"
        )
    return float(value)


class L1L2(Regularizer):
    """Regularizer with the penalty l1 * sum(|x|) + l2 * sum(x ** 2).

    Args:
        l1: weight of the sum of magnitudes, >= 0.
        l2: weight of the sum of squares, >= 0.

    Example:
        >>> from toolkit import regularizers
        >>> float(regularizers.L1L2(l1=0.5, l2=0.25)([1.0, -2.0]))
        2.75
    """

    def __init__(self, l1: float | None = 0.0, l2: float | None = 0.0) -> None:
        self.l1: float = _check_factor(self, "l1", 0.0 if l1 is None else l1)
        self.l2: float = _check_factor(self, "l2", 0.0 if l2 is None else l2)

    def __call__(self, x: Any) -> Tensor:
        x = ops.convert_to_tensor(x)
        penalty = ops.zeros((), x.dtype)
        if self.l1:
            penalty = penalty + self.l1 * ops.sum(ops.abs(x))
        if self.l2:
            penalty = penalty + self.l2 * ops.sum(ops.square(x))
        return penalty


class L1(Regularizer):
    """Regularizer with the penalty l1 * sum(|x|).

    Args:
        l1: weight of the sum of magnitudes, >= 0.

    Example:
        >>> from toolkit import regularizers
        >>> float(regularizers.L1(0.5)([1.0, -2.0]))
        1.5
    """

    def __init__(self, l1: float | None = 0.01) -> None:
        self.l1: float = _check_factor(self, "l1", 0.01 if l1 is None else l1)

    def __call__(self, x: Any) -> Tensor:
        return self.l1 * ops.sum(ops.abs(x))


class L2(Regularizer):
    """Regularizer with the penalty l2 * sum(x ** 2).

    Args:
        l2: weight of the sum of squares, >= 0.

    Example:
        >>> from toolkit import regularizers
        >>> float(regularizers.L2(0.5)([1.0, -2.0]))
        2.5
    """

    def __init__(self, l2: float | None = 0.01) -> None:
        self.l2: float = _check_factor(self, "l2", 0.01 if l2 is None else l2)

    def __call__(self, x: Any) -> Tensor:
        return self.l2 * ops.sum(ops.square(x))


class OrthogonalRegularizer(Regularizer):
    """Regularizer that penalizes rows (or columns) of a matrix that are not orthogonal.

    The penalty is factor * sum of |cosine| over the pairs, divided by their number.

    Args:
        factor: weight of the penalty, >= 0.
        mode: "rows" or "columns": the vectors that should be orthogonal.

    Example:
        >>> from toolkit import regularizers
        >>> float(regularizers.OrthogonalRegularizer(1.0)([[1.0, 0.0], [0.0, 3.0]]))
        0.0
    """

    def __init__(self, factor: float = 0.01, mode: str = "rows") -> None:
        self.factor: float = _check_factor(self, "factor", factor)
        if mode not in ("rows", "columns"):
            raise unknown_choice(
                "OrthogonalRegularizer: mode", mode, ("rows", "columns")
            )
        self.mode = mode

    def __call__(self, x: Any) -> Tensor:
        x = ops.convert_to_tensor(x)
        if x.ndim != 2:
            raise ShapeError(
                f"OrthogonalRegularizer: expected a matrix; received shape {x.shape}"
            )
        rows = x if self.mode == "rows" else ops.transpose(x)
        squares = ops.sum(ops.square(rows), axis=1, keepdims=True)
        # A zero row has no direction; the lower bound makes its cosine 0.
        rows = rows * ops.rsqrt(ops.maximum(squares, 1e-12))
        n = rows.shape[0]
        cosines = ops.matmul(rows, ops.transpose(rows)) * (
            1 - ops.eye(n, dtype=x.dtype)
        )
        pairs = max(n * (n - 1) / 2, 1)
        return self.factor * 0.5 * ops.sum(ops.abs(cosines)) / pairs


l1: type[L1] = L1
l2: type[L2] = L2
l1_l2: type[L1L2] = L1L2
orthogonal_regularizer: type[OrthogonalRegularizer] = OrthogonalRegularizer

_OBJECTS = {
    **serialization.names_of(Regularizer, L1, L2, L1L2, OrthogonalRegularizer),
    "l1_l2": L1L2,
}


def serialize(regularizer: Any) -> Any:
    """Return the regularizer as a dict of plain values.

    Args:
        regularizer: a regularizer.

    Returns:
        A dict of the class and the config.

    Example:
        >>> from toolkit import regularizers
        >>> regularizers.serialize(regularizers.L2(0.5))["config"]
        {'l2': 0.5}
    """
    return serialization.serialize_keras_object(regularizer)


def deserialize(config: Any, custom_objects: Any = None) -> Any:
    """Create a regularizer from the result of `serialize`.

    Args:
        config: the result of `serialize`, or a name.
        custom_objects: a dict from names to classes that the config contains.

    Returns:
        The regularizer.

    Example:
        >>> from toolkit import regularizers
        >>> config = regularizers.serialize(regularizers.L2(0.5))
        >>> regularizers.deserialize(config).l2
        0.5
    """
    return serialization.get(config, _OBJECTS, "regularizer", custom_objects)


def get(identifier: Any) -> Any:
    """Return the regularizer for a name ("l2"), config, class, function or None.

    Args:
        identifier: a name, config, class, function or object, or None.

    Returns:
        A regularizer, or None.

    Example:
        >>> from toolkit import regularizers
        >>> regularizers.get("l2").l2
        0.01
    """
    return serialization.get(identifier, _OBJECTS, "regularizer")


__getattr__, __dir__ = lazy_namespace(__name__, {})
