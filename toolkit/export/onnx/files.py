"""ONNX files: single, or with the weights in a separate file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.errors import ArgumentError, UnsupportedError, UnwritableFileError
from toolkit.export.onnx.model import ModelContent, to_message
from toolkit.files.staging import replace_files

# A protobuf message is limited to 2 GB; larger weights use a separate file.
EXTERNAL_THRESHOLD = 1_500_000_000
# Windows maps files at multiples of this, Linux at multiples of 4,096.
ALIGNMENT = 65_536
MAX_ARRAY_BYTES = (
    2_000_000_000  # maximum size of arrays in one message, without the graph
)
_MIN_EXTERNAL_BYTES = 1024  # smaller constants stay in the message


def save(content: ModelContent, path: str, version: str, external: bool | None) -> None:
    """Write a checked model, or nothing.

    Args:
        content: the model.
        path: the path of the file.
        version: the version of this package.
        external: whether the weights are in `<path>.data`; None means yes if they are
            large.

    Raises:
        ArgumentError: the weights are too large for one file.
        UnwritableFileError: the file cannot be written.
    """
    target = Path(os.path.realpath(path))
    total = sum(x.nbytes for x in content.constants.values())
    if external is False and total > MAX_ARRAY_BYTES:
        raise ArgumentError(
            f"{content.name}.export: external_data=False: one file is limited to 2 "
            f"GB, but the weights have {total:,} bytes"
        )
    external = total > EXTERNAL_THRESHOLD if external is None else external
    locations = (
        _assign_offsets(content.constants, f"{target.name}.data") if external else {}
    )
    data_path = target.with_name(f"{target.name}.data")
    owns_data = _refers_to_data(target, data_path)
    if locations:
        _check_data(data_path, owns_data)

    def write(folder: Path) -> None:
        if locations:
            _write_data(folder / data_path.name, content.constants, locations)
        message = to_message(content, version, locations)
        new = folder / target.name
        new.write_bytes(message.SerializeToString(deterministic=True))
        _check(content, new)

    replace_files([data_path, target] if locations else [target], write)
    if owns_data and not locations:
        _remove(data_path)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UnwritableFileError(f"cannot remove {str(path)!r}: {error}") from error


def _check(content: ModelContent, path: Path) -> None:
    """Raise an error for an invalid file: the model uses a feature that ONNX lacks."""
    import onnx

    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise UnsupportedError(
            f"{content.name}.export: the package onnx refuses the graph: {error}"
        ) from error


def _refers_to_data(target: Path, data_path: Path) -> bool:
    """Return whether an existing ONNX file refers to this data file."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    if not (target.is_file() and data_path.is_file()):
        return False
    try:
        model = onnx.load(target, load_external_data=False)
    except (DecodeError, OSError):
        return False
    return any(
        entry.key == "location" and entry.value == data_path.name
        for tensor in model.graph.initializer
        for entry in tensor.external_data
    )


def _check_data(data_path: Path, owns_data: bool) -> None:
    """Raise an error if the data would replace another file."""
    if data_path.exists() and not owns_data:
        raise UnwritableFileError(
            f"{str(data_path)!r} exists, but the model in the same folder does not "
            "use it; the export would overwrite it"
        )


def _assign_offsets(
    constants: Mapping[str, Any], location: str
) -> dict[str, tuple[str, int]]:
    """Return the offset of each large constant."""
    offsets, offset = {}, 0
    for name, array in constants.items():
        if array.nbytes >= _MIN_EXTERNAL_BYTES:
            offsets[name] = (location, offset)
            offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return offsets


def _write_data(
    path: Path, constants: Mapping[str, Any], offsets: Mapping[str, tuple[str, int]]
) -> None:
    with path.open("wb") as file:
        for name, (_, offset) in offsets.items():
            file.seek(offset)
            array = np.ascontiguousarray(constants[name])
            file.write(array.astype(array.dtype.newbyteorder("<"), copy=False).data)
