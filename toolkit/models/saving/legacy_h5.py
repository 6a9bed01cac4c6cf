"""The `.h5` files of whole models, Keras's format before `.keras` files.

Layers are matched by order, or by name. Each has the attribute "weight_names", the list
of its datasets: trainable weights first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit import settings
from toolkit.console.frames import warn
from toolkit.core.convert import adopt
from toolkit.core.initial_values import defer_initial_values
from toolkit.core.variable import assign_all
from toolkit.errors import ModelFileError
from toolkit.files.staging import replace_file
from toolkit.layers.tracking import unique
from toolkit.models.saving.h5_files import created, write_array
from toolkit.models.saving.keras_2 import (
    is_keras_2,
    load_optimizer_state,
    take_layer_summaries,
)
from toolkit.models.saving.legacy_config import (
    compile_arguments,
    model_from_legacy,
    training_config,
)
from toolkit.models.saving.mismatches import Mismatch, report_mismatches
from toolkit.optimizers.accumulators import accepts_saved, saved_value
from toolkit.reading.file_errors import convert_errors
from toolkit.reading.hdf5 import Dataset, check_datasets, convert_h5py_errors, open_file
from toolkit.reading.text import parse_json
from toolkit.release import VERSION
from toolkit.serialization import ObjectSharingScope

if TYPE_CHECKING:
    from toolkit.layers.layer import Layer
    from toolkit.models.model import Model

# bytes of an attribute; longer values are split into name0, name1, ...
_HEADER_LIMIT = 64_512
_TOP_LEVEL = "top_level_model_weights"


# --- writing --------------------------------------------------------------------------


def save_legacy(model: Any, path: Path, include_optimizer: bool) -> None:
    """Write a whole model to a `.h5` file, atomically."""
    with ObjectSharingScope():
        config = {"class_name": type(model).__name__, "config": model.get_config()}
    attributes: dict[str, Any] = {
        "keras_version": "3.15.1",  # of the format
        "toolkit_version": VERSION,
        "backend": settings.backend(),
        "model_config": _json(config),
    }
    optimizer = getattr(model, "optimizer", None) if include_optimizer else None
    if optimizer is not None and model.compiled:
        attributes["training_config"] = _json(training_config(model))

    def write(temporary: Path) -> None:
        with created(temporary) as file:
            file.attrs.update(attributes)
            _write_layers(file.create_group("model_weights"), model)
            if optimizer is not None and optimizer.variables:
                _write_variables(
                    file.create_group("optimizer_weights"), optimizer.variables
                )

    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, write)


def _json(members: Any) -> bytes:
    return json.dumps(members).encode()


def _write_layers(group: Any, model: Model) -> None:
    layers = unique(model.layers)
    _set_names(group, "layer_names", [layer.name for layer in layers])
    group.attrs["backend"] = settings.backend().encode()
    group.attrs["keras_version"] = b"3.15.1"
    for layer in sorted(layers, key=lambda layer: layer.name):
        _write_variables(group.create_group(layer.name), _ordered(layer))
    _write_variables(group.create_group(_TOP_LEVEL), _top_level(model))


def _write_variables(group: Any, variables: list[Any]) -> None:
    names = [variable.path for variable in variables]
    if len(set(names)) != len(names):  # two deeply nested layers with one name
        names = [f"{name}_{i}" for i, name in enumerate(names)]
    _set_names(group, "weight_names", names)
    for name, variable in zip(names, variables, strict=True):
        write_array(group, name, saved_value(variable))


def _set_names(group: Any, key: str, names: list[str]) -> None:
    encoded = np.asarray([name.encode() for name in names])
    count = 1
    while any(c.nbytes > _HEADER_LIMIT for c in np.array_split(encoded, count)):
        count += 1
    if count == 1:
        group.attrs[key] = [name.encode() for name in names]
        return
    for i, chunk in enumerate(np.array_split(encoded, count)):
        group.attrs[f"{key}{i}"] = chunk


def _ordered(layer: Layer) -> list[Any]:
    return [*layer.trainable_weights, *layer.non_trainable_weights]


def _top_level(model: Model) -> list[Any]:
    """Return the weights of the model itself, not of its layers."""
    variables = model._own_variables()
    return sorted(variables, key=lambda variable: not variable.trainable)


# --- reading --------------------------------------------------------------------------


def load_legacy(path: Path, custom_objects: Any, compile: bool) -> Any:
    """Load the model in a `.h5` file."""
    with open_file(path) as (file, datasets), defer_initial_values():
        description = _attribute(file, "model_config")
        if description is None:
            raise ModelFileError("No model config found in the file")
        check_datasets(datasets)
        is_old = is_keras_2(description, _version(file), str(path))
        model = model_from_legacy(description, custom_objects, is_old)
        root = _Group(file, datasets)
        if "model_weights" not in root:
            raise ModelFileError("group 'model_weights' is missing")
        _load_in_order(model, root.inner("model_weights"), False)
        training = _attribute(file, "training_config") if compile else None
        if training is not None:
            with convert_errors("training_config"):
                model.compile(**compile_arguments(training, custom_objects, is_old))
            if "optimizer_weights" in root:
                _load_optimizer(model, root.inner("optimizer_weights"), is_old)
    return model


def load_legacy_weights(
    model: Any, path: Path, skip_mismatch: bool, by_name: bool
) -> None:
    """Load the weights of layers from a `.h5` file of a model, or of its weights."""
    with open_file(path) as (file, datasets):
        root = _Group(file, datasets)
        if not root.has_names("layer_names") and "model_weights" in root:
            root = root.inner("model_weights")
        load = _load_by_name if by_name else _load_in_order
        load(model, root, skip_mismatch)


def _attribute(item: Any, name: str) -> Any:
    """Return a decoded JSON attribute, or None."""
    with convert_h5py_errors(name):
        text = item.attrs.get(name)
    if text is None:
        return None
    if not isinstance(text, (str, bytes)):
        raise ModelFileError(f"{name}: expected JSON; received {type(text).__name__}")
    return parse_json(text, name)


def _version(file: Any) -> Any:
    """Return the version of Keras in a file, or None."""
    with convert_h5py_errors("keras_version"):
        version = file.attrs.get("keras_version")
        if version is None and "model_weights" in file:
            version = file["model_weights"].attrs.get("keras_version")
        return version


class _Group:
    """Group with its lists of names; all datasets are already checked."""

    def __init__(self, group: Any, datasets: dict[str, Dataset]) -> None:
        self._group, self._datasets = group, datasets

    def names(self, key: str) -> list[str]:
        """Return a list of names, possibly split over several attributes."""
        with convert_h5py_errors(key):
            attributes = self._group.attrs
            keys = [key] if key in attributes else []
            while not keys or (keys != [key] and f"{key}{len(keys)}" in attributes):
                if f"{key}{len(keys)}" not in attributes:
                    break
                keys.append(f"{key}{len(keys)}")
            values = [value for attribute in keys for value in attributes[attribute]]
            return [v.decode() if isinstance(v, bytes) else str(v) for v in values]

    def has_names(self, key: str) -> bool:
        """Return whether there is a list of names."""
        with convert_h5py_errors(key):
            return key in self._group.attrs

    def inner(self, name: str) -> _Group:
        """Return the subgroup of this name."""
        with convert_h5py_errors(self._group.name):
            if name not in self:
                raise ModelFileError(f"group {name!r} is missing")
            return _Group(self._group[name], self._datasets)

    def __contains__(self, name: str) -> bool:
        with convert_h5py_errors(self._group.name):
            cls = self._group.get(name, getclass=True)
            return cls is not None and hasattr(cls, "create_group")

    def weights(self) -> list[Dataset]:
        """Return the datasets of a layer, in order."""
        root = self._group.name.strip("/")
        paths = [f"{root}/{n}" for n in self.names("weight_names")]
        missing_paths = [path for path in paths if path not in self._datasets]
        if missing_paths:
            raise ModelFileError(f"array {missing_paths[0]!r} is missing")
        return [self._datasets[path] for path in paths]


Pairs = list[tuple[Any, Dataset]]


def _load_in_order(model: Model, group: _Group, skip_mismatch: bool) -> None:
    layers = [layer for layer in unique(model.layers) if _ordered(layer)]
    stored = [
        (name, group.inner(name).weights()) for name in group.names("layer_names")
    ]
    stored = [(name, weights) for name, weights in stored if weights]
    stored = take_layer_summaries(model, stored)
    if len(stored) != len(layers):
        raise ModelFileError(
            f"Layer count mismatch: expected {len(layers)} layers with weights; the "
            f"file has {len(stored)}"
        )
    pairs: Pairs = []
    for layer, (name, weights) in zip(layers, stored, strict=True):
        pairs += _pair(
            _ordered(layer), weights, f"{layer.name!r} ({name!r} in the file)"
        )
    if _TOP_LEVEL in group:
        top = group.inner(_TOP_LEVEL).weights()
        pairs += _pair(_top_level(model), top, "the model itself")
    _assign(pairs, skip_mismatch)


def _load_by_name(model: Model, group: _Group, skip_mismatch: bool) -> None:
    pairs: Pairs = []
    for name in group.names("layer_names"):
        weights = group.inner(name).weights()
        for layer in unique(model.layers):
            if layer.name == name:
                pairs += _pair(_ordered(layer), weights, repr(name), skip_mismatch)
    if _TOP_LEVEL in group:
        top = group.inner(_TOP_LEVEL).weights()
        pairs += _pair(_top_level(model), top, "the model itself", skip_mismatch)
    _assign(pairs, skip_mismatch)


def _pair(
    variables: list[Any], stored: list[Dataset], label: str, skip_mismatch: bool = False
) -> Iterator[tuple[Any, Dataset]]:
    if len(variables) == len(stored):
        return zip(variables, stored, strict=True)
    message = (
        f"Weight count mismatch: expected {len(variables)} weights for {label}; the "
        f"file has {len(stored)}"
    )
    if not skip_mismatch:
        raise ModelFileError(message)
    warn(f"load_weights: {message}; these weights are unchanged")
    return iter(())


def _assign(pairs: Pairs, skip_mismatch: bool) -> None:
    """Read and assign weights after a check of all shapes."""
    wrong = [
        Mismatch(v.path, f"expected shape {tuple(v.shape)}; the file has {d.shape}")
        for v, d in pairs
        if tuple(v.shape) != d.shape
    ]
    report_mismatches(wrong, None if skip_mismatch else "Shape mismatch")
    assign_all((v, adopt(d.read())) for v, d in pairs if tuple(v.shape) == d.shape)


def _load_optimizer(model: Model, group: _Group, is_old: bool) -> None:
    if is_old:
        is_by_slot = group.names("weight_names")[:1] != ["iteration:0"]
        load_optimizer_state(model, group.weights(), is_by_slot)
        return
    optimizer = model.optimizer
    optimizer.build(model.trainable_variables)
    stored = group.weights()
    variables = optimizer.variables
    fits = len(variables) == len(stored) and all(
        accepts_saved(v, d.shape) for v, d in zip(variables, stored, strict=True)
    )
    if not fits:
        warn(
            "load_model: the file contains the state of another optimizer; the state "
            f"of {optimizer.name!r} is reset"
        )
        return
    optimizer.set_weights([d.read() for d in stored])
