"""Optimizers, by their Keras names, and `get`, `serialize`, `deserialize`."""

from __future__ import annotations

from typing import Any

from toolkit import serialization
from toolkit.definitions.namespaces import lazy_namespace
from toolkit.errors import ArgumentError
from toolkit.optimizers import legacy, schedules
from toolkit.optimizers.adam import Adam, Adamax, AdamW, Lamb, LazyAdam, Nadam
from toolkit.optimizers.loss_scale_optimizer import LossScaleOptimizer
from toolkit.optimizers.matrix import Adafactor, Muon
from toolkit.optimizers.multi_optimizer import MultiOptimizer, OptimizerMap
from toolkit.optimizers.optimizer import Optimizer
from toolkit.optimizers.rmsprop import Adadelta, Adagrad, Ftrl, RMSprop
from toolkit.optimizers.schedule_free import ScheduleFreeAdamW
from toolkit.optimizers.sgd import SGD, Lion

__all__ = [
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Ftrl",
    "Lamb",
    "LazyAdam",
    "Lion",
    "LossScaleOptimizer",
    "MultiOptimizer",
    "Muon",
    "Nadam",
    "Optimizer",
    "OptimizerMap",
    "RMSprop",
    "ScheduleFreeAdamW",
    "deserialize",
    "get",
    "legacy",
    "schedules",
    "serialize",
]

_CLASSES = (
    *(SGD, Adadelta, Adagrad, Adam, AdamW, Adamax, Ftrl, Lamb, Lion, Nadam, RMSprop),
    *(Adafactor, LazyAdam, Muon, ScheduleFreeAdamW),
    *(LossScaleOptimizer, MultiOptimizer),
)
# Names are case-insensitive: "adam", "Adam", "RMSprop".
_BY_NAME = {cls.__name__.lower(): cls for cls in _CLASSES}


def serialize(optimizer: Optimizer) -> Any:
    """Return the config of an optimizer.

    Args:
        optimizer: an optimizer.

    Returns:
        A dict of the class and the config, without the state.

    Example:
        >>> from toolkit import optimizers
        >>> optimizers.serialize(optimizers.SGD(0.5))["class_name"]
        'SGD'
    """
    return serialization.serialize_keras_object(optimizer)


def deserialize(config: Any, custom_objects: Any = None) -> Any:
    """Build an optimizer from its config.

    Args:
        config: the result of `serialize`.
        custom_objects: a dict from names to classes that the config contains.

    Returns:
        The optimizer.

    Example:
        >>> from toolkit import optimizers
        >>> config = optimizers.serialize(optimizers.SGD(0.5))
        >>> float(optimizers.deserialize(config).learning_rate)
        0.5
    """
    if isinstance(config, dict) and str(config.get("class_name")).lower() in _BY_NAME:
        config = {
            **config,
            "class_name": _BY_NAME[config["class_name"].lower()].__name__,
        }
    return _checked(config, custom_objects)


def get(identifier: Any) -> Any:
    """Return the optimizer for a name, a config or an optimizer.

    Args:
        identifier: a name, a config, an optimizer, or None.

    Returns:
        An optimizer, or None.

    Example:
        >>> from toolkit import optimizers
        >>> type(optimizers.get("adam")).__name__
        'Adam'
    """
    if isinstance(identifier, str) and identifier.lower() in _BY_NAME:
        identifier = identifier.lower()
    return _checked(identifier)


def _checked(identifier: Any, custom_objects: Any = None) -> Any:
    optimizer = serialization.get(identifier, _BY_NAME, "optimizer", custom_objects)
    if optimizer is not None and not isinstance(optimizer, Optimizer):
        raise ArgumentError(
            f"optimizer: expected a name, a config or an optimizer; received {optimizer!r}"
        )
    return optimizer


__getattr__, __dir__ = lazy_namespace(__name__, {})
