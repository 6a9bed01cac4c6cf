"""Sharded checkpoints: each process of a job writes its shard of a model's state.

A checkpoint is a folder: `state.json` has the location of each variable's bytes, and
each process writes one file of raw bytes. No data is gathered. The folder has a
temporary name until one rename completes it, so that a checkpoint is complete or
absent.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toolkit import comm
from toolkit.console.frames import warn
from toolkit.core.placement import set_local_shard
from toolkit.distribution import shard_files
from toolkit.distribution.collective_work import run_in_all
from toolkit.distribution.shard_files import Piece
from toolkit.distribution.snapshots import Plan, held_box, variables_of
from toolkit.distribution.strategies import distribution
from toolkit.errors import (
    ArgumentError,
    CommunicationError,
    ModelFileError,
    UnwritableFileError,
)
from toolkit.files.staging import Stage, remove_stale_stages

# Maximum number of saves in progress, each with a separate buffer.
_MAX_SAVES = 2
# Errors caused by corrupt files.
_CORRUPT_FILE_ERRORS = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
)


class Checkpoint:
    """Sharded checkpoint of a model's state, saved by all processes of a job.

    The state consists of the weights, random generators, optimizer and metrics. Each
    process writes the data that it holds, or a part if several processes hold it. Any
    number of processes can restore it, with any layout.

    Args:
        model: a built model.
        group: the group of the processes, by default all of the job. The thread that
            uses the group must also call `save` and `restore`.

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
        self._group = comm.world() if group is None else group
        self._background = self._group.duplicate()  # for the writer threads
        self._saves: list[_Save] = []
        self._plan: Plan | None = None
        self._memory: list[Any] = []  # free buffers

    def save(
        self, path: str | os.PathLike[str], position: Any = None, wait: bool = True
    ) -> None:
        """Write a new checkpoint; all processes call this.

        Args:
            path: the folder to create, which must not exist.
            position: a JSON value to store, such as the epoch.
            wait: whether to return only when the checkpoint is on disk. If not, a
                thread writes a copy of the state. Two saves can be in progress; a third
                waits for the first. A failure is raised by the second `save` after it,
                by `wait` or by `restore`. Later saves reuse the memory of the copies.

        Raises:
            UnwritableFileError: any of the processes cannot write it.
        """
        self._save(Path(path), position, wait, lambda: None)

    def _save(
        self, target: Path, position: Any, wait: bool, then: Callable[[], None]
    ) -> None:
        """Save, and call `then` on rank 0 after all data is on disk."""
        while len(self._saves) >= (1 if wait else _MAX_SAVES):
            self._finish()
        variables, plan, position = self._planned(target, position)
        state = {"version": shard_files.VERSION, **_job(self._group)}
        state["position"] = position
        state["variables"] = {
            name: {"path": variable.path, **plan.described[name], "boxes": []}
            for name, variable in variables.items()
        }
        memory, failed = None, None
        try:
            memory = self._take(plan.nbytes)
            plan.copy(variables, memory)
        except BaseException as error:  # all ranks get and raise the error
            failed = error
        writing = _CollectiveWrite(self._background, target, state, plan.pieces, then)

        def work() -> None:
            writing.run(None if memory is None else memory[: plan.nbytes], failed)
            if memory is not None and not wait:
                self._memory.append(memory)

        self._saves.append(_Save(work, self._saves[-1:]))
        if wait or not isinstance(failed, Exception | None):  # an interrupt
            self.wait()

    def wait(self) -> None:
        """Wait until all saves are on disk; raise an error if one failed."""
        while self._saves:
            self._finish()

    def restore(self, path: str | os.PathLike[str]) -> Any:
        """Restore the model from a checkpoint, or change nothing on an error.

        All processes call this. Each reads the data that it holds.

        Returns:
            The stored position.

        Raises:
            ModelFileError: the checkpoint is corrupt, or does not match the model.
        """
        self.wait()
        folder = Path(path)

        def read() -> Any:
            variables, state = variables_of(self._model), shard_files.read_state(folder)
            try:
                changes = _changes(state, _job(self._group))
                arrays = _read(folder, state["variables"], variables)
            except _CORRUPT_FILE_ERRORS as error:
                raise ModelFileError(f"{str(folder)!r}: {error}") from error
            return variables, state, changes, arrays

        reason = f"cannot restore {str(folder)!r}"
        (variables, state, changes, arrays), digests = run_in_all(
            self._group, read, ModelFileError, reason, lambda found: found[1]["sha256"]
        )
        if len(set(digests)) > 1:
            raise ModelFileError(
                f"{reason}: the processes find different checkpoints there; expected a "
                "folder that all of them see"
            )
        for name, variable in variables.items():
            set_local_shard(variable, arrays[name])
        if changes and self._group.rank == 0:
            warn(f"Checkpoint: {str(folder)!r} {changes}")
        return state["position"]

    def _finish(self) -> None:
        """Wait for the oldest save in progress."""
        save = self._saves[0]
        save.join()
        del self._saves[0]
        if save.error is not None:
            raise save.error

    def _take(self, nbytes: int) -> Any:
        """Return a free buffer, reused if it is large enough."""
        found = self._memory.pop() if self._memory else None
        if found is None or found.size < nbytes:
            found = np.empty(nbytes, np.uint8)
        return found

    def _planned(self, target: Path, position: Any) -> tuple[dict[str, Any], Plan, Any]:
        """Return the variables, this process's write plan, and the position in JSON."""

        def look() -> Any:
            variables = variables_of(self._model)
            return variables, Plan.of(variables), json.loads(json.dumps(position))

        before, reason = self._plan, f"cannot write {str(target)!r}"
        (variables, plan, kept), known = run_in_all(
            self._group,
            look,
            UnwritableFileError,
            reason,
            lambda found: before is not None and before.is_like(found[1]),
        )
        if before is not None and all(known):
            return variables, before, kept
        answers = comm.exchange(self._group, [plan.described, plan.held])
        for rank, (described, _) in enumerate(answers):
            if described != plan.described:
                raise ArgumentError(
                    f"{reason}: process {rank} has other variables than process "
                    f"{self._group.rank}; expected the same model in all"
                )
        plan.share([held for _, held in answers], self._group.rank)
        self._plan = plan
        return variables, plan, kept


