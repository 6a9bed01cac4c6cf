"""Brightness changes of one image, with NumPy's global random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.compat.tensorflow.keras.legacy.image_drawing import check_pair
from toolkit.reading.images import import_pillow
from toolkit.type_aliases import Array, TensorLike
from toolkit.utils.images import array_to_img, img_to_array


def apply_channel_shift(x: Any, intensity: float, channel_axis: int = 0) -> Array:
    """Add a number to an image, and clip to the original range.

    Args:
        x: an image, three axes.
        intensity: the number.
        channel_axis: has no effect: all channels receive the same number.

    Returns:
        An image of the shape of x.

    Example:
        >>> import numpy as np
        >>> import toolkit.compat.tensorflow as tf
        >>> apply_channel_shift = tf.keras.preprocessing.image.apply_channel_shift
        >>> apply_channel_shift(np.array([[[0.0, 5.0, 9.0]]]), 3.0).tolist()
        [[[3.0, 8.0, 9.0]]]
    """
    shifted: Array = np.clip(np.asarray(x) + intensity, np.min(x), np.max(x))
    return shifted


def random_channel_shift(
    x: TensorLike, intensity_range: float, channel_axis: int = 0
) -> Array:
    """Add a random number to an image, and clip to the original range.

    Args:
        x: an image, three axes.
        intensity_range: the maximum absolute value of the number.
        channel_axis: has no effect: all channels receive the same number.

    Returns:
        An image of the shape of x.

    Example:
        >>> import numpy as np
        >>> import toolkit.compat.tensorflow as tf
        >>> random_channel_shift = tf.keras.preprocessing.image.random_channel_shift
        >>> random_channel_shift(np.zeros((3, 4, 4)), 0.5).max()
        np.float64(0.0)
    """
    intensity = np.random.uniform(-intensity_range, intensity_range)
    return apply_channel_shift(x, intensity)


def apply_brightness_shift(
    x: TensorLike, brightness: float, scale: bool = True
) -> Array:
    """Multiply the brightness of an image, with 8 bits per channel.

    Args:
        x: an image, three axes in the global data format.
        brightness: the factor; 0 gives a black image.
        scale: whether to scale the values to [0, 255]. If False, only values outside of
            this range are scaled, and the result is scaled back.

    Returns:
        An image of the shape of x, in the global floating dtype.

    Raises:
        ImportError: Pillow is not installed.

    Example:
        >>> import numpy as np
        >>> import toolkit.compat.tensorflow as tf
        >>> apply_brightness_shift = tf.keras.preprocessing.image.apply_brightness_shift
        >>> apply_brightness_shift(np.full((1, 1, 3), 100.0), 1.5, scale=False).tolist()
        [[[150.0, 150.0, 150.0]]]
    """
    return shift_brightness(x, brightness, scale, None)


def shift_brightness(
    x: Any, brightness: float, scale: bool, data_format: str | None
) -> Array:
    """Apply `apply_brightness_shift` to an image in any data format."""
    import_pillow("apply_brightness_shift")
    from PIL import ImageEnhance

    low, high = np.min(x), np.max(x)
    is_outside = bool(low < 0 or high > 255)
    image = array_to_img(x, data_format, scale=is_outside or scale)
    y = img_to_array(ImageEnhance.Brightness(image).enhance(brightness), data_format)
    if is_outside and not scale:
        y = y / 255 * (high - low) + low
    return y


def random_brightness(
    x: TensorLike, brightness_range: Any, scale: bool = True
) -> Array:
    """Multiply the brightness of an image by a random factor.

    Args:
        x: an image, three axes in the global data format.
        brightness_range: (minimum, maximum) factor.
        scale: as for `apply_brightness_shift`.

    Returns:
        An image of the shape of x, in the global floating dtype.

    Raises:
        ArgumentError: if `brightness_range` is not a pair.
        ImportError: Pillow is not installed.

    Example:
        >>> import numpy as np
        >>> import toolkit.compat.tensorflow as tf
        >>> random_brightness = tf.keras.preprocessing.image.random_brightness
        >>> random_brightness(np.zeros((2, 2, 3)), (0.5, 1.5)).max()
        np.float32(0.0)
    """
    low, high = check_pair("random_brightness: brightness_range", brightness_range)
    return apply_brightness_shift(x, np.random.uniform(low, high), scale)
