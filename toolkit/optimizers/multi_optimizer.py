"""MultiOptimizer: different optimizers for different variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any

from toolkit import serialization
from toolkit.console.frames import warn
from toolkit.core.variable import Variable
from toolkit.errors import ArgumentError, ArgumentTypeError
from toolkit.optimizers.loss_scale_optimizer import LossScaleOptimizer
from toolkit.optimizers.optimizer import Optimizer


class OptimizerMap(MutableMapping[str, Optimizer]):
    """Map from the paths of variables to optimizers.

    A key is a path, or a regular expression that matches the whole path. Variables
    without a matching key use the default.

    Args:
        default_optimizer: for all other variables.
        optimizer_map: a dict of path -> optimizer, the initial entries.

    Raises:
        ArgumentError: from `map[path]`, if several expressions match.

    Example:
        >>> from toolkit import optimizers
        >>> chosen = optimizers.OptimizerMap(optimizers.Adam())
        >>> chosen["encoder/.*"] = optimizers.SGD()
        >>> type(chosen["encoder/dense/kernel"]).__name__
        'SGD'
        >>> type(chosen["decoder/dense/kernel"]).__name__
        'Adam'
    """

    def __init__(
        self,
        default_optimizer: Optimizer,
        optimizer_map: dict[str, Optimizer] | None = None,
    ) -> None:
        if not isinstance(default_optimizer, Optimizer):
            raise ArgumentTypeError(
                "OptimizerMap: expected default_optimizer to be an optimizer; "
                f"received {default_optimizer!r}"
            )
        if optimizer_map is not None and not isinstance(optimizer_map, dict):
            raise ArgumentTypeError(
                "OptimizerMap: expected optimizer_map to be a dict of path -> "
                f"optimizer; received {optimizer_map!r}"
            )
        self.default_optimizer = default_optimizer
        self._optimizers: dict[str, Optimizer] = {}
        for path, optimizer in (optimizer_map or {}).items():
            self[path] = optimizer

    def __getitem__(self, path: str) -> Optimizer:
        if path in self._optimizers:
            return self._optimizers[path]
        matching = [key for key in self._optimizers if re.fullmatch(key, path)]
        if len(matching) > 1:
            raise ArgumentError(
                f"OptimizerMap: expected one optimizer for the variable {path!r}; "
                f"it matches {', '.join(map(repr, matching))}"
            )
        return self._optimizers[matching[0]] if matching else self.default_optimizer

    def __setitem__(self, path: str, optimizer: Optimizer) -> None:
        if not isinstance(path, str):
            raise ArgumentError(f"OptimizerMap: expected a string; received {path!r}")
        if path in self._optimizers:
            raise ArgumentError(f"OptimizerMap: {path!r} already has an optimizer")
        self._optimizers[path] = _plain(optimizer, "OptimizerMap")

    def __delitem__(self, path: str) -> None:
        del self._optimizers[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._optimizers)

    def __len__(self) -> int:
        return len(self._optimizers)

    def __call__(self, variable: Variable) -> Optimizer:
        """Return the optimizer of a variable.

        Args:
            variable: the variable.
        """
        return self[variable.path]

    def warn_of_unused_keys(self, variables: Iterable[Variable]) -> None:
        """Warn if a key matches no variable, so that the default updates all.

        Args:
            variables: the variables to update.
        """
        paths = [variable.path for variable in variables]
        for key in self._optimizers:
            if not any(key == path or re.fullmatch(key, path) for path in paths):
                examples = ", ".join(map(repr, paths[-3:]))
                warn(
                    f"OptimizerMap: the key {key!r} matches no variable. A key must "
                    f"match the complete path, such as {examples}"
                )

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "default_optimizer": serialization.serialize_keras_object(
                self.default_optimizer
            ),
            "optimizer_map": serialization.serialize_keras_object(self._optimizers),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Build a map from the result of `get_config`.

        Args:
            config: the result of `get_config`.
            custom_objects: a dict from names to classes that the config contains.

        Returns:
            The map.
        """
        return cls(
            *(
                serialization.deserialize_keras_object(config[name], custom_objects)
                for name in ("default_optimizer", "optimizer_map")
            )
        )


def _plain(optimizer: Optimizer, owner: str) -> Optimizer:
    """Return an optimizer that can be part of a MultiOptimizer."""
    if isinstance(optimizer, (LossScaleOptimizer, MultiOptimizer)):
        kind = type(optimizer).__name__
        raise ArgumentError(
            f"{owner}: optimizer cannot be {kind}. It must be a plain optimizer; "
            "wrap the MultiOptimizer in a LossScaleOptimizer instead"
        )
    if not isinstance(optimizer, Optimizer):
        raise ArgumentError(f"{owner}: expected an optimizer; received {optimizer!r}")
    return optimizer


