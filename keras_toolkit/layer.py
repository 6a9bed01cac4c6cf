"""The part of Keras's Layer that belongs to the backend."""

from __future__ import annotations

from typing import Any

from keras_toolkit.quantization import LAYERS, multiply_packed


class ToolkitLayer:
    """Give the layers with int4 weights a product that reads the packed kernel."""

    _int4_call: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__ in LAYERS and "_int4_call" in vars(cls):
            cls._int4_call = multiply_packed(cls._int4_call)
