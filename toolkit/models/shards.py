"""Weights in several files: a `.weights.json` file lists which group is where."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from toolkit.errors import ArgumentError, MissingFileError, ModelFileError
from toolkit.models.h5_files import replace_file, write_groups
from toolkit.models.state import Groups, load_state
from toolkit.reading.hdf5 import Dataset, open_datasets

_MAX_LIST = 1 << 26  # bytes of the file that lists the others


def save_shards(path: Path, groups: Groups, max_shard_size: float) -> None:
    """Write groups to files of at most so many gigabytes, then the list of them."""
    path = _list_path(path)
    limit = float(max_shard_size) * 2**30
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
    base = path.stem.replace(".weights", "")
    names = [f"{base}_{i:05}.weights.h5" for i in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        _write(path.with_name(name), shard)
    files = {group: [names[i] for i in indices] for group, indices in where.items()}
    listing = {
        "metadata": {"total_size": float(total)},
        "weight_map": {g: n[0] if len(n) == 1 else n for g, n in files.items()},
    }
    text = json.dumps(listing, indent=4)
    replace_file(path, lambda temporary: temporary.write_text(text, "utf-8"))


def _write(path: Path, groups: Groups) -> None:
    replace_file(path, lambda temporary: write_groups(temporary, groups))


def _list_path(path: Path) -> Path:
    if path.suffix == ".json":
        return path
    renamed = path.with_suffix(".json")
    warnings.warn(
        f"sharded weights are listed in a `*.json` file: {str(path)!r} becomes "
        f"{str(renamed)!r}",
        stacklevel=5,
    )
    return renamed


def load_shards(model: Any, path: Path, skip_mismatch: bool, skip: Any) -> None:
    """Load what the files that a `.weights.json` file lists hold together."""
    with open_shards(path) as datasets:
        load_state(model, datasets, str(path), skip_mismatch, skip, True)


@contextmanager
def open_shards(path: Path) -> Iterator[dict[str, Dataset]]:
    """The datasets of all files that a `.weights.json` file lists."""
    with ExitStack() as stack:
        datasets: dict[str, Dataset] = {}
        for name in listed_files(path):
            part = stack.enter_context(open_datasets(path.with_name(name)))
            twice = datasets.keys() & part.keys()
            if twice:
                raise ModelFileError(
                    f"{str(path)!r}: {sorted(twice)[0]} is in several files"
                )
            datasets |= part
        yield datasets


def listed_files(path: Path) -> list[str]:
    """The files that are listed, which must lie beside the list."""
    if not path.is_file():
        raise MissingFileError(f"there is no file {str(path)!r}")
    if path.stat().st_size > _MAX_LIST:
        raise ModelFileError(f"{str(path)!r}: too long for a list of files")
    try:
        entries = list(json.loads(path.read_text("utf-8"))["weight_map"].values())
        names = [x for e in entries for x in (e if isinstance(e, list) else [e])]
        names = list(dict.fromkeys(names))
        if any(Path(name).name != name or "\\" in name for name in names):
            raise ValueError("a file that is not beside it")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFileError(
            f"{str(path)!r}: expected a list of weight files ({error})"
        ) from error
    return names
