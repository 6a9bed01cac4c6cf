"""Operations: calls on symbols, recorded for replay.

An Operation that is called with a KerasTensor records the whole call as one Node of a
functional model. Output shapes are inferred by running the call with two large sizes
for the unknown extents. Extents that differ between the two runs are unknown.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial, wraps
from itertools import chain, combinations, islice, product
from typing import Any, TypeVar

import numpy as np

from toolkit import tree
from toolkit.console.frames import is_package_function
from toolkit.core.keras_tensor import (
    KerasHistory,
    KerasTensor as KerasTensor,
    any_symbolic as any_symbolic,
    is_symbolic as is_symbolic,
    set_shape,
)
from toolkit.core.masks import mask_of, set_mask
from toolkit.core.naming import auto_name
from toolkit.core.operation_replays import call_operation
from toolkit.core.strings import apply_to_strings
from toolkit.core.tensor import Tensor, state
from toolkit.core.trace import Trace
from toolkit.core.variable import Variable
from toolkit.errors import (
    ArgumentError,
    DTypeError,
    NotBuiltError,
    OutOfRangeError,
    ShapeError,
    ToolkitError,
    WrongExtentError,
    printable,
    unknown_arguments,
)
from toolkit.ir import Node, Spec
from toolkit.reading.budget import spend_time
from toolkit.serialization.recording import Recorded, accepts_argument
from toolkit.thread_state import restore_on_error

# Two sizes for unknown extents: large, and with many divisors, so that a reshape or a
# split of an unknown extent works.
PROBES = (20_160, 30_240)
_SECONDS_OF_CALL = 4e-4  # estimated cost of a call, for the time budget of a load


class Operation(Recorded):
    """A callable that records its call instead of running it, for symbols.

    Subclasses define `call`. Layers and models are Operations, and each public function
    of `toolkit.ops` becomes one when an argument is a symbol. The arguments of the
    constructor are recorded and are the config.

    Args:
        name: the name; generated from the class name if None.

    Example:
        >>> import toolkit
        >>> class Doubled(toolkit.Operation):
        ...     def call(self, x):
        ...         return 2 * x
        ...
        >>> Doubled()(toolkit.Input((3,))).shape
        (None, 3)
    """

    name: str

    def __init__(self, name: str | None = None) -> None:
        if name is not None and (
            not isinstance(name, str) or "/" in name or printable(name) != name
        ):
            raise ArgumentError(
                f"{type(self).__name__}: name must be a string and cannot contain "
                f"character `/`, nor control characters; received {name!r}"
            )
        self.name = name or auto_name(type(self).__name__)
        self._inbound_nodes: list[Node] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any_symbolic(args, kwargs):
            return self.symbolic_call(*args, **kwargs)
        return self.call(*args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs from tensors.

        Returns:
            The results.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define `call`")

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Return the symbols that a call with these symbols returns."""
        return infer(self.call, args, kwargs)

    def symbolic_call(self, *args: Any, **kwargs: Any) -> Any:
        """Record the call as one node and return its symbolic outputs.

        Symbols with a known `value` are replaced by it while a graph of them runs.

        Returns:
            Symbolic tensors.
        """
        args, kwargs = tree.map_structure(_known, (args, kwargs))
        if not any_symbolic(args, kwargs):
            return self(*args, **kwargs)
        outputs = self.compute_output_spec(*args, **kwargs)
        record(self, args, kwargs, outputs)
        return outputs

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that create an equal operation, and its name.

        Raises:
            NotImplementedError: if they cannot be serialized.
        """
        config = {"name": self.name}
        if type(self).get_config is not Operation.get_config:
            return config  # the subclass adds its own arguments
        try:
            config |= self._recorded_config(True, frozenset(("name",)))
        except ArgumentError as error:
            raise NotImplementedError(str(error)) from error
        if not accepts_argument(type(self), "name"):
            del config["name"]
        return config

    @property
    def input(self) -> Any:
        """Return the inputs of the first recorded call."""
        args, kwargs = self._first_node("input").attrs["arguments"]
        tensors = [a for a in args if any_symbolic(a)]
        tensors += [v for v in kwargs.values() if any_symbolic(v)]
        return tree.copy_containers(tensors[0] if len(tensors) == 1 else tensors)

    @property
    def output(self) -> Any:
        """Return the outputs of the first recorded call."""
        return tree.copy_containers(self._first_node("output").attrs["outputs"])

    def _first_node(self, attribute: str) -> Node:
        if not self._inbound_nodes:
            raise NotBuiltError(
                f"{self.name}.{attribute}: call the operation with symbols first"
            )
        return self._inbound_nodes[0]


class FunctionOperation(Operation):
    """A public op as an Operation: one node of a functional model."""

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        super().__init__(name or auto_name(function.__name__))
        self.function = function

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return without_masks(infer_op(self.function, args, kwargs))


def _known(leaf: Any) -> Any:
    value = getattr(leaf, "value", None) if is_symbolic(leaf) else None
    return value if isinstance(value, (Tensor, np.ndarray)) else leaf


def without_masks(outputs: Any) -> Any:
    """Return outputs of an op or a model without the masks of symbols."""
    for symbol in filter(is_symbolic, tree.flatten(outputs)):
        set_mask(symbol, None)
    return outputs


def record(
    operation: Operation, args: Any, kwargs: Any, outputs: Any, masks: Any = ()
) -> Node:
    """Append the call `operation(*args, **kwargs) -> outputs` to its nodes.

    `masks` are symbols that the call needs in addition to its arguments. Their nodes
    are before it in the order of the graph, although a model does not replay them.
    """
    spend_time(_SECONDS_OF_CALL, "a model with this number of layers")
    inputs = [x for x in tree.flatten((args, kwargs)) if is_symbolic(x)]
    symbols = [x for x in tree.flatten(outputs) if is_symbolic(x)]
    # The caller may modify its lists later, as in `xs.append(layer(xs))`.
    attrs = {
        "arguments": tree.copy_containers((args, kwargs)),
        "outputs": tree.copy_containers(outputs),
        "masks": tuple(masks),
    }
    node = Node(operation, inputs, attrs, symbols)
    operation._inbound_nodes.append(node)
    index = len(operation._inbound_nodes) - 1
    for i, symbol in enumerate(symbols):
        if not all(x.record_history for x in inputs):  # no model contains it
            break
        symbol._keras_history = KerasHistory(operation, index, i)
    graph = next((x.graph for x in inputs if x.graph is not None), None)
    if graph is not None:
        graph.add(node)
    return node


class Undetermined(ShapeError):
    """More than extents depends on an unknown extent."""


def infer(
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    pinned: Any = None,
    fix: str = "",
) -> Any:
    """Infer the symbols that `function` returns for arguments with symbols.

    Args:
        function: receives tensors for the symbols in the arguments.
        args, kwargs: the arguments.
        pinned: maps (symbol, axis) to a fixed extent for an unknown one.
        fix: the fix, for errors about values that do not exist; "" for the one of
            layers.
    """
    symbols = [x for x in tree.flatten((args, kwargs)) if is_symbolic(x)]
    runs = [_probe(function, args, kwargs, PROBES[0], pinned, fix)]
    if runs[0].probed or any(None in x.shape for x in symbols):
        runs.append(_probe(function, args, kwargs, PROBES[1], pinned, fix))
    first, last = (run.outputs for run in (runs[0], runs[-1]))
    if tree.signature(first) != tree.signature(last):
        raise Undetermined(
            f"{getattr(function, '__name__', function)}: the structure of the outputs "
            "depends on an unknown extent"
        )
    leaves = map(partial(_merge, runs[0].stood_for), *map(tree.flatten, (first, last)))
    return tree.pack_sequence_as(first, leaves)


_FIX = (
    "define `compute_output_shape` in the layer (`output_shape` of a Lambda), and "
    "compile the model with run_eagerly=True"
)


class Probe(Trace):
    """A trace that infers output shapes, with `extent` for unknown extents."""

    def __init__(self, extent: int, fix: str = "") -> None:
        super().__init__("shape inference")
        self.extent = extent
        self.fix = fix or _FIX
        self.probed = False  # whether an extent depends on values
        self.stood_for: dict[Tensor, KerasTensor] = {}  # by placeholder
        self.outputs: Any = None

    def stand_in(self, leaf: Any, pinned: Any) -> Any:
        """Return the placeholder of a symbol, with its mask; other leaves unchanged.

        No nested function: a recursive one is a reference cycle, which keeps the
        captured Variables in memory until the next garbage collection.
        """
        if not is_symbolic(leaf):
            return leaf
        shape = [
            pinned.get((leaf, axis), self.extent) if n is None else n
            for axis, n in enumerate(leaf.shape)
        ]
        tensor = self.placeholder(Spec(shape, leaf.dtype))
        self.stood_for[tensor] = leaf
        if mask_of(leaf) is not None:
            set_mask(tensor, self.stand_in(mask_of(leaf), pinned))
        return tensor


def _probe(
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    extent: int,
    pinned: Any,
    fix: str = "",
) -> Probe:
    trace = Probe(extent, fix)
    with restore_on_error(), trace:
        stand_in = partial(trace.stand_in, pinned=pinned or {})
        args, kwargs = tree.map_structure(stand_in, (args, kwargs))
        try:
            trace.outputs = function(*args, **kwargs)
        except ToolkitError as error:
            if extent in PROBES and any(str(p) in str(error) for p in PROBES):
                message = str(error)
                for probe in PROBES:
                    message = message.replace(str(probe), "None")
                raise type(error)(message) from error
            raise
    return trace


def _merge(stood_for: dict[Tensor, KerasTensor], a: Any, b: Any) -> Any:
    """Merge the outputs of the two probes to one symbol; the placeholders are a's."""
    if not isinstance(a, (Tensor, Variable)):
        return a
    if a.ndim != b.ndim:
        raise Undetermined("the rank of an output depends on an unknown extent")
    shape = [m if m == n else None for m, n in zip(a.shape, b.shape, strict=True)]
    symbol = KerasTensor(shape, a.dtype)
    mask = mask_of(a)
    if isinstance(mask, Tensor) and mask in stood_for:
        # It was passed through, so it keeps its history.
        set_mask(symbol, stood_for[mask])
    elif mask is not None:
        set_mask(symbol, _merge(stood_for, mask, mask_of(b)))
    return symbol


