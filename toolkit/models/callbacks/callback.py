"""Callback: hooks around training, evaluation and prediction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit.arguments import Checked
from toolkit.compiler import distribution_context
from toolkit.console.messages import print_message
from toolkit.errors import ArgumentError

Logs = dict[str, Any] | None


class Callback(Checked):
    """Base class of callbacks: override hooks and pass an instance to `fit`.

    Epochs and batches count from 0. `logs` maps the names of loss and metrics to
    floats; at the end of an epoch it also contains the `val_` names.

    Attributes:
        params: `verbose`, `epochs` and `steps` (None if unknown).
        model: the running model.

    Example:
        >>> from toolkit.callbacks import Callback
        >>> class Report(Callback):
        ...     def on_epoch_end(self, epoch, logs=None):
        ...         print(f"epoch {epoch}: {logs['loss']:.3f}")
        >>> Report().on_epoch_end(0, {"loss": 0.25})
        epoch 0: 0.250
    """

    # A class sets `_never_stops = True` if its step hooks do not set `stop_training`,
    # and `_needs_all = True` if all processes of a job must have it. `_state` names the
    # attributes that a resumed run needs. `_saves_callbacks = True` runs the hooks at
    # the end of a step or an epoch after the hooks of all other callbacks.
    _state: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self._model: Any = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    @property
    def model(self) -> Any:
        """Return the model that trains, or None before `set_model`."""
        return self._model

    def set_params(self, params: dict[str, Any]) -> None:
        """Receive the parameters of the run.

        Args:
            params: the numbers of epochs and steps, and `verbose`.
        """
        self.params = params

    def set_model(self, model: Any) -> None:
        """Receive the running model.

        Args:
            model: the model.
        """
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        """Return the state that an exact resumption needs."""
        return {name: getattr(self, name) for name in self._state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`; the next run continues from it.

        Args:
            state: the result of `state_dict`.
        """
        if set(state) != set(self._state):
            raise ArgumentError(
                f"{type(self).__name__}.load_state_dict: expected the keys "
                f"{sorted(self._state)}; received {sorted(state)}"
            )
        for name, value in state.items():
            setattr(self, name, value)
        self._resumed = True

    def _is_resumed(self) -> bool:
        """Return whether a state was loaded since the last run started."""
        return bool(self.__dict__.pop("_resumed", False))

    def on_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Older name of `on_train_batch_begin`.

        Args:
            batch: the number of the batch in the epoch.
            logs: a dict from names of losses and metrics to numbers, or None.
        """

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Older name of `on_train_batch_end`.

        Args:
            batch: the number of the batch in the epoch.
            logs: a dict from names of losses and metrics to numbers, or None.
        """

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Called before an epoch of training.

        Args:
            epoch: the number of the epoch.
            logs: a dict from names of losses and metrics to numbers, or None.
        """

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Called after an epoch of training and its validation.

        Args:
            epoch: the number of the epoch.
            logs: a dict from names of losses and metrics to numbers, or None.
        """

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Called before a training step.

        Args:
            batch: the number of the batch in the epoch.
            logs: a dict from names of losses and metrics to numbers, or None.
        """
        self.on_batch_begin(batch, logs=logs)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Called after a training step.

        Args:
            batch: the number of the batch in the epoch.
            logs: a dict from names of losses and metrics to numbers, or None.
        """
        self.on_batch_end(batch, logs=logs)

    def on_test_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Called before a batch of `evaluate`, and of validation.

        Args:
            batch: the number of the batch in the epoch.
            logs: a dict from names of losses and metrics to numbers, or None.
        """

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Called after a batch of `evaluate`, and of validation.

        Args:
            batch: the number of the batch in the epoch.
            logs: a dict from names of losses and metrics to numbers, or None.
        """

    def on_predict_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Called before a batch of `predict`.

        Args:
            batch: the number of the batch in the epoch.
            logs: a dict from names of losses and metrics to numbers, or None.
        """

    def on_predict_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Called after a batch of `predict`; `logs["outputs"]` contains its outputs.

        Args:
            batch: the number of the batch in the epoch.
            logs: a dict from names of losses and metrics to numbers, or None.
        """

    def on_train_begin(self, logs: Logs = None) -> None:
        """Called once before training.

        Args:
            logs: a dict from names of losses and metrics to numbers, or None.
        """

    def on_train_end(self, logs: Logs = None) -> None:
        """Called once after training, also after Ctrl-C.

        Args:
            logs: a dict from names of losses and metrics to numbers, or None.
        """

    def on_test_begin(self, logs: Logs = None) -> None:
        """Called before evaluation or validation.

        Args:
            logs: a dict from names of losses and metrics to numbers, or None.
        """

    def on_test_end(self, logs: Logs = None) -> None:
        """Called after evaluation or validation.

        Args:
            logs: a dict from names of losses and metrics to numbers, or None.
        """

    def on_predict_begin(self, logs: Logs = None) -> None:
        """Called before prediction.

        Args:
            logs: a dict from names of losses and metrics to numbers, or None.
        """

    def on_predict_end(self, logs: Logs = None) -> None:
        """Called after prediction.

        Args:
            logs: a dict from names of losses and metrics to numbers, or None.
        """


def print_on_chief(text: str) -> None:
    """Print a message of a callback; in a job, only one process prints."""
    if distribution_context.is_chief():
        print_message(text)


class LambdaCallback(Callback):
    """Callback with a function for each hook.

    Args:
        on_epoch_begin: `(epoch, logs)`.
        on_epoch_end: `(epoch, logs)`.
        on_train_begin: `(logs)`.
        on_train_end: `(logs)`.
        on_train_batch_begin: `(batch, logs)`.
        on_train_batch_end: `(batch, logs)`.
        **kwargs: functions for all other hooks, by the hook's name.

    Example:
        >>> from toolkit.callbacks import LambdaCallback
        >>> report = LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch, logs))
        >>> report.on_epoch_end(0, {"loss": 0.25})
        0 {'loss': 0.25}
    """

    def __init__(
        self,
        on_epoch_begin: Callable[..., Any] | None = None,
        on_epoch_end: Callable[..., Any] | None = None,
        on_train_begin: Callable[..., Any] | None = None,
        on_train_end: Callable[..., Any] | None = None,
        on_train_batch_begin: Callable[..., Any] | None = None,
        on_train_batch_end: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        hooks = {
            "on_epoch_begin": on_epoch_begin,
            "on_epoch_end": on_epoch_end,
            "on_train_begin": on_train_begin,
            "on_train_end": on_train_end,
            "on_train_batch_begin": on_train_batch_begin,
            "on_train_batch_end": on_train_batch_end,
            **kwargs,
        }
        for name, function in hooks.items():
            if not name.startswith("on_") or not hasattr(Callback, name):
                raise ArgumentError(
                    "LambdaCallback: expected the name of a hook such as "
                    f"on_test_begin; received {name!r}"
                )
            if function is not None:
                setattr(self, name, function)
