"""Strings in general functions such as `tf.gather` and `tf.equal`.

toolkit computes with numbers. A function that only moves elements runs on their
indices, and the strings are gathered; all other functions use arrays of bytes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.compat.tensorflow.arguments import extents
from toolkit.compat.tensorflow.string_tensors import (
    StringTensor,
    compare_strings,
    object_array,
    to_bytes_array,
    to_single_bytes,
)
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compat.tensorflow.type_aliases import AxisLike
from toolkit.compat.tensorflow.types import DType
from toolkit.core.strings import StringTensor as CoreStringTensor, apply_by_index
from toolkit.core.tensor import Tensor
from toolkit.errors import DTypeError, ShapeError
from toolkit.type_aliases import DTypeLike, Shape, TensorLike

_Function = Callable[..., Any]


def accept_strings(function: _Function) -> _Function:
    """Wrap a function so that it also accepts strings, if `OPERATIONS` has its name.

    Other functions do not change, nor functions of this name with other parameters, for
    example from NumPy.
    """
    implementation, parameters = OPERATIONS.get(function.__name__, (None, ""))
    has_text = _holds_text if implementation is _call_with_strings else _is_text
    names = list(inspect.signature(function).parameters)
    if implementation is None or not set(parameters.split()) <= set(names):
        return function
    positions = [(names.index(name), name) for name in parameters.split()]

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for position, name in positions:
            argument = args[position] if position < len(args) else kwargs.get(name)
            if has_text(argument):
                return implementation(function, *args, **kwargs)
        return function(*args, **kwargs)

    return call


def _is_text(value: Any) -> bool:
    """Return whether the first element of a value is a string; a dtype is not text."""
    while type(value) in (list, tuple) and value:
        value = value[0]
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "SUO"
    is_string = isinstance(value, (str, bytes, CoreStringTensor))
    return is_string and not isinstance(value, DType)


def _holds_text(values: Any) -> bool:
    """Return whether one of several values, or dtypes, is a string."""
    values = values if isinstance(values, (list, tuple)) else [values]
    return any(_is_text(x) or _is_string_dtype(x) for x in values)


def _is_string_dtype(value: object) -> bool:
    return isinstance(value, DType) and value == dtypes.STRING


def _move_elements(function: _Function, *args: Any, **kwargs: Any) -> Any:
    return apply_by_index(function, args, kwargs, StringTensor)


def _shape(function: _Function, input: TensorLike, *args: Any, **kwargs: Any) -> Any:
    """Return the shape, size or rank of an array of numbers with the same shape."""
    return function(np.zeros(to_bytes_array(input).shape, bool), *args, **kwargs)


def _nonzero(
    function: _Function, input: TensorLike, *args: Any, **kwargs: Any
) -> Tensor:
    return function(np.asarray(to_bytes_array(input) != b"", bool), *args, **kwargs)


def _unique(function: _Function, x: TensorLike, *args: Any, **kwargs: Any) -> Any:
    """Replace equal strings by equal numbers."""
    codes: dict[bytes, int] = {}
    array = to_bytes_array(x)
    numbers = [codes.setdefault(text, len(codes)) for text in array.ravel().tolist()]
    coded = np.array(numbers, "int64").reshape(array.shape)
    result = function(coded, *args, **kwargs)
    texts = object_array(list(codes), (len(codes),))
    return result._replace(y=StringTensor(texts[np.asarray(result.y)]))


def _constant(
    function: _Function,
    value: TensorLike,
    dtype: DTypeLike | None = None,
    shape: Shape | None = None,
    name: str = "Const",
    **options: object,
) -> StringTensor:
    if dtype is not None and dtypes.standardize(dtype) != dtypes.STRING:
        raise DTypeError(f"constant: expected numbers of {dtype}; received strings")
    array = to_bytes_array(value)
    if shape is None:
        return StringTensor(array)
    expected = extents(shape)
    if array.size != 1 and array.size != np.prod(expected, dtype=int):
        raise ShapeError(
            "constant: expected one string, or one for each element of shape "
            f"{expected}; received {array.size}"
        )
    return StringTensor(np.resize(array, expected))


def _fill(
    function: _Function, dims: AxisLike, value: TensorLike, name: str | None = None
) -> StringTensor:
    return StringTensor(np.full(extents(dims), to_single_bytes(value, "fill"), object))


def _zeros_like(
    function: _Function,
    input: TensorLike,
    dtype: DTypeLike | None = None,
    **options: object,
) -> Any:
    shape = to_bytes_array(input).shape
    if dtype is None or dtypes.standardize(dtype) == dtypes.STRING:
        return StringTensor(np.full(shape, b"", object))
    return function(np.zeros(shape, bool), dtype)


def _pad(
    function: _Function,
    tensor: TensorLike,
    paddings: TensorLike,
    mode: str = "CONSTANT",
    constant_values: TensorLike = "",
    name: str | None = None,
) -> StringTensor:
    array, widths = to_bytes_array(tensor), np.asarray(paddings)
    if mode.upper() != "CONSTANT":
        kind: Any = mode.lower()
        return StringTensor(np.pad(array, widths, kind))
    fill = to_single_bytes(constant_values or "", "pad")
    return StringTensor(np.pad(array, widths, constant_values=fill))


def _equal(
    function: _Function, x: TensorLike, y: TensorLike, name: str | None = None
) -> Tensor:
    return compare_strings(x, y, "==")


def _not_equal(
    function: _Function, x: TensorLike, y: TensorLike, name: str | None = None
) -> Any:
    return compare_strings(x, y, "!=")


def _add(
    function: _Function, x: TensorLike, y: TensorLike, name: str | None = None
) -> StringTensor:
    return StringTensor(to_bytes_array(x) + to_bytes_array(y))


def _call_with_strings(
    function: _Function,
    func: _Function | None = None,
    inp: Any = None,
    Tout: DTypeLike | None = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Store the strings in a closure, and pass only the numbers."""
    if func is None:
        return function(func, inp, Tout, *args, **kwargs)
    texts = {i: StringTensor(x) for i, x in enumerate(inp) if _is_text(x)}
    numbers = [x for i, x in enumerate(inp) if i not in texts]
    of_arrays = function.__name__ == "numpy_function"

    def call(*arguments: Any) -> Any:
        remaining = iter(arguments)
        return func(
            *(
                (texts[i].numpy() if of_arrays else texts[i])
                if i in texts
                else next(remaining)
                for i in range(len(inp))
            )
        )

    if not _holds_text(Tout):
        return function(call, numbers, Tout, *args, **kwargs)
    tensors = [convert(x) for x in numbers]
    result = call(*(x.numpy() if of_arrays else x for x in tensors))
    if not isinstance(Tout, (list, tuple)):
        return _as_dtype(result, Tout)
    return [_as_dtype(y, dtype) for y, dtype in zip(result, Tout, strict=True)]


