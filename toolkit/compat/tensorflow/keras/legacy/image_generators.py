"""`ImageDataGenerator`: random transformation and standardization of training images.

Random numbers are from NumPy's global generator, in the order of Keras: with the same
seed a script gets the same images.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.compat.tensorflow.keras.legacy.image_colors import (
    apply_brightness_shift as apply_brightness_shift,
    apply_channel_shift as apply_channel_shift,
    random_brightness as random_brightness,
    random_channel_shift as random_channel_shift,
    shift_brightness,
)
from toolkit.compat.tensorflow.keras.legacy.image_drawing import (
    draw_shift,
    draw_uniform,
    draw_zoom,
    validate_brightness,
    validate_shift,
    validate_split,
    validate_zoom,
)
from toolkit.compat.tensorflow.keras.legacy.image_file_iterators import (
    DirectoryIterator as DirectoryIterator,
)
from toolkit.compat.tensorflow.keras.legacy.image_iterators import (
    Iterator as Iterator,
    NumpyArrayIterator as NumpyArrayIterator,
)
from toolkit.compat.tensorflow.keras.legacy.image_standardizing import Standardizer
from toolkit.compat.tensorflow.keras.legacy.image_table_iterators import (
    DataFrameIterator as DataFrameIterator,
)
from toolkit.compat.tensorflow.keras.legacy.image_transforms import (
    apply_affine_transform as apply_affine_transform,
    check_sampling,
    random_rotation as random_rotation,
    random_shear as random_shear,
    random_shift as random_shift,
    random_zoom as random_zoom,
)
from toolkit.console.frames import warn
from toolkit.errors import unknown_arguments
from toolkit.settings import floatx, standardize_data_format
from toolkit.type_aliases import Array, TensorLike

__all__ = [
    *("DataFrameIterator", "DirectoryIterator", "ImageDataGenerator", "Iterator"),
    *("NumpyArrayIterator", "apply_affine_transform", "apply_brightness_shift"),
    *("apply_channel_shift", "random_brightness", "random_channel_shift"),
    *("random_rotation", "random_shear", "random_shift", "random_zoom"),
]

# The identity transformation.
_NEUTRAL = {"theta": 0, "tx": 0, "ty": 0, "shear": 0, "zx": 1, "zy": 1}
# Arguments from before Keras 2.2, which Keras 3 still accepts.
_GONE = ("drop_duplicates", "has_ext", "sort")


class ImageDataGenerator(Standardizer):
    """A generator that transforms images at random, standardizes them and batches them.

    Args:
        featurewise_center: whether to subtract the channel means from `fit`.
        samplewise_center: whether to subtract the mean of each image.
        featurewise_std_normalization: whether to divide by the channel standard
            deviations from `fit`.
        samplewise_std_normalization: whether to divide by the standard deviation of
            each
            image.
        zca_whitening: whether to whiten by the covariance from `fit`.
        zca_epsilon: added to the singular values in the divisor.
        rotation_range: the maximum angle, in degrees.
        width_shift_range: the maximum shift: below 1 a fraction of the width, otherwise
            pixels; an integer n: one of 0, ..., n - 1 pixels with a random sign; a
                list:
            one of its elements with a random sign.
        height_shift_range: the same for the height.
        brightness_range: (minimum, maximum) factor; None: no change.
        shear_range: the maximum shear angle, in degrees.
        zoom_range: (minimum, maximum) factor, above 1 the image becomes smaller; or a
            number z for (1 - z, 1 + z).
        channel_shift_range: the maximum absolute value of the number that is added to
            all values.
        fill_mode: fills the outside of an image: "constant", "nearest", "reflect",
            "wrap", or another mode of `scipy.ndimage`.
        cval: the fill value in mode "constant".
        horizontal_flip: whether to flip half of the images left to right.
        vertical_flip: whether to flip half of the images upside down.
        rescale: a factor for all values; None or 0: no change.
        preprocessing_function: receives each image after the changes above, and returns
            an image of the same shape.
        data_format: "channels_last", "channels_first", or None for the global default.
        validation_split: the fraction of the data for `subset="validation"`, in [0, 1).
        interpolation_order: 0: nearest pixel, 1: linear; up to 5 with SciPy.
        dtype: of images; None: floatx.

    Raises:
        ArgumentError: if an argument has an invalid value.

    Example:
        >>> import numpy as np
        >>> import toolkit.compat.tensorflow as tf
        >>> ImageDataGenerator = tf.keras.preprocessing.image.ImageDataGenerator
        >>> generator = ImageDataGenerator(rescale=1 / 255, horizontal_flip=True)
        >>> images = np.full((3, 8, 8, 1), 255)
        >>> x, y = next(generator.flow(images, np.arange(3), batch_size=2, seed=0))
        >>> x.shape, float(x.max()), y.tolist()
        ((2, 8, 8, 1), 1.0, [2, 1])
    """

    def __init__(
        self,
        featurewise_center: bool = False,
        samplewise_center: bool = False,
        featurewise_std_normalization: bool = False,
        samplewise_std_normalization: bool = False,
        zca_whitening: bool = False,
        zca_epsilon: float = 1e-6,
        rotation_range: float | None = 0,
        width_shift_range: Any = 0.0,
        height_shift_range: Any = 0.0,
        brightness_range: Any = None,
        shear_range: float | None = 0.0,
        zoom_range: Any = 0.0,
        channel_shift_range: float = 0.0,
        fill_mode: str = "nearest",
        cval: float = 0.0,
        horizontal_flip: bool = False,
        vertical_flip: bool = False,
        rescale: float | None = None,
        preprocessing_function: Any = None,
        data_format: str | None = None,
        validation_split: float | None = 0.0,
        interpolation_order: int = 1,
        dtype: Any = None,
    ) -> None:
        check_sampling("ImageDataGenerator: fill_mode", fill_mode, interpolation_order)
        self.featurewise_center = featurewise_center
        self.samplewise_center = samplewise_center
        self.featurewise_std_normalization = featurewise_std_normalization
        self.samplewise_std_normalization = samplewise_std_normalization
        self.zca_whitening, self.zca_epsilon = zca_whitening, zca_epsilon
        self.rotation_range, self.shear_range = rotation_range, shear_range
        self.width_shift_range = validate_shift("width_shift_range", width_shift_range)
        self.height_shift_range = validate_shift(
            "height_shift_range", height_shift_range
        )
        self.brightness_range = validate_brightness(brightness_range)
        self.zoom_range = validate_zoom(zoom_range)
        self.channel_shift_range = channel_shift_range
        self.fill_mode, self.cval = fill_mode, cval
        self.interpolation_order = interpolation_order
        self.horizontal_flip, self.vertical_flip = horizontal_flip, vertical_flip
        self.rescale = rescale
        self.preprocessing_function = preprocessing_function
        self.data_format = standardize_data_format(data_format)
        last = self.data_format == "channels_last"
        self.row_axis, self.col_axis, self.channel_axis = (
            (1, 2, 3) if last else (2, 3, 1)
        )
        self._validation_split = validate_split(validation_split)
        self.dtype = dtypes.standardize(dtype or floatx())
        self._resolve_options()

    def flow(
        self,
        x: TensorLike,
        y: Any = None,
        batch_size: int = 32,
        shuffle: bool = True,
        sample_weight: TensorLike | None = None,
        seed: int | None = None,
        save_to_dir: Any = None,
        save_prefix: str = "",
        save_format: str = "png",
        ignore_class_split: bool = False,
        subset: str | None = None,
    ) -> NumpyArrayIterator:
        """Return infinite batches of images from an array, transformed and
        standardized.

        Arguments are as in `NumpyArrayIterator`.
        """
        arguments = self._iterator_arguments(locals())
        return NumpyArrayIterator(image_data_generator=self, **arguments)

    def flow_from_directory(
        self,
        directory: str | PathLike[str],
        target_size: Sequence[int] = (256, 256),
        color_mode: str = "rgb",
        classes: Any = None,
        class_mode: str | None = "categorical",
        batch_size: int = 32,
        shuffle: bool = True,
        seed: int | None = None,
        save_to_dir: Any = None,
        save_prefix: str = "",
        save_format: str = "png",
        follow_links: bool = False,
        subset: str | None = None,
        interpolation: str = "nearest",
        keep_aspect_ratio: bool = False,
    ) -> DirectoryIterator:
        """Return infinite batches of images from folders, one per class.

        Arguments are as in `DirectoryIterator`.
        """
        arguments = self._iterator_arguments(locals())
        return DirectoryIterator(image_data_generator=self, **arguments)

    def flow_from_dataframe(
        self,
        dataframe: Any,
        directory: str | PathLike[str] | None = None,
        x_col: Any = "filename",
        y_col: Any = "class",
        weight_col: Any = None,
        target_size: Sequence[int] = (256, 256),
        color_mode: str = "rgb",
        classes: Any = None,
        class_mode: str | None = "categorical",
        batch_size: int = 32,
        shuffle: bool = True,
        seed: int | None = None,
        save_to_dir: Any = None,
        save_prefix: str = "",
        save_format: str = "png",
        subset: str | None = None,
        interpolation: str = "nearest",
        validate_filenames: bool = True,
        **kwargs: Any,
    ) -> DataFrameIterator:
        """Return infinite batches of images whose paths are in a pandas DataFrame.

        Arguments are as in `DataFrameIterator`. `drop_duplicates`, `has_ext` and
        `sort`, from before Keras 2.2, have no effect.
        """
        arguments = self._iterator_arguments(locals())
        if unknown := kwargs.keys() - set(_GONE):
            raise unknown_arguments("flow_from_dataframe", unknown, _GONE)
        for name in kwargs:
            warn(f"flow_from_dataframe: {name} has no effect", DeprecationWarning)
        if class_mode == "other":
            warn('class_mode="other" is called "raw" today', DeprecationWarning)
            arguments["class_mode"] = "raw"
        return DataFrameIterator(image_data_generator=self, **arguments)

    def _iterator_arguments(self, names: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of an iterator: from a method, and from the
        generator."""
        arguments = {k: v for k, v in names.items() if k not in ("self", "kwargs")}
        return arguments | {"data_format": self.data_format, "dtype": self.dtype}

    def get_random_transform(
        self, img_shape: Any, seed: int | None = None
    ) -> dict[str, Any]:
        """Draw the transformation of one image at random.

        Args:
            img_shape: the shape of the image.
            seed: for NumPy's global generator; None does not set it.

        Returns:
            A dict for `apply_transform`: theta, tx, ty, shear, zx, zy, flip_horizontal,
            flip_vertical, channel_shift_intensity and brightness.
        """
        if seed is not None:
            np.random.seed(seed)
        height, width = img_shape[self.row_axis - 1], img_shape[self.col_axis - 1]
        # Random numbers are drawn in the order of Keras: the result of a seed depends
        # on it.
        theta = draw_uniform(self.rotation_range) if self.rotation_range else 0
        tx = draw_shift(self.height_shift_range, height)
        ty = draw_shift(self.width_shift_range, width)
        shear = draw_uniform(self.shear_range) if self.shear_range else 0
        zx, zy = draw_zoom(self.zoom_range)
        mirrored, is_flipped = np.random.random() < 0.5, np.random.random() < 0.5
        intensity = brightness = None
        if self.channel_shift_range != 0:
            intensity = draw_uniform(self.channel_shift_range)
        if self.brightness_range is not None:
            brightness = np.random.uniform(*self.brightness_range)
        return {
            "theta": theta,
            "tx": tx,
            "ty": ty,
            "shear": shear,
            "zx": zx,
            "zy": zy,
            "flip_horizontal": bool(mirrored and self.horizontal_flip),
            "flip_vertical": bool(is_flipped and self.vertical_flip),
            "channel_shift_intensity": intensity,
            "brightness": brightness,
        }

    def apply_transform(
        self, x: TensorLike, transform_parameters: dict[str, Any]
    ) -> Array:
        """Transform an image with parameters from `get_random_transform`, or some of
        them.

        Args:
            x: (height, width, channels), or channels first.
            transform_parameters: a missing parameter causes no change.

        Returns:
            An image of the shape of x; x itself without a change.
        """
        parameter = transform_parameters.get
        row, column = self.row_axis - 1, self.col_axis - 1
        y: Array = apply_affine_transform(
            np.asarray(x),
            **{name: parameter(name, value) for name, value in _NEUTRAL.items()},
            row_axis=row,
            col_axis=column,
            channel_axis=self.channel_axis - 1,
            fill_mode=self.fill_mode,
            cval=self.cval,
            order=self.interpolation_order,
        )
        if (intensity := parameter("channel_shift_intensity")) is not None:
            y = apply_channel_shift(y, intensity)
        if parameter("flip_horizontal"):
            y = np.flip(y, column)
        if parameter("flip_vertical"):
            y = np.flip(y, row)
        if (brightness := parameter("brightness")) is not None:
            y = shift_brightness(y, brightness, False, self.data_format)
        return y

    def random_transform(self, x: Any, seed: int | None = None) -> Array:
        """Transform an image at random.

        Args:
            x: (height, width, channels), or channels first.
            seed: for NumPy's global generator; None does not set it.

        Returns:
            An image of the shape of x.
        """
        return self.apply_transform(x, self.get_random_transform(x.shape, seed))
