"""Checkpoints in parts: each process of a job writes its share of a model's state.

A checkpoint is a folder: `state.json` says where the bytes of each variable are, and
each process writes one file of raw bytes. It is written aside and gets its name by one
rename, so that it is whole or not there.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
import threading
from pathlib import Path
from typing import Any

import numpy as np

from toolkit import comm
from toolkit.comm.group import as_bytes
from toolkit.dtypes import numpy_dtype
from toolkit.errors import ModelFileError, UnwritableFileError
from toolkit.files.staging import Stage, flush, sweep

_STATE = "state.json"
_VERSION = 1
_ALIGNED = 64  # bytes
_MAX_LIST = 1 << 26  # bytes of the file that lists the others
_FILE = re.compile(r"rank-\d{5,9}\.bin")
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_Piece = tuple[str, int, Any]  # variable, its first byte, the bytes


class Checkpoint:
    """Saves a model's state in parts, one for each process of the job.

    The state is that of the weights, the random generators, the optimizer and the
    metrics. Each process writes an equal share of the bytes, and any number of
    processes can restore them.

    Args:
        model: a built model.
        group: the processes that save together; those of the job if None.

    Example:
        >>> import toolkit as tk
        >>> from toolkit.distribution import Checkpoint
        >>> model = tk.Sequential([tk.Input((4,)), tk.layers.Dense(2)])
        >>> checkpoint = Checkpoint(model)
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/step-1"
        >>> checkpoint.save(path, position={"step": 1})
        >>> checkpoint.restore(path)
        {'step': 1}
    """

    def __init__(self, model: Any, group: comm.Group | None = None) -> None:
        self._model = model
        self._group = (comm.world() if group is None else group).duplicate()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def save(
        self, path: str | os.PathLike[str], position: Any = None, wait: bool = True
    ) -> None:
        """Write a new checkpoint; all processes call this.

        Args:
            path: the folder to make, which must not be there yet.
            position: a value of JSON to keep with it, such as the epoch.
            wait: whether to return when it is on disk; if not, what fails is raised by
                the next `save`, `restore` or `wait`.

        Raises:
            UnwritableFileError: any of the processes cannot write it.
        """
        self.wait()
        target = Path(path)
        state: dict[str, Any] = {"version": _VERSION, "ranks": self._group.size}
        state["position"] = json.loads(json.dumps(position))
        state["variables"], pieces = self._share()
        if wait:
            self._write(target, state, pieces)
            return

        def work() -> None:
            try:
                self._write(target, state, pieces)
            except Exception as error:  # raised by the next call
                self._error = error

        self._thread = threading.Thread(target=work, name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Wait until the last save is on disk; raises if it failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def restore(self, path: str | os.PathLike[str]) -> Any:
        """Give the model the state of a checkpoint, or change nothing.

        Returns:
            The position that was saved with it.

        Raises:
            ModelFileError: it is damaged, or does not fit the model.
        """
        self.wait()
        variables = _variables(self._model)
        state = _read_state(Path(path))
        listed = state["variables"]
        if set(listed) != set(variables):
            name = sorted(set(listed) ^ set(variables))[0]
            where = "the model" if name in listed else "the checkpoint"
            raise ModelFileError(f"{str(path)!r}: {where} has no variable {name}")
        arrays = {
            name: _read(Path(path), name, listed[name], variable)
            for name, variable in variables.items()
        }
        for name, variable in variables.items():
            variable.assign(arrays[name])
        return state.get("position")

    def _share(self) -> tuple[dict[str, Any], list[_Piece]]:
        """What the variables are, and copies of the bytes that this process writes."""
        variables = _variables(self._model)
        sizes = {n: _nbytes(v.shape, v.dtype) for n, v in variables.items()}
        total, rank, ranks = sum(sizes.values()), self._group.rank, self._group.size
        first, end = total * rank // ranks, total * (rank + 1) // ranks
        listed, pieces, place = {}, [], 0
        for name, variable in variables.items():
            # All processes read it: one that is split is put together by all.
            raw = as_bytes(np.ascontiguousarray(variable.numpy()))
            low, high = max(first - place, 0), min(end - place, raw.size)
            if low < high:
                pieces.append((name, low, raw[low:high].copy()))
            shape = list(variable.shape)
            listed[name] = {"path": variable.path, "dtype": variable.dtype}
            listed[name] |= {"shape": shape, "pieces": []}
            place += sizes[name]
        return listed, pieces

    def _write(self, target: Path, state: dict[str, Any], pieces: list[_Piece]) -> None:
        stage, error = None, ""
        try:
            if self._group.rank == 0:
                try:
                    if os.path.lexists(target):
                        raise FileExistsError(f"{str(target)!r} is there already")
                    sweep(target.parent, target.name)
                    stage = Stage(target.parent, target.name)
                except OSError as caught:
                    error = str(caught)
            folder = self._agreed(target, error, stage and str(stage.files))[0]
            records: list[Any] = []
            try:
                records = _write_pieces(Path(folder), self._group.rank, pieces)
            except OSError as caught:
                error = str(caught)
            parts = self._agreed(target, error, records)
            try:
                if stage is not None:
                    for name, piece in (each for part in parts for each in part):
                        state["variables"][name]["pieces"].append(piece)
                    _publish(stage, state, target)
            except OSError as caught:
                error = str(caught)
            self._agreed(target, error, None)
        finally:
            if stage is not None:
                stage.close()

    def _agreed(self, target: Path, error: str, value: Any) -> list[Any]:
        """What all processes have; raises in all of them if one has failed."""
        answers = comm.exchange(self._group, [error, value])
        for rank, (reason, _) in enumerate(answers):
            if reason:
                raise UnwritableFileError(
                    f"cannot write {str(target)!r}: process {rank}: {reason}"
                )
        return [found for _, found in answers]


def _variables(model: Any) -> dict[str, Any]:
    """Names that do not depend on those of layers -> the variables of a model."""
    optimizer = model.optimizer
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
    groups = {
        "weights": model.trainable_variables,
        "others": model.non_trainable_variables,
        "optimizer": [] if optimizer is None else optimizer.variables,
        "metrics": model.metrics_variables,
    }
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for group, variables in groups.items():
        for number, variable in enumerate(variables):
            if id(variable) not in seen:
                found[f"{group}/{number}"] = variable
                seen.add(id(variable))
    return found


def _nbytes(shape: Any, dtype: str) -> int:
    return math.prod(shape) * int(np.dtype(numpy_dtype(dtype)).itemsize)


def _write_pieces(folder: Path, rank: int, pieces: list[_Piece]) -> list[Any]:
    """Write this process's file; returns what `state.json` says of it."""
    records, name = [], f"rank-{rank:05}.bin"
    with open(folder / name, "xb") as file:
        for variable, start, raw in pieces:
            file.write(b"\0" * (-file.tell() % _ALIGNED))
            record = {"from": start, "file": name, "offset": file.tell()}
            record |= {"length": raw.size, "sha256": _digest(raw)}
            records.append((variable, record))
            file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    return records


