"""Types of arguments that TensorFlow also accepts as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from toolkit.type_aliases import Shaped

# A shape as integers or as a tensor, or one extent.
ShapeLike: TypeAlias = int | Sequence[int | Shaped | None] | Shaped
# One axis or several, as integers or as a tensor.
AxisLike: TypeAlias = int | Sequence[int] | Shaped
