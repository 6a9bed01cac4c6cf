"""FeatureSpace: the columns of structured data, with preprocessing for each column."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit import dtypes, layers, ops
from toolkit.core.host_calls import needs_host_call
from toolkit.core.keras_tensor import KerasTensor
from toolkit.errors import ArgumentError, NotBuiltError
from toolkit.layers.preprocessing.host import batches_of, host_array
from toolkit.models.saving.whole_models import save_model
from toolkit.ops.symbolic import any_symbolic
from toolkit.utils.features import (
    Cross,
    Feature,
    FeatureMakers,
    check_mode,
    parse_description,
    serialize_description,
)

if TYPE_CHECKING:
    from toolkit.layers.layer import Layer


class FeatureSpace(FeatureMakers, layers.Layer):
    """The columns of a table, preprocessed by layers, concatenated to one tensor.

    Args:
        features: name -> "float", "float_rescaled", "float_normalized",
            "float_discretized", "integer_categorical", "string_categorical",
            "integer_hashed" or "string_hashed"; or the result of the method with this
            name, or of `feature` for a custom layer.
        output_mode: "concat": one tensor (batch, all); "dict": name -> tensor.
        crosses: features to combine: tuples of names, or results of `cross`.
        crossing_dim: number of bins of combinations.
        hashing_dim: number of bins of hashed features.
        num_discretization_bins: number of bins of discretized features.
        name: the name; generated from the class name if None.

    Call arguments:
        inputs: name -> array, (batch,) or (batch, 1), or one value.

    Example:
        >>> import toolkit
        >>> space = toolkit.utils.FeatureSpace(
        ...     {"age": "float", "job": "string_categorical"}, output_mode="concat"
        ... )
        >>> data = {"age": [20.0, 31.0], "job": ["a", "b"]}
        >>> space.adapt(data)
        >>> space(data).tolist()
        [[20.0, 0.0, 0.0, 1.0], [31.0, 0.0, 1.0, 0.0]]
    """

    def __init__(
        self,
        features: dict[str, Any],
        output_mode: str = "concat",
        crosses: Any = None,
        crossing_dim: int | None = 32,
        hashing_dim: int = 32,
        num_discretization_bins: int = 32,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if not features:
            raise ArgumentError(
                "FeatureSpace: the `features` argument cannot be None or empty"
            )
        check_mode("FeatureSpace", output_mode, ("dict", "concat"))
        self.output_mode = output_mode
        self.crossing_dim = crossing_dim
        self.hashing_dim = hashing_dim
        self.num_discretization_bins = num_discretization_bins
        self.features: dict[str, Feature] = {
            k: self._create_feature(k, v) for k, v in features.items()
        }
        self.crosses: list[Cross] = [
            self._create_cross(value) for value in crosses or ()
        ]
        self.inputs: dict[str, KerasTensor] = {
            k: layers.Input((1,), dtype=v.dtype, name=k)
            for k, v in self.features.items()
        }
        self.preprocessors: dict[str, Any] = {
            k: v.preprocessor for k, v in self.features.items()
        }
        self.crossers: dict[str, layers.HashedCrossing] = {
            cross.name: layers.HashedCrossing(cross.crossing_dim, name=cross.name)
            for cross in self.crosses
        }
        self.one_hot_encoders: dict[str, Any] = {}
        self.encoded_features: Any = None
        self._is_adapted = not self._list_adaptable_preprocessors()
        self.built: bool = False

    # --- features ---------------------------------------------------------------------

    def _create_feature(self, name: str, value: Any) -> Feature:
        value = parse_description(Feature, value)
        if isinstance(value, Feature):
            return value
        sizes = {
            "float_discretized": (self.num_discretization_bins,),
            "integer_hashed": (self.hashing_dim,),
            "string_hashed": (self.hashing_dim,),
        }
        if value not in _KINDS:
            raise ArgumentError(
                f"FeatureSpace: invalid feature type of {name!r}: {value!r}; expected "
                f"one of {', '.join(_KINDS)}"
            )
        factory: Callable[..., Feature] = getattr(self, value)
        return factory(*sizes.get(value, ()), name=name)

    def _create_cross(self, value: Any) -> Cross:
        value = parse_description(Cross, value)
        if isinstance(value, Cross):
            return value
        if not self.crossing_dim:
            raise ArgumentError(
                "FeatureSpace: with `crosses`, the argument `crossing_dim` should be "
                "specified as well"
            )
        unknown = [key for key in value if key not in self.features]
        if unknown:
            raise ArgumentError(
                "FeatureSpace: all features in `crosses` should be present in "
                f"`features`; received unknown features: {unknown}"
            )
        return Cross(value, self.crossing_dim)

    # --- learning ---------------------------------------------------------------------

    def _list_adaptable_preprocessors(self) -> list[str]:
        return [name for name, x in self.preprocessors.items() if _is_adaptable(x)]

    def adapt(self, dataset: Any) -> None:
        """Adapt the layers that need it to data.

        Args:
            dataset: name -> array, or an iterable of batches or samples with this
                structure.
        """
        if not isinstance(dataset, dict) and not hasattr(dataset, "__iter__"):
            raise ArgumentError(
                "FeatureSpace: `adapt()` can only be called on a dict of arrays or an "
                f"iterable of them; received {type(dataset).__name__}"
            )
        names = self._list_adaptable_preprocessors()
        batches = [dataset] if isinstance(dataset, dict) else list(batches_of(dataset))
        invalid = [batch for batch in batches if not isinstance(batch, dict)]
        if invalid:
            raise ArgumentError(
                "FeatureSpace: `adapt()` expects dicts of arrays; received batches of "
                f"type {type(invalid[0]).__name__}"
            )
        for name in names:
            arrays = [host_array(self, batch[name]) for batch in batches]
            column = np.concatenate([np.atleast_1d(array) for array in arrays])
            self.preprocessors[name].adapt(_to_column(column))
        self._is_adapted = True
        self.get_encoded_features()

    # --- calls ------------------------------------------------------------------------

    def get_inputs(self) -> dict[str, Any]:
        """Return the symbols of the columns, for a model that takes raw data."""
        self.get_encoded_features()
        return self.inputs

    def get_encoded_features(self) -> Any:
        """Return the symbols of the encoded `get_inputs()`."""
        if not self._is_adapted:
            raise NotBuiltError(
                "FeatureSpace: You need to call `.adapt(dataset)` first"
            )
        if self.encoded_features is None:
            self._make_encoders()
            self.encoded_features = self._encode(self.inputs)
            self.built = True
        return self.encoded_features

    def _make_encoders(self) -> None:
        specs: dict[str, Any] = {**self.features}
        specs.update({cross.name: cross for cross in self.crosses})
        components = {**self.preprocessors, **self.crossers}
        self.one_hot_encoders = {
            name: layers.CategoryEncoding(_num_categories(name, components[name]))
            for name, spec in specs.items()
            if spec.output_mode == "one_hot"
        }

    def _preprocess(self, name: str, x: Any) -> Any:
        """Return the output of a feature's layer."""
        feature, y = self.features[name], self.preprocessors[name](x)
        if feature.output_mode == "float" and not dtypes.is_float(y.dtype):
            return ops.cast(y, feature.dtype)
        return y

    def _encode(self, data: dict[str, Any]) -> Any:
        if data.keys() != self.features.keys():
            raise ArgumentError(
                f"FeatureSpace: expected the features {sorted(self.features)}; "
                f"received {sorted(data)}"
            )
        preprocessed = {name: self._preprocess(name, x) for name, x in data.items()}
        cross_outputs = {
            cross.name: self.crossers[cross.name](
                [preprocessed[name] for name in cross.feature_names]
            )
            for cross in self.crosses
        }
        names = [*sorted(preprocessed), *sorted(cross_outputs)]
        outputs = {name: {**preprocessed, **cross_outputs}[name] for name in names}
        for name, encoder in self.one_hot_encoders.items():
            outputs[name] = encoder(outputs[name])
        if self.output_mode == "dict":
            return outputs
        for name, x in outputs.items():
            if not dtypes.is_float(x.dtype):
                raise ArgumentError(
                    f"FeatureSpace: the feature {name!r} has not been encoded (it "
                    f"has dtype {x.dtype}) and cannot be concatenated; consider "
                    "using `output_mode='dict'`"
                )
        return ops.concatenate(list(outputs.values()), axis=-1)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self.get_encoded_features()
        if not isinstance(inputs, dict):
            raise ArgumentError(
                "FeatureSpace: it can only be called with a dict; received "
                f"{type(inputs).__name__}"
            )
        if any_symbolic(inputs):
            return self._encode(inputs)
        arrays = {
            name: x if needs_host_call(x) else host_array(self, x)
            for name, x in inputs.items()
        }
        is_single_sample = all(x.ndim == 0 for x in arrays.values())
        outputs = self._encode({name: _to_column(x) for name, x in arrays.items()})
        if not is_single_sample:
            return outputs
        if self.output_mode == "concat":
            return outputs[0]
        return {name: x[0] for name, x in outputs.items()}

    # --- saving -----------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        return {
            "features": {k: serialize_description(v) for k, v in self.features.items()},
            "output_mode": self.output_mode,
            "crosses": [serialize_description(cross) for cross in self.crosses],
            "crossing_dim": self.crossing_dim,
            "hashing_dim": self.hashing_dim,
            "num_discretization_bins": self.num_discretization_bins,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> FeatureSpace:
        return cls(**config)

    def get_build_config(self) -> dict[str, Any]:
        return {k: v.get_build_config() for k, v in self.preprocessors.items()}

    def build_from_config(self, config: dict[str, Any]) -> None:  # type: ignore[override]
        for name, shapes in config.items():
            if not self.preprocessors[name].built:
                self.preprocessors[name].build_from_config(shapes)
        self._is_adapted = True

    def save(self, filepath: Any) -> None:
        """Write the space, with its adapted state, to a `.keras` file.

        Args:
            filepath: the path of the file.
        """
        save_model(self, filepath)

    def save_own_variables(self, store: Any) -> None:
        """Save nothing: the layers inside save their adapted state.

        Args:
            store: has no effect.
        """

    def load_own_variables(self, store: Any) -> None:
        """Load nothing: the layers inside load their adapted state.

        Args:
            store: has no effect.
        """


