"""Quantizers: conversion between floating values and low-bit integers."""

from __future__ import annotations

from typing import Any

from toolkit import serialization
from toolkit.core.naming import to_snake_case
from toolkit.definitions.namespaces import module_dir
from toolkit.quantizers.configs import (
    AWQConfig,
    Float8QuantizationConfig,
    GPTQConfig,
    Int4QuantizationConfig,
    Int8QuantizationConfig,
    QuantizationConfig,
)
from toolkit.quantizers.fake import fake_quant_with_min_max_vars
from toolkit.quantizers.float8 import (
    compute_float8_amax_history,
    compute_float8_scale,
    quantize_and_dequantize,
)
from toolkit.quantizers.grouped import (
    abs_max_quantize_grouped_with_zero_point,
    pack_int4,
    unpack_int4,
)
from toolkit.quantizers.quantizer import (
    AbsMaxQuantizer,
    Quantizer,
    StaticQuantizer,
    abs_max_quantize,
)
from toolkit.type_aliases import InitializerLike

__all__ = [
    "AWQConfig",
    "AbsMaxQuantizer",
    "Float8QuantizationConfig",
    "GPTQConfig",
    "Int4QuantizationConfig",
    "Int8QuantizationConfig",
    "QuantizationConfig",
    "Quantizer",
    "StaticQuantizer",
    "abs_max_quantize",
    "abs_max_quantize_grouped_with_zero_point",
    "compute_float8_amax_history",
    "compute_float8_scale",
    "deserialize",
    "fake_quant_with_min_max_vars",
    "get",
    "pack_int4",
    "quantize_and_dequantize",
    "serialize",
    "unpack_int4",
]

_CLASSES = (
    *(AbsMaxQuantizer, Quantizer, AWQConfig, Float8QuantizationConfig, GPTQConfig),
    *(Int4QuantizationConfig, Int8QuantizationConfig, QuantizationConfig),
    StaticQuantizer,
)
_OBJECTS = {
    name: cls
    for cls in _CLASSES
    for name in (cls.__name__, to_snake_case(cls.__name__))
}


def serialize(initializer: InitializerLike) -> Any:
    """Return a quantizer, or config of quantization, as a dict of plain values.

    Args:
        initializer: a quantizer, or a config of quantization.

    Returns:
        A dict of the class and its config.

    Example:
        >>> from toolkit import quantizers
        >>> quantizers.serialize(quantizers.AbsMaxQuantizer(axis=0))["class_name"]
        'AbsMaxQuantizer'
    """
    return serialization.serialize_keras_object(initializer)


def deserialize(config: Any, custom_objects: Any = None) -> Any:
    """Build a quantizer from the result of `serialize`.

    Args:
        config: the result of `serialize`.
        custom_objects: a dict from names to classes that the config contains.

    Returns:
        The object.

    Example:
        >>> from toolkit import quantizers
        >>> config = quantizers.serialize(quantizers.AbsMaxQuantizer(axis=0))
        >>> quantizers.deserialize(config).axis
        (0,)
    """
    return serialization.get(config, _OBJECTS, "quantizer", custom_objects)


def get(identifier: Any, **kwargs: Any) -> Any:
    """Return the quantizer for a name, config, class or object; None stays None.

    Args:
        identifier: a name, config, class or object.
        **kwargs: arguments of the constructor, if `identifier` is a name or class.

    Returns:
        A quantizer or a config of quantization, or None.

    Example:
        >>> from toolkit import quantizers
        >>> quantizers.get("abs_max_quantizer", axis=0).axis
        (0,)
    """
    if kwargs:
        cls = _OBJECTS.get(identifier, identifier)
        return cls(**kwargs)
    return serialization.get(identifier, _OBJECTS, "quantizer")


__dir__ = module_dir(__name__)
