"""Weights in several files: a `.weights.json` file lists which group is where."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from toolkit.console.frames import warn
from toolkit.errors import (
    ArgumentError,
    MissingFileError,
    ModelFileError,
    UnwritableFileError,
)
from toolkit.files.sets import FileSet
from toolkit.models.saving.h5_files import write_groups
from toolkit.models.saving.state import Groups, load_state
from toolkit.reading.hdf5 import Dataset, contents_checksum, open_datasets

_MAX_LIST = 1 << 26  # bytes of the file that lists the others


def save_shards(path: Path, groups: Groups, max_shard_size: float) -> None:
    """Write groups to files of at most so many gigabytes, and the list of them.

    Raises:
        UnwritableFileError: they cannot be written, or one of their names is that of a
            file which the older list does not have.
    """
    path = _list_path(path)
    shards, where, total = _divided(groups, float(max_shard_size) * 2**30)
    names = [f"{_base(path)}_{i:05}.weights.h5" for i in range(len(shards))]
    with _files(path).replace(lambda: _own_shards(path, names)) as folder:
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
    groups: Groups, limit: float
) -> tuple[list[Groups], list[tuple[str, list[int]]], int]:
    """The groups of each shard, which shards each group is in, and all bytes."""
    shards: list[Groups] = [{}]
    size = total = 0
    where: dict[str, list[int]] = {}
    for group, (name, arrays) in groups.items():
        shards[-1].setdefault(group, (name, {}))
        for key, array in arrays.items():
            if array.nbytes > limit:
                raise ArgumentError(
                    f"save_weights: {group}/{key} has {array.nbytes} bytes, which "
                    f"exceeds the maximum shard size of {limit:.0f} bytes; increase "
                    "max_shard_size"
                )
            if size + array.nbytes > limit:
                shards.append({})
                size = 0
            size += array.nbytes
            total += array.nbytes
            shards[-1].setdefault(group, (name, {}))[1][key] = array
            if len(shards) - 1 not in where.setdefault(f"/{group}", []):
                where[f"/{group}"].append(len(shards) - 1)
    return shards, list(where.items()), total


def _base(path: Path) -> str:
    """How the names of the files begin that a list has, as in Keras."""
    return path.stem.replace(".weights", "")


def _files(path: Path) -> FileSet:
    shard = re.compile(re.escape(_base(path)) + r"_\d{5,}\.weights\.h5")
    return FileSet(
        path.parent,
        path.name,
        lambda name: name == path.name or bool(shard.fullmatch(name)),
        path.name,
    )


def _own_shards(path: Path, names: list[str]) -> list[str]:
    """The files of the older list that were written here; raises for foreign ones."""
    try:
        listed, checksums = _listing(path)
    except ModelFileError:
        listed, checksums = [], {}
    for name in names:
        if name not in listed and os.path.lexists(path.with_name(name)):
            raise UnwritableFileError(
                f"cannot write {str(path)!r}: {str(path.with_name(name))!r} is there "
                "already, and no file of an older list; move it away"
            )
    return [name for name in checksums if name in listed]


def _list_path(path: Path) -> Path:
    if path.suffix == ".json":
        return path
    renamed = path.with_suffix(".json")
    warn(
        f"sharded weights are listed in a `*.json` file: {str(path)!r} becomes "
        f"{str(renamed)!r}"
    )
    return renamed


def load_shards(model: Any, path: Path, skip_mismatch: bool, skip: Any) -> None:
    """Load what the files that a `.weights.json` file lists hold together."""

    def load(folder: Path) -> None:
        with _open(folder / path.name, path) as datasets:
            load_state(model, datasets, str(path), skip_mismatch, skip, True)

    _files(path).read(load)


@contextmanager
def open_shards(path: Path) -> Iterator[dict[str, Dataset]]:
    """The datasets of all files that a `.weights.json` file lists."""
    with _open(_files(path).folder() / path.name, path) as datasets:
        yield datasets


@contextmanager
def _open(listing: Path, path: Path) -> Iterator[dict[str, Dataset]]:
    with ExitStack() as stack:
        datasets: dict[str, Dataset] = {}
        names, checksums = _listing(listing)
        for name in names:
            part = stack.enter_context(open_datasets(listing.with_name(name)))
            twice = datasets.keys() & part.keys()
            if twice:
                raise ModelFileError(
                    f"{str(path)!r}: {sorted(twice)[0]} is in several files"
                )
            if checksums.get(name) not in (None, contents_checksum(part)):
                raise ModelFileError(
                    f"{str(path)!r}: {name!r} is not the file that it lists under this "
                    "name: it is damaged, or was saved at another time"
                )
            datasets |= part
        yield datasets


def listed_files(path: Path) -> list[str]:
    """The files that are listed, which must lie beside the list."""
    return _listing(_files(path).folder() / path.name)[0]


def _listing(path: Path) -> tuple[list[str], dict[str, str]]:
    """The files that are listed, and the checksums of those that were written here."""
    if not path.is_file():
        raise MissingFileError(f"there is no file {str(path)!r}")
    if path.stat().st_size > _MAX_LIST:
        raise ModelFileError(f"{str(path)!r}: too long for a list of files")
    try:
        listing = json.loads(path.read_text("utf-8"))
        entries = list(listing["weight_map"].values())
        names = [x for e in entries for x in (e if isinstance(e, list) else [e])]
        names = list(dict.fromkeys(names))
        if any(not name or Path(name).name != name or "\\" in name for name in names):
            raise ValueError("a file that is not beside it")
        checksums = dict(listing.get("metadata", {}).get("files", {}))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFileError(
            f"{str(path)!r}: expected a list of weight files ({error})"
        ) from error
    return names, checksums