def _as_dtype(value: Any, dtype: Any) -> Any:
    return StringTensor(value) if _is_string_dtype(dtype) else convert(value, dtype)


# function name -> its implementation, and the parameters that accept strings
OPERATIONS: dict[str, tuple[_Function, str]] = {
    "add": (_add, "x y"),
    "boolean_mask": (_move_elements, "tensor"),
    "constant": (_constant, "value"),
    "count_nonzero": (_nonzero, "input"),
    "dynamic_partition": (_move_elements, "data"),
    "ensure_shape": (_move_elements, "x"),
    "equal": (_equal, "x y"),
    "fill": (_fill, "value"),
    "gather": (_move_elements, "params"),
    "gather_nd": (_move_elements, "params"),
    "not_equal": (_not_equal, "x y"),
    "numpy_function": (_call_with_strings, "inp Tout"),
    "pad": (_pad, "tensor"),
    "py_function": (_call_with_strings, "inp Tout"),
    "rank": (_shape, "input"),
    "shape": (_shape, "input"),
    "size": (_shape, "input"),
    "slice": (_move_elements, "input_"),
    "stop_gradient": (_move_elements, "input"),
    "unique": (_unique, "x"),
    "unique_with_counts": (_unique, "x"),
    "zeros_like": (_zeros_like, "input"),
}
