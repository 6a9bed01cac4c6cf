"""`tf.keras`: the names of toolkit, and the modules that only TensorFlow has.

Modules can be imported by their dotted names, as in
`from toolkit.compat.tensorflow.keras.layers import Dense`.
"""

from __future__ import annotations

import sys
from functools import wraps
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import toolkit
from toolkit.compat.tensorflow.data import Dataset
from toolkit.compat.tensorflow.keras.bases import BASES
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
# Module -> older names of what is in it.
_OLDER = {"losses": _SHORT, "metrics": _SHORT}
# Functions whose data sets become those of `tf.data`.
_DATASETS = (
    *("audio_dataset_from_directory", "image_dataset_from_directory"),
    *("split_dataset", "text_dataset_from_directory", "timeseries_dataset_from_array"),
)
# Modules that are not simply those of toolkit.
_ALIASED = (*_OLDER, "layers", "models", "preprocessing", "utils")
# Modules that have more than those of toolkit, and where that is.
_ADDED = {
    "losses": "older.reductions",
    "preprocessing.image": "older.image_generators",
    "preprocessing.sequence": "older.series",
    "preprocessing.text": "older.texts",
}
# What Keras 2 had, and what to use instead.
_INSTEAD = {
    "estimator": "train with `fit`, or see toolkit.wrappers for scikit-learn",
    "experimental": "see the names without it",
}
__version__ = toolkit.__version__
__all__ = sorted({*toolkit.__all__, *_OWN} - {"__version__"})


class _Alias(ModuleType):
    """A module of toolkit under its name in `tf.keras`."""

    def __getattr__(self, name: str) -> Any:
        own = self.__name__.removeprefix(f"{__name__}.")
        if own in _INSTEAD and not name.startswith("__"):
            raise _not_there(own, _INSTEAD[own])
        if f"{own}.{name}" in _ADDED:
            return import_module(f"{self.__name__}.{name}")
        name, real = _OLDER.get(own, {}).get(name, name), self.__dict__["_real"]
        if own in _ADDED and not hasattr(real, name):
            real = import_module(f"{__name__}.{_ADDED[own]}")
        found = getattr(real, name)
        return _of_tensors(found) if name in _DATASETS else _shown(found)

    def __dir__(self) -> list[str]:
        return dir(self._real)


class _Finder(MetaPathFinder, Loader):
    """Finds modules of toolkit under their names in `tf.keras`."""

    prefix = f"{__name__}."

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(self.prefix):
            return None
        own = name.removeprefix(self.prefix)
        try:
            real = toolkit if own in _INSTEAD else import_module(f"toolkit.{own}")
        except ModuleNotFoundError:
            if own not in _ADDED:
                return None
            real = import_module(f"{__name__}.{_ADDED[own]}")
        spec = ModuleSpec(name, self, is_package=True)
        spec.loader_state = real
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        alias = _Alias(spec.name, spec.loader_state.__doc__)
        alias.__dict__["_real"] = spec.loader_state
        alias.__path__ = []  # not that of toolkit: its files are not to run again
        return alias

    def exec_module(self, module: ModuleType) -> None:
        """The module of toolkit has run already."""


if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
    sys.meta_path.append(_Finder())


def __getattr__(name: str) -> Any:
    if name in _OWN or name in _ALIASED:
        return import_module(f"{__name__}.{name}")
    if name in toolkit.__all__:
        return _shown(getattr(toolkit, name))
    if name in _INSTEAD:
        raise _not_there(name, _INSTEAD[name])
    raise AttributeError(f"module 'tf.keras' has no attribute {name!r}")


def _shown(found: Any) -> Any:
    """What stands for a class or function of toolkit here; mostly itself."""
    return BASES.get(found, found) if isinstance(found, type) else found


def _of_tensors(function: Any) -> Any:
    """A function of toolkit whose data sets are to be those of `tf.data`."""

    def wrapped(dataset: Any) -> Any:
        if not isinstance(dataset, toolkit.data.Dataset):
            return dataset
        made = Dataset(dataset)
        for fact in ("class_names", "file_paths"):
            if hasattr(dataset, fact):
                setattr(made, fact, getattr(dataset, fact))
        return made

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        if isinstance(found, (list, tuple)):
            return type(found)(map(wrapped, found))
        return wrapped(found)

    return call


def _not_there(name: str, instead: str) -> UnsupportedError:
    return UnsupportedError(f"tf.keras.{name} is not supported: {instead}")


def __dir__() -> list[str]:
    return __all__
