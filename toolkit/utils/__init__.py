"""Utilities for models: downloads, labels, batches, seeds, configs."""

from __future__ import annotations

from toolkit.config import (
    disable_interactive_logging,
    enable_interactive_logging,
    is_interactive_logging_enabled,
)
from toolkit.definitions.namespaces import lazy_namespace
from toolkit.utils.config import Config
from toolkit.utils.files import get_file
from toolkit.utils.numerical import normalize, to_categorical

# Imported on first use: data sets do not need the core.
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

__all__ = [
    *("Config", "bounding_boxes", "get_file", "legacy", "normalize", "to_categorical"),
    *("disable_interactive_logging", "enable_interactive_logging"),
    "is_interactive_logging_enabled",
    *(name for names in _LATE.values() for name in names),
]

__getattr__, __dir__ = lazy_namespace(__name__, _LATE, ("bounding_boxes", "legacy"))
