"""ONNX file, read within a budget and checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolkit.definitions.records import record
from toolkit.errors import ModelFileError
from toolkit.reading.budget import load_within_budget, spend
from toolkit.reading.file_errors import add_path_to_errors, check_present
from toolkit.reading.onnx.checks import check_graph
from toolkit.reading.onnx.convert import STANDARD, Converter
from toolkit.reading.onnx.graph import OnnxGraph
from toolkit.reading.onnx.messages import Message, decode_model
from toolkit.reading.onnx.tensors import TensorReader, external_size

_MAX_SIZE = (1 << 31) - 1  # bytes of a message
_NEWEST_IR = 14


@record
class OnnxFile:
    """Graph, operator set version and producer of a file."""

    graph: OnnxGraph
    opset: int
    producer: str
    metadata: dict[str, str]


@contextmanager
def open_onnx(path: Path) -> Iterator[OnnxFile]:
    """Return a context with an ONNX file, and the load of its data files.

    Raises:
        MissingFileError: the file does not exist.
        ModelFileError: the file is corrupt, suspicious or unsupported.
    """
    check_present(path)
    if path.stat().st_size > _MAX_SIZE:
        raise ModelFileError(
            f"{str(path)!r}: more than 2 GB, which exceeds the limit of ONNX files; "
            "store large arrays in external data files"
        )
    with add_path_to_errors(path):
        with load_within_budget(path):
            spend(path.stat().st_size, path.name)
            message = decode_model(memoryview(path.read_bytes()))
            extra_size = external_size(path.parent, set(_external_locations(message)))
        with load_within_budget(path, extra_size=extra_size):
            yield _parse_file(message, path)


def _parse_file(message: Message, path: Path) -> OnnxFile:
    version = message.get("ir_version", 0)
    if not 3 <= version <= _NEWEST_IR:
        raise ModelFileError(
            f"expected an ONNX file of IR version 3 to {_NEWEST_IR}; received {version}"
        )
    opset = opset_of(message)
    if "graph" not in message:
        raise ModelFileError("expected an ONNX file with a graph")
    converter = Converter(message, TensorReader(path.parent), opset)
    return OnnxFile(
        check_graph(converter.graph(message["graph"]), opset),
        opset,
        " ".join(message.get(f"producer_{key}", "") for key in ("name", "version")),
        {e.get("key", ""): e.get("value", "") for e in message["metadata"]},
    )


def opset_of(message: Message) -> int:
    """Return the operator set version of ONNX's default domain."""
    versions = [
        entry.get("version", 0)
        for entry in message["opset_import"]
        if entry.get("domain", "") in STANDARD
    ]
    if len(set(versions)) != 1:
        raise ModelFileError(f"expected one opset of ONNX; received {versions}")
    return int(versions[0])


def _external_locations(value: Any) -> Iterator[str]:
    """Yield the names of the external data files in a message."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            for entry in item.get("external", ()):
                if entry.get("key") == "location":
                    yield entry.get("value", "")
            pending += item.values()
        elif isinstance(item, list):
            pending += [child for child in item if isinstance(child, (dict, list))]
