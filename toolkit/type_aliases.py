"""Types of public signatures, for editors and type checkers.

They are wide: they include all values that work. They check nothing at run time,
because the code that reads such a value can raise a more precise error (see `kind_of`
in `toolkit/arguments.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol, TypeAlias, TypedDict

import numpy as np

_BY_READER = "checked by the code that reads it"


class Shaped(Protocol):
    """An object with a shape and a dtype: tensors, Variables, symbols, arrays."""

    @property
    def shape(self) -> Any:
        """Return the extents."""

    @property
    def dtype(self) -> Any:
        """Return the dtype, or its name."""


class Policy(Protocol):
    """The dtypes of a layer's computation and of its weights."""

    @property
    def compute_dtype(self) -> str:
        """Return the dtype of the computation."""

    @property
    def variable_dtype(self) -> str:
        """Return the dtype of the weights."""


class SeedSource(Protocol):
    """A SeedGenerator."""

    def next(self) -> Any:
        """Return the next seed."""


# An integer (the same draws every time), a generator of seeds, or its config.
SeedLike: TypeAlias = Annotated[int | SeedSource | dict[str, Any], _BY_READER]

# An array of NumPy.
Array: TypeAlias = np.ndarray[Any, Any]

# A shape; None is an unknown extent.
Shape: TypeAlias = Annotated[Sequence[int | None], _BY_READER]
# One axis or several.
Axis: TypeAlias = Annotated[int | Sequence[int], _BY_READER]
# An integer for all spatial axes, or one for each: kernel sizes, strides, dilations.
IntOrInts: TypeAlias = Annotated[int | Sequence[int], _BY_READER]

DTypeLike: TypeAlias = Annotated[str | type | np.dtype[Any], _BY_READER]
PolicyLike: TypeAlias = Annotated[
    str | Policy | type | np.dtype[Any] | dict[str, Any], _BY_READER
]
TensorLike: TypeAlias = Annotated[Shaped | complex | Sequence[Any], _BY_READER]

# Objects of the API: by name, as an object or function, or as a config.
ActivationLike: TypeAlias = Annotated[
    str | Callable[..., Any] | dict[str, Any], _BY_READER
]
InitializerLike: TypeAlias = Annotated[
    str | Callable[..., Any] | dict[str, Any] | Shaped, _BY_READER
]
RegularizerLike: TypeAlias = Annotated[
    str | Callable[..., Any] | dict[str, Any], _BY_READER
]
ConstraintLike: TypeAlias = Annotated[
    str | Callable[..., Any] | dict[str, Any], _BY_READER
]

# A number, or the range (lowest, highest) to draw it from.
NumberOrRange: TypeAlias = Annotated[float | Sequence[float], _BY_READER]
# The same two, as stored.
Range: TypeAlias = tuple[float, float]
# (lowest, highest), from the user.
NumberRange: TypeAlias = Annotated[Sequence[float], _BY_READER]
# Rows to add or remove at the ends of spatial axes: one number, one for each axis, or a
# pair for each axis.
Borders: TypeAlias = Annotated[int | Sequence[int | Sequence[int]], _BY_READER]


class LayerOptions(TypedDict, total=False):
    """Keyword arguments of the base class of layers, which any layer passes on."""

    trainable: bool
    dtype: PolicyLike | None
    autocast: bool
    name: str | None
    input_shape: Shape  # as in Keras 2
    input_dim: int


class RegularizedLayerOptions(LayerOptions, total=False):
    """The options of layers, for those that do not name this regularizer."""

    activity_regularizer: RegularizerLike | None
