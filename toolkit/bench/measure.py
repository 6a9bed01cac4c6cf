"""Measurement of a workload in its process: prepared once, then sampled.

`keras` below is the name of a module, "toolkit" or "keras". It is imported late, so
that a new process can measure its import time.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

from toolkit.bench.workloads import Workload

Sample = Callable[[], float]

SAMPLE_SECONDS = 0.1  # minimum seconds of one sample of a short call
WARM_UP_CALLS = 5  # calls before the first sample, after the first call


@dataclass(frozen=True)
class Kind:
    """Kind of measurement of a workload.

    prepare: a function (workload, name of keras) -> a function that takes a sample.
    unit, scale: the printed unit, and the factor from seconds or bytes.
    needs_new_process: whether every sample needs a new process.
    cache: "cold" for an empty cache of compiled code each time, "warm" for a cache that
    an earlier process filled, "" for the user's cache.
    """

    prepare: Callable[[Workload, str], Sample]
    unit: str
    scale: float
    needs_new_process: bool = False
    cache: str = ""


def prepare_fit(workload: Workload, keras: str) -> Sample:
    """Return the seconds of a step, from an epoch of `fit` after a warm-up epoch."""
    module = import_module(keras)
    model = workload.build(module)
    x, y = workload.make_data()
    timer = epoch_timer(module)
    options = {"batch_size": workload.batch, "verbose": 0, "callbacks": [timer]}

    def sample() -> float:
        model.fit(x, y, **options)
        if not math.isfinite(timer.loss):
            raise ArithmeticError(f"the loss has become {timer.loss}")
        return timer.seconds / workload.steps

    sample()
    return sample


def epoch_timer(keras: Any) -> Any:
    """Return a callback that records the last epoch's seconds and loss.

    It has no batch hooks, because some libraries would synchronize at each step.
    """

    class EpochTimer(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.start = perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.loss = float(logs["loss"])  # waits for asynchronous work
            self.seconds = perf_counter() - self.start

    return EpochTimer()


def prepare_predict(workload: Workload, keras: str) -> Sample:
    """Return the seconds of `predict`."""
    model = workload.build(import_module(keras))
    x, _ = workload.make_data()
    return repeat_call(lambda: model.predict(x, batch_size=workload.batch, verbose=0))


def prepare_call(workload: Workload, keras: str) -> Sample:
    """Return the seconds of `model(x)`."""
    module = import_module(keras)
    return _repeat_model_call(workload.build(module), module, workload)


def prepare_function(workload: Workload, keras: str) -> Sample:
    """Return the seconds of a call of the model as a compiled function."""
    module = import_module(keras)
    return _repeat_model_call(module.function(workload.build(module)), module, workload)


def _repeat_model_call(model: Any, keras: Any, workload: Workload) -> Sample:
    x, _ = workload.make_data()
    x = keras.ops.convert_to_tensor(x)
    if hasattr(model(x), "block_until_ready"):
        return repeat_call(lambda: model(x).block_until_ready())
    return repeat_call(lambda: model(x))


def prepare_start(workload: Workload, keras: str) -> Sample:
    """Return the seconds from the import to the first step; once per process."""

    def sample() -> float:
        start = perf_counter()
        module = import_module(keras)
        model = workload.build(module)
        model.train_on_batch(*workload.make_data())
        return perf_counter() - start

    return sample


def prepare_memory(workload: Workload, keras: str) -> Sample:
    """Return the peak memory of the process after two epochs of `fit`, in bytes."""
    run_epoch = prepare_fit(workload, keras)

    def sample() -> float:
        run_epoch()
        return float(peak_memory())

    return sample


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # unlike ru_maxrss, it excludes the parent process
        lines = status.read_text("utf-8").splitlines()
        peak = next(line for line in lines if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024
    import resource  # not on Windows

    peak_of_process = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak_of_process * (1 if sys.platform == "darwin" else 1024)


def repeat_call(function: Callable[[], Any], minimum: float = SAMPLE_SECONDS) -> Sample:
    """Return the seconds of a call, repeated to fill `minimum` seconds per sample."""
    function()  # can compile
    fastest, total, count = math.inf, 0.0, 0
    while count < WARM_UP_CALLS or total < 2 * minimum:
        seconds = _time_calls(function, 1)
        fastest, total, count = min(fastest, seconds), total + seconds, count + 1
    calls = int(minimum / fastest) + 1
    return lambda: _time_calls(function, calls) / calls


def _time_calls(function: Callable[[], Any], calls: int) -> float:
    start = perf_counter()
    for _ in range(calls):
        function()
    return perf_counter() - start


KINDS = {
    "fit": Kind(prepare_fit, "ms a step", 1e3),
    "predict": Kind(prepare_predict, "ms", 1e3),
    "call": Kind(prepare_call, "µs", 1e6),
    "function": Kind(prepare_function, "µs", 1e6),
    "start_cold": Kind(prepare_start, "s", 1.0, needs_new_process=True, cache="cold"),
    "start_warm": Kind(prepare_start, "s", 1.0, needs_new_process=True, cache="warm"),
    "memory": Kind(prepare_memory, "MB", 1e-6, needs_new_process=True),
}
