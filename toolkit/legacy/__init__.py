"""Names of `keras.legacy`: `legacy.saving`, configs in the format before Keras 3."""

from toolkit.legacy import saving

__all__ = ["saving"]
