"""`load_onnx`: reads a model from an ONNX file."""

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
from toolkit.reading.file_errors import convert_errors
from toolkit.reading.onnx.file import open_onnx
from toolkit.reading.onnx.graph import graph_config


def load_onnx(filepath: str | os.PathLike[str], name: str | None = None) -> OnnxModel:
    """Return the model of an ONNX file, to predict, train, save and inspect.

    Weights become Variables under the names of the file. Convolutions compute with
    channels last; inputs and outputs keep their layout. Statistics of batch
    normalization are not trained and stay unchanged.

    The file is treated as data. It cannot run code, it can reference only plain files
    in the same folder, and its memory is limited by its size
    (`saving.set_load_budget`).

    Args:
        filepath: an ".onnx" file, of opset 6 to 28.
        name: the name of the model; by default the name in the file.

    Returns:
        An `OnnxModel`. Unknown extents of the file are None.

    Raises:
        ModelFileError: the file is corrupt, suspicious or invalid.
        UnsupportedError: it has an unsupported operator, which the message names.

    Example:
        >>> import toolkit
        >>> model = toolkit.saving.load_onnx("resnet18.onnx")  # doctest: +SKIP
        >>> model.predict(images)  # doctest: +SKIP
    """
    path = Path(filepath)
    with (
        open_onnx(path) as file,
        convert_errors(repr(str(path)), "the conversion to a model failed"),
    ):
        graph = with_large_constants(file.graph)
        weights = chosen_weights(graph)
        sources = {weight.source for weight in weights}
        initializers = {k: v for k, v in graph.initializers.items() if k not in sources}
        rows = [
            [w.source, w.layer, w.name, w.shape, w.dtype, w.order, w.trainable]
            for w in weights
        ]
        config = graph_config(replace(graph, initializers=initializers))
        model = OnnxModel(config, file.opset, rows, (), name or plain_name(path.stem))
        for weight in weights:
            array = stored(graph.initializers[weight.source], weight)
            model._sources[weight.source].assign(array)
    return model
