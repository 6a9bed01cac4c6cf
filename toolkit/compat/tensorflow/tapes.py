"""`tf.GradientTape` with `batch_jacobian`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from toolkit import ops
from toolkit.autodiff import custom_gradient as customizing, tape
from toolkit.compat.tensorflow.boundary import wrap_results
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.variable import current_value
from toolkit.errors import GradientError, ShapeError


def _keep_variables(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that it keeps the list of `watched_variables`."""

    @wraps(method)
    def call(self: GradientTape, *args: Any, **kwargs: Any) -> Any:
        watched = self._variables
        try:
            return method(self, *args, **kwargs)
        finally:
            self._variables = {**watched, **self._variables}

    return wrap_results(call)


class GradientTape(tape.GradientTape):
    """A tape that records operations for gradients; see `toolkit.GradientTape`.

    Args:
        persistent: whether `gradient` can be called more than once.
        watch_accessed_variables: whether a read watches trainable Variables.
    """

    gradient: Callable[..., Any] = _keep_variables(tape.GradientTape.gradient)
    jacobian: Callable[..., Any] = _keep_variables(tape.GradientTape.jacobian)

    @wrap_results
    def batch_jacobian(
        self,
        target: Any,
        source: Any,
        unconnected_gradients: Any = "none",
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the derivative of each sample of `target` by its sample of `source`.

        Args:
            target, source: of the same batch size; samples must be independent.
            unconnected_gradients: "none" or "zero".
            parallel_iterations, experimental_use_pfor: have no effect.

        Returns:
            A tensor of shape (batch, *sample of target, *sample of source).

        Example:
            >>> import toolkit.compat.tensorflow as tf
            >>> x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
            >>> with tf.GradientTape() as tape:
            ...     tape.watch(x)
            ...     y = x * x
            >>> tape.batch_jacobian(y, x)[1].numpy().tolist()
            [[6.0, 0.0], [0.0, 8.0]]
        """
        target = convert(target)
        if not target.shape or tuple(target.shape[:1]) != tuple(source.shape[:1]):
            raise ShapeError(
                "batch_jacobian: expected a target and a source of one batch size; "
                f"received shapes {tuple(target.shape)} and {tuple(source.shape)}"
            )
        jacobian = self.jacobian(target, source, unconnected_gradients)
        if jacobian is None:
            return None
        return ops.moveaxis(ops.diagonal(jacobian, 0, 0, target.ndim), -1, 0)


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Define the gradient of a function, also for the Variables that it reads.

    Args:
        f: takes tensors, returns (outputs, grad). `grad(*upstream)` returns the
            gradients of the inputs. If f reads trainable Variables, the call is
            `grad(*upstream, variables=...)`, and the second result is the list of their
            gradients.

    Raises:
        GradientError: f reads Variables, and grad has no parameter `variables`.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> v = tf.Variable(3.0)
        >>> @tf.custom_gradient
        ... def scaled(x):
        ...     def grad(upstream, variables=None):
        ...         return upstream * v, [10.0 * upstream for _ in variables]
        ...     return x * v, grad
        >>> with tf.GradientTape() as tape:
        ...     y = scaled(tf.constant(2.0))
        >>> float(tape.gradient(y, v))
        10.0
    """

    @wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        args = tuple(map(current_value, args))
        with tape.GradientTape() as finder:
            first = [f(*args, **kwargs)]
        variables = finder.watched_variables()

        def recompute(*xs: Any, **options: Any) -> Any:
            inputs = xs[: len(args)]
            outputs, grad = first.pop() if first else f(*inputs, **options)
            return outputs, _merge_gradients(grad, variables) if variables else grad

        if variables and not _takes_variables(first[0][1]):
            raise GradientError(
                f"custom_gradient: {getattr(f, '__name__', f)} reads Variables: its "
                "gradient function must take the keyword argument `variables`"
            )
        recompute.__name__ = getattr(f, "__name__", "function")
        return customizing.custom_gradient(recompute)(*args, *variables, **kwargs)

    return wrap_results(call)


def _takes_variables(grad: Callable[..., Any]) -> bool:
    parameters = inspect.signature(grad).parameters.values()
    return any(p.name == "variables" or p.kind is p.VAR_KEYWORD for p in parameters)


def _merge_gradients(grad: Any, variables: tuple[Any, ...]) -> Callable[..., Any]:
    """Return a gradient function of the inputs, then of the Variables."""

    def combined(*upstream: Any) -> tuple[Any, ...]:
        of_inputs, of_variables = grad(*upstream, variables=list(variables))
        if not isinstance(of_inputs, (list, tuple)):
            of_inputs = (of_inputs,)
        return (*of_inputs, *of_variables)

    return combined
