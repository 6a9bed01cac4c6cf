"""Models and objects in files and configs, under the names of `keras.saving`."""

from toolkit.models.importing.loading import load_onnx
from toolkit.models.saving.file_editor import KerasFileEditor
from toolkit.models.saving.weights import load_weights, save_weights
from toolkit.models.saving.whole_models import load_model, save_model
from toolkit.reading.budget import load_budget, set_load_budget
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

__all__ = [
    "CustomObjectScope",
    "KerasFileEditor",
    "custom_object_scope",
    "deserialize_keras_object",
    "get_custom_objects",
    "get_registered_name",
    "get_registered_object",
    "load_budget",
    "load_model",
    "load_onnx",
    "load_weights",
    "register_keras_serializable",
    "save_model",
    "save_weights",
    "serialize_keras_object",
    "set_load_budget",
]
