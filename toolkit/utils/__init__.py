"""Helpers around models: files from the network, labels, batches, seeds, configs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from toolkit.config import (
    disable_interactive_logging,
    enable_interactive_logging,
    is_interactive_logging_enabled,
)
from toolkit.utils.config import Config
from toolkit.utils.files import get_file
from toolkit.utils.numerical import normalize, to_categorical

if TYPE_CHECKING:
    from toolkit.backend import clear_session, is_keras_tensor, standardize_dtype
    from toolkit.models.functional.topology import get_source_inputs
    from toolkit.models.plotting import model_to_dot, plot_model
    from toolkit.models.training.data_adapters import (
        pack_x_y_sample_weight,
        unpack_x_y_sample_weight,
    )
    from toolkit.models.training.py_dataset import PyDataset
    from toolkit.random import set_random_seed
    from toolkit.serialization import (
        CustomObjectScope,
        custom_object_scope,
        deserialize_keras_object,
        get_custom_objects,
        get_registered_name,
        get_registered_object,
        register_keras_serializable,
        serialize_keras_object,
    )
    from toolkit.utils import bounding_boxes, legacy
    from toolkit.utils.audio import audio_dataset_from_directory
    from toolkit.utils.directories import (
        image_dataset_from_directory,
        text_dataset_from_directory,
    )
    from toolkit.utils.feature_space import FeatureSpace
    from toolkit.utils.images import array_to_img, img_to_array, load_img, save_img
    from toolkit.utils.progress import Progbar
    from toolkit.utils.sequences import pad_sequences, timeseries_dataset_from_array
    from toolkit.utils.splitting import split_dataset

    Sequence = PyDataset

__all__ = [
    "Config",
    "CustomObjectScope",
    "FeatureSpace",
    "Progbar",
    "PyDataset",
    "Sequence",
    "array_to_img",
    "audio_dataset_from_directory",
    "bounding_boxes",
    "clear_session",
    "custom_object_scope",
    "deserialize_keras_object",
    "disable_interactive_logging",
    "enable_interactive_logging",
    "get_custom_objects",
    "get_file",
    "get_registered_name",
    "get_registered_object",
    "get_source_inputs",
    "image_dataset_from_directory",
    "img_to_array",
    "is_interactive_logging_enabled",
    "is_keras_tensor",
    "legacy",
    "load_img",
    "model_to_dot",
    "normalize",
    "pack_x_y_sample_weight",
    "pad_sequences",
    "plot_model",
    "register_keras_serializable",
    "save_img",
    "serialize_keras_object",
    "set_random_seed",
    "split_dataset",
    "standardize_dtype",
    "text_dataset_from_directory",
    "timeseries_dataset_from_array",
    "to_categorical",
    "unpack_x_y_sample_weight",
]

# Loaded on first use: data sets need none of the core.
_LATE = {
    "toolkit.backend": ("clear_session", "is_keras_tensor", "standardize_dtype"),
    "toolkit.models.training.data_adapters": (
        "pack_x_y_sample_weight",
        "unpack_x_y_sample_weight",
    ),
    "toolkit.models.training.py_dataset": ("PyDataset", "Sequence"),
    "toolkit.models.functional.topology": ("get_source_inputs",),
    "toolkit.random": ("set_random_seed",),
    "toolkit.serialization": (
        "CustomObjectScope",
        "custom_object_scope",
        "deserialize_keras_object",
        "get_custom_objects",
        "get_registered_name",
        "get_registered_object",
        "register_keras_serializable",
        "serialize_keras_object",
    ),
    "toolkit.utils.audio": ("audio_dataset_from_directory",),
    "toolkit.utils.directories": (
        "image_dataset_from_directory",
        "text_dataset_from_directory",
    ),
    "toolkit.utils.feature_space": ("FeatureSpace",),
    "toolkit.utils.images": ("array_to_img", "img_to_array", "load_img", "save_img"),
    "toolkit.models.plotting": ("model_to_dot", "plot_model"),
    "toolkit.utils.progress": ("Progbar",),
    "toolkit.utils.splitting": ("split_dataset",),
    "toolkit.utils.sequences": ("pad_sequences", "timeseries_dataset_from_array"),
}
_MODULE_OF = {name: module for module, names in _LATE.items() for name in names}


def __getattr__(name: str):  # type: ignore[no-untyped-def]
    if name in ("bounding_boxes", "legacy"):
        return import_module(f"toolkit.utils.{name}")
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'toolkit.utils' has no attribute {name!r}")
