"""Tensors for loops over data sets of `utils`, as in Keras."""

from __future__ import annotations

from typing import Any

from toolkit.core.convert import convert
from toolkit.core.strings import StringTensor, is_string


def to_tensor(value: Any) -> Any:
    """Return an array of a data set as a tensor."""
    return StringTensor(value) if is_string(value) else convert(value)
