"""Conversion of configs to objects."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.naming import to_snake_case
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ArgumentTypeError, DTypeError, ToolkitError
from toolkit.reading.budget import spend_time
from toolkit.serialization.object_names import find_object, find_public_name
from toolkit.serialization.registration import (
    custom_object_scope,
    get_registered_object,
)
from toolkit.serialization.sharing import (
    find_shared_object,
    store_shared_object,
    suspend_marks,
)
from toolkit.type_aliases import Array

_SECONDS_PER_OBJECT = 1e-4  # estimated cost of an object, for the time budget of a load
# Arguments of public classes that may be a path: a config must contain the contents.
_FILE_ARGUMENTS = ("vocabulary", "idf_weights")


def deserialize_keras_object(
    config: Any,
    custom_objects: Mapping[str, Any] | None = None,
    safe_mode: bool = True,
    **kwargs: Any,
) -> Any:
    """Return the object that `serialize_keras_object` described.

    Args:
        config: the config, or lists and dicts with configs in them.
        custom_objects: name -> class or function that the config may also name. The
            function of a `Lambda` layer has the name of the layer.
        safe_mode: as in Keras, but False allows no more than True: code in a config
            never runs.

    Returns:
        The object.

    Raises:
        ArgumentError: if the config contains a name that is not allowed, or is invalid.

    Example:
        >>> from toolkit import regularizers, serialization
        >>> config = serialization.serialize_keras_object(regularizers.L1(0.5))
        >>> serialization.deserialize_keras_object(config).l1
        0.5
    """
    try:
        return _deserialize(config, custom_objects, **kwargs)
    except RecursionError as error:
        raise ArgumentError(
            "deserialize_keras_object: the config has too many nested objects"
        ) from error


def _deserialize(config: Any, custom_objects: Any, **kwargs: Any) -> Any:
    """Return the object of a config; see `deserialize_keras_object`."""
    module_objects = kwargs.pop("module_objects", None)
    kwargs.pop("printable_module_name", None)  # for errors, before Keras 3
    if kwargs:
        raise ArgumentError(
            f"deserialize_keras_object: unknown arguments {sorted(kwargs)}"
        )
    if isinstance(config, str):
        match = get_registered_object(config, custom_objects)
        if match is None and module_objects and config in module_objects:
            match = module_objects[config]
            # the name of a class means an instance with default arguments
            if inspect.isclass(match):
                return _create_instance(match, {"config": {}}, custom_objects)
        return config if match is None else match
    if isinstance(config, (list, tuple)):
        return type(config)([_deserialize(x, custom_objects) for x in config])
    if not isinstance(config, dict):
        return config
    if "class_name" not in config or "config" not in config:
        return {
            key: _deserialize(value, custom_objects) for key, value in config.items()
        }
    return _deserialize_dict(config, custom_objects, module_objects)


def deserialize_argument(value: Any) -> Any:
    """Return an argument of a constructor from a config.

    A string stays a string, also in lists and dicts: a name or a word of a vocabulary
    may equal the name of a registered class.
    """
    if isinstance(value, (list, tuple)):
        return type(value)([deserialize_argument(item) for item in value])
    if not isinstance(value, dict):
        return value
    if "class_name" in value and "config" in value:
        return deserialize_keras_object(value)
    return {key: deserialize_argument(item) for key, item in value.items()}


def _deserialize_dict(
    config: dict[str, Any], custom_objects: Any, module_objects: Any
) -> Any:
    name, inner = config["class_name"], config["config"]
    if not isinstance(name, str):
        raise ArgumentTypeError(
            f"deserialize_keras_object: class_name must be a string; received {name!r}"
        )
    if name.startswith("__"):
        return _deserialize_special(name, inner)
    if name in ("function", "type"):
        if not isinstance(inner, str):
            raise ArgumentTypeError(
                f"deserialize_keras_object: Expected 'config' to be a non-null str, "
                f"the name of a {name}; received {inner!r}"
            )
        return find_object(config, inner, name == "function", custom_objects)
    if inner is not None and not isinstance(inner, dict):
        raise ArgumentTypeError(
            f"deserialize_keras_object: Expected 'config' to be a dict for {name!r}; "
            f"received {inner!r}"
        )
    shared = find_shared_object(config)
    if shared is not None:
        return shared
    cls = None
    if config.get("module") is None and module_objects is not None:
        # The format before Keras 3, which custom objects may override.
        cls = get_registered_object(name, custom_objects)
        for key in (name, to_snake_case(name)):
            cls = cls or module_objects.get(key)
    if cls is None:
        cls = find_object(config, name, False, custom_objects)
    if not inspect.isclass(cls):
        return cls
    instance = _create_instance(cls, config, custom_objects)
    store_shared_object(instance, config)
    return instance


def _create_instance(cls: Any, config: dict[str, Any], custom_objects: Any) -> Any:
    if not hasattr(cls, "from_config"):
        raise ArgumentTypeError(
            f"deserialize_keras_object: class {cls.__name__} has no `from_config`"
        )
    spend_time(_SECONDS_PER_OBJECT, "a config with this number of objects")
    inner = dict(config["config"] or {})
    if find_public_name(cls) is not None:
        inner = _check_no_files(cls, replace_lambda(inner, custom_objects))
    with custom_object_scope(custom_objects), suspend_marks():
        try:
            instance = cls.from_config(inner)
        except ToolkitError as error:
            _add_object_to_error(error, cls, inner)
            raise
        except TypeError as error:
            raise ArgumentTypeError(
                f"deserialize_keras_object: the config {inner!r:.300} does not fit "
                f"{cls.__name__}: {error}"
            ) from error
        except (ArithmeticError, AttributeError, LookupError, ValueError) as error:
            # Errors of a user's class are raised unchanged.
            if find_public_name(cls) is None or hasattr(error, "_is_placed"):
                vars(error)["_is_placed"] = True
                raise
            raise ArgumentError(
                f"deserialize_keras_object: the config {inner!r:.300} does not fit "
                f"{cls.__name__} ({type(error).__name__}: {error})"
            ) from error
        quantized_config = config.get("quantized_parts")
        quantized_config = (
            quantized_config if hasattr(instance, "quantize_parts") else None
        )
        if quantized_config:
            instance.quantize_parts(quantized_config)  # before they have weights
        if config.get("build_config") and not getattr(instance, "built", False):
            instance.build_from_config(config["build_config"])
        if quantized_config:
            instance.quantize_parts(quantized_config)  # the parts that `build` created
        if config.get("compile_config") and hasattr(instance, "compile_from_config"):
            instance.compile_from_config(config["compile_config"])
    return instance


def _add_object_to_error(error: ToolkitError, cls: Any, inner: dict[str, Any]) -> None:
    """Add to an error, once, the object in whose config it occurred."""
    name = inner.get("name")
    if isinstance(name, str) and not getattr(error, "_is_placed", False):
        vars(error)["_is_placed"] = True
        if repr(name) not in str(error):
            error.args = (f"{error} (in the config of {cls.__name__} {name!r})",)


def replace_lambda(inner: dict[str, Any], custom_objects: Any) -> dict[str, Any]:
    """Return the config of a layer, with a lambda replaced by the given function."""
    function = inner.get("function")
    if isinstance(function, dict) and function.get("class_name") == "__lambda__":
        registered_function = get_registered_object(
            str(inner.get("name")), custom_objects
        )
        if registered_function is not None:
            return {**inner, "function": registered_function}
    return inner


def _check_no_files(cls: Any, inner: dict[str, Any]) -> dict[str, Any]:
    for key in _FILE_ARGUMENTS:
        if isinstance(inner.get(key), str):
            raise ArgumentTypeError(
                f"deserialize_keras_object: {cls.__name__}: the config refers to the "
                f"file {inner[key]!r} as its {key}, but configs must not refer to "
                "files. Pass the contents, or use the class's own `from_config` if "
                "you trust it"
            )
    return inner


def _deserialize_special(tag: str, config: Any) -> Any:
    if tag == "__lambda__":
        raise ArgumentError(
            "deserialize_keras_object: the config represents a lambda. toolkit never "
            "runs code from a config or a file, because that is arbitrary code "
            "execution. Pass the function of a Lambda layer in `custom_objects` "
            "under the layer's name, or use a named, registered function"
        )
    if tag == "__typespec__" and not isinstance(config, (list, tuple)):
        raise ArgumentTypeError(
            "deserialize_keras_object: Expected 'config' to be a list or a tuple for "
            f"{tag!r}; received {config!r}"
        )
    if tag == "__ellipsis__":
        return Ellipsis
    if tag not in _SPECIAL_READERS:
        raise ArgumentTypeError(f"deserialize_keras_object: unknown class_name {tag!r}")
    try:
        return _SPECIAL_READERS[tag](config)
    except ToolkitError as error:
        error.args = (f"deserialize_keras_object: {tag}: {error}",)
        raise
    except (KeyError, TypeError, AttributeError) as error:
        raise ArgumentTypeError(f"deserialize_keras_object: {tag}: {error}") from error


def _read_array(config: dict[str, Any]) -> Array:
    dtype = dtypes.numpy_dtype(dtypes.standardize(config["dtype"]))
    try:
        return np.array(config["value"], dtype=dtype)
    except (TypeError, ValueError) as error:
        raise DTypeError(str(error)) from error


def _read_slice(config: dict[str, Any]) -> slice:
    bounds = (config[key] for key in ("start", "stop", "step"))
    return slice(*(deserialize_keras_object(key) for key in bounds))


_SPECIAL_READERS = {
    "__bytes__": lambda config: config["value"].encode("utf-8", "surrogateescape"),
    "__keras_tensor__": lambda config: KerasTensor(config["shape"], config["dtype"]),
    "__numpy__": _read_array,
    "__slice__": _read_slice,
    "__tensor__": lambda config: Tensor(_read_array(config)),
}
