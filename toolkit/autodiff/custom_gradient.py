"""Functions with a custom gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

from toolkit import tree
from toolkit.autodiff.tape import alias, as_tuple
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, no_tapes, state
from toolkit.core.trace import StatelessScope, graph_rule
from toolkit.core.variable import current_value
from toolkit.errors import GradientError
from toolkit.ir import Kind, Primitive


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Define a custom gradient of a function.

    Args:
        f: a function of tensors that returns (outputs, grad). `grad(*upstream)`
            receives the gradients of the outputs and returns the gradients of the
            inputs. As in Keras, `grad` may also receive them as the keyword argument
            `upstream`. For a gradient of a traced function outside the trace, `f` is
            called again.

    Returns:
        A function with the arguments of `f` that returns its outputs.

    Example:
        >>> from toolkit import ops
        >>> import toolkit
        >>> @ops.custom_gradient
        ... def clipped(x):
        ...     return x, lambda g: ops.clip(g, -1.0, 1.0)
        >>> x = toolkit.Variable(2.0)
        >>> with toolkit.GradientTape() as tape:
        ...     y = 5.0 * clipped(x)
        >>> float(tape.gradient(y, x))
        1.0
    """

    @wraps(f)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return _Application(f, args, kwargs).record()

    return wrapper


class _Application:
    """One call of a function with a custom gradient."""

    def __init__(self, function: Any, args: Any, kwargs: Any) -> None:
        self.function, self.kwargs = function, kwargs
        self.inputs = [current_value(arg) for arg in args]
        self.tensors = tuple(x for x in self.inputs if isinstance(x, Tensor))

    def record(self) -> Any:
        """Return the outputs, recorded by tapes and traces as one operation."""
        tapes = state.tapes
        # Recorded, because `grad` may use values computed here: outer tapes must record
        # their origin. First derivatives do not pass through the function, because its
        # outputs are replaced below.
        outputs, grad = self.function(*self.inputs, **self.kwargs)
        with no_tapes():
            leaves = self._results([convert(leaf) for leaf in tree.flatten(outputs)])

        def vjp(g: Any, y: Any, *xs: Tensor) -> Any:
            return self._check_gradients(grad(*as_tuple(g)))

        record = Primitive(self.function.__name__, Kind.COMPOSITE, _no_spec, vjp=vjp)
        for tape in tapes:
            tape.record(record, self.tensors, {}, leaves)
        return tree.pack_sequence_as(outputs, leaves)

    def _results(self, leaves: list[Tensor]) -> tuple[Tensor, ...]:
        """Return the outputs as new values, because an output may be an input.

        The trace also records the gradient, so that the traced function can be
        differentiated.
        """
        if state.trace is None or not leaves or not self.tensors:
            return tuple(alias(leaf) for leaf in leaves)
        count = len(leaves)

        def first(*xs: Any) -> Any:  # called with values, and with their specs
            return xs[:count] if count > 1 else xs[0]

        def vjp(g: Any, y: Any, *inputs: Tensor) -> Any:
            return (None,) * count + self._gradients_at(g, inputs[count:])

        record = Primitive(
            "custom_gradient",
            Kind.COMPOSITE,
            first,
            vjp=vjp,
            body=first,
            graph=graph_rule("custom_gradient", first),
        )
        return as_tuple(state.trace.emit(record, (*leaves, *self.tensors), {}))

    def _gradients_at(self, g: Any, tensors: tuple[Tensor, ...]) -> tuple[Any, ...]:
        """Return the gradients at other tensors, in a trace that contains them."""
        remaining = iter(tensors)
        inputs = [next(remaining) if isinstance(x, Tensor) else x for x in self.inputs]
        with StatelessScope():  # its assignments have already run
            _, grad = self.function(*inputs, **self.kwargs)
        return self._check_gradients(grad(*as_tuple(g)))

    def _check_gradients(self, gradients: Any) -> tuple[Any, ...]:
        """Return the gradients of a gradient function, one for each input tensor."""
        flat = list(gradients) if isinstance(gradients, (tuple, list)) else [gradients]
        inputs, tensors = self.inputs, self.tensors
        if len(flat) == len(inputs) != len(tensors):
            pairs = zip(flat, inputs, strict=True)
            flat = [d for d, x in pairs if isinstance(x, Tensor)]
        if len(flat) != len(tensors):
            raise GradientError(
                f"custom_gradient: {self.function.__name__} has {len(tensors)} tensor "
                f"inputs; its gradient function returned {len(flat)} values"
            )
        return tuple(None if d is None else convert(d) for d in flat)


def _no_spec(*specs: object, **attrs: object) -> NoReturn:
    raise AssertionError("an application of a custom gradient is never traced itself")
