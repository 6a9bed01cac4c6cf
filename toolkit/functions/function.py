"""`function`: a Python function traced into graphs, one per input signature."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property, update_wrapper
from inspect import Signature
from typing import Any, ClassVar

import numpy as np

from toolkit import dtypes, inspection, tree
from toolkit.compiler.distribution_context import DistributionContext
from toolkit.console.frames import warn
from toolkit.console.progress import show_progress, stage
from toolkit.core.convert import convert
from toolkit.core.dialects import Dialect
from toolkit.core.tensor import Tensor, state
from toolkit.core.trace import Trace
from toolkit.core.variable import Variable
from toolkit.errors import (
    ArgumentError,
    SignatureError,
    leaked,
    unknown_choice,
)
from toolkit.functions.concrete_function import DATA_TYPES, ConcreteFunction
from toolkit.ir import Spec
from toolkit.ops.symbolic import any_symbolic
from toolkit.settings import placement
from toolkit.thread_state import restore_on_error

# Limit of the programs per function; the least recently used one is evicted first.
MAX_PROGRAMS = 64
# A warning follows this number of signatures that differ in more than their leading
# extent.
MAX_RETRACES = 5
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None))


def function(
    func: Callable[..., Any] | None = None,
    *,
    input_signature: Sequence[Any] | None = None,
    reduce_retracing: bool = False,
    jit_compile: bool | str = "auto",
) -> Any:
    """Trace a function of tensors into graphs that are optimized, planned and compiled.

    The Python code runs once per signature: shapes and dtypes of tensors, values of
    everything else. Later calls run the compiled program. The code may read and assign
    Variables. It may create Variables on the first call only, and must keep a reference
    to them. If the first call creates one, the code runs a second time, and may not
    create any then.

    Args:
        func: the function; without it, a decorator is returned.
        input_signature: a nest of specs (anything with `shape` and `dtype`, None for
            unknown extents) that the arguments must fit, in order.
        reduce_retracing: whether Python numbers become 0-d tensors, so that a new value
            does not cause a retrace.
        jit_compile: "auto" and True compile; False runs NumPy kernels only.

    Example:
        >>> import toolkit
        >>> @toolkit.function
        ... def affine(x, y):
        ...     return 2.0 * x + y
        >>> float(affine(toolkit.ops.ones(()), toolkit.ops.ones(())))
        3.0
    """
    options: dict[str, Any] = {
        "input_signature": input_signature,
        "reduce_retracing": reduce_retracing,
        "jit_compile": jit_compile,
    }
    if func is None:
        return lambda f: Function(f, **options)
    return Function(func, **options)


class Function:
    """A Python function with its traces; see `function`."""

    dialect: ClassVar[Dialect | None] = None  # the classes of tensors in its traces
    # Types of arguments that are always tensors and need no conversion.
    fast_types: frozenset[type] = frozenset({Tensor})

    def __init__(
        self,
        func: Callable[..., Any],
        input_signature: Sequence[Any] | None = None,
        reduce_retracing: bool = False,
        jit_compile: bool | str = "auto",
        distribution: DistributionContext | None = None,
    ) -> None:
        if jit_compile not in ("auto", True, False):
            raise unknown_choice("jit_compile", jit_compile, ("auto", True, False))
        self.python_function = func
        self.input_signature = input_signature
        self.reduce_retracing = reduce_retracing
        self.jit_compile = jit_compile
        self.distribution = distribution
        self.trace_count: int = 0
        self._traces: dict[Any, ConcreteFunction] = {}
        # Fast path for calls with tensors as the only arguments.
        self._fast_path: dict[Any, ConcreteFunction] = {}
        self._retraces: set[Any] = set()
        self._trace_lock = threading.RLock()
        update_wrapper(self, func, updated=())

    @property
    def name(self) -> str:
        return getattr(self.python_function, "__name__", "function")

    @property
    def traced_function(self) -> Callable[..., Any]:
        """Return the function to trace; a subclass may rewrite it."""
        return self.python_function

    def __get__(self, instance: Any, owner: Any = None) -> Function:
        """Return a bound method: each instance has separate traces."""
        if instance is None:
            return self
        methods = _methods_of(instance)
        if self not in methods:
            methods[self] = type(self)(
                self.python_function.__get__(instance, owner),
                self.input_signature,
                self.reduce_retracing,
                self.jit_compile,
            )
        return methods[self]

    def __reduce__(self) -> Any:
        """Copies start without traces."""
        return type(self), (
            self.python_function,
            self.input_signature,
            self.reduce_retracing,
            self.jit_compile,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if state.trace is not None:
            return self.traced_function(*args, **kwargs)
        if kwargs or not self.fast_types.issuperset(map(type, args)):
            if any_symbolic(args, kwargs):
                return self.python_function(*args, **kwargs)
            concrete, tensors = self._find_trace(args, kwargs)
            if state.tapes and concrete.has_watched_constant():
                return self.python_function(*args, **kwargs)
            return concrete.call(tensors)
        try:
            signature = tuple([(x._array.shape, x._array.dtype) for x in args])
        except AttributeError:  # a tensor without data
            self._find_trace(args, kwargs)
            raise
        if self.distribution is not None:  # arrays may be shards of batches
            signature = tuple([x.spec for x in args])
        fast_key = state.device, placement(), signature
        cached = self._fast_path.get(fast_key)
        if cached is None:
            cached = self._fast_path[fast_key] = self._find_trace(args, kwargs)[0]
        if state.tapes and cached.has_watched_constant():
            return self.python_function(*args)
        return cached.call(args)

    def _find_trace(
        self, args: Any, kwargs: Any
    ) -> tuple[ConcreteFunction, list[Tensor]]:
        """Return the trace for these arguments, and their tensors."""
        if self.input_signature is not None:
            args, kwargs = self.fit_arguments(args, kwargs), {}
        elif kwargs or len(args) < self._argument_count:
            args, kwargs = self._bind_arguments(args, kwargs)
        leaves = tree.flatten((args, kwargs))
        tensors, static = [], []
        for leaf in leaves:
            if self._is_dynamic(leaf):
                tensor = convert(leaf)
                if tensor._array is None:
                    raise leaked(self.name, tensor)
                tensors.append(tensor)
                static.append(tensor.spec)
            else:
                static.append(_static_key(leaf))
        location = state.device, placement()
        key = tree.signature((args, kwargs)), tuple(static), location
        concrete = self._traces.get(key)
        if concrete is None:
            with self._trace_lock:
                concrete = self._traces.get(key)
                if concrete is None:
                    concrete = self._trace(key, args, kwargs, leaves)
        return concrete, tensors

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        """Return the traced graph and its program for arguments like these."""
        return self._find_trace(args, kwargs)[0]

    def inspect(self, *args: Any, **kwargs: Any) -> inspection.Inspection:
        """Return the report of the compiler for arguments like these."""
        concrete = self.get_concrete_function(*args, **kwargs)
        return inspection.inspect_program(
            self.name, concrete.program, concrete.variables
        )

    @cached_property
    def _signature(self) -> Signature | None:
        """Return the signature of the function, or None if Python has none."""
        try:
            return inspect.signature(self.python_function, follow_wrapped=False)
        except (TypeError, ValueError):
            return None

    @cached_property
    def _argument_count(self) -> int:
        """Return the number of named arguments of the function."""
        parameters = self._signature.parameters if self._signature else {}
        return sum(p.kind not in _VARIADIC for p in parameters.values())

    def _bind_arguments(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Return arguments in one form: by position where that is possible.

        Defaults that are plain values are filled in, so that calls with and without
        them share a trace.
        """
        if self._signature is None:
            return args, kwargs
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:  # the function raises its own error
            return args, kwargs
        for name, parameter in self._signature.parameters.items():
            if name not in bound.arguments and isinstance(
                parameter.default, _PLAIN_TYPES
            ):
                bound.arguments[name] = parameter.default
        ordered_names = [n for n in self._signature.parameters if n in bound.arguments]
        bound.arguments = {name: bound.arguments[name] for name in ordered_names}
        return bound.args, bound.kwargs

    def _is_dynamic(self, leaf: object) -> bool:
        if isinstance(leaf, DATA_TYPES):
            return True
        return self.reduce_retracing and type(leaf) in (int, float)

    def fit_arguments(self, args: Any, kwargs: Any) -> Any:
        """Return the arguments as checked tensors, in the order of input_signature.

        A subclass may convert them first.

        Args:
            args: the positional arguments of a call.
            kwargs: the keyword arguments of a call.

        Raises:
            SignatureError: they do not fit the input_signature.
        """
        if kwargs:
            args = inspect.signature(self.python_function).bind(*args, **kwargs).args
        specs = tree.flatten(self.input_signature)
        tensors = [convert(leaf) for leaf in tree.flatten(args)]
        is_match = len(specs) == len(tensors) and all(
            _matches_spec(x.spec, spec) for x, spec in zip(tensors, specs, strict=True)
        )
        if not is_match:
            expected = ", ".join(f"{s.dtype}{list(s.shape)}" for s in specs)
            received = ", ".join(repr(x.spec) for x in tensors)
            raise SignatureError(
                f"{self.name}: expected arguments ({expected}), as in its "
                f"input_signature; received ({received})"
            )
        return tree.pack_sequence_as(args, tensors)

    def _trace(
        self, key: Any, args: Any, kwargs: Any, leaves: list[Any]
    ) -> ConcreteFunction:
        """Run the Python code on placeholders and compile the trace."""
        self._warn_about_retraces(key)
        scope = nullcontext() if self.dialect is None else self.dialect.activate()
        with scope, restore_on_error(), show_progress(f"compiling {self.name}"):
            concrete = self._compile_trace(key, args, kwargs, leaves)
        self.trace_count += 1
        # Leaves compared by identity must outlive their key.
        concrete.retained_leaves = [
            leaf for leaf in leaves if not self._is_dynamic(leaf)
        ]
        if len(self._traces) >= MAX_PROGRAMS:
            del self._traces[min(self._traces, key=self._last_call)]
            self._fast_path.clear()
        self._traces[key] = concrete
        return concrete

    def _compile_trace(
        self, key: Any, args: Any, kwargs: Any, leaves: list[Any]
    ) -> ConcreteFunction:
        trace, outputs = self._record_trace(
            key, args, kwargs, leaves, not self.trace_count
        )
        if trace.has_created:
            # The second trace must find the created Variables, or each call would
            # create them.
            trace, outputs = self._record_trace(key, args, kwargs, leaves, False)
        generate = self.jit_compile is not False
        return ConcreteFunction(
            self.name, trace, outputs, generate, Function, self.distribution
        )

    def _record_trace(
        self,
        key: Any,
        args: Any,
        kwargs: Any,
        leaves: list[Any],
        creates_variables: bool,
    ) -> tuple[Trace, Any]:
        """Run the Python code in a trace, and return the trace and the outputs."""
        with (
            stage("tracing"),
            Trace(self.name, creates_variables=creates_variables) as trace,
        ):
            placeholders = [
                trace.placeholder(static) if isinstance(static, Spec) else leaf
                for leaf, static in zip(leaves, key[1], strict=True)
            ]
            local_args, local_kwargs = tree.pack_sequence_as(
                (args, kwargs), placeholders
            )
            outputs = self.traced_function(*local_args, **local_kwargs)
            # Outputs that could change later are read inside the trace.
            outputs = tree.map_structure(_read_leaf, outputs)
        return trace, outputs

    def invalidate(self) -> None:
        """Recompile all traces at their next call, for a new distribution of steps."""
        for concrete in self._traces.values():
            concrete.invalidate()

    def _last_call(self, key: Any) -> int:
        return self._traces[key].last_call

    def _warn_about_retraces(self, key: Any) -> None:
        """Warn once when retraces accumulate, with the argument that changed last."""
        structure, leaves, _ = key
        general_key = structure, tuple(map(_drop_leading_extent, leaves))
        if len(self._retraces) == MAX_RETRACES and general_key not in self._retraces:
            last_leaves = max(
                self._traces, key=self._last_call, default=(structure, ())
            )[1]
            changes = [
                f"argument {i} from {old!r} to {new!r}"
                for i, (old, new) in enumerate(zip(last_leaves, leaves, strict=False))
                if old != new
            ]
            warn(
                f"{self.name} is traced for the {MAX_RETRACES + 1}th time, because "
                "its arguments differ in more than their leading extent: "
                f"{'; '.join(changes) or 'their structure changed'}. Pass tensors "
                "instead of Python numbers, or pad to fewer shapes."
            )
        if len(self._retraces) <= MAX_RETRACES:
            self._retraces.add(general_key)


