"""The features of a FeatureSpace: preprocessing of each column of a table."""

from __future__ import annotations

from typing import Any

from toolkit import layers
from toolkit.core.naming import auto_name
from toolkit.errors import ArgumentError
from toolkit.serialization import deserialize_keras_object, serialize_keras_object

# The Keras module of the two classes below.
_KERAS_MODULE = "keras.src.layers.preprocessing.feature_space"


def serialize_description(description: Any) -> dict[str, Any]:
    """Return the config of a Feature or Cross."""
    name = type(description).__name__
    return {
        "module": _KERAS_MODULE,
        "class_name": name,
        "config": description.get_config(),
        "registered_name": name,
    }


class Cross:
    """A feature that hashes a combination of other features.

    Args:
        feature_names: names of the combined features.
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
        """Return the names of the features, joined."""
        return "_X_".join(self.feature_names)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that create an equal cross."""
        return {
            "feature_names": list(self.feature_names),
            "crossing_dim": self.crossing_dim,
            "output_mode": self.output_mode,
        }


class Feature:
    """Preprocessing of one column.

    Args:
        dtype: dtype of the column: "string", "int32", "float32", ...
        preprocessor: a layer.
        output_mode: "one_hot", "int" or "float": encoding of the layer's outputs.
    """

    def __init__(self, dtype: str, preprocessor: Any, output_mode: str) -> None:
        check_mode("Feature", output_mode, ("int", "one_hot", "float"))
        if isinstance(preprocessor, dict):
            preprocessor = _deserialize_preprocessor(preprocessor)
        self.dtype = dtype
        self.preprocessor = preprocessor
        self.output_mode = output_mode

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that create an equal feature."""
        return {
            "dtype": self.dtype,
            "preprocessor": serialize_keras_object(self.preprocessor),
            "output_mode": self.output_mode,
        }


def check_mode(label: str, mode: str, choices: tuple[str, ...]) -> None:
    """Raise unless an output mode is one of these."""
    if mode not in choices:
        raise ArgumentError(
            f"{label}: invalid value for argument `output_mode`: expected one of "
            f"{choices}; received {mode!r}"
        )


def _deserialize_preprocessor(config: dict[str, Any]) -> Any:
    if config.get("class_name") == "TFDIdentity":  # the name in Keras
        config = {**config, "class_name": "Identity", "module": "keras.layers"}
        config["registered_name"] = None
    return deserialize_keras_object(config)


def parse_description(cls: type, value: Any) -> Any:
    """Return a Feature or Cross from its config; any other value unchanged."""
    if isinstance(value, dict) and value.get("class_name") == cls.__name__:
        return cls(**value["config"])
    return value


def _make_feature(
    kind: str, name: str | None, dtype: str, cls: Any, output_mode: str, **options: Any
) -> Feature:
    name = f"{name or auto_name(kind)}_preprocessor"
    return Feature(dtype, cls(name=name, **options), output_mode)


class FeatureMakers:
    """Class methods of FeatureSpace that create the standard features."""

    @classmethod
    def cross(
        cls, feature_names: Any, crossing_dim: int, output_mode: str = "one_hot"
    ) -> Cross:
        """Return a combination of features, for `crosses`.

        Args:
            feature_names: the names of the features.
            crossing_dim: the number of bins.
            output_mode: "one_hot" or "int".
        """
        return Cross(feature_names, crossing_dim, output_mode)

    @classmethod
    def feature(cls, dtype: str, preprocessor: Any, output_mode: str) -> Feature:
        """Return a feature with a custom preprocessing layer.

        Args:
            dtype: the dtype of the column, such as "string".
            preprocessor: a layer.
            output_mode: "one_hot", "int" or "float".
        """
        return Feature(dtype, preprocessor, output_mode)

    @classmethod
    def float(cls, name: str | None = None) -> Feature:
        """Return a feature of unchanged numbers.

        Args:
            name: the name; generated if None.
        """
        return _make_feature("float", name, "float32", layers.Identity, "float")

    @classmethod
    def float_rescaled(
        cls, scale: Any = 1.0, offset: Any = 0.0, name: str | None = None
    ) -> Feature:
        """Return a feature of numbers as `x * scale + offset`.

        Args:
            scale: the factor.
            offset: the summand.
            name: the name; generated if None.
        """
        kind = "float_rescaled"
        arguments = {"scale": scale, "offset": offset}
        return _make_feature(
            kind, name, "float32", layers.Rescaling, "float", **arguments
        )

    @classmethod
    def float_normalized(cls, name: str | None = None) -> Feature:
        """Return a feature of numbers scaled to mean 0 and variance 1.

        Args:
            name: the name; generated if None.
        """
        kind = "float_normalized"
        return _make_feature(
            kind, name, "float32", layers.Normalization, "float", axis=-1
        )

    @classmethod
    def float_discretized(
        cls,
        num_bins: int | None,
        bin_boundaries: Any = None,
        output_mode: str = "one_hot",
        name: str | None = None,
    ) -> Feature:
        """Return a feature of numbers as bin indices.

        Args:
            num_bins: the number of bins that `adapt` computes.
            bin_boundaries: ascending boundaries, instead of `num_bins`.
            output_mode: "one_hot" or "int".
            name: the name; generated if None.
        """
        kind = "float_discretized"
        limits = {"num_bins": num_bins, "bin_boundaries": bin_boundaries}
        return _make_feature(
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
        """Return a feature of integer categories.

        Args:
            max_tokens: the maximum number of indices; None for no limit.
            num_oov_indices: the number of indices for values that are not in the
                vocabulary.
            output_mode: "one_hot" or "int".
            name: the name; generated if None.
        """
        kind = "integer_categorical"
        limits = {"max_tokens": max_tokens, "num_oov_indices": num_oov_indices}
        return _make_feature(
            kind, name, "int32", layers.IntegerLookup, output_mode, **limits
        )

    @classmethod
    def string_categorical(
        cls,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        output_mode: str = "one_hot",
        name: str | None = None,
    ) -> Feature:
        """Return a feature of string categories.

        Args:
            max_tokens: the maximum number of indices; None for no limit.
            num_oov_indices: the number of indices for values that are not in the
                vocabulary.
            output_mode: "one_hot" or "int".
            name: the name; generated if None.
        """
        kind = "string_categorical"
        limits = {"max_tokens": max_tokens, "num_oov_indices": num_oov_indices}
        return _make_feature(
            kind, name, "string", layers.StringLookup, output_mode, **limits
        )

    @classmethod
    def string_hashed(
        cls, num_bins: int, output_mode: str = "one_hot", name: str | None = None
    ) -> Feature:
        """Return a feature of strings, hashed to bins.

        Args:
            num_bins: the number of bins.
            output_mode: "one_hot" or "int".
            name: the name; generated if None.
        """
        kind = "string_hashed"
        bins = {"num_bins": num_bins}
        return _make_feature(kind, name, "string", layers.Hashing, output_mode, **bins)

    @classmethod
    def integer_hashed(
        cls, num_bins: int, output_mode: str = "one_hot", name: str | None = None
    ) -> Feature:
        """Return a feature of integers, hashed to bins.

        Args:
            num_bins: the number of bins.
            output_mode: "one_hot" or "int".
            name: the name; generated if None.
        """
        kind = "integer_hashed"
        bins = {"num_bins": num_bins}
        return _make_feature(kind, name, "int32", layers.Hashing, output_mode, **bins)