class MultiOptimizer(Optimizer):
    """Optimizer that assigns each variable to one of several optimizers.

    Each of them has a separate learning rate, clipping and decay.

    Args:
        optimizer_map: an `OptimizerMap`, or a function from a variable to its
            optimizer.
        loss_scale_factor: the factor of the loss; it replaces the factors of the
            optimizers.
        name: the name; the class name if None.

    Example:
        >>> from toolkit import optimizers
        >>> chosen = optimizers.OptimizerMap(optimizers.Adam())
        >>> chosen[".*/embeddings"] = optimizers.SGD(0.1)
        >>> optimizer = optimizers.MultiOptimizer(chosen)
        >>> [float(each.learning_rate) for each in optimizer.optimizers]
        [0.10000000149011612, 0.0010000000474974513]
    """

    def __init__(
        self,
        optimizer_map: OptimizerMap | Callable[[Variable], Optimizer],
        loss_scale_factor: float | None = None,
        name: str | None = None,
    ) -> None:
        self.optimizers: list[Optimizer] = []
        if not isinstance(optimizer_map, OptimizerMap) and not callable(optimizer_map):
            raise ArgumentTypeError(
                "MultiOptimizer: expected optimizer_map to be an OptimizerMap or a "
                f"function of a Variable; received {optimizer_map!r:.80}"
            )
        super().__init__(0.0, loss_scale_factor=loss_scale_factor, name=name)
        self.optimizer_map = optimizer_map
        if isinstance(optimizer_map, OptimizerMap):
            for optimizer in optimizer_map.values():
                self._number(optimizer)
            self._number(optimizer_map.default_optimizer)

    def _number(self, optimizer: Optimizer) -> int:
        """Return the index of an optimizer in the list; append it if it is new."""
        for i, existing in enumerate(self.optimizers):
            if existing is optimizer:
                return i
        self.optimizers.append(_plain(optimizer, self.name))
        optimizer.loss_scale_factor = self.loss_scale_factor
        return len(self.optimizers) - 1

    @property
    def variables(self) -> list[Variable]:
        """Return iteration and rate, then the variables of each optimizer."""
        inner = [v for optimizer in self.optimizers for v in optimizer.variables]
        return [*self._variables, *inner]

    @property
    def learning_rate(self) -> Any:
        raise AttributeError(_NO_RATE.format(self.name))

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        raise AttributeError(_NO_RATE.format(self.name))

    @property
    def iterations(self) -> Any:
        """Return the number of updates of the optimizer that updates most often."""
        counts = [x.gradient_accumulation_steps or 1 for x in self.optimizers]
        steps = min(counts, default=1)
        return self._iterations if steps == 1 else self._iterations // steps

    @property
    def loss_scale_factor(self) -> float | None:
        """Return the factor of the loss."""
        return self._loss_scale_factor

    @loss_scale_factor.setter
    def loss_scale_factor(self, value: float | None) -> None:
        self._loss_scale_factor = value
        for optimizer in self.optimizers:
            optimizer.loss_scale_factor = value

    def build(self, variables: Iterable[Variable]) -> None:
        """Assign the variables; each optimizer builds its variables.

        Args:
            variables: the variables that the optimizers update.
        """
        if self.built:
            return
        self._trainable_variables = list(variables)
        self._index()
        optimizers = [self.optimizer_map(v) for v in self._trainable_variables]
        if isinstance(self.optimizer_map, OptimizerMap):
            self.optimizer_map.warn_of_unused_keys(self._trainable_variables)
        self._numbers = [self._number(optimizer) for optimizer in optimizers]
        for optimizer, group in zip(
            self.optimizers, self._groups(self._trainable_variables), strict=True
        ):
            if group:
                optimizer.build(group)
        self.built = True

    def _groups(self, variables: Iterable[Variable]) -> list[list[Variable]]:
        """Return the variables of each optimizer."""
        groups: list[list[Variable]] = [[] for _ in self.optimizers]
        for v in variables:
            groups[self._numbers[self._get_variable_index(v)]].append(v)
        return groups

    def apply(
        self,
        grads: Sequence[Any],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> None:
        grads, variables = self._matched(grads, trainable_variables)
        if not grads:
            return
        grad_of = {id(v): g for v, g in zip(variables, grads, strict=True)}
        if all(g is None for g in grads):
            raise ArgumentError(
                f"{self.name}.apply: No gradients provided for any variable. Compute "
                "the loss inside `with GradientTape() as tape:`, from these variables "
                "and with functions of toolkit.ops"
            )
        for optimizer, group in zip(
            self.optimizers, self._groups(variables), strict=True
        ):
            group_grads = [grad_of[id(v)] for v in group]
            if any(g is not None for g in group_grads):
                optimizer.apply(group_grads, group)
        self._iterations.assign_add(1)

    def finalize_variable_values(self, var_list: Iterable[Variable]) -> None:
        for optimizer, group in zip(
            self.optimizers, self._groups(var_list), strict=True
        ):
            optimizer.finalize_variable_values(group)

    def get_config(self) -> dict[str, Any]:
        return {
            "optimizer_map": serialization.serialize_keras_object(self.optimizer_map),
            "loss_scale_factor": self.loss_scale_factor,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        optimizers = serialization.deserialize_keras_object(
            config["optimizer_map"], custom_objects
        )
        return cls(**{**config, "optimizer_map": optimizers})


_NO_RATE = "{}: each optimizer has a separate learning rate; see .optimizers"
