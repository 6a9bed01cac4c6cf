"""Layer-by-layer quantization of models."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from toolkit.buffer_pool import release_spare_memory
from toolkit.console.frames import warn
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.layers.adapters.quantizable import QuantizableLayer
from toolkit.layers.adapters.static_int8 import CalibratedConvolution
from toolkit.layers.rollback import rollback_on_error
from toolkit.models.calibrating import (
    calibrate,
    calibrate_ranges,
    checked_structure,
    samples,
)
from toolkit.quantizers.configs import Int8QuantizationConfig, resolve
from toolkit.quantizers.quantizer import StaticQuantizer

if TYPE_CHECKING:
    from toolkit.layers.layer import Layer


class QuantizableModel:
    """Part of a Model that quantizes its layers."""

    name: str
    _flatten_layers: Any

    def quantize(
        self, mode: Any = None, config: Any = None, filters: Any = None, **kwargs: Any
    ) -> None:
        """Quantize all layers that support it: Dense, EinsumDense and Embedding.

        With calibration data, "int8" also quantizes Conv and DepthwiseConv layers whose
        inputs have 8 channels or more, in one group or one per channel: see
        `quantizers.Int8QuantizationConfig`. An error restores the model: the floating
        weights stay in memory until the end.

        Args:
            mode: "int8", "int4" or "float8", see `layers.Dense.quantize`, "gptq" or
                "awq"; optional with a config.
            config: the quantizers: see `quantizers.Int8QuantizationConfig`. "gptq" and
                "awq" need one, with the data, and the blocks whose Dense and
                EinsumDense layers are quantized.
            filters: the layers to quantize: a regular expression that is searched in
                their names, a list of such, or a function of the layer; all if None.
            **kwargs: `type_check`, as for `Layer.quantize`.

        Raises:
            ArgumentError: if the arguments contradict, or "gptq" or "awq" lack data or
                blocks.
            UnsupportedError: if no layer supports it.

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
        if config.mode in ("gptq", "awq"):
            quantized = self._calibrate(config, filters, type_check)
        else:
            layers = _select_layers(self, filters)
            _check(layers, config, type_check)
            with rollback_on_error(layers):
                quantized = self._quantize_layers(layers, config, type_check)
        if not quantized and filters is None:
            raise UnsupportedError(
                f"{self.name}.quantize: the model has no layer that supports "
                "quantization"
            )
        for layer in self._flatten_layers():
            layer._walks.clear()  # invalid walks would keep the floating weights
        self._trained = None  # training continues with the remaining weights
        self.train_function: None
        self.test_function: None
        self.predict_function: None
        self.train_function = self.test_function = self.predict_function = None
        release_spare_memory()

    def get_quantization_layer_structure(self, mode: str | None = None) -> Any:
        """Return the layers that "gptq" and "awq" calibrate; subclasses can override.

        Args:
            mode: "gptq" or "awq", for overrides; it has no effect by default.

        Returns:
            A dict of "pre_block_layers" and "sequential_blocks", see
            `quantizers.GPTQConfig`; None if the config must define it.
        """
        return None

    def _quantize_layers(
        self, layers: list[Any], config: Any, type_check: bool
    ) -> list[Any]:
        """Return the quantized layers; layers that need data are quantized first."""
        quantized = []
        if config.mode == "int8" and config.dataset is not None:
            quantized = self._calibrate_ranges(layers, config, type_check)
            config = Int8QuantizationConfig(None, config.activation_quantizer)
            layers = [x for x in layers if not isinstance(x, CalibratedConvolution)]
        return quantized + [x for x in layers if _quantize(x, config, type_check)]

    def _calibrate_ranges(
        self, layers: list[Any], config: Any, type_check: bool
    ) -> list[Any]:
        """Quantize convolutions for the ranges of their inputs and return them."""
        possible, static = [], Int8QuantizationConfig(None, StaticQuantizer())
        for layer in layers:
            if not isinstance(layer, CalibratedConvolution):
                continue
            if layer._float_reason is not None:
                warn(layer._describe_float())
            elif _is_possible(layer, static, type_check):
                possible.append(layer)
        return calibrate_ranges(self, possible, config)

    def _calibrate(self, config: Any, filters: Any, type_check: bool) -> list[Any]:
        """Quantize layers block by block and return them."""
        structure = config.quantization_layer_structure
        if structure is None:
            structure = self.get_quantization_layer_structure(config.mode)
        where = f"{self.name}.quantize(mode={config.mode!r})"
        before, blocks = checked_structure(where, structure)
        x = samples(where, config)
        layers = [
            [
                layer
                for layer in _select_layers(block, filters)
                if isinstance(layer, QuantizableLayer)
                and _is_possible(layer, config, type_check)
            ]
            for block in blocks
        ]
        with rollback_on_error(layer for block in layers for layer in block):
            return calibrate(config, before, list(zip(blocks, layers, strict=True)), x)


def _select_layers(model: Any, filters: Any) -> list[Any]:
    """Return the layers without sublayers that pass the filters."""
    return [
        layer
        for layer in model._flatten_layers()
        if len(layer._flatten_layers()) == 1 and _is_chosen(layer, filters)
    ]


def _check(layers: list[Any], config: Any, type_check: bool) -> None:
    """Raise if a supported layer has a conflict, before any layer is quantized."""
    for layer in layers:
        if isinstance(layer, QuantizableLayer):
            with suppress(NotImplementedError):
                layer._check_quantizable(config, type_check)


def _is_possible(layer: Any, config: Any, type_check: bool) -> bool:
    """Return whether the layer can be quantized; warn with the reason if not."""
    try:
        layer._check_quantizable(config, type_check)
    except NotImplementedError as error:
        warn(str(error))
        return False
    return True


def _quantize(layer: Layer, config: Any, type_check: bool) -> bool:
    """Try to quantize the layer; warn about matrices that stay floating.

    Vectors have no warning: they are small, and a program folds the vectors of a
    batch normalization into the scales.
    """
    try:
        layer.quantize(config.mode, type_check=type_check, config=config)
    except NotImplementedError as error:
        if any(len(weight.shape) > 1 for weight in layer.weights):
            warn(str(error))
        return False
    return True


def _is_chosen(layer: Layer, filters: Any) -> bool:
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
