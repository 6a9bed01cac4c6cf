"""GradientTape: records applications of primitives and differentiates them in reverse.

A vjp is written in public ops, so outer tapes record the reverse pass, and traces
contain it. This module alone reduces gradients of broadcast inputs to the input shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import Any

from toolkit import dtypes, ops, tree
from toolkit.compiler.shared_steps import watch_gradients
from toolkit.console.frames import warn
from toolkit.core.convert import convert
from toolkit.core.naming import scopes
from toolkit.core.recorded_calls import RecordedCall, RecordedPlan
from toolkit.core.slices import add_slices
from toolkit.core.tensor import Tensor, state
from toolkit.core.variable import Variable, unwrap_variable
from toolkit.errors import GradientError, unknown_choice
from toolkit.ir import Kind, Node, Primitive
from toolkit.ops.shape import sum_to

# The compiled reverse pass, which `toolkit.functions` adds: it depends on this module.
# It receives the tape, the targets, the sources, and weights of the targets or None.
reverse_passes: list[Callable[..., list[Any] | None]] = []
# Name scope of nodes that a reverse pass traces, inside the scope of the layer.
_GRADIENT = "gradient"
_LEAVES = frozenset({Tensor, Variable})


class GradientTape:
    """Recorder of operations for gradients.

    Args:
        persistent: whether `gradient` may be called more than once.
        watch_accessed_variables: whether trainable Variables are watched when read.

    Example:
        >>> import toolkit
        >>> x = toolkit.Variable(3.0)
        >>> with toolkit.GradientTape() as tape:
        ...     y = x * x
        >>> float(tape.gradient(y, x))
        6.0
    """

    # Whether it needs no more than the operations, in order.
    accepts_replays = True

    def __init__(
        self, persistent: bool = False, watch_accessed_variables: bool = True
    ) -> None:
        self.persistent: bool = persistent
        self.watch_accessed_variables = watch_accessed_variables
        self._used = False
        self._clear()

    def _clear(self) -> None:
        # Single operations, and calls of replays.
        self._records: list[Node | RecordedCall] = []
        self._watched: set[Tensor] = set()
        self._reads: dict[Variable, list[Tensor]] = {}
        self._variables: dict[Variable, None] = {}  # in the order of the reads

    def __enter__(self) -> GradientTape:
        if self in state.tapes:
            raise GradientError("GradientTape: the tape already records")
        state.tapes = (*state.tapes, self)
        return self

    def __exit__(self, *exception: object) -> None:
        state.tapes = () if state.tapes == (self,) else self._other_tapes()

    def _other_tapes(self) -> tuple[Any, ...]:
        return tuple([tape for tape in state.tapes if tape is not self])

    def watch(self, tensor: Any) -> None:
        """Record operations on `tensor`, or on each tensor in a nest.

        Args:
            tensor: a tensor, or a nest of tensors.
        """
        for leaf in _flatten(tensor):
            if type(leaf) is not Tensor:
                leaf = unwrap_variable(leaf)
            if isinstance(leaf, Variable):
                self._variables[leaf] = None
                leaf.read()
            elif not isinstance(leaf, Tensor):
                raise GradientError(f"watch: expected a tensor; received {leaf!r}")
            elif leaf._dtype not in dtypes.INEXACT:
                raise GradientError(
                    "watch: only floating tensors have gradients; "
                    f"received {leaf.dtype}"
                )
            else:
                self._watched.add(leaf)

    def watched_variables(self) -> tuple[Variable, ...]:
        """Return the watched Variables, in the order of their first reads."""
        return tuple(self._variables)

    def watch_variable(self, variable: Variable, tensor: Tensor) -> None:
        """Record that a Variable was read as `tensor`.

        Args:
            variable: a Variable.
            tensor: its value.
        """
        if not self.wants(variable):
            return
        self._variables[variable] = None
        reads = self._reads.setdefault(variable, [])
        if tensor not in self._watched:
            self._watched.add(tensor)
            reads.append(tensor)
        elif not reads:
            reads.append(tensor)
        # Otherwise the tensor was read before, or it is a scope's replacement that was
        # computed here. The gradient then flows to its operands, and would count twice.

    def watches(self, inputs: Any) -> bool:
        """Return whether any of `inputs` is watched or depends on a watched value.

        Args:
            inputs: tensors.
        """
        return any(x in self._watched for x in inputs)

    def wants(self, variable: Variable) -> bool:
        """Return whether a read of `variable` is watched.

        Args:
            variable: a Variable.
        """
        is_watched = variable in self._variables
        is_watchable = self.watch_accessed_variables and variable.trainable
        return (is_watched or is_watchable) and variable.dtype in dtypes.INEXACT

    def record(self, op: Primitive, inputs: Any, attrs: Any, outputs: Any) -> None:
        """Record an application; `bind` calls this.

        Args:
            op: the primitive.
            inputs: its operands.
            attrs: its attributes.
            outputs: its results.
        """
        watched = self._watched
        for x in inputs:
            if x in watched:
                break
        else:
            return
        if op.vjp is None and op.body is None:
            return
        outputs = outputs if type(outputs) is tuple else (outputs,)
        self._records.append(Node(op, inputs, attrs, outputs))
        for y in outputs:
            if y.dtype in dtypes.INEXACT:
                watched.add(y)

    def record_call(self, plan: RecordedPlan, values: list[Tensor | None]) -> None:
        """Record the operations of a replay.

        Args:
            plan: the operations.
            values: all values of the call; None in place of a value that is not stored.
        """
        if type(self).record is not GradientTape.record:
            results = plan.complete(values)
            for step in plan.steps():
                operands = tuple([results[i] for i in step.inputs])
                outputs = tuple([results[i] for i in step.outputs])
                self.record(step.op, operands, step.attrs, outputs)
            return
        watched = self._watched
        mask = tuple([x in watched for x in values[: plan.num_leaves]])
        if True not in mask:
            return
        recorded, indices = plan.effects(mask)
        if recorded:
            self._records.append(RecordedCall(plan, mask, values))
            stored = [values[i] for i in indices]
            watched.update([y for y in stored if y is not None])

    @property
    def _nodes(self) -> list[Node]:
        """Return the recorded operations."""
        nodes: list[Node] = []
        for entry in self._records:
            if isinstance(entry, RecordedCall):
                self._watched.update(entry.watched_results())
                nodes += entry.nodes()
            else:
                nodes.append(entry)
        return nodes

    def stop_recording(self) -> AbstractContextManager[None]:
        """Return a context in which nothing is recorded."""
        return state.override(tapes=self._other_tapes())

    def reset(self) -> None:
        """Clear the records."""
        self._used = False
        self._clear()

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: str = "none",
    ) -> Any:
        """Return the gradient of the sum of `target` with respect to each source.

        Args:
            target: a tensor or a nest of tensors.
            sources: a nest of Variables or watched tensors.
            output_gradients: weights of the targets' elements; ones if None.
            unconnected_gradients: "none" or "zero": the gradient of a source on which
                the target does not depend.

        Returns:
            A structure like `sources`.

        Raises:
            GradientError: on the second call, unless the tape is persistent.
        """
        if unconnected_gradients not in ("none", "zero"):
            raise unknown_choice(
                "unconnected_gradients", unconnected_gradients, ("none", "zero")
            )
        if self._used and not self.persistent:
            raise GradientError(
                "GradientTape.gradient: a tape without persistent=True can be used "
                "only once; create it with persistent=True"
            )
        self._used = True
        if state.tapes and not self.persistent:
            state.tapes = self._other_tapes()
        leaves = _flatten_sources(sources)
        watch_gradients(leaves)
        targets, weights, results = _flatten(target), None, None
        if output_gradients is None:  # otherwise it is a step of a larger gradient
            _warn_of_integers(targets, leaves)
        elif type(target) is Tensor or not tree.is_nested(target):
            weights = [output_gradients]
        else:
            weights = _flatten(output_gradients)
        for reverse in reverse_passes:
            if results is None:
                results = reverse(self, targets, leaves, weights)
        if results is None:
            results = self.run_reverse(targets, leaves, weights)
        if unconnected_gradients == "zero":
            results = [
                ops.zeros(leaf.shape, leaf.dtype) if g is None else g
                for g, leaf in zip(results, leaves, strict=True)
            ]
        if not self.persistent:
            self._clear()
        if type(sources) is list and len(sources) == len(results):
            return results
        return tree.pack_sequence_as(sources, results)

    def run_reverse(
        self,
        targets: Sequence[object],
        sources: list[object],
        weights: Sequence[object] | None,
    ) -> list[Tensor | None]:
        """Return the gradients of sources by a pass in Python.

        Args:
            targets: tensors.
            sources: Variables and tensors.
            weights: weights of the elements of each target; ones if None.
        """
        gradients = self._start(targets, weights)
        reached = self._backward(gradients, sources)
        return [self._result(reached, source) for source in sources]

    def _start(
        self, targets: Sequence[Any], weights: Sequence[object] | None
    ) -> dict[Tensor, Any]:
        gradients: dict[Tensor, Any] = {}
        if weights is None:
            weights = [None] * len(targets)
        if len(weights) != len(targets):
            raise GradientError(
                f"GradientTape.gradient: expected {len(targets)} output gradients, one "
                f"for each target; received {len(weights)}"
            )
        for y, weight in zip(map(unwrap_variable, targets), weights, strict=True):
            if isinstance(y, Variable):
                variable, y = y, y.read()
                self.watch_variable(variable, y)
            if not isinstance(y, Tensor):
                raise GradientError(
                    f"GradientTape.gradient: expected a tensor; received {y!r}"
                )
            if not dtypes.is_float(y.dtype):
                continue
            g = ops.ones_like(y) if weight is None else convert(weight, y.dtype)
            if g.shape != y.shape:
                g = ops.broadcast_to(g, y.shape)
            _accumulate(gradients, y, g)
        return gradients

    def _backward(
        self, gradients: dict[Tensor, Any], sources: list[Any]
    ) -> dict[Tensor, Any]:
        """Propagate gradients in reverse; return the gradient of each value."""
        keep = set(self._tensors_of(sources))
        reached: dict[Tensor, Any] = {}
        for node in reversed(self._nodes):
            gs = [gradients.get(y) for y in node.outputs]
            if all(g is None for g in gs):
                continue
            for y in node.outputs:
                if y in keep:
                    reached[y] = gradients.get(y)
                gradients.pop(y, None)
            for x, g in zip(node.inputs, self._pull_back(node, gs), strict=True):
                if g is not None and x in self._watched:
                    _accumulate(gradients, x, g)
        return {**gradients, **{k: g for k, g in reached.items() if g is not None}}

    def _pull_back(self, node: Node, gs: list[Any]) -> list[Any]:
        """Return the gradients of a node's inputs from the gradients of its outputs."""
        needs_gradient = [x in self._watched for x in node.inputs]
        outer = scopes.names
        origin = node.outputs[0].origin
        scopes.names = (*origin, *[_GRADIENT][: origin[-1:] != (_GRADIENT,)])
        try:
            return pull_back(node, gs, needs_gradient)
        finally:
            scopes.names = outer

    def _tensors_of(self, sources: list[Any]) -> Iterator[Tensor]:
        for source in sources:
            if isinstance(source, Variable):
                yield from self._reads.get(source, ())
            else:
                yield source

    def _result(self, reached: dict[Tensor, Any], source: Any) -> Any:
        gradients = map(reached.get, self._tensors_of([source]))
        return add_all([g for g in gradients if g is not None])

    def jacobian(
        self,
        target: Any,
        sources: Any,
        unconnected_gradients: str = "none",
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Return the derivatives of all elements of `target` by all source elements.

        One reverse pass per element of the target. `parallel_iterations` and
        `experimental_use_pfor`, which control execution in TensorFlow, have no effect.

        Args:
            target: a tensor.
            sources: a Variable or tensor, or a nest of them.
            unconnected_gradients: "none" or "zero": the derivative by a source without
                effect.
            parallel_iterations, experimental_use_pfor: have no effect.

        Returns:
            A structure like `sources` of tensors of shape target.shape + source.shape.
        """
        if self._used and not self.persistent:
            raise GradientError("GradientTape.jacobian: the tape was already used")
        if not isinstance(target, Tensor) or not target.size:
            raise GradientError(
                "GradientTape.jacobian: expected a nonempty tensor as target; "
                f"received {target!r}"
            )
        if not self.persistent:
            state.tapes = self._other_tapes()
        leaves = tree.flatten(sources)
        directions = ops.eye(target.size, dtype=target.dtype)
        self.persistent, persistent = True, self.persistent
        try:
            rows = [
                self.gradient(
                    target,
                    leaves,
                    ops.reshape(direction, target.shape),
                    unconnected_gradients,
                )
                for direction in directions
            ]
        finally:
            self.persistent = persistent
        if not persistent:
            self._clear()
        columns = [
            None
            if column[0] is None
            else ops.reshape(ops.stack(column), (*target.shape, *column[0].shape))
            for column in zip(*rows, strict=True)
        ]
        return tree.pack_sequence_as(sources, columns)


def pull_back(node: Node, gs: list[Any], needs_gradient: list[bool]) -> list[Any]:
    """Apply a node's vjp; return None where no gradient flows or none is wanted."""
    op = node.op
    if op.kind is Kind.CONTROL:  # it can skip outputs without a gradient
        g, y = tuple(gs), node.outputs
    elif len(node.outputs) == 1:
        g, y = gs[0], node.outputs[0]
    else:
        g, y = fill_gradients(gs, node.outputs), node.outputs
    if op.vjp is None:
        gradients = _body_vjp(node, g, needs_gradient)
    elif isinstance(op.vjp, tuple):
        gradients = [
            rule(g, y, *node.inputs, **node.attrs) if want else None
            for rule, want in zip(op.vjp, needs_gradient, strict=True)
        ]
    else:
        gradients = op.vjp(g, y, *node.inputs, **node.attrs)
        gradients = (
            list(gradients) if isinstance(gradients, (tuple, list)) else [gradients]
        )
    if op.kind is Kind.ELEMENTWISE:
        pairs = zip(gradients, node.inputs, strict=True)
        return [d if d is None else sum_to(d, x.shape) for d, x in pairs]
    return gradients


def fill_gradients(gs: Any, outputs: Any) -> tuple[Any, ...]:
    """Return the gradients of outputs, with zeros for None."""
    pairs = zip(gs, outputs, strict=True)
    return tuple(ops.zeros_like(y) if g is None else g for g, y in pairs)


def _body_vjp(node: Node, g: Any, needs_gradient: list[bool]) -> list[Any]:
    """Differentiate the body of a composite without a vjp."""
    with GradientTape() as tape:
        inputs = [alias(x) for x in node.inputs]
        tape.watch([x for x, want in zip(inputs, needs_gradient, strict=True) if want])
        outputs = node.op.body(*inputs, **node.attrs)
    floats = [(y, d) for y, d in zip(as_tuple(outputs), as_tuple(g), strict=True)]
    return tape.gradient([y for y, _ in floats], inputs, [d for _, d in floats])


def alias(x: Tensor) -> Tensor:
    """Return the same value with a new identity."""
    return ops.reshape(x, x.shape)


def _flatten(nest: object) -> list[Any]:
    """Return the leaves of a nest, which is often a tensor or a list of tensors."""
    if type(nest) is Tensor:
        return [nest]
    if type(nest) is list and _LEAVES.issuperset(map(type, nest)):
        return nest
    leaves: list[Any] = tree.flatten(nest)
    return leaves


def _flatten_sources(nest: object) -> list[Any]:
    """Return the tensors and Variables in a nest."""
    leaves = _flatten(nest)
    if leaves is not nest and type(nest) is not Tensor:
        leaves = list(map(unwrap_variable, leaves))
        for leaf in leaves:
            if not isinstance(leaf, (Tensor, Variable)):
                raise GradientError(
                    "GradientTape.gradient: expected tensors or Variables as sources; "
                    f"received {leaf!r}"
                )
    return leaves


def _warn_of_integers(targets: list[object], sources: list[object]) -> None:
    """Warn if all targets or all sources are integers, which have no gradients."""
    if _has_float(targets) and _has_float(sources):
        return
    for label, tensors in (("target", targets), ("source", sources)):
        dtypes_of_tensors = [getattr(x, "dtype", None) for x in tensors]
        if dtypes_of_tensors and all(
            map(dtypes.is_integer, filter(None, dtypes_of_tensors))
        ):
            warn(
                "GradientTape.gradient: only floating tensors have gradients; received "
                f"a {label} of {dtypes_of_tensors[0]}, which gives None"
            )
            return


def _has_float(tensors: list[Any]) -> bool:
    """Return whether the first tensor has a gradient."""
    return bool(tensors) and getattr(tensors[0], "dtype", None) in dtypes.INEXACT


def add_all(gradients: list[Any]) -> Any:
    """Return the sum of gradients in their order, or None."""
    return reduce(add_slices, gradients) if gradients else None


def as_tuple(x: Any) -> tuple[Any, ...]:
    """Return a tuple unchanged; any other object as a tuple of one."""
    return x if isinstance(x, tuple) else (x,)


def _accumulate(gradients: dict[Tensor, Any], x: Tensor, g: Tensor) -> None:
    total = gradients.get(x)
    gradients[x] = g if total is None else add_slices(total, g)
