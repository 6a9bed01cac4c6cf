"""`function`: a Python function traced into graphs, one per input signature."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial, update_wrapper
from itertools import chain
from typing import Any, ClassVar, TypeAlias

import numpy as np

from toolkit import dtypes, inspection, tree
from toolkit.compiler.distribution_context import DistributionContext
from toolkit.compiler.shared_steps import shared_step
from toolkit.console.frames import warn_once
from toolkit.console.progress import show_progress, stage
from toolkit.core.convert import convert, is_strings
from toolkit.core.dialects import Dialect
from toolkit.core.host_calls import (
    HostCalls,
    HostStrings,
    Results,
    host_call_error,
    prepare,
    prepared_results,
    specs_of,
)
from toolkit.core.strings import StringTensor
from toolkit.core.tensor import Tensor, state
from toolkit.core.trace import Trace
from toolkit.core.variable import Variable
from toolkit.errors import (
    HostCallError,
    leaked,
    unknown_choice,
)
from toolkit.functions.concrete_function import DATA_TYPES, ConcreteFunction
from toolkit.functions.free_extents import FreeTraces, permits_free_extents
from toolkit.functions.garbage_collection import paused_collection
from toolkit.functions.methods import methods_of
from toolkit.functions.retraces import MAX_RETRACES, Key, Retraces
from toolkit.functions.signatures import (
    Parameters,
    as_argument,
    check_match,
    check_signature,
    join_lists,
    static_key,
)
from toolkit.ir import Spec
from toolkit.ops.symbolic import any_symbolic
from toolkit.settings import placement
from toolkit.thread_state import restore_on_error

# Limit of the programs per function; the least recently used one is evicted first.
MAX_PROGRAMS = 64
_TEXT_TYPES = (np.ndarray, StringTensor)

# The key, the arguments, their leaves, and the leaves with data.
Inputs: TypeAlias = tuple[Key, object, object, list[object], list[object]]
# A trace, the structure of its outputs, and its calls in Python.
Recorded: TypeAlias = tuple[Trace, object, HostCalls]


class NewResultsError(Exception):
    """Error raised if a call should run as Python code, because its shapes are rare."""


class Function:
    """A Python function with its traces; see `toolkit.function`."""

    dialect: ClassVar[Dialect | None] = None  # the classes of tensors in its traces
    # Types of arguments that are always tensors and need no conversion.
    fast_types: frozenset[type] = frozenset({Tensor})
    # Whether the values of string tensors are constants if the code reads them.
    fixes_strings: ClassVar[bool] = True
    # Whether to compile at the first call with a new shape of results of host calls.
    compiles_new_results: bool = True
    # The fix, for errors about values that do not exist in a trace.
    fix_of_missing_values: ClassVar[str] = "call it outside of `toolkit.function`"

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
        check_signature(input_signature)
        self.python_function = func
        self.input_signature = input_signature
        self.reduce_retracing = reduce_retracing
        self.jit_compile = jit_compile
        self.distribution = distribution
        self.trace_count: int = 0
        self._traces: dict[Any, ConcreteFunction] = {}
        # The traces with host calls, by the key of the arguments. The key of a trace
        # also contains the specs of the results.
        self._host_calls: dict[Any, tuple[ConcreteFunction, ...]] = {}
        self._fixes_strings = False
        self._refused: set[Any] = set()  # shapes that were new in one call
        # Fast path for calls with tensors as the only arguments.
        self._fast_path: dict[Any, ConcreteFunction] = {}
        self._parameters = Parameters(func)
        self.free_traces = FreeTraces(self.name)
        self._retraces = Retraces(self.name)
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
        methods = methods_of(instance)
        if self not in methods:
            bound = self.python_function.__get__(instance, owner)
            methods[self] = type(self)(bound, *self._options)
        return methods[self]

    def __reduce__(self) -> Any:
        """Copies start without traces."""
        return type(self), (self.python_function, *self._options)

    @property
    def _options(self) -> tuple[Sequence[object] | None, bool, bool | str]:
        return self.input_signature, self.reduce_retracing, self.jit_compile

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if state.trace is not None:
            return self.traced_function(*args, **kwargs)
        if kwargs or not self.fast_types.issuperset(map(type, args)):
            if any_symbolic(args, kwargs):
                return self.python_function(*args, **kwargs)
            concrete, tensors = self._find_trace(args, kwargs)
            if state.tapes and concrete.has_watched_constant():
                return self._call_python(args, kwargs)
            return concrete.call(tensors)
        try:
            signature = tuple([(x._array.shape, x._dtype) for x in args])
        except AttributeError:  # a tensor without data
            self._find_trace(args, kwargs)
            raise
        if self.distribution is not None:  # arrays may be shards of batches
            signature = tuple([x.spec for x in args])
        fast_key = state.device, placement(), signature
        inputs: Sequence[Tensor] = args
        cached = self._fast_path.get(fast_key)
        if cached is None:
            cached, inputs = self._find_trace(args, kwargs)
            if cached.host_calls is None:
                self._fast_path[fast_key] = cached
        if state.tapes and cached.has_watched_constant():
            return self._call_python(args, kwargs)
        return cached.call(inputs)

    def _call_python(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        """Run the Python code, after a warning, for tapes that watch a constant."""
        warn_once(
            self,
            f"{self.name}: the call runs as Python code, because a tape watches a "
            "tensor that the compiled function contains as a constant; pass the "
            "tensor as an argument",
        )
        return self.python_function(*args, **kwargs)

    def _find_trace(
        self, args: Any, kwargs: Any
    ) -> tuple[ConcreteFunction, list[Tensor]]:
        """Return the trace for these arguments, and its tensors."""
        if self.input_signature is not None:
            args, kwargs = self.fit_arguments(args, kwargs), {}
        elif kwargs or len(args) < self._parameters.count:
            args, kwargs = self._parameters.bind(args, kwargs)
        leaves = tree.flatten((args, kwargs))
        arguments, static = self._split_leaves(leaves)
        location = state.device, placement()
        key = tree.signature((args, kwargs)), static, location
        call_results: Results = {}
        concrete, results = self._cached_trace(key, arguments, call_results)
        if concrete is None:
            with self._trace_lock:
                concrete, results = self._cached_trace(key, arguments, call_results)
                if concrete is None:
                    self._check_results(key, specs_of(chain(*call_results.values())))
                    try:
                        concrete, results = self._trace(
                            key, args, kwargs, leaves, arguments
                        )
                    except HostCallError:
                        if not self._can_fix_strings(arguments):
                            raise
                        return self._find_trace(args, kwargs)
        tensors = [x for x in arguments if isinstance(x, Tensor)]
        return concrete, tensors + results

    def _check_results(self, key: Key, results: tuple[Spec, ...]) -> None:
        """Raise if the results of host calls have too many shapes to compile each.

        Raises:
            NewResultsError: it is the first call with this shape, or there are
                MAX_PROGRAMS programs.
        """
        if self.compiles_new_results or not results:
            return
        is_rare = (key, results) not in self._refused
        # A compilation that evicts another program is not worth its time.
        is_full = len(self._traces) >= MAX_PROGRAMS
        if sum(other[:3] == key for other in self._traces) >= MAX_RETRACES:
            self._refused.add((key, results))
            if is_rare or is_full:
                raise NewResultsError

    def _split_leaves(self, leaves: list[Any]) -> tuple[list[object], Key]:
        """Return the leaves with data, as tensors or strings, and all keys."""
        arguments: list[object] = []
        static: list[object] = []
        for leaf in leaves:
            kind = type(leaf)
            is_number = kind is Tensor or (
                kind is np.ndarray and leaf.dtype.kind not in "OSU"
            )
            is_text = not is_number and isinstance(leaf, _TEXT_TYPES)
            if is_text and self._is_deferred(leaf):
                arguments.append(leaf)
                static.append(Spec(leaf.shape, dtypes.STRING))
            elif is_number or self._is_dynamic(leaf):
                tensor = convert(leaf)
                if tensor._array is None:
                    raise leaked(self.name, tensor)
                arguments.append(tensor)
                static.append(tensor.spec)
            else:
                static.append(static_key(leaf))
        return arguments, tuple(static)

    @property
    def host_seconds(self) -> float:
        """Return the seconds of the host calls of the slowest signature."""
        calls = [x.host_calls for x in chain(*self._host_calls.values())]
        return max((x.seconds for x in calls if x is not None), default=0.0)

    def prepare(self, *args: object) -> None:
        """Run the host calls for PreparedStrings now, if they are known.

        A thread can prepare the arguments of a later call.
        """
        arguments, static = self._split_leaves(tree.flatten((args, {})))
        key = tree.signature((args, {})), static, (state.device, placement())
        if key in self._host_calls:
            call_results: Results = {}
            self._cached_trace(key, arguments, call_results)
            prepare(arguments, call_results)

    def _cached_trace(
        self, key: Key, arguments: list[object], call_results: Results
    ) -> tuple[ConcreteFunction | None, list[Tensor]]:
        """Return the trace for these arguments, and the results of its host calls.

        Traces share their first calls, so each call runs once.
        """
        traces = self._host_calls and self._host_calls.get(key)
        if not traces:
            return self._traces.get((*key, ())), []
        call_results.update(prepared_results(arguments))
        for concrete in traces:
            results = concrete.run_host_calls(arguments, call_results)
            if results is not None:
                return concrete, results
        return self._traces.get((*key, ())), []

    def _is_deferred(self, leaf: object) -> bool:
        """Return whether an argument contains strings that host calls receive."""
        if self.dialect is not None:
            return False
        value: Any = leaf
        if self.distribution is not None or not is_strings(value):
            return False
        return not (self._fixes_strings and isinstance(leaf, StringTensor))

    def _can_fix_strings(self, arguments: list[object]) -> bool:
        """Treat string tensors as constants from now on; return whether there are any.

        Their values are then known in a trace, and other values cause a retrace.
        """
        strings = [x for x in arguments if not isinstance(x, Tensor)]
        self._fixes_strings = self.fixes_strings and any(
            isinstance(x, StringTensor) for x in strings
        )
        return self._fixes_strings

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        """Return the traced graph and its program for arguments like these.

        Raises:
            HostCallError: calls in Python are necessary before the program.
        """
        concrete = self._find_trace(args, kwargs)[0]
        if concrete.host_calls is not None:
            raise host_call_error(concrete.host_calls.functions[0])
        return concrete.specialized()

    def inspect(self, *args: Any, **kwargs: Any) -> inspection.Inspection:
        """Return the report of the compiler for arguments like these."""
        concrete = self._find_trace(args, kwargs)[0].specialized()
        return inspection.inspect_program(
            self.name, concrete.program, concrete.variables
        )

    def _is_dynamic(self, leaf: object) -> bool:
        if isinstance(leaf, DATA_TYPES):
            is_text = self.dialect is None and isinstance(leaf, (str, bytes))
            return not is_text  # np.str_ is static, as a str
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
        args = join_lists(args, self.input_signature)
        tensors = [as_argument(leaf) for leaf in tree.flatten(args)]
        check_match(self.name, tensors, specs)
        return tree.pack_sequence_as(args, tensors)

    def _trace(
        self,
        key: Key,
        args: Any,
        kwargs: Any,
        leaves: list[object],
        arguments: list[object],
    ) -> tuple[ConcreteFunction, list[Tensor]]:
        """Run the Python code on placeholders and compile the trace."""
        scope = nullcontext() if self.dialect is None else self.dialect.activate()
        inputs = args, kwargs, leaves, arguments

        def compile_trace(
            key: Key, record: Callable[..., Recorded] = self._record
        ) -> tuple[ConcreteFunction, HostCalls]:
            with (
                scope,
                restore_on_error(),
                show_progress(f"compiling {self.name}"),
                paused_collection(),
            ):
                trace, outputs, calls = record((key, *inputs))
                return self._compile(trace, outputs), calls

        def compile_free_trace(key: Key) -> ConcreteFunction:
            concrete, calls = compile_trace(key, FreeTraces.guard(self._record))
            self.trace_count += 1
            if calls.functions:
                raise HostCallError("the results of calls in Python have any shape")
            self._retain(concrete, leaves)
            return concrete

        concrete, calls = None, None
        if permits_free_extents(self.distribution, self.dialect, self.jit_compile):
            run = partial(self._record, (key, *inputs))
            concrete = self.free_traces.find(key, compile_free_trace, run)
        if concrete is None:
            concrete, calls = compile_trace(key)
        results: list[Tensor] = []
        if calls is None:
            self._add((*key, ()), concrete, leaves)
            return concrete, results
        if calls.functions:
            results = calls.finish()
            traces = self._host_calls.get(key, ())
            calls.share(x.host_calls for x in traces if x.host_calls is not None)
            concrete.host_calls = calls
            self._host_calls[key] = *traces, concrete
        key = (*key, calls.specs)
        self._retraces.add(key, max(self._traces, key=self._last_call, default=None))
        self.trace_count += 1
        self._add(key, concrete, leaves)
        return concrete, results

    def _add(self, key: Key, concrete: ConcreteFunction, leaves: list[object]) -> None:
        """Store a trace; evict the least recently used one if there are too many."""
        self._retain(concrete, leaves)
        if len(self._traces) >= MAX_PROGRAMS:
            self._evict(min(self._traces, key=self._last_call))
            self._fast_path.clear()
        if key in self._traces:  # its calls had other results
            self._evict(key)
        self._traces[key] = concrete

    def _retain(self, concrete: ConcreteFunction, leaves: list[object]) -> None:
        """Store the leaves that are compared by identity: they must outlive the key."""
        concrete.retained_leaves = [
            leaf
            for leaf in leaves
            if not (self._is_deferred(leaf) or self._is_dynamic(leaf))
        ]

    def _evict(self, key: Key) -> None:
        concrete = self._traces.pop(key)
        traces = self._host_calls.pop(key[:3], ())
        remaining = tuple([x for x in traces if x is not concrete])
        if remaining:
            self._host_calls[key[:3]] = remaining

    def _record(self, inputs: Inputs) -> Recorded:
        """Run the Python code in a trace; see `_record_trace`."""
        trace, outputs, calls = self._record_trace(*inputs, not self.trace_count)
        if trace.has_created:
            # The second trace must find the created Variables, or each call would
            # create them.
            trace, outputs, calls = self._record_trace(*inputs, False)
        return trace, outputs, calls

    def _compile(self, trace: Trace, outputs: object) -> ConcreteFunction:
        generate = self.jit_compile is not False
        return ConcreteFunction(
            self.name, trace, outputs, generate, Function, self.distribution
        )

    def _record_trace(
        self,
        key: Key,
        args: Any,
        kwargs: Any,
        leaves: list[object],
        arguments: list[object],
        creates_variables: bool,
    ) -> Recorded:
        """Run the Python code in a trace; return the trace, outputs and host calls."""
        is_shared = self.distribution is not None
        with (
            shared_step() if is_shared else nullcontext(),
            stage("tracing"),
            Trace(self.name, creates_variables=creates_variables) as trace,
        ):
            trace.fix = self.fix_of_missing_values
            calls = HostCalls(trace)
            if self.dialect is None and self.distribution is None:
                trace.host_calls = calls
            values = iter(arguments)
            placeholders = [
                calls.argument(next(values), static)
                if isinstance(static, Spec)
                else leaf
                for leaf, static in zip(leaves, key[1], strict=True)
            ]
            local_args, local_kwargs = tree.pack_sequence_as(
                (args, kwargs), placeholders
            )
            outputs = self.traced_function(*local_args, **local_kwargs)
            # Outputs that could change later are read inside the trace.
            outputs = tree.map_structure(_read_leaf, outputs)
        trace.host_calls = None
        return trace, outputs, calls

    def invalidate(self) -> None:
        """Recompile all traces at their next call, for a new distribution of steps."""
        for concrete in self._traces.values():
            concrete.invalidate()

    def _last_call(self, key: Any) -> int:
        return self._traces[key].last_call


def _read_leaf(leaf: Any) -> Any:
    if isinstance(leaf, HostStrings):
        raise HostCallError(
            "a compiled function cannot return strings; return their indices"
        )
    if isinstance(leaf, Variable):
        return leaf.read()
    return convert(leaf) if isinstance(leaf, np.ndarray) else leaf
