"""State of a `fit` run in a backup, in addition to the weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolkit.data.encoding import decode, encode
from toolkit.errors import ArgumentError
from toolkit.models.callbacks.callback_list import CallbackList
from toolkit.models.callbacks.history import History
from toolkit.models.training.epochs import EpochBatches
from toolkit.random import global_seed_generator


class Progress:
    """Run of `fit` that can be saved after any step and resumed.

    Args:
        model: the trained model.
        batches: the batches of training.
        callbacks: the callbacks of the run.

    Attributes:
        epoch: the first epoch of a resumed run, or None.
    """

    def __init__(
        self, model: Any, batches: EpochBatches, callbacks: CallbackList
    ) -> None:
        self._model, self._batches, self._callbacks = model, batches, callbacks
        self._restored: dict[str, Any] | None = None
        self.epoch: int | None = None
        self._current_epoch = 0  # the current epoch

    def state(self) -> dict[str, Any]:
        """Return the state as JSON: positions, seeds, metrics and callbacks."""
        generators = [np.asarray(v) for v in self._generators()]
        metrics = [np.asarray(v) for v in self._metric_variables()]
        return {
            "seeds": [state.tolist() for state in generators],
            "metrics": encode(metrics),
            "data": self._batches.state(),
            "callbacks": [
                _state_of(callback) for callback in self._stateful_callbacks()
            ],
        }

    def restore(self, state: dict[str, Any], epoch: int) -> None:
        """Make the run start in an epoch with a saved state."""
        self.epoch, self._restored = epoch, state

    def begin(self) -> None:
        """Restore the state after the callbacks have started."""
        state = self._restored
        if not state:
            return
        for variable, seed in zip(self._generators(), state["seeds"], strict=True):
            variable.assign(np.array(seed, "uint32"))
        self._batches.restore(state["data"])
        callbacks = self._stateful_callbacks()
        if [type(c).__name__ for c in callbacks] != [n for n, _ in state["callbacks"]]:
            return  # other callbacks than the saved ones: they start without state
        for callback, (_, saved) in zip(callbacks, state["callbacks"], strict=True):
            callback.load_state_dict(decode(saved))
            callback._is_resumed()

    def record(self) -> dict[str, Any]:
        """Return `state`, the epoch and the history, for a resuming process."""
        history = self._model.history
        states = [
            history.epoch,
            {k: list(map(float, v)) for k, v in history.history.items()},
        ]
        return {"state": self.state(), "epoch": self._current_epoch, "history": states}

    def restore_record(self, record: dict[str, Any]) -> None:
        """Make the run start from a `record` of another process."""
        self.restore(record["state"], record["epoch"])
        history = self._model.history
        history.epoch, history.history = record["history"]

    def begin_epoch(self, epoch: int) -> None:
        """Reset the metrics, or restore them in a resumed epoch."""
        self._current_epoch = epoch
        self._model.reset_metrics()
        state, self._restored = self._restored, None
        if not state or not self._batches.num_yielded:
            return
        values = decode(state["metrics"])
        for variable, value in zip(self._metric_variables(), values, strict=True):
            variable.assign(value)

    def _generators(self) -> list[Any]:
        """Return the states of the random generators, in the order of the layers."""
        weights = {id(v) for v in self._model.weights}
        states = [v for v in self._model.variables if id(v) not in weights]
        return [*states, global_seed_generator().state]

    def _metric_variables(self) -> list[Any]:
        return [v for metric in self._model.metrics for v in metric.variables]

    def _stateful_callbacks(self) -> list[Any]:
        """Return the callbacks with state; as in Keras, a History starts empty."""
        callbacks = self._callbacks.callbacks
        return [c for c in callbacks if c.state_dict() and not isinstance(c, History)]


def _state_of(callback: Any) -> list[Any]:
    try:
        return [type(callback).__name__, encode(callback.state_dict())]
    except ArgumentError as error:
        raise ArgumentError(
            f"{type(callback).__name__}.state_dict: {error}; expected numbers, "
            "strings, arrays, and lists and dicts of them"
        ) from error
