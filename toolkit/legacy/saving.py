"""Configs in the format before Keras 3; `toolkit.utils.legacy` has the same names."""

from toolkit.utils.legacy import deserialize_keras_object, serialize_keras_object

__all__ = ["deserialize_keras_object", "serialize_keras_object"]