_KINDS = (
    *("float", "float_rescaled", "float_normalized", "float_discretized"),
    *("integer_categorical", "string_categorical", "integer_hashed", "string_hashed"),
)


def _is_adaptable(layer: Layer) -> bool:
    if isinstance(layer, layers.Normalization):
        return layer.input_mean is None
    if isinstance(layer, layers.Discretization):
        return layer.num_bins is not None
    lookup = getattr(layer, "_lookup_layer", layer)
    has_vocabulary = getattr(lookup, "_has_input_vocabulary", False)
    return hasattr(layer, "adapt") and not has_vocabulary


def _num_categories(name: str, layer: Layer) -> int:
    """Return the number of categories that a layer maps to."""
    if isinstance(layer, (layers.IntegerLookup, layers.StringLookup)):
        return layer.vocabulary_size()
    if isinstance(layer, layers.Discretization):
        # The requested number, even if the data have fewer distinct values.
        return layer.num_bins or len(layer.bin_boundaries) + 1
    size = getattr(layer, "num_tokens", None) or getattr(layer, "num_bins", None)
    if size is None:
        raise ArgumentError(
            f"FeatureSpace: the feature {name!r} has `output_mode='one_hot'`, but "
            "the number of categories of its layer is unknown; try "
            "`output_mode='int'`"
        )
    return int(size)


def _to_column(x: Any) -> Any:
    if x.ndim >= 2:
        return x
    return x.reshape(-1, 1) if isinstance(x, np.ndarray) else ops.reshape(x, (-1, 1))
