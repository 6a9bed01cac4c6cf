"""Recording of constructor arguments: they are the config of an object.

A class derived from `Recorded` needs no `get_config`: its config is the arguments of
its constructor, including defaults.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any, Self

from toolkit import tree
from toolkit.arguments import Checked
from toolkit.definitions.representations import config_repr
from toolkit.errors import ArgumentError, ToolkitError
from toolkit.serialization import serialize_keras_object
from toolkit.serialization.reading import deserialize_argument


@lru_cache(maxsize=4096)
def constructor_signature(cls: type) -> inspect.Signature:
    """Return the signature of `cls.__init__`, including `self`."""
    return inspect.signature(cls.__init__)  # type: ignore[misc]


def record_arguments(cls: type, args: Any, kwargs: Any) -> dict[str, Any] | None:
    """Return the arguments of `cls(*args, **kwargs)` by name, including defaults.

    Return None if they have no names, or if `__init__` will reject them. Arguments in
    `*args`, if there is `**kwargs`, have the names of the base class's arguments.
    """
    signature = constructor_signature(cls)
    try:
        bound = signature.bind(None, *args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    inherited: dict[str, Any] | None = {}
    for i, (name, parameter) in enumerate(signature.parameters.items()):
        if i == 0:
            del arguments[name]
        elif parameter.kind is parameter.VAR_KEYWORD:
            arguments.update(arguments.pop(name))
        elif parameter.kind is parameter.VAR_POSITIONAL:
            if extra := arguments.pop(name):
                inherited = _name_base_arguments(cls, extra)
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            return None
    if inherited is None:
        return None
    arguments = inherited | arguments
    return {name: _copy_containers(value) for name, value in arguments.items()}


def _name_base_arguments(cls: type, args: Any) -> dict[str, Any] | None:
    """Return the names of arguments that a constructor forwards as `*args`."""
    owners = [base for base in cls.__mro__ if "__init__" in vars(base)]
    keywords = {p.kind for p in constructor_signature(cls).parameters.values()}
    if len(owners) < 2 or inspect.Parameter.VAR_KEYWORD not in keywords:
        return None  # the names could not be passed to the constructor
    parameters = list(constructor_signature(owners[1]).parameters.values())[1:]
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    variadic = [p for p in parameters if p.kind is p.VAR_POSITIONAL]
    if len(args) <= len(positional):
        return dict(zip(positional, args, strict=False))
    if not variadic:
        return None
    inherited = _name_base_arguments(owners[1], args[len(positional) :])
    return (
        None
        if inherited is None
        else inherited | dict(zip(positional, args, strict=False))
    )


def _copy_containers(value: Any) -> Any:
    """Copy the lists and dicts in `value`, so that later changes have no effect."""
    return tree.map_structure(lambda x: x, value) if tree.is_nested(value) else value


def accepts_argument(cls: type, name: str) -> bool:
    """Return whether `cls(..., name=...)` is possible."""
    parameters = constructor_signature(cls).parameters
    return name in parameters or any(
        p.kind is p.VAR_KEYWORD for p in parameters.values()
    )


class Recorded(Checked):
    """Base of objects whose config is the arguments of their constructor."""

    _arguments: dict[str, Any] | None
    # Arguments that may be lambdas: a config only records that there is one, not its
    # code.
    _lambdas: tuple[str, ...] = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        instance = super().__new__(cls, *args, **kwargs)
        instance.__dict__["_arguments"] = record_arguments(cls, args, kwargs)
        return instance

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that create an equal object, as plain values."""
        return self._recorded_config(type(self).get_config is Recorded.get_config)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Create an object from the result of `get_config`.

        Args:
            config: the result of `get_config`.

        Returns:
            The object.
        """
        return cls(**{k: deserialize_argument(v) for k, v in config.items()})

    def __repr__(self) -> str:
        return config_repr(self)

    def _recorded_config(
        self, strict: bool, skip: frozenset[str] = frozenset()
    ) -> dict[str, Any]:
        """Return the recorded arguments, serialized, except those in `skip`.

        Unless `strict`, arguments that cannot be serialized are omitted: a subclass
        then adds them.
        """
        if self._arguments is None and strict:
            raise ArgumentError(
                f"{type(self).__name__}.get_config: the arguments of the constructor "
                "have no names; define `get_config`"
            )
        config = {}
        for name, value in (self._arguments or {}).items():
            if name in skip:
                continue
            try:
                if name not in self._lambdas:
                    _check_no_lambdas(value)
                config[name] = serialize_keras_object(value)
            except (ToolkitError, TypeError) as error:
                if strict:
                    raise ArgumentError(
                        f"{type(self).__name__}.get_config: the argument {name!r} "
                        f"cannot be serialized; define `get_config` ({error})"
                    ) from error
        return config


def _check_no_lambdas(value: object) -> None:
    for leaf in tree.flatten(value):
        if getattr(leaf, "__name__", None) == "<lambda>":
            raise ArgumentError("a lambda has no name for a lookup")
