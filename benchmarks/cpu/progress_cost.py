"""Overhead of a progress bar on a step of about a millisecond, drawn on a terminal.

    python benchmarks/cpu/progress_cost.py --rounds 9

Bar: 1 % of the step. Epochs with the bar, with a line at the end and without output
alternate in one process. Standard output is a pseudo-terminal that another thread
reads. The first epoch of each kind does not count.
"""

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from statistics import median
from threading import Thread
from time import perf_counter

import numpy as np

import toolkit
from toolkit import layers

KINDS = {"nothing": 0, "a bar": 1, "a line an epoch": 2}
BATCH = 128


def prepare(steps: int) -> Callable[[int], float]:
    """Return a function from `verbose` to the step seconds of one epoch."""
    toolkit.utils.set_random_seed(0)
    model = toolkit.Sequential(
        [
            toolkit.Input((512,)),
            layers.Dense(320, activation="relu"),
            layers.Dense(320, activation="relu"),
            layers.Dense(10),
        ]
    )
    model.compile("sgd", "mse", metrics=["mae"])
    random = np.random.default_rng(0)
    x = random.standard_normal((BATCH * steps, 512)).astype("float32")
    y = random.standard_normal((BATCH * steps, 10)).astype("float32")

    def seconds(verbose: int) -> float:
        start = perf_counter()
        model.fit(x, y, batch_size=BATCH, verbose=verbose)
        return (perf_counter() - start) / steps

    return seconds


def run_in_terminal() -> None:
    """Replace standard output by a terminal whose output is discarded."""
    ours, theirs = os.openpty()

    def read() -> None:
        with suppress(OSError):  # the other end is closed
            while os.read(ours, 1 << 16):
                pass

    Thread(target=read, daemon=True).start()
    sys.stdout = os.fdopen(theirs, "w")


def main() -> None:
    """Measure the kinds alternately and print the overhead of each per step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=1000, help="of an epoch")
    options = parser.parse_args()
    output = sys.stdout
    run_in_terminal()
    sample = prepare(options.steps)
    for verbose in KINDS.values():
        sample(verbose)
    times: dict[str, list[float]] = {name: [] for name in KINDS}
    for round_number in range(options.rounds):
        names = list(KINDS) if round_number % 2 else list(reversed(KINDS))
        for name in names:
            times[name].append(sample(KINDS[name]))
    sys.stdout = output
    base = times["nothing"]
    for name, times_of_kind in times.items():
        ratios = [
            measured / plain - 1
            for measured, plain in zip(times_of_kind, base, strict=True)
        ]
        print(
            f"{name:16} {median(times_of_kind) * 1e3:.3f} ms a step, "
            f"{median(ratios):+.2%} over nothing"
        )


if __name__ == "__main__":
    main()
