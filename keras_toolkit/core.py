"""Tensors, Variables and control flow: the core of the backend."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from keras.src import tree
from keras.src.backend.common import KerasVariable, standardize_dtype
from keras.src.backend.common.keras_tensor import KerasTensor
from keras.src.backend.common.stateless_scope import (
    StatelessScope,
    get_stateless_scope,
    in_stateless_scope,
)
from keras.src.backend.common.symbolic_scope import SymbolicScope

import toolkit
from toolkit import ops
from toolkit.errors import TraceError
from toolkit.ops.symbolic import infer

SUPPORTS_SPARSE_TENSORS = False
SUPPORTS_RAGGED_TENSORS = False
SUPPORTS_COMPLEX_DTYPES = True
# Keras calls its callbacks from another thread if this is True. That pays if a step
# runs on an accelerator. On the CPU both threads need the same cores.
IS_THREAD_SAFE = any(name.startswith("gpu") for name in toolkit.config.list_devices())

Tensor = toolkit.Tensor


class Variable(KerasVariable):
    """A Variable of Keras whose value is stored in a Variable of toolkit."""

    _value: Any  # a toolkit.Variable; None before the deferred initialization
    _shape: Any

    def _initialize(self, value: Any) -> None:
        self._store(value)

    def _initialize_with_initializer(self, initializer: Callable[..., Any]) -> None:
        # A function as the first value runs outside of the trace that is open.
        self._store(lambda shape, dtype: initializer(shape, dtype=dtype))

    def _store(self, initializer: Any) -> None:
        if self._shape is None:
            self._shape = self._validate_shape(tuple(initializer.shape))
        self._value = toolkit.Variable(
            initializer,
            shape=self._shape,
            dtype=self._dtype,
            trainable=self._trainable,
            autocast=False,
            name=self._name,
        )
        self._value.path = self._path

    def _direct_assign(self, value: Any) -> None:
        self._value.assign(value)

    def _convert_to_tensor(self, value: Any, dtype: Any = None) -> Any:
        return convert_to_tensor(value, dtype=dtype)

    def __toolkit_variable__(self) -> toolkit.Variable:
        """Return the Variable of toolkit, for tapes and traces."""
        return self._value

    @property
    def value(self) -> Any:
        """The tensor that the Variable holds, in the dtype of the autocast scope."""
        if in_stateless_scope():
            value = get_stateless_scope().get_current_value(self)
            if value is not None:
                return self._maybe_autocast(value)
        if self._value is None:
            return self._maybe_autocast(
                self._initializer(self._shape, dtype=self._dtype)
            )
        return self._maybe_autocast(self._value.read())

    @property
    def trainable(self) -> bool:
        """Whether tapes watch the Variable."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = bool(value)
        if self._value is not None:
            self._value.trainable = self._trainable

    def __array__(
        self, dtype: Any = None, copy: bool | None = None
    ) -> np.ndarray[Any, Any]:
        return np.asarray(convert_to_numpy(self.value), dtype=dtype)


def convert_to_tensor(
    x: Any, dtype: Any = None, sparse: bool | None = None, ragged: bool | None = None
) -> Any:
    """Return `x` as a tensor.

    Args:
        x: a number, an array, a Variable, or nested lists of them.
        dtype: None for the dtype of `x`.
        sparse: must not be True.
        ragged: must not be True.

    Raises:
        ValueError: if the caller requests a sparse or ragged tensor.
    """
    for name, is_requested in (("sparse", sparse), ("ragged", ragged)):
        if is_requested:
            raise ValueError(f"`{name}=True` is not supported with toolkit backend")
    if dtype is not None:
        dtype = standardize_dtype(dtype)
    if isinstance(x, Tensor) and (dtype is None or x.dtype == dtype):
        return x
    if isinstance(x, KerasVariable):
        x = x.value
    return ops.convert_to_tensor(x, dtype)


def convert_to_numpy(x: Any) -> np.ndarray[Any, Any]:
    """Return a copy of `x` as an array of NumPy."""
    return ops.convert_to_numpy(x)


def is_tensor(x: Any) -> bool:
    """Tell whether `x` is a tensor of toolkit."""
    return isinstance(x, Tensor)


def shape(x: Any) -> tuple[int, ...]:
    """Return the shape of `x`."""
    return tuple(x.shape)


def cast(x: Any, dtype: Any) -> Any:
    """Return `x` as a tensor of `dtype`."""
    return convert_to_tensor(x, dtype=dtype)


def random_seed_dtype() -> str:
    """Return the dtype of the keys of random numbers."""
    return "uint32"


def device_scope(device_name: str) -> AbstractContextManager[Any]:
    """Return a context in which operations run on a device, such as "gpu:0"."""
    if not isinstance(device_name, str):
        raise ValueError(
            "Invalid value for argument `device_name`. Expected a string like 'gpu:0' "
            f"or 'cpu'. Received: device_name={device_name!r}"
        )
    return toolkit.device(device_name.lower().replace("cuda", "gpu"))


def compute_output_spec(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the KerasTensors that `fn` would return.

    `fn` is traced with two sizes for each unknown extent. An extent that differs
    between the two traces is unknown in the result. Nothing is computed, unless `fn`
    reads values of tensors, as Python's own control flow does.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        with StatelessScope():  # each trace has its own values of the Variables
            return fn(*args, **kwargs)

    with StatelessScope(), SymbolicScope():
        symbols = tree.map_structure(_to_symbol, (args, kwargs))
        try:
            outputs = infer(run, *symbols)
        except TraceError:  # the code reads values
            return _spec_of_zeros(run, args, kwargs)
    return tree.map_structure(_from_symbol, outputs)


def _spec_of_zeros(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return the specs of the results of `fn` for zeros of two sizes."""

    def run(extent: int) -> Any:
        def zeros(leaf: Any) -> Any:
            if not isinstance(leaf, KerasTensor):
                return leaf
            shape = [extent if n is None else n for n in leaf.shape]
            return ops.zeros(shape, leaf.dtype)

        args_of_zeros, kwargs_of_zeros = tree.map_structure(zeros, (args, kwargs))
        return fn(*args_of_zeros, **kwargs_of_zeros)

    def merge(a: Any, b: Any) -> Any:
        if not isinstance(a, Tensor):
            return a
        shape = [m if m == n else None for m, n in zip(a.shape, b.shape, strict=True)]
        return KerasTensor(shape, a.dtype)

    return tree.map_structure(merge, run(83), run(89))


def _to_symbol(leaf: Any) -> Any:
    if isinstance(leaf, KerasTensor):
        return toolkit.KerasTensor(leaf.shape, leaf.dtype)
    return leaf


def _from_symbol(leaf: Any) -> Any:
    if isinstance(leaf, toolkit.KerasTensor):
        return KerasTensor(leaf.shape, leaf.dtype)
    return leaf


cond = ops.cond
switch = ops.switch
while_loop = ops.while_loop
fori_loop = ops.fori_loop
map = ops.map
scan = ops.scan
associative_scan = ops.associative_scan
vectorized_map = ops.vectorized_map
slice = ops.slice
slice_update = ops.slice_update
scatter = ops.scatter
scatter_update = ops.scatter_update
stop_gradient = ops.stop_gradient
unstack = ops.unstack
custom_gradient = ops.custom_gradient
remat = toolkit.remat
