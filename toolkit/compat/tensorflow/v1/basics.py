"""The functions of TensorFlow 1 that make graphs: placeholders, scopes, collections."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from toolkit import dtypes
from toolkit.compat.tensorflow import scopes
from toolkit.compat.tensorflow.control import control_dependencies
from toolkit.compat.tensorflow.modes import building_graph, local, mode
from toolkit.compat.tensorflow.v1.graph import get_default_graph
from toolkit.compat.tensorflow.v1.tensors import (
    GraphStep,
    GraphTensor,
)
from toolkit.compat.tensorflow.v1.variables import GraphKeys
from toolkit.compat.tensorflow.views import convert
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.tensor import state
from toolkit.errors import ArgumentError, ShapeError, TraceError, UnsupportedError

# --- modes ----------------------------------------------------------------------------


def disable_eager_execution() -> None:
    """Record what is called in a graph from here on, at any time.

    What was made before stays what it is: tensors are constants for graphs.
    """
    mode.is_eager = False


def enable_eager_execution(
    config: Any = None, device_policy: Any = None, execution_mode: Any = None
) -> None:
    """Compute what is called at once from here on, at any time.

    Args:
        config, device_policy, execution_mode: only None.
    """
    if any(x is not None for x in (config, device_policy, execution_mode)):
        raise ArgumentError(
            "enable_eager_execution: config, device_policy and execution_mode must be "
            "None"
        )
    mode.is_eager = True


disable_v2_behavior = disable_eager_execution


def enable_v2_behavior() -> None:
    """Compute what is called at once: `enable_eager_execution`."""
    enable_eager_execution()


def enable_resource_variables() -> None:
    """Has no effect: Variables are what TensorFlow calls resource variables."""


def resource_variables_enabled() -> bool:
    """True: Variables are what TensorFlow calls resource variables."""
    return True


def _check_graph(function: str) -> None:
    if not building_graph() and local.run is None and state.trace is None:
        raise TraceError(
            f"tf.{function}() is not compatible with eager execution; call "
            "tf.disable_eager_execution(), or use `with tf.Graph().as_default():`"
        )


# --- what is fed ----------------------------------------------------------------------


def placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> GraphTensor:
    """A tensor of the graph that must be fed.

    Args:
        dtype: of what is fed.
        shape: its extents, None where unknown. Without a shape anything may be fed;
            for those that compute shapes from it, it is a number.
        name: made up if None.
    """
    _check_graph("placeholder")
    if dtypes.standardize(dtype) == dtypes.STRING:
        raise UnsupportedError(
            "placeholder: expected a dtype of numbers; received string: strings are no "
            "tensors of a graph"
        )
    extents = (shape,) if isinstance(shape, int) else shape
    symbol = KerasTensor(extents or (), dtypes.standardize(dtype))
    step = GraphStep(_unfed, "Placeholder")
    made: GraphTensor = get_default_graph().append(step, (), symbol, name=name)
    made.any_shape = shape is None
    return made


def _unfed(run: Any) -> Any:
    raise AssertionError("a plan with a placeholder that is not fed is refused")


def placeholder_with_default(
    input: Any, shape: Any, name: str | None = None
) -> GraphTensor:
    """A tensor of the graph that may be fed, and else is `input`.

    Args:
        input: the value if nothing is fed.
        shape: extents of what may be fed, None where any is possible.
        name: made up if None.
    """
    _check_graph("placeholder_with_default")
    input = input if isinstance(input, KerasTensor) else convert(input)
    symbol = KerasTensor((shape,) if isinstance(shape, int) else shape, input.dtype)
    if len(input.shape) != symbol.ndim or any(
        n is not None and m not in (None, n)
        for m, n in zip(input.shape, symbol.shape, strict=True)
    ):
        raise ShapeError(
            f"placeholder_with_default: expected an input of shape {symbol.shape}; "
            f"received shape {tuple(input.shape)}"
        )
    step = GraphStep(lambda run, x: run.value(x), "PlaceholderWithDefault")
    return get_default_graph().append(step, (input,), symbol, name=name)


# --- scopes ---------------------------------------------------------------------------


class name_scope(scopes.name_scope):
    """Put a name in front of the names of operations; in eager mode, of Variables.

    Args:
        name: of the scope; None for `default_name`.
        default_name: used if `name` is None.
        values: has no effect, as in TensorFlow where the graph is the default one.
    """

    def __init__(
        self, name: str | None, default_name: str | None = None, values: Any = None
    ) -> None:
        super().__init__(default_name if name is None else name)


def init_scope() -> AbstractContextManager[None]:
    """A scope without control dependencies."""
    return control_dependencies(None)


# --- collections ----------------------------------------------------------------------


def add_to_collection(name: Any, value: Any) -> None:
    """Put a value at the end of a collection of the default graph."""
    get_default_graph().add_to_collection(name, value)


def add_to_collections(names: Any, value: Any) -> None:
    """Put a value into several collections of the default graph."""
    get_default_graph().add_to_collections(names, value)


def get_collection(key: Any, scope: str | None = None) -> list[Any]:
    """The values of a collection; with `scope`, those whose name it matches."""
    return get_default_graph().get_collection(key, scope)


def get_collection_ref(key: Any) -> list[Any]:
    """The collection itself: what is done to the list is done to it."""
    return get_default_graph().get_collection_ref(key)


def global_variables(scope: str | None = None) -> list[Any]:
    """The Variables of the default graph that are saved and initialized by default."""
    return get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


def trainable_variables(scope: str | None = None) -> list[Any]:
    """The Variables of the default graph that optimizers change."""
    return get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


def local_variables(scope: str | None = None) -> list[Any]:
    """The Variables of the default graph that are not saved."""
    return get_collection(GraphKeys.LOCAL_VARIABLES, scope)


def model_variables(scope: str | None = None) -> list[Any]:
    """The Variables of the default graph that its user has put in that collection."""
    return get_collection(GraphKeys.MODEL_VARIABLES, scope)


def moving_average_variables(scope: str | None = None) -> list[Any]:
    """The moving averages of the default graph."""
    return get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)
