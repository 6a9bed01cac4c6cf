"""Brightness of one image changed, with NumPy's global random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.compat.tensorflow.keras.older.image_drawing import pair_of
from toolkit.reading.images import pillow
from toolkit.utils.images import array_to_img, img_to_array

Array = NDArray[Any]


def apply_channel_shift(x: Any, intensity: float, channel_axis: int = 0) -> Array:
    """An image, with a number added to it and cut to the range that it had.

    Args:
        x: an image, three axes.
        intensity: what is added.
        channel_axis: has no effect: all channels get the same.

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
    x: Any, intensity_range: float, channel_axis: int = 0
) -> Array:
    """An image, with a random number added to it and cut to the range that it had.

    Args:
        x: an image, three axes.
        intensity_range: the most that is added or taken away.
        channel_axis: has no effect: all channels get the same.

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


def apply_brightness_shift(x: Any, brightness: float, scale: bool = True) -> Array:
    """An image, made brighter or darker in 8 bits for each channel.

    Args:
        x: an image, three axes in the global data format.
        brightness: the factor; 0 makes it black.
        scale: whether to bring the values to [0, 255] before. If not, that is done
            only where they are outside of this range, and undone after.

    Returns:
        An image of the shape of x, in the global floating dtype.

    Raises:
        ImportError: there is no Pillow.

    Example:
        >>> import numpy as np
        >>> import toolkit.compat.tensorflow as tf
        >>> apply_brightness_shift = tf.keras.preprocessing.image.apply_brightness_shift
        >>> apply_brightness_shift(np.full((1, 1, 3), 100.0), 1.5, scale=False).tolist()
        [[[150.0, 150.0, 150.0]]]
    """
    return brightened(x, brightness, scale, None)


def brightened(
    x: Any, brightness: float, scale: bool, data_format: str | None
) -> Array:
    """`apply_brightness_shift` of an image in any data format."""
    pillow("apply_brightness_shift")
    from PIL import ImageEnhance

    low, high = np.min(x), np.max(x)
    is_outside = bool(low < 0 or high > 255)
    image = array_to_img(x, data_format, scale=is_outside or scale)
    y = img_to_array(ImageEnhance.Brightness(image).enhance(brightness), data_format)
    if is_outside and not scale:
        y = y / 255 * (high - low) + low
    return y


def random_brightness(x: Any, brightness_range: Any, scale: bool = True) -> Array:
    """An image, made brighter or darker by a random factor.

    Args:
        x: an image, three axes in the global data format.
        brightness_range: (least, largest) factor.
        scale: as for `apply_brightness_shift`.

    Returns:
        An image of the shape of x, in the global floating dtype.

    Raises:
        ArgumentError: if `brightness_range` is not a pair.
        ImportError: there is no Pillow.

    Example:
        >>> import numpy as np
        >>> import toolkit.compat.tensorflow as tf
        >>> random_brightness = tf.keras.preprocessing.image.random_brightness
        >>> random_brightness(np.zeros((2, 2, 3)), (0.5, 1.5)).max()
        np.float32(0.0)
    """
    low, high = pair_of("random_brightness: brightness_range", brightness_range)
    return apply_brightness_shift(x, np.random.uniform(low, high), scale)
