"""Safetensors in several files, indexed as at Hugging Face.

The index is `NAME.safetensors.index.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolkit.errors import ModelFileError
from toolkit.models.saving.file_lists import Division, FileList
from toolkit.reading.safetensors import (
    StoredArray,
    open_safetensors,
    prepare_file,
    write_prepared,
)
from toolkit.type_aliases import Array

LIST = ".safetensors.index.json"
Arrays = dict[str, Array]


def index_at(path: Path) -> FileList:
    """Return the index at a path."""
    base = re.escape(path.name.removesuffix(LIST))
    return FileList(path, base + r"-\d{5,}-of-\d{5,}", ".safetensors")


@contextmanager
def open_index(path: Path) -> Iterator[dict[str, StoredArray]]:
    """Return the arrays of all files of an index, each of them checked.

    Raises:
        MissingFileError: the index or a file is missing.
        ModelFileError: the index is corrupt, names arrays that the files lack, or files
            outside of its folder.
    """
    label = repr(str(path))
    with index_at(path).open(open_safetensors) as (listing, files):
        arrays: dict[str, StoredArray] = {}
        for name, content in files.items():
            stored = content.arrays
            wrong = [key for key in stored if listing.where.get(key) != [name]]
            if wrong:
                raise ModelFileError(
                    f"{label}: {name!r} contains {wrong[0][:100]!r}, which the list "
                    "does not assign to it"
                )
            arrays |= stored
        missing_keys = [key for key in listing.where if key not in arrays]
        if missing_keys:
            raise ModelFileError(
                f"{label}: {missing_keys[0][:100]!r} is not in "
                f"{', '.join(map(repr, listing.where[missing_keys[0]]))}, but the "
                "list assigns it"
            )
        yield arrays


def save_with_index(path: Path, arrays: Arrays, max_shard_size: float) -> None:
    """Write arrays to files of at most `max_shard_size` gigabytes, and the index.

    Raises:
        ArgumentError: an array is larger.
        UnwritableFileError: they cannot be written, or a file that the older index does
            not contain would be overwritten.
    """
    shards = _divided(arrays, max_shard_size)
    base, count = path.name.removesuffix(LIST), len(shards)
    names = [f"{base}-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    laid = [prepare_file(shard, None) for shard in shards]
    listing = {
        "metadata": {
            "total_size": sum(array.nbytes for array in arrays.values()),
            "files": names,  # the next save uses it to identify these files
        },
        "weight_map": {
            key: name
            for name, shard in zip(names, shards, strict=True)
            for key in shard
        },
    }
    with index_at(path).replace(names) as folder:
        for name, (head, values) in zip(names, laid, strict=True):
            write_prepared(folder / name, head, values)
        text = json.dumps(listing, indent=2, ensure_ascii=False)
        (folder / path.name).write_text(text, "utf-8")


def _divided(arrays: Arrays, max_shard_size: float) -> list[Arrays]:
    """Return the arrays of each file."""
    division, shards = Division(max_shard_size), [Arrays()]
    for name, array in arrays.items():
        if division.assign_file(name, array.nbytes) == len(shards):
            shards.append({})
        shards[-1][name] = array
    return shards
