"""CheckpointManager: checkpoints of `fit` by all processes; the newest ones stay."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from toolkit import comm, settings
from toolkit.arguments import is_int
from toolkit.console.frames import warn
from toolkit.distribution import part_files
from toolkit.distribution.agreement import together
from toolkit.distribution.checkpoints import Checkpoint, finish_saves
from toolkit.distribution.elastic import recovery
from toolkit.errors import (
    ArgumentError,
    ModelFileError,
    NotBuiltError,
    UnwritableFileError,
)
from toolkit.files.staging import sweep
from toolkit.models.callbacks.callback import Callback, Logs
from toolkit.models.callbacks.regular_saves import RegularSaves

_NAME = re.compile(r"checkpoint-(\d{6,12})")


class CheckpointManager(RegularSaves):
    """Saves the state of training from all processes, and goes on from the newest.

    What is saved, and how exactly training goes on, is as with `BackupAndRestore`: to
    the same bits, on any number of processes if the distribution has the same `shards`.
    Each process writes its share, as with `Checkpoint`, and needs this callback.

    Args:
        directory: a folder for this run alone, which all processes see.
        save_freq: "epoch", or a number of batches.
        max_to_keep: how many checkpoints stay; older ones are removed once a newer one
            is on disk. None for all.
        wait: whether training waits until a checkpoint is on disk. If not, it waits for
            the copy of the state, and at its end for the last ones.
        restore: whether `fit` begins where the newest whole checkpoint was made. One
            that is damaged is left out, with a warning.

    Example:
        >>> from toolkit.distribution import CheckpointManager
        >>> manager = CheckpointManager("checkpoints", save_freq=100)
        >>> manager.latest() is None
        True
    """

    _never_stops = True

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
        self._made: tuple[Any, comm.Group, Checkpoint] | None = None
        self._number = 0  # of the last checkpoint
        self._first_batch = 0  # of the next epoch, which goes on with it

    def latest(self) -> Path | None:
        """The newest checkpoint that has all of its files; None if there is none."""
        found = sorted(self._found().items(), reverse=True)
        return next((path for _, path in found if part_files.is_whole(path)), None)

    # --- restoring --------------------------------------------------------------------

    def on_train_begin(self, logs: Logs = None) -> None:
        if not self.model.built:
            raise NotBuiltError(
                "CheckpointManager: expected a model that is built before `fit`"
            )
        finish_saves()  # of a run that has failed
        recovery.run(self._begin)

    def _begin(self) -> None:
        reason = f"cannot use {self.directory!r}"
        # All take what the first one sees.
        numbers = together(comm.world(), self._prepare, UnwritableFileError, reason)[1]
        self._number, self._waiting = numbers[0][0], 0
        if self.restore:
            self._take_up(self._checkpoint(), numbers[0][1:])

    def _prepare(self) -> list[int]:
        """Make the folder and remove what was left there.

        Returns:
            The last number, and those of checkpoints, from the newest one on.
        """
        if comm.world().rank:
            return []
        self._folder.mkdir(parents=True, exist_ok=True)
        self._clean()
        sweep(self._folder, None)
        found = self._found()
        last = max(found, default=0)
        return [
            last,
            *sorted(filter(lambda n: _has_list(found[n]), found), reverse=True),
        ]

    def _take_up(self, checkpoint: Checkpoint, numbers: list[int]) -> None:
        """Take the state of the first of these that can be read."""
        failed: ModelFileError | None = None
        for number in numbers:
            try:
                position = checkpoint.restore(self._path(number))
                if not isinstance(position, dict) or not {"epoch", "run"} <= {
                    *position
                }:
                    raise ModelFileError(
                        f"{str(self._path(number))!r}: expected the position of a run "
                        "of `fit`, as a CheckpointManager keeps it"
                    )
            except ModelFileError as error:
                failed = failed or error
                if comm.world().rank == 0:
                    warn(f"CheckpointManager: a checkpoint is left out: {error}")
                continue
            self._epoch = position["epoch"]
            self._first_batch = position.get("batch", 0)
            self.model._progress.restore(position["run"], self._epoch)
            return
        if failed is not None:
            raise failed

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
            self._number += 1  # again, if a process was lost before all knew of it
            path = self._path(self._number)
            self._checkpoint()._save(path, position, self.wait, self._clean)

        recovery.run(save)

    def _checkpoint(self) -> Checkpoint:
        """What saves this model from the processes that the job has now."""
        world = comm.world()
        made = self._made
        if made is None or made[0] is not self.model or made[1] is not world:
            made = self._made = self.model, world, Checkpoint(self.model)
        return made[2]

    # --- the folder -------------------------------------------------------------------

    def _path(self, number: int) -> Path:
        return self._folder / f"checkpoint-{number:06}"

    def _found(self) -> dict[int, Path]:
        """The checkpoints that are there, or what is left of them."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return {}
        matches = filter(None, map(_NAME.fullmatch, names))
        return {int(match[1]): self._folder / match[0] for match in matches}

    def _clean(self) -> None:
        """Remove old checkpoints, and what processes that were killed have left."""
        found = self._found()
        kept = sorted(n for n, path in found.items() if _has_list(path))
        if self.max_to_keep is not None:
            kept = kept[-self.max_to_keep :]
        for number in set(found).difference(kept):
            part_files.remove(found[number])


def _has_list(path: Path) -> bool:
    """Whether a folder is a checkpoint: others have its name only."""
    return (path / part_files.STATE).exists()


def _for_restarts() -> list[Callback]:
    """What lets the next `fit` go on where the launcher has to start a job again."""
    folder = settings.environment("SNAPSHOTS")
    if folder is None:
        return []
    return [CheckpointManager(Path(folder, f"fit-{recovery.runs + 1}"), max_to_keep=1)]


recovery.callbacks = _for_restarts
