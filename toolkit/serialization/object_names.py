"""Allow-list: the names that a config may contain, and names of objects."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from toolkit.errors import ArgumentError, ArgumentTypeError
from toolkit.serialization.registration import (
    get_custom_objects,
    get_registered_name,
    get_registered_object,
)

# Only one class of these namespaces is allowed in configs.
_ONLY_CLASS = {
    "utils": "FeatureSpace",
    "applications.convnext": "LayerScale",
    "applications.inception_resnet_v2": "CustomScaleLayer",
    "applications.nasnet": "ParityPadding",
}
# Namespaces for the class of a config, and for its function.
_CLASS_NAMESPACES = (
    *("layers", "models", "losses", "metrics", "optimizers", "optimizers.schedules"),
    *("initializers", "regularizers", "constraints", "dtype_policies", "random"),
    *("distillation", "quantizers", *_ONLY_CLASS),
)
_FUNCTION_NAMESPACES = (
    *("activations", "losses", "metrics", "initializers", "regularizers"),
    *("constraints", "ops"),
)

# These read configs or files themselves: no config may name them.
_FORBIDDEN_NAMES = ("deserialize", "get", "load_model", "save_model", "model_from_json")

# Modules of these classes in Keras, if not the namespace of the same name.
_KERAS_MODULES = {
    "CustomScaleLayer": "keras.src.applications.inception_resnet_v2",
    "DTypePolicy": "keras",
    "FloatDTypePolicy": "keras",
    "Functional": "keras.src.models.functional",
    "LayerScale": "keras.src.applications.convnext",
    "Model": "keras",
    "Sequential": "keras",
}

# Classes that Keras exports, and writes into files, under another name.
_EXPORTED_NAMES = {"GroupedQueryAttention": "GroupQueryAttention"}


def _find_exported(namespace: str, name: str) -> Any:
    """Return the public class or function `name` of a namespace, or None."""
    if not name.isidentifier() or name.startswith("_") or name in _FORBIDDEN_NAMES:
        return None
    if _ONLY_CLASS.get(namespace, name) != name:
        return None
    try:
        module = import_module(f"toolkit.{namespace}")
        value = getattr(module, name, None)
    except (ImportError, AttributeError):
        return None
    if not getattr(value, "__module__", "").startswith("toolkit."):
        return None
    if inspect.isclass(value):
        return value if namespace in _CLASS_NAMESPACES else None
    return value if namespace in _FUNCTION_NAMESPACES and callable(value) else None


# Libraries of layers and models for Keras that do not register all of their classes.
_LIBRARIES = frozenset({"keras_cv", "keras_hub", "keras_nlp"})


def find_public_name(obj: Any) -> tuple[str, str] | None:
    """Return the public namespace and name of a class or function, or None."""
    allowed = _CLASS_NAMESPACES if inspect.isclass(obj) else _FUNCTION_NAMESPACES
    path = str(obj.__module__).removeprefix("toolkit.")
    name = _EXPORTED_NAMES.get(obj.__name__, obj.__name__)
    for namespace in sorted(allowed, key=len, reverse=True):
        is_member = path == namespace or path.startswith(f"{namespace}.")
        if is_member and _find_exported(namespace, name) is obj:
            return namespace, name
    return None


def class_config(cls: Any) -> dict[str, Any]:
    """Return the members of a config that identify its class."""
    public_name = find_public_name(cls)
    module, name, registered = cls.__module__, cls.__name__, None
    if public_name is not None:
        name = public_name[1]
        module = _KERAS_MODULES.get(name) or f"keras.{public_name[0]}"
    if public_name is None or module.startswith("keras.src"):
        registered = get_registered_name(cls)
    return {
        "module": None if module == "__main__" else module,
        "class_name": name,
        "config": None,
        "registered_name": registered,
    }


def find_object(
    config: dict[str, Any], name: str, is_function: bool, custom: Any
) -> Any:
    """Return the object that a config names.

    Raises:
        ArgumentTypeError: if the name is not allowed.
    """
    registered = config.get("registered_name")
    requested = name if is_function or not isinstance(registered, str) else registered
    for candidate in dict.fromkeys((requested or name, name)):
        match = get_registered_object(candidate, custom)
        if match is not None:
            return match
    module = config.get("module") or "keras"
    if not isinstance(module, str):
        raise ArgumentTypeError(
            f"deserialize_keras_object: module must be a string; received {module!r}"
        )
    for namespace in _candidate_namespaces(module, is_function):
        match = _find_exported(namespace, name)
        if match is not None:
            if registered and registered not in (name, config["class_name"]):
                raise ArgumentError(
                    f"deserialize_keras_object: {name!r} resolved to a Keras built-in, "
                    f"which has no registered_name; received {registered!r}"
                )
            return match
    match = (
        _find_without_package(name, custom)
        if is_function
        else _find_library_class(module, name)
    )
    if match is not None:
        return match
    kind = "function" if is_function else "class"
    origin = f" of module {module!r}" if config.get("module") else ""
    raise ArgumentTypeError(
        f"deserialize_keras_object: could not locate {kind} {name!r}{origin}: it is "
        "neither public in toolkit nor registered; if it is yours, pass "
        f"custom_objects={{{name!r}: {name}}}, or decorate it with "
        "@toolkit.saving.register_keras_serializable() before you load the file"
    )


def _find_library_class(module: str, name: str) -> Any:
    """Return a class of a library that Keras also trusts, if the program imported it.

    Only its layers, models and similar classes are allowed in configs.
    """
    if module.split(".")[0] not in _LIBRARIES:
        return None
    cls = getattr(sys.modules.get(module), name, None)
    if not inspect.isclass(cls) or not hasattr(cls, "from_config"):
        return None
    is_keras_class = any(base.__module__.startswith("toolkit.") for base in cls.__mro__)
    return cls if is_keras_class else None


def _candidate_namespaces(module: str, is_function: bool) -> Iterator[str]:
    """Yield the namespaces to search for a name of `module`, the nearest first."""
    allowed = (
        _FUNCTION_NAMESPACES
        if is_function
        else (*_CLASS_NAMESPACES, *_FUNCTION_NAMESPACES)
    )
    root, *components = module.split(".")
    if root == "builtins":
        yield from allowed
        return
    if root not in ("keras", "toolkit"):
        return
    # Internal modules of Keras do not identify the namespace:
    # "keras.src.backend.torch.optimizers" ...
    is_internal = components[:1] == ["src"]
    components = components[1:] if is_internal else components
    for namespace in allowed:
        if not components or namespace.split(".")[0] == components[0]:
            yield namespace
    if is_internal:
        yield from allowed


def _find_without_package(name: str, custom: Any) -> Any:
    """Return a custom function by its bare name, as written by Keras up to 3.6."""
    for source in (get_custom_objects(), custom or {}):
        for key, value in source.items():
            if key.endswith(f">{name}"):
                return value
    return None
