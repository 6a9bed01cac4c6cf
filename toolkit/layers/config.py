"""Configs of layers: the arguments of the constructor and of the base class."""

from __future__ import annotations

from typing import Any

from toolkit import activations, dtype_policies
from toolkit.console.frames import warn_once
from toolkit.errors import ArgumentError, ArgumentTypeError
from toolkit.layers.building import Buildable
from toolkit.layers.quantized_parts import describe_quantized_parts, quantize_parts
from toolkit.release.deprecation import warn_deprecated
from toolkit.serialization import custom_object_scope, serialize_keras_object
from toolkit.serialization.reading import deserialize_argument
from toolkit.serialization.recording import (
    Recorded,
    accepts_argument,
    constructor_signature,
)

# Arguments with current values in the layer's properties, since they can change.
_OF_PROPERTIES = frozenset(("name", "trainable", "dtype"))

# Arguments of Keras's layers that our layers do not have, with the neutral value.
_NEUTRAL = {
    "lora_alpha": None,
    "lora_rank": None,
    "quantization_config": None,
    "ragged": False,
    "renorm": False,
    "renorm_clipping": None,
    "renorm_momentum": 0.99,
    "rms_scaling": False,
    "sparse": False,
    "time_major": False,
    "zero_output_for_mask": False,
}
# Arguments derived from other arguments.
_DERIVED = frozenset(("gptq_unpacked_column_size",))


def renamed(
    layer: Any, old: str, new: str | None, kwargs: Any, value: Any = None
) -> Any:
    """Return the value of an argument, which can have its old name: then warn.

    Args:
        layer: the layer.
        old, new: the names; new is None if the argument is removed.
        kwargs: the additional keyword arguments of the constructor.
        value: the value under the new name.
    """
    if old not in kwargs:
        return value
    value_of_old = kwargs.pop(old)
    arguments = {k: v for k, v in (layer._arguments or {}).items() if k != old}
    layer.__dict__["_arguments"] = arguments | ({new: value_of_old} if new else {})
    advice = f"use `{new}`" if new else "leave it out"
    warn_deprecated(f"{type(layer).__name__}: `{old}`", advice, since="0.1")
    return value_of_old if new else value


class Configurable(Buildable, Recorded):
    """Base class of layers: the config contains the constructor's arguments."""

    # Whether the config describes all sublayers and their quantization.
    _describes_parts = False

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments as strings, numbers, lists and dicts.

        A subclass needs a separate `get_config` only if an argument is not
        serializable.
        """
        cls = type(self)
        recorded_only = _is_recorded(cls)
        config = {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": dtype_policies.serialize(self.dtype_policy),
        }
        is_builtin = cls.__module__.startswith("toolkit.")
        if recorded_only or is_builtin:
            config = {k: v for k, v in config.items() if accepts_argument(cls, k)}
        arguments = self._recorded_config(recorded_only, _OF_PROPERTIES)
        if not recorded_only:  # a subclass adds the arguments of its constructor
            arguments = {
                k: v for k, v in arguments.items() if _is_builtin_argument(cls, k)
            }
        if is_builtin:
            arguments = {
                k: _resolved(k, v, getattr(self, k, None)) for k, v in arguments.items()
            }
            if arguments.get("activity_regularizer", self) is None:
                del arguments["activity_regularizer"]
        return config | arguments

    def get_quantized_parts(self) -> list[dict[str, Any]] | None:
        """Describe the quantized sublayers for `quantize_parts`; None without any.

        It covers sublayers that the constructor or `build` creates, which no config
        lists.

        Returns:
            A dict of plain values for each sublayer, or None.
        """
        return None if self._describes_parts else describe_quantized_parts(self)

    def quantize_parts(self, described: list[dict[str, Any]]) -> None:
        """Quantize the sublayers that `get_quantized_parts` has described.

        Args:
            described: the result of `get_quantized_parts`.
        """
        quantize_parts(self, described)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Build a layer from the result of `get_config`.

        Args:
            config: the result of `get_config`.

        Returns:
            The layer, with new weights.
        """
        config = {k: v for k, v in config.items() if not _is_neutral(cls, k, v)}
        if isinstance(config.get("dtype"), dict):
            policy = dtype_policies.deserialize(config["dtype"])
            # A user's constructor can expect a name, as in Keras.
            plain = type(policy) is dtype_policies.DTypePolicy
            is_builtin = cls.__module__.startswith("toolkit.")
            config["dtype"] = policy.name if plain and not is_builtin else policy
        if _is_recorded(cls):
            config = {k: deserialize_argument(v) for k, v in config.items()}
        try:
            return cls(**config)
        except TypeError as error:
            if isinstance(error, ArgumentError):
                raise
            raise ArgumentTypeError(
                f"{cls.__name__}.from_config: the config {config!r:.300} does not "
                f"fit the constructor: {error}"
            ) from error


