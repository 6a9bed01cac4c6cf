"""Serialization of objects to dicts of plain values: the config format of Keras 3.

An object becomes `{"module", "class_name", "config", "registered_name"}`, with its
constructor's arguments in "config". Reading a config never imports a module that it
names and never runs code from it. A config can only name

- public classes and functions of the namespaces listed in `object_names`, which are
  looked up by name on first use (without registration: every name that a namespace's
  `__init__` exports is allowed), and
- objects that the user registered with `register_keras_serializable`, or passes as
  `custom_objects`.

Modules are written and read with their Keras names: "keras.layers".
"""

from toolkit.serialization.lookup import get, names_of
from toolkit.serialization.reading import deserialize_keras_object
from toolkit.serialization.registration import (
    CustomObjectScope,
    custom_object_scope,
    get_custom_objects,
    get_registered_name,
    get_registered_object,
    register_keras_serializable,
)
from toolkit.serialization.sharing import ObjectSharingScope
from toolkit.serialization.writing import serialize_keras_object

__all__ = [
    "CustomObjectScope",
    "ObjectSharingScope",
    "custom_object_scope",
    "deserialize_keras_object",
    "get",
    "get_custom_objects",
    "get_registered_name",
    "get_registered_object",
    "names_of",
    "register_keras_serializable",
    "serialize_keras_object",
]
