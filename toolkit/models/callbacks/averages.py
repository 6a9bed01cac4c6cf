"""SwapEMAWeights: evaluation with the moving averages of the weights."""

from __future__ import annotations

from typing import Any

from toolkit.core.variable import assign_all
from toolkit.errors import ArgumentError
from toolkit.models.callbacks.callback import Callback, Logs


class SwapEMAWeights(Callback):
    """Callback that swaps weights and their moving averages for evaluation.

    It needs an optimizer with `use_ema=True`.

    Args:
        swap_on_epoch: whether to also swap at the end of every epoch, so that later
            callbacks, for example ModelCheckpoint, see the averages.

    Example:
        >>> from toolkit.callbacks import SwapEMAWeights
        >>> callback = SwapEMAWeights(swap_on_epoch=True)
    """

    _state = ("_swapped",)

    def __init__(self, swap_on_epoch: bool = False) -> None:
        super().__init__()
        self.swap_on_epoch = swap_on_epoch
        self._swapped = False

    def _averaging(self) -> list[Any]:
        """Return the optimizers that keep averages."""
        optimizer = self.model.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        averaging = [
            inner
            for inner in getattr(optimizer, "optimizers", [optimizer])
            if inner.use_ema and inner.built
        ]
        if not averaging:
            raise ArgumentError(
                "SwapEMAWeights must be used when `use_ema=True` is set on the "
                f"optimizer; received {optimizer.name!r}, which does not compute "
                "averages"
            )
        return averaging

    def _swap(self, with_averages: bool) -> None:
        if self._swapped == with_averages:
            return
        for optimizer in self._averaging():
            if int(optimizer.iterations) == 0:
                continue  # the averages start at the first update
            for variable, average in optimizer.averaged():
                value, mean = variable.numpy().copy(), average.numpy().copy()
                assign_all([(variable, mean), (average, value)])
        self._swapped = with_averages

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        if self.swap_on_epoch:
            self._swap(False)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if not self.swap_on_epoch:
            return
        self._swap(True)
        if epoch == self.params["epochs"] - 1:
            # At its end `fit` overwrites weights with averages: both then hold the
            # average.
            for optimizer in self._averaging():
                for variable, average in optimizer.averaged():
                    average.assign(variable.numpy().copy())

    def on_test_begin(self, logs: Logs = None) -> None:
        self._swap(True)

    def on_test_end(self, logs: Logs = None) -> None:
        self._swap(False)

    def on_predict_begin(self, logs: Logs = None) -> None:
        self._swap(True)

    def on_predict_end(self, logs: Logs = None) -> None:
        self._swap(False)
