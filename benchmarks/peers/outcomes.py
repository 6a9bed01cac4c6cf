"""Learning outcomes of small networks, compared with Keras from random initial weights.

    python benchmarks/peers/outcomes.py --peer-python PYTHON
    python benchmarks/peers/outcomes.py --peer-python PYTHON --only lstm --seeds 50

Tests compare layers with fixed weights. So they cannot check weight initialization and
the scale of noise. This script trains each network with several seeds on both sides.
The random numbers differ, so only means are comparable. It prints each difference in
standard errors, and a difference of more than 4 makes the exit status 1. Chance alone
causes that once in about 100 runs; more seeds give certainty. PYTHON has Keras, with
torch or JAX.
"""

import argparse
import os
import sys
from contextlib import ExitStack, closing
from functools import cache, partial
from itertools import count
from pathlib import Path
from statistics import fmean, variance

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of harness.py

from harness import save
from outcomes_networks import NETWORKS

from toolkit.bench.processes import Worker, WorkerCommand, interleave_samples, serve

FIGURES = ("first epoch", "last epoch", "evaluated")
LIMIT = 4.0  # standard errors
SIDES = ("toolkit", "keras")


@cache
def losses(side, network, seed):
    """Return the mean loss of the first and last epoch, and the final loss."""
    if side == "toolkit":
        import toolkit as keras
    else:
        os.environ.setdefault("KERAS_BACKEND", "torch")
        import keras
    keras.utils.set_random_seed(seed)
    lesson = NETWORKS[network](keras)
    x, y, epochs = lesson.inputs, lesson.targets, lesson.epochs
    history = lesson.model.fit(x, y, batch_size=32, epochs=epochs, verbose=0)
    losses_of_epochs = history.history["loss"]
    return (
        losses_of_epochs[0],
        losses_of_epochs[-1],
        float(lesson.model.evaluate(x, y, verbose=0)),
    )


def prepare(side, case):
    """Return a function that returns the result of the next seed."""
    network, figure = case.split(":")
    seeds = count()
    return lambda: losses(side, network, next(seeds))[FIGURES.index(figure)]


def standard_errors(ours, theirs):
    """Return the difference of the means, in standard errors."""
    error = (variance(ours) / len(ours) + variance(theirs) / len(theirs)) ** 0.5
    return (fmean(ours) - fmean(theirs)) / max(error, 1e-9)


def compare(network, workers, seeds):
    """Train it on both sides; print and return the results."""
    rows = []
    for figure in FIGURES:
        case = f"{network}:{figure}"
        asks = {side: partial(worker.query, case) for side, worker in workers.items()}
        outcome = interleave_samples(asks, seeds)
        row = outcome.row(case)
        rows.append(row)
        problems = outcome.skipped | outcome.failed
        if problems:
            print(f"{network:18} {problems}")
            continue
        ours, theirs = (outcome.values[side] for side in SIDES)
        row["standard errors"] = difference = standard_errors(ours, theirs)
        mark = "  <<<" if abs(difference) > LIMIT else ""
        print(
            f"{network:18} {figure:12} {fmean(ours):9.4f} {fmean(theirs):9.4f} "
            f"{difference:+6.1f}{mark}"
        )
    return rows


def main():
    """Run the comparison, or run as one of its processes."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=12)
    options.add_argument("--only", default="", help="part of a network's name")
    options.add_argument("--json", metavar="PATH", help="where to keep every run")
    options.add_argument("--peer-python", default=sys.executable, metavar="PYTHON")
    options.add_argument("--worker", choices=SIDES, help=argparse.SUPPRESS)
    options = options.parse_args()
    if options.worker:
        serve(partial(prepare, options.worker))
        return
    print(f"{'':31} {'toolkit':>9} {'Keras':>9}  apart")
    pythons = dict(zip(SIDES, (sys.executable, options.peer_python), strict=True))
    with ExitStack() as stack:
        workers = {}
        for side, python in pythons.items():
            entry = WorkerCommand((python, sys.argv[0], "--worker", side))
            workers[side] = stack.enter_context(closing(Worker(entry)))
        rows = [
            row
            for network in NETWORKS
            if options.only in network
            for row in compare(network, workers, options.seeds)
        ]
    save(options.json, rows)
    differences = [abs(row.get("standard errors", LIMIT + 1)) for row in rows]
    if not differences or max(differences) > LIMIT:
        sys.exit(1)


if __name__ == "__main__":
    main()
