"""Initializers: the initial values of weights.

A layer's argument such as `kernel_initializer` may be an instance, a class, a name in
either spelling ("GlorotUniform", "glorot_uniform"), a config, a tensor of the weight's
shape, or a function `(shape, dtype)`.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.core.convert import convert
from toolkit.core.naming import to_snake_case
from toolkit.core.tensor import Tensor
from toolkit.core.variable import Variable
from toolkit.definitions.namespaces import missing_name, module_dir
from toolkit.errors import ArgumentError, ShapeError, unknown_choice
from toolkit.initializers.base import Initializer as Initializer
from toolkit.initializers.constants import (
    Constant as Constant,
    Identity as Identity,
    Ones as Ones,
    Zeros as Zeros,
)
from toolkit.initializers.fourier import STFT as STFT
from toolkit.initializers.random import (
    GlorotNormal as GlorotNormal,
    GlorotUniform as GlorotUniform,
    HeNormal as HeNormal,
    HeUniform as HeUniform,
    LecunNormal as LecunNormal,
    LecunUniform as LecunUniform,
    Orthogonal as Orthogonal,
    RandomInitializer as RandomInitializer,
    RandomNormal as RandomNormal,
    RandomUniform as RandomUniform,
    TruncatedNormal as TruncatedNormal,
    VarianceScaling as VarianceScaling,
)
from toolkit.serialization import (
    deserialize_keras_object,
    get_registered_object,
    serialize_keras_object,
)
from toolkit.type_aliases import DTypeLike, InitializerLike, Shape, TensorLike

_CLASSES = (
    *(Constant, Identity, Ones, Zeros, Orthogonal, STFT),
    *(GlorotNormal, GlorotUniform, HeNormal, HeUniform, LecunNormal, LecunUniform),
    *(RandomNormal, RandomUniform, TruncatedNormal, VarianceScaling),
)
_BY_NAME: dict[str, Any] = {
    **{cls.__name__: cls for cls in _CLASSES},
    **{to_snake_case(cls.__name__): cls for cls in _CLASSES},
    "IdentityInitializer": Identity,
    "OrthogonalInitializer": Orthogonal,
    "STFTInitializer": STFT,
    "normal": RandomNormal,
    "one": Ones,
    "uniform": RandomUniform,
    "zero": Zeros,
}


def __getattr__(name: str) -> Any:
    """Return an initializer class by an alias such as `glorot_uniform`."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    raise missing_name(__name__, name, __dir__)


__dir__ = module_dir(__name__, _BY_NAME)


def serialize(initializer: InitializerLike) -> Any:
    """Return the config of an initializer.

    Args:
        initializer: an initializer.

    Returns:
        A dict of the class and the config.

    Example:
        >>> from toolkit import initializers
        >>> initializers.serialize(initializers.Constant(2.0))["class_name"]
        'Constant'
    """
    return serialize_keras_object(initializer)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """Build an initializer from its config.

    Args:
        config: the result of `serialize`, or a name.
        custom_objects: a dict from names to classes that the config contains.

    Returns:
        The initializer.

    Example:
        >>> from toolkit import initializers
        >>> config = initializers.serialize(initializers.Constant(2.0))
        >>> initializers.deserialize(config)((2,)).tolist()
        [2.0, 2.0]
    """
    return deserialize_keras_object(
        config, custom_objects=custom_objects, module_objects=_BY_NAME
    )


def get(identifier: Any) -> Any:
    """Return the initializer for an argument.

    Args:
        identifier: an initializer, its class, name or config; a tensor of initial
            values; a function `(shape, dtype)`; or None, which returns None.

    Returns:
        An initializer, or None.

    Example:
        >>> import toolkit
        >>> toolkit.initializers.get("ones")((2,)).numpy().tolist()
        [1.0, 1.0]
    """
    if identifier is None:
        return None
    if isinstance(identifier, str):
        initializer = get_registered_object(identifier) or _BY_NAME.get(identifier)
        if initializer is None:
            raise unknown_choice("initializer", identifier, _BY_NAME)
    elif isinstance(identifier, (Tensor, Variable, np.ndarray, np.generic)):
        initializer = _constant_of(identifier)
    elif isinstance(identifier, dict):
        initializer = deserialize(identifier)
    else:
        initializer = identifier
    if not callable(initializer):
        raise ArgumentError(
            "initializer: expected a name, a config, a tensor or a function; received "
            f"{identifier!r}"
        )
    return initializer() if inspect.isclass(initializer) else initializer


def _constant_of(value: TensorLike) -> Any:
    """Return an initializer that always returns this value."""
    value = convert(value)

    def initialize(shape: Shape, dtype: DTypeLike | None = None) -> Tensor:
        if tuple(shape) != value.shape:
            raise ShapeError(
                "initializer: expected a tensor of the weight's shape "
                f"{tuple(shape)}; received shape {value.shape}"
            )
        return convert(value, dtypes.standardize(dtype))

    return initialize


# Variable accepts initializers by name, but its module is imported before this one.
Variable._initializer_named = staticmethod(get)
