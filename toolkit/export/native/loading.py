"""Native libraries called from Python, by ctypes: without the compiler."""

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
from toolkit.errors import ArgumentError, ShapeError
from toolkit.export.native.arrays import as_input
from toolkit.export.native.binding import (
    Binding,
    MappedWeights,
    NoWeights,
    checked_library,
)
from toolkit.export.native.names import prefix_of, stem_of

Array = np.ndarray[Any, Any]


@record
class NativeTensor:
    """An input or an output of a native library.

    Attributes:
        name: by which it is given in a dict.
        shape: extents; None stands for the batch.
        dtype: the dtype's name.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str

    def rows_of(self, shape: Sequence[int]) -> int | None:
        """How many rows an array of this shape has; None where there is no batch.

        Raises:
            ShapeError: if it does not fit.
        """
        if len(shape) != len(self.shape) or any(
            wanted not in (None, size)
            for wanted, size in zip(self.shape, shape, strict=True)
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
    """A shared library that `Model.export` has made, to be called from Python.

    A library is a program: whoever gives it to you can do whatever you can do. So this
    runs code, other than every function of `toolkit.saving`. Only load what you, or
    somebody whom you trust, have made.

    Args:
        path: of the library, with the folder that it is in, such as "./digits.so".
            Neither it nor its folder may be writable by other users, nor the folder
            of a link to it.
        weights: of the file of weights, if they are not in the library; None: the one
            beside it. It is mapped, and must stay as it is while the model is in use.
        threads: how many share the work of a call. All models of one library share
            them: as many as the last one that was loaded has asked for.
        prefix: of its functions, if it is another than the file's name.

    Raises:
        ArgumentError: the path has no folder.
        MissingFileError: a file is not there.
        ModelFileError: others may write it, it is no such library, or one of another
            version, or its weights are others than those that it was made with.
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
    file = checked_library(path)
    binding = Binding(file, prefix or prefix_of(file))
    binding.check(binding.call("threads", threads, -1))
    if weights is None:
        try:
            return NativeModel(binding)
        except NoWeights:
            weights = file.with_name(f"{stem_of(file)}.safetensors")
    return NativeModel(binding, binding.map_weights(Path(weights)))


class NativeModel:
    """A native library, ready to be called; made by `toolkit.load_native`.

    Several threads may call it. If it has states, such as that of a stateful layer,
    calls take turns, and each goes on where the last one has ended.

    Attributes:
        inputs: what `predict` takes, in order.
        outputs: what it returns.
        batches: the numbers of rows that are computed at once, ascending.
        is_stateful: whether a call changes what later ones return.
    """

    def __init__(self, binding: Binding, weights: MappedWeights | None = None) -> None:
        self.inputs: list[NativeTensor] = _tensors(binding, "inputs")
        self.outputs: list[NativeTensor] = _tensors(binding, "outputs")
        self.batches: tuple[int, ...] = binding.batches()
        self.is_stateful: bool = binding.call("state_count") > 0
        self._binding, self._weights = binding, weights
        self._idle: list[Array] = []
        self._turns = threading.Lock()
        self._idle.append(self._new_workspace())  # errors show now

    @property
    def takes_whole_batches(self) -> bool:
        """Whether `predict` takes no other numbers of rows than those of `batches`.

        It is so where rows may depend on each other.
        """
        if self.is_stateful or not all(
            None in one.shape for one in (*self.inputs, *self.outputs)
        ):
            return True
        rows = next(n for n in count(1) if n not in self.batches)
        inputs, outputs = (
            _zeros(tensors, rows) for tensors in (self.inputs, self.outputs)
        )
        with self._workspace() as workspace:
            pointers = _pointers(inputs), _pointers(outputs)
            status = self._binding.call("run", workspace.ctypes.data, rows, *pointers)
        return bool(status == Status.BAD_BATCH)

    def __call__(self, x: Any) -> Any:
        """`predict(x)`."""
        return self.predict(x)

    def predict(self, x: Any) -> Any:
        """What the model computes.

        Args:
            x: an array; where there are several inputs a list of them in order, or a
                dict by their names. They are converted to the inputs' dtypes, floats
                with a rounding.

        Returns:
            An array, or a list of them if there are several outputs.

        Raises:
            ArgumentError: if an input's dtype lacks a value: floats for integers, say.
            ShapeError: if shapes or numbers of rows do not fit.
            OutOfRangeError: if an index among the inputs is beyond what it selects of.
        """
        arrays = self._arrays(x)
        rows = self._rows(arrays)
        shapes = [[rows if n is None else n for n in y.shape] for y in self.outputs]
        results = [
            np.empty(shape, dtypes.numpy_dtype(y.dtype))
            for shape, y in zip(shapes, self.outputs, strict=True)
        ]
        with self._workspace() as workspace:
            pointers = _pointers(arrays), _pointers(results)
            self._call("run", workspace, rows, *pointers)
        return results[0] if len(results) == 1 else results

    def reset(self) -> None:
        """Set states to what they were at first."""
        with self._workspace() as workspace:
            self._call("reset", workspace)

    def _call(self, name: str, workspace: Array, *arguments: Any) -> None:
        status = self._binding.call(name, workspace.ctypes.data, *arguments)
        self._binding.check(status, workspace)

    # --- arrays -----------------------------------------------------------------------

    def _arrays(self, x: Any) -> list[Array]:
        return [
            as_input(one.name, value, one.dtype)
            for one, value in zip(self.inputs, self._values(x), strict=True)
        ]

    def _values(self, x: Any) -> list[Any]:
        """The inputs in order."""
        names = [one.name for one in self.inputs]
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

    def _rows(self, arrays: Sequence[Array]) -> int:
        """How many rows there are, which all inputs agree about."""
        pairs = zip(self.inputs, arrays, strict=True)
        found = {one.name: one.rows_of(array.shape) for one, array in pairs}
        counts = {name: n for name, n in found.items() if n is not None}
        if len(set(counts.values())) > 1:
            raise ShapeError(f"predict: expected equally many rows; received {counts}")
        return next(iter(counts.values()), self.batches[0])

    # --- workspaces -------------------------------------------------------------------

    @contextmanager
    def _workspace(self) -> Iterator[Array]:
        """A workspace that nobody else uses meanwhile."""
        if self.is_stateful:
            with self._turns:
                yield self._idle[0]
            return
        try:
            workspace = self._idle.pop()
        except IndexError:
            workspace = self._new_workspace()
        try:
            yield workspace
        finally:
            self._idle.append(workspace)

    def _new_workspace(self) -> Array:
        """For all sizes: the system gives only the pages that are written."""
        workspace = np.empty(self._binding.call("workspace_size", 0), np.uint8)
        address = None if self._weights is None else self._weights.address
        self._call("init", workspace, address, 0)
        return workspace


def _tensors(binding: Binding, name: str) -> list[NativeTensor]:
    return [
        NativeTensor(own, tuple(None if n < 0 else n for n in shape), DTYPES[dtype])
        for own, dtype, shape in binding.tensors(name)
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
