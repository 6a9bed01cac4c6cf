"""Types of what public signatures take, for editors and type checkers.

They are wide: whatever works has the type. At run time they check nothing, because the
code that reads such a value can say more (see `kind_of` in `toolkit/arguments.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Protocol, TypeAlias

import numpy as np

_BY_READER = "checked by the code that reads it"


class Shaped(Protocol):
    """What has a shape and a dtype: tensors, Variables, symbols, arrays."""

    @property
    def shape(self) -> Any:
        """The extents."""

    @property
    def dtype(self) -> Any:
        """The dtype, or its name."""


class Policy(Protocol):
    """The dtypes that a layer computes and keeps its weights in."""

    @property
    def compute_dtype(self) -> str:
        """The dtype of the computation."""

    @property
    def variable_dtype(self) -> str:
        """The dtype of the weights."""


class SeedSource(Protocol):
    """A SeedGenerator."""

    def next(self) -> Any:
        """The next seed."""


# An integer, for the same draws every time, or a generator of seeds, or its config.
SeedLike: TypeAlias = Annotated[int | SeedSource | dict[str, Any], _BY_READER]

# A shape; None: an extent that is not known.
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

# Objects of the API by name, as an object or function, or as a config.
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

# A number, or (lowest, highest) to draw it from.
NumberOrRange: TypeAlias = Annotated[float | Sequence[float], _BY_READER]
# The same two, as they are kept.
Range: TypeAlias = tuple[float, float]
# (lowest, highest), from the user.
NumberRange: TypeAlias = Annotated[Sequence[float], _BY_READER]
# Rows to add or cut off at the ends of spatial axes: one number, one for each axis, or
# a pair for each.
Borders: TypeAlias = Annotated[int | Sequence[int | Sequence[int]], _BY_READER]
