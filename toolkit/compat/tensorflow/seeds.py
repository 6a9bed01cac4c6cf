"""Seeds of `tf.random`: global seed, operation seeds, and seeds of stateless
functions."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from toolkit import dtypes, ops, random as core
from toolkit.compat.tensorflow.arguments import dtype_name, extents, refuse
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.type_aliases import ShapeLike
from toolkit.core.naming import root_scope
from toolkit.core.tensor import Tensor
from toolkit.core.trace import no_trace
from toolkit.errors import ArgumentError, ShapeError
from toolkit.type_aliases import DTypeLike, TensorLike


class Algorithm(IntEnum):
    """Algorithms of random numbers; all of them select Philox."""

    PHILOX, THREEFRY, AUTO_SELECT = 1, 2, 3


# Operation seed -> its generator, until `set_seed`.
_of_operations: dict[int, core.SeedGenerator] = {}
_global_seed = 0


def set_seed(seed: int) -> None:
    """Set the global seed, which also makes initial values of layers reproducible.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.random.set_seed(1)
        >>> x = tf.random.normal((2,))
        >>> tf.random.set_seed(1)
        >>> bool(tf.reduce_all(x == tf.random.normal((2,))))
        True
    """
    global _global_seed
    _global_seed = int(seed) % 2**32
    core.set_random_seed(_global_seed)
    _of_operations.clear()


def source(seed: Any) -> Any:
    """Return the generator of an operation, which gives new numbers in each call.

    As in TensorFlow, an operation seed starts a sequence, which `set_seed` restarts.
    """
    if seed is None or isinstance(seed, core.SeedGenerator):
        return seed
    if seed not in _of_operations:
        sequence = np.random.SeedSequence([_global_seed, int(seed) % 2**32])
        with no_trace(), root_scope():
            _of_operations[seed] = core.SeedGenerator(
                int(sequence.generate_state(1)[0])
            )
    return _of_operations[seed]


def key_of(seed: Any) -> Tensor:
    """Return the key of a seed of two integers."""
    words = convert(seed)
    if words.shape != (2,) or not dtypes.is_integer(words.dtype):
        raise ShapeError(
            f"seed: expected two integers; received {words.dtype} of shape "
            f"{tuple(words.shape)}"
        )
    return ops.cast(words, "uint32")


def full_integers(shape: ShapeLike, dtype: DTypeLike, seed: Any) -> Tensor:
    """Return integers from the whole range of a dtype."""
    name = dtype_name(dtype) or ""
    if not name or not dtypes.is_integer(name):
        raise ArgumentError(f"expected an integer dtype; received {name}")
    halves = core.uniform((2, *extents(shape)), dtype="float64", seed=seed)
    words = ops.cast(ops.floor(halves * 2.0**32), "uint64")
    return ops.cast(words[0] * 2**32 + words[1], name)


def split(seed: TensorLike, num: int = 2, alg: str = "auto_select") -> Tensor:
    """Return seeds that follow from a seed, (num, 2)."""
    refuse("split", alg=(alg, "auto_select"))
    words = convert(seed)
    dtype = words.dtype if dtypes.is_integer(words.dtype) else "int32"
    return full_integers((int(num), 2), dtype, key_of(words))


def fold_in(seed: TensorLike, data: TensorLike, alg: str = "auto_select") -> Tensor:
    """Return another seed for each integer `data`, (2,)."""
    refuse("fold_in", alg=(alg, "auto_select"))
    words = convert(seed)
    mixed = full_integers((2,), "uint32", key_of(words))
    mixed = ops.stack([mixed[0], ops.cast(data, "uint32")])
    return full_integers((2,), words.dtype, mixed)


make_operations(__name__, besides="full_integers key_of set_seed source")
