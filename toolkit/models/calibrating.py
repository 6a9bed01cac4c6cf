"""Quantization with calibration data, block by block of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from toolkit import ops
from toolkit.console.frames import warn
from toolkit.errors import ArgumentError, ArgumentTypeError
from toolkit.layers.layer import Layer

_PARTS = ("pre_block_layers", "sequential_blocks")


def checked_structure(where: str, structure: Any) -> tuple[list[Layer], list[Layer]]:
    """Check a structure; return the layers before the blocks, and the blocks."""
    is_structure = isinstance(structure, dict) and set(structure) <= set(_PARTS)
    sections = [
        list(structure.get(name) or ()) if is_structure else [] for name in _PARTS
    ]
    if not sections[1] or any(
        not isinstance(x, Layer) for x in (*sections[0], *sections[1])
    ):
        raise ArgumentError(
            f"{where}: expected a `quantization_layer_structure` in the config, or a "
            "`get_quantization_layer_structure` of the model, that is a dict of "
            f"layers with the keys {_PARTS[0]!r} and {_PARTS[1]!r}; received "
            f"{structure!r}"
        )
    return sections[0], sections[1]


def samples(where: str, config: Any) -> Any:
    """Return evenly spaced tokens, (num_samples, 1, sequence_length) int32.

    Short data is repeated.
    """
    tokens = _tokens(where, config)
    length = config.sequence_length
    tokens = np.tile(tokens, -(-config.num_samples * length // len(tokens)))
    last = len(tokens) - length
    stride = max(1, (last + 1) // config.num_samples)
    starts = np.arange(config.num_samples) * stride % (last + 1)
    return tokens[starts[:, None] + np.arange(length)][:, None]


def _tokens(where: str, config: Any) -> Any:
    """Return all tokens of the data set, (count,) int32."""
    data = config.dataset
    if isinstance(data, (str, bytes)) or not hasattr(data, "__iter__"):
        raise ArgumentTypeError(
            f"{where}: expected a `dataset` in the config that is an iterable of "
            f"texts or token arrays; received {data!r:.80}"
        )
    arrays = [_pieces(where, config.tokenizer, item).reshape(-1) for item in data]
    tokens = np.concatenate(arrays) if arrays else np.zeros(0, "int32")
    if not len(tokens):
        raise ArgumentError(f"{where}: the `dataset` of the config is empty")
    return tokens.astype("int32")


def _pieces(where: str, tokenizer: Any, piece: Any) -> Any:
    """Convert an item of the data to tokens."""
    if isinstance(piece, str):
        if not callable(getattr(tokenizer, "tokenize", None)):
            raise ArgumentError(
                f"{where}: expected a `tokenizer` in the config with a method "
                f"`tokenize`, because the data is text; received {tokenizer!r}"
            )
        piece = tokenizer.tokenize(piece)
    tokens = ops.convert_to_numpy(piece)
    if tokens.size and tokens.dtype.kind not in "iu":
        raise ArgumentTypeError(
            f"{where}: expected integer tokens; received {tokens.dtype}"
        )
    return tokens


def calibrate(
    config: Any,
    before: Sequence[Layer],
    blocks: Sequence[tuple[Layer, Sequence[Any]]],
    tokens: Any,
) -> list[Any]:
    """Quantize the layers of blocks; each block receives outputs of quantized blocks.

    Args:
        config: a config of GPTQ or AWQ.
        before: layers that compute the inputs of the first block.
        blocks: pairs of a block and its layers to quantize.
        tokens: (samples, 1, length).

    Returns:
        The quantized layers.
    """
    inputs = [ops.convert_to_tensor(item) for item in tokens]
    for layer in before:
        inputs = [layer(x) for x in inputs]
    quantized: list[Any] = []
    for i, (block, layers) in enumerate(blocks):
        if layers:
            quantized += _quantize_block(config, block, layers, inputs)
        if i + 1 < len(blocks):
            inputs = [_first(block(x)) for x in inputs]
    return quantized


def _quantize_block(
    config: Any, block: Layer, layers: Sequence[Any], inputs: Sequence[Any]
) -> list[Any]:
    def run() -> None:
        for x in inputs:
            block(x)

    return _quantize_called(
        {layer: layer._observe_inputs(config) for layer in layers},
        run,
        lambda layer, tokens: layer._quantize_calibrated(tokens, config),
        f"its block {block.name} did not call it during calibration",
    )


def _quantize_called(
    observers: dict[Any, Any],
    run: Callable[[], None],
    quantize: Callable[[Any, Any], None],
    why_not: str,
) -> list[Any]:
    """Quantize the layers that a run calls, each with the data of its observer.

    Returns:
        The quantized layers; for each other layer `why_not` is the warning.
    """
    try:
        run()
    finally:
        for layer in observers:
            layer._end_observation()
    quantized = []
    for layer, tokens in observers.items():
        if tokens.count:
            quantize(layer, tokens)
            quantized.append(layer)
        else:
            warn(f"{layer.name}: not quantized, because {why_not}")
    return quantized


def _first(outputs: Any) -> Any:
    """Return the input of the next block."""
    return outputs[0] if isinstance(outputs, (tuple, list)) else outputs


def calibrate_ranges(model: Any, layers: Sequence[Any], config: Any) -> list[Any]:
    """Quantize convolutions for the input ranges of a model's calls.

    Args:
        model: the model, called with each batch.
        layers: the layers to quantize.
        config: an `Int8QuantizationConfig` with data.

    Returns:
        The quantized layers.
    """

    def run() -> None:
        for batch in _batches(model, config.dataset):
            model(batch, training=False)

    return _quantize_called(
        {layer: layer._observe_range() for layer in layers},
        run,
        lambda layer, tokens: layer._quantize_static(tokens, config),
        f"{model.name} did not call it during calibration",
    )


def _batches(model: Any, data: Any) -> Iterator[Any]:
    """Yield the inputs of the model, batch by batch."""
    if hasattr(data, "shape"):
        data = [data]
    if isinstance(data, (str, bytes, dict)) or not hasattr(data, "__iter__"):
        raise ArgumentTypeError(
            f"{model.name}.quantize: expected a `dataset` in the config that is an "
            f"array or an iterable of batches; received {data!r:.80}"
        )
    is_empty = True
    for batch in data:
        is_empty = False
        yield batch[0] if isinstance(batch, tuple) else batch
    if is_empty:
        raise ArgumentError(
            f"{model.name}.quantize: the `dataset` of the config is empty"
        )
