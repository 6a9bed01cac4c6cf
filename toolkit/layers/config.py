"""Layers as configs and back: what the constructor was given, and the base's own."""

from __future__ import annotations

from typing import Any

from toolkit import activations, dtype_policies
from toolkit.console.frames import warn
from toolkit.errors import ArgumentError, ArgumentTypeError
from toolkit.layers.building import Buildable
from toolkit.layers.quantized_parts import describe_quantized_parts, quantize_parts
from toolkit.serialization import (
    custom_object_scope,
    serialize_keras_object,
)
from toolkit.serialization.reading import deserialize_argument
from toolkit.serialization.recording import Recorded, accepts, constructor_signature

# Arguments whose values the layer's own properties tell, as they may have changed.
_OF_PROPERTIES = frozenset(("name", "trainable", "dtype"))

# Arguments of Keras's layers that ours lack, with the value that means nothing.
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
# Those that say what follows from others.
_DERIVED = frozenset(("gptq_unpacked_column_size",))


def renamed(
    layer: Any, old: str, new: str | None, kwargs: dict[str, Any], value: Any = None
) -> Any:
    """The value of an argument, which may come by its old name: with a warning.

    Args:
        layer: whose argument it is.
        old, new: its names; None: there is no such argument any more.
        kwargs: what the constructor was given beside its own arguments.
        value: what came by the new name.
    """
    if old not in kwargs:
        return value
    given = kwargs.pop(old)
    arguments = {k: v for k, v in (layer._arguments or {}).items() if k != old}
    layer.__dict__["_arguments"] = arguments | ({new: given} if new else {})
    advice = f"use `{new}`" if new else "leave it out"
    warn(f"{type(layer).__name__}: the argument `{old}` is deprecated; {advice}")
    return given if new else value


class Configurable(Buildable, Recorded):
    """Base of layers: their config is what their constructor was given."""

    # Whether the config describes all layers inside, and how they are quantized.
    _describes_parts = False

    def get_config(self) -> dict[str, Any]:
        """The arguments that make an equal layer, as strings, numbers, lists and dicts.

        They are those that the constructor was given. A subclass needs a `get_config`
        of its own only if some of them cannot be serialized.
        """
        cls = type(self)
        recorded_only = _is_recorded(cls)
        config = {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": dtype_policies.serialize(self.dtype_policy),
        }
        is_ours = cls.__module__.startswith("toolkit.")
        if recorded_only or is_ours:
            config = {k: v for k, v in config.items() if accepts(cls, k)}
        own = self._recorded_config(recorded_only, _OF_PROPERTIES)
        if not recorded_only:  # a subclass adds what its own constructor takes
            own = {k: v for k, v in own.items() if _is_ours(cls, k)}
        if is_ours:
            own = {k: _resolved(k, v, getattr(self, k, None)) for k, v in own.items()}
            if own.get("activity_regularizer", self) is None:
                del own["activity_regularizer"]
        return config | own

    def get_quantized_parts(self) -> list[dict[str, Any]] | None:
        """Describe the quantized layers inside, for `quantize_parts`; None without any.

        It is for layers that the constructor or `build` makes, which no config lists.
        """
        return None if self._describes_parts else describe_quantized_parts(self)

    def quantize_parts(self, described: list[dict[str, Any]]) -> None:
        """Quantize the layers inside as `get_quantized_parts` has described them."""
        quantize_parts(self, described)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """The layer that `get_config` described."""
        config = {k: v for k, v in config.items() if not _is_neutral(cls, k, v)}
        if isinstance(config.get("dtype"), dict):
            policy = dtype_policies.deserialize(config["dtype"])
            # Constructors of users may expect what they were written for: a name.
            plain = type(policy) is dtype_policies.DTypePolicy
            is_ours = cls.__module__.startswith("toolkit.")
            config["dtype"] = policy.name if plain and not is_ours else policy
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


# The classes whose instances were given an input shape, which is told once for each.
_told_of_shapes: set[type] = set()


class WithParts(Configurable):
    """A layer whose config holds others, maybe of classes that only the caller has."""

    _describes_parts = True

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Any:
        """The layer that `get_config` described.

        Args:
            config: what `get_config` returned.
            custom_objects: classes and functions that it names, by their names.
        """
        with custom_object_scope(custom_objects or {}):
            return super().from_config(config)


def given_shape(layer: Any, kwargs: dict[str, Any]) -> tuple[int | None, ...] | None:
    """What was given as `input_shape` or `input_dim`, taken out: with a warning."""
    dim, shape = kwargs.pop("input_dim", None), kwargs.pop("input_shape", None)
    if dim is None and shape is None:
        return None
    if dim is not None and shape is not None and tuple(shape) != (dim,):
        raise ArgumentError(
            f"{type(layer).__name__}: expected `input_dim` or `input_shape`; received "
            f"both, {dim!r} and {shape!r}"
        )
    for name in ("input_dim", "input_shape"):  # a config does not tell them
        (layer._arguments or {}).pop(name, None)
    if type(layer) not in _told_of_shapes:
        _told_of_shapes.add(type(layer))
        warn(
            f"{type(layer).__name__}: Do not pass an `input_shape`/`input_dim` "
            "argument to a layer; put an Input(shape) first in the Sequential instead"
        )
    return tuple(shape) if dim is None else (dim,)


def _resolved(argument: str, recorded: Any, attribute: Any) -> Any:
    """A recorded argument as Keras writes it: what its name or number stands for."""
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
        return attribute  # what stands for the default
    return recorded


def _is_neutral(cls: type, name: str, value: Any) -> bool:
    """Whether an argument that only Keras's class has is one without effect."""
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
    """Whether what the constructor was given is all of a config: no user adds to it."""
    owner = next(base for base in cls.__mro__ if "get_config" in vars(base))
    return owner.__module__.startswith("toolkit.")


def _is_ours(cls: type, name: str) -> bool:
    """Whether a class of toolkit, rather than a user's, has this argument."""
    ours = [c for c in cls.__mro__ if c.__module__.startswith("toolkit.")]
    return bool(ours) and has_argument(ours[0], name)
