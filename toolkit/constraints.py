"""Constraints: functions that optimizers apply to a weight after each update."""

from __future__ import annotations

from typing import Any

from toolkit import ops, serialization, settings
from toolkit.arguments import Axes, Fraction, NonNegative, is_real
from toolkit.core.tensor import Tensor
from toolkit.definitions.namespaces import lazy_namespace
from toolkit.errors import ArgumentError
from toolkit.serialization.recording import Recorded


class Constraint(Recorded):
    """Base of all constraints: a function from a weight to a valid weight.

    Subclasses define `__call__(w)`. Their config is the arguments of the constructor.

    Example:
        >>> from toolkit import constraints, ops
        >>> class AtMost(constraints.Constraint):
        ...     def __init__(self, limit):
        ...         self.limit = limit
        ...     def __call__(self, w):
        ...         return ops.minimum(w, self.limit)
        >>> AtMost(1.0)(ops.convert_to_tensor([0.5, 2.0])).tolist()
        [0.5, 1.0]
    """

    def __call__(self, w: Any) -> Tensor:
        """Return the nearest valid weight to w, with the same shape.

        Args:
            w: a weight.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define `__call__`")


def _norm(w: Tensor, axis: Any) -> Tensor:
    return ops.sqrt(ops.sum(ops.square(w), axis=axis, keepdims=True))


def _check_bound(constraint: Any, name: str, value: object) -> None:
    if not is_real(value) or value < 0:
        raise ArgumentError(
            f"{type(constraint).__name__}: {name} must be a number >= 0; "
            f"received {value!r}"
        )


class MaxNorm(Constraint):
    """Constraint that scales down slices of a weight with a norm above a limit.

    w * clip(norm, 0, max_value) / (norm + epsilon), norms along `axis`.

    Args:
        max_value: the limit.
        axis: the axis or axes of one slice: 0 for Dense kernels (in, out), (0, 1, 2)
            for Conv2D kernels (height, width, in, out).

    Example:
        >>> from toolkit import constraints
        >>> w = constraints.MaxNorm(2)([[3.0, 0.0], [4.0, 1.0]])
        >>> [[round(x, 3) for x in row] for row in w.tolist()]
        [[1.2, 0.0], [1.6, 1.0]]

    Reference:
        [Srivastava et al., 2014](https://jmlr.org/papers/v15/srivastava14a.html)
    """

    def __init__(self, max_value: NonNegative = 2, axis: Axes = 0) -> None:
        _check_bound(self, "max_value", max_value)
        self.max_value = max_value
        self.axis = axis

    def __call__(self, w: Any) -> Tensor:
        w = ops.convert_to_tensor(w)
        norm = _norm(w, self.axis)
        return w * (ops.minimum(norm, self.max_value) / (norm + settings.epsilon()))


class NonNeg(Constraint):
    """Constraint that sets negative elements to 0.

    Example:
        >>> from toolkit import constraints
        >>> constraints.NonNeg()([-1.0, 2.0]).tolist()
        [0.0, 2.0]
    """

    def __call__(self, w: Any) -> Tensor:
        return ops.maximum(ops.convert_to_tensor(w), 0)


class UnitNorm(Constraint):
    """Constraint that scales slices of a weight to norm 1: w / (norm + epsilon).

    Args:
        axis: the axis or axes of one slice, as for `MaxNorm`.

    Example:
        >>> from toolkit import constraints
        >>> w = constraints.UnitNorm()([[3.0, 0.0], [4.0, 1.0]])
        >>> [[round(x, 3) for x in row] for row in w.tolist()]
        [[0.6, 0.0], [0.8, 1.0]]
    """

    def __init__(self, axis: Axes = 0) -> None:
        self.axis = axis

    def __call__(self, w: Any) -> Tensor:
        w = ops.convert_to_tensor(w)
        return w / (_norm(w, self.axis) + settings.epsilon())


class MinMaxNorm(Constraint):
    """Constraint that limits the norms of a weight's slices to a range.

    w * (rate * clip(norm, min_value, max_value) + (1 - rate) * norm) / (norm + epsilon)

    Args:
        min_value: the lower limit.
        max_value: the upper limit.
        rate: fraction of the correction in each step, in (0, 1]; 1 enforces the limits
            in every step.
        axis: the axis or axes of one slice, as for `MaxNorm`.

    Example:
        >>> from toolkit import constraints
        >>> w = constraints.MinMaxNorm(1.0, 2.0)([[3.0, 0.0], [4.0, 0.5]])
        >>> [[round(x, 3) for x in row] for row in w.tolist()]
        [[1.2, 0.0], [1.6, 1.0]]
    """

    def __init__(
        self,
        min_value: NonNegative = 0.0,
        max_value: NonNegative = 1.0,
        rate: Fraction = 1.0,
        axis: Axes = 0,
    ) -> None:
        _check_bound(self, "min_value", min_value)
        _check_bound(self, "max_value", max_value)
        if not 0 < rate <= 1:
            raise ArgumentError(
                f"MinMaxNorm: rate must be in (0, 1]; received {rate!r}"
            )
        self.min_value = min_value
        self.max_value = max_value
        self.rate = rate
        self.axis = axis

    def __call__(self, w: Any) -> Tensor:
        w = ops.convert_to_tensor(w)
        norm = _norm(w, self.axis)
        clipped = ops.clip(norm, self.min_value, self.max_value)
        target = self.rate * clipped + (1 - self.rate) * norm
        return w * (target / (norm + settings.epsilon()))


max_norm: type[MaxNorm] = MaxNorm
non_neg: type[NonNeg] = NonNeg
unit_norm: type[UnitNorm] = UnitNorm
min_max_norm: type[MinMaxNorm] = MinMaxNorm

_OBJECTS = {
    **serialization.names_of(Constraint, MaxNorm, NonNeg, UnitNorm, MinMaxNorm),
    "nonneg": NonNeg,
    "unitnorm": UnitNorm,
}


def serialize(constraint: Any) -> Any:
    """Return the constraint as a dict of plain values.

    Args:
        constraint: a constraint.

    Returns:
        A dict of the class and the config.

    Example:
        >>> from toolkit import constraints
        >>> constraints.serialize(constraints.MaxNorm(3))["config"]
        {'max_value': 3, 'axis': 0}
    """
    return serialization.serialize_keras_object(constraint)


def deserialize(config: Any, custom_objects: Any = None) -> Any:
    """Create a constraint from the result of `serialize`.

    Args:
        config: the result of `serialize`, or a name.
        custom_objects: a dict from names to classes that the config contains.

    Returns:
        The constraint.

    Example:
        >>> from toolkit import constraints
        >>> config = constraints.serialize(constraints.MaxNorm(3))
        >>> constraints.deserialize(config).max_value
        3
    """
    return serialization.get(config, _OBJECTS, "constraint", custom_objects)


def get(identifier: Any) -> Any:
    """Return the constraint for a name ("max_norm"), config, class, function or None.

    Args:
        identifier: a name, config, class, function or object, or None.

    Returns:
        A constraint, or None.

    Example:
        >>> from toolkit import constraints
        >>> constraints.get("max_norm").max_value
        2
    """
    return serialization.get(identifier, _OBJECTS, "constraint")


__getattr__, __dir__ = lazy_namespace(__name__, {})
