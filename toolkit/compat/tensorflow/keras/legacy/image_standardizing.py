"""Standardization of `ImageDataGenerator`: center, scale and whiten."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.arguments import Checked
from toolkit.compat.tensorflow.keras.legacy.image_iterators import warn_of_channels
from toolkit.console.frames import warn
from toolkit.errors import DTypeError, ShapeError
from toolkit.type_aliases import Array, TensorLike

# (argument, other argument that it sets, value).
_SETTLED = (
    ("zca_whitening", "featurewise_center", True),
    ("zca_whitening", "featurewise_std_normalization", False),
    ("featurewise_std_normalization", "featurewise_center", True),
    ("samplewise_std_normalization", "samplewise_center", True),
)
_STEPS = (
    *("rescale", "samplewise_center", "samplewise_std_normalization"),
    *("featurewise_center", "featurewise_std_normalization", "zca_whitening"),
)


class Standardizer(Checked):
    """Base of `ImageDataGenerator`: standardization of images."""

    featurewise_center: bool
    samplewise_center: bool
    featurewise_std_normalization: bool
    samplewise_std_normalization: bool
    zca_whitening: bool
    zca_epsilon: float
    rescale: float | None
    preprocessing_function: Any
    data_format: str
    row_axis: int
    col_axis: int
    dtype: str
    # Results of `fit`; a user can also set them.
    mean: Any = None
    std: Any = None
    zca_whitening_matrix: Any = None

    def random_transform(self, x: TensorLike, seed: int | None = None) -> Array:
        """Transform an image at random; a subclass defines it."""
        raise NotImplementedError

    def _resolve_options(self) -> None:
        """Set the required values of other arguments, with a warning for each
        change."""
        for option, other, value in _SETTLED:
            if getattr(self, option) and bool(getattr(self, other)) != value:
                setattr(self, other, value)
                warn(f"ImageDataGenerator: {option} sets {other} to {value}")

    def standardize(self, x: Any) -> Any:
        """Standardize an image or a batch; float arrays are modified in place.

        Args:
            x: (..., height, width, channels), or channels before height.

        Returns:
            x, or another array of its shape.
        """
        if self.preprocessing_function:
            x = self.preprocessing_function(x)
        if any(getattr(self, name) for name in _STEPS):
            x = self._as_writable(x)
        if self.rescale:
            x *= self.rescale
        if self.samplewise_center:
            x -= np.mean(x, keepdims=True)
        if self.samplewise_std_normalization:
            x /= np.std(x, keepdims=True) + 1e-6
        if self._is_ready("featurewise_center", self.mean):
            x -= self.mean
        if self._is_ready("featurewise_std_normalization", self.std):
            x /= self.std + 1e-6
        if self._is_ready("zca_whitening", self.zca_whitening_matrix):
            rows = x.reshape(-1, math.prod(x.shape[-3:]))
            x = (rows @ self.zca_whitening_matrix).reshape(x.shape)
        return x

    def _as_writable(self, x: Any) -> Array:
        """Return a writable float array: x itself, if possible."""
        is_float = dtypes.is_float(dtypes.standardize(x.dtype))
        if isinstance(x, np.ndarray) and is_float and x.flags.writeable:
            return x
        if not is_float and not dtypes.is_float(self.dtype):
            raise DTypeError(
                "ImageDataGenerator: expected a floating dtype, to standardize images; "
                f"received {self.dtype}"
            )
        return np.array(x, None if is_float else dtypes.numpy_dtype(self.dtype))

    def _is_ready(self, name: str, statistics: Any) -> bool:
        """Return whether a step is enabled and has its statistics from `fit`."""
        if getattr(self, name) and statistics is None:
            warn(f"ImageDataGenerator: {name} does nothing before `fit(images)`")
        return bool(getattr(self, name)) and statistics is not None

    def fit(
        self,
        x: TensorLike,
        augment: bool = False,
        rounds: int = 1,
        seed: int | None = None,
    ) -> None:
        """Compute the mean, standard deviation and whitening matrix of images.

        Args:
            x: (samples, height, width, channels), or channels second.
            augment: whether to transform the images at random first.
            rounds: the number of random transformations of each image.
            seed: for NumPy's global generator; None does not set it.

        Raises:
            ShapeError: if x does not have four axes.
        """
        images = np.array(x, dtypes.numpy_dtype(self.dtype))
        if images.ndim != 4:
            raise ShapeError(
                "ImageDataGenerator.fit: expected images with four axes in all; "
                f"received shape {images.shape}"
            )
        warn_of_channels("ImageDataGenerator.fit", images.shape, self.data_format)
        if seed is not None:
            np.random.seed(seed)
        if self.rescale:
            images *= self.rescale
        if augment:
            changed = [self.random_transform(x) for _ in range(rounds) for x in images]
            images = np.array(changed, images.dtype)
        axes = (0, self.row_axis, self.col_axis)
        if self.featurewise_center:
            self.mean = np.mean(images, axis=axes, keepdims=True)[0]
            images -= self.mean
        if self.featurewise_std_normalization:
            self.std = np.std(images, axis=axes, keepdims=True)[0]
            images /= self.std + 1e-6
        if self.zca_whitening:
            self.zca_whitening_matrix = _compute_whitening(images, self.zca_epsilon)


def _compute_whitening(images: Array, epsilon: float) -> Array:
    """Return the ZCA matrix: whitened values are uncorrelated, with variance 1.

    Reference: https://www.cs.toronto.edu/~kriz/learning-features-2009-TR.pdf
    """
    rows = images.reshape(len(images), -1)
    u, s, _ = np.linalg.svd(rows.T, full_matrices=False)
    matrix: Array = (u * (np.sqrt(len(rows)) / (s + epsilon))).dot(u.T)
    return matrix
