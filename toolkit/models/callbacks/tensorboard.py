"""TensorBoard: event files of a training run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.compiler import distribution_context
from toolkit.console.frames import warn
from toolkit.errors import ArgumentError
from toolkit.layers.embedding import Embedding
from toolkit.models.callbacks.callback import Callback, Logs
from toolkit.models.callbacks.events import EventWriter
from toolkit.models.callbacks.learning_rate import learning_rates
from toolkit.type_aliases import Array

_IMAGES = (1, 3, 4)  # channels of an image


def _is_profiled(profile_batch: Any) -> bool:
    """Return whether batches are profiled: an integer, a pair, or a pair as text."""
    items = profile_batch
    if isinstance(items, str):
        items = items.split(",")
    numbers = list(items) if isinstance(items, (list, tuple)) else [items]
    try:
        batches = [int(n) for n in numbers]
    except (TypeError, ValueError):
        batches = [-1]
    if min(batches, default=-1) < 0 or len(batches) > 2 or batches != sorted(batches):
        raise ArgumentError(
            "TensorBoard: profile_batch must be a non-negative integer or a pair "
            f"(first batch, last batch); received {profile_batch!r}"
        )
    return any(batches)


class TensorBoard(Callback):
    """Callback that writes losses, metrics, learning rates and weights for TensorBoard.

    It needs no TensorFlow. It writes training to `log_dir/train` and validation to
    `log_dir/validation`; show them with `tensorboard --logdir log_dir`.

    Args:
        log_dir: a folder for this run only.
        histogram_freq: the number of epochs between histograms of all weights; 0:
            never.
        write_graph: whether to write the model's summary and its configuration, as
            texts.
        write_images: whether to also write weights as images, with the histograms.
        write_steps_per_second: whether to write the number of steps per second.
        update_freq: "epoch", "batch", or the number of batches between logs.
        profile_batch: ignored, with a warning if it is not 0:
            `model.inspect(...).trace(file)` shows the times of a step.
        embeddings_freq: the number of epochs between exports of Embedding vectors for
            the projector; 0: never.
        embeddings_metadata: the file with the row names of an embedding, or a dict of
            layer name -> file.

    Example:
        >>> from toolkit.callbacks import TensorBoard
        >>> callback = TensorBoard("logs", histogram_freq=1)
    """

    _needs_all = _never_stops = True
    _state = ("_train_batches", "_test_batches")

    def __init__(
        self,
        log_dir: str | os.PathLike[str] = "logs",
        histogram_freq: int = 0,
        write_graph: bool = True,
        write_images: bool = False,
        write_steps_per_second: bool = False,
        update_freq: str | int = "epoch",
        profile_batch: Any = 0,
        embeddings_freq: int = 0,
        embeddings_metadata: str | dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        if _is_profiled(profile_batch):
            warn(
                f"TensorBoard: profile_batch={profile_batch!r} has no effect; "
                "`model.inspect(x, y).trace(file)` shows the times of a step"
            )
        self.log_dir: str = os.fspath(log_dir)
        self.histogram_freq = histogram_freq
        self.write_graph = write_graph
        self.write_images = write_images
        self.write_steps_per_second = write_steps_per_second
        self.update_freq: str | int = 1 if update_freq == "batch" else update_freq
        self.embeddings_freq = embeddings_freq
        self.embeddings_metadata = embeddings_metadata
        self._writers: dict[str, EventWriter] = {}
        self._train_batches = 0
        self._test_batches = 0
        self._epoch_batches = 0
        self._started = 0.0

    def _writer(self, run: str) -> EventWriter:
        """Return the event file of training or validation; create it on first use."""
        if run not in self._writers:
            self._writers[run] = EventWriter(Path(self.log_dir) / run)
        return self._writers[run]

    # --- hooks ------------------------------------------------------------------------

    def on_train_begin(self, logs: Logs = None) -> None:
        if not self._is_resumed():
            self._train_batches = self._test_batches = 0
        if self.write_graph and distribution_context.is_chief():
            lines: list[str] = []
            self.model.summary(print_fn=lines.append)
            summary = "\n".join(f"    {line}" for line in "\n".join(lines).split("\n"))
            self._writer("train").text("keras", summary, 0)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._started, self._epoch_batches = time.perf_counter(), self._train_batches

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        self._batch_started = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._train_batches += 1
        if self.update_freq == "epoch" or self._train_batches % int(self.update_freq):
            return
        values = dict(logs or {})
        if self.write_steps_per_second:
            seconds = time.perf_counter() - self._batch_started
            values["steps_per_second"] = 1 / max(seconds, 1e-9)
        self._scalars("train", "batch_{}", values, self._train_batches)

    def on_test_end(self, logs: Logs = None) -> None:
        optimizer = self.model.optimizer
        if optimizer is not None:
            step = int(optimizer.iterations)
            self._scalars("validation", "evaluation_{}_vs_iterations", logs, step)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        logs = logs or {}
        train = {k: v for k, v in logs.items() if not k.startswith("val_")}
        train = self._collect_learning_rate(train)
        if self.write_steps_per_second:
            seconds = time.perf_counter() - self._started
            steps = self._train_batches - self._epoch_batches
            train["steps_per_second"] = steps / max(seconds, 1e-9)
        self._scalars("train", "epoch_{}", train, epoch)
        validation = {k[4:]: v for k, v in logs.items() if k.startswith("val_")}
        self._scalars("validation", "epoch_{}", validation, epoch)
        variables = self.model.variables
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            distribution_context.on_chief(lambda: self._write_weights(epoch), variables)
        if self.embeddings_freq and epoch % self.embeddings_freq == 0:
            distribution_context.on_chief(self._write_embeddings, variables)

    def on_train_end(self, logs: Logs = None) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    # --- output -----------------------------------------------------------------------

    def _collect_learning_rate(self, logs: dict[str, Any]) -> dict[str, Any]:
        """Return the logs, with the learning rates."""
        if self.model.optimizer is not None:
            logs.update(learning_rates(self.model))
        return logs

    def _scalars(self, run: str, tag: str, logs: Logs, step: int) -> None:
        if not distribution_context.is_chief():
            return
        for name, value in (logs or {}).items():
            self._writer(run).scalar(tag.format(name), value, step)
        if logs:
            self._writer(run).flush()

    def _write_weights(self, epoch: int) -> None:
        writer = self._writer("train")
        for weight in self.model.weights:
            array = np.asarray(weight.numpy(), "float64")
            writer.histogram(f"{weight.path}/histogram", array, epoch)
            if self.write_images:
                for i, image in enumerate(_images(array)):
                    writer.image(f"{weight.path}/image/{i}", image, epoch)
        writer.flush()

    def _write_embeddings(self) -> None:
        """Write the vectors as text, and the projector's list of them."""
        folder, entries = Path(self.log_dir) / "train", []
        folder.mkdir(parents=True, exist_ok=True)
        for layer in self.model._flatten_layers():
            if not isinstance(layer, Embedding):
                continue
            np.savetxt(
                folder / f"{layer.name}.tsv", layer.embeddings.numpy(), delimiter="\t"
            )
            entry = f'tensor_name: "{layer.name}" tensor_path: "{layer.name}.tsv"'
            names = self.embeddings_metadata
            names = names.get(layer.name) if isinstance(names, dict) else names
            if names:
                entry += f' metadata_path: "{names}"'
            entries.append(f"embeddings {{ {entry} }}\n")
        (folder / "projector_config.pbtxt").write_text("".join(entries), "utf-8")


def _images(weight: Array) -> list[Array]:
    """Return a weight as a few images in [0, 1]; weights with many axes give none."""
    pixels = np.squeeze(weight)
    if pixels.ndim == 1:
        pixels = pixels[None]
    if pixels.ndim == 2:
        wide = pixels if pixels.shape[0] <= pixels.shape[1] else pixels.T
        stack = wide[None, :, :, None]
    elif pixels.ndim == 3:
        stack = np.moveaxis(pixels, -1, 0)[..., None]
    else:
        stack = pixels
    if stack.ndim != 4 or stack.shape[-1] not in _IMAGES:
        return []
    low, high = stack.min(), stack.max()
    return list((stack[:3] - low) / (high - low or 1.0))
