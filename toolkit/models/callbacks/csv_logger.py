"""CSVLogger: the logs of every epoch as a row of a CSV file."""

from __future__ import annotations

import csv
import os
from typing import Any

import numpy as np

from toolkit.compiler import distribution_context
from toolkit.files.writing import named_write_errors
from toolkit.models.callbacks.callback import Callback, Logs


class CSVLogger(Callback):
    """Callback that writes the logs of each epoch to a CSV file and flushes it.

    Args:
        filename: the file.
        separator: the separator of columns.
        append: whether to append to an existing file instead of replacing it.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> import toolkit
        >>> model = toolkit.Sequential([toolkit.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> file = Path(tempfile.mkdtemp()) / "logs.csv"
        >>> logger = toolkit.callbacks.CSVLogger(file)
        >>> x, y = np.ones((4, 2)), np.ones(4)
        >>> history = model.fit(x, y, verbose=0, callbacks=[logger])
        >>> file.read_text().splitlines()[0]
        'epoch,loss,val_loss'
    """

    _state = ("keys",)

    def __init__(
        self,
        filename: str | os.PathLike[str],
        separator: str = ",",
        append: bool = False,
    ) -> None:
        super().__init__()
        self.filename: str = os.fspath(filename)
        self.sep = separator
        self.append = append
        self.keys: list[str] | None = None
        self._file: Any = None

    def on_train_begin(self, logs: Logs = None) -> None:
        self._close()
        if not self._is_resumed():
            self.keys = None
        if distribution_context.is_chief():
            self._file = self._open("a" if self.append else "w")

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        logs = logs or {}
        first = self.keys is None
        if self.keys is None:
            self.keys = sorted(logs)
            # Validation can start later (validation_freq): reserve columns for it.
            if not any(key.startswith("val_") for key in self.keys):
                self.keys += [f"val_{key}" for key in self.keys]
        if not distribution_context.is_chief():
            return
        if self._file is None:  # the process that wrote the file has failed
            self._file = self._open("a")
        writer = csv.writer(self._file, delimiter=self.sep)
        if first and self._file.tell() == 0:
            writer.writerow(["epoch", *self.keys])
        writer.writerow([epoch, *(_cell(logs.get(key, "NA")) for key in self.keys)])
        self._file.flush()

    def on_train_end(self, logs: Logs = None) -> None:
        self._close()

    def _open(self, mode: str) -> Any:
        with named_write_errors(self.filename):
            return open(self.filename, mode, encoding="utf-8", newline="")

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _cell(value: Any) -> Any:
    if isinstance(value, str) or np.ndim(value) == 0:
        return value
    return f'"[{", ".join(map(str, value))}]"'
