"""CheckpointManager: callback for distributed checkpoints with retention."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from toolkit import comm, settings
from toolkit.arguments import is_int
from toolkit.console.frames import warn
from toolkit.distribution import shard_files
from toolkit.distribution.checkpoints import Checkpoint, wait_for_saves
from toolkit.distribution.collective_work import run_on_all_ranks
from toolkit.distribution.elastic import recovery
from toolkit.errors import (
    ArgumentError,
    ModelFileError,
    NotBuiltError,
    UnwritableFileError,
)
from toolkit.files.staging import remove_stale_stages
from toolkit.models.callbacks.callback import Callback, Logs
from toolkit.models.callbacks.regular_saves import RegularSaves

_NAME = re.compile(r"checkpoint-(\d{6,12})")


class CheckpointManager(RegularSaves):
    """Callback that saves training state from all processes and restores the newest.

    The saved state, and the exactness of a resumed run, are the same as for
    `BackupAndRestore`. The results are bitwise equal on any number of processes if the
    distribution has the same `shards`. It saves after the other callbacks of the step
    or epoch. `fit` prints from which checkpoint and epoch it resumes. Each process
    writes its shard, as with `Checkpoint`, and needs this callback.

    Args:
        directory: a folder for this run only, which all processes can access.
        save_freq: "epoch", or a number of batches.
        max_to_keep: the number of checkpoints to keep. Older ones are removed after a
            newer one is on disk. None keeps all.
        wait: whether training waits until a checkpoint is on disk. If not, it waits
            only for the copy of the state, and at its end for the last checkpoints. A
            killed process loses the checkpoints that are not on disk yet.
        restore: whether `fit` resumes from the newest complete checkpoint. A corrupt
            one is skipped with a warning.

    Example:
        >>> from toolkit.distribution import CheckpointManager
        >>> manager = CheckpointManager("checkpoints", save_freq=100)
        >>> manager.latest() is None
        True
    """

    _never_stops = _saves_callbacks = True

    def __init__(
        self,
        directory: str | os.PathLike[str],
        save_freq: str | int = "epoch",
        max_to_keep: int | None = 3,
        wait: bool = False,
        restore: bool = True,
    ) -> None:
        super().__init__()
        if save_freq != "epoch" and not (is_int(save_freq) and int(save_freq) > 0):
            raise ArgumentError(
                "CheckpointManager: expected save_freq to be 'epoch' or a number of "
                f"batches; received {save_freq!r}"
            )
        if max_to_keep is not None and not (is_int(max_to_keep) and max_to_keep > 0):
            raise ArgumentError(
                "CheckpointManager: expected max_to_keep of at least 1, or None; "
                f"received {max_to_keep!r}"
            )
        self.directory: str = os.fspath(directory)
        self.save_freq = save_freq
        self.max_to_keep = max_to_keep
        self.wait, self.restore = wait, restore
        self._folder = Path(directory)
        self._cached_checkpoint: tuple[Any, comm.Group, Checkpoint] | None = None
        self._number = 0  # number of the last checkpoint
        self._first_batch = 0  # first batch of the resumed epoch

    def latest(self) -> Path | None:
        """Return the newest complete checkpoint, or None."""
        paths = sorted(self._list_checkpoints().items(), reverse=True)
        return next((path for _, path in paths if shard_files.is_complete(path)), None)

    # --- restoring --------------------------------------------------------------------

    def on_train_begin(self, logs: Logs = None) -> None:
        if not self.model.built:
            raise NotBuiltError(
                "CheckpointManager: expected a model that is built before `fit`"
            )
        wait_for_saves()  # from a failed run
        recovery.run(self._begin)

    def _begin(self) -> None:
        reason = f"cannot use {self.directory!r}"
        # All ranks use the list that rank 0 sees.
        numbers = run_on_all_ranks(
            comm.world(), self._prepare, UnwritableFileError, reason
        )[1]
        self._number, self._waiting = numbers[0][0], 0
        if self.restore:
            self._restore_newest(self._checkpoint(), numbers[0][1:])

    def _prepare(self) -> list[int]:
        """Create the folder and remove leftover files.

        Returns:
            The last number, and the numbers of the checkpoints, newest first.
        """
        if comm.world().rank:
            return []
        self._folder.mkdir(parents=True, exist_ok=True)
        self._remove_old()
        remove_stale_stages(self._folder, None)
        checkpoints = self._list_checkpoints()
        last = max(checkpoints, default=0)
        return [
            last,
            *sorted(
                filter(lambda n: _has_index(checkpoints[n]), checkpoints), reverse=True
            ),
        ]

    def _restore_newest(self, checkpoint: Checkpoint, numbers: list[int]) -> None:
        """Restore the state of the first of these checkpoints that can be read."""
        first_error: ModelFileError | None = None
        for number in numbers:
            try:
                position = checkpoint.restore(self._path(number))
                if not isinstance(position, dict) or not {"epoch", "run"} <= {
                    *position
                }:
                    raise ModelFileError(
                        f"{str(self._path(number))!r}: expected the position of a "
                        "run of `fit` from a CheckpointManager"
                    )
            except ModelFileError as error:
                first_error = first_error or error
                if comm.world().rank == 0:
                    warn(f"CheckpointManager: a checkpoint is skipped: {error}")
                continue
            self._epoch = position["epoch"]
            self._first_batch = position.get("batch", 0)
            self.model._progress.restore(position["run"], self._epoch)
            self._report_resumption(self._path(number), self._first_batch)
            return
        if first_error is not None:
            raise first_error

    # --- saving -----------------------------------------------------------------------

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        super().on_epoch_begin(epoch, logs)
        self._last_batch, self._first_batch = self._first_batch - 1, 0

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._epoch, self._last_batch = epoch + 1, -1
        super().on_epoch_end(epoch, logs)

    def on_train_end(self, logs: Logs = None) -> None:
        recovery.run(lambda: self._checkpoint().wait())

    def _save(self, batch: int | None, logs: Logs) -> None:
        position = {"epoch": self._epoch, "batch": self._last_batch + 1}
        position["run"] = self.model._progress.state()

        def save() -> None:
            self._number += 1  # again, if a process was lost before all had the result
            path = self._path(self._number)
            self._checkpoint()._save(path, position, self.wait, self._remove_old)

        recovery.run(save)

    def _checkpoint(self) -> Checkpoint:
        """Return the Checkpoint of this model for the current processes of the job."""
        world = comm.world()
        cached = self._cached_checkpoint
        if cached is None or cached[0] is not self.model or cached[1] is not world:
            cached = self._cached_checkpoint = self.model, world, Checkpoint(self.model)
        return cached[2]

    # --- the folder -------------------------------------------------------------------

    def _path(self, number: int) -> Path:
        return self._folder / f"checkpoint-{number:06}"

    def _list_checkpoints(self) -> dict[int, Path]:
        """Return the checkpoints in the folder, including incomplete ones."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return {}
        matches = filter(None, map(_NAME.fullmatch, names))
        return {int(match[1]): self._folder / match[0] for match in matches}

    def _remove_old(self) -> None:
        """Remove old checkpoints, and files of killed processes."""
        checkpoints = self._list_checkpoints()
        retained_numbers = sorted(
            n for n, path in checkpoints.items() if _has_index(path)
        )
        if self.max_to_keep is not None:
            retained_numbers = retained_numbers[-self.max_to_keep :]
        for number in set(checkpoints).difference(retained_numbers):
            shard_files.remove(checkpoints[number])


def _has_index(path: Path) -> bool:
    """Return whether a folder is a checkpoint, not only named like one."""
    return (path / shard_files.STATE).exists()


def _restart_callbacks() -> list[Callback]:
    """Return the callbacks that let `fit` resume after a restart of the job."""
    folder = settings.environment("SNAPSHOTS")
    if folder is None:
        return []
    return [CheckpointManager(Path(folder, f"fit-{recovery.runs + 1}"), max_to_keep=1)]


recovery.callbacks = _restart_callbacks
