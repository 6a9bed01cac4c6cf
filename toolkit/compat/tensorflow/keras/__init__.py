"""`tf.keras`: the names of toolkit, and the modules that only TensorFlow has.

Modules can be imported by their dotted names, as in
`from toolkit.compat.tensorflow.keras.layers import Dense`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

import toolkit
from toolkit.compat.tensorflow.data import Dataset
from toolkit.compat.tensorflow.keras.bases import BASES
from toolkit.compat.tensorflow.module_aliases import Alias, AliasFinder
from toolkit.errors import UnsupportedError

_OWN = ("backend", "optimizers")
_SHORT = {
    "kld": "kl_divergence",
    "kullback_leibler_divergence": "kl_divergence",
    "logcosh": "log_cosh",
    "mae": "mean_absolute_error",
    "mape": "mean_absolute_percentage_error",
    "mse": "mean_squared_error",
    "msle": "mean_squared_logarithmic_error",
}
_SHORT |= {name.upper(): real for name, real in _SHORT.items() if len(name) < 5}
# Module -> legacy names and their current names.
_OLDER = {"losses": _SHORT, "metrics": _SHORT}
# Functions whose data sets become `tf.data` data sets.
_DATASETS = (
    *("audio_dataset_from_directory", "image_dataset_from_directory"),
    *("split_dataset", "text_dataset_from_directory", "timeseries_dataset_from_array"),
)
# Modules that differ from the modules of toolkit.
_ALIASED = (*_OLDER, "layers", "models", "preprocessing", "utils")
# Modules with further names, and the modules that define these.
_ADDED = {
    "losses": "legacy.reductions",
    "preprocessing.image": "legacy.image_generators",
    "preprocessing.sequence": "legacy.series",
    "preprocessing.text": "legacy.texts",
}
# Removed names of Keras 2, and their replacements.
_INSTEAD = {
    "estimator": "train with `fit`, or see toolkit.wrappers for scikit-learn",
    "experimental": "see the names without it",
}
__version__ = toolkit.__version__
__all__ = sorted({*toolkit.__all__, *_OWN} - {"__version__"})


class _Alias(Alias):
    """A module of toolkit under its name in `tf.keras`."""

    def __getattr__(self, name: str) -> Any:
        name_in_keras = self.__name__.removeprefix(f"{__name__}.")
        if name_in_keras in _INSTEAD and not name.startswith("__"):
            raise _removed_error(name_in_keras, _INSTEAD[name_in_keras])
        if f"{name_in_keras}.{name}" in _ADDED:
            return import_module(f"{self.__name__}.{name}")
        name, real = (
            _OLDER.get(name_in_keras, {}).get(name, name),
            self.__dict__["_real"],
        )
        if name_in_keras in _ADDED and not hasattr(real, name):
            real = import_module(f"{__name__}.{_ADDED[name_in_keras]}")
        value = getattr(real, name)
        return _wrap_datasets(value) if name in _DATASETS else _public_class(value)


def _find_module(name: str) -> Any:
    """Return the module for a name of `tf.keras`, or None."""
    try:
        return toolkit if name in _INSTEAD else import_module(f"toolkit.{name}")
    except ModuleNotFoundError:
        if name not in _ADDED:
            return None
        return import_module(f"{__name__}.{_ADDED[name]}")


AliasFinder(__name__, _find_module, _Alias).install()


def __getattr__(name: str) -> Any:
    if name in _OWN or name in _ALIASED:
        return import_module(f"{__name__}.{name}")
    if name in toolkit.__all__:
        return _public_class(getattr(toolkit, name))
    if name in _INSTEAD:
        raise _removed_error(name, _INSTEAD[name])
    raise AttributeError(f"module 'tf.keras' has no attribute {name!r}")


def _public_class(value: Any) -> Any:
    """Return the public class for a class of toolkit; most classes do not change."""
    return BASES.get(value, value) if isinstance(value, type) else value


def _wrap_datasets(function: Callable[..., Any]) -> Any:
    """Wrap a function of toolkit so that its data sets are `tf.data` data sets."""

    def wrapped(dataset: Any) -> Any:
        if not isinstance(dataset, toolkit.data.Dataset):
            return dataset
        result = Dataset(dataset)
        for fact in ("class_names", "file_paths"):
            if hasattr(dataset, fact):
                setattr(result, fact, getattr(dataset, fact))
        return result

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if isinstance(result, (list, tuple)):
            return type(result)(map(wrapped, result))
        return wrapped(result)

    return call


def _removed_error(name: str, alternative: str) -> UnsupportedError:
    return UnsupportedError(f"tf.keras.{name} is not supported: {alternative}")


def __dir__() -> list[str]:
    return __all__
