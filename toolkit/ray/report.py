"""ReportCheckpointCallback: metrics and checkpoints for Ray Train."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from toolkit.arguments import check_arguments, is_int
from toolkit.compiler import distribution_context
from toolkit.errors import ArgumentError, MissingKeyError, NotBuiltError
from toolkit.models.callbacks.backup import BackupAndRestore
from toolkit.models.callbacks.callback import Logs
from toolkit.ray.package import import_ray_train


class ReportCheckpointCallback(BackupAndRestore):
    """Callback that reports metrics and checkpoints to Ray Train, and resumes.

    All workers of a `toolkit.ray.Trainer` need it, and a model that is built before
    `fit`. A checkpoint has the complete state
    of `fit`, as a backup of `BackupAndRestore`: a run that continues gets the same bits
    as an uninterrupted run with the same number of workers. Rank 0 writes it to a
    temporary folder, and Ray copies it to the storage of the run. If Ray starts the
    workers again after a failure, `fit` resumes from the last checkpoint that Ray has
    registered, which takes Ray about a second.

    Ray gets the metrics of each epoch, and with a number as `save_freq` also of each
    checkpoint.

    Args:
        save_freq: "epoch", or a number of batches between checkpoints.
        metrics: the names of the metrics to report. None: all.

    Example:
        >>> import toolkit
        >>> callback = toolkit.ray.ReportCheckpointCallback(metrics=["loss"])
    """

    @check_arguments
    def __init__(
        self, save_freq: str | int = "epoch", metrics: Sequence[str] | None = None
    ) -> None:
        if save_freq != "epoch" and not (is_int(save_freq) and int(save_freq) > 0):
            raise ArgumentError(
                "ReportCheckpointCallback: expected save_freq to be 'epoch' or a "
                f"number of batches; received {save_freq!r}"
            )
        # Each save replaces the folder.
        super().__init__(gettempdir(), save_freq, delete_checkpoint=False)
        self._metrics = None if metrics is None else list(metrics)

    def on_train_begin(self, logs: Logs = None) -> None:
        """Restore the state of the last checkpoint of the run, if it has one.

        Args:
            logs: has no effect.

        Raises:
            NotBuiltError: the model is not built.
        """
        checkpoint = import_ray_train("ReportCheckpointCallback").get_checkpoint()
        if not self.model.built:
            raise NotBuiltError(
                "ReportCheckpointCallback: expected a model that is built before `fit`"
            )
        if checkpoint is not None:
            with checkpoint.as_directory() as folder:
                self._restore(Path(folder))

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Report the metrics of the epoch, with a checkpoint if it saves epochs.

        Args:
            epoch: the index of the epoch.
            logs: the metrics.
        """
        super().on_epoch_end(epoch, logs)
        if self.save_freq != "epoch":
            self._report(logs, None)

    def _save(self, batch: int | None, logs: Logs) -> None:
        with TemporaryDirectory(prefix="toolkit-") as folder:
            self._set_folder(folder)
            super()._save(batch, logs)
            self._report(logs, folder if distribution_context.is_chief() else None)

    def _report(self, logs: Logs, folder: str | None) -> None:
        """Report to Ray; all workers call this, and Ray waits for all.

        Args:
            logs: the metrics.
            folder: the folder of a checkpoint, which Ray copies before it returns.
        """
        train = import_ray_train("ReportCheckpointCallback")
        checkpoint: Any = None
        if folder is not None:
            checkpoint = train.Checkpoint.from_directory(folder)
        train.report(self._select_metrics(logs), checkpoint=checkpoint)

    def _select_metrics(self, logs: Logs) -> dict[str, float]:
        """Return the metrics to report as numbers."""
        values = {name: float(value) for name, value in (logs or {}).items()}
        if self._metrics is None:
            return values
        for name in self._metrics:
            if name not in values:
                raise MissingKeyError(
                    f"ReportCheckpointCallback: expected one of the metrics "
                    f"{sorted(values)}; received {name!r} in `metrics`"
                )
        return {name: values[name] for name in self._metrics}
