"""Weights in several HDF5 files, with a `.weights.json` index."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolkit.errors import ModelFileError
from toolkit.models.saving.file_lists import Division, FileList
from toolkit.models.saving.h5_files import write_groups
from toolkit.models.saving.state import Groups, load_state
from toolkit.reading.hdf5 import Dataset, contents_checksum, open_datasets


def shards_of(path: Path) -> FileList:
    """Return the index at a path."""
    return FileList(path, re.escape(_base(path)) + r"_\d{5,}\.weights", ".h5")


def _base(path: Path) -> str:
    """Return the common prefix of the names of an index's files, as in Keras."""
    return path.stem.replace(".weights", "")


# --- writing --------------------------------------------------------------------------


def save_shards(path: Path, groups: Groups, max_shard_size: float) -> None:
    """Write groups to files of at most `max_shard_size` gigabytes, and the index.

    Raises:
        ArgumentError: an array is larger.
        UnwritableFileError: they cannot be written, or a file that the older index does
            not contain would be overwritten.
    """
    shards, where, total = _divided(groups, max_shard_size)
    names = [f"{_base(path)}_{i:05}.weights.h5" for i in range(len(shards))]
    with shards_of(path).replace(names) as folder:
        checksums = {}
        for name, shard in zip(names, shards, strict=True):
            write_groups(folder / name, shard)
            with open_datasets(folder / name) as datasets:
                checksums[name] = contents_checksum(datasets)
        placed = {group: [names[i] for i in indices] for group, indices in where}
        listing = {
            "metadata": {"total_size": float(total), "files": checksums},
            "weight_map": {g: n[0] if len(n) == 1 else n for g, n in placed.items()},
        }
        (folder / path.name).write_text(json.dumps(listing, indent=4), "utf-8")


def _divided(
    groups: Groups, max_shard_size: float
) -> tuple[list[Groups], list[tuple[str, list[int]]], int]:
    """Return the groups of each shard, the shards of each group, and all bytes."""
    division, total = Division(max_shard_size), 0
    shards: list[Groups] = [{}]
    where: dict[str, list[int]] = {}
    for group, (name, arrays) in groups.items():
        shards[-1].setdefault(group, (name, {}))
        for key, array in arrays.items():
            number = division.assign_file(f"{group}/{key}", array.nbytes)
            if number == len(shards):
                shards.append({})
            total += array.nbytes
            shards[number].setdefault(group, (name, {}))[1][key] = array
            if number not in where.setdefault(f"/{group}", []):
                where[f"/{group}"].append(number)
    return shards, list(where.items()), total


# --- reading --------------------------------------------------------------------------


def load_shards(model: Any, path: Path, skip_mismatch: bool, skip: Any) -> None:
    """Load the weights in the files of a `.weights.json` index."""

    def load(_: Path) -> None:
        with open_shards(path) as datasets:
            load_state(model, datasets, str(path), skip_mismatch, skip, True)

    shards_of(path).files.read(load)


@contextmanager
def open_shards(path: Path) -> Iterator[dict[str, Dataset]]:
    """Return the datasets of all files of a `.weights.json` index."""
    with shards_of(path).open(open_datasets) as (listing, files):
        datasets: dict[str, Dataset] = {}
        for name, shard in files.items():
            twice = datasets.keys() & shard.keys()
            if twice:
                raise ModelFileError(
                    f"{str(path)!r}: {sorted(twice)[0]} is in several files"
                )
            if listing.written.get(name) not in (None, contents_checksum(shard)):
                raise ModelFileError(
                    f"{str(path)!r}: {name!r} differs from the listed file: it is "
                    "corrupt or was saved at another time"
                )
            datasets |= shard
        yield datasets
