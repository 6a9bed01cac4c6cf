"""Agreement of a job's processes: equal arguments, and a common stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from toolkit import tree
from toolkit.compiler.distribution_context import DistributionContext
from toolkit.errors import ArgumentError
from toolkit.models.callbacks.callback_list import CallbackList
from toolkit.models.saving.state import all_variables
from toolkit.models.training.epochs import EpochBatches
from toolkit.models.training.local_rows import (
    data_mismatch_error,
    describe_batch,
    group_by_rank,
)
from toolkit.random.seeds import global_seed_generator, global_state

if TYPE_CHECKING:
    from toolkit.core.variable import Variable

# Seconds between two agreements if no callback can stop after any step.
_PACE = 0.05
# the bits of a word; the remaining bits are the number of steps
_STOPS, _IS_INTERRUPTED, _STEPS = 1, 2, 4
_HOOKS = [
    f"on_{run}_batch_{at}"
    for run in ("train", "test", "predict")
    for at in ("begin", "end")
]


def check_same_data(
    job: DistributionContext, batches: EpochBatches | None, peek: bool, label: str = ""
) -> None:
    """Raise for data whose length, shape or order differs between processes.

    Such processes would run different numbers of steps, and wait forever; or take their
    rows of batches that other processes do not have.

    Args:
        job: the job of the processes.
        batches: the steps; None for no steps, which all processes must agree on, too.
        peek: whether to compare the first batch, too.
        label: the prefix of an error.

    Raises:
        ArgumentError: on all processes.
    """
    # before the first batch is read
    order = None if batches is None else batches.source.fingerprint()
    local = "nothing" if batches is None else _described(batches, peek)
    exchanged = job.exchange([local, order])
    texts = [text for text, _ in exchanged]
    if len(set(texts)) > 1:
        raise data_mismatch_error(texts, label)
    orders = [text for _, text in exchanged]
    if len(set(orders)) > 1:
        raise ArgumentError(
            f"{label}expected the same rows in the same order on all ranks; received "
            f"{group_by_rank(orders)}; to draw equal random numbers on all ranks, "
            "call `set_distribution` or `set_random_seed` first"
        )


def _described(batches: EpochBatches, peek: bool) -> str:
    source = batches.source
    samples = getattr(source, "samples", None)
    counts = {
        "samples": samples,
        "batches per epoch": batches.num_batches,
        "samples per batch": source.batch_size,
    }
    words = [f"{count} {name}" for name, count in counts.items() if count is not None]
    first = tree.flatten(batches.peek()) if peek else []
    shapes = describe_batch(first)
    if shapes:
        words.append(f"a first batch of {shapes}")
    return ", ".join(words) or "an unknown number of batches"


def check_same_state(job: DistributionContext, model: Any) -> None:
    """Raise for weights, seeds and optimizer settings that differ between processes.

    Args:
        job: the job, of which all processes call this.
        model: a built model.

    Raises:
        ArgumentError: on all processes, with the first difference.
    """
    variables = all_variables(model)
    if global_state() is not None:  # creating it would draw a seed, only in jobs
        variables.append(global_seed_generator().state)
    _check_same(job, variables)


def check_same_settings(job: DistributionContext, model: Any) -> None:
    """Raise for settings, such as a learning rate, that one process alone has changed.

    Args:
        job: the job, of which all processes call this.
        model: a model with an optimizer.

    Raises:
        ArgumentError: on all processes.
    """
    settings = [v for v in model.optimizer.variables if v.shape == ()]
    checksum = 0
    for variable in settings:
        checksum = crc32(np.asarray(variable).tobytes(), checksum)
    if len(set(job.agree("settings", checksum))) > 1:
        _check_same(job, settings, "fit: after an epoch: ")


def _check_same(
    job: DistributionContext, variables: list[Any], label: str = ""
) -> None:
    sums = [None if v.placement is not None else _checksum(v) for v in variables]
    exchanged = job.exchange([describe_batch(variables), sums])
    if len({shapes for shapes, _ in exchanged}) > 1:
        return  # other programs, which are compared before they run
    rows = enumerate(zip(*(sums_of_rank for _, sums_of_rank in exchanged), strict=True))
    differs = next((number for number, row in rows if len({*row}) > 1), None)
    if differs is None:
        return
    variable = variables[differs]
    first = np.asarray(variable).ravel()[:3].tolist()
    received = job.exchange(f"{variable.path} with the first values {first}")
    raise ArgumentError(
        f"{label}expected the same weights, seeds and settings of the optimizer on all "
        f"ranks; received {group_by_rank(received)}"
    )


def _checksum(variable: Variable) -> int:
    """Return a checksum of a variable, without donating its buffer."""
    with variable.lock:
        array = np.ascontiguousarray(variable._tensor._array)
        return crc32(array.reshape(-1).view(np.uint8).data)


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
        arguments: dict[str, Any],
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

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._previous_handler is None:
            return
        signal.signal(signal.SIGINT, self._previous_handler)
        if self._signal is not None and error is None:  # after the last agreement
            self._previous_handler(*self._signal)
