"""Content of a file: its kind, by its first bytes, and its arrays, not yet read.

No code of a file runs: pickles are refused, and sizes are checked against the file
before the data is read.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from toolkit.cli.custom_objects import load_model_with_hint
from toolkit.data.element_files import FIRST_LINE, StoredRows
from toolkit.data.examples import read_example
from toolkit.data.records import RecordError, is_valid_header, read_records
from toolkit.definitions.records import record
from toolkit.errors import (
    DatasetError,
    MissingFileError,
    ModelFileError,
    suggest_choice,
)
from toolkit.models.saving.archives import (
    CONFIG,
    METADATA,
    WEIGHTS,
    archived_json,
    load_archive,
    weights_in_archive,
)
from toolkit.models.saving.folders import is_model_folder, load_folder, model_folder
from toolkit.models.saving.json_config import parsed
from toolkit.models.saving.legacy_h5 import load_legacy, load_legacy_weights
from toolkit.models.saving.safetensors_lists import LIST, index_at, open_index
from toolkit.models.saving.safetensors_weights import load_safetensors
from toolkit.models.saving.shards import open_shards, shards_of
from toolkit.reading.file_errors import check_regular_file
from toolkit.reading.hdf5 import open_datasets, open_file
from toolkit.reading.npy import MAGIC, MAX_RATIO, open_npy, open_npz
from toolkit.reading.safetensors import open_safetensors
from toolkit.reading.zips import open_members
from toolkit.type_aliases import Array

KINDS = ".keras, .weights.h5, .weights.json, .h5, .safetensors, .npz, .npy, TFRecord"
SAFETENSORS = "safetensors"  # a kind
_MAX_FACTS = 20  # of a file's metadata
_MAX_EXAMPLE = 1 << 26  # maximum size in bytes of a record whose features are shown
_ZIP, _HDF5, _GZIP = b"PK\x03\x04", b"\x89HDF\r\n\x1a\n", b"\x1f\x8b"


class StoredArray(Protocol):
    """Array in a file."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    def check(self) -> None: ...
    def read(self) -> Array: ...


@record
class Content:
    """Content of a file.

    kind: a description. facts: other properties by name. load: a function that creates
    the model of a whole-model file, with an argument for compilation; else None. fill:
    a function that sets the weights of a model, if paths do not identify the layers;
    else None.
    """

    kind: str
    arrays: Mapping[str, StoredArray] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    load: Callable[[bool], Any] | None = None
    fill: Callable[[Any], None] | None = None


def open_content(path: Path) -> AbstractContextManager[Content]:
    """Return a context with the content of a file of any name; arrays can be read.

    Raises:
        MissingFileError: the file does not exist.
        ModelFileError: the file is corrupt, suspicious or of an unknown kind.
    """
    if not path.exists():
        folder = path.parent
        names = os.listdir(folder) if folder.is_dir() else []
        raise MissingFileError(
            f"there is no file {str(path)!r}{suggest_choice(path.name, names)}"
        )
    return _select_reader(path)(path)


Reader = Callable[[Path], AbstractContextManager[Content]]


def _select_reader(path: Path) -> Reader:
    """Return the reader function for the first bytes of a file."""
    if path.is_dir():
        if is_model_folder(path):
            return _open_folder
        raise ModelFileError(
            f"{str(path)!r} is a folder without {CONFIG}, so it is not a saved model"
        )
    check_regular_file(path)
    with open(path, "rb") as file:
        head = file.read(64)
    for magic, reader in _READERS.items():
        if head.startswith(magic):
            return reader
    if path.name.endswith(LIST):
        return _open_safetensors_list
    if path.name.endswith(".json"):
        return _open_shards
    if is_valid_header(head):
        return _open_records
    if head[8:9] == b"{" or path.suffix == ".safetensors":
        return _open_safetensors
    description = "is empty" if not head else f"begins with {head[:8]!r}"
    if head[:1] == b"\x80" or path.suffix in (".pkl", ".pickle", ".pt", ".pth"):
        description += "; a pickle can run code, so it is never read"
    raise ModelFileError(
        f"{str(path)!r}: expected one of {KINDS}; the file {description}"
    )


