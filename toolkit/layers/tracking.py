"""Tracking of a layer's state: variables, sublayers, metrics, seeds and losses."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Self, TypeVar

import numpy as np

from toolkit import tree
from toolkit.core.convert import convert
from toolkit.core.tensor import Tensor, state
from toolkit.core.trace import StatelessScope
from toolkit.core.variable import Variable, assign_all
from toolkit.errors import ArgumentError, NotBuiltError, ShapeError, UnsupportedError
from toolkit.layers.call import context, is_tensor
from toolkit.layers.containers import (
    CONTAINERS,
    ArrivalOrder,
    is_tracked,
    items_of,
    set_owner,
    track,
)
from toolkit.layers.walks import Owner, WalkCache, cache_walk, record_read
from toolkit.metrics.metric import Metric
from toolkit.ops import divide
from toolkit.random import SeedGenerator
from toolkit.thread_state import ThreadState

T = TypeVar("T")

# Layers with losses of `add_loss`: usually none, and then clearing costs nothing.
with_losses: weakref.WeakSet[Any] = weakref.WeakSet()


class _Tracking(ThreadState):
    on = True


_tracking = _Tracking()


def no_tracking() -> AbstractContextManager[None]:
    """Return a context in which new attributes are not tracked."""
    return _tracking.override(on=False)


def unique(values: Iterator[T] | list[T]) -> list[T]:
    """Return `values` without repetitions, by identity."""
    return list({id(value): value for value in values}.values())


def _leaves(value: Any, visited: set[int]) -> Iterator[Any]:
    """Return the trackable objects in `value`, in order."""
    if isinstance(value, _STATE):
        yield value
    elif isinstance(value, CONTAINERS) and id(value) not in visited:
        visited.add(id(value))
        for item in items_of(value):
            if isinstance(item, _HOLDERS):
                yield from _leaves(item, visited)


def _leaves_of(values: Iterable[Any]) -> Iterator[Any]:
    """Return the trackable objects in each of `values`."""
    for value in values:
        if isinstance(value, _HOLDERS):
            yield from _leaves(value, set())


_SHOWN = 8  # arrays in a message


def _shapes_of(variables: list[Variable]) -> str:
    """Return the names and shapes of the first variables, for a message."""
    if not variables:
        return " (the layer has no weights yet: build it first)"
    shapes = [f"{v.path} {v.shape}" for v in variables[:_SHOWN]]
    shapes += ["..."] if len(variables) > _SHOWN else []
    return f" ({', '.join(shapes)})"


class StateOwner(Owner):
    """Base class of layers: tracks state in attributes, lists, tuples and dicts.

    An assigned list, dict, OrderedDict or set, alone or in a tuple, is replaced by a
    copy that reports its changes, as in Keras. Containers of other classes are searched
    whenever state is assigned or read.
    """

    activity_regularizer: Any = None
    # The losses of `add_loss`, each with its trace or scope: it has no value elsewhere.
    _losses: list[tuple[Any, Tensor]]
    _arrivals: ArrivalOrder  # their state, in order of arrival
    _locked = False
    _trainable = True
    name: str
    built: bool

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        create = super().__new__
        is_object_new = create is object.__new__  # object.__new__ takes no arguments
        instance = create(cls) if is_object_new else create(cls, *args, **kwargs)
        instance.__dict__["_owned"] = []
        instance.__dict__["_arrivals"] = ArrivalOrder()
        instance.__dict__["_walks"] = WalkCache()
        return instance

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        set_owner(self._owned, self)

    def __setattr__(self, name: str, value: Any) -> None:
        members = self.__dict__
        # The setter of a property decides where its value is stored.
        if _tracking.on and not hasattr(getattr(type(self), name, None), "__set__"):
            old = members.get(name)
            if value is not old:
                value = track(value, self)
            self._track(value)
            if old is not None and old is not value:
                self._untrack(name, old)
        object.__setattr__(self, name, value)
        self._mark_revised()

    def __delattr__(self, name: str) -> None:
        value = self.__dict__.get(name)
        self._untrack(name, value)
        self._discard_arrivals([value])
        object.__delattr__(self, name)
        self._mark_revised()

    def _track(self, value: Any) -> None:
        """Track `value` if it holds or can hold state."""
        if isinstance(value, (list, dict, set)):
            self._note_arrivals([value])
            if not any(container is value for container in self._owned):
                self._owned.append(value)
                self._mark_changed()
        elif isinstance(value, _STATE):
            if any(item is value for item in self._owned):
                return
            if self._locked and isinstance(value, (Variable, StateOwner)):
                raise ArgumentError(
                    f"{type(self).__name__} {self.name!r}: variables and layers must "
                    "be created in `__init__` or `build`, but the layer is already "
                    "built"
                )
            self._note_arrivals([value])
            self._owned.append(value)
            self._mark_changed()
            if isinstance(value, Variable) and not self._trainable:
                value.trainable = False
        elif isinstance(value, tuple):
            for item in value:
                self._track(item)

    def _untrack(self, name: str, value: Any) -> None:
        """Untrack `value` unless another attribute holds it."""
        remaining = (content for key, content in self.__dict__.items() if key != name)
        if not any(content is value for content in remaining):
            self._keep([item for item in self._owned if item is not value])

    def _keep(self, owned: list[Any]) -> None:
        """Reduce the tracked objects to this subset."""
        if len(owned) != len(self._owned):
            self.__dict__["_owned"] = owned
            self._mark_changed()

    def _note_arrivals(self, values: Iterable[Any]) -> None:
        """Record new state, after the state of containers that report no changes."""
        silent = [
            item
            for item in self._owned
            if isinstance(item, CONTAINERS) and not is_tracked(item, self)
        ]
        has_new = False
        for leaf in _leaves_of((*silent, *values)):
            has_new |= self._arrivals.add(leaf)
        if has_new:
            self._mark_changed()

    def _discard_arrivals(self, values: Iterable[Any]) -> None:
        """Let removed state be last when it is added again."""
        leaves = list(_leaves_of(values))
        for leaf in leaves:
            self._arrivals.discard(leaf)
        if leaves:
            self._mark_changed()

    def _in_order(self) -> list[tuple[Any, bool]]:
        """Return all state in order of arrival, with its trainable flag on arrival."""
        record_read(self)
        visited: set[int] = set()
        return self._arrivals.sort(
            leaf for value in self._owned for leaf in _leaves(value, visited)
        )

    def _own_variables(self) -> list[Variable]:
        """Return this layer's variables without sublayers; trainable ones first."""
        tracked = [pair for pair in self._in_order() if isinstance(pair[0], Variable)]
        return [v for v, trainable in sorted(tracked, key=lambda pair: not pair[1])]

    def _sublayers(self) -> list[Any]:
        return owned_state(self, StateOwner)

    def _flatten_layers(
        self, include_self: bool = True, recursive: bool = True
    ) -> list[Any]:
        """Return the sublayers, depth first."""
        layers = self._all_layers() if recursive else [self, *self._sublayers()]
        return layers[0 if include_self else 1 :]

    @cache_walk
    def _all_layers(self) -> list[Any]:
        inner = (x for layer in self._sublayers() for x in layer._all_layers())
        return unique([self, *inner])

    @property
    @cache_walk
    def variables(self) -> list[Variable]:
        """Return all state: weights, and the seeds of random layers."""
        local = [
            *self._own_variables(),
            *(s.state for s in owned_state(self, SeedGenerator)),
        ]
        return unique(
            [*local, *(v for item in self._sublayers() for v in item.variables)]
        )

    @property
    @cache_walk
    def weights(self) -> list[Variable]:
        """Return the weights of this layer, then of the sublayers, without seeds."""
        inner = (v for item in self._sublayers() for v in item.weights)
        return unique([*self._own_variables(), *inner])

    @property
    def trainable_variables(self) -> list[Variable]:
        """Return the variables that an optimizer updates; none if frozen."""
        return [v for v in self.variables if v.trainable] if self.trainable else []

    @property
    def non_trainable_variables(self) -> list[Variable]:
        """Return the variables that no optimizer updates, seeds included."""
        return [v for v in self.variables if not (self.trainable and v.trainable)]

    @property
    def trainable_weights(self) -> list[Variable]:
        """Return the weights that an optimizer updates; none if frozen."""
        return [v for v in self.weights if v.trainable] if self.trainable else []

    @property
    def non_trainable_weights(self) -> list[Variable]:
        """Return the weights that no optimizer updates."""
        return [v for v in self.weights if not (self.trainable and v.trainable)]

    @property
    def trainable(self) -> bool:
        """Return whether optimizers update this layer and its sublayers; settable."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = bool(value)
        for value, was_trainable in self._in_order():
            if isinstance(value, Variable) and was_trainable:
                value.trainable = self._trainable
        for layer in self._sublayers():
            layer.trainable = self._trainable

    @property
    @cache_walk
    def metrics(self) -> list[Metric]:
        """Return the metrics of this layer and its sublayers."""
        inner = (m for layer in self._sublayers() for m in layer.metrics)
        return unique([*owned_state(self, Metric), *inner])

    @property
    def metrics_variables(self) -> list[Variable]:
        """Return the variables of `metrics`."""
        return [v for metric in self.metrics for v in metric.variables]

    def add_metric(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise: metrics are attributes of a layer, or arguments of `compile`.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            f"{type(self).__name__} {self.name!r}: add_metric does not exist; set a "
            "metric as an attribute and update it in `call`, or pass it to "
            "`Model.compile(metrics=[...])`"
        )

    def get_weights(self) -> list[np.ndarray[Any, Any]]:
        """Return copies of the weights as NumPy arrays, in the order of `weights`."""
        return [np.array(v._eager_value().numpy()) for v in self.weights]

    def set_weights(self, weights: Any) -> None:
        """Set all weights from arrays, in the order of `weights`, or none on error.

        Args:
            weights: one array for each of `weights`.

        Raises:
            ArgumentError: if there are more or fewer arrays than weights.
            ShapeError: listing every array whose shape does not fit.
        """
        targets, weights = self.weights, list(weights)
        if len(targets) != len(weights):
            raise ArgumentError(
                f"{self.name}.set_weights: expected {len(targets)} arrays"
                f"{_shapes_of(targets)}; received {len(weights)}, of shapes "
                f"{[np.shape(value) for value in weights[:_SHOWN]]}"
            )
        mismatches = [
            f"{v.path} expected {v.shape}, received {np.shape(value)}"
            for v, value in zip(targets, weights, strict=True)
            if v.shape != tuple(np.shape(value))
        ]
        if mismatches:
            raise ShapeError(f"{self.name}.set_weights: {'; '.join(mismatches)}")
        assign_all(zip(targets, weights, strict=True))

    def count_params(self) -> int:
        """Return the number of elements of all weights."""
        if not self.built:
            raise NotBuiltError(
                f"{self.name}.count_params: the layer has no weights yet; call "
                "`build(input_shape)`, call it on data, or begin a Sequential with an "
                "Input"
            )
        return sum(v.size for v in self.weights)

    def save_own_variables(self, store: Any) -> None:
        """Save this layer's variables, without sublayers, to `store`.

        Args:
            store: a mapping that takes arrays: "0", "1", ... in order.
        """
        for i, variable in enumerate(self._own_variables()):
            store[str(i)] = variable

    def load_own_variables(self, store: Any) -> None:
        """Load this layer's variables, without sublayers, from `store`.

        Args:
            store: a mapping of arrays: "0", "1", ... in order.
        """
        targets = self._own_variables()
        if len(store.keys()) != len(targets):
            hint = "" if self.built else " (it is not built)"
            raise ArgumentError(
                f"{self.name}.load_own_variables: expected {len(targets)} variables, "
                f"{[v.name for v in targets]}{hint}; received {len(store.keys())}"
            )
        assign_all((variable, store[str(i)]) for i, variable in enumerate(targets))

    # --- losses -----------------------------------------------------------------------

    def add_loss(self, loss: Any) -> None:
        """Add a scalar, or several, to `losses`; use it in `call`.

        During shape inference nothing is added.

        Args:
            loss: a scalar tensor, or a list of them.
        """
        for x in tree.flatten(loss):
            if not is_tensor(x):
                raise ArgumentError(
                    f"{self.name}.add_loss: expected tensors; received {x!r}"
                )
            scope = state.overlay
            if isinstance(scope, StatelessScope) and scope.collect_losses:
                scope.add_loss(convert(x))
            elif not context.symbolic:
                self._losses.append((state.overlay, convert(x)))
                with_losses.add(self)

    @property
    def losses(self) -> list[Tensor]:
        """Return the losses of the last call, with sublayers, and weight penalties."""
        layers = self._flatten_layers()
        added = [
            loss
            for layer in layers
            for overlay, loss in layer._losses
            if overlay is state.overlay
        ]
        return added + [
            v.regularizer(v) for v in self.trainable_weights if v.regularizer
        ]

    def _clear_losses(self) -> None:
        for layer in self._flatten_layers():
            layer._losses.clear()
            with_losses.discard(layer)

    def _regularize_activity(self, outputs: Any) -> None:
        for output in tree.flatten(outputs):
            if isinstance(output, Tensor):
                loss = self.activity_regularizer(output)
                if output.ndim:
                    loss = divide(loss, max(output.shape[0], 1))
                self.add_loss(loss)


def owned_state(owner: StateOwner, kind: type[T]) -> list[T]:
    """Return the state of one kind that a layer holds directly, in order of arrival."""
    return [x for x, _ in owner._in_order() if isinstance(x, kind)]


def owned_layers(owner: StateOwner) -> list[StateOwner]:
    """Return the layers that a layer holds directly, in order of arrival."""
    return owner._sublayers()


# Types of state, and the types that can hold state.
_STATE = Variable, StateOwner, Metric, SeedGenerator
_HOLDERS = *_STATE, *CONTAINERS
