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


class BasicLayerOptions(TypedDict, total=False):
    """Keyword arguments of the base class of layers that every layer passes on."""

    trainable: bool
    autocast: bool
    input_shape: Shape  # as in Keras 2


class TypedLayerOptions(BasicLayerOptions, total=False):
    """The same, for layers that do not name `dtype`."""

    dtype: PolicyLike | None


class LayerOptions(TypedLayerOptions, total=False):
    """All keyword arguments of the base class of layers except the regularizer."""

    name: str | None
    input_dim: int


class RegularizedLayerOptions(LayerOptions, total=False):
    """The options of layers, for those that do not name this regularizer."""

    activity_regularizer: RegularizerLike | None


class PoolingOptions(TypedLayerOptions, total=False):
    """The options of pooling layers, which name `name`."""

    input_dim: int
    activity_regularizer: RegularizerLike | None


class EmbeddingOptions(TypedLayerOptions, total=False):
    """The options of embeddings, which name `input_dim`."""

    name: str | None
    activity_regularizer: RegularizerLike | None
    input_length: int | None  # as in Keras 2


class LookupOptions(TypedDict, total=False):
    """The options of lookup layers, which name `name`."""

    trainable: bool
    dtype: PolicyLike | None
    vocabulary_size: int | None  # from a config
    has_input_vocabulary: bool | None


class CellOptions(LayerOptions, total=False):
    """The options of recurrent cells and layers."""

    implementation: int
    zero_output_for_mask: bool


class ActivationOptions(RegularizedLayerOptions, total=False):
    """The options of LeakyReLU."""

    alpha: float  # as in Keras 2


class UndecayedOptimizerOptions(TypedDict, total=False):
    """Keyword arguments of the base class of optimizers except `weight_decay`."""

    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None
    use_ema: bool
    ema_momentum: float
    ema_overwrite_frequency: int | None
    loss_scale_factor: float | None
    gradient_accumulation_steps: int | None
    name: str | None


class OptimizerOptions(UndecayedOptimizerOptions, total=False):
    """Keyword arguments that any optimizer passes to the base class."""

    weight_decay: float | None