def _open_zip(path: Path) -> AbstractContextManager[Content]:
    with open_members(path, ".keras or .npz", MAX_RATIO) as members:
        is_model = CONFIG in members.sizes()
    return _open_archive(path) if is_model else _open_npz(path)


@contextmanager
def _open_archive(path: Path) -> Iterator[Content]:
    config, metadata = archived_json(path)
    with weights_in_archive(path) as datasets:
        yield Content(
            "a Keras 3 model",
            datasets,
            _describe_model(config, metadata),
            lambda compile: load_archive(path, None, compile),
        )


@contextmanager
def _open_folder(path: Path) -> Iterator[Content]:
    folder = model_folder(path)
    config = parsed(Path(folder, CONFIG).read_bytes(), CONFIG)
    metadata = parsed(Path(folder, METADATA).read_bytes(), METADATA)
    with open_datasets(Path(folder, WEIGHTS)) as datasets:
        yield Content(
            "the folder of a Keras 3 model",
            datasets,
            _describe_model(config, metadata),
            lambda compile: load_folder(path, None, compile),
        )


def _describe_model(config: Any, metadata: Any) -> dict[str, str]:
    model_config = config.get("config")
    layers = model_config.get("layers") if isinstance(model_config, dict) else None
    facts = {"class": config.get("class_name"), **_describe_writer(metadata)}
    facts["saved on"] = metadata.get("date_saved")
    if isinstance(layers, list):
        facts["layers"] = len(layers)
    return {name: str(value) for name, value in facts.items() if value is not None}


def _describe_writer(metadata: Mapping[str, object]) -> dict[str, str]:
    """Return the program that wrote a file, and the version of its format."""
    keras, version = metadata.get("keras_version"), metadata.get("toolkit_version")
    if version is None:
        return {} if keras is None else {"saved with Keras": str(keras)}
    return {"saved with toolkit": str(version), "format": f"Keras {keras}"}


@contextmanager
def _open_hdf5(path: Path) -> Iterator[Content]:
    def fill(model: Any) -> None:
        load_legacy_weights(model, path, False, False)

    with open_file(path) as (file, datasets):
        if "model_config" in file.attrs:
            yield Content(
                "a model in the older .h5 format",
                datasets,
                _describe_writer(file.attrs),
                lambda compile: load_legacy(path, None, compile),
                fill=fill,
            )
        elif "layer_names" in file.attrs:
            yield Content("weights in the older .h5 format", datasets, fill=fill)
        else:
            yield Content("weights", datasets)


@contextmanager
def _open_shards(path: Path) -> Iterator[Content]:
    with open_shards(path) as datasets:
        yield Content(
            "the list of weights in several files",
            datasets,
            {"files": ", ".join(shards_of(path).listing().names)},
        )


@contextmanager
def _open_safetensors(path: Path) -> Iterator[Content]:
    with open_safetensors(path) as file:
        pairs = list(file.metadata.items())
        facts = {name[:100]: value[:100] for name, value in pairs[:_MAX_FACTS]}
        if len(pairs) > _MAX_FACTS:
            facts["more of these"] = f"{len(pairs) - _MAX_FACTS:,}"
        yield Content(SAFETENSORS, file.arrays, facts, fill=_weight_loader(path))


@contextmanager
def _open_safetensors_list(path: Path) -> Iterator[Content]:
    with open_index(path) as arrays:
        facts = {"files": ", ".join(index_at(path).listing().names)}
        yield Content(
            f"{SAFETENSORS} in several files", arrays, facts, None, _weight_loader(path)
        )


def _weight_loader(path: Path) -> Callable[[Any], None]:
    return lambda model: load_safetensors(model, path)


@contextmanager
def _open_npz(path: Path) -> Iterator[Content]:
    with open_npz(path) as arrays:
        yield Content("arrays of NumPy", arrays)


@contextmanager
def _open_npy(path: Path) -> Iterator[Content]:
    with open_npy(path) as arrays:
        yield Content("an array of NumPy", arrays)


