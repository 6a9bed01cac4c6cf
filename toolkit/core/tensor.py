"""Tensor, and `bind`: the only function that applies a primitive.

A Tensor is a Spec with data (eager) or without (inside a trace). `bind` runs the kernel
or appends a Node to the trace, and notifies the tapes in both cases.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from toolkit import dtypes, pictures, settings
from toolkit.backends import devices
from toolkit.backends.base import Backend
from toolkit.backends.memory import device_memories, to_host
from toolkit.backends.registry import get_backend, owner_of
from toolkit.errors import ArgumentError, DTypeError, ToolkitError, TraceError, leaked
from toolkit.ir import PRIMITIVES, Primitive, Spec, Value
from toolkit.thread_state import ThreadState

if TYPE_CHECKING:
    from toolkit.core.dialects import Dialect
    from toolkit.core.trace import Overlay, Scope, Trace

Array = Any


def quiet_context() -> contextvars.Context:
    """Return a context in which NumPy does not warn of overflow, NaN and the like.

    Running a function in it costs 1/40 of `np.errstate`.
    """
    context = contextvars.Context()
    context.run(np.seterr, all="ignore")
    return context


class _State(ThreadState):
    """Scopes that are active in this thread."""

    trace: Trace | None = None  # the graph under construction
    overlay: Overlay | None = None  # overlay for reads and writes of Variables
    tapes: tuple[Any, ...] = ()  # the tapes that record
    autocast: str | None = None  # the dtype in which float Variables are read
    device: str | None = None  # device of the innermost device scope
    dialect: Dialect | None = None  # dialect of the calling compatibility layer
    marks = False  # whether a device or a dialect is active: results are marked with it

    def __init__(self) -> None:
        # Runs a kernel without warnings; only one thread can enter a context.
        self.quietly: Callable[..., Any] = quiet_context().run


state: _State = _State()


class Operators:
    """Base of tensors and Variables: `toolkit.ops` installs the operators."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __xor__(self, other: Any) -> Tensor: ...
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __getitem__(self, key: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...


class Tensor(Operators, Value):
    """An immutable array of numbers, or only its shape and dtype inside a trace.

    Operators and indexing work as in NumPy. Create one with `ops.convert_to_tensor`.

    Args:
        array: the data, an array of the backend; None inside a trace.
        spec: the shape and dtype, by default of the data.
        scope: the trace that records the tensor, if any.

    Example:
        >>> import toolkit
        >>> x = toolkit.ops.convert_to_tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> float((x @ x)[1, 0])
        15.0
    """

    __slots__ = (
        *("_array", "_device", "_dtype", "_keras_mask", "_scope", "_slices"),
        "dialect_data",
    )
    _keras_mask: Any
    dialect_data: Any  # set only by a dialect, for attributes of its subclasses
    _slices: Any  # set only by gradients of lookups, see `core/slices.py`
    _device: str  # set only on results of a device scope
    # NumPy operators defer to ours, and np.exp(tensor) still converts.
    __array_priority__ = 1000
    dialect: ClassVar[Dialect | None] = None

    def __init__(
        self, array: Array, spec: Spec | None = None, scope: Scope | None = None
    ) -> None:
        self._array = array
        self._dtype = dtypes.NAMES[array.dtype] if spec is None else spec.dtype
        self._spec = spec
        self._scope = scope

    @property
    def spec(self) -> Spec:
        """Return the shape and dtype."""
        if self._spec is None:
            self._spec = Spec(self._array.shape, self._dtype)
        return self._spec

    @property
    def constant(self) -> Array | None:
        """Return the data in host memory, or None (inside a trace)."""
        return None if self._array is None else to_host(self._array)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the extent of each axis."""
        return (self._array if self._spec is None else self._spec).shape

    @property
    def dtype(self) -> str:
        """Return the name of the dtype, such as "float32"."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return (self._spec if self._array is None else self._array).ndim  # type: ignore[union-attr]

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return self.spec.size

    @property
    def nbytes(self) -> int:
        """Return the size of the elements in bytes."""
        return self.spec.nbytes

    @property
    def device(self) -> str:
        """Return the device of the data, such as "cpu:0"."""
        try:
            return self._device
        except AttributeError:
            owner = owner_of(self._array)
            return devices.device() if owner is None else owner.device_name

    def numpy(self) -> Any:
        """Return the data, not copied, as a NumPy array (0-d: as a NumPy number).

        Inside a trace, this works for values computed from extents and constants only.

        Raises:
            TraceError: inside a trace, if the value depends on inputs of the trace.
        """
        data = self.static_value()
        if data is None:
            raise TraceError(
                f"a tensor of shape {self.shape} and dtype {self.dtype} has no value "
                "inside a traced function; return it from the function, or use ops "
                "such as `where` and `cond` instead of Python's control flow"
                f"{_fix_of_missing_values()}"
            )
        return data if data.ndim else data[()]

    def static_value(self) -> Array | None:
        """Return the data in host memory if they are already known, else None.

        Inside a trace they are computed on request, if they depend on none of its
        inputs.
        """
        array = self._array
        if array is None and state.trace is not None:
            value = state.trace.value_of(self)
            array = None if value is None else value._array
        elif self.extent is not None:
            self.extent.domain.fix(self.extent)
        return array if array is None else to_host(array)

    def __array__(
        self, dtype: Any = None, copy: bool | None = None
    ) -> np.ndarray[Any, Any]:
        if self._array is None and self.static_value() is None:
            raise TraceError(
                f"NumPy cannot read a tensor of shape {self.shape} and dtype "
                f"{self.dtype}: it has no value inside a traced function, such as a "
                "loss, a metric or a layer of a compiled model; use functions of "
                "toolkit.ops, such as ops.mean instead of np.mean"
                f"{_fix_of_missing_values()}"
            )
        if copy:
            return np.array(self.numpy(), dtype=dtype)
        return np.asarray(self.numpy(), dtype=dtype)

    def __dlpack__(self, **arguments: Any) -> Any:
        with self._on_stream() as array:
            return array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> Any:
        with self._on_stream() as array:
            return array.__dlpack_device__()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Return the interface to data on a GPU; other devices have none."""
        with self._on_stream() as array:
            interface: dict[str, Any] = array.__cuda_array_interface__
            return interface

    @contextmanager
    def _on_stream(self) -> Iterator[Array]:
        """Yield the data, with the stream that computes them as the current stream.

        Consumers wait for the pending work on this stream.
        """
        owner = owner_of(self._array)
        with nullcontext() if owner is None else owner.kernels.errstate():
            yield self.numpy() if owner is None else self._array

    def item(self) -> Any:
        """Return the only element, as a Python number."""
        return self.numpy().item()

    def tolist(self) -> Any:
        """Return the elements as nested Python lists."""
        return self.numpy().tolist()

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __float__(self) -> float:
        return float(self.numpy())

    def __index__(self) -> int:
        return index(self.numpy())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        return (self[i] for i in range(self.shape[0]))

    def __reduce__(self) -> Any:
        return type(self), (np.array(self.numpy()),)

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self

    def __repr__(self) -> str:
        head = f"shape={self.shape}, dtype={self.dtype}"
        if self._array is None:
            return f"<Tensor {head}, traced>"
        return f"<Tensor {head}, value=\n{self.numpy()}>"

    def _repr_html_(self) -> str:
        if self._array is None:
            return pictures.notebook.array_note("Tensor", None, f"{self.spec}, traced")
        return pictures.notebook.array_note("Tensor", np.asarray(self))

    def __str__(self) -> str:
        return repr(self) if self._array is None else str(self.numpy())


def _fix_of_missing_values() -> str:
    """Return the fix of the current trace for code that needs values, or ""."""
    fix = "" if state.trace is None else state.trace.fix_of_missing_values()
    return fix and f", or {fix}"


_eager_kernels: dict[str, Any] = {}


def backend() -> Backend:
    """Return the compute backend: of the device scope, or of the default device."""
    return get_backend(settings.backend_of(state.device))


devices.on_backend_change(_eager_kernels.clear)


def bind(primitive: Primitive, *inputs: Tensor, **attrs: Any) -> Any:
    """Apply `primitive`: run it now, or append it to the trace; notify the tapes.

    Args:
        primitive: primitive to apply.
        inputs: tensors whose dtypes are already promoted.
        attrs: all non-data arguments; hashable.

    Returns:
        A Tensor, or a tuple of them if the primitive has several outputs.
    """
    if state.trace is None:
        outputs = run(primitive, inputs, attrs)
        if state.marks:
            _mark(outputs if type(outputs) is tuple else (outputs,), inputs)
    else:
        outputs = state.trace.emit(primitive, inputs, attrs)
    for tape in state.tapes:
        tape.record(primitive, inputs, attrs, outputs)
    return outputs


def _mark(outputs: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> None:
    """Mark results with the device and the dialect of the active scopes."""
    for y in outputs:
        if state.device is not None:
            y._device = state.device
        if state.dialect is not None and not any(y is x for x in inputs):
            y.__class__ = state.dialect.tensor


def run(primitive: Primitive, inputs: tuple[Tensor, ...], attrs: Any) -> Any:
    """Run a primitive's kernel, or the kernels of its body if the backend has none."""
    if device_memories:
        return run_placed(primitive, inputs, attrs)
    try:
        kernel = _eager_kernels[primitive.name]
    except KeyError:
        devices.device()  # a missing device raises here
        kernel = backend().eager_kernel(primitive)
        if PRIMITIVES.get(primitive.name) is primitive:
            _eager_kernels[primitive.name] = kernel
    arrays = [x._array for x in inputs]
    try:
        result = state.quietly(kernel, *arrays, **attrs)
    except (TypeError, ValueError, AttributeError) as error:
        raise _explain_error(primitive, inputs, attrs, error) from error
    except RuntimeError:  # a signal handler or a finalizer, during a kernel
        with backend().kernels.errstate():
            result = kernel(*arrays, **attrs)
    if result is None and primitive.body is not None:  # see `CompositeKernel`
        with no_tapes():
            return primitive.body(*inputs, **attrs)
    return Tensor(result) if type(result) is np.ndarray else wrap_result(result)


def wrap_result(result: Any) -> Any:
    """Return the result of a kernel as a Tensor, or as several."""
    if type(result) is tuple:
        return tuple([Tensor(array) for array in result])
    if isinstance(result, np.generic):  # ufuncs return 0-d results as scalars
        result = np.asarray(result)
    return Tensor(result)


def run_placed(primitive: Primitive, inputs: tuple[Tensor, ...], attrs: Any) -> Any:
    """Run a primitive like `run`, on tensors on several devices.

    It runs on the device of the scope. Without a scope it runs on the device of the
    first operand outside the host, or else on the default device.
    """
    owners = (owner_of(x._array) for x in inputs)
    owner = next((candidate for candidate in owners if candidate is not None), None)
    target = backend() if state.device is not None or owner is None else owner
    if primitive.body is not None and not target.kernels.supports(primitive.name):
        with no_tapes():
            return primitive.body(*inputs, **attrs)
    if any(x._array is None for x in inputs):
        raise leaked(primitive.name, next(x for x in inputs if x._array is None))
    memory, arrays = target.memory, [x._array for x in inputs]
    arrays = [memory.asarray(a if memory.owns(a) else to_host(a)) for a in arrays]
    try:
        with target.kernels.errstate():
            return wrap_result(target.kernels[primitive.name](*arrays, **attrs))
    except (TypeError, ValueError, AttributeError) as error:
        raise _explain_error(primitive, inputs, attrs, error) from error


def run_on_host(primitive: Primitive, inputs: tuple[Tensor, ...], attrs: Any) -> Any:
    """Run a primitive like `run`, but on the CPU, whatever the default device is."""
    host = get_backend(settings.HOST_BACKEND)
    if primitive.body is not None and not host.kernels.supports(primitive.name):
        return run(primitive, inputs, attrs)
    with host.kernels.errstate():
        kernel = host.kernels[primitive.name]
        return wrap_result(kernel(*(x.constant for x in inputs), **attrs))


def _explain_error(
    primitive: Primitive, inputs: tuple[Tensor, ...], attrs: Any, error: Exception
) -> Exception:
    """Return the error of the shape rule if it raises one, else the kernel error."""
    for x in inputs:
        if x._array is None:
            return leaked(primitive.name, x)
    try:
        primitive.spec(*(x.spec for x in inputs), **attrs)
    except ToolkitError as explained:
        return explained
    if isinstance(error, ToolkitError):
        return type(error)(str(error))
    if isinstance(error, np.linalg.LinAlgError):
        return ArgumentError(f"{primitive.name}: {error}")
    specs = ", ".join(repr(x.spec) for x in inputs)
    return DTypeError(f"{primitive.name}: received ({specs}): {error}")


def no_tapes() -> AbstractContextManager[None]:
    """Return a context in which no tape records."""
    return state.override(tapes=())


def device(device_name: str) -> AbstractContextManager[None]:
    """Run operations in the context on the device `device_name`, such as "cpu:0".

    Inside a traced function the placement is recorded, and the compiler inserts copies
    between devices. In eager mode an operation runs on the device of the scope,
    wherever its operands are.

    Args:
        device_name: the name of a device, such as "cpu:0".

    Returns:
        A context manager.

    Raises:
        DeviceError: if the device does not exist.

    Example:
        >>> import toolkit
        >>> with toolkit.device("cpu:0"):
        ...     x = toolkit.ops.ones((2,))
        ...
        >>> x.device
        'cpu:0'
    """
    return state.override(device=devices.check_device(device_name), marks=True)