class WithParts(Configurable):
    """Layer whose config contains other layers, possibly of the caller's classes."""

    _describes_parts = True

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Any:
        """Build a layer from the result of `get_config`.

        Args:
            config: the result of `get_config`.
            custom_objects: classes and functions in the config, by name.

        Returns:
            The layer, with new weights.
        """
        with custom_object_scope(custom_objects or {}):
            return super().from_config(config)


def given_shape(layer: Any, kwargs: dict[str, Any]) -> tuple[int | None, ...] | None:
    """Pop `input_shape` or `input_dim` from the arguments, with a warning."""
    dim, shape = kwargs.pop("input_dim", None), kwargs.pop("input_shape", None)
    if dim is None and shape is None:
        return None
    if dim is not None and shape is not None and tuple(shape) != (dim,):
        raise ArgumentError(
            f"{type(layer).__name__}: expected `input_dim` or `input_shape`; received "
            f"both, {dim!r} and {shape!r}"
        )
    for name in ("input_dim", "input_shape"):  # a config does not contain them
        (layer._arguments or {}).pop(name, None)
    warn_once(
        type(layer),
        f"{type(layer).__name__}: Do not pass an `input_shape`/`input_dim` argument "
        "to a layer; put an Input(shape) first in the Sequential instead",
    )
    return tuple(shape) if dim is None else (dim,)


def _resolved(argument: str, recorded: Any, attribute: Any) -> Any:
    """Return a recorded argument in the form of Keras: a name or number resolved."""
    if "activation" in argument and callable(attribute):
        return activations.serialize(attribute)
    if isinstance(recorded, str) and hasattr(attribute, "get_config"):
        return serialize_keras_object(attribute)
    if isinstance(recorded, int) and isinstance(attribute, tuple):
        # In Keras the size of UpSampling1D stays a number.
        is_size = argument == "size" and len(attribute) == 1
        return recorded if is_size else attribute
    if argument in ("padding", "cropping") and isinstance(attribute, tuple):
        return attribute
    if recorded is None and isinstance(attribute, (int, str, tuple)):
        return attribute  # the resolved default
    return recorded


def _is_neutral(cls: type, name: str, value: object) -> bool:
    """Return whether an argument exists only in Keras's class and has no effect."""
    is_known = name in _NEUTRAL and value == _NEUTRAL[name]
    return (is_known or name in _DERIVED) and not has_argument(cls, name)


def has_argument(cls: type, name: str) -> bool:
    """Return whether a constructor of a class, or of its bases, names an argument."""
    return any(
        name in constructor_signature(base).parameters
        for base in cls.__mro__
        if "__init__" in vars(base)
    )


def _is_recorded(cls: type) -> bool:
    """Return whether the config consists of the constructor's arguments only."""
    owner = next(base for base in cls.__mro__ if "get_config" in vars(base))
    return owner.__module__.startswith("toolkit.")


def _is_builtin_argument(cls: type, name: str) -> bool:
    """Return whether a toolkit class, not a user's class, has this argument."""
    builtin_classes = [c for c in cls.__mro__ if c.__module__.startswith("toolkit.")]
    return bool(builtin_classes) and has_argument(builtin_classes[0], name)
