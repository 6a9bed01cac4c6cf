"""Variable: a mutable reference to one tensor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np

from toolkit import dtypes, pictures, settings
from toolkit.backends.memory import Memory, device_memories, memory_of
from toolkit.buffer_pool import RESULT_POOL
from toolkit.core.convert import adopt, convert
from toolkit.core.dialects import Dialect
from toolkit.core.initial_values import blank_array, defer, is_deferred
from toolkit.core.locks import changes
from toolkit.core.naming import auto_name, current_path
from toolkit.core.placement import Placement
from toolkit.core.tensor import Operators, Tensor, backend, state
from toolkit.core.trace import no_trace
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    ShapeError,
    TraceError,
    unknown_choice,
)
from toolkit.ir import Spec
from toolkit.reading.budget import spend_variable
from toolkit.type_aliases import Array, TensorLike

_AGGREGATIONS = (None, "none", "mean", "sum", "only_first_replica")
# On an accelerator, reads of values up to this size in bytes return a copy.
_SMALL_NBYTES = 64 << 10
# From this size on, a new Variable frees the unused memory of the results before it.
_LARGE_NBYTES = 1 << 20
_SYNCHRONIZATIONS = (None, "none", "auto", "on_read", "on_write")


class Variable(Operators):
    """A mutable reference to one tensor of fixed shape and dtype.

    Args:
        initializer: the first value, a function `(shape, dtype=...)` returning it, or
            the name of an initializer.
        shape: needed if `initializer` is a function or a name.
        dtype: default: the dtype of the value, or floatx for a function.
        trainable: whether tapes watch it and optimizers may change it.
        autocast: whether layers of lower precision read it in their compute dtype.
        aggregation: reduction that would combine its replicas.
        synchronization: when replicas of it would be synchronized.
        name: part of its path; generated if not given.

    Example:
        >>> import toolkit
        >>> v = toolkit.Variable([1.0, 2.0], name="v")
        >>> v.assign_add([1.0, 1.0]).numpy().tolist()
        [2.0, 3.0]
    """

    __array_priority__ = 1000
    dialect: ClassVar[Dialect | None] = None
    # Returns the initializer for a name; `toolkit.initializers` sets it.
    _initializer_named: Callable[[str], Any]
    # Returns the placement of a new Variable; `toolkit.distribution` sets it.
    _placement_of: ClassVar[Callable[..., Placement | None] | None] = None
    _placement: Placement | None = None
    # Whether layers look up its rows, so that its gradients have few rows.
    is_table = False
    # The number of the last assignment outside of a step: see `Changes`.
    last_assignment = 0
    # Called before an assignment; for a variable whose gradient one process computed.
    assignment_check: Callable[[Variable], None] | None = None

    def __init__(
        self,
        initializer: Any,
        shape: Any = None,
        dtype: Any = None,
        trainable: bool = True,
        autocast: bool = True,
        aggregation: str | None = "none",
        synchronization: str | None = "auto",
        name: str | None = None,
    ) -> None:
        if aggregation not in _AGGREGATIONS:
            raise unknown_choice("aggregation", aggregation, _AGGREGATIONS)
        if synchronization not in _SYNCHRONIZATIONS:
            raise unknown_choice("synchronization", synchronization, _SYNCHRONIZATIONS)
        if name is not None and (not isinstance(name, str) or "/" in name):
            raise ArgumentError(
                "Variable: Argument `name` must be a string and cannot contain "
                f"character `/`; received {name!r}"
            )
        if state.overlay is not None:
            state.overlay.check_creation()
        self.name: str = name or auto_name(type(self).__name__)
        self.path: str = current_path(self.name)
        self.trainable: bool = bool(trainable)
        self.autocast: bool = bool(autocast)
        self.aggregation = aggregation
        self.synchronization = synchronization
        self._regularizer: Callable[..., Any] | None = None
        self._constraint: Callable[..., Any] | None = None
        self._overwrite_with_gradient = False
        self.lock: threading.RLock = threading.RLock()
        if isinstance(initializer, str):
            initializer = Variable._initializer_named(initializer)
        with no_trace():
            self._tensor = _initial_value(initializer, shape, dtype, self.path)
        if self._tensor._array is None and state.trace is not None:
            value = state.trace.value_of(self._tensor)
            self._tensor = self._tensor if value is None else value
        if self._tensor._array is None:
            raise TraceError(
                f"variable {self.path!r}: its initial value must not depend on the "
                "traced function; pass an initializer function, or an array"
            )
        self._tensor = _to_contiguous(self._tensor)
        # Whether another object may reference the buffer: then it is never overwritten.
        self._shared = True
        self._spare: Any = None
        self.place_like(None)
        if state.dialect is not None and type(self) is Variable:
            self.__class__ = state.dialect.variable
        if self.dialect is not None:
            self._tensor = self._wrap_value(self._tensor._array)
        if is_deferred(initializer, self.shape, self._tensor.dtype):
            blank, spec = self._tensor, self.spec

            def initialize() -> None:
                if self._tensor is blank:
                    self.assign(initializer(spec.shape, dtype=spec.dtype))

            defer(initialize)
        elif self._tensor.nbytes >= _LARGE_NBYTES:
            RESULT_POOL.release_unused()  # the intermediate results of the initializer

    @property
    def placement(self) -> Placement | None:
        """Return the part of the value in this process; None: the whole value."""
        return self._placement

    def set_placement(self, placement: Placement | None) -> None:
        """Hold another part of the value; all processes of the job call this.

        Args:
            placement: the part of the value that this process stores; None for all.
        """
        if placement is self._placement is None:
            return
        with self.lock, no_trace():
            full = self._eager_value()._array
            self._placement = placement
            self._tensor = _to_contiguous(self._wrap_value(self._local_part(full)))
            self._shared, self._spare = True, None

    def place_like(self, other: Variable | None) -> None:
        """Use the placement that is set for this Variable, or for slots of `other`.

        Args:
            other: a Variable, or None.
        """
        if Variable._placement_of is not None:
            self.set_placement(Variable._placement_of(self, other))

    def _local_part(self, array: TensorLike) -> Any:
        """Return the local part of a whole value."""
        return array if self._placement is None else self._placement.take_local(array)

    def _wrap_value(self, array: TensorLike) -> Tensor:
        """Return a tensor on a new array that becomes the value."""
        changes.note()
        kind = Tensor if self.dialect is None else self.dialect.tensor
        return kind(array, self._tensor.spec)

    @property
    def regularizer(self) -> Callable[..., Any] | None:
        """Return the function of its value that layers add to their losses."""
        return self._regularizer

    @regularizer.setter
    def regularizer(self, value: Callable[..., Any] | None) -> None:
        self._regularizer = _check_callable("regularizer", value)

    @property
    def constraint(self) -> Callable[..., Any] | None:
        """Return the function that optimizers apply to its value after each update."""
        return self._constraint

    @constraint.setter
    def constraint(self, value: Callable[..., Any] | None) -> None:
        self._constraint = _check_callable("constraint", value)

    @property
    def overwrite_with_gradient(self) -> bool:
        """Return whether optimizers assign its gradient as the new value."""
        return self._overwrite_with_gradient

    @overwrite_with_gradient.setter
    def overwrite_with_gradient(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise ArgumentTypeError(
                f"Variable: `overwrite_with_gradient` must be a boolean. Got: {value!r}"
            )
        self._overwrite_with_gradient = value

    @property
    def spec(self) -> Spec:
        """Return the shape and dtype of its storage, whatever the compute dtype is."""
        return self._tensor.spec

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the extent of each axis."""
        return self._tensor.shape

    @property
    def dtype(self) -> str:
        """Return the dtype of its value: the compute dtype inside an autocast scope."""
        dtype = self._tensor.dtype
        if self.autocast and state.autocast and dtypes.is_float(dtype):
            return state.autocast
        return dtype

    @property
    def device(self) -> str:
        """Return the device of the value, such as "cpu:0"."""
        return self._tensor.device

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return self._tensor.ndim

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return self._tensor.size

    @property
    def value(self) -> Tensor:
        """Return its current tensor, in the compute dtype of the current layer."""
        tensor = self.read()
        if self.autocast and state.autocast and dtypes.is_float(tensor.dtype):
            return convert(tensor, state.autocast)
        return tensor

    def read(self) -> Tensor:
        """Return its current tensor in its own dtype, and notify the tapes."""
        overlay = state.overlay
        tensor = self._eager_value() if overlay is None else overlay.read(self)
        for tape in state.tapes:
            tape.watch_variable(self, tensor)
        return tensor

    def _eager_value(self) -> Tensor:
        # A program that writes holds the lock: it must not swap buffers in between.
        with self.lock:
            if self._placement is not None:
                full, home = self._gathered(), memory_of(self._tensor._array)
                return self._wrap_value(full if home is None else home.copy_array(full))
            home = self._pinned_memory()
            if home is not None and self._tensor.nbytes <= _SMALL_NBYTES:
                return self._wrap_value(home.copy_array(self._tensor._array))
            self._shared = True
            return self._tensor

    def _gathered(self) -> Array:
        """Return the full value of a sharded variable as a new array of the host."""
        assert self._placement is not None
        return self._placement.gather(self._tensor._array)

    def _pinned_memory(self) -> Memory | None:
        """Return the device memory in which captured steps need a fixed buffer address.

        Return None if another object references the buffer, or a tape uses the identity
        of its tensor.
        """
        if not device_memories or self._shared or state.tapes or self._placement:
            return None
        return memory_of(self._tensor._array)

    def numpy(self) -> Any:
        """Return a copy of the value as a NumPy array.

        A Variable without axes returns a NumPy number, as in TensorFlow.
        """
        if state.overlay is None:
            with self.lock:
                home, is_sharded = self._pinned_memory(), self._placement is not None
                # it is copied, so the buffer has no other reference
                if home is not None or is_sharded:
                    array = self._tensor._array
                    copy = self._gathered() if home is None else home.to_numpy(array)
                    dtype = dtypes.numpy_dtype(self.dtype)
                    array = copy.astype(dtype, copy=False)
                    return array if array.ndim else array[()]
        return self.value.numpy().copy()

    def convert(self, value: Any) -> Tensor:
        """Return `value` as a tensor with the shape and dtype of this variable.

        Args:
            value: a number, an array or a tensor.
        """
        tensor = convert(value, self._tensor.dtype)
        if tensor.shape != self.shape:
            raise ShapeError(
                f"variable {self.path!r}: expected a value of shape {self.shape}; "
                f"received shape {tensor.shape}"
            )
        return tensor

    def assign(self, value: TensorLike) -> Tensor:
        """Replace the value; return the new one.

        Args:
            value: the new value.

        Returns:
            The new value.
        """
        if self.assignment_check is not None:
            self.assignment_check(self)
        tensor = self.convert(value)
        if state.overlay is not None:
            state.overlay.write(self, tensor)
        else:
            with self.lock:
                changes.note_assignments((self,))
                home = self._pinned_memory()
                if home is not None:
                    home.overwrite(self._tensor._array, tensor._array)
                else:
                    self._shared = True
                    # A new tensor: tapes distinguish later reads from the old value.
                    self._tensor = _to_contiguous(
                        self._wrap_value(self._local_part(tensor._array))
                    )
        return tensor

    def assign_add(self, value: TensorLike) -> Tensor:
        """Add to the value; return the new one.

        Args:
            value: the summand.

        Returns:
            The new value.
        """
        return self.assign(self.read() + convert(value, self._tensor.dtype))

    def assign_sub(self, value: TensorLike) -> Tensor:
        """Subtract from the value; return the new one.

        Args:
            value: the number to subtract.

        Returns:
            The new value.
        """
        return self.assign(self.read() - convert(value, self._tensor.dtype))

    def exclusive_buffer(self) -> Any:
        """Return the buffer without other references, for writes in place."""
        if self._shared:
            copy = backend().memory.copy_array(self._tensor._array)
            self._tensor = self._wrap_value(copy)
            self._shared = False
        return self._tensor._array

    def settle(self) -> None:
        """Move the value to the memory of the current backend."""
        with self.lock:
            target = backend().memory
            if not target.owns(self._tensor._array):
                self._tensor = self._wrap_value(target.copy_array(self._tensor._array))
                self._shared, self._spare = False, None

    def spare_buffer(self) -> Any:
        """Return a buffer to which a program may write the next value."""
        if self._spare is None:
            shape = self._tensor._array.shape
            self._spare = backend().memory.allocate_aligned(shape, self._tensor.dtype)
        return self._spare

    def commit(self, array: TensorLike) -> None:
        """Make a buffer that a program has written the value.

        The old buffer becomes the spare one, unless it may have other references.

        Args:
            array: the buffer.
        """
        old = self._tensor._array
        if old is array:
            return
        tensor = self._wrap_value(array)
        # No call in between, so that an interrupt cannot leave a partial change.
        self._spare = None if self._shared else old
        self._shared = False
        self._tensor = tensor

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is not False:
            return np.asarray(self.numpy(), dtype)
        shared = np.array(self.value.numpy(), dtype, copy=False).view()
        shared.setflags(write=False)  # programs rely on the current content
        return shared

    def __len__(self) -> int:
        return len(self._tensor)

    def __bool__(self) -> bool:
        return bool(self._scalar())

    def __int__(self) -> int:
        return int(self._scalar())

    def __float__(self) -> float:
        return float(self._scalar())

    def _scalar(self) -> Tensor:
        if self.shape:
            raise TypeError(
                "Only scalar arrays can be converted to Python scalars. The variable "
                f"{self.path!r} has shape {self.shape}"
            )
        return self.value

    def __index__(self) -> int:
        return self.value.__index__()

    def __deepcopy__(self, memo: Any) -> Variable:
        copy = type(self).__new__(type(self))
        memo[id(self)] = copy
        copy.__setstate__(self.__getstate__())
        return copy

    def __getstate__(self) -> dict[str, Any]:
        with self.lock:
            self._shared = True
            return {**self.__dict__, "lock": None, "_spare": None}

    def __setstate__(self, members: dict[str, Any]) -> None:
        self.__dict__.update(members, lock=threading.RLock())

    def __repr__(self) -> str:
        head = f"<Variable path={self.path}, shape={self.shape}, dtype={self.dtype}"
        if self._placement is not None:  # other processes hold the remaining parts
            return f"{head}, local shard: {self._placement}>"
        return f"{head}, value={self._tensor}>"

    def _repr_html_(self) -> str:
        title = f"Variable {self.path}"
        facts = "trainable" if self.trainable else "not trainable"
        return pictures.notebook.array_note(title, np.asarray(self), facts)


