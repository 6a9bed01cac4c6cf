"""Objects as dicts of plain values, and back: Keras 3's config format.

An object becomes `{"module", "class_name", "config", "registered_name"}`, its
constructor's arguments in "config". Reading a config never imports a module that it
names and never runs code from it. A config can only name

- public classes and functions of the namespaces listed in `_CLASSES` and
  `_FUNCTIONS` below, which are looked up by name when they are first needed (nothing
  registers itself: what a namespace's `__init__` exports can be named), and
- what the user registered with `register_keras_serializable`, or passes as
  `custom_objects`.

Modules are written, and read, under their Keras names: "keras.layers".
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.errors import ArgumentError, DTypeError, unknown_choice
from toolkit.naming import to_snake_case
from toolkit.registration import (
    CustomObjectScope,
    custom_object_scope,
    get_custom_objects,
    get_registered_name,
    get_registered_object,
    register_keras_serializable,
)
from toolkit.tensor import Tensor

__all__ = [
    "CustomObjectScope",
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

# Where a config's class may live, and where its function may.
_CLASSES = (
    *("layers", "models", "losses", "metrics", "optimizers", "optimizers.schedules"),
    *("initializers", "regularizers", "constraints", "dtype_policies", "random"),
)
_FUNCTIONS = ("activations", "losses", "metrics", "regularizers", "ops")

# These read configs themselves: no config may name them.
_READERS = ("deserialize", "get")

_PLAIN = (str, int, float, bool, type(None))


# --- the allow-list -------------------------------------------------------------------


def _exported(namespace: str, name: str) -> Any:
    """The public class or function `name` of a namespace, or None."""
    if not name.isidentifier() or name.startswith("_") or name in _READERS:
        return None
    try:
        module = import_module(f"toolkit.{namespace}")
        found = getattr(module, name, None)
    except (ImportError, AttributeError):
        return None
    if not getattr(found, "__module__", "").startswith("toolkit."):
        return None
    if inspect.isclass(found):
        return found if namespace in _CLASSES else None
    return found if namespace in _FUNCTIONS and callable(found) else None


def _public_place(obj: Any) -> tuple[str, str] | None:
    """The namespace and name under which a class or function is public, if it is."""
    allowed = _CLASSES if inspect.isclass(obj) else _FUNCTIONS
    path = str(obj.__module__).removeprefix("toolkit.")
    for namespace in sorted(allowed, key=len, reverse=True):
        inside = path == namespace or path.startswith(f"{namespace}.")
        if inside and _exported(namespace, obj.__name__) is obj:
            return namespace, obj.__name__
    return None


def _find(name: str, module: str | None, is_function: bool, custom_objects: Any) -> Any:
    """What a config names; an ArgumentError if it may not be named."""
    found = get_registered_object(name, custom_objects)
    if found is not None:
        return found
    namespaces = _FUNCTIONS if is_function else (*_CLASSES, *_FUNCTIONS)
    root, *inner = (module or "keras").split(".")
    inner = inner[1:] if inner[:1] == ["src"] else inner
    if root in ("keras", "toolkit"):
        for namespace in namespaces:
            if not inner or namespace.split(".")[0] == inner[0]:
                found = _exported(namespace, name)
                if found is not None:
                    return found
    kind = "function" if is_function else "class"
    raise ArgumentError(
        f"deserialize_keras_object: {kind} {name!r} of module {module!r} is neither "
        "public in toolkit nor registered; if it is yours, pass it in "
        "`custom_objects`, or decorate it with `register_keras_serializable()`"
    )


# --- objects to configs ---------------------------------------------------------------


def serialize_keras_object(obj: Any) -> Any:
    """An object as a dict of plain values that `deserialize_keras_object` reads.

    Args:
        obj: an object with `get_config`, a named function, a plain value, an array,
            or lists, tuples and dicts of them.

    Raises:
        ArgumentError: for lambdas and whatever else cannot be described.

    Example:
        >>> from toolkit import regularizers, serialization
        >>> serialization.serialize_keras_object(regularizers.L2(0.5))["config"]
        {'l2': 0.5}
    """
    if isinstance(obj, _PLAIN):
        return obj
    if isinstance(obj, (list, tuple)):
        return type(obj)([serialize_keras_object(x) for x in obj])
    if isinstance(obj, dict):
        return {key: serialize_keras_object(value) for key, value in obj.items()}
    special = _serialize_special(obj)
    if special is not None:
        return special
    if inspect.isclass(obj):
        place = _place_of(obj)
        return {**place, "class_name": "type", "config": obj.__name__}
    if isinstance(obj, types.FunctionType) or not hasattr(obj, "get_config"):
        return _serialize_function(obj)
    config = _place_of(type(obj))
    config["config"] = obj.get_config()
    for key in ("build_config", "compile_config"):
        method = getattr(obj, f"get_{key}", None)
        part = method() if method else None
        if part is not None:
            config[key] = serialize_keras_object(part)
    return config


# Where Keras has these classes, if not in the namespace of the same name.
_KERAS_MODULES = {
    "DTypePolicy": "keras",
    "Functional": "keras.src.models.functional",
    "Model": "keras",
    "Sequential": "keras",
}


def _place_of(cls: Any) -> dict[str, Any]:
    """The members of a config that say which class it is of."""
    place = _public_place(cls)
    if place is not None:
        module = _KERAS_MODULES.get(place[1]) or f"keras.{place[0]}"
        return {
            "module": module,
            "class_name": place[1],
            "config": None,
            "registered_name": None,
        }
    return {
        "module": cls.__module__,
        "class_name": cls.__name__,
        "config": None,
        "registered_name": get_registered_name(cls),
    }


def _serialize_function(obj: Any) -> dict[str, Any]:
    name = getattr(obj, "__name__", None)
    if name is None or name == "<lambda>":
        raise ArgumentError(
            "serialize_keras_object: expected an object with `get_config` or a named "
            f"function; received {obj!r}"
        )
    place = _public_place(obj)
    if place is not None:
        module, name = f"keras.{place[0]}", place[1]
    else:
        module, name = obj.__module__, get_registered_name(obj)
    return {
        "module": module,
        "class_name": "function",
        "config": name,
        "registered_name": name,
    }


def _serialize_special(obj: Any) -> Any:
    """Values that JSON lacks, tagged; None for anything else."""
    if isinstance(obj, np.generic):
        return obj.item()
    if isinstance(obj, np.dtype):
        return dtypes.name_of(obj)
    if isinstance(obj, np.ndarray):
        return _tagged("__numpy__", value=obj.tolist(), dtype=dtypes.name_of(obj.dtype))
    if isinstance(obj, Tensor):
        return _tagged("__tensor__", value=obj.tolist(), dtype=obj.dtype)
    if isinstance(obj, bytes):
        return _tagged("__bytes__", value=obj.decode("latin-1"))
    if isinstance(obj, slice):
        parts = {part: getattr(obj, part) for part in ("start", "stop", "step")}
        return _tagged("__slice__", **serialize_keras_object(parts))
    return _tagged("__ellipsis__") if obj is Ellipsis else None


def _tagged(tag: str, **config: Any) -> dict[str, Any]:
    return {"class_name": tag, "config": config}


# --- configs to objects ---------------------------------------------------------------


def deserialize_keras_object(
    config: Any,
    custom_objects: Mapping[str, Any] | None = None,
    safe_mode: bool = True,
    **options: Any,
) -> Any:
    """The object that `serialize_keras_object` described.

    Args:
        config: the config, or lists and dicts with configs in them.
        custom_objects: name -> class or function that the config may name too.
        safe_mode: only True: no setting makes toolkit run code from a config.

    Raises:
        ArgumentError: if the config names what it may not, or does not fit.

    Example:
        >>> from toolkit import regularizers, serialization
        >>> config = serialization.serialize_keras_object(regularizers.L1(0.5))
        >>> serialization.deserialize_keras_object(config).l1
        0.5
    """
    if not safe_mode:
        raise ArgumentError(
            "deserialize_keras_object: safe_mode=False would let a config run code, "
            "which toolkit never does; pass what it names in `custom_objects`"
        )
    module_objects = options.pop("module_objects", None)
    if options:
        raise ArgumentError(
            f"deserialize_keras_object: unknown arguments {sorted(options)}"
        )
    if isinstance(config, str):
        found = get_registered_object(config, custom_objects, module_objects)
        return config if found is None else found
    if isinstance(config, (list, tuple)):
        return type(config)(
            [deserialize_keras_object(x, custom_objects) for x in config]
        )
    if not isinstance(config, dict):
        return config
    if "class_name" not in config or "config" not in config:
        return {
            key: deserialize_keras_object(value, custom_objects)
            for key, value in config.items()
        }
    return _deserialize_dict(config, custom_objects, module_objects)


def _deserialize_dict(
    config: dict[str, Any], custom_objects: Any, module_objects: Any
) -> Any:
    name, inner = config["class_name"], config["config"]
    if not isinstance(name, str):
        raise ArgumentError(
            f"deserialize_keras_object: class_name must be a string; received {name!r}"
        )
    if name.startswith("__"):
        return _deserialize_special(name, inner)
    module, registered = config.get("module"), config.get("registered_name")
    if name in ("function", "type"):
        if not isinstance(inner, str):
            raise ArgumentError(
                f"deserialize_keras_object: a {name}'s config must be its name; "
                f"received {inner!r}"
            )
        return _find(inner, module, name == "function", custom_objects)
    cls = None
    if module is None and module_objects is not None:  # the format before Keras 3
        cls = module_objects.get(name) or module_objects.get(to_snake_case(name))
    if cls is None and isinstance(registered, str):
        cls = get_registered_object(registered, custom_objects)
    if cls is None:
        cls = _find(name, module, False, custom_objects)
    if not inspect.isclass(cls):
        return cls
    return _instance(cls, config, custom_objects)


def _instance(cls: Any, config: dict[str, Any], custom_objects: Any) -> Any:
    if not hasattr(cls, "from_config"):
        raise ArgumentError(
            f"deserialize_keras_object: class {cls.__name__} has no `from_config`"
        )
    with custom_object_scope(custom_objects):
        try:
            instance = cls.from_config(config["config"])
        except TypeError as error:
            raise ArgumentError(
                f"deserialize_keras_object: the config {config['config']!r} does not "
                f"fit {cls.__name__}: {error}"
            ) from error
        for key in ("build_config", "compile_config"):
            method = getattr(instance, f"{key.split('_')[0]}_from_config", None)
            if config.get(key) and method:
                method(config[key])
    return instance


def _deserialize_special(tag: str, config: Any) -> Any:
    if tag == "__lambda__":
        raise ArgumentError(
            "deserialize_keras_object: the config holds the code of a lambda, which "
            "toolkit never runs; use a named function and register it"
        )
    if tag in ("__numpy__", "__tensor__"):
        dtype = dtypes.numpy_dtype(dtypes.standardize(config["dtype"]))
        try:
            array = np.array(config["value"], dtype=dtype)
        except (TypeError, ValueError) as error:
            raise DTypeError(f"deserialize_keras_object: {tag}: {error}") from error
        return Tensor(array) if tag == "__tensor__" else array
    if tag == "__bytes__":
        return config["value"].encode("latin-1")
    if tag == "__slice__":
        return slice(*(config[part] for part in ("start", "stop", "step")))
    if tag == "__ellipsis__":
        return Ellipsis
    raise ArgumentError(f"deserialize_keras_object: unknown class_name {tag!r}")


# --- what the `get` functions of the namespaces share ---------------------------------


def names_of(*objects: Any) -> dict[str, Any]:
    """name -> object, under its own name and the snake-case one.

    Example:
        >>> from toolkit import regularizers, serialization
        >>> sorted(serialization.names_of(regularizers.L1))
        ['L1', 'l1']
    """
    names = {to_snake_case(obj.__name__): obj for obj in objects}
    return {**names, **{obj.__name__: obj for obj in objects}}


def get(
    identifier: Any,
    module_objects: Mapping[str, Any],
    what: str,
    custom_objects: Mapping[str, Any] | None = None,
) -> Any:
    """The object meant by a name, a config, a class, a function or the object itself.

    Args:
        identifier: what the user passed. None stays None.
        module_objects: name -> class or function that a string may mean.
        what: the argument, for messages: "loss".
        custom_objects: name -> object that a string or config may mean too.

    Returns:
        An instance where a class is meant, else the function.
    """
    if identifier is None:
        return None
    if isinstance(identifier, dict):
        found = deserialize_keras_object(
            identifier, custom_objects, module_objects=module_objects
        )
    elif isinstance(identifier, str):
        found = get_registered_object(identifier, custom_objects, module_objects)
        if found is None:
            raise unknown_choice(what, identifier, module_objects)
    else:
        found = identifier
    if inspect.isclass(found):
        found = found()
    if not callable(found) and not hasattr(found, "get_config"):
        raise ArgumentError(
            f"{what}: expected a name, a config, an object or a function; "
            f"received {identifier!r}"
        )
    return found