class _Save(threading.Thread):
    """Save that a thread runs after earlier ones."""

    def __init__(self, work: Callable[[], None], before: Sequence[_Save]) -> None:
        super().__init__(name="checkpoint")
        self.error: BaseException | None = None
        self._work, self._before = work, before
        self.start()

    def run(self) -> None:
        """Run the save."""
        for save in self._before:
            save.join()
        self._before = ()
        try:
            self._work()
        except BaseException as error:  # raised by the waiting thread
            self.error = error


def finish_saves() -> None:
    """Wait for all saves of this process."""
    for thread in threading.enumerate():
        if isinstance(thread, _Save):
            thread.join()


class _CollectiveWrite:
    """Collective write of a checkpoint."""

    def __init__(
        self,
        group: comm.Group,
        target: Path,
        state: dict[str, Any],
        pieces: list[Piece],
        then: Callable[[], None],
    ) -> None:
        self._group, self._target, self._state = group, target, state
        self._pieces, self._then = pieces, then
        self._stage: Stage | None = None

    def run(self, content: Any, failed: BaseException | None) -> None:
        """Write this process's file, and wait for the files of all processes."""
        failure: BaseException | None = None
        try:
            folder = self._agree(lambda: self._begin(failed))[0]
            write = shard_files.write_pieces
            parts = self._agree(
                lambda: write(Path(folder), self._group.rank, content, self._pieces)
            )
            self._agree(lambda: self._publish(parts))
        except CommunicationError:
            self._close()
            raise
        except BaseException as error:
            failure = error
        self._close()
        self._group.barrier()  # no rank sees the files that rank 0 removes
        if failure is not None:
            raise failure

    def _close(self) -> None:
        if self._stage is not None:
            self._stage.close()

    def _begin(self, failed: BaseException | None) -> str:
        if failed is not None:
            raise failed
        if self._group.rank:
            return ""
        target = self._target
        if os.path.lexists(target):
            raise FileExistsError(f"{str(target)!r} is there already")
        # Include other owners: a process killed after the rename leaves an empty
        # folder.
        remove_stale_stages(target.parent, None)
        self._stage = Stage(target.parent, target.name)
        return str(self._stage.files)

    def _publish(self, parts: list[Any]) -> None:
        if self._stage is None:
            return
        for name, record in (each for part in parts for each in part):
            self._state["variables"][name]["boxes"].append(record)
        shard_files.publish(self._stage, self._state, self._target)
        self._then()

    def _agree(self, work: Callable[[], Any]) -> list[Any]:
        reason = f"cannot write {str(self._target)!r}"
        return run_in_all(self._group, work, UnwritableFileError, reason)[1]


def _job(group: comm.Group) -> dict[str, Any]:
    """Return the properties of a job that determine bitwise results."""
    found = distribution()
    mesh: dict[str, Any] | None = None
    if found is not None:
        shape = list(map(int, found.device_mesh.shape))
        mesh = {"shape": shape, "axis_names": list(found.device_mesh.axis_names)}
        mesh["batch_dim_name"] = found.batch_dim_name
    shards = 1 if found is None else found.shards
    return {"processes": group.size, "shards": shards, "mesh": mesh}


def _partition_of(job: dict[str, Any]) -> tuple[Any, dict[str, int]]:
    """Return the number of batch parts of a job, and the splits along other axes."""
    mesh, others = job["mesh"], {}
    # A mesh without a batch axis has stages, which add no partial sums.
    if mesh is not None and mesh["batch_dim_name"] is not None:
        sizes = dict(zip(mesh["axis_names"], mesh["shape"], strict=True))
        del sizes[mesh["batch_dim_name"]]
        others = {name: size for name, size in sizes.items() if size > 1}
    return job["shards"], others


def _changes(saved: dict[str, Any], job: dict[str, Any]) -> str:
    """Return the reasons why later steps are not bitwise reproducible."""
    before, now = _partition_of(saved), _partition_of(job)
    if before == now:
        return ""
    told = [f"shards={shards}" for shards, _ in (before, now)]
    if before[1] != now[1]:
        told = [f"shards={n} and the axes {axes}" for n, axes in (before, now)]
    return (
        f"was saved by a job with {told[0]}; this one has {told[1]}: it goes on from "
        "the same values, but adds in another order, so that what follows differs in "
        "its last bits"
    )


def _read(
    folder: Path, listed: dict[str, Any], variables: dict[str, Any]
) -> dict[str, Any]:
    """Read the local shard of each variable from a checkpoint."""
    if set(listed) != set(variables):
        name = sorted(set(listed) ^ set(variables))[0]
        where = "the model" if name in listed else "the checkpoint"
        raise ValueError(f"{where} has no variable {name}")
    arrays = {}
    for name, variable in variables.items():
        spec, entry = variable.spec, listed[name]
        try:
            box = held_box(variable)
            arrays[name] = shard_files.read_box(
                folder, entry, box, spec.shape, spec.dtype
            )
        except _CORRUPT_FILE_ERRORS as error:
            raise ValueError(f"variable {name} ({variable.path}): {error}") from error
    return arrays
