"""The features of a FeatureSpace: how each column of a table is prepared."""

from __future__ import annotations

from typing import Any

from toolkit import layers
from toolkit.core.naming import auto_name
from toolkit.errors import ArgumentError
from toolkit.serialization import deserialize_keras_object, serialize_keras_object

# Where Keras has the two descriptions below.
_KERAS_MODULE = "keras.src.layers.preprocessing.feature_space"


def config_of(description: Any) -> dict[str, Any]:
    """What stands for a Feature or Cross in a config."""
    name = type(description).__name__
    return {
        "module": _KERAS_MODULE,
        "class_name": name,
        "config": description.get_config(),
        "registered_name": name,
    }


class Cross:
    """A feature made of the combination of others, by its hash.

    Args:
        feature_names: of the features that are combined.
        crossing_dim: the number of bins.
        output_mode: "one_hot" or "int".
    """

    def __init__(
        self, feature_names: Any, crossing_dim: int, output_mode: str = "one_hot"
    ) -> None:
        check_mode("Cross", output_mode, ("int", "one_hot"))
        self.feature_names: tuple[Any, ...] = tuple(feature_names)
        self.crossing_dim = crossing_dim
        self.output_mode = output_mode

    @property
    def name(self) -> str:
        """The names of the features, joined."""
        return "_X_".join(self.feature_names)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make an equal cross."""
        return {
            "feature_names": list(self.feature_names),
            "crossing_dim": self.crossing_dim,
            "output_mode": self.output_mode,
        }


class Feature:
    """How one column is prepared.

    Args:
        dtype: of the column: "string", "int32", "float32", ...
        preprocessor: a layer.
        output_mode: "one_hot", "int" or "float": what is made of the layer's outputs.
    """

    def __init__(self, dtype: str, preprocessor: Any, output_mode: str) -> None:
        check_mode("Feature", output_mode, ("int", "one_hot", "float"))
        if isinstance(preprocessor, dict):
            preprocessor = _preprocessor_of(preprocessor)
        self.dtype = dtype
        self.preprocessor = preprocessor
        self.output_mode = output_mode

    def get_config(self) -> dict[str, Any]:
        """The arguments that make an equal feature."""
        return {
            "dtype": self.dtype,
            "preprocessor": serialize_keras_object(self.preprocessor),
            "output_mode": self.output_mode,
        }


def check_mode(what: str, mode: str, choices: tuple[str, ...]) -> None:
    """Raise unless an output mode is one of these."""
    if mode not in choices:
        raise ArgumentError(
            f"{what}: invalid value for argument `output_mode`: expected one of "
            f"{choices}; received {mode!r}"
        )


def _preprocessor_of(config: dict[str, Any]) -> Any:
    if config.get("class_name") == "TFDIdentity":  # Keras's name for it here
        config = {**config, "class_name": "Identity", "module": "keras.layers"}
        config["registered_name"] = None
    return deserialize_keras_object(config)


def described(cls: type, value: Any) -> Any:
    """A Feature or Cross from its config; anything else as it is."""
    if isinstance(value, dict) and value.get("class_name") == cls.__name__:
        return cls(**value["config"])
    return value


def _made(
    kind: str,
    name: str | None,
    dtype: str,
    cls: Any,
    output_mode: str,
    **options: Any,
) -> Feature:
    name = f"{name or auto_name(kind)}_preprocessor"
    return Feature(dtype, cls(name=name, **options), output_mode)


class FeatureMakers:
    """The usual features, made by class methods of FeatureSpace."""

    @classmethod
    def cross(
        cls, feature_names: Any, crossing_dim: int, output_mode: str = "one_hot"
    ) -> Cross:
        """A combination of features, for `crosses`."""
        return Cross(feature_names, crossing_dim, output_mode)

    @classmethod
    def feature(cls, dtype: str, preprocessor: Any, output_mode: str) -> Feature:
        """A feature that is prepared by a layer of your own."""
        return Feature(dtype, preprocessor, output_mode)

    @classmethod
    def float(cls, name: str | None = None) -> Feature:
        """Numbers as they are."""
        return _made("float", name, "float32", layers.Identity, "float")

    @classmethod
    def float_rescaled(
        cls, scale: Any = 1.0, offset: Any = 0.0, name: str | None = None
    ) -> Feature:
        """Numbers as `x * scale + offset`."""
        kind = "float_rescaled"
        arguments = {"scale": scale, "offset": offset}
        return _made(kind, name, "float32", layers.Rescaling, "float", **arguments)

    @classmethod
    def float_normalized(cls, name: str | None = None) -> Feature:
        """Numbers with mean 0 and variance 1."""
        kind = "float_normalized"
        return _made(kind, name, "float32", layers.Normalization, "float", axis=-1)

    @classmethod
    def float_discretized(
        cls,
        num_bins: int | None,
        bin_boundaries: Any = None,
        output_mode: str = "one_hot",
        name: str | None = None,
    ) -> Feature:
        """Numbers as the bins that they fall into."""
        kind = "float_discretized"
        limits = {"num_bins": num_bins, "bin_boundaries": bin_boundaries}
        return _made(
            kind, name, "float32", layers.Discretization, output_mode, **limits
        )

    @classmethod
    def integer_categorical(
        cls,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        output_mode: str = "one_hot",
        name: str | None = None,
    ) -> Feature:
        """Integers that stand for categories."""
        kind = "integer_categorical"
        limits = {"max_tokens": max_tokens, "num_oov_indices": num_oov_indices}
        return _made(kind, name, "int32", layers.IntegerLookup, output_mode, **limits)

    @classmethod
    def string_categorical(
        cls,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        output_mode: str = "one_hot",
        name: str | None = None,
    ) -> Feature:
        """Strings that stand for categories."""
        kind = "string_categorical"
        limits = {"max_tokens": max_tokens, "num_oov_indices": num_oov_indices}
        return _made(kind, name, "string", layers.StringLookup, output_mode, **limits)

    @classmethod
    def string_hashed(
        cls, num_bins: int, output_mode: str = "one_hot", name: str | None = None
    ) -> Feature:
        """Strings in the bins of their hashes."""
        kind = "string_hashed"
        bins = {"num_bins": num_bins}
        return _made(kind, name, "string", layers.Hashing, output_mode, **bins)

    @classmethod
    def integer_hashed(
        cls, num_bins: int, output_mode: str = "one_hot", name: str | None = None
    ) -> Feature:
        """Integers in the bins of their hashes."""
        kind = "integer_hashed"
        bins = {"num_bins": num_bins}
        return _made(kind, name, "int32", layers.Hashing, output_mode, **bins)
