"""Objects as dicts of plain values, and back: Keras 3's config format.

An object becomes `{"module", "class_name", "config", "registered_name"}`, its
constructor's arguments in "config". Reading a config never imports a module that it
names and never runs code from it. A config can only name

- public classes and functions of the namespaces listed in `places`, which are looked
  up by name when they are first needed (nothing registers itself: what a namespace's
  `__init__` exports can be named), and
- what the user registered with `register_keras_serializable`, or passes as
  `custom_objects`.

Modules are written, and read, under their Keras names: "keras.layers".
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
