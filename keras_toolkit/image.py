"""The operations of `keras.ops.image`: toolkit has them by the same names."""

from __future__ import annotations

from typing import Any

from keras_toolkit.core import convert_to_tensor
from keras_toolkit.namespace import forward_names
from keras_toolkit.random import with_seed
from toolkit.ops import image
from toolkit.ops.image.warping import homographies

__getattr__ = forward_names(globals(), image)

elastic_transform = with_seed(image.elastic_transform)


def compute_homography_matrix(start_points: Any, end_points: Any) -> Any:
    """Return the transforms, (batch, 8), from end points to start points.

    Args:
        start_points: (batch, 4, 2), positions (x, y) in the images.
        end_points: of the same shape, the positions in the results.
    """
    start = convert_to_tensor(start_points, "float32")
    return homographies(start, convert_to_tensor(end_points, "float32"))
