"""Native libraries in Python, called by ctypes without the compiler."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.library import DTYPES, Status
from toolkit.definitions.records import record
from toolkit.errors import ArgumentError, ShapeError, ToolkitError
from toolkit.export.native.binding import (
    Binding,
    MappedWeights,
    MissingWeightsError,
    resolve_library,
)
from toolkit.export.native.names import prefix_of, stem_of
from toolkit.type_aliases import Array


@record
class NativeTensor:
    """Input or output of a native library.

    Attributes:
        name: its key in a dict of inputs.
        shape: the extents; None is the batch.
        dtype: the dtype's name.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str

    def rows_of(self, shape: Sequence[int]) -> int | None:
        """Return the batch size of an array's shape, or None without batch axis.

        Raises:
            ShapeError: the shape does not match.
        """
        if len(shape) != len(self.shape) or any(
            expected not in (None, size)
            for expected, size in zip(self.shape, shape, strict=True)
        ):
            raise ShapeError(
                f"input {self.name!r}: expected the shape {self.shape}; received "
                f"{tuple(shape)}"
            )
        return shape[0] if None in self.shape else None


def load_native(
    path: str | os.PathLike[str],
    weights: str | os.PathLike[str] | None = None,
    threads: int = 1,
    prefix: str | None = None,
) -> NativeModel:
    """Load a shared library from `Model.export`.

    A library is a program that runs with your permissions. This function runs its code,
    unlike the functions of `toolkit.saving`. Only load libraries from sources that you
    trust.

    Args:
        path: the path of the library with its folder, such as "./digits.so". Other
            users must not be able to write to it, to its folder, or to the folder of a
            link to it.
        weights: the path of the file of weights, if they are not embedded. None uses
            the file next to the library. The file is memory-mapped, and must not change
            while the model is in use.
        threads: the number of threads of a call. All models of one library share the
            threads; the last load sets the number.
        prefix: the prefix of its functions, if it differs from the file name.

    Returns:
        A callable that runs the library.

    Raises:
        ArgumentError: the path has no folder.
        MissingFileError: a file is missing.
        ModelFileError: other users can write the file, it is not a native library, it
            has another version, or the weights do not match.
        UnsupportedError: the processor cannot run it.

    Example:
        >>> import toolkit
        >>> model = toolkit.load_native("./digits.so")  # doctest: +SKIP
        >>> model.predict(images)  # doctest: +SKIP
    """
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise ArgumentError(
            f"load_native: threads: expected an integer > 0; received {threads!r}"
        )
    file = resolve_library(path)
    binding = Binding(file, prefix or prefix_of(file))
    binding.check(binding.call("threads", threads, -1))
    if weights is None:
        try:
            return NativeModel(binding)
        except MissingWeightsError:
            weights = file.with_name(f"{stem_of(file)}.safetensors")
    return NativeModel(binding, binding.map_weights(Path(weights)))


