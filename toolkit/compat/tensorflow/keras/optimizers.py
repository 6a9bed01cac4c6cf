"""`tf.keras.optimizers`: toolkit's optimizers, which also accept `lr` and `decay`."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

from toolkit import optimizers as core
from toolkit.errors import ArgumentError
from toolkit.optimizers import Optimizer, schedules

# `from ...keras.optimizers.schedules import ...` finds toolkit's module.
__path__: list[str] = []


_Kind: Any = type(Optimizer)


class _Legacy(_Kind):
    """Wrapper that converts Keras 2 arguments and creates the optimizer of toolkit."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        optimizer_class = vars(cls).get("_core", cls)
        return type.__call__(
            optimizer_class, *args, **_convert_arguments(optimizer_class, args, kwargs)
        )

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(
            instance, vars(cls).get("_core", ())
        ) or type.__instancecheck__(cls, instance)


def _convert_arguments(
    optimizer_class: Any, args: Any, kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Convert arguments of Keras 2 to current arguments.

    `lr` is the learning rate; with `decay` it is lr / (1 + decay * iterations), and an
    `epsilon` of None is the default.
    """
    if "lr" in kwargs:
        if args or "learning_rate" in kwargs:
            raise ArgumentError(
                f"{optimizer_class.__name__}: lr and learning_rate are the same"
            )
        kwargs["learning_rate"] = kwargs.pop("lr")
    if kwargs.get("epsilon", 0) is None:
        del kwargs["epsilon"]
    decay = kwargs.pop("decay", None)
    if not decay:
        return kwargs
    default = inspect.signature(optimizer_class).parameters["learning_rate"].default
    rate = args[0] if args else kwargs.pop("learning_rate", default)
    if args or not isinstance(rate, (int, float)):
        raise ArgumentError(
            f"{optimizer_class.__name__}: decay needs a number as the keyword "
            f"learning_rate; received {rate!r}"
        )
    kwargs["learning_rate"] = schedules.InverseTimeDecay(rate, 1, decay)
    return kwargs


def _make_class(name: str) -> Any:
    optimizer_class = getattr(core, name)
    members = {
        "_core": optimizer_class,
        "__doc__": optimizer_class.__doc__,
        "__module__": __name__,
    }
    return _Legacy(name, (optimizer_class,), members)


_names = [
    name
    for name in core.__all__
    if inspect.isclass(getattr(core, name))
    and name
    not in ("Optimizer", "LossScaleOptimizer", "MultiOptimizer", "OptimizerMap")
]
globals().update({name: _make_class(name) for name in _names})
LossScaleOptimizer, MultiOptimizer = core.LossScaleOptimizer, core.MultiOptimizer
deserialize, get, serialize = core.deserialize, core.get, core.serialize
legacy: SimpleNamespace = SimpleNamespace(
    **{name: globals()[name] for name in _names}, Optimizer=Optimizer
)
experimental = legacy
