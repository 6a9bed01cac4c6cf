"""Rematerialization: recomputation of values in the backward pass to save memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn

from toolkit import dtypes, ops, tree
from toolkit.autodiff.tape import GradientTape, alias
from toolkit.core.tensor import Tensor, bind, no_tapes, state
from toolkit.core.trace import StatelessScope, reread_p
from toolkit.core.variable import Variable, current_value
from toolkit.errors import unknown_choice
from toolkit.ir import Kind, Primitive
from toolkit.layers.call import context
from toolkit.layers.tracking import with_losses
from toolkit.ops.box import dynamic_slice_p
from toolkit.ops.symbolic import KerasTensor, any_symbolic
from toolkit.thread_state import ThreadState

if TYPE_CHECKING:
    from toolkit.layers.layer import Layer

MODES = ("full", "activations", "larger_than", "list_of_layers", None)


class _Scopes(ThreadState):
    stack: tuple[RematScope, ...] = ()


_scopes = _Scopes()


class RematScope:
    """Scope whose new layers recompute values in the backward pass.

    The intermediate values of such a layer are not stored for the gradient, which saves
    memory and costs time.

    Args:
        mode: the layers. "full": all; "activations": only the activation functions;
            "larger_than": layers with more output elements than
            `output_size_threshold`; "list_of_layers": the layers in `layer_names`;
            None: none.
        output_size_threshold: for "larger_than".
        layer_names: for "list_of_layers".

    Example:
        >>> import toolkit
        >>> with toolkit.RematScope("full"):
        ...     layer = toolkit.layers.Dense(2, activation="gelu")
        >>> layer(toolkit.ops.ones((3, 4))).shape
        (3, 2)
    """

    def __init__(
        self,
        mode: str | None = "full",
        output_size_threshold: int = 1024,
        layer_names: Any = None,
    ) -> None:
        if mode not in MODES:
            raise unknown_choice("RematScope: Invalid mode", mode, MODES)
        self.mode = mode
        self.output_size_threshold = output_size_threshold
        self.layer_names: list[Any] = list(layer_names or [])

    def __enter__(self) -> RematScope:
        _scopes.stack = (*_scopes.stack, self)
        return self

    def __exit__(self, *exception: object) -> None:
        _scopes.stack = _scopes.stack[:-1]


def current_scope() -> RematScope | None:
    """Return the innermost RematScope, or None."""
    return _scopes.stack[-1] if _scopes.stack else None


def rematerialized(layer: Any, call: Any, args: Any, kwargs: Any) -> Any:
    """Return the `call` of a layer, with the rematerialization of its scope."""
    scope = layer._remat_scope
    if scope is None or scope.mode is None:
        return call
    if scope.mode == "activations":
        return _with_activation_again(layer, call)
    if scope.mode == "list_of_layers" and layer.name not in scope.layer_names:
        return call
    if scope.mode == "larger_than":
        if _output_size(layer, args, kwargs) <= scope.output_size_threshold:
            return call
    return remat(call)


def _with_activation_again(layer: Layer, call: Any) -> Any:
    activation = getattr(layer, "activation", None)
    if activation is None:
        return call

    @wraps(call)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        layer.__dict__["activation"] = remat(activation)
        try:
            return call(*args, **kwargs)
        finally:
            layer.__dict__["activation"] = activation

    return wrapper


def _output_size(layer: Layer, args: Any, kwargs: Any) -> int:
    """Return the number of output elements of a call with these tensors."""
    args, kwargs = tree.map_structure(
        lambda x: KerasTensor(x.shape, x.dtype) if isinstance(x, Tensor) else x,
        (args, kwargs),
    )
    with context.override(symbolic=True):
        outputs = layer.compute_output_spec(*args, **kwargs)
    shapes = [x.shape for x in tree.flatten(outputs) if isinstance(x, KerasTensor)]
    return sum(math.prod(n or 1 for n in shape) for shape in shapes)


def remat(f: Callable[..., Any]) -> Callable[..., Any]:
    """Recompute a function or layer in the backward pass.

    Its intermediate values are not stored. The second run reads the same values of
    Variables, seeds included, and changes none.

    Args:
        f: a function of tensors, or nests of them, that returns such.

    Returns:
        A function or layer with the same results.

    Example:
        >>> import toolkit
        >>> x = toolkit.Variable(2.0)
        >>> with toolkit.GradientTape() as tape:
        ...     y = toolkit.remat(lambda x: toolkit.ops.exp(x) ** 2)(x.value)
        >>> round(float(tape.gradient(y, x)), 3)
        109.196

    Reference: https://arxiv.org/abs/1604.06174
    """

    @wraps(f)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        tapes = state.tapes
        is_recomputed = any(isinstance(tape, _Reads) for tape in tapes)
        if not tapes or is_recomputed or any_symbolic(args, kwargs):
            return f(*args, **kwargs)
        return _Application(f, args, kwargs).record(tapes)

    return wrapper


class _Reads:
    """Tape that only records the first value read from each Variable."""

    def __init__(self) -> None:
        self.first: dict[Variable, Tensor] = {}

    def watch_variable(self, variable: Variable, tensor: Tensor) -> None:
        self.first.setdefault(variable, tensor)

    def watches(self, inputs: Any) -> bool:
        return False

    def record(self, *application: Any) -> None:
        """Do nothing: this operation will be recomputed."""


class _Recomputation(StatelessScope):
    """Variables with their earlier values; assignments stay local."""

    def write(self, variable: Variable, tensor: Tensor) -> None:
        before = self.writes.get(variable)
        if before is not None and dtypes.is_float(before.dtype):
            with no_tapes():
                tensor = alias(tensor)
            tensor = bind(reread_p, tensor, before)
        super().write(variable, tensor)


class _Application:
    """One call of a rematerialized function."""

    def __init__(self, function: Any, args: Any, kwargs: Any) -> None:
        self.function = function
        self.leaves = [current_value(x) for x in tree.flatten((args, kwargs))]
        self.structure = args, kwargs
        self.positions = [i for i, x in enumerate(self.leaves) if isinstance(x, Tensor)]
        # Other state that a call inside of layers depends on.
        self.surroundings = context.layer, context.training, state.autocast

    def record(self, tapes: Any) -> Any:
        """Record the call as one operation on the tapes and return its outputs."""
        reads = _Reads()
        loss_counts = _all_losses()
        state.tapes = (reads,)
        try:
            outputs = self._compute(self.leaves)
        finally:
            state.tapes = tapes
        self.variables = list(reads.first)
        self.values = list(reads.first.values())
        for variable, value in reads.first.items():
            for tape in tapes:  # as if it had been read here, before all assignments
                tape.watch_variable(variable, value)
        losses = _added_losses(loss_counts)
        with no_tapes():
            results = [alias(x) for x in _tensors(outputs)]
            results += [alias(layer._losses[i][1]) for layer, i in losses]
        for (layer, i), loss in zip(losses[::-1], results[::-1], strict=False):
            layer._losses[i] = (layer._losses[i][0], loss)
        inputs = (*(self.leaves[i] for i in self.positions), *self.values)
        op = Primitive("remat", Kind.COMPOSITE, _no_spec, vjp=self._vjp)
        for tape in tapes:
            tape.record(op, inputs, {}, tuple(results))
        leaves = iter(results)
        return tree.map_structure(
            lambda x: next(leaves) if isinstance(x, Tensor) else x, outputs
        )

    def _compute(self, leaves: list[Any]) -> Any:
        args, kwargs = tree.pack_sequence_as(self.structure, leaves)
        return self.function(*args, **kwargs)

    def _vjp(self, g: Any, y: Any, *xs: Tensor) -> Any:
        gs = g if isinstance(g, tuple) else (g,)
        xs = _order_after(gs, xs)
        leaves = list(self.leaves)
        count = len(self.positions)
        for i, x in zip(self.positions, xs[:count], strict=True):
            leaves[i] = x
        pairs = zip(self.variables, xs[count:], strict=True)
        sources = [x for x in xs if dtypes.is_float(x.dtype)]
        layer, training, autocast = self.surroundings
        with (
            context.override(layer=layer, training=training),
            state.override(autocast=autocast),
            GradientTape(watch_accessed_variables=False) as tape,
            _Recomputation(pairs),
        ):
            tape.watch(sources)
            loss_counts = _all_losses()
            outputs = _tensors(self._compute(leaves))
            outputs += [layer._losses[i][1] for layer, i in _added_losses(loss_counts)]
            for layer in list(with_losses):
                layer._losses[:] = loss_counts.get(layer, [])
        gradients = iter(tape.gradient(outputs, sources, list(gs)))
        return tuple(next(gradients) if dtypes.is_float(x.dtype) else None for x in xs)


def _tensors(outputs: Any) -> list[Tensor]:
    return [x for x in tree.flatten(outputs) if isinstance(x, Tensor)]


def _all_losses() -> dict[Any, list[Any]]:
    return {layer: list(layer._losses) for layer in with_losses}


def _added_losses(loss_counts: dict[Any, list[Any]]) -> list[tuple[Any, int]]:
    """Return the layers and indices of the losses that were added since."""
    layers = sorted(with_losses, key=id)
    return [
        (layer, i)
        for layer in layers
        for i, entry in enumerate(layer._losses)
        if not any(entry is old for old in loss_counts.get(layer, ()))
    ]


def _order_after(gs: Any, xs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Make `xs` depend on the gradients, so that the graph recomputes after them.

    Otherwise common subexpressions would be shared with the first computation.
    """
    gradient = next((g for g in gs if g.size), None)
    if state.trace is None or gradient is None:
        return xs
    start = ops.cast(ops.reshape(gradient, (-1,))[0], "int32")  # clamped: always 0
    return tuple(
        bind(dynamic_slice_p, x, *[start] * x.ndim, sizes=x.shape)
        if x.ndim and x.size and dtypes.is_float(x.dtype)
        else x
        for x in xs
    )


def _no_spec(*specs: object, **attrs: object) -> NoReturn:
    raise AssertionError(
        "a rematerialized computation is never traced as one operation"
    )
