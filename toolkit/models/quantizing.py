"""Models quantized layer by layer."""

from __future__ import annotations

import re
from typing import Any

from toolkit.console.frames import warn
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.quantizers.configs import resolve

_MODES = ("int8", "int4", "float8")


class QuantizableModel:
    """The part of a Model that quantizes its layers."""

    name: str
    _flatten_layers: Any

    def quantize(
        self, mode: Any = None, config: Any = None, filters: Any = None, **kwargs: Any
    ) -> None:
        """Quantize the layers that can be: Dense, EinsumDense and Embedding.

        Args:
            mode: "int8", "int4" or "float8", see `layers.Dense.quantize`; needless with
                a config.
            config: which quantizers to use: see `quantizers.Int8QuantizationConfig`.
            filters: which layers: a regular expression that is searched in their
                names, a list of such, or a function of the layer; all if None.
            **kwargs: `type_check`, as for `Layer.quantize`.

        Raises:
            UnsupportedError: for other modes, or if no layer can be.

        Example:
            >>> import toolkit
            >>> from toolkit import layers
            >>> model = toolkit.Sequential([layers.Input((4,)), layers.Dense(3)])
            >>> model.quantize("int8")
            >>> model.layers[0].kernel_scale.shape
            (3,)
        """
        config = resolve(mode, config)
        type_check = kwargs.pop("type_check", True)
        if kwargs:
            raise ArgumentError(
                f"{self.name}.quantize: Unrecognized keyword arguments {sorted(kwargs)}"
            )
        if config.mode not in _MODES:
            raise UnsupportedError(
                f"{self.name}.quantize: mode {config.mode!r} is not supported; "
                f"expected one of {_MODES}"
            )
        chosen = [
            layer
            for layer in self._flatten_layers()
            if len(layer._flatten_layers()) == 1 and _is_chosen(layer, filters)
        ]
        done = [layer for layer in chosen if _quantize(layer, config, type_check)]
        if not done and filters is None:
            raise UnsupportedError(
                f"{self.name}.quantize: the model has no layer that can be quantized"
            )
        self._trained = None  # the weights that are left are trained on
        self.train_function: None
        self.test_function: None
        self.predict_function: None
        self.train_function = self.test_function = self.predict_function = None


def _quantize(layer: Any, config: Any, type_check: bool) -> bool:
    """Whether the layer could be quantized; a warning tells of weights that stay."""
    try:
        layer.quantize(config.mode, type_check=type_check, config=config)
    except NotImplementedError as error:
        if layer.weights:
            warn(str(error))
        return False
    return True


def _is_chosen(layer: Any, filters: Any) -> bool:
    if filters is None:
        return True
    if callable(filters):
        return bool(filters(layer))
    patterns = [filters] if isinstance(filters, str) else filters
    if not isinstance(patterns, (list, tuple)):
        raise ArgumentError(
            "quantize: The `filters` argument must be a regex string, a list of regex "
            f"strings, or a callable; received {filters!r}"
        )
    return any(re.search(pattern, layer.name) for pattern in patterns)
