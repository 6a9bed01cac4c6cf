"""Search for the operation of a training step whose result is not finite."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from toolkit import dtypes
from toolkit.autodiff.tape import GradientTape
from toolkit.core.naming import scopes
from toolkit.core.tensor import Tensor, no_tapes, state
from toolkit.core.trace import StatelessScope
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError
from toolkit.ir import Node, Primitive
from toolkit.models.training.data_adapters import unpack_x_y_sample_weight
from toolkit.models.training.nonfinite import describe_nonfinite
from toolkit.models.training.steps import Steps

_LISTED = 3  # weights that a message names


class Producer(NamedTuple):
    """Operation that computed a tensor.

    Attributes:
        operation: the name of its primitive.
        inputs: its operands.
        names: the name scopes of its call.
        differentiated: the operation whose gradient it computes a part of, or None.
    """

    operation: str
    inputs: tuple[Tensor, ...]
    names: tuple[str, ...]
    differentiated: Node | None = None


class Recorder:
    """Record of all operations in the context, with the interface of a tape."""

    def __init__(self) -> None:
        self.producers: dict[Tensor, Producer] = {}
        # The operation that a `DescribedTape` differentiates.
        self.differentiated: Node | None = None

    def __enter__(self) -> Recorder:
        self._outer = state.tapes
        state.tapes = (*state.tapes, self)
        return self

    def __exit__(self, *exception: object) -> None:
        state.tapes = self._outer

    def record(
        self,
        op: Primitive,
        inputs: Iterable[Tensor],
        attrs: object,
        outputs: Tensor | tuple[Tensor, ...],
    ) -> None:
        """Record an operation; `bind` calls this.

        Args:
            op: the primitive.
            inputs: its operands.
            attrs: no effect.
            outputs: its results.
        """
        source = Producer(op.name, tuple(inputs), scopes.names, self.differentiated)
        for y in outputs if isinstance(outputs, tuple) else (outputs,):
            self.producers.setdefault(y, source)

    def watch_variable(self, variable: Variable, tensor: Tensor) -> None:
        """Do nothing: all operations are recorded."""

    def watches(self, inputs: object) -> bool:
        """Return False: operands need no placeholder in a nested trace.

        Args:
            inputs: no effect.
        """
        return False

    def first_producer(self, tensor: Tensor) -> Producer | None:
        """Return the operation on finite values that made a tensor non-finite."""
        source = None
        while tensor in self.producers:
            source = self.producers[tensor]
            operands = (x for x in source.inputs if not is_finite(x))
            if (operand := next(operands, None)) is None:
                break
            tensor = operand
        return source

    def describe(self, tensor: Tensor) -> str:
        """Return a text that names the first operation of a non-finite tensor."""
        source = self.first_producer(tensor)
        if source is None:
            return "a constant"
        if source.differentiated is None:
            return _describe(source.operation, source.inputs, source.names)
        node = source.differentiated
        forward = self.producers.get(node.outputs[0])
        names = () if forward is None else forward.names
        return f"the gradient of {_describe(node.op.name, node.inputs, names)}"


class DescribedTape(GradientTape):
    """GradientTape that notifies a recorder of the operation that it differentiates."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def _pull_back(self, node: Node, gs: list[Any]) -> list[Any]:
        self._recorder.differentiated = node
        try:
            return super()._pull_back(node, gs)
        finally:
            self._recorder.differentiated = None


def find_nonfinite(model: Steps, batch: object) -> str:
    """Return a text that names the first non-finite value of a step, or "".

    The step changes no weight and no state.

    Args:
        model: a compiled model.
        batch: (x,), (x, y) or (x, y, sample_weight), as tensors.

    Raises:
        ArgumentError: some weights are not finite.
    """
    paths = nonfinite_weights(model)
    if paths:
        suffix = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
        raise ArgumentError(
            f"{model.name}: the weights {', '.join(paths[:_LISTED])}{suffix} are not "
            "finite, so each output can be non-finite, too; use weights from before "
            "the step that changed them: a new model, or an earlier checkpoint"
        )
    data = describe_nonfinite(batch)
    if data is not None:
        return data
    x, y, sample_weight = unpack_x_y_sample_weight(batch)
    recorder = Recorder()
    with recorder, StatelessScope():
        with DescribedTape(recorder) as tape:
            y_pred = model._forward(x, training=True)
            loss = model._total_loss(x, y, y_pred, sample_weight, training=True)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
    if not is_finite(loss):
        return f"the loss is {float(loss)} because of {recorder.describe(loss)}"
    for variable, gradient in zip(variables, gradients, strict=True):
        if gradient is not None and not is_finite(gradient):
            cause = recorder.describe(gradient)
            return f"the gradient of {variable.path!r} is not finite because of {cause}"
    return ""


def nonfinite_weights(model: Steps) -> list[str]:
    """Return the paths of the weights that contain NaN or infinity."""
    return [v.path for v in model.weights if not is_finite(v)]


def is_finite(x: Tensor | Variable) -> bool:
    """Return whether all elements are finite; integers and strings are."""
    if not dtypes.is_float(str(x.dtype)):
        return True
    with no_tapes():
        return bool(np.isfinite(np.asarray(x)).all())


def _describe(
    operation: str, inputs: tuple[Tensor, ...], names: tuple[str, ...]
) -> str:
    """Return the name of an operation, the range of its operands, and its layer."""
    ranges = [
        f"values from {np.min(x):.3g} to {np.max(x):.3g}"
        for x in map(np.asarray, inputs)
        if x.size and x.dtype.kind in "iuf"
    ]
    operands = f" of {' and '.join(ranges)}" if ranges else ""
    layer = f", in the layer {names[-1]!r}" if len(names) > 1 else ""
    return f"`{operation}`{operands}{layer}"
