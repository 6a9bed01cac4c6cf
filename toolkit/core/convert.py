"""Conversion of user inputs to tensors, and dtype promotion of operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import dtypes, settings, tree
from toolkit.backends.registry import get_backend
from toolkit.core.slices import scale_slices
from toolkit.core.strings import StringTensor, as_array
from toolkit.core.tensor import Tensor, backend, bind, state
from toolkit.errors import DTypeError, TraceError
from toolkit.ir import PRIMITIVES, Kind, Primitive, Spec, primitive
from toolkit.ir.extents import ENDED_EXTENT, Extent, value_of
from toolkit.type_aliases import Array, TensorLike

_SCALARS = (bool, int, float, complex)
_WEAK = frozenset(_SCALARS)


def _cast_vjp(g: Tensor, y: Tensor, x: Tensor, dtype: str) -> Tensor:
    return scale_slices(g, lambda values: bind(cast_p, values, dtype=x.dtype))


cast_p: Primitive = primitive(
    "cast",
    Kind.ELEMENTWISE,
    spec=lambda x, dtype: Spec(x.shape, dtype),
    vjp=_cast_vjp,
    scalar=lambda s, x, dtype: s.cast(x, dtype),
    axes="...->...",
)


def convert(x: Any, dtype: str | None = None) -> Tensor:
    """Return `x` as a Tensor, cast to `dtype` if given.

    Python floats become floatx and integers int32. Arrays keep their dtype and are
    copied, because a Tensor is immutable.
    """
    if type(x) is not Tensor:
        x = Tensor(_scalar(x, dtype)) if type(x) in _WEAK else _to_tensor(x, dtype)
    if dtype is None or x._dtype == dtype:
        return x
    return bind(cast_p, x, dtype=dtype)


def extent(number: int | float | Extent, dtype: str) -> Any:
    """Return a number that depends on the extents of a batch, as an operand.

    In a trace it is a constant that kernels read from memory, so that batches of all
    sizes use the same kernels.

    Raises:
        RuntimeError: it is an extent of a trace that has ended, and calls with other
            extents use the program.
        TraceError: it is an extent of another trace.
    """
    if type(number) is Extent and number.domain.is_sealed:
        number = number.domain.fix(number)
    if type(number) is Extent and state.trace is None:
        raise TraceError(f"convert: {ENDED_EXTENT}")
    if state.trace is None:
        return number
    constant = Tensor(_scalar(value_of(number), dtype))
    constant._is_open = True
    if type(number) is Extent:
        constant._extent = number
    return constant


def adopt(array: Array) -> Tensor:
    """Return an array that no other object changes as a Tensor, without a copy.

    Args:
        array: an array of numbers, for example the content of a file.
    """
    return Tensor(_store_array(_check_array(array)))


def _to_tensor(x: Any, dtype: str | None) -> Tensor:
    if type(x) is Extent:
        return convert(extent(x, dtype or _dtype_of_extent(x)), dtype)
    if type(x) is np.ndarray:
        return Tensor(_store_array(_check_array(np.array(x))))
    value = getattr(x, "value", None)
    if isinstance(value, Tensor):  # a Variable
        return value
    if isinstance(x, Tensor):
        return x
    if isinstance(x, _SCALARS):  # np.float64, a subclass of float
        return Tensor(_scalar(x, dtype))
    if isinstance(x, (list, tuple)):
        return _from_list(x, dtype)
    if hasattr(x, "detach"):  # a torch tensor
        x = x.detach()
        x = x if getattr(x, "is_cuda", False) else x.cpu()
    if hasattr(x, "__cuda_array_interface__") or getattr(x, "is_cuda", False):
        # An array without `__dlpack_device__` has no device: use the first one.
        tell = getattr(x, "__dlpack_device__", lambda: (None, 0))
        key = settings.backend_of(f"gpu:{tell()[1]}")
        return Tensor(get_backend(key).memory.adopt(x))
    return Tensor(_store_array(_check_array(np.array(x))))


def _holds_tensor(x: TensorLike) -> bool:
    """Return whether `x` is a tensor, or a Variable of any library over this one."""
    return isinstance(x, Tensor) or isinstance(getattr(x, "value", None), Tensor)


def is_scalar(x: object) -> bool:
    """Return whether `x` is a number of Python or an extent: both are weak."""
    return isinstance(x, _SCALARS) or type(x) is Extent


def _dtype_of_extent(x: Extent) -> str:
    """Return the dtype of an integer of Python, or floatx."""
    if x.is_real:
        return settings.floatx()
    low, high = x.bounds
    return "int32" if -(2**31) <= low and high < 2**31 else "int64"


def _python_type(x: TensorLike) -> type:
    """Return bool, int, float or complex; np.float64 counts as float."""
    return next(kind for kind in _SCALARS if isinstance(x, kind))


def _scalar(x: Any, dtype: str | None) -> Any:
    if dtype is None:
        dtype = dtypes.result_type(_python_type(x))
        if dtype == "int32" and not -(2**31) <= x < 2**31:
            dtype = "int64"
    elif isinstance(x, float) and dtypes.is_integer(dtype):
        x = int(x) if np.isfinite(x) else 0
    is_real = isinstance(x, (int, float))
    is_large = is_real and not -_LEAST_LARGE <= x <= _LEAST_LARGE
    try:
        if is_large and dtypes.is_float(dtype):
            x = _round_large(x, dtype)
        return _store_array(x, dtype)
    except OverflowError:
        raise _misfit(x, dtype) from None


# Numbers of larger magnitude may be infinite in a float dtype, such as float16.
_LEAST_LARGE = 65504.0


def _round_large(x: float, dtype: str) -> float:
    """Round a large number; overflow gives infinity without a warning."""
    with np.errstate(over="ignore"):
        return float(np.float64(x).astype(dtypes.numpy_dtype(dtype)))


def _store_array(x: TensorLike, dtype: str | None = None) -> Any:
    """Return a tensor's array on the compute device; in a trace, in host memory."""
    if state.trace is None:
        return backend().memory.asarray(x, dtype)
    return np.asarray(x, None if dtype is None else dtypes.numpy_dtype(dtype))


