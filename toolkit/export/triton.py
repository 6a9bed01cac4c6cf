"""Model repositories of Triton and OpenVINO Model Server, with ONNX files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from toolkit.arguments import is_int
from toolkit.definitions.records import record
from toolkit.errors import ArgumentError, UnwritableFileError
from toolkit.export.batching import can_be_batched, graph_of_outputs
from toolkit.export.inference import BATCH, signature_of, trace_inference
from toolkit.export.onnx.exporter import DEFAULT_OPSET, export as export_onnx
from toolkit.files.staging import move_with_retries, replace_file

if TYPE_CHECKING:
    from toolkit.models.model import Model

CONFIG = "config.pbtxt"
# ONNX type names that differ in Triton.
_TYPES = {"FLOAT": "FP32", "DOUBLE": "FP64", "FLOAT16": "FP16", "BFLOAT16": "BF16"}

_SIZE = re.compile(r"^\s*max_batch_size\s*:\s*(\d+)", re.MULTILINE)


@record
class _Tensor:
    """Input or output of an ONNX file; a name in the shape is a free extent."""

    name: str
    type: str
    shape: tuple[int | str, ...]


def export(
    model: Model,
    path: str,
    input_signature: Any = None,
    *,
    name: str | None = None,
    max_batch_size: int | None = None,
    opset_version: int = DEFAULT_OPSET,
    external_data: bool | None = None,
) -> None:
    """Write a model as the next version in a model repository.

    In the folder `path`, it writes `M/1/model.onnx`, and `M/config.pbtxt` with Triton's
    batching configuration. An existing configuration does not change. A version appears
    atomically, so that a server never reads an incomplete one.

    Args:
        model: a built model.
        path: the repository, a folder that is created if missing.
        input_signature: the call signature, if the model's inputs do not define it.
        name: the name of the model in the repository; None uses the model's name.
        max_batch_size: the maximum batch size of the server. None uses the existing
            configuration, or 32. A model with a fixed batch size, or with dependent
            rows, gets each request unchanged.
        opset_version, external_data: as for ONNX.

    Raises:
        ArgumentError: the name is not a valid folder name, the size is below 1, or it
            differs from the existing configuration.
        ImportError: the package onnx is missing.
        UnsupportedError: ONNX cannot represent the model.
        UnwritableFileError: the files cannot be written.
    """
    label = f"{model.name}.export"
    name = model.name if name is None else name
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ArgumentError(
            f"{label}: expected letters, digits, '_', '-' and '.' as the name of the "
            f"model in the repository; received {name!r}"
        )
    requested_size, rows = (
        max_batch_size,
        32 if max_batch_size is None else max_batch_size,
    )
    if not is_int(rows) or rows < 1:
        raise ArgumentError(
            f"{label}: expected max_batch_size >= 1; received {max_batch_size!r}"
        )
    folder = Path(path, name)
    missing_folders = [
        parent for parent in (folder, *folder.parents) if not parent.exists()
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".new-") as staging_folder:
            new_version = Path(staging_folder, "version")
            new_version.mkdir()
            export_onnx(
                model,
                str(new_version / "model.onnx"),
                input_signature,
                opset_version=opset_version,
                external_data=external_data,
            )
            if not _can_be_batched(model, input_signature):
                rows = 0
            text = _format_config(
                name, *_read_tensors(new_version / "model.onnx"), rows
            )
            if not (folder / CONFIG).exists():
                data = text.encode()
                replace_file(folder / CONFIG, lambda file: file.write_bytes(data))
            elif requested_size is not None:
                _check_batch_size(label, folder / CONFIG, text)
            move_with_retries(
                os.rename, new_version, folder / str(_next_version(folder))
            )
    except OSError as error:
        raise UnwritableFileError(f"{label}: cannot write {path!r}: {error}") from error
    finally:
        for parent in missing_folders:
            with suppress(OSError):  # leaves no files of an unwritten model
                parent.rmdir()


def _can_be_batched(model: Model, input_signature: Any) -> bool:
    """Return whether the server can batch several requests."""
    signature = signature_of(model, input_signature)
    return can_be_batched(
        signature,
        2,
        lambda sizes: graph_of_outputs(trace_inference(model, signature, sizes)),
    )


def _check_batch_size(label: str, path: Path, config_text: str) -> None:
    """Raise an error if the existing configuration has other batch sizes.

    A user can have edited it, so it is not replaced.
    """
    sizes = [_SIZE.search(text) for text in (path.read_text("utf-8"), config_text)]
    existing_size, new_size = ["0" if size is None else size[1] for size in sizes]
    if int(existing_size) != int(new_size):
        raise ArgumentError(
            f"{label}: max_batch_size: {str(path)!r} says {existing_size}, and the "
            f"file is not changed; received {new_size}: change the file, or omit the "
            "option"
        )


def _next_version(folder: Path) -> int:
    """Return the next version number in the folder of a model."""
    versions = [int(x.name) for x in folder.iterdir() if x.name.isdecimal()]
    return max(versions, default=0) + 1


def _read_tensors(path: Path) -> tuple[list[_Tensor], list[_Tensor]]:
    """Return the inputs and outputs of an ONNX file."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    weights = {x.name for x in graph.initializer}
    inputs = [_convert_tensor(x) for x in graph.input if x.name not in weights]
    return inputs, [_convert_tensor(y) for y in graph.output]


def _convert_tensor(info: Any) -> _Tensor:
    import onnx

    tensor_type = info.type.tensor_type
    kind = onnx.TensorProto.DataType.Name(tensor_type.elem_type)
    shape = [x.dim_param or int(x.dim_value) for x in tensor_type.shape.dim]
    return _Tensor(info.name, _TYPES.get(kind, kind), tuple(shape))


def _format_config(
    name: str, inputs: Sequence[_Tensor], outputs: Sequence[_Tensor], rows: int
) -> str:
    """Return the model's configuration as a protobuf text message."""
    first_extents = {x.shape[:1] for x in (*inputs, *outputs)}
    is_batched = rows > 0 and first_extents == {(BATCH,)}
    lines = [f'name: "{name}"', 'backend: "onnxruntime"']
    lines.append(f"max_batch_size: {rows if is_batched else 0}")
    for direction, tensors in (("input", inputs), ("output", outputs)):
        for tensor in tensors:
            shape = tensor.shape[1:] if is_batched else tensor.shape
            lines += [f"{direction} {{", *_describe_tensor(tensor, shape), "}"]
    if is_batched:
        lines.append("dynamic_batching { }")
    return "\n".join([*lines, ""])


def _describe_tensor(tensor: _Tensor, shape: Sequence[int | str]) -> list[str]:
    dims = ", ".join(str(n) if isinstance(n, int) else "-1" for n in shape)
    quoted = tensor.name.replace("\\", r"\\").replace('"', r"\"")
    lines = [f'  name: "{quoted}"', f"  data_type: TYPE_{tensor.type}"]
    if dims:
        return [*lines, f"  dims: [ {dims} ]"]
    # Triton requires an axis for scalar rows.
    return [*lines, "  dims: [ 1 ]", "  reshape { shape: [ ] }"]
