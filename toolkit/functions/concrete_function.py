"""A concrete function: one trace with its graph, its program, and its Variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from itertools import count, islice
from operator import attrgetter
from typing import Any, NoReturn

import numpy as np

from toolkit import dtypes, ops, tree
from toolkit.autodiff.tape import GradientTape, fill_gradients
from toolkit.backends.memory import device_memories
from toolkit.buffer_pool import release_spare_memory
from toolkit.compiler import distribution_context
from toolkit.compiler.distribution_context import DistributionContext
from toolkit.compiler.execute import Executable
from toolkit.compiler.mixed import compile_graph
from toolkit.core.convert import convert
from toolkit.core.host_calls import HostCalls, Results
from toolkit.core.locks import Locks, changes, commit_all
from toolkit.core.tensor import Tensor, backend, state
from toolkit.core.trace import Trace, inline
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ShapeError
from toolkit.ir import Graph, Kind, Primitive
from toolkit.ir.extents import Extent
from toolkit.ir.substitution import with_extents
from toolkit.type_aliases import Array

# Types of the arguments that are inputs of the graph; all other arguments are static.
DATA_TYPES = (Tensor, np.ndarray, np.generic)
_calls = count()
# Getters for a Variable; a step reads dozens of Variables, for which `map` is fastest.
_is_shared, _array_of = attrgetter("_shared"), attrgetter("_tensor._array")


class ConcreteFunction:
    """One trace of a function: its graph, its program and the Variables that it uses.

    Variables enter as inputs and leave as outputs. They change last and all at once, so
    that a call that fails or is interrupted changes none.

    Args:
        name: name of the function.
        trace: trace of its Python code.
        outputs: the returned nest.
        generate: whether to generate code.
        function: traces a function, for the gradient.
        distribution: strategy over the ranks of a job; None: this process computes
            everything.
    """

    # Computes the shapes of the results, for values of the free extents.
    _evaluate_shapes: Callable[..., tuple[Any, ...]] | None = None

    def __init__(
        self,
        name: str,
        trace: Trace,
        outputs: Any,
        generate: bool,
        function: Callable[..., Any],
        distribution: DistributionContext | None = None,
    ) -> None:
        self.name = name
        self._function = function
        self.retained_leaves: Any = None
        leaves = tree.flatten(outputs)
        self.tensor_flags: list[bool] = [isinstance(leaf, Tensor) for leaf in leaves]
        self.static_leaves: list[Any | None] = [
            None if isinstance(leaf, Tensor) else _static_leaf(leaf) for leaf in leaves
        ]
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self._pack_leaves = tree.make_packer(tree.structure_of(outputs))
        self.num_outputs: int = len(tensors)
        self.written_variables: list[Variable] = list(trace.writes)
        self._graph: Graph = trace.finish([*tensors, *trace.writes.values()])
        # The values of free extents, until the graph contains them; whether the program
        # has free extents.
        self._extents: tuple[int, ...] = ()
        self._is_free = False
        self.specs: list[Any] = [y.spec for y in self.graph.outputs[: self.num_outputs]]
        self.variables: list[Variable] = list(trace.captures)  # type: ignore[arg-type]
        used_values = [x for node in self.graph.walk() for x in node.inputs]
        used_values += self.graph.outputs
        constants = dict.fromkeys(x for x in used_values if x.constant is not None)
        self.constants: list[Tensor] = list(constants)
        self.locks: Locks = Locks({*self.variables, *self.written_variables})
        first_variable = len(self.graph.inputs) - len(self.variables)
        input_indices = {v: first_variable + i for i, v in enumerate(self.variables)}
        updates = [
            (self.num_outputs + i, input_indices.get(v))
            for i, v in enumerate(self.written_variables)
        ]
        self.frozen = (
            _find_frozen(self.variables, self.written_variables)
            if distribution is None
            else []
        )
        self._frozen_inputs = [input_indices[v] for v in self.frozen]
        self._target = backend(), generate, updates, name
        self._distribution = distribution
        self.executable: Any = self._compile(self.graph)
        release_spare_memory()  # of the first eager calls, and of the compiler
        self.program: Any = self.executable.program
        self._is_stale = False
        self._is_local = distribution is None
        # Whether a call returns before the computation. A later call that overwrites a
        # Variable also runs later, so a call need not hold its buffer.
        self._is_unsharded = isinstance(self.executable, Executable)
        self.is_asynchronous = (
            self._is_unsharded and self.program.backend.is_accelerator
        )
        # The last mark of changes at which all Variables were shared.
        self._shared_mark: object = None
        # Whether it needs whole values of Variables that are split over processes.
        all_variables = (*self.variables, *self.written_variables)
        self.has_placement: bool = distribution is None and any(
            v.placement for v in all_variables
        )
        self._gradient: Callable[..., Any] | None = None
        self.last_call: int = next(_calls)
        # The calls in Python whose results are the last inputs, if there are any.
        self.host_calls: HostCalls | None = None

    def _compile(self, graph: Graph) -> Any:
        if self._distribution is None:
            return compile_graph(graph, *self._target, frozen=self._frozen_inputs)
        variables = self.variables, self.written_variables
        return self._distribution.compile(graph, *self._target, *variables)

    @cached_property
    def _is_plain(self) -> bool:
        """Return whether a call without tapes is one call of generated code."""
        has_variables = self.variables or self.written_variables
        is_synchronous = self._is_unsharded and not self.is_asynchronous
        if has_variables or not is_synchronous:
            return False
        return bool(self.executable.program.is_plain)

    def run_host_calls(
        self, arguments: Sequence[object], call_results: Results
    ) -> list[Tensor] | None:
        """Return the results of the calls in Python for the arguments of a call.

        Args:
            arguments: the arguments of the call.
            call_results: the results of calls that ran for them. New results are added.

        Returns:
            None if a result has another shape than in the trace.
        """
        if self.host_calls is None:
            return []
        return self.host_calls.run(arguments, call_results)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on tensors with the traced shapes and dtypes, in order.

        Python values among the arguments are static, and are ignored.
        """
        leaves = tree.flatten((args, kwargs))
        tensors = [convert(x) for x in leaves if isinstance(x, DATA_TYPES)]
        expected = [x.spec for x in self.graph.inputs]
        expected = expected[: len(expected) - len(self.variables)]
        if [x.spec for x in tensors] != expected:
            raise ShapeError(
                f"{self.name}: this trace expects {expected}; received "
                f"{[x.spec for x in tensors]}"
            )
        if state.trace is None:
            return self.call(tensors)
        results = inline(self.graph, [*tensors, *(v.read() for v in self.variables)])
        for variable, value in zip(
            self.written_variables, results[self.num_outputs :], strict=True
        ):
            variable.assign(value)
        return self._pack(results[: self.num_outputs])

    def at(self, extents: tuple[int, ...]) -> ConcreteFunction:
        """Return this trace for values of its free extents.

        Args:
            extents: values for which the trace is valid.
        """
        if self._evaluate_shapes is None:
            domain = self.program.domain
            shapes = [n for spec in self.specs for n in spec.shape]
            self._evaluate_shapes = domain.evaluator(shapes)
        numbers = iter(self._evaluate_shapes(*extents))
        other = copy(self)
        other.executable = self.executable.at(extents)
        other.specs = [x.with_shape(islice(numbers, x.ndim)) for x in self.specs]
        other._extents, other._is_free = extents, True
        return other

    def specialized(self) -> ConcreteFunction:
        """Return this trace with a program for its extents only, for inspection."""
        if not self._is_free:
            return self
        other = copy(self)
        other._graph, other._extents = self.graph, ()
        other.executable = self._compile(other._graph)
        other.program, other._is_free = other.executable.program, False
        return other

    @property
    def graph(self) -> Graph:
        """Return the traced graph."""
        if self._extents:
            self._graph = with_extents(self._graph, self.program.domain, self._extents)
            self._extents = ()
        return self._graph

    def invalidate(self) -> None:
        """Recompile the graph before the next call, for a new distribution of steps."""
        self._is_stale = True

    def call(self, tensors: Sequence[Tensor]) -> Any:
        """Run on tensors with the traced specs, without a check."""
        self.last_call = next(_calls)
        if self._is_stale:
            self.executable = self._compile(self.graph)
            self.program, self._is_stale = self.executable.program, False
        if self._is_plain and not (
            state.tapes or device_memories or state.overlay is not None
        ):
            arrays = self.executable.call([x._array for x in tensors])
            return self._pack(list(map(Tensor, arrays, self.specs)))
        if device_memories and not self._is_on_device():
            for variable in (*self.variables, *self.written_variables):
                variable.settle()
        is_observed = state.overlay is not None or self.has_placement
        if is_observed or (state.tapes and self._is_watched(tensors)):
            results = self._call_observed(tensors)
        elif self.written_variables:
            results = self._call_with_writes(tensors)
        else:
            inputs = [x._array for x in tensors]
            if self.is_asynchronous:
                with self.locks:
                    arrays = self.executable([*inputs, *map(_array_of, self.variables)])
            else:
                arrays = self._call_without_writes(inputs)
            results = [Tensor(array) for array in arrays]
        return self._pack(results)

    def call_arrays(self, arrays: Sequence[Any]) -> list[Array]:
        """Run a trace that writes no Variable on NumPy arrays with the traced specs.

        For callers that need neither tensors nor tapes: this saves 1/10 of the time of
        a small program.

        Returns:
            New NumPy arrays, one for each tensor that the function returns.
        """
        if device_memories or self.has_placement or self._is_stale:
            results = tree.flatten(self.call([convert(x) for x in arrays]))
            return [np.asarray(y) for y in results]
        self.last_call = next(_calls)
        return self._call_without_writes(arrays)

    def _call_without_writes(self, inputs: Sequence[Any]) -> list[Any]:
        """Run a trace that writes no Variable, in memory of this machine."""
        values = self._read_variables()
        results: list[Any]
        if self._is_unsharded:
            results = self.executable.update(inputs, values)
        else:
            results = self.executable([*inputs, *values])
        return results

    def _is_on_device(self) -> bool:
        """Return whether all Variables are known to be on the compute device."""
        if len(device_memories) > 1:
            return False  # several accelerators have the same array type
        array_types = set(
            map(type, map(_array_of, (*self.variables, *self.written_variables)))
        )
        if backend().is_accelerator:
            return np.ndarray not in array_types
        return array_types <= {np.ndarray}

    def _read_variables(self) -> list[Any]:
        """Return the arrays of the Variables, consistent at one moment."""
        arrays = [v._tensor._array for v in self.variables]
        if changes.mark is self._shared_mark:
            return arrays
        with self.locks:
            mark = changes.mark
            for variable in self.variables:
                variable._shared = True
            self._shared_mark = mark  # only now: another thread may call this too
            return [v._tensor._array for v in self.variables]

    def _mark_shared(self) -> None:
        """Mark the buffers that this trace treats as constant as shared.

        Calls that only read wait for the locks afterwards.
        """
        changes.note()
        for variable in self.frozen:
            variable._shared = True
        if self._is_local and distribution_context.current() is not None:
            changes.note_assignments(self.written_variables)

    def _call_with_writes(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Run with the Variables' spare buffers as destinations, then swap them in."""
        if self.program.in_place:
            return self._call_in_place(tensors)
        with self.locks:
            self._mark_shared()
            arrays = [v._tensor._array for v in self.variables]
            buffers = [v.spare_buffer() for v in self.written_variables]
            inputs = [*(x._array for x in tensors), *arrays]
            outs = [*[None] * self.num_outputs, *buffers]
            results = self.executable(inputs, outs)
            commit_all(self.written_variables, results[self.num_outputs :])
            return [Tensor(array) for array in results[: self.num_outputs]]

    def _call_in_place(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Run and overwrite the Variables' buffers: machine code cannot be interrupted.

        It can fail only before it writes the first buffer.
        """
        with self.locks:
            self._mark_shared()
            if any(map(_is_shared, self.written_variables)):
                for variable in self.written_variables:
                    variable.exclusive_buffer()
            arrays = [
                *map(_array_of, self.variables),
                *map(_array_of, self.written_variables),
            ]
            results = self.executable.update([x._array for x in tensors], arrays)
        return list(map(Tensor, results, self.specs))

    def has_watched_constant(self) -> bool:
        """Return whether a tape watches a constant of the graph."""
        return any(tape.watches(self.constants) for tape in state.tapes)

    def _is_watched(self, tensors: Sequence[Tensor]) -> bool:
        return any(
            tape.watches(tensors)
            or any(tape.wants(variable) for variable in self.variables)
            for tape in state.tapes
        )

    def _call_observed(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Run the call as one node for the tapes, and apply the overlays."""
        inputs = (*tensors, *(v.read() for v in self.variables))
        arrays = self.executable([x._array for x in inputs])
        results = [Tensor(array) for array in arrays]
        primitive = Primitive(self.name, Kind.CONTROL, _reject_spec, vjp=self._vjp)
        for tape in state.tapes:
            tape.record(primitive, inputs, {}, tuple(results))
        for variable, value in zip(
            self.written_variables, results[self.num_outputs :], strict=True
        ):
            variable.assign(value)
        return results[: self.num_outputs]

    def _vjp(self, g: Any, y: Any, *inputs: Tensor) -> list[Any]:
        """Run the graph again under a tape, in a separate function."""
        if self._gradient is None:
            self._gradient = self._function(self._differentiate)
        return list(self._gradient(list(inputs), list(fill_gradients(g, y))))

    def _differentiate(self, inputs: list[Tensor], gs: list[Any]) -> list[Any]:
        # New identities: one tensor may be several inputs.
        inputs = [ops.reshape(x, x.shape) for x in inputs]
        with GradientTape() as tape:
            tape.watch([x for x in inputs if dtypes.is_float(x.dtype)])
            outputs = inline(self.graph, inputs)
        return tape.gradient(outputs, inputs, gs)

    def _pack(self, results: list[Tensor]) -> Any:
        if len(results) == len(self.static_leaves):
            return self._pack_leaves(results)
        remaining = iter(results)
        leaves = [
            next(remaining) if is_tensor else leaf
            for is_tensor, leaf in zip(
                self.tensor_flags, self.static_leaves, strict=True
            )
        ]
        return self._pack_leaves(leaves)


def _find_frozen(
    variables: list[Variable], written_variables: list[Variable]
) -> list[Variable]:
    """Return the variables whose arrays usually stay the same between calls.

    The result is empty if the trace writes weights: then all weights are likely to
    change between calls.
    """
    all_variables = (*variables, *written_variables)
    if any(v.trainable for v in written_variables) or any(
        v.placement for v in all_variables
    ):
        return []
    changed_variables = set(written_variables)
    return [v for v in variables if v not in changed_variables]


def _reject_spec(*specs: object, **attrs: object) -> NoReturn:
    raise ArgumentError("a call of a function is not a primitive of a graph")


def _static_leaf(leaf: object) -> object:
    """Return an output that is no tensor; an extent is fixed at its value."""
    return leaf.domain.fix(leaf) if type(leaf) is Extent else leaf
