"""The conversion of images between colour spaces."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import ops
from toolkit.compat.tensorflow.boundary import make_operations
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.type_aliases import TensorLike

_YUV = np.array(
    [[0.299, -0.14714119, 0.61497538], [0.587, -0.28886916, -0.51496512],
     [0.114, 0.43601035, -0.10001026]]
)  # fmt: skip
_YIQ = np.array(
    [[0.299, 0.59590059, 0.2115], [0.587, -0.27455667, -0.52273617],
     [0.114, -0.32134392, 0.31119955]]
)  # fmt: skip
_FROM_YIQ = np.array(
    [[1.0, 1.0, 1.0], [0.95598634, -0.27201283, -1.10674021],
     [0.6208248, -0.64720424, 1.70423049]]
)  # fmt: skip


def _by(matrix: TensorLike, name: str) -> Any:
    def change(images: TensorLike) -> Tensor:
        x = convert(images)
        return ops.matmul(x, convert(matrix, x.dtype))

    change.__name__ = change.__qualname__ = name
    change.__doc__ = f"The colours of {name.replace('_to_', ', as ')}."
    return change


rgb_to_yuv: Any = _by(_YUV, "rgb_to_yuv")
yuv_to_rgb: Any = _by(np.linalg.inv(_YUV), "yuv_to_rgb")
rgb_to_yiq: Any = _by(_YIQ, "rgb_to_yiq")
yiq_to_rgb: Any = _by(_FROM_YIQ, "yiq_to_rgb")

make_operations(__name__)
