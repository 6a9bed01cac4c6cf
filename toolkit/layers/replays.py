"""Replays of eager calls of layers: the kernels of a call, without its Python code.

Only layers of this package take part, without functions of the user. Any change of a
layer, of a class or of a setting that the call depends on discards the replay.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from operator import attrgetter
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toolkit import settings
from toolkit.backends.memory import device_memories
from toolkit.compiler import distribution_context
from toolkit.console.frames import is_package_function
from toolkit.core.call_arguments import (
    add_argument,
    tensors_of,
    with_other_tensors,
)
from toolkit.core.locks import Locks, changes
from toolkit.core.masks import mask_of
from toolkit.core.replays import (
    KERNEL_ERRORS,
    Replay,
    accept_replays,
    active,
    make_replay,
    same_bits,
)
from toolkit.core.tensor import Tensor, state
from toolkit.core.variable import Variable
from toolkit.layers.call import context
from toolkit.layers.containers import CONTAINERS, items_of
from toolkit.layers.tracking import StateOwner, with_losses
from toolkit.layers.walks import last_revision
from toolkit.ops.symbolic import FunctionOperation
from toolkit.random.seeds import SeedGenerator
from toolkit.type_aliases import Array

if TYPE_CHECKING:
    from toolkit.layers.layer import Layer

_PACKAGE = __name__.partition(".")[0] + "."
_MODELS = {
    "toolkit.models.sequential": ("_layers", "_functional"),
    "toolkit.models.functional.model": ("_operations",),
}
# Attributes that `call` does not read.
_UNREAD = frozenset(
    {
        *("_arguments", "_arrivals", "_walks", "_owned", "_losses", "_info"),
        *("_call_path", "_replays", "_inbound_nodes", "_issued_warnings"),
        *("_build_shapes", "_output_shapes", "_last_fit", "_stored_by_calls"),
    }
)
_UNREAD_SUFFIXES = ("_initializer", "_regularizer", "_constraint")
_NOT_PURE = (f"{_PACKAGE}layers.adapters.", f"{_PACKAGE}functions.")
_PLAIN = (bool, int, float, complex, str, bytes, slice, range, np.dtype, type(None))
# Signatures per layer, and signatures that are traced without a later replay.
_MAX_CALLS, _MAX_TRACES = 32, 16


def can_replay(cls: type) -> bool:
    """Return whether this package defines a class of layers."""
    return cls.__module__.startswith(f"{_PACKAGE}layers.") or cls.__module__ in _MODELS


class LayerReplays:
    """Replays of one layer, by signature. Copies are empty."""

    __slots__ = ("_calls", "_num_traces", "_seen")

    def __init__(self) -> None:
        # None: the signature cannot be replayed.
        self._calls: dict[Hashable, LayerReplay | None] = {}
        self._seen: set[Hashable] = set()  # signatures that occurred once
        self._num_traces = 0

    def __reduce__(self) -> tuple[type[LayerReplays], tuple[()]]:
        return LayerReplays, ()

    def __len__(self) -> int:
        return sum(replay is not None for replay in self._calls.values())

    def call(self, layer: Layer, x: Tensor, kwargs: Mapping[str, object]) -> object:
        """Return the outputs of a call with one tensor, or None without a replay.

        Args:
            layer: the layer.
            x: the only positional argument.
            kwargs: the training mode that the caller requests, if any.
        """
        array = x._array
        if type(array) is not np.ndarray or mask_of(x) is not None:
            return None
        training = kwargs["training"] if kwargs else None
        key = (array.shape, x._dtype, training, context.training, state.autocast)
        return self._replay(key, layer, (x,), kwargs, (x,))

    def call_nested(
        self, layer: Layer, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        """Return the outputs of a call with any arguments, or None without a replay.

        Args:
            layer: the layer.
            args: the positional arguments.
            kwargs: the keyword arguments.
        """
        signature: list[object] = []
        if not all(add_argument(x, signature, []) for x in (args, kwargs)):
            return None
        tensors = tensors_of(args, kwargs)
        if not tensors or any(mask_of(x) is not None for x in tensors):
            return None
        key = (tuple(signature), context.training, state.autocast)
        return self._replay(key, layer, args, kwargs, tensors)

    def _replay(
        self,
        key: Hashable,
        layer: Layer,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        tensors: Sequence[Tensor],
    ) -> object:
        """Return the outputs of a call by the replay of its signature.

        None: it has none, or the scopes of this thread exclude replays.
        """
        if (
            state.trace is not None
            or state.overlay is not None
            or state.marks
            or context.is_eager
            or context.symbolic
            or context.arguments
            or context.defaulted is not None
            or device_memories
            or distribution_context.current() is not None
        ):
            return None
        try:
            replay = self._calls[key]
        except KeyError:
            return self._call_unknown(key, layer, args, kwargs)
        if replay is None:
            return None
        if not replay.is_valid():
            self._calls.clear()  # a change concerns all signatures
            return None
        self._num_traces = 0
        if with_losses and context.layer is None and replay.has_losses():
            return None  # the Python code drops the losses of the last call
        try:
            return replay.run(tensors)
        except KERNEL_ERRORS:  # the Python code raises it with an explanation
            return None

    def _call_unknown(
        self,
        key: Hashable,
        layer: Layer,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> object:
        """Call a layer as Python code, and create a replay at the second call."""
        if active.is_inner:
            return None
        path = layer._call_path
        if path is None or not path.is_plain or not layer.built or layer._path is None:
            return None  # the call builds the layer
        if len(self._calls) >= _MAX_CALLS or self._num_traces >= _MAX_TRACES:
            return None
        values: dict[Variable, Tensor] = {}
        if key in self._seen:
            values = _read_variables(layer)
        active.is_inner = True
        try:
            outputs = layer(*args, **kwargs)
        finally:
            active.is_inner = False
        if key in self._seen:
            self._seen.discard(key)
            self._num_traces += 1
            self._calls[key] = _replay_of(layer, args, kwargs, outputs, values)
        else:
            if len(self._seen) >= _MAX_CALLS:
                self._seen.clear()
            self._seen.add(key)
        return outputs


class LayerReplay:
    """Replay of one signature of a layer.

    Args:
        replay: the kernels.
        parts: the layers of the call, and their revisions.
        layers: the layers of the call.
        version: the version of the settings before the trace.
    """

    def __init__(
        self, replay: Replay, parts: _Parts, layers: list[Layer], version: int
    ) -> None:
        self._replay = replay
        self._parts = parts
        self._variables = [weakref.ref(v) for v in replay.variables]
        self._written = [weakref.ref(v) for v in replay.written]
        self._locks = Locks(set(replay.variables))
        replay.variables.clear()
        replay.written.clear()
        is_mixed = any(layer._autocast_dtype for layer in layers)
        # Whether each Variable is cast; None: no layer casts any.
        self._autocasts = self._are_cast() if is_mixed else None
        readers = [(cls, _method_reader(cls)) for cls in {type(x) for x in layers}]
        self._classes = [(cls, read, read(cls)) for cls, read in readers]
        # Marks at which everything was valid.
        self._revision = -1
        self._settings = version
        self._shared_mark: object = None

    def is_valid(self) -> bool:
        """Return whether the Python code would still do the same."""
        for cls, read, methods in self._classes:
            if read(cls) != methods:
                return False
        revision = last_revision()
        if revision != self._revision:
            if not self._parts.are_unchanged():
                return False
            self._revision = revision
        if self._parts.generators and not self._parts.have_states():
            return False
        if self._autocasts is not None and self._are_cast() != self._autocasts:
            return False
        return settings.version() == self._settings

    def has_losses(self) -> bool:
        """Return whether a layer of the call still holds a loss of `add_loss`."""
        for reference, _ in self._parts.revisions:
            layer = reference()
            if layer is not None and layer._losses:
                return True
        return False

    def _are_cast(self) -> list[bool | None]:
        return [getattr(v, "autocast", None) for v in self._live_variables()]

    def _live_variables(self) -> list[Any]:
        """Return the Variables; None in place of one that no longer exists."""
        return [reference() for reference in self._variables]

    def run(self, inputs: Sequence[Tensor]) -> object:
        """Return the outputs, or None if tapes need the Python code.

        Args:
            inputs: the tensors of the arguments.
        """
        tapes, variables = state.tapes, self._live_variables()
        if tapes:
            if not accept_replays(tapes):
                return None
            tensors = [*inputs, *(v.read() for v in variables)]
            results = self._replay.run_recorded(tensors, tapes)
            if results is None:
                return None
        else:
            mark = self._shared_mark
            arrays = [v._tensor._array for v in variables]
            if changes.mark is not mark:  # after the reads, for other threads
                arrays = self._share_variables(variables)
            results = self._replay.run(*[x._array for x in inputs], *arrays)
        return self._assign(results) if self._written else results

    def _assign(self, results: object) -> object:
        """Assign the values of the written Variables, and return the outputs."""
        outputs, values = self._replay.split(results)
        for reference, value in zip(self._written, values, strict=True):
            variable = reference()
            if variable is not None:
                variable.assign(value)
        return outputs

    def repeats(
        self,
        inputs: Sequence[Tensor],
        outputs: object,
        values: dict[Variable, Tensor],
    ) -> bool:
        """Return whether the kernels repeat a call of the Python code, bit for bit.

        Args:
            inputs: the tensors of the arguments.
            outputs: the outputs of the Python code.
            values: the values of the Variables before the call.
        """
        reads = [values[v] if v in values else v.read() for v in self._live_variables()]
        results: Any = self._replay.run(*[x._array for x in (*inputs, *reads)])
        if not self._written:
            return same_bits(outputs, results)
        variables = [reference() for reference in self._written]
        if not values.keys() >= set(variables):
            return False  # a Variable that the layer does not own
        repeated, written = self._replay.split(results)
        current = [v.read() for v in variables if v is not None]
        return same_bits(outputs, repeated) and same_bits(current, written)

    def _share_variables(self, variables: list[Variable]) -> list[Array]:
        """Return the arrays of the Variables. From now on no step overwrites them."""
        with self._locks:
            mark = changes.mark
            if any(v.placement is not None for v in variables):
                return [v.read()._array for v in variables]
            for variable in variables:
                variable._shared = True
            self._shared_mark = mark
            return [v._tensor._array for v in variables]


def _method_reader(cls: type) -> Callable[[type], tuple[object, ...]]:
    """Return a function that reads the methods of a class that `call` uses.

    Names of methods and properties in the code of `call`, and in the code of these,
    determine them. So a method that is replaced later is still read.
    """
    names = {"__call__": None, "call": None}
    pending: list[object] = [attrgetter("call")(cls)]
    while pending:
        code = pending.pop()
        if isinstance(code, property):
            pending.append(code.fget)
        elif isinstance(code, (FunctionType, MethodType)):
            pending.append(vars(code).get("__wrapped__"))
            pending.append(code.__code__)
        elif isinstance(code, CodeType):
            pending += code.co_consts
            for name in code.co_names:
                value = getattr(cls, name, None)
                if isinstance(value, (FunctionType, MethodType, property)):
                    if name not in names:
                        names[name] = None
                        pending.append(value)
    return attrgetter(*names)


class _Parts(NamedTuple):
    """The layers of a call, with the number of the last change of each.

    The references are weak: a removed layer is freed, and so is the layer itself,
    without the garbage collector.
    """

    revisions: list[tuple[weakref.ref[Layer], int]]
    # The generators of random numbers, and their states.
    generators: list[tuple[weakref.ref[SeedGenerator], weakref.ref[Variable]]]

    def are_unchanged(self) -> bool:
        """Return whether no attribute of a layer has changed."""
        for reference, number in self.revisions:
            layer = reference()
            if layer is None or layer._revision != number:
                return False
        return True

    def have_states(self) -> bool:
        """Return whether the generators have the same Variables."""
        for reference, state_reference in self.generators:
            generator = reference()
            if generator is None or generator.state is not state_reference():
                return False
        return True


def _replay_of(
    layer: Layer,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    outputs: object,
    values: dict[Variable, Tensor],
) -> LayerReplay | None:
    """Return the replay of a call; None if it needs the Python code.

    Args:
        layer: the layer.
        args: the positional arguments.
        kwargs: the keyword arguments.
        outputs: the outputs of the Python code.
        values: the values of the Variables before the call.
    """
    layers = _find_parts(layer)
    if layers is None or any(part in with_losses for part in layers):
        return None
    parts = _Parts(
        [(weakref.ref(owner), owner._revision) for owner in layers],
        [
            (weakref.ref(value), weakref.ref(value.state))
            for owner in layers
            for value in _read_values(owner)
            if isinstance(value, SeedGenerator)
        ],
    )
    version = settings.version()
    tensors = tensors_of(args, kwargs)
    call = with_other_tensors(layer, args, kwargs)
    replay = make_replay(layer.name, call, [x.spec for x in tensors])
    if replay is None or not parts.are_unchanged():
        return None
    checked = LayerReplay(replay, parts, layers, version)
    with state.override(tapes=()):
        try:
            return checked if checked.repeats(tensors, outputs, values) else None
        except KERNEL_ERRORS:
            return None


def _find_parts(layer: Layer) -> list[Layer] | None:
    """Return a layer and all layers in it; None if a part is not of this package."""
    parts: dict[Layer, None] = {}
    pending: list[Any] = [layer]
    while pending:
        part = pending.pop()
        if part in parts:
            continue
        if not _has_package_calls(part):
            return None
        parts[part] = None
        for value in _read_values(part):
            if isinstance(value, MethodType):
                if not is_package_function(value.__func__):
                    return None
                value = value.__self__
            if isinstance(value, StateOwner):
                pending.append(value)
            elif not _is_pure(value):
                return None
    return list(parts)


def _has_package_calls(layer: Layer) -> bool:
    """Return whether a call runs only methods of this package, with no other effect."""
    cls = type(layer)
    return (
        can_replay(cls)
        and all(map(_is_package_method, _method_reader(cls)(cls)))
        and cls.__call__.__qualname__ == "Layer.__call__"
        and layer.built
        and layer._remat_scope is None
        and layer.activity_regularizer is None
        and layer.supports_jit
        and not (layer.runs_before_program or layer.warns_of_python)
        and not ("call" in vars(layer) or "_context_names" in vars(layer))
    )


def _is_package_method(method: object) -> bool:
    if isinstance(method, property):
        method = method.fget
    if isinstance(method, MethodType):
        method = method.__func__
    return is_package_function(method)


def _read_variables(layer: Layer) -> dict[Variable, Tensor]:
    """Return the values of the Variables that a call of a layer can write."""
    values = [x for owner in _find_parts(layer) or () for x in _read_values(owner)]
    variables = [x for x in values if isinstance(x, Variable)]
    variables += [x.state for x in values if isinstance(x, SeedGenerator)]
    with state.override(tapes=()):
        return {v: v.read() for v in variables}


def _read_values(layer: Layer) -> Iterator[object]:
    """Yield the values that `call` can read, and the items of containers."""
    names = _MODELS.get(type(layer).__module__)
    if names is not None:
        topology: Any = vars(layer).get("_topology")
        values: list[Any] = [vars(layer).get(name) for name in names]
        if "_operations" in names:
            values += [node.attrs["arguments"] for node in topology.nodes]
    else:
        values = [
            value
            for name, value in vars(layer).items()
            if name not in _UNREAD and not name.endswith(_UNREAD_SUFFIXES)
        ]
    while values:
        value = values.pop()
        if isinstance(value, CONTAINERS):
            values += items_of(value)
        else:
            yield value


def _is_pure(value: object) -> bool:
    """Return whether a value of an attribute is constant, or part of the package."""
    if isinstance(value, _PLAIN):
        return True
    if isinstance(value, FunctionType):
        return is_package_function(value)
    if isinstance(value, FunctionOperation):
        return is_package_function(value.function)
    module = (value if isinstance(value, type) else type(value)).__module__
    if not module.startswith(_PACKAGE) or module.startswith(f"{_PACKAGE}compat."):
        return False
    # An adapter of a weight has attributes that change without a report. A traced
    # function runs its own program, or code of the user.
    return not module.startswith(_NOT_PURE)
