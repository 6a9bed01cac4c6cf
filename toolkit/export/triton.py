"""Model repositories of Triton and OpenVINO Model Server, with ONNX files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from toolkit.arguments import is_int
from toolkit.definitions.records import record
from toolkit.errors import ArgumentError, UnwritableFileError
from toolkit.export.inference import BATCH, signature_of, trace_inference
from toolkit.export.onnx.exporter import DEFAULT_OPSET, export as export_onnx
from toolkit.export.rows import may_be_batched, without_writes
from toolkit.files.staging import move_with_retries, replace_file

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
    model: Any,
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
    given, rows = max_batch_size, 32 if max_batch_size is None else max_batch_size
    if not is_int(rows) or rows < 1:
        raise ArgumentError(
            f"{label}: expected max_batch_size >= 1; received {max_batch_size!r}"
        )
    folder = Path(path, name)
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".new-") as place:
            new = Path(place, "version")
            new.mkdir()
            export_onnx(
                model,
                str(new / "model.onnx"),
                input_signature,
                opset_version=opset_version,
                external_data=external_data,
            )
            if not _may_be_batched(model, input_signature):
                rows = 0
            text = _config(name, *_tensors(new / "model.onnx"), rows)
            if not (folder / CONFIG).exists():
                data = text.encode()
                replace_file(folder / CONFIG, lambda file: file.write_bytes(data))
            elif given is not None:
                _check_size(label, folder / CONFIG, text)
            move_with_retries(os.rename, new, folder / str(_next_version(folder)))
    except OSError as error:
        raise UnwritableFileError(f"{label}: cannot write {path!r}: {error}") from error
    finally:
        for each in missing:
            with suppress(OSError):  # leaves no files of an unwritten model
                each.rmdir()


def _may_be_batched(model: Any, input_signature: Any) -> bool:
    """Return whether the server can batch several requests."""
    signature = signature_of(model, input_signature)
    return may_be_batched(
        signature,
        2,
        lambda sizes: without_writes(trace_inference(model, signature, sizes)),
    )


def _check_size(label: str, path: Path, wanted: str) -> None:
    """Raise an error if the existing configuration has other batch sizes.

    A user can have edited it, so it is not replaced.
    """
    sizes = [_SIZE.search(text) for text in (path.read_text("utf-8"), wanted)]
    there, asked = ["0" if size is None else size[1] for size in sizes]
    if int(there) != int(asked):
        raise ArgumentError(
            f"{label}: max_batch_size: {str(path)!r} says {there}, and stays as it is; "
            f"received {asked}: change it there, or leave the option out"
        )


def _next_version(folder: Path) -> int:
    """Return the next version number in the folder of a model."""
    found = [int(x.name) for x in folder.iterdir() if x.name.isdecimal()]
    return max(found, default=0) + 1


def _tensors(path: Path) -> tuple[list[_Tensor], list[_Tensor]]:
    """Return the inputs and outputs of an ONNX file."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    weights = {x.name for x in graph.initializer}
    inputs = [_tensor(x) for x in graph.input if x.name not in weights]
    return inputs, [_tensor(y) for y in graph.output]


def _tensor(info: Any) -> _Tensor:
    import onnx

    found = info.type.tensor_type
    kind = onnx.TensorProto.DataType.Name(found.elem_type)
    shape = [x.dim_param or int(x.dim_value) for x in found.shape.dim]
    return _Tensor(info.name, _TYPES.get(kind, kind), tuple(shape))


def _config(
    name: str, inputs: Sequence[_Tensor], outputs: Sequence[_Tensor], rows: int
) -> str:
    """Return the model's configuration as a protobuf text message."""
    firsts = {x.shape[:1] for x in (*inputs, *outputs)}
    is_batched = rows > 0 and firsts == {(BATCH,)}
    lines = [f'name: "{name}"', 'backend: "onnxruntime"']
    lines.append(f"max_batch_size: {rows if is_batched else 0}")
    for what, tensors in (("input", inputs), ("output", outputs)):
        for tensor in tensors:
            shape = tensor.shape[1:] if is_batched else tensor.shape
            lines += [f"{what} {{", *_described(tensor, shape), "}"]
    if is_batched:
        lines.append("dynamic_batching { }")
    return "\n".join([*lines, ""])


def _described(tensor: _Tensor, shape: Sequence[int | str]) -> list[str]:
    dims = ", ".join(str(n) if isinstance(n, int) else "-1" for n in shape)
    quoted = tensor.name.replace("\\", r"\\").replace('"', r"\"")
    lines = [f'  name: "{quoted}"', f"  data_type: TYPE_{tensor.type}"]
    if dims:
        return [*lines, f"  dims: [ {dims} ]"]
    # Triton requires an axis for scalar rows.
    return [*lines, "  dims: [ 1 ]", "  reshape { shape: [ ] }"]
