"""Sharded checkpoints: each process of a job writes its shard of a model's state.

A checkpoint is a folder: `state.json` has the location of each variable's bytes, and
each process writes one file of raw bytes. No data is gathered. The folder has a
temporary name until one rename completes it, so that a checkpoint is complete or
absent.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toolkit import comm
from toolkit.console.frames import warn, warn_once
from toolkit.core.placement import set_local_shard
from toolkit.core.variable import Variable
from toolkit.distribution import shard_files
from toolkit.distribution.boxes import full_box
from toolkit.distribution.collective_work import run_on_all_ranks
from toolkit.distribution.shard_files import StoredBox
from toolkit.distribution.snapshots import WritePlan, local_box, variables_of
from toolkit.distribution.strategies import distribution
from toolkit.errors import (
    ArgumentError,
    CommunicationError,
    ModelFileError,
    NotBuiltError,
    RankLostError,
    UnwritableFileError,
)
from toolkit.files.staging import Stage, describe_write_error, remove_stale_stages
from toolkit.optimizers.accumulators import Accumulator
from toolkit.random.seeds import global_state, set_global_state
from toolkit.type_aliases import Array

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

    The state consists of the weights, optimizer, metrics and random generators: those
    of the layers, and the global one of `toolkit.random`. Each process writes the data
    that it holds, or a part if several processes hold it. Any number of processes can
    restore it, with any layout.

    Args:
        model: a model that has its weights, for example by an `Input` or `build`.
        group: the group of the processes, by default all of the job. The thread that
            uses the group must also call `save` and `restore`.
        optimizer: the optimizer of a custom training loop, by default the optimizer
            of `compile`. It is built for the trainable variables if it is not built.

    Example:
        >>> import toolkit as tk
        >>> from toolkit.distribution import Checkpoint
        >>> model = tk.Sequential([tk.Input((4,)), tk.layers.Dense(2)])
        >>> checkpoint = Checkpoint(model, optimizer=tk.optimizers.Adam())
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/step-1"
        >>> checkpoint.save(path, position={"step": 1})
        >>> checkpoint.restore(path)
        {'step': 1}
    """

    @staticmethod
    def latest(folder: str | os.PathLike[str]) -> Path | None:
        """Return the checkpoint in a folder that was completed last, or None.

        A process that ends during a save leaves a folder that is no checkpoint.

        Args:
            folder: the folder that contains the folders of checkpoints.

        Example:
            >>> import tempfile
            >>> from toolkit.distribution import Checkpoint
            >>> Checkpoint.latest(tempfile.mkdtemp()) is None
            True
        """
        return shard_files.latest(Path(folder))

    def __init__(
        self,
        model: Any,
        group: comm.Group | None = None,
        optimizer: Any = None,
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._group = comm.world() if group is None else group
        self._background = self._group.duplicate()  # for the writer threads
        self._saves: list[_SaveThread] = []
        self._plan: WritePlan | None = None
        self._free_buffers: list[Any] = []

    def save(
        self, path: str | os.PathLike[str], position: Any = None, wait: bool = True
    ) -> None:
        """Write a new checkpoint; all processes call this.

        Args:
            path: the folder to create, which must not exist.
            position: a JSON value to store, such as the epoch. Numbers can be NumPy's.
            wait: whether to return only when the checkpoint is on disk. If not, a
                thread writes a copy of the state. Two saves can be in progress; a third
                waits for the first. A failure is raised by the second `save` after it,
                by `wait` or by `restore`; without such a call, the process prints it
                at its end. Later saves reuse the memory of the copies.

        Raises:
            UnwritableFileError: any of the processes cannot write it.
            ArgumentError: the position is not JSON.
            NotBuiltError: the model has no weights yet.
        """
        self._save(Path(path), position, wait, lambda: None)

    def _save(
        self, target: Path, position: Any, wait: bool, on_saved: Callable[[], None]
    ) -> None:
        """Save, and call `on_saved` on rank 0 after all data is on disk."""
        while len(self._saves) >= (1 if wait else _MAX_SAVES):
            self._wait_for_oldest()
        variables, plan, position = self._plan_write(target, position)
        state = {"version": shard_files.VERSION, **_describe_job(self._group)}
        state["position"], state["global_seed"] = position, global_state()
        state["variables"] = {
            name: {"path": variable.path, **plan.specs[name], "boxes": []}
            for name, variable in variables.items()
        }
        buffer, copy_error = None, None
        try:
            buffer = self._take_buffer(plan.nbytes)
            plan.copy(variables, buffer)
        except BaseException as error:  # all ranks get and raise the error
            copy_error = error
        collective_write = _CollectiveWrite(
            self._background, target, state, plan.stored_boxes, on_saved
        )

        def work() -> None:
            collective_write.run(
                None if buffer is None else buffer[: plan.nbytes], copy_error
            )
            if buffer is not None and not wait:
                self._free_buffers.append(buffer)

        self._saves.append(_SaveThread(work, self._saves[-1:]))
        if wait or not isinstance(copy_error, Exception | None):  # an interrupt
            self.wait()

    def wait(self) -> None:
        """Wait until all saves are on disk; raise an error if one failed."""
        while self._saves:
            self._wait_for_oldest()

    def restore(self, path: str | os.PathLike[str]) -> Any:
        """Restore the model from a checkpoint, or change nothing on an error.

        All processes call this. Each reads the data that it holds.

        Args:
            path: the folder of the checkpoint.

        Returns:
            The stored position.

        Raises:
            ModelFileError: the checkpoint is corrupt, or does not match the model.
            NotBuiltError: the model has no weights yet.
        """
        self.wait()
        folder = Path(path)

        def read() -> Any:
            variables = self._variables()
            state = shard_files.read_state(folder)
            try:
                changes = _describe_changes(state, _describe_job(self._group))
                arrays = _read_shards(folder, state["variables"], variables)
            except _CORRUPT_FILE_ERRORS as error:
                raise ModelFileError(f"{str(folder)!r}: {error}") from error
            return variables, state, changes, arrays

        reason = f"cannot restore {str(folder)!r}"
        (variables, state, changes, arrays), digests = run_on_all_ranks(
            self._group,
            read,
            ModelFileError,
            reason,
            lambda result: result[1]["sha256"],
        )
        if len(set(digests)) > 1:
            raise ModelFileError(
                f"{reason}: the processes read different checkpoints; expected a "
                "folder that all processes share"
            )
        for name, variable in variables.items():
            set_local_shard(variable, arrays[name])
        if state.get("global_seed") is not None:
            set_global_state(state["global_seed"])
        if changes and self._group.rank == 0:
            warn(f"Checkpoint: {str(folder)!r} {changes}")
        return state["position"]

    def _variables(self) -> dict[str, Any]:
        """Return the variables of the state by name."""
        if not self._model.built:
            raise NotBuiltError(
                f"Checkpoint: the model {self._model.name!r} has no weights yet; give "
                "it an Input, or call its `build` with the shape of a batch"
            )
        variables, optimizer = variables_of(self._model, self._optimizer)
        has_lost_state = optimizer is None and bool(self._model.trainable_variables)
        if has_lost_state and self._group.rank == 0:
            warn_once(
                self,
                f"Checkpoint: the model {self._model.name!r} is not compiled, so the "
                "checkpoint has no optimizer state; for a custom training loop, use "
                "Checkpoint(model, optimizer=optimizer)",
            )
        return variables

    def _wait_for_oldest(self) -> None:
        """Wait for the oldest save in progress."""
        save = self._saves[0]
        save.join()
        del self._saves[0]
        save.raise_error()

    def _take_buffer(self, nbytes: int) -> Any:
        """Return a free buffer, reused if it is large enough."""
        buffer = self._free_buffers.pop() if self._free_buffers else None
        if buffer is None or buffer.size < nbytes:
            buffer = np.empty(nbytes, np.uint8)
        return buffer

    def _plan_write(
        self, target: Path, position: Any
    ) -> tuple[dict[str, Any], WritePlan, Any]:
        """Return the variables, this process's write plan, and the position in JSON."""

        def plan_local() -> Any:
            variables = self._variables()
            return variables, WritePlan.of(variables), _to_json(position)

        previous, reason = self._plan, f"cannot write {str(target)!r}"
        (variables, plan, json_position), are_unchanged = run_on_all_ranks(
            self._group,
            plan_local,
            UnwritableFileError,
            reason,
            lambda result: previous is not None and previous.has_same_boxes(result[1]),
        )
        if previous is not None and all(are_unchanged):
            return variables, previous, json_position
        contents = comm.exchange(self._group, [plan.specs, plan.local_boxes])
        for rank, (specs, _) in enumerate(contents):
            if specs != plan.specs:
                raise ArgumentError(
                    f"{reason}: process {rank} has different variables from process "
                    f"{self._group.rank}; expected the same model in all processes"
                )
        plan.select_writes(
            [local_boxes for _, local_boxes in contents], self._group.rank
        )
        self._plan = plan
        return variables, plan, json_position


class _SaveThread(threading.Thread):
    """Save that a thread runs after earlier ones."""

    def __init__(
        self, work: Callable[[], None], previous: Sequence[_SaveThread]
    ) -> None:
        super().__init__(name="checkpoint")
        self._error: BaseException | None = None
        self._work, self._previous = work, previous
        self.start()

    def run(self) -> None:
        """Run the save."""
        for save in self._previous:
            save.join()
        self._previous = ()
        try:
            self._work()
        except BaseException as error:
            self._error = error
            atexit.register(self._report_error)

    def raise_error(self) -> None:
        """Raise the error of the save that has ended, if it failed."""
        if self._error is not None:
            atexit.unregister(self._report_error)
            raise self._error

    def _report_error(self) -> None:
        """Print the error at the end of the process: no call has raised it.

        After the loss of a rank, `fit` has continued from another checkpoint.
        """
        if not isinstance(self._error, RankLostError):
            print("Checkpoint: a save has failed:", file=sys.stderr)
            traceback.print_exception(self._error)


def wait_for_saves() -> None:
    """Wait for all saves of this process."""
    for thread in threading.enumerate():
        if isinstance(thread, _SaveThread):
            thread.join()


class _CollectiveWrite:
    """Collective write of a checkpoint."""

    def __init__(
        self,
        group: comm.Group,
        target: Path,
        state: dict[str, Any],
        stored_boxes: list[StoredBox],
        on_saved: Callable[[], None],
    ) -> None:
        self._group, self._target, self._state = group, target, state
        self._stored_boxes, self._on_saved = stored_boxes, on_saved
        self._stage: Stage | None = None

    def run(self, content: Any, copy_error: BaseException | None) -> None:
        """Write this process's file, and wait for the files of all processes."""
        failure: BaseException | None = None
        try:
            folder = self._run_on_all_ranks(lambda: self._create_folder(copy_error))[0]
            write = shard_files.write_boxes
            entries_by_rank = self._run_on_all_ranks(
                lambda: write(
                    Path(folder), self._group.rank, content, self._stored_boxes
                )
            )
            self._run_on_all_ranks(lambda: self._publish(entries_by_rank))
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

    def _create_folder(self, copy_error: BaseException | None) -> str:
        if copy_error is not None:
            raise copy_error
        if self._group.rank:
            return ""
        target = self._target
        if os.path.lexists(target):
            raise FileExistsError(f"{str(target)!r} exists already")
        # Include other owners: a process killed after the rename leaves an empty
        # folder.
        remove_stale_stages(target.parent, None)
        try:
            self._stage = Stage(target.parent, target.name)
        except OSError as error:
            reason = describe_write_error(error, target.parent)
            raise UnwritableFileError(reason) from error
        return str(self._stage.files)

    def _publish(self, entries_by_rank: list[Any]) -> None:
        if self._stage is None:
            return
        for name, record in (entry for entries in entries_by_rank for entry in entries):
            self._state["variables"][name]["boxes"].append(record)
        shard_files.publish(self._stage, self._state, self._target)
        self._on_saved()

    def _run_on_all_ranks(self, work: Callable[[], Any]) -> list[Any]:
        def named_work() -> object:
            try:
                return work()
            except OSError as error:  # its path is of a temporary file
                text = describe_write_error(error, self._target.parent)
                raise OSError(text) from error

        reason = f"cannot write {str(self._target)!r}"
        return run_on_all_ranks(self._group, named_work, UnwritableFileError, reason)[1]


def _to_json(position: object) -> Any:
    """Return a position as JSON data, which all processes store."""

    def convert_number(value: object) -> object:
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError(f"{value!r} of type {type(value).__name__}")

    try:
        return json.loads(json.dumps(position, default=convert_number))
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(
            "Checkpoint.save: expected a position of dicts, lists, texts, numbers and "
            f"None; received {error}"
        ) from None


def _describe_job(group: comm.Group) -> dict[str, Any]:
    """Return the properties of a job that determine bitwise results."""
    strategy = distribution()
    mesh: dict[str, Any] | None = None
    if strategy is not None:
        shape = list(map(int, strategy.device_mesh.shape))
        mesh = {"shape": shape, "axis_names": list(strategy.device_mesh.axis_names)}
        mesh["batch_dim_name"] = strategy.batch_dim_name
        mesh["axis_shards"] = dict(strategy.axis_shards)
    shards = 1 if strategy is None else strategy.shards
    return {"processes": group.size, "shards": shards, "mesh": mesh}


def _partition_of(job: dict[str, Any]) -> tuple[Any, dict[str, int]]:
    """Return the number of batch parts of a job, and the splits along other axes."""
    mesh, other_axes = job["mesh"], {}
    # A mesh without a batch axis has stages, which add no partial sums.
    if mesh is not None and mesh["batch_dim_name"] is not None:
        sizes = dict(zip(mesh["axis_names"], mesh["shape"], strict=True))
        del sizes[mesh["batch_dim_name"]]
        sizes |= mesh.get("axis_shards", {})
        other_axes = {name: size for name, size in sizes.items() if size > 1}
    return job["shards"], other_axes


def _describe_changes(saved_job: dict[str, Any], job: dict[str, Any]) -> str:
    """Return the reasons why later steps are not bitwise reproducible."""
    saved_partition, partition = _partition_of(saved_job), _partition_of(job)
    if saved_partition == partition:
        return ""
    descriptions = [f"shards={shards}" for shards, _ in (saved_partition, partition)]
    if saved_partition[1] != partition[1]:
        descriptions = [
            f"shards={n} and the axes {axes}"
            for n, axes in (saved_partition, partition)
        ]
    return (
        f"was saved by a job with {descriptions[0]}; this one has {descriptions[1]}: "
        "training continues with the same values, but another order of sums changes "
        "the last bits of later results"
    )


def _read_shards(
    folder: Path, entries: dict[str, Any], variables: dict[str, Any]
) -> dict[str, Any]:
    """Read the local shard of each variable from a checkpoint."""
    if set(entries) != set(variables):
        name = sorted(set(entries) ^ set(variables))[0]
        owner = "the model" if name in entries else "the checkpoint"
        raise ValueError(f"{owner} has no variable {name}")
    arrays = {}
    for name, variable in variables.items():
        try:
            arrays[name] = _read_shard(folder, entries[name], variable)
        except _CORRUPT_FILE_ERRORS as error:
            raise ValueError(f"variable {name} ({variable.path}): {error}") from error
    return arrays


def _read_shard(folder: Path, entry: dict[str, Any], variable: Variable) -> Array:
    """Read the local shard of a variable."""
    spec, shape = variable.spec, tuple(entry["shape"])
    is_other = shape != spec.shape
    if is_other and isinstance(variable, Accumulator) and variable.accepts(shape):
        box = full_box(shape)
        sums = shard_files.read_box(folder, entry, box, shape, spec.dtype)
        return variable.local_sums(sums)
    box = local_box(variable)
    return shard_files.read_box(folder, entry, box, spec.shape, spec.dtype)
