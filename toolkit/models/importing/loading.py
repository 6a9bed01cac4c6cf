"""`load_onnx`: from a file to a model."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from toolkit.models.importing.model import OnnxModel
from toolkit.models.importing.weights import (
    chosen_weights,
    plain_name,
    stored,
    with_large_constants,
)
from toolkit.reading.clear import clear_errors
from toolkit.reading.onnx.file import open_onnx
from toolkit.reading.onnx.graph import graph_config


def load_onnx(filepath: str | os.PathLike[str], name: str | None = None) -> OnnxModel:
    """The model of an ONNX file, to predict with, to train, to save and to inspect.

    Weights become Variables under the names of the file, convolutions compute with
    channels last; inputs and outputs keep their layout. Statistics of batch
    normalization are not trained and stay as they are.

    The file is data: it can make no code run, name no file but plain ones beside it,
    and claim no more memory than its size allows (`saving.set_load_budget`).

    Args:
        filepath: an ".onnx" file, of opset 6 to 28.
        name: of the model; that of the file by default.

    Returns:
        An `OnnxModel`. Extents that the file leaves open are None.

    Raises:
        ModelFileError: the file is damaged, suspicious or not valid.
        UnsupportedError: it has an operator that is not read, which the message names.

    Example:
        >>> import toolkit
        >>> model = toolkit.saving.load_onnx("resnet18.onnx")  # doctest: +SKIP
        >>> model.predict(images)  # doctest: +SKIP
    """
    path = Path(filepath)
    with (
        open_onnx(path) as file,
        clear_errors(repr(str(path)), "making it a model failed"),
    ):
        graph = with_large_constants(file.graph)
        weights = chosen_weights(graph)
        sources = {weight.source for weight in weights}
        rest = {k: v for k, v in graph.initializers.items() if k not in sources}
        rows = [
            [w.source, w.layer, w.name, w.shape, w.dtype, w.order, w.trainable]
            for w in weights
        ]
        config = graph_config(replace(graph, initializers=rest))
        model = OnnxModel(config, file.opset, rows, (), name or plain_name(path.stem))
        for weight in weights:
            array = stored(graph.initializers[weight.source], weight)
            model._sources[weight.source].assign(array)
    return model
