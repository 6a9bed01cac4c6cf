"""Functions of TensorFlow 1 for graphs: placeholders, scopes, collections."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NoReturn

from toolkit import dtypes
from toolkit.compat.tensorflow import scopes
from toolkit.compat.tensorflow.control import control_dependencies
from toolkit.compat.tensorflow.modes import building_graph, local, mode
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.v1.graph import get_default_graph
from toolkit.compat.tensorflow.v1.tensors import (
    GraphStep,
    GraphTensor,
)
from toolkit.compat.tensorflow.v1.variables import GraphKeys
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.tensor import state
from toolkit.errors import ArgumentError, ShapeError, TraceError, UnsupportedError
from toolkit.type_aliases import DTypeLike, Shape

# --- modes ----------------------------------------------------------------------------


def disable_eager_execution() -> None:
    """Record operations in a graph from now on, at any time.

    Existing tensors do not change: they are constants for graphs.
    """
    mode.is_eager = False


def enable_eager_execution(
    config: Any = None, device_policy: Any = None, execution_mode: Any = None
) -> None:
    """Compute operations eagerly from now on, at any time.

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
    """Call `enable_eager_execution`."""
    enable_eager_execution()


def enable_resource_variables() -> None:
    """Do nothing: all Variables are TensorFlow's resource variables."""


def resource_variables_enabled() -> bool:
    """Return True: all Variables are TensorFlow's resource variables."""
    return True


def _check_graph(function: str) -> None:
    if not building_graph() and local.run is None and state.trace is None:
        raise TraceError(
            f"tf.{function}() is not compatible with eager execution; call "
            "tf.disable_eager_execution(), or use `with tf.Graph().as_default():`"
        )


# --- placeholders ---------------------------------------------------------------------


def placeholder(
    dtype: DTypeLike, shape: Shape | None = None, name: str | None = None
) -> GraphTensor:
    """Create a tensor of the graph that must be fed.

    Args:
        dtype: of the fed value.
        shape: its extents, None if dynamic. Without a shape, any shape can be fed;
            functions that compute shapes treat it as a number.
        name: generated if None.
    """
    _check_graph("placeholder")
    if dtypes.standardize(dtype) == dtypes.STRING:
        raise UnsupportedError(
            "placeholder: expected a dtype of numbers; received string. A graph does "
            "not support string tensors"
        )
    extents = (shape,) if isinstance(shape, int) else shape
    symbol = KerasTensor(extents or (), dtypes.standardize(dtype))
    step = GraphStep(_unfed, "Placeholder")
    tensor: GraphTensor = get_default_graph().append(step, (), symbol, name=name)
    tensor.any_shape = shape is None
    return tensor


def _unfed(run: Any) -> NoReturn:
    raise AssertionError("a plan needs values for all placeholders")


def placeholder_with_default(
    input: Any, shape: Shape, name: str | None = None
) -> GraphTensor:
    """Create a tensor of the graph that can be fed, with `input` as the default.

    Args:
        input: the default value.
        shape: extents of the fed value, None for any extent.
        name: generated if None.
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
    """A scope that prefixes the names of operations; in eager mode, of Variables.

    Args:
        name: of the scope; None for `default_name`.
        default_name: used if `name` is None.
        values: has no effect, as in TensorFlow with the default graph.
    """

    def __init__(
        self, name: str | None, default_name: str | None = None, values: object = None
    ) -> None:
        super().__init__(default_name if name is None else name)


def init_scope() -> AbstractContextManager[None]:
    """Return a scope without control dependencies."""
    return control_dependencies(None)


# --- collections ----------------------------------------------------------------------


def add_to_collection(name: Any, value: Any) -> None:
    """Append a value to a collection of the default graph."""
    get_default_graph().add_to_collection(name, value)


def add_to_collections(names: Any, value: Any) -> None:
    """Append a value to several collections of the default graph."""
    get_default_graph().add_to_collections(names, value)


def get_collection(key: Any, scope: str | None = None) -> list[Any]:
    """Return the values of a collection; with `scope`, only those with a matching
    name."""
    return get_default_graph().get_collection(key, scope)


def get_collection_ref(key: Any) -> list[Any]:
    """Return the collection; changes of the list change the collection."""
    return get_default_graph().get_collection_ref(key)


def global_variables(scope: str | None = None) -> list[Any]:
    """Return the Variables of the default graph that are saved by default."""
    return get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


def trainable_variables(scope: str | None = None) -> list[Any]:
    """Return the Variables of the default graph that optimizers update."""
    return get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


def local_variables(scope: str | None = None) -> list[Any]:
    """Return the Variables of the default graph that are not saved."""
    return get_collection(GraphKeys.LOCAL_VARIABLES, scope)


def model_variables(scope: str | None = None) -> list[Any]:
    """Return the Variables of the default graph in the collection of model
    variables."""
    return get_collection(GraphKeys.MODEL_VARIABLES, scope)


def moving_average_variables(scope: str | None = None) -> list[Any]:
    """Return the moving averages of the default graph."""
    return get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)
