"""Agreement of a job's processes to stop after the same step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any

from toolkit.compiler.distribution_context import DistributionContext
from toolkit.errors import ArgumentError
from toolkit.functions.local_rows import group_by_rank
from toolkit.models.callbacks.callback_list import CallbackList

# Seconds between two agreements if no callback can stop after any step.
_PACE = 0.05
# the bits of a word; the remaining bits are the number of steps
_STOPS, _IS_INTERRUPTED, _STEPS = 1, 2, 4
_HOOKS = [
    f"on_{run}_batch_{at}"
    for run in ("train", "test", "predict")
    for at in ("begin", "end")
]


class Agreement:
    """Protocol that lets all processes of a job stop after the same step.

    If a callback can request a stop at any step, they agree after each step, so that a
    job stops at the same step as a single process. Otherwise they check for Ctrl-C at
    intervals: the first process sends the number of steps until the next check.

    As a context manager it handles Ctrl-C: all processes raise at the next agreement. A
    second Ctrl-C raises immediately.

    Args:
        job: the job, of which all processes create this at the same time.
        callbacks: the callbacks of this process.
        arguments: the arguments of the run, which must be equal everywhere.
    """

    def __init__(
        self,
        job: DistributionContext,
        callbacks: CallbackList,
        arguments: dict[str, object],
    ) -> None:
        listeners = [c for hook in _HOOKS for c in callbacks.listeners_of(hook)]
        can_stop = any("_never_stops" not in vars(type(c)) for c in listeners)
        needed = [
            type(c).__name__
            for c in callbacks.callbacks
            if getattr(c, "_needs_all", False)
        ]
        local = [f"{name}={value}" for name, value in arguments.items()]
        local += [f"callbacks that save: {', '.join(needed) or 'none'}"]
        exchanged = job.exchange([can_stop, ", ".join(local)])
        if len({text for _, text in exchanged}) > 1:
            received = group_by_rank([text for _, text in exchanged])
            raise ArgumentError(
                f"expected the same arguments on all ranks; received {received}"
            )
        self._job = job
        self._checks_every_step = any(stops for stops, _ in exchanged)
        self._steps_left, self._steps, self._start_time = 1, 0, perf_counter()
        self._version = job.recovery.version
        self._signal: tuple[Any, ...] | None = None
        self._previous_handler: Callable[..., Any] | None = None

    def should_stop(self, requested: bool, force: bool = False) -> bool:
        """Return whether all processes stop now.

        Args:
            requested: whether this process requests a stop.
            force: whether to agree unconditionally; if False, this is the end of a
                step.

        Raises:
            KeyboardInterrupt: one of the processes received Ctrl-C.
        """
        self._steps += 1
        self._steps_left -= 1
        # the job has different processes now
        if self._version != self._job.recovery.version:
            self._steps_left, self._version = 0, self._job.recovery.version
        if self._steps_left > 0 and not force:
            return False
        is_interrupted = self._signal is not None
        word = _STOPS * bool(requested) + _IS_INTERRUPTED * is_interrupted
        words = self._job.agree("stops", word + _STEPS * self._steps_until_check())
        self._steps_left = words[0] // _STEPS
        self._steps, self._start_time = 0, perf_counter()
        if any(word & _IS_INTERRUPTED for word in words):
            self._signal = None
            raise KeyboardInterrupt
        return any(word & _STOPS for word in words)

    def _steps_until_check(self) -> int:
        """Return the number of steps until the next agreement."""
        if self._checks_every_step:
            return 1
        step_seconds = (perf_counter() - self._start_time) / self._steps
        return max(1, min(int(_PACE / max(step_seconds, 1e-6)), 2 * self._steps))

    def __enter__(self) -> None:
        handler = signal.getsignal(signal.SIGINT)
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and callable(handler):
            self._previous_handler = handler
            signal.signal(signal.SIGINT, self._handle_signal)

    def _handle_signal(self, *texts: Any) -> None:
        if self._signal is not None and self._previous_handler is not None:
            self._previous_handler(*texts)
        self._signal = texts

    def __exit__(
        self, kind: object, error: BaseException | None, trace: object
    ) -> None:
        if self._previous_handler is None:
            return
        signal.signal(signal.SIGINT, self._previous_handler)
        if self._signal is not None and error is None:  # after the last agreement
            self._previous_handler(*self._signal)
