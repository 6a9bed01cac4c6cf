"""OpenVINO export: OpenVINO's converter reads an ONNX file from this package."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from toolkit.errors import ArgumentError
from toolkit.export.onnx.exporter import (
    DEFAULT_OPSET,
    export as export_onnx,
    require_onnx,
)
from toolkit.files.staging import replace_files

if TYPE_CHECKING:
    from toolkit.models.model import Model


def export(
    model: Model,
    path: str,
    input_signature: Any = None,
    *,
    opset_version: int = DEFAULT_OPSET,
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
    allow_random: bool = False,
) -> None:
    """Write OpenVINO's files, `m.xml` and `m.bin`, both or none.

    Args:
        model: a built model.
        path: the path of the first file.
        input_signature: the call signature, if the model's inputs do not define it.
        opset_version, dynamic_axes, allow_random: as for ONNX.

    Raises:
        ImportError: the packages openvino and onnx are missing.
    """
    label = f"{model.name}.export"
    target = Path(os.path.realpath(path))
    if target.suffix != ".xml":
        raise ArgumentError(
            f"{label}: expected a path that ends in '.xml' for OpenVINO; received "
            f"{path!r}"
        )
    require_onnx(label)
    if find_spec("openvino") is None:
        raise ImportError(
            f"{label}: this format needs the package openvino; pip install openvino"
        )
    import openvino

    with TemporaryDirectory() as folder:
        source = Path(folder, f"{target.stem}.onnx")
        export_onnx(
            model,
            str(source),
            input_signature,
            opset_version=opset_version,
            dynamic_axes=dynamic_axes,
            allow_random=allow_random,
        )
        converted = openvino.convert_model(source)

        def write(folder: Path) -> None:
            new = folder / target.name
            openvino.save_model(converted, new, compress_to_fp16=False)

        replace_files([target.with_suffix(".bin"), target], write)