def infer_fitting(
    function: Callable[..., Any], args: Any, kwargs: Any, limit: int = 200
) -> Any:
    """Run `infer`; if this fails, try known extents for the unknown ones.

    Args:
        function, args, kwargs: as for `infer`.
        limit: maximum number of guesses.
    """
    try:
        return infer(function, args, kwargs)
    except (Undetermined, WrongExtentError, OutOfRangeError):
        raise
    except (ShapeError, ArgumentError):
        for pinned in _guesses(args, kwargs, limit):
            with suppress(ToolkitError):
                inferred = infer(function, args, kwargs, pinned)
                return _with_fewest(function, args, kwargs, pinned, inferred)
        raise


def _with_fewest(
    function: Callable[..., Any], args: Any, kwargs: Any, pinned: Any, inferred: Any
) -> Any:
    """Repeat the inference without the pinned extents that are not required."""
    needed = dict(pinned)
    for position in pinned if len(pinned) > 1 else ():
        reduced = {k: n for k, n in needed.items() if k != position}
        with suppress(ToolkitError):
            inferred = infer(function, args, kwargs, reduced)
            needed = reduced
    return inferred


def infer_op(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run `infer` for a public function, with more precise unknown extents.

    If two large sizes do not fit, an unknown extent may equal a known one: (None, 3)
    and (2, None) broadcast to (2, 3). Extents that a small extent would change are
    unknown: the first five elements of None may be fewer.
    """
    outputs = infer_fitting(function, args, kwargs)
    symbols = tree.flatten((args, kwargs))
    if any(is_symbolic(x) and None in x.shape for x in symbols):
        with suppress(ToolkitError):
            small = _probe(function, args, kwargs, 1, None).outputs
            for symbol, tensor in zip(
                *map(tree.flatten, (outputs, small)), strict=True
            ):
                if is_symbolic(symbol) and len(tensor.shape) == symbol.ndim:
                    extents = zip(symbol.shape, tensor.shape, strict=True)
                    set_shape(symbol, tuple(m if m == n else None for m, n in extents))
    return outputs


def _guesses(args: Any, kwargs: Any, limit: int) -> Iterator[dict[Any, int]]:
    """Yield guesses for unknown extents, the smallest first: the known extents."""
    leaves = tree.flatten((args, kwargs))
    shapes = [tuple(x.shape) for x in leaves if hasattr(x, "shape")]
    integers = [x for x in leaves if type(x) is int]
    candidates = dict.fromkeys(
        n for n in (*chain(*shapes), *integers, 1) if n and n > 0
    )
    positions = dict.fromkeys(
        (x, axis)
        for x in leaves
        if is_symbolic(x)
        for axis, n in enumerate(x.shape)
        if n is None
    )
    # Batch axes, which are usually unknown, are last.
    unknown = sorted(positions, key=lambda position: position[1] == 0)
    guesses = (
        dict(zip(positions, extents, strict=True))
        for count in range(1, len(unknown) + 1)
        for positions in combinations(unknown, count)
        for extents in product(candidates, repeat=count)
    )
    return islice(chain(_same_axes(leaves), guesses), limit)


def _same_axes(leaves: list[Any]) -> Iterator[dict[Any, int]]:
    """Yield guesses: the extents of other symbols along the same axis.

    First for the batch axis only, then for all axes.
    """
    symbols = [x for x in leaves if is_symbolic(x)]
    extents: dict[int, set[int]] = {}
    for axis, n in chain.from_iterable(enumerate(x.shape) for x in symbols):
        extents.setdefault(axis, set()).update(() if n is None else (n,))
    agreed = {axis: ns.pop() for axis, ns in extents.items() if len(ns) == 1}
    for axes in ({0}, set(agreed)):
        yield {
            (x, axis): agreed[axis]
            for x in symbols
            for axis, n in enumerate(x.shape)
            if n is None and axis in axes & set(agreed)
        }


def _check_names(function: Callable[..., object], kwargs: dict[str, object]) -> None:
    """Raise if a call has argument names that a function does not accept."""
    parameters = inspect.signature(function).parameters
    unknown = kwargs.keys() - parameters.keys()
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        raise unknown_arguments(function.__name__, unknown, parameters) from None


F = TypeVar("F", bound=Callable[..., Any])

# Types that cannot contain symbols: this keeps eager calls fast.
_PLAIN = {Tensor, Variable, bool, int, float, str, slice, type(None), np.ndarray}


def operation(function: F) -> F:
    """Make a function of tensors accept symbols, and record itself as one node."""
    # Code of the user runs in each call. Functions that draw keys have other replays.
    is_replayed = is_package_function(function) and not hasattr(function, "draws")

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_replayed and state.trace is None and not state.marks:
            outputs = call_operation(function, args, kwargs)
            if outputs is not None:
                return outputs
        for x in (*args, *kwargs.values()) if kwargs else args:
            if type(x) in _PLAIN:
                continue
            if any_symbolic(x):
                return FunctionOperation(wrapper).symbolic_call(*args, **kwargs)
            dialect = getattr(x, "dialect", None)
            if dialect is not state.dialect and dialect is not None:
                with dialect.activate():
                    return wrapper(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        except DTypeError:
            strings = apply_to_strings(function, args, kwargs)
            if strings is None:
                raise
            return strings
        except TypeError:
            _check_names(function, kwargs)
            raise

    return wrapper  # type: ignore[return-value]