def _to_contiguous(tensor: Tensor) -> Tensor:
    """Return the tensor in row-major order; copy it if it is a view."""
    array = tensor._array
    if array is not None and not array.flags.c_contiguous:
        memory = memory_of(array)
        tensor._array = (
            array.copy("C") if memory is None else memory.as_row_major(array)
        )
    return tensor


def unwrap_variable(x: TensorLike) -> Any:
    """Return the Variable that `x` wraps by `__toolkit_variable__`, or `x` itself."""
    unwrap = getattr(x, "__toolkit_variable__", None)
    return x if unwrap is None else unwrap()


def assign_all(pairs: Iterable[tuple[Variable, Any]]) -> None:
    """Assign the values of several variables, or of none if one does not fit."""
    fitting = [(variable, variable.convert(value)) for variable, value in pairs]
    for variable, value in fitting:
        if state.overlay is None:  # loaded values, no updates by gradients
            variable.assignment_check = None
        variable.assign(value)


def current_value(x: TensorLike) -> Any:
    """Return the current tensor of a Variable; any other object unchanged."""
    return x.value if isinstance(x, Variable) else x


def _check_callable(attribute: str, value: object) -> Any:
    """Return None or a callable."""
    if value is not None and not callable(value):
        raise ArgumentError(
            f"Variable: Invalid value for attribute `{attribute}`: expected a "
            f"function or None; received {value!r}"
        )
    return value


def _initial_value(
    initializer: Any, shape: tuple[int, ...] | None, dtype: Any, path: str
) -> Tensor:
    if isinstance(initializer, np.generic):  # keeps its dtype, like an array
        initializer = np.asarray(initializer)
    if not callable(initializer) or isinstance(initializer, Tensor):
        if shape is not None:
            value = convert(initializer, dtype and dtypes.standardize(dtype))
            if value.shape != tuple(shape):
                raise ShapeError(
                    f"Variable: expected a value of shape {tuple(shape)}; "
                    f"received shape {value.shape}"
                )
            return value
        return convert(initializer, dtype and dtypes.standardize(dtype))
    if shape is None:
        raise ArgumentError(
            "Variable: When creating a Variable from an initializer, the `shape` "
            "argument is needed"
        )
    name = dtypes.standardize(dtype) if dtype else settings.floatx()
    spend_variable(path, tuple(shape), dtypes.itemsize(name))
    if is_deferred(initializer, tuple(shape), name):
        return adopt(blank_array(tuple(shape), name))
    return convert(initializer(tuple(shape), dtype=name), name)
