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

SAMPLE = 0.1  # minimum seconds of one sample of a short call
WARM_UP = 5  # calls before the first sample, after the first call


@dataclass(frozen=True)
class Kind:
    """Kind of measurement of a workload.

    prepare: a function (workload, name of keras) -> a function that takes a sample.
    unit, scale: the printed unit, and the factor from seconds or bytes.
    fresh: whether every sample needs a new process.
    cache: "cold" for an empty cache of compiled code each time, "warm" for a cache that
    an earlier process filled, "" for the user's cache.
    """

    prepare: Callable[[Workload, str], Sample]
    unit: str
    scale: float
    fresh: bool = False
    cache: str = ""


def fit(workload: Workload, keras: str) -> Sample:
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


def predict(workload: Workload, keras: str) -> Sample:
    """Return the seconds of `predict`."""
    model = workload.build(import_module(keras))
    x, _ = workload.make_data()
    return repeated(lambda: model.predict(x, batch_size=workload.batch, verbose=0))


def call(workload: Workload, keras: str) -> Sample:
    """Return the seconds of `model(x)`."""
    module = import_module(keras)
    return _called(workload.build(module), module, workload)


def function(workload: Workload, keras: str) -> Sample:
    """Return the seconds of a call of the model as a compiled function."""
    module = import_module(keras)
    return _called(module.function(workload.build(module)), module, workload)


def _called(model: Any, keras: Any, workload: Workload) -> Sample:
    x, _ = workload.make_data()
    x = keras.ops.convert_to_tensor(x)
    if hasattr(model(x), "block_until_ready"):
        return repeated(lambda: model(x).block_until_ready())
    return repeated(lambda: model(x))


def start(workload: Workload, keras: str) -> Sample:
    """Return the seconds from the import to the first step; once per process."""

    def sample() -> float:
        began = perf_counter()
        module = import_module(keras)
        model = workload.build(module)
        model.train_on_batch(*workload.make_data())
        return perf_counter() - began

    return sample


def memory(workload: Workload, keras: str) -> Sample:
    """Return the peak memory of the process after two epochs of `fit`, in bytes."""
    epoch = fit(workload, keras)

    def sample() -> float:
        epoch()
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


def repeated(function: Callable[[], Any], least: float = SAMPLE) -> Sample:
    """Return the seconds of a call, repeated so that a sample takes `least` seconds."""
    function()  # can compile
    fastest, spent, count = math.inf, 0.0, 0
    while count < WARM_UP or spent < 2 * least:
        seconds = _timed(function, 1)
        fastest, spent, count = min(fastest, seconds), spent + seconds, count + 1
    calls = int(least / fastest) + 1
    return lambda: _timed(function, calls) / calls


def _timed(function: Callable[[], Any], calls: int) -> float:
    start = perf_counter()
    for _ in range(calls):
        function()
    return perf_counter() - start


KINDS = {
    "fit": Kind(fit, "ms a step", 1e3),
    "predict": Kind(predict, "ms", 1e3),
    "call": Kind(call, "µs", 1e6),
    "function": Kind(function, "µs", 1e6),
    "start_cold": Kind(start, "s", 1.0, fresh=True, cache="cold"),
    "start_warm": Kind(start, "s", 1.0, fresh=True, cache="warm"),
    "memory": Kind(memory, "MB", 1e-6, fresh=True),
}
