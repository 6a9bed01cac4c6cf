"""The printed form of an object with a config: the call that creates it."""

from __future__ import annotations

import inspect
from typing import Any

_MISSING = object()
_MAX_LENGTH = 60  # of one argument


def config_repr(
    instance: Any, always: tuple[str, ...] = (), never: tuple[str, ...] = ()
) -> str:
    """Return the class of an object with its arguments, `L2(l2=0.1)`.

    Arguments with their default value are omitted.

    Args:
        instance: an object with `get_config`.
        always: arguments that are shown even if they have their default value.
        never: arguments that are not shown.
    """
    cls = type(instance)
    try:
        config = instance.get_config()
        defaults = _defaults(cls)
    except Exception:  # a class of the user; its error belongs to `get_config`
        return f"<{cls.__name__}>"
    arguments = [
        f"{name}={_short(value)}"
        for name, value in config.items()
        if name not in never
        and (name in always or not _is_same(value, defaults.get(name, _MISSING)))
    ]
    return f"{cls.__name__}({', '.join(arguments)})"


def _defaults(cls: type) -> dict[str, Any]:
    """Return the defaults of the arguments of a class and its bases."""
    defaults: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        constructor = vars(base).get("__init__", object.__init__)
        for name, parameter in inspect.signature(constructor).parameters.items():
            defaults[name] = parameter.default
    return defaults


def _is_same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    return type(value) is type(default) and repr(value) == repr(default)


def _short(value: Any) -> str:
    """Return the printed form of an argument, shortened; a config as its class."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict) and "class_name" in value:
        return f"{value['class_name']}(...)"
    text = repr(value)
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 3]}..."
