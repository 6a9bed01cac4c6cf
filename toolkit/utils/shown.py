"""What a loop over a data set of `utils` gets: tensors, as in Keras."""

from __future__ import annotations

from typing import Any

from toolkit.core.convert import convert
from toolkit.core.strings import StringTensor, is_string


def tensor_of(value: Any) -> Any:
    """An array of a data set as a tensor."""
    return StringTensor(value) if is_string(value) else convert(value)
