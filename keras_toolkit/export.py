"""Export of Keras's models by the exporters of toolkit."""

from __future__ import annotations

from os import PathLike
from typing import Any

from toolkit.export.formats import export_model as export_toolkit_model


class ToolkitExportArchive:
    """Refuse the format SavedModel, which only TensorFlow writes."""

    def __init__(self) -> None:
        raise NotImplementedError(
            "`export_saved_model` only currently supports the tensorflow, jax and "
            "torch backends. With the toolkit backend use `model.export(path, "
            'format="onnx")`, or save the model as a `.keras` file and export it with '
            "Keras on one of these"
        )


def write_onnx(
    model: Any,
    filepath: str | PathLike[str],
    input_signature: Any,
    opset_version: int | None = None,
    **options: Any,
) -> None:
    """Write an ONNX file; `keras.Model.export` calls this.

    Args:
        model: a built model of Keras.
        filepath: of the file.
        input_signature: the arguments of a call, with a spec for each tensor.
        opset_version: of the operators; None for the default of toolkit.
        **options: of `toolkit.Model.export` for ONNX.
    """
    if opset_version is not None:
        options["opset_version"] = opset_version
    # Keras itself reports the file.
    export_model(model, filepath, "onnx", input_signature, verbose=False, **options)


def export_model(
    model: Any,
    filepath: str | PathLike[str],
    format: str | None = None,
    input_signature: Any = None,
    verbose: bool | None = None,
    **options: Any,
) -> None:
    """Write a model of Keras in a format of toolkit, such as a native library.

    Args:
        model: a built model of Keras.
        filepath: of the file or folder.
        format: "onnx", "native", "openvino" or "triton"; None: by the ending of the
            path.
        input_signature: the arguments of a call; None: the inputs of the model.
        verbose: whether to report the file; None for yes.
        **options: of the format; see `toolkit.Model.export`.

    Example:
        >>> import keras_toolkit.export, keras
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        >>> keras_toolkit.export.export_model(model, "model.onnx")
        Saved artifact at 'model.onnx'.
    """
    from keras.src.export.export_utils import get_input_signature

    signature = input_signature or get_input_signature(model)
    export_toolkit_model(
        model,
        filepath,
        format,
        input_signature=signature,
        verbose=verbose,
        **options,
    )
