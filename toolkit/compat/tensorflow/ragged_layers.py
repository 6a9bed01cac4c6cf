"""Layers with ragged inputs.

Elementwise layers receive the values of all rows. Recurrent and pooling layers receive
padded rows and a mask. Models, and layers of users, receive the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit import dtypes, layers, ops
from toolkit.compat.tensorflow.boundary import wrap_results
from toolkit.compat.tensorflow.ragged_tensor import RaggedTensor
from toolkit.compat.tensorflow.tensor_classes import DIALECT
from toolkit.layers.call import call_info
from toolkit.models import Model

if TYPE_CHECKING:
    from toolkit.layers.layer import Layer

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
    remaining = args[1:]
    if isinstance(layer, Model) or not call_info(type(layer).call).own:
        return _run(layer, rows, remaining, kwargs)
    if isinstance(layer, (layers.Lambda, layers.Wrapper)) and not _is_recurrent(layer):
        return _run(layer, rows, remaining, kwargs)
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
        tensor._keras_mask = ops.convert_to_tensor(mask)
    return tensor


def _run(layer: Layer, rows: RaggedTensor, args: Any, kwargs: Any) -> Any:
    """Run the `call` method of the layer with the rows."""
    is_built = layer.built
    if not is_built:
        layer._set_path()
        if not isinstance(layer, Model):
            layer.build(tuple(rows.shape))
        layer.built = True
    training = kwargs.get("training")
    names = layer._info.names
    options = {k: x for k, x in kwargs.items() if k in names and k != "training"}
    with DIALECT.activate():
        outputs = layer._run(layer.call, (rows, *args), options, training)
    if not is_built:
        layer._finish_build()
    return outputs


RaggedTensor.operations["call_layer"] = call_layer
