"""Common code of the `get` functions of the namespaces."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from toolkit.core.naming import to_snake_case
from toolkit.errors import ArgumentError, unknown_choice
from toolkit.serialization.reading import deserialize_keras_object
from toolkit.serialization.registration import get_registered_object


def names_of(*objects: Any) -> dict[str, Any]:
    """Return a map from names, and their snake-case forms, to objects.

    Args:
        *objects: classes and functions.

    Returns:
        name -> object.

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
    argument: str,
    custom_objects: Mapping[str, Any] | None = None,
) -> Any:
    """Return the object for a name, a config, a class, a function or the object itself.

    Args:
        identifier: the argument of the user. None stays None.
        module_objects: name -> class or function, for strings.
        argument: its name, for messages: "loss".
        custom_objects: name -> object, for strings and configs.

    Returns:
        An instance if the result is a class, else the function.

    Example:
        >>> from toolkit import losses, serialization
        >>> names = serialization.names_of(losses.Huber)
        >>> serialization.get("huber", names, "loss").delta
        1.0
    """
    if identifier is None:
        return None
    if isinstance(identifier, dict):
        result = deserialize_keras_object(
            identifier, custom_objects, module_objects=module_objects
        )
    elif isinstance(identifier, str):
        result = get_registered_object(identifier, custom_objects, module_objects)
        if result is None:
            raise unknown_choice(argument, identifier, module_objects)
    else:
        result = identifier
    if inspect.isclass(result):
        result = result()
    if not callable(result) and not hasattr(result, "get_config"):
        raise ArgumentError(
            f"{argument}: expected a name, a config, an object or a function; "
            f"received {identifier!r}"
        )
    return result