def _misfit(x: TensorLike, dtype: str) -> DTypeError:
    return DTypeError(f"convert_to_tensor: {x!r} does not fit the dtype {dtype}")


def _check_array(array: Array) -> Array:
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    try:
        dtypes.name_of(array.dtype)
    except DTypeError:
        raise DTypeError(
            f"convert_to_tensor: expected numbers of {', '.join(dtypes.DTYPES)}; "
            f"received data of dtype {array.dtype} (shape {array.shape})"
        ) from None
    return array


def _from_list(values: Any, dtype: str | None) -> Tensor:
    leaves = tree.flatten(values)
    if any(map(_holds_tensor, leaves)):
        common = dtype or _common_dtype(leaves)
        return _stack([convert(value, common) for value in values])
    try:
        array = _check_array(np.array(values))
    except ValueError as error:
        raise DTypeError(f"convert_to_tensor: {error}") from None
    if all(isinstance(leaf, _SCALARS) for leaf in leaves):
        kinds = set(map(_python_type, leaves)) or {float}
        integer_dtype = dtypes.result_type(*kinds)
        if integer_dtype == "int32" and not _fits(array, "int32"):
            integer_dtype = "int64" if _fits(array, "int64") else "uint64"
            if array.dtype.kind == "f":  # NumPy found no integer dtype for all
                raise _misfit(values, integer_dtype)
        with np.errstate(invalid="ignore"):
            array = array.astype(dtypes.numpy_dtype(dtype or integer_dtype))
    return Tensor(_store_array(array))