@contextmanager
def _open_elements(path: Path) -> Iterator[Content]:
    try:
        rows = StoredRows(path)
        facts = {"elements": f"{len(rows):,}", "made by": str(rows.label)}
        if len(rows):
            facts["the first"] = _describe_element(rows[0])
    except (ValueError, TypeError, LookupError, OverflowError, struct.error) as error:
        raise ModelFileError(
            f"{str(path)!r}: the elements are corrupt or truncated ({error})"
        ) from error
    yield Content("elements of a data set", facts=facts)


def _describe_element(element: object) -> str:
    """Return the shapes and dtypes of an element, in its structure."""
    if isinstance(element, dict):
        return ", ".join(f"{key}: {_describe_element(x)}" for key, x in element.items())
    if isinstance(element, (tuple, list)):
        return f"({', '.join(map(_describe_element, element))})"
    if isinstance(element, (bytes, str)):
        return f"{type(element).__name__} of length {len(element)}"
    array = np.asarray(element)
    return f"{array.dtype}{list(array.shape)}"


# --- TFRecord -------------------------------------------------------------------------


@contextmanager
def _open_records(path: Path) -> Iterator[Content]:
    with open(path, "rb") as file:
        yield _describe_records(path, file, "TFRecord")


@contextmanager
def _open_gzip_records(path: Path) -> Iterator[Content]:
    with gzip.open(path) as file:
        yield _describe_records(path, file, "TFRecord, compressed with gzip")


def _describe_records(path: Path, file: Any, kind: str) -> Content:
    try:
        count, nbytes, first_size = _measure_records(file)
        features = ""
        if count and first_size <= _MAX_EXAMPLE:
            file.seek(0)
            features = _describe_features(next(read_records(file)))
    except (RecordError, OSError, EOFError, zlib.error) as error:
        raise ModelFileError(f"{str(path)!r}: expected TFRecord; {error}") from error
    facts = {"records": f"{count:,}", "bytes in them": f"{nbytes:,}"}
    if features:
        facts["the first"] = features
    return Content(kind, facts=facts)


def _measure_records(file: IO[bytes]) -> tuple[int, int, int]:
    """Return the number of records, their size, and the size of the first, unread."""
    sizes: list[int] = []
    while head := file.read(12):
        (length,) = struct.unpack_from("<Q", head.ljust(8))
        if not (is_valid_header(head) and _skip_record(file, length)):
            raise RecordError(f"record {len(sizes):,} is corrupt or truncated")
        sizes.append(length)
    return len(sizes), sum(sizes), sizes[0] if sizes else 0


def _skip_record(file: IO[bytes], length: int) -> bool:
    """Skip the rest of a record and the checksum of its data, if present."""
    try:
        end = file.tell() + length
        return file.seek(end) == end and len(file.read(4)) == 4
    except (OSError, OverflowError):
        return False


def _describe_features(record: bytes) -> str:
    """Return the features of an Example, or ""."""
    try:
        features = read_example(record)
    except DatasetError:
        return ""
    descriptions = [
        f"{name}: {array.dtype}[{len(array)}]" for name, array in features.items()
    ]
    ellipsis = [f"and {len(descriptions) - 20} more"] if len(descriptions) > 20 else []
    return ", ".join(descriptions[:20] + ellipsis)


_READERS: dict[bytes, Reader] = {
    _ZIP: _open_zip,
    _HDF5: _open_hdf5,
    MAGIC: _open_npy,
    FIRST_LINE.encode(): _open_elements,
    _GZIP: _open_gzip_records,
}


def load_whole_model(path: Path, compile: bool = True) -> Any:
    """Return the model of a file.

    Raises:
        ModelFileError: the file has no whole model, or the model cannot be created.
    """
    with open_content(path) as content:
        if content.load is None:
            raise ModelFileError(
                "expected the file of a complete model, .keras or .h5; "
                f"{str(path)!r} holds {content.kind}"
            )
        return load_model_with_hint(content.load, compile)