class _Methods(dict[Function, Function]):
    """Traced methods of an instance; a copy of the instance starts with none."""

    owner: Any = None

    def __reduce__(self) -> Any:
        return _Methods, ()


def _methods_of(instance: Any) -> _Methods:
    members = getattr(instance, "__dict__", None)
    if members is None:
        raise ArgumentError(
            f"function: a method of {type(instance).__name__} cannot be traced, "
            "because its instances have only __slots__ and cannot store traces"
        )
    methods = members.get("_traced_methods")
    if methods is None or methods.owner is not instance:
        methods = members["_traced_methods"] = _Methods()
        methods.owner = instance
    return methods


def _read_leaf(leaf: Any) -> Any:
    if isinstance(leaf, Variable):
        return leaf.read()
    return convert(leaf) if isinstance(leaf, np.ndarray) else leaf


def _static_key(leaf: Any) -> Any:
    """Return a key for a static argument:

    Python values by value, all else by identity.
    """
    if leaf is None or isinstance(leaf, (bool, int, float, str, bytes)):
        return type(leaf), repr(leaf)
    return type(leaf), id(leaf)


def _drop_leading_extent(leaf: Any) -> Any:
    return Spec((-1, *leaf.shape[1:]), leaf.dtype) if isinstance(leaf, Spec) else leaf


def _matches_spec(spec: Spec, expected: Any) -> bool:
    if spec.ndim != len(expected.shape) or spec.dtype != dtypes.standardize(
        expected.dtype
    ):
        return False
    extents = zip(spec.shape, expected.shape, strict=True)
    return all(n is None or m == n for m, n in extents)
