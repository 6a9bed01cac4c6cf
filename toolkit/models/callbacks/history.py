"""History: the values of loss and metrics, epoch by epoch."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from toolkit import pictures
from toolkit.errors import ArgumentError, unknown_choice
from toolkit.models.callbacks.callback import Callback, Logs

if TYPE_CHECKING:
    from toolkit.pictures.curves import Curve
    from toolkit.pictures.picture import Picture

_VALIDATION = "val_"


class History(Callback):
    """Callback that records the logs of every epoch; `fit` adds one and returns it.

    Attributes:
        history: name -> list of values, one per epoch.
        epoch: the numbers of the epochs of the last run.

    Example:
        >>> import numpy as np
        >>> import toolkit
        >>> model = toolkit.Sequential([toolkit.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> history = model.fit(np.ones((4, 2)), np.ones(4), epochs=3, verbose=0)
        >>> history.epoch, list(history.history)
        ([0, 1, 2], ['loss'])
    """

    _state = ("history", "epoch", "_epochs")

    def __init__(self) -> None:
        super().__init__()
        self.history: dict[str, list[Any]] = {}
        self.epoch: list[int] = []
        # The epoch of each value: validation can be less frequent than training.
        self._epochs: dict[str, list[int]] = {}

    def on_train_begin(self, logs: Logs = None) -> None:
        if not self._is_resumed():
            self.epoch = []

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self.epoch.append(epoch)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(value)
            self._epochs.setdefault(name, []).append(epoch)
        self.model.history = self

    def __repr__(self) -> str:
        latest = [
            f"{name}={values[-1]:.4g}"
            for name, values in self.history.items()
            if values and np.ndim(values[-1]) == 0
        ]
        return f"<History {', '.join([f'epochs={len(self.epoch)}', *latest])}>"

    if not TYPE_CHECKING:  # so that editors show the mistake, too

        def __getitem__(self, name: object) -> NoReturn:
            raise TypeError(
                "'History' object is not subscriptable; use "
                f"`history.history[{json.dumps(str(name))}]`"
            )

    @property
    def metrics(self) -> list[str]:
        """Return the names of recorded numbers, without `val_`; the loss is first."""
        names = [
            name.removeprefix(_VALIDATION)
            for name, values in self.history.items()
            if all(np.ndim(value) == 0 for value in values)
        ]
        return sorted(dict.fromkeys(names), key=lambda name: name != "loss")

    def plot(
        self,
        to_file: str | os.PathLike[str] | None = None,
        metrics: Sequence[str] | None = None,
        logarithmic: bool = False,
    ) -> Picture:
        """Plot the loss and the metrics: training curves solid, validation dashed.

        The labels at the ends of curves are the last values; a ring marks the lowest
        validation loss.

        Args:
            to_file: the path of the picture: ".svg" needs no other package, ".png" and
                ".pdf" need Matplotlib.
            metrics: the names to plot, such as ["loss", "accuracy"]; all if None.
            logarithmic: whether panels of positive values have a logarithmic scale.

        Returns:
            A picture for notebooks; `svg()` returns its text, `save(path)` writes a
            file.

        Raises:
            ArgumentError: nothing has been recorded, or not this metric.

        Example:
            >>> import toolkit
            >>> model = toolkit.Sequential([toolkit.layers.Dense(1)])
            >>> model.compile("sgd", "mse")
            >>> x = toolkit.ops.ones((4, 2))
            >>> history = model.fit(x, x[:, :1], epochs=3, verbose=0)
            >>> history.plot()
            <Picture 'loss by epoch', 400 by 250>
        """
        recorded = self.metrics
        names = recorded if metrics is None else list(metrics)
        if not names:
            raise ArgumentError("History.plot: no numbers have been recorded yet")
        for name in names:
            if name not in recorded:
                raise unknown_choice("History.plot: metrics", name, recorded)
        panels = [pictures.curves.Panel(name, self._curves(name)) for name in names]
        title = f"{', '.join(names)} by epoch"
        picture = pictures.curves.draw_curves(panels, title, logarithmic=logarithmic)
        if to_file is not None:
            picture.save(to_file)
        return picture

    def _curves(self, name: str) -> list[Curve]:
        curves = []
        for kind, color in (("", "first"), (_VALIDATION, "second")):
            values = [float(value) for value in self.history.get(kind + name, ())]
            if values:
                best = None
                if kind and name == "loss" and np.isfinite(values).any():
                    best = int(np.nanargmin(np.nan_to_num(values, nan=np.inf)))
                title = "validation" if kind else "training"
                epochs = self._epochs_of_values(kind + name, len(values))
                curve = title, epochs, values, color, bool(kind), best
                curves.append(pictures.curves.Curve(*curve))
        return curves

    def _epochs_of_values(self, name: str, count: int) -> list[int]:
        """Return the epochs of values, from 1; several runs are consecutive."""
        epochs = self._epochs.get(name, [])
        if len(epochs) == count and all(a < b for a, b in pairwise(epochs)):
            return [epoch + 1 for epoch in epochs]
        return list(range(1, count + 1))

    def _repr_html_(self) -> str:
        if not self.metrics:
            from html import escape

            return f"<code>{escape(repr(self))}</code>"
        return self.plot()._repr_html_()
