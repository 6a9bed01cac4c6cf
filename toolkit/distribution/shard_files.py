"""Files of a sharded checkpoint: raw bytes, and an index of the boxes.

The index, `state.json`, has a hash of itself and one of each box. It is written last.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toolkit.distribution import boxes
from toolkit.distribution.boxes import Box
from toolkit.dtypes import numpy_dtype
from toolkit.errors import ModelFileError
from toolkit.files.staging import Stage, flush, move_with_retries

STATE = "state.json"
VERSION = 2
_MAX_INDEX_SIZE = 1 << 28  # maximum size of the index file in bytes
_FILE_NAME = re.compile(r"rank-\d{5,9}\.bin")
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class StoredBox(NamedTuple):
    """Box of a variable in the file of one process.

    Attributes:
        variable: the name of the variable.
        box: the box in the full value.
        offset, length: the bytes in the file of the process.
    """

    variable: str
    box: Box
    offset: int
    length: int


def write_boxes(
    folder: Path, rank: int, content: Any, stored_boxes: Sequence[StoredBox]
) -> list[Any]:
    """Write a process's file; return its index entries.

    Args:
        folder: the destination.
        rank: the rank of the process.
        content: all bytes of the file.
        stored_boxes: the boxes in the file.
    """
    name = f"rank-{rank:05}.bin"
    with open(folder / name, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    records: list[Any] = []
    for variable, box, offset, length in stored_boxes:
        record: dict[str, Any] = {"box": box, "file": name}
        record |= {"offset": offset, "length": length}
        record["sha256"] = _digest(content[offset : offset + length])
        records.append((variable, record))
    return records


def publish(stage: Stage, state: dict[str, Any], target: Path) -> None:
    """Write the index of all files, and rename the folder to its final name."""
    json_state = json.loads(json.dumps(state))  # as a reader of the file receives it
    text = json.dumps({"sha256": _digest_of_state(json_state), **json_state})
    (stage.files / STATE).write_text(text, "utf-8")
    flush(stage.files / STATE)
    flush(stage.files)
    move_with_retries(os.rename, stage.files, target)
    try:
        flush(target.parent)
    except OSError:
        move_with_retries(os.rename, target, stage.files)
        raise


def remove(folder: Path) -> None:
    """Remove a checkpoint, its index first.

    Without the index, the result of an interrupted removal is not a checkpoint."""
    with suppress(OSError):
        (folder / STATE).unlink(missing_ok=True)
        for entry in list(os.scandir(folder)):
            if _FILE_NAME.fullmatch(entry.name):
                os.unlink(entry)
        folder.rmdir()


def read_state(folder: Path) -> dict[str, Any]:
    """Return the index of a checkpoint.

    Raises:
        ModelFileError: the index is corrupt, or has another version.
    """
    try:
        state = json.loads(_pread(folder / STATE, 0, None))
        if state["version"] != VERSION:
            raise ValueError(f"it has version {state['version']!r}")
        digest = state.pop("sha256")
        if digest != _digest_of_state(state) or not isinstance(
            state["variables"], dict
        ):
            raise ValueError(f"its {STATE} is corrupt")
        state["sha256"] = digest
    except FileNotFoundError as error:
        names = (x.name for x in folder.parent.glob("*") if (x / STATE).exists())
        found = ", ".join(sorted(names)[-3:])
        raise ModelFileError(
            f"{str(folder)!r}: there is no complete checkpoint"
            + (f"; this folder has {found}" if found else "")
        ) from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise ModelFileError(
            f"{str(folder)!r}: expected a checkpoint of version {VERSION} ({reason})"
        ) from error
    return dict(state)


def latest(folder: Path) -> Path | None:
    """Return the complete checkpoint in a folder that was completed last, or None."""
    times = {}
    for path in folder.glob("[!.]*"):
        with suppress(OSError):
            times[path] = os.stat(path / STATE).st_mtime_ns
    newest_first = sorted(times, key=lambda path: (times[path], path.name))[::-1]
    return next(filter(is_complete, newest_first), None)


def is_complete(folder: Path) -> bool:
    """Return whether a checkpoint has all of its files; hashes are not verified."""
    try:
        ends: dict[str, int] = {}
        for entry in read_state(folder)["variables"].values():
            for record in entry["boxes"]:
                end = record["offset"] + record["length"]
                ends[record["file"]] = max(end, ends.get(record["file"], 0))
        return all((folder / name).stat().st_size >= end for name, end in ends.items())
    except (OSError, ModelFileError, KeyError, TypeError):
        return False


def read_box(folder: Path, entry: Any, box: Box, shape: Any, dtype: str) -> Any:
    """Read a box of a variable's value from a checkpoint.

    Args:
        folder: the checkpoint.
        entry: the index entry of the variable.
        box: the box to read.
        shape, dtype: the shape and dtype of the full value.

    Raises:
        ValueError, OSError, KeyError, TypeError: the data is missing or corrupt.
    """
    if entry["shape"] != list(shape) or entry["dtype"] != dtype:
        raise ValueError(
            f"expected shape {tuple(shape)} and {dtype}; it has {entry['shape']!r} "
            f"and {entry['dtype']!r}"
        )
    out = np.empty(boxes.extents(box), numpy_dtype(dtype))
    overlaps = []
    for record in entry["boxes"]:
        source = _parse_box(record["box"], shape)
        overlap = boxes.intersect(source, box)
        if overlap is None:
            continue
        overlaps.append(overlap)
        count = prod(boxes.extents(source))
        if record["length"] != count * out.itemsize:
            raise ValueError(f"a box of {count} elements has {record['length']} bytes")
        if not _FILE_NAME.fullmatch(record["file"]) or record["offset"] < 0:
            raise ValueError(f"not an offset in a checkpoint: {record['file']!r}")
        raw = _pread(folder / record["file"], record["offset"], record["length"])
        if _digest(raw) != record["sha256"]:
            raise ValueError(f"its bytes in {record['file']!r} are corrupt")
        array = np.frombuffer(raw, out.dtype).reshape(boxes.extents(source))
        out[boxes.slices_within(overlap, box)] = array[
            boxes.slices_within(overlap, source)
        ]
    if not boxes.is_cover(box, overlaps):
        raise ValueError("its boxes do not cover each element exactly once")
    return out


def _parse_box(value: Any, shape: Any) -> Box:
    """Return a box that is non-empty and inside an array, or raise an error."""
    pairs = [(start, stop) for start, stop in value]
    are_valid = (
        type(start) is type(stop) is int and 0 <= start < stop <= extent
        for (start, stop), extent in zip(pairs, shape, strict=True)
    )
    if not all(are_valid):
        raise ValueError(f"no box of shape {tuple(shape)}: {value!r}")
    return tuple(pairs)


def _digest(raw: Any) -> str:
    return hashlib.sha256(raw).hexdigest()


def _digest_of_state(state: dict[str, Any]) -> str:
    return _digest(json.dumps(state, sort_keys=True).encode())


def _pread(path: Path, offset: int, length: int | None) -> bytes:
    """Read bytes of a regular file, not a link; the full index if `length` is None."""
    with open(path, "rb", opener=_open_without_links) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path.name!r} is not a regular file")
        if length is None:
            length = min(status.st_size, _MAX_INDEX_SIZE + 1)
            if length > _MAX_INDEX_SIZE:
                raise ValueError("the list is too long")
        file.seek(offset)
        content = file.read(length) if offset + length <= status.st_size else b""
        if len(content) != length:
            raise ValueError(f"{path.name!r} is truncated")
        return content


def _open_without_links(path: str, flags: int) -> int:
    return os.open(path, flags | _NO_LINK)
