"""ONNX files: single, or with the weights in a separate file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.errors import ArgumentError, UnsupportedError, UnwritableFileError
from toolkit.export.onnx.model import Written, to_message
from toolkit.files.staging import replace_files

# A protobuf message is limited to 2 GB; larger weights use a separate file.
LARGE = 1_500_000_000
# Windows maps files at multiples of this, Linux at multiples of 4,096.
ALIGNMENT = 65_536
MOST = 2_000_000_000  # maximum size of arrays in one message, without the graph
_LEAST_EXTERNAL = 1024  # smaller constants stay in the message


def save(written: Written, path: str, version: str, external: bool | None) -> None:
    """Write a checked model, or nothing.

    Args:
        written: the model.
        path: the path of the file.
        version: the version of this package.
        external: whether the weights are in `<path>.data`; None means yes if they are
            large.

    Raises:
        ArgumentError: the weights are too large for one file.
        UnwritableFileError: the file cannot be written.
    """
    target = Path(os.path.realpath(path))
    total = sum(x.nbytes for x in written.constants.values())
    if external is False and total > MOST:
        raise ArgumentError(
            f"{written.name}.export: external_data=False: one file holds less than "
            f"2 GB; the weights have {total:,} bytes"
        )
    external = total > LARGE if external is None else external
    places = _places(written.constants, f"{target.name}.data") if external else {}
    beside = target.with_name(f"{target.name}.data")
    is_ours = _names_data(target, beside)
    if places:
        _check_data(beside, is_ours)

    def write(folder: Path) -> None:
        if places:
            _write_data(folder / beside.name, written.constants, places)
        message = to_message(written, version, places)
        new = folder / target.name
        new.write_bytes(message.SerializeToString(deterministic=True))
        _check(written, new)

    replace_files([beside, target] if places else [target], write)
    if is_ours and not places:
        _remove(beside)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UnwritableFileError(f"cannot remove {str(path)!r}: {error}") from error


def _check(written: Written, path: Path) -> None:
    """Raise an error for an invalid file: the model uses a feature that ONNX lacks."""
    import onnx

    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise UnsupportedError(
            f"{written.name}.export: the package onnx refuses the graph: {error}"
        ) from error


def _names_data(target: Path, beside: Path) -> bool:
    """Return whether an existing ONNX file refers to this data file."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    if not (target.is_file() and beside.is_file()):
        return False
    try:
        found = onnx.load(target, load_external_data=False)
    except (DecodeError, OSError):
        return False
    return any(
        entry.key == "location" and entry.value == beside.name
        for tensor in found.graph.initializer
        for entry in tensor.external_data
    )


def _check_data(beside: Path, is_ours: bool) -> None:
    """Raise an error if the data would replace another file."""
    if beside.exists() and not is_ours:
        raise UnwritableFileError(
            f"{str(beside)!r} is there, and the model beside it does not name it; "
            "weights would take its place"
        )


def _places(constants: Mapping[str, Any], location: str) -> dict[str, tuple[str, int]]:
    """Return the offset of each large constant."""
    places, offset = {}, 0
    for name, array in constants.items():
        if array.nbytes >= _LEAST_EXTERNAL:
            places[name] = (location, offset)
            offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return places


def _write_data(
    path: Path, constants: Mapping[str, Any], places: Mapping[str, tuple[str, int]]
) -> None:
    with path.open("wb") as file:
        for name, (_, offset) in places.items():
            file.seek(offset)
            array = np.ascontiguousarray(constants[name])
            file.write(array.astype(array.dtype.newbyteorder("<"), copy=False).data)
