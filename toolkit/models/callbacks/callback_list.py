"""CallbackList: several callbacks as one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolkit import tree
from toolkit.errors import ArgumentError, describe_value
from toolkit.models.callbacks.callback import Callback, Logs
from toolkit.models.callbacks.history import History
from toolkit.models.callbacks.logs import LazyLogs, python_logs
from toolkit.models.callbacks.progress import ProgbarLogger

_OLD_NAMES = {
    "on_train_batch_begin": "on_batch_begin",
    "on_train_batch_end": "on_batch_end",
}


def _overrides(callback: Any, hook: str) -> bool:
    method = getattr(callback, hook)
    if getattr(method, "__func__", method) is not getattr(Callback, hook):
        return True
    return hook in _OLD_NAMES and _overrides(callback, _OLD_NAMES[hook])


def _end_order(callbacks: Iterable[Any]) -> list[Any]:
    """Return callbacks in the order of their end hooks: those that save state last."""
    return sorted(callbacks, key=lambda c: getattr(c, "_saves_callbacks", False))


def _save_after_error(
    callbacks: Iterable[Callback], hook: str, number: int, logs: Logs
) -> None:
    """Save the state of a step or epoch that a callback has interrupted at its end."""
    for callback in callbacks:
        if hook.endswith("_end") and getattr(callback, "_saves_callbacks", False):
            getattr(callback, hook)(number, logs)


class CallbackList(Callback):
    """Callback that calls a list of callbacks.

    Args:
        callbacks: a callback, or a nest of them.
        add_history: whether to add a History if it is missing.
        add_progbar: whether to add a ProgbarLogger if it is missing.
        model: the running model.
        **params: parameters for each callback.

    Example:
        >>> import toolkit
        >>> class Report(toolkit.callbacks.Callback):
        ...     def on_epoch_begin(self, epoch, logs=None):
        ...         print("epoch", epoch)
        ...
        >>> callbacks = toolkit.callbacks.CallbackList([Report(), Report()])
        >>> callbacks.on_epoch_begin(0)
        epoch 0
        epoch 0
    """

    def __init__(
        self,
        callbacks: Any = None,
        add_history: bool = False,
        add_progbar: bool = False,
        model: Any = None,
        **params: Any,
    ) -> None:
        super().__init__()
        self.callbacks: list[Callback] = list(tree.flatten(callbacks or []))
        for callback in self.callbacks:
            if isinstance(callback, type) or not hasattr(callback, "on_train_begin"):
                raise ArgumentError(
                    "callbacks: expected instances of Callback; received "
                    f"{describe_value(callback)}"
                )
        if add_history and not self._contains(History):
            self.callbacks.append(History())
        if add_progbar and not self._contains(ProgbarLogger):
            self.callbacks.append(ProgbarLogger())
        # Cached per hook: the callbacks that override this per-step hook.
        self._listeners: dict[str, list[Any]] = {}
        if model is not None:
            self.set_model(model)
        self.set_params(params)

    def _contains(self, cls: type) -> bool:
        return any(isinstance(callback, cls) for callback in self.callbacks)

    def listeners_of(self, hook: str) -> list[Any]:
        """Return the callbacks that override a per-step hook.

        Args:
            hook: the name of a hook, such as "on_train_batch_end".
        """
        listeners = self._listeners.get(hook)
        if listeners is None:
            listeners = [c for c in self.callbacks if _overrides(c, hook)]
            if hook.endswith("_end"):
                listeners = _end_order(listeners)
            self._listeners[hook] = listeners
        return listeners

    def append(self, callback: Callback) -> None:
        """Append a callback.

        Args:
            callback: the callback.
        """
        self.callbacks.append(callback)
        self._listeners.clear()

    def set_params(self, params: dict[str, Any]) -> None:
        self.params = params
        for callback in self.callbacks if params else ():
            callback.set_params(params)

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        for callback in self.callbacks:
            if isinstance(callback, History):
                model.history = callback
            callback.set_model(model)

    def state_dict(self) -> dict[str, Any]:
        return {str(i): c.state_dict() for i, c in enumerate(self.callbacks)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for i, callback in enumerate(self.callbacks):
            callback.load_state_dict(state[str(i)])

    def _call_listeners(self, hook: str, batch: int, logs: Logs) -> None:
        listeners = self.listeners_of(hook)
        if not listeners:
            return
        lazy: LazyLogs | None = None
        remaining = iter(listeners)
        try:
            for callback in remaining:
                # A progress bar without a pending redraw does not need to read values.
                if isinstance(callback, ProgbarLogger) and not callback.is_due():
                    getattr(callback, hook)(batch, None)
                    continue
                if lazy is None:
                    lazy = LazyLogs(logs)
                getattr(callback, hook)(batch, logs=lazy)
        except BaseException:
            _save_after_error(remaining, hook, batch, LazyLogs(logs))
            raise

    def on_batch_begin(self, batch: int, logs: Logs = None) -> None:
        self._call_listeners("on_batch_begin", batch, logs)

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._call_listeners("on_batch_end", batch, logs)

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        self._call_listeners("on_train_batch_begin", batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._call_listeners("on_train_batch_end", batch, logs)

    def on_test_batch_begin(self, batch: int, logs: Logs = None) -> None:
        self._call_listeners("on_test_batch_begin", batch, logs)

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._call_listeners("on_test_batch_end", batch, logs)

    def on_predict_batch_begin(self, batch: int, logs: Logs = None) -> None:
        self._call_listeners("on_predict_batch_begin", batch, logs)

    def on_predict_batch_end(self, batch: int, logs: Logs = None) -> None:
        for callback in self.listeners_of("on_predict_batch_end"):
            callback.on_predict_batch_end(batch, logs=logs)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        logs = python_logs(logs)
        for callback in self.callbacks:
            callback.on_epoch_begin(epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        logs = python_logs(logs)
        remaining = iter(_end_order(self.callbacks))
        try:
            for callback in remaining:
                callback.on_epoch_end(epoch, logs)
        except BaseException:
            _save_after_error(remaining, "on_epoch_end", epoch, logs)
            raise

    def _call_all(self, hook: str, logs: Logs, callbacks: Iterable[Callback]) -> None:
        logs = python_logs(logs)
        for callback in callbacks:
            getattr(callback, hook)(logs)

    def on_train_begin(self, logs: Logs = None) -> None:
        self._call_all("on_train_begin", logs, self.callbacks)

    def on_train_end(self, logs: Logs = None) -> None:
        self._call_all("on_train_end", logs, self.callbacks)

    def on_test_begin(self, logs: Logs = None) -> None:
        self._call_all("on_test_begin", logs, self.callbacks)

    def on_test_end(self, logs: Logs = None) -> None:
        self._call_all("on_test_end", logs, self.callbacks)

    def on_predict_begin(self, logs: Logs = None) -> None:
        self._call_all("on_predict_begin", logs, self.callbacks)

    def on_predict_end(self, logs: Logs = None) -> None:
        self._call_all("on_predict_end", logs, self.callbacks)