def _publish(stage: Stage, state: dict[str, Any], target: Path) -> None:
    """Complete what all processes have written, and give it its name."""
    (stage.files / _STATE).write_text(json.dumps(state), "utf-8")
    flush(stage.files / _STATE)
    flush(stage.files)
    os.rename(stage.files, target)
    flush(target.parent)


def _digest(raw: Any) -> str:
    return hashlib.sha256(raw).hexdigest()


def _read_state(folder: Path) -> dict[str, Any]:
    try:
        raw = _pread(folder / _STATE, 0, None)
        state = json.loads(raw)
        if state["version"] != _VERSION or not isinstance(state["variables"], dict):
            raise ValueError(f"version {state['version']!r}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFileError(
            f"{str(folder)!r}: expected a checkpoint of version {_VERSION} ({error})"
        ) from error
    return dict(state)


def _read(folder: Path, name: str, entry: Any, variable: Any) -> Any:
    """The value that a checkpoint has for a variable."""
    try:
        shape, dtype = tuple(variable.shape), variable.dtype
        if entry["shape"] != list(shape) or entry["dtype"] != dtype:
            raise ValueError(
                f"expected shape {shape} and {dtype}; it has {entry['shape']!r} and "
                f"{entry['dtype']!r}"
            )
        out = np.empty(_nbytes(shape, dtype), np.uint8)
        place = 0
        for piece in sorted(entry["pieces"], key=lambda each: int(each["from"])):
            offset, length = piece["offset"], piece["length"]
            if piece["from"] != place or not 0 < length <= out.size - place:
                raise ValueError("its pieces do not follow each other")
            if not _FILE.fullmatch(piece["file"]) or offset < 0:
                raise ValueError(f"no place in a checkpoint: {piece['file']!r}")
            raw = _pread(folder / piece["file"], offset, length)
            if _digest(raw) != piece["sha256"]:
                raise ValueError(f"its bytes in {piece['file']!r} are damaged")
            out[place : place + length] = np.frombuffer(raw, np.uint8)
            place += length
        if place != out.size:
            raise ValueError(f"{place} of its {out.size} bytes are there")
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise ModelFileError(
            f"{str(folder)!r}: variable {name} ({variable.path}): {error}"
        ) from error
    return out.view(numpy_dtype(dtype)).reshape(shape)


def _pread(path: Path, offset: int, length: int | None) -> bytes:
    """Bytes of a plain file, which is no link; all of a list if `length` is None."""
    handle = os.open(path, os.O_RDONLY | _NO_LINK)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{path.name!r} is no plain file")
        if length is None:
            length = min(found.st_size, _MAX_LIST + 1)
            if length > _MAX_LIST:
                raise ValueError("too long for a list")
        if offset + length > found.st_size:
            raise ValueError(f"{path.name!r} ends before its bytes do")
        parts, done = [], 0
        while done < length:
            part = os.pread(handle, min(length - done, 1 << 30), offset + done)
            if not part:
                raise ValueError(f"{path.name!r} ends before its bytes do")
            parts.append(part)
            done += len(part)
        return b"".join(parts)
    finally:
        os.close(handle)
