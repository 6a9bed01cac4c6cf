"""Helpers for ImageNet models: input scaling, class names, input shapes, padding."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from toolkit import activations, ops, settings
from toolkit.console.frames import warn
from toolkit.errors import ArgumentError, unknown_choice
from toolkit.settings import standardize_data_format
from toolkit.utils.files import get_file

__all__ = ["decode_predictions", "preprocess_input"]

Shape = tuple[int | None, ...]
_INDEX = (
    "https://storage.googleapis.com/download.tensorflow.org/data/"
    "imagenet_class_index.json"
)
# Scaling of 0..255 in each mode: divisor, mean and deviation of the channels.
_MODES: dict[str, tuple[float, Any, Any]] = {
    "caffe": (1.0, (103.939, 116.779, 123.68), None),
    "tf": (127.5, 1.0, None),
    "torch": (255.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


def preprocess_input(
    x: Any, data_format: str | None = None, mode: str = "caffe"
) -> Any:
    """Scale pixels of 0..255 to the range of a model's training data.

    Args:
        x: an image or a batch, (..., height, width, channels) or, channels first,
            (..., channels, height, width). A NumPy array of floats is overwritten.
        data_format: "channels_last" or "channels_first"; None takes the setting.
        mode: "tf": x / 127.5 - 1; "torch": x / 255, minus the mean of ImageNet's
            channels, divided by their deviation; "caffe": channels in the order blue,
            green, red, minus the mean.

    Returns:
        Floats of x's shape.

    Raises:
        ArgumentError: for an unknown mode or data format.

    Example:
        >>> import numpy as np
        >>> preprocess_input(np.array([[[0.0, 127.5, 255.0]]]), mode="tf").tolist()
        [[[-1.0, 0.0, 1.0]]]
    """
    if mode not in _MODES:
        raise unknown_choice("preprocess_input: mode", mode, tuple(_MODES))
    first = standardize_data_format(data_format) == "channels_first"
    is_array = isinstance(x, np.ndarray)
    if not np.issubdtype(np.dtype(x.dtype) if is_array else np.float32, np.floating):
        x = x.astype(settings.floatx())
    elif not is_array and "float" not in str(x.dtype):
        x = ops.cast(x, settings.floatx())

    def constant(values: Any) -> Any:
        values = np.asarray(values).reshape((-1, 1, 1) if first else (-1,))
        return values.astype(x.dtype) if is_array else ops.cast(values, x.dtype)

    divisor, mean, deviation = _MODES[mode]
    if mode == "caffe":
        x = x[..., ::-1, :, :] if first else x[..., ::-1]
    else:
        x /= divisor
    x -= constant(mean)
    if deviation is not None:
        x /= constant(deviation)
    return x


@cache
def _hashes() -> dict[str, str]:
    """Return file name -> hash for Keras's files; MobileNet and MobileNetV2 have
    none."""
    text = (files("toolkit.applications") / "hashes.txt").read_text("utf-8")
    return {name: value for value, name in map(str.split, text.splitlines())}


def download(origin: str) -> str:
    """Return the path of a verified Keras file, from the cache or the network."""
    file_hash = _hashes().get(origin.rsplit("/", 1)[-1])
    return get_file(origin=origin, cache_subdir="models", file_hash=file_hash)


@cache
def _class_index() -> list[tuple[str, str]]:
    """Return (WordNet identifier, name) of the 1000 classes."""
    with open(download(_INDEX), encoding="utf-8") as file:
        index = json.load(file)
    return [(index[str(i)][0], index[str(i)][1]) for i in range(len(index))]


def decode_predictions(preds: Any, top: int = 5) -> list[list[tuple[str, str, Any]]]:
    """Return the most probable ImageNet classes by name.

    The first call downloads the list of names from Keras's address and verifies it.

    Args:
        preds: scores, (batch, 1000).
        top: the number of classes.

    Returns:
        For each sample a list of (WordNet identifier, name, score), best first.

    Raises:
        ArgumentError: for another shape.
        DatasetError: the download of the names fails.

    Example:
        >>> names = decode_predictions(model.predict(images), top=3)  # doctest: +SKIP
    """
    if len(preds.shape) != 2 or preds.shape[1] != 1000:
        raise ArgumentError(
            "decode_predictions expects a batch of predictions, of shape (samples, "
            f"1000); received shape {tuple(preds.shape)}"
        )
    names = _class_index()
    rows = ops.convert_to_numpy(preds)
    return [
        [(*names[i], row[i]) for i in np.argsort(-row, kind="stable")[:top]]
        for row in rows
    ]


def obtain_input_shape(
    input_shape: Any,
    default_size: Any,
    min_size: int,
    data_format: str,
    require_flatten: bool,
    weights: Any = None,
) -> Shape:
    """Return a model's image shape without the batch: the given one or the default.

    Args:
        input_shape: the user's argument; None for the default.
        default_size: height and width of the default.
        min_size: the minimum height and width of the model.
        data_format: "channels_last" or "channels_first".
        require_flatten: whether the extents must be static.
        weights: with "imagenet" there must be three channels.

    Raises:
        ArgumentError: the shape does not fit the model.
    """
    first = data_format == "channels_first"

    def arranged(channels: Any, size: Any) -> Shape:
        return (channels, size, size) if first else (size, size, channels)

    if input_shape is not None and len(input_shape) != 3:
        raise ArgumentError(
            f"input_shape must be a tuple of three integers; received {input_shape}"
        )
    pretrained = weights == "imagenet"
    channels = input_shape[0 if first else 2] if input_shape else 3
    if pretrained and require_flatten:
        default = arranged(3, default_size)
        if input_shape is not None and tuple(input_shape) != default:
            raise ArgumentError(
                "with include_top=True and the imagenet weights, input_shape should "
                f"be {default}; received {input_shape}"
            )
        return default
    if pretrained and channels != 3:
        raise ArgumentError(
            "with the imagenet weights, the input must have 3 channels; received "
            f"input_shape={input_shape}"
        )
    if channels not in (1, 3):
        warn(
            f"this model usually expects 1 or 3 input channels, not the {channels} of "
            f"input_shape={input_shape}"
        )
    if not input_shape:
        input_shape = arranged(3, default_size if require_flatten else None)
    check_size(input_shape, min_size, first)
    if require_flatten and None in input_shape:
        raise ArgumentError(
            "if include_top is True, you should specify a static input_shape; "
            f"received {input_shape}"
        )
    return tuple(input_shape)


def check_size(input_shape: Any, minimum: int, first: bool) -> None:
    """Raise for images that are too small for the model."""
    extents = input_shape[1:] if first else input_shape[:2]
    if any(extent is not None and extent < minimum for extent in extents):
        raise ArgumentError(
            f"Input size must be at least {minimum}x{minimum}; received "
            f"input_shape={input_shape}"
        )


def correct_pad(inputs: Any, kernel_size: int) -> tuple[tuple[int, int], ...]:
    """Return the padding of `inputs` for which a window with stride 2 starts as with
    "same".

    A dynamic extent counts as even.
    """
    start = 2 if settings.image_data_format() == "channels_first" else 1
    half = kernel_size // 2
    extents = inputs.shape[start : start + 2]
    if extents[0] is None:
        extents = (0, 0)
    return tuple((half - 1 + extent % 2, half) for extent in extents)


def validate_activation(classifier_activation: Any, weights: Any) -> None:
    """Raise for an activation that does not fit the pretrained weights."""
    allowed = (activations.get(None), activations.get("softmax"))
    if weights is not None and activations.get(classifier_activation) not in allowed:
        raise ArgumentError(
            "only None and 'softmax' are allowed as classifier_activation with "
            f"weights and include_top=True; received {classifier_activation!r}"
        )