def _common_dtype(leaves: list[Any]) -> str:
    """Return the common dtype; Python numbers are weakly typed if they fit."""
    common = dtypes.result_type(*map(weak_type, leaves))
    if dtypes.is_integer(common):
        limits = np.iinfo(dtypes.numpy_dtype(common))
        limit_values: Any = limits.min, limits.max
    elif common == "float16":
        limit_values = -_LEAST_LARGE, _LEAST_LARGE
    else:
        return common

    def kind(x: TensorLike) -> str:
        fits = type(x) not in (int, float) or limit_values[0] <= x <= limit_values[1]
        return weak_type(x) if fits else convert(x).dtype

    return dtypes.result_type(*map(kind, leaves))


def _fits(array: Array, dtype: str) -> bool:
    limits = np.iinfo(dtype)
    return bool(
        not array.size or (limits.min <= array.min() and array.max() <= limits.max)
    )


def _stack(tensors: list[Tensor]) -> Tensor:
    rows = [bind(PRIMITIVES["reshape"], t, shape=(1, *t.shape)) for t in tensors]
    return bind(PRIMITIVES["concatenate"], *rows, axis=0)


def is_strings(x: TensorLike) -> bool:
    """Return whether `x` is an array of str or bytes (not a numeric tensor)."""
    if isinstance(x, StringTensor):
        return True
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "OSU":
        return False
    return x.dtype.kind != "O" or not x.size or isinstance(x.flat[0], (str, bytes))


def convert_input(x: TensorLike, dtype: str, name: str) -> Any:
    """Return an input as a Tensor, or as an array of str if `dtype` is "string".

    Args:
        x: the data.
        dtype: the dtype of the input.
        name: the name of the input, for errors.
    """
    if dtype != dtypes.STRING:
        if is_strings(x) or getattr(x, "dtype", None) == dtypes.STRING:
            raise DTypeError(
                f"input {name}: expected numbers; received strings; convert numbers "
                "that are text by .astype('float32'), and words by "
                "layers.TextVectorization or layers.StringLookup"
            )
        return convert(x, dtype)
    if isinstance(x, StringTensor) and x.is_traced:
        return x
    array = x if isinstance(x, Tensor) else as_array(x)
    if not is_strings(array):
        raise DTypeError(
            f"input {name}: expected strings; received data of dtype {array.dtype}"
        )
    return array


def operands(*xs: Any) -> tuple[tuple[Tensor, ...], str]:
    """Return operands as tensors of their common dtype, and that dtype."""
    first = xs[0]
    for x in xs:
        if type(x) is not Tensor or x._dtype != first._dtype:
            break
    else:
        return xs, first._dtype
    values = tuple([x if is_scalar(x) else convert(x) for x in xs])
    kinds = [x._dtype if type(x) is Tensor else weak_type(x) for x in values]
    if kinds.count(kinds[0]) == len(kinds) and type(kinds[0]) is str:
        return values, kinds[0]
    dtype = dtypes.result_type(*kinds)
    if kinds.count(dtype) == len(kinds):
        return values, dtype
    return tuple([convert(x, dtype) for x in values]), dtype


def weak_type(x: TensorLike) -> Any:
    """Return the type for promotion: a dtype name, or a weak Python type."""
    if isinstance(x, Tensor):
        return x._dtype
    if type(x) in _WEAK:
        return type(x)
    if isinstance(x, _SCALARS):
        return _python_type(x)
    if type(x) is Extent:
        return float if x.is_real else int
    dtype = getattr(x, "dtype", None)
    return dtypes.standardize(dtype) if dtype is not None else convert(x).dtype


def tensors(*xs: Any) -> list[Tensor]:
    """Return each operand as a tensor: Python numbers become int32 or floatx, at least.

    Keras promotes in this way in functions that no Python operator calls.
    """
    return [convert(x) for x in xs]


def to_float(x: TensorLike) -> Tensor:
    """Return `x` as a float or complex tensor; other dtypes become floatx."""
    x = convert(x)
    return x if x._dtype in dtypes.INEXACT else convert(x, settings.floatx())


def floating(*xs: Any) -> tuple[Tensor, ...]:
    """Return operands as tensors of their common float or complex dtype."""
    tensors, dtype = operands(*xs)
    if dtype in dtypes.INEXACT:
        return tensors
    return tuple([convert(x, settings.floatx()) for x in tensors])
