"""Safetensors in several files, and the list that tells which array is in which.

As at Hugging Face, the list, `NAME.safetensors.index.json`, is an object with
`weight_map`, name of an array -> name of a file, and `metadata`. The files lie beside
it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.console.frames import warn
from toolkit.errors import (
    ArgumentError,
    MissingFileError,
    ModelFileError,
    UnwritableFileError,
)
from toolkit.files.sets import FileSet
from toolkit.reading.budget import limited_load, spend
from toolkit.reading.safetensors import (
    StoredArray,
    fill_file,
    laid_out,
    open_safetensors,
)
from toolkit.reading.text import parsed_json

LIST = ".safetensors.index.json"
_MAX_LIST = 1 << 25  # bytes of a list, enough for 300,000 arrays
_MAX_NAME = 255  # bytes of a file's name, the most that file systems take
_MAX_FILES = 500  # that are open at the same time
Arrays = dict[str, np.ndarray[Any, Any]]


# --- reading --------------------------------------------------------------------------


def files_of(path: Path) -> FileSet:
    """The list and the files of the saves that were written here."""
    base = re.escape(path.name.removesuffix(LIST))
    shard = re.compile(base + r"-\d{5,}-of-\d{5,}\.safetensors")
    return FileSet(
        path.parent,
        path.name,
        lambda name: name == path.name or bool(shard.fullmatch(name)),
        path.name,
    )


@contextmanager
def open_listed(path: Path) -> Iterator[dict[str, StoredArray]]:
    """The arrays of all files that a list names, each of them checked.

    Raises:
        MissingFileError: the list or a file is not there.
        ModelFileError: the list is damaged, or names what is not in the files, or files
            that do not lie beside it.
    """
    with _open(files_of(path).folder() / path.name, path) as arrays:
        yield arrays


@contextmanager
def _open(listing: Path, path: Path) -> Iterator[dict[str, StoredArray]]:
    label = repr(str(path))
    where = _listed(listing, label)
    names = list(dict.fromkeys(where.values()))
    files = [_beside(listing, name, label) for name in names]
    with limited_load(listing, *files), ExitStack() as stack:
        arrays: dict[str, StoredArray] = {}
        for name, file in zip(names, files, strict=True):
            found = stack.enter_context(open_safetensors(file)).arrays
            wrong = [key for key in found if where.get(key) != name]
            if wrong:
                raise ModelFileError(
                    f"{label}: {name!r} has {wrong[0][:100]!r}, which the list does "
                    "not say"
                )
            arrays |= found
        lacking = [key for key in where if key not in arrays]
        if lacking:
            raise ModelFileError(
                f"{label}: {lacking[0][:100]!r} is not in "
                f"{where[lacking[0]]!r}, as the list says"
            )
        yield arrays


def listed_names(path: Path) -> list[str]:
    """The files that are listed, which must lie beside the list."""
    listing = files_of(path).folder() / path.name
    return list(dict.fromkeys(_listed(listing, repr(str(path))).values()))


def _listed(listing: Path, label: str) -> dict[str, str]:
    """Name of an array -> name of a file, once all names are plain ones."""
    if not listing.is_file():
        raise MissingFileError(f"there is no file {label}")
    size = listing.stat().st_size
    if size > _MAX_LIST:
        raise ModelFileError(f"{label}: {size} bytes, too long for a list of files")
    with limited_load(listing):
        spend(size, "the list")
        found = parsed_json(listing.read_bytes(), label, unique=True)
    where = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(where, dict):
        raise ModelFileError(f'{label}: expected a list of files, under "weight_map"')
    names = list(dict.fromkeys(map(_plain, where.values())))
    if None in names:
        wrong = next(name for name in where.values() if _plain(name) is None)
        raise ModelFileError(
            f"{label}: expected names of .safetensors files beside it; found "
            f"{str(wrong)[:100]!r}: refused"
        )
    if len(names) > _MAX_FILES:
        raise ModelFileError(f"{label}: {len(names)} files: refused")
    return where


def _plain(name: Any) -> str | None:
    """A name that can only be that of a file in the same folder; None if it is not."""
    if not isinstance(name, str) or not name.isprintable():  # or half a character
        return None
    is_plain = re.fullmatch(r"[^/\\:]+\.safetensors", name)
    return name if is_plain and len(name.encode()) <= _MAX_NAME else None


def _beside(listing: Path, name: str, label: str) -> Path:
    """The path of a file that is listed.

    Hugging Face's cache has links to files with other names. There the list is such a
    link itself, and the files lie where it lies; no link may lead elsewhere.
    """
    path = listing.with_name(name)
    folders = {Path(os.path.realpath(each)) for each in (listing.parent, listing)}
    folders = {each if each.is_dir() else each.parent for each in folders}
    found = Path(os.path.realpath(path))
    if found.parent not in folders:
        raise ModelFileError(
            f"{label}: {name!r} is a link that leads out of its folder: refused"
        )
    return found


# --- writing --------------------------------------------------------------------------


def list_path(path: Path) -> Path:
    """Where the list of several files goes, given the name of a single one too."""
    if path.name.endswith(LIST):
        return path
    renamed = path.with_name(path.name.removesuffix(".safetensors") + LIST)
    warn(
        f"weights in several files are listed in a `*{LIST}` file: {str(path)!r} "
        f"becomes {str(renamed)!r}"
    )
    return renamed


def save_listed(path: Path, arrays: Arrays, max_shard_size: float) -> None:
    """Write arrays to files of at most so many gigabytes, and the list of them.

    Raises:
        ArgumentError: an array is larger.
        UnwritableFileError: they cannot be written, or one of their names is that of a
            file which the older list does not have.
    """
    shards = _divided(arrays, max_shard_size * 2**30)
    base, count = path.name.removesuffix(LIST), len(shards)
    names = [f"{base}-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    laid = [laid_out(shard, None) for shard in shards]
    listing = {
        "metadata": {
            "total_size": sum(array.nbytes for array in arrays.values()),
            "files": names,  # by which the next save knows those of this one
        },
        "weight_map": {
            key: name
            for name, shard in zip(names, shards, strict=True)
            for key in shard
        },
    }
    with files_of(path).replace(lambda: _own_files(path, names)) as folder:
        for name, (head, values) in zip(names, laid, strict=True):
            fill_file(folder / name, head, values)
        text = json.dumps(listing, indent=2, ensure_ascii=False)
        (folder / path.name).write_text(text, "utf-8")


def _divided(arrays: Arrays, limit: float) -> list[Arrays]:
    """The arrays of each file."""
    shards: list[Arrays] = [{}]
    size = 0
    for name, array in arrays.items():
        if array.nbytes > limit:
            raise ArgumentError(
                f"save_weights: {name} has {array.nbytes} bytes, which exceeds the "
                f"maximum shard size of {limit:.0f} bytes; increase max_shard_size"
            )
        if size + array.nbytes > limit:
            shards.append({})
            size = 0
        shards[-1][name] = array
        size += array.nbytes
    return shards


def _own_files(path: Path, names: list[str]) -> list[str]:
    """The files of the older list that were written here; raises for foreign ones."""
    try:
        listed = set(_listed(path, str(path)).values())
        metadata = json.loads(path.read_bytes()).get("metadata")
        own = metadata.get("files") if isinstance(metadata, dict) else []
        own = [name for name in own or [] if name in listed]
    except (ModelFileError, TypeError):
        listed, own = set(), []
    for name in names:
        if name not in listed and os.path.lexists(path.with_name(name)):
            raise UnwritableFileError(
                f"cannot write {str(path)!r}: {str(path.with_name(name))!r} is there "
                "already, and no file of an older list; move it away"
            )
    return own
