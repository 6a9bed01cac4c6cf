"""ONNX files: all in one, or with the weights in a file beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.errors import UnwritableFileError
from toolkit.export.onnx.model import Written, to_message
from toolkit.files.staging import Stage, check_replaceable, sweep

# One message holds less than 2 GB; what is near that goes to a file of its own.
LARGE = 1_500_000_000
# Windows maps files from multiples of this, Linux from those of 4,096.
ALIGNMENT = 65_536
_LEAST_EXTERNAL = 1024  # smaller constants stay in the message


def save(written: Written, path: str, version: str, external: bool | None) -> None:
    """Write a model, checked, or nothing.

    Args:
        written: what to write.
        path: of the file.
        version: of this package.
        external: whether the weights are in `<path>.data`; None: if they are large.

    Raises:
        UnwritableFileError: it cannot be written.
    """
    import onnx

    target = Path(os.path.realpath(path))
    total = sum(x.nbytes for x in written.constants.values())
    external = total > LARGE if external is None else external
    places = _places(written.constants, f"{target.name}.data") if external else {}
    try:
        check_replaceable(target)
        beside = target.with_name(f"{target.name}.data")
        if places:
            check_replaceable(beside)
        sweep(target.parent, target.name)
        with Stage(target.parent, target.name) as stage:
            new, data = stage.files / target.name, stage.files / beside.name
            if places:
                _write_data(data, written.constants, places)
            message = to_message(written, version, places)
            new.write_bytes(message.SerializeToString(deterministic=True))
            onnx.checker.check_model(str(new), full_check=True)
            if places:
                stage.deliver(data, beside)
            stage.deliver(new, target)
    except OSError as error:
        raise UnwritableFileError(f"cannot write {path!r}: {error}") from error


def _places(constants: Mapping[str, Any], location: str) -> dict[str, tuple[str, int]]:
    """Where the data of each large constant begin."""
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
