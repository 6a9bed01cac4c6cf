"""Checkpoints in parts: each process of a job writes its share of a model's state.

A checkpoint is a folder: `state.json` says where the bytes of each variable are, and
each process writes one file of raw bytes, of what it holds. Nothing is gathered. It is
written aside and gets its name by one rename, so that it is whole or not there.
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
from toolkit.core.placement import hold
from toolkit.distribution import part_files
from toolkit.distribution.agreement import together
from toolkit.distribution.part_files import Piece
from toolkit.distribution.snapshots import Plan, held_box, variables_of
from toolkit.distribution.strategies import distribution
from toolkit.errors import (
    ArgumentError,
    CommunicationError,
    ModelFileError,
    UnwritableFileError,
)
from toolkit.files.staging import Stage, sweep

# How many saves may be under way, each with memory of its own.
_SAVES = 2
# What files that are not as they should be lead to.
_DAMAGES = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError)


class Checkpoint:
    """Saves a model's state in parts, one for each process of the job.

    The state is that of the weights, the random generators, the optimizer and the
    metrics. Each process writes what it holds; of what several hold, a part. Any
    number of processes can restore it, whatever each of them holds.

    Args:
        model: a built model.
        group: the processes that save together; those of the job if None. The thread
            that uses it otherwise calls `save` and `restore`, too.

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
        self._background = self._group.duplicate()  # for the threads that write
        self._saves: list[_Save] = []
        self._plan: Plan | None = None
        self._memory: list[Any] = []  # buffers that no save uses

    def save(
        self, path: str | os.PathLike[str], position: Any = None, wait: bool = True
    ) -> None:
        """Write a new checkpoint; all processes call this.

        Args:
            path: the folder to make, which must not be there yet.
            position: a value of JSON to keep with it, such as the epoch.
            wait: whether to return when it is on disk. If not, the state is copied and
                written by a thread: two may be on their way, a third waits for the
                first. What fails is raised by the next but one `save`, or by `wait` or
                `restore`. The memory of the copies is kept for the next saves.

        Raises:
            UnwritableFileError: any of the processes cannot write it.
        """
        self._save(Path(path), position, wait, lambda: None)

    def _save(
        self, target: Path, position: Any, wait: bool, then: Callable[[], None]
    ) -> None:
        """Save, and have the first process call `then` once all is on disk."""
        while len(self._saves) >= (1 if wait else _SAVES):
            self._finish()
        variables, plan, position = self._planned(target, position)
        state = {"version": part_files.VERSION, **_job(self._group)}
        state["position"] = position
        state["variables"] = {
            name: {"path": variable.path, **plan.described[name], "boxes": []}
            for name, variable in variables.items()
        }
        memory, failed = None, None
        try:
            memory = self._take(plan.nbytes)
            plan.copy(variables, memory)
        except BaseException as error:  # the others are told, and raise, too
            failed = error
        writing = _Writing(self._background, target, state, plan.pieces, then)

        def work() -> None:
            writing.run(None if memory is None else memory[: plan.nbytes], failed)
            if memory is not None and not wait:
                self._memory.append(memory)

        self._saves.append(_Save(work, self._saves[-1:]))
        if wait or not isinstance(failed, Exception | None):  # an interrupt
            self.wait()

    def wait(self) -> None:
        """Wait until all that was saved is on disk; raises if a save failed."""
        while self._saves:
            self._finish()

    def restore(self, path: str | os.PathLike[str]) -> Any:
        """Give the model the state of a checkpoint, or change nothing.

        All processes call this; each reads what it holds.

        Returns:
            The position that was saved with it.

        Raises:
            ModelFileError: it is damaged, or does not fit the model.
        """
        self.wait()
        folder = Path(path)

        def read() -> Any:
            variables, state = variables_of(self._model), part_files.read_state(folder)
            try:
                changes = _changes(state, _job(self._group))
                arrays = _read(folder, state["variables"], variables)
            except _DAMAGES as error:
                raise ModelFileError(f"{str(folder)!r}: {error}") from error
            return variables, state, changes, arrays

        reason = f"cannot restore {str(folder)!r}"
        (variables, state, changes, arrays), digests = together(
            self._group, read, ModelFileError, reason, lambda found: found[1]["sha256"]
        )
        if len(set(digests)) > 1:
            raise ModelFileError(
                f"{reason}: the processes find different checkpoints there; expected a "
                "folder that all of them see"
            )
        for name, variable in variables.items():
            hold(variable, arrays[name])
        if changes and self._group.rank == 0:
            warn(f"Checkpoint: {str(folder)!r} {changes}")
        return state["position"]

    def _finish(self) -> None:
        """Wait for the oldest save that is under way."""
        save = self._saves[0]
        save.join()
        del self._saves[0]
        if save.error is not None:
            raise save.error

    def _take(self, nbytes: int) -> Any:
        """Memory that no save uses, the same again if it is large enough."""
        found = self._memory.pop() if self._memory else None
        if found is None or found.size < nbytes:
            found = np.empty(nbytes, np.uint8)
        return found

    def _planned(self, target: Path, position: Any) -> tuple[dict[str, Any], Plan, Any]:
        """The variables, what this process writes of them, and the position in JSON."""

        def look() -> Any:
            variables = variables_of(self._model)
            return variables, Plan.of(variables), json.loads(json.dumps(position))

        before, reason = self._plan, f"cannot write {str(target)!r}"
        (variables, plan, kept), known = together(
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
    """A save that a thread does, once those before it are done."""

    def __init__(self, work: Callable[[], None], before: Sequence[_Save]) -> None:
        super().__init__(name="checkpoint")
        self.error: BaseException | None = None
        self._work, self._before = work, before
        self.start()

    def run(self) -> None:
        """Do it."""
        for save in self._before:
            save.join()
        self._before = ()
        try:
            self._work()
        except BaseException as error:  # raised by whoever waits for it
            self.error = error


def finish_saves() -> None:
    """Wait for all saves of this process, whoever began them."""
    for thread in threading.enumerate():
        if isinstance(thread, _Save):
            thread.join()


class _Writing:
    """How all processes write a checkpoint, and what each of them does for it."""

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
        """Write this process's file, and wait for those of the others."""
        failure: BaseException | None = None
        try:
            folder = self._agree(lambda: self._begin(failed))[0]
            write = part_files.write_pieces
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
        self._group.barrier()  # nobody sees what the first process removes
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
        # Also those of others: whoever is killed once it is named leaves an empty one.
        sweep(target.parent, None)
        self._stage = Stage(target.parent, target.name)
        return str(self._stage.files)

    def _publish(self, parts: list[Any]) -> None:
        if self._stage is None:
            return
        for name, record in (each for part in parts for each in part):
            self._state["variables"][name]["boxes"].append(record)
        part_files.publish(self._stage, self._state, self._target)
        self._then()

    def _agree(self, work: Callable[[], Any]) -> list[Any]:
        reason = f"cannot write {str(self._target)!r}"
        return together(self._group, work, UnwritableFileError, reason)[1]


def _job(group: comm.Group) -> dict[str, Any]:
    """What a job must be like to compute the same bits again."""
    found = distribution()
    mesh: dict[str, Any] | None = None
    if found is not None:
        shape = list(map(int, found.device_mesh.shape))
        mesh = {"shape": shape, "axis_names": list(found.device_mesh.axis_names)}
        mesh["batch_dim_name"] = found.batch_dim_name
    shards = 1 if found is None else found.shards
    return {"processes": group.size, "shards": shards, "mesh": mesh}


def _cuts(job: dict[str, Any]) -> tuple[Any, dict[str, int]]:
    """Into how many parts a job cuts batches, and along which axes what else."""
    mesh, others = job["mesh"], {}
    # A mesh without an axis of batches is one of stages, along which nothing is added.
    if mesh is not None and mesh["batch_dim_name"] is not None:
        sizes = dict(zip(mesh["axis_names"], mesh["shape"], strict=True))
        del sizes[mesh["batch_dim_name"]]
        others = {name: size for name, size in sizes.items() if size > 1}
    return job["shards"], others


def _changes(saved: dict[str, Any], job: dict[str, Any]) -> str:
    """Why steps after a checkpoint will not have the bits of those before it."""
    before, now = _cuts(saved), _cuts(job)
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
    """What this process holds of each variable, from a checkpoint."""
    if set(listed) != set(variables):
        name = sorted(set(listed) ^ set(variables))[0]
        where = "the model" if name in listed else "the checkpoint"
        raise ValueError(f"{where} has no variable {name}")
    arrays = {}
    for name, variable in variables.items():
        spec, entry = variable.spec, listed[name]
        try:
            box = held_box(variable)
            arrays[name] = part_files.read_box(
                folder, entry, box, spec.shape, spec.dtype
            )
        except _DAMAGES as error:
            raise ValueError(f"variable {name} ({variable.path}): {error}") from error
    return arrays