class NativeModel:
    """Loaded native library; `toolkit.load_native` creates it.

    Several threads can call it. If it is stateful, calls are serialized, and each
    continues from the state of the previous one.

    Attributes:
        inputs: the inputs of `predict`, in order.
        outputs: the outputs of `predict`.
        batches: the batch sizes with a program, in ascending order.
        is_stateful: whether a call changes the results of later calls.
    """

    def __init__(self, binding: Binding, weights: MappedWeights | None = None) -> None:
        self.inputs: list[NativeTensor] = _tensors(binding, "inputs")
        self.outputs: list[NativeTensor] = _tensors(binding, "outputs")
        self.batches: tuple[int, ...] = binding.batches()
        self.is_stateful: bool = binding.call("state_count") > 0
        self._binding, self._weights = binding, weights
        self._idle_workspaces: list[Array] = []
        self._lock = threading.Lock()
        self._idle_workspaces.append(self._new_workspace())  # raises errors early

    @property
    def takes_whole_batches(self) -> bool:
        """Whether `predict` accepts only the batch sizes in `batches`.

        This is true if rows can depend on other rows.
        """
        if self.is_stateful or not all(
            None in tensor.shape for tensor in (*self.inputs, *self.outputs)
        ):
            return True
        rows = next(n for n in count(1) if n not in self.batches)
        inputs, outputs = (
            _zeros(tensors, rows) for tensors in (self.inputs, self.outputs)
        )
        with self._acquire_workspace() as workspace:
            pointers = _pointers(inputs), _pointers(outputs)
            status = self._binding.call("run", workspace.ctypes.data, rows, *pointers)
        return bool(status == Status.BAD_BATCH)

    def __call__(self, x: Any) -> Any:
        """Return `predict(x)`."""
        return self.predict(x)

    def predict(self, x: Any) -> Any:
        """Compute the outputs of the model.

        Args:
            x: an array. For several inputs, a list of arrays in order or a dict by
                name. Arrays are converted to the inputs' dtypes; floats are rounded.

        Returns:
            An array, or a list of arrays for several outputs.

        Raises:
            ArgumentError: an input's dtype cannot represent a value, for example a
                float for integers.
            ShapeError: a shape or batch size does not match.
            OutOfRangeError: an index in the inputs is out of range.
        """
        arrays = self._convert_inputs(x)
        rows = self._batch_size(arrays)
        shapes = [[rows if n is None else n for n in y.shape] for y in self.outputs]
        results = [
            np.empty(shape, dtypes.numpy_dtype(y.dtype))
            for shape, y in zip(shapes, self.outputs, strict=True)
        ]
        with self._acquire_workspace() as workspace:
            pointers = _pointers(arrays), _pointers(results)
            self._call("run", workspace, rows, *pointers)
        return results[0] if len(results) == 1 else results

    def reset(self) -> None:
        """Reset the states to their initial values."""
        with self._acquire_workspace() as workspace:
            self._call("reset", workspace)

    def _call(self, name: str, workspace: Array, *arguments: Any) -> None:
        status = self._binding.call(name, workspace.ctypes.data, *arguments)
        self._binding.check(status, workspace)

    # --- arrays -----------------------------------------------------------------------

    def _convert_inputs(self, x: Any) -> list[Array]:
        return [
            _as_input(tensor.name, value, tensor.dtype)
            for tensor, value in zip(self.inputs, self._order_inputs(x), strict=True)
        ]

    def _order_inputs(self, x: Any) -> list[Any]:
        """Return the inputs in order."""
        names = [tensor.name for tensor in self.inputs]
        if isinstance(x, Mapping):
            if set(x) != set(names):
                raise ArgumentError(
                    f"predict: expected the inputs {names}; received {list(x)}"
                )
            return [x[name] for name in names]
        if len(names) == 1:
            return [x]
        if not isinstance(x, (list, tuple)) or len(x) != len(names):
            raise ArgumentError(
                f"predict: expected {len(names)} inputs, {names}; received "
                f"{type(x).__name__}"
                + (f" of {len(x)}" if isinstance(x, (list, tuple)) else "")
            )
        return list(x)

    def _batch_size(self, arrays: Sequence[Array]) -> int:
        """Return the batch size, which must be equal for all inputs."""
        pairs = zip(self.inputs, arrays, strict=True)
        rows_by_name = {
            tensor.name: tensor.rows_of(array.shape) for tensor, array in pairs
        }
        counts = {name: n for name, n in rows_by_name.items() if n is not None}
        if len(set(counts.values())) > 1:
            raise ShapeError(
                f"predict: expected equal numbers of rows; received {counts}"
            )
        return next(iter(counts.values()), self.batches[0])

    # --- workspaces -------------------------------------------------------------------

    @contextmanager
    def _acquire_workspace(self) -> Iterator[Array]:
        """Return a context with exclusive use of a workspace."""
        if self.is_stateful:
            with self._lock:
                yield self._idle_workspaces[0]
            return
        try:
            workspace = self._idle_workspaces.pop()
        except IndexError:
            workspace = self._new_workspace()
        try:
            yield workspace
        finally:
            self._idle_workspaces.append(workspace)

    def _new_workspace(self) -> Array:
        """Allocate for all sizes; the system backs only written pages."""
        workspace = np.empty(self._binding.call("workspace_size", 0), np.uint8)
        address = None if self._weights is None else self._weights.address
        self._call("init", workspace, address, 0)
        return workspace


def _tensors(binding: Binding, name: str) -> list[NativeTensor]:
    return [
        NativeTensor(
            tensor_name, tuple(None if n < 0 else n for n in shape), DTYPES[dtype]
        )
        for tensor_name, dtype, shape in binding.tensors(name)
    ]


def _zeros(tensors: Sequence[NativeTensor], rows: int) -> list[Array]:
    return [
        np.zeros(
            [rows if n is None else n for n in x.shape], dtypes.numpy_dtype(x.dtype)
        )
        for x in tensors
    ]


def _pointers(arrays: Sequence[Array]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))


def _as_input(name: str, value: Any, dtype: str) -> Array:
    """Return values as a contiguous array of a dtype; only floats are rounded.

    Raises:
        ArgumentError: the dtype cannot represent a value, or the values are not
            numbers.
    """
    array = _as_real_array(name, value, dtype)
    source_dtype = array.dtype
    with np.errstate(over="ignore", invalid="ignore"):
        result = np.ascontiguousarray(array, dtypes.numpy_dtype(dtype))
    result = result.reshape(array.shape)  # ascontiguousarray adds an axis to a number
    if result.dtype == source_dtype or not array.size:
        return result
    if dtype in dtypes.INEXACT:
        is_representable = np.isfinite(result) | ~np.isfinite(array)
    else:
        low, high = _limits(dtype)
        is_representable = (array >= low) & (array <= high)
    if not is_representable.all():
        raise ArgumentError(
            f"input {name!r}: expected values of {dtype}; received "
            f"{array[~is_representable].flat[0]}"
        )
    return result


def _as_real_array(name: str, value: Any, dtype: str) -> Array:
    """Return numbers as an array of a kind compatible with the dtype."""
    try:
        array = np.asarray(value)
        dtype_name = dtypes.standardize(array.dtype)
    except (ToolkitError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"input {name!r}: expected an array of {dtype}; received "
            f"{type(value).__name__}: {error}"
        ) from None
    is_integer = dtype_name in dtypes.INTEGERS or dtype_name == "bool"
    is_real = dtype_name in dtypes.INEXACT and dtype_name not in dtypes.COMPLEX
    if array.size and not (is_integer or (dtype in dtypes.INEXACT and is_real)):
        kind = "real numbers" if dtype in dtypes.INEXACT else "integers"
        raise ArgumentError(
            f"input {name!r}: expected {kind} for {dtype}; received {dtype_name}"
        )
    return array


def _limits(dtype: str) -> tuple[int, int]:
    if dtype == "bool":
        return 0, 1
    info = np.iinfo(dtypes.numpy_dtype(dtype))
    return int(info.min), int(info.max)
