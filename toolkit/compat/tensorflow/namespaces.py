"""Small namespaces of TensorFlow, composed of functions from other modules."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, StrEnum
from functools import update_wrapper
from types import SimpleNamespace
from typing import Any

import numpy as np

import toolkit
from toolkit import errors as core, initializers, ops, tree
from toolkit.compat.tensorflow import arrays, checkpoints, io, messages, types
from toolkit.compat.tensorflow.averages import ExponentialMovingAverage
from toolkit.compat.tensorflow.parameter_names import rename_functions
from toolkit.compat.tensorflow.tapes import GradientTape
from toolkit.core.tensor import Tensor
from toolkit.type_aliases import DTypeLike, Shape, TensorLike


class UnconnectedGradients(StrEnum):
    """Gradient without a connection: None or zeros."""

    NONE = "none"
    ZERO = "zero"


class VariableAggregation(Enum):
    """Methods to combine replicas of a Variable."""

    NONE, SUM, MEAN, ONLY_FIRST_REPLICA = "none", "sum", "mean", "only_first_replica"


class VariableSynchronization(Enum):
    """Times to synchronize replicas of a Variable."""

    AUTO, NONE, ON_WRITE, ON_READ = "auto", "none", "on_write", "on_read"


def _of_nests(function: Callable[..., Any], names: str) -> Callable[..., Any]:
    """Wrap a function of structures that takes its first arguments by TensorFlow's
    names.

    `expand_composites` has no effect: ragged and sparse tensors stay whole.
    """

    def call(*args: Any, expand_composites: bool = False, **kwargs: Any) -> Any:
        first = [kwargs.pop(n) for n in names.split()[len(args) :] if n in kwargs]
        return function(*args, *first, **kwargs)

    return update_wrapper(call, function)


def get_static_value(tensor: TensorLike, partial: bool = False) -> Any:
    """Return the value of a tensor as an array; None for a traced value.

    Args:
        tensor: a tensor.
        partial: has no effect: a value is static or dynamic as a whole.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.get_static_value(tf.constant([1, 2])).tolist()
        [1, 2]
    """
    return tensor.static_value() if isinstance(tensor, Tensor) else np.asarray(tensor)


def get_logger() -> logging.Logger:
    """Return the logger with the name "tensorflow"; toolkit does not write to it."""
    return logging.getLogger("tensorflow")


autodiff: SimpleNamespace = SimpleNamespace(GradientTape=GradientTape)
bitwise: SimpleNamespace = SimpleNamespace(
    **rename_functions(
        {
            "bitwise_and": (ops.bitwise_and, "x y"),
            "bitwise_or": (ops.bitwise_or, "x y"),
            "bitwise_xor": (ops.bitwise_xor, "x y"),
            "invert": (ops.bitwise_not, "x"),
            "left_shift": (ops.left_shift, "x y"),
            "right_shift": (ops.right_shift, "x y"),
        }
    )
)
dtypes: SimpleNamespace = SimpleNamespace(
    **{name: types.ALL[name] for name in types.ALL},
    DType=types.DType,
    as_dtype=types.as_dtype,
    cast=vars(arrays)["cast"],
    double=types.double,
    half=types.half,
    saturate_cast=vars(arrays)["saturate_cast"],
)
# Errors of distributed TensorFlow; only user code raises them.
_UNUSED = "AbortedError CancelledError InternalError UnauthenticatedError UnknownError"
errors: SimpleNamespace = SimpleNamespace(
    **{name: type(name, (core.ToolkitError,), {}) for name in _UNUSED.split()},
    AlreadyExistsError=FileExistsError,
    DataLossError=core.DamagedFileError,
    DeadlineExceededError=TimeoutError,
    FailedPreconditionError=core.NotBuiltError,
    InvalidArgumentError=core.InputError,
    NotFoundError=FileNotFoundError,
    OpError=core.ToolkitError,
    OperatorNotAllowedInGraphError=core.UnknownTruthError,
    OutOfRangeError=StopIteration,
    PermissionDeniedError=PermissionError,
    ResourceExhaustedError=MemoryError,
    UnavailableError=core.RankLostError,
    UnimplementedError=core.UnsupportedError,
)
nest: SimpleNamespace = SimpleNamespace(
    assert_same_structure=_of_nests(tree.assert_same_structure, "nest1 nest2"),
    flatten=_of_nests(tree.flatten, "structure"),
    is_nested=_of_nests(tree.is_nested, "seq"),
    map_structure=_of_nests(tree.map_structure, "func"),
    pack_sequence_as=_of_nests(tree.pack_sequence_as, "structure flat_sequence"),
)
train: SimpleNamespace = SimpleNamespace(
    BytesList=io.BytesList,
    Checkpoint=checkpoints.Checkpoint,
    CheckpointManager=checkpoints.CheckpointManager,
    Example=io.Example,
    ExponentialMovingAverage=ExponentialMovingAverage,
    Feature=io.Feature,
    FeatureList=messages.FeatureList,
    FeatureLists=messages.FeatureLists,
    Features=io.Features,
    FloatList=io.FloatList,
    Int64List=io.Int64List,
    SequenceExample=messages.SequenceExample,
    latest_checkpoint=checkpoints.latest_checkpoint,
    list_variables=checkpoints.list_variables,
    load_checkpoint=checkpoints.load_checkpoint,
    load_variable=checkpoints.load_variable,
)
# The version of TensorFlow with these names, and the version of toolkit.
VERSION = f"2.21.0+toolkit.{toolkit.__version__}"
version: SimpleNamespace = SimpleNamespace(VERSION=VERSION)


class constant_initializer(initializers.Constant):
    """Initializer with a constant value, or with one value per element.

    Args:
        value: a number, a list or an array; the result has its dtype by default.
    """

    def __init__(self, value: Any = 0) -> None:
        super().__init__(value)

    def __call__(self, shape: Shape, dtype: DTypeLike | None = None) -> Any:
        """Return the values in a shape."""
        return arrays.constant(self.value, dtype, shape)


ones_initializer = initializers.Ones
random_normal_initializer = initializers.RandomNormal
random_uniform_initializer = initializers.RandomUniform
zeros_initializer = initializers.Zeros
