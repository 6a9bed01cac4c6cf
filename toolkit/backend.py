"""Functions of `keras.backend`: dtypes, global settings, and names of the session."""

from __future__ import annotations

import gc
from contextlib import suppress

from toolkit import dtypes
from toolkit.config import (
    backend,
    epsilon,
    floatx,
    image_data_format,
    set_dtype_policy,
    set_epsilon,
    set_floatx,
    set_image_data_format,
)
from toolkit.core import naming
from toolkit.definitions.namespaces import module_dir
from toolkit.dtypes import result_type
from toolkit.ops.symbolic import KerasTensor
from toolkit.random import seeds
from toolkit.type_aliases import DTypeLike

__all__ = [
    "backend",
    "clear_session",
    "epsilon",
    "floatx",
    "get_uid",
    "image_data_format",
    "is_float_dtype",
    "is_int_dtype",
    "is_keras_tensor",
    "result_type",
    "set_epsilon",
    "set_floatx",
    "set_image_data_format",
    "standardize_dtype",
]

with suppress(ImportError):  # then NumPy also recognizes the name bfloat16
    dtypes.numpy_dtype("bfloat16")


def standardize_dtype(dtype: DTypeLike) -> str:
    """Return the name of a dtype in any form.

    Args:
        dtype: a name, a Python type, a dtype of NumPy, JAX, torch or TensorFlow, or
            None for floatx.

    Returns:
        The name of a dtype.

    Example:
        >>> import toolkit
        >>> toolkit.backend.standardize_dtype(int)
        'int32'
    """
    return dtypes.standardize(dtype)


def is_float_dtype(dtype: DTypeLike) -> bool:
    """Return whether a dtype, in any form, is floating.

    Args:
        dtype: a name, or a dtype of another library.

    Returns:
        A boolean.

    Example:
        >>> from toolkit.backend import is_float_dtype
        >>> is_float_dtype("float16"), is_float_dtype("bool")
        (True, False)
    """
    return dtypes.is_float(dtypes.standardize(dtype))


def is_int_dtype(dtype: DTypeLike) -> bool:
    """Return whether a dtype, in any form, is an integer dtype; bool is not.

    Args:
        dtype: a name, or a dtype of another library.

    Returns:
        A boolean.

    Example:
        >>> from toolkit.backend import is_int_dtype
        >>> is_int_dtype("uint8"), is_int_dtype("bool")
        (True, False)
    """
    return dtypes.is_integer(dtypes.standardize(dtype))


def is_keras_tensor(x: object) -> bool:
    """Return whether x is a KerasTensor, the symbol of a functional model.

    Args:
        x: any value.

    Returns:
        A boolean.

    Example:
        >>> import toolkit
        >>> toolkit.backend.is_keras_tensor(toolkit.Input((2,)))
        True
    """
    return isinstance(x, KerasTensor)


def get_uid(prefix: str = "") -> int:
    """Return the number of calls of `get_uid` with this prefix, including this one.

    Args:
        prefix: any string.

    Returns:
        A number >= 1.

    Example:
        >>> import toolkit
        >>> toolkit.backend.get_uid("fold"), toolkit.backend.get_uid("fold")
        (1, 2)
    """
    return naming.unique_number(prefix)


def clear_session(free_memory: bool = True) -> None:
    """Reset the global state of model construction.

    Automatic names restart (`dense`, not `dense_7`), and so do the numbers of
    `get_uid`. The global seed generator is dropped, and layers without a dtype policy
    use floatx again.

    Args:
        free_memory: whether to collect garbage at once, which may take seconds.

    Example:
        >>> import toolkit
        >>> toolkit.utils.clear_session(free_memory=False)
        >>> toolkit.layers.Dense(1).name
        'dense'
    """
    naming.reset_names()
    seeds.reset_global_seed()
    set_dtype_policy(None)
    if free_memory:
        gc.collect()


__dir__ = module_dir(__name__)
