"""Layers with ragged inputs.

Elementwise layers receive the values of all rows. Recurrent and pooling layers receive
padded rows and a mask. Models, and layers of users, receive the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit import dtypes, layers, ops
from toolkit.compat.tensorflow.boundary import wrap_results
from toolkit.compat.tensorflow.ragged_tensor import RaggedTensor
from toolkit.core.masks import set_mask
from toolkit.layers.call import call_info
from toolkit.layers.layer import Layer, call_with_composite
from toolkit.models import Model

_OF_VALUES = (
    *(layers.Activation, layers.Dense, layers.Discretization, layers.Dropout),
    *(layers.ELU, layers.Embedding, layers.GaussianNoise, layers.Hashing),
    *(layers.Identity, layers.IntegerLookup, layers.LeakyReLU),
    *(layers.Normalization, layers.ReLU, layers.Rescaling, layers.StringLookup),
)
_OF_CODES = ("multi_hot", "count", "tf_idf")
_MAXIMA = (layers.GlobalMaxPooling1D,)


@wrap_results
def call_layer(rows: RaggedTensor, layer: Any, args: Any, kwargs: Any) -> Any:
    """Call a layer with ragged rows as its first argument."""
    if isinstance(layer, Model):
        return call_with_composite(layer, args, kwargs)
    is_wrapper = isinstance(layer, (layers.Lambda, layers.Wrapper))
    is_custom = not call_info(type(layer).call).own
    if is_custom or (is_wrapper and not _is_recurrent(layer)):
        return call_with_composite(layer, args, kwargs, tuple(rows.shape))
    remaining = args[1:]
    if getattr(layer, "output_mode", None) in _OF_CODES:
        return ops.stack([layer(row, *remaining, **kwargs) for row in rows])
    if isinstance(layer, _OF_VALUES):
        return rows.with_flat_values(layer(rows.flat_values, *remaining, **kwargs))
    return layer(_pad_rows(rows, layer), *remaining, **kwargs)


def _is_recurrent(layer: Layer) -> bool:
    return isinstance(layer, (layers.RNN, layers.Bidirectional))


def _pad_rows(rows: RaggedTensor, layer: Layer) -> Any:
    """Return the padded rows, with a mask of the valid values."""
    fill = None
    if isinstance(layer, _MAXIMA):
        fill = -dtypes.largest(str(rows.dtype))
    tensor = rows.to_tensor(fill)
    lengths = rows.lengths[:, None]
    mask = np.arange(max(rows.lengths, default=0)) < lengths
    if not isinstance(layer, _MAXIMA):
        set_mask(tensor, ops.convert_to_tensor(mask))
    return tensor


RaggedTensor.operations["call_layer"] = call_layer
