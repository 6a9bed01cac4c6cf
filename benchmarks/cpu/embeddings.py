"""Recommender with two embeddings of 1,000,000 x 64: training step time and memory.

    python benchmarks/cpu/embeddings.py --peers DIR
    python benchmarks/cpu/embeddings.py --rows 100000 --only sgd

Each tower is an embedding and a Dense layer; the score is their dot product. DIR is the
output of make_peers.sh: Keras on TensorFlow, whose gradients are IndexedSlices, and
torch with sparse gradients and SparseAdam. Without it, peers are imported from this
environment. Each runs in a separate process, and they alternate. Memory is the process
memory after the steps, relative to the weights and optimizer state.
"""

import argparse
import os
import sys
from contextlib import ExitStack, closing
from functools import cache, partial
from pathlib import Path
from time import perf_counter, sleep

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of harness.py

import numpy as np
from harness import REST, print_case, save
from pipeline_worker import resident

from toolkit.bench.processes import Worker, WorkerCommand, interleave_samples, serve

UNITS, BATCH, BATCHES = 64, 1024, 32
# Rows of new batches are not in a cache, as in an epoch.
WARM, TIMED = slice(BATCHES), slice(BATCHES, None)
# The number of arrays for each weight.
COPIES = {"adam": 3, "sgd": 1}


def with_keras(keras, rows, optimizer):
    """Build the same model in Keras code; toolkit has an Adam for rows."""
    layers, optimizers = keras.layers, keras.optimizers
    users, items = (keras.Input((), dtype="int32") for _ in range(2))
    towers = [
        layers.Dense(UNITS)(layers.Embedding(rows, UNITS)(x)) for x in (users, items)
    ]
    model = keras.Model([users, items], layers.Dot(-1)(towers))
    adam = getattr(optimizers, "LazyAdam", optimizers.Adam)
    optimizer_object = {"adam": adam, "sgd": optimizers.SGD}[optimizer](0.001)
    model.compile(optimizer_object, keras.losses.BinaryCrossentropy(from_logits=True))
    return lambda user, item, label: model.train_on_batch([user, item], label)


def with_toolkit(rows, optimizer):
    """Return a compiled step of `fit`."""
    import toolkit

    return with_keras(toolkit, rows, optimizer)


def with_tensorflow(rows, optimizer):
    """Return a step of `fit` in Keras on TensorFlow."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras

    return with_keras(keras, rows, optimizer)


def with_torch(rows, optimizer):
    """Return a step with sparse gradients: SparseAdam for tables, else Adam."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    tables = [torch.nn.Embedding(rows, UNITS, sparse=True) for _ in range(2)]
    layers = [torch.nn.Linear(UNITS, UNITS) for _ in range(2)]
    sparse = [p for table in tables for p in table.parameters()]
    dense = [p for layer in layers for p in layer.parameters()]
    loss_of = torch.nn.BCEWithLogitsLoss()
    if optimizer == "adam":
        optimizers = [torch.optim.SparseAdam(sparse), torch.optim.Adam(dense)]
    else:
        optimizers = [torch.optim.SGD([*sparse, *dense], 0.001)]

    def step(user, item, label):
        x, y = (
            layer(table(torch.from_numpy(ids)))
            for layer, table, ids in zip(layers, tables, (user, item), strict=True)
        )
        loss = loss_of((x * y).sum(-1, keepdim=True), torch.from_numpy(label))
        for opt in optimizers:
            opt.zero_grad()
        loss.backward()
        for opt in optimizers:
            opt.step()
        return float(loss.detach())

    return step


# By the names of the environments.
WAYS = {"toolkit": with_toolkit, "tensorflow": with_tensorflow, "torch": with_torch}


@cache
def steps(way, rows, optimizer):
    """Return a function that trains on each of some batches.

    The function has already been called for the warm-up batches.
    """
    rng = np.random.default_rng(0)
    step = WAYS[way](rows, optimizer)
    batches = [
        (
            *(rng.integers(0, rows, BATCH).astype("int32") for _ in range(2)),
            rng.integers(0, 2, (BATCH, 1)).astype("float32"),
        )
        for _ in range(2 * BATCHES)
    ]

    def take(selection):
        for batch in batches[selection]:
            step(*batch)

    take(WARM)  # zero moments get physical memory at the first write
    take(TIMED)
    return take


def prepare(way, rows, case):
    """Return a sampling function: seconds per step, or bytes relative to the state."""
    optimizer, figure = case.split()
    take = steps(way, rows, optimizer)
    state = 4 * COPIES[optimizer] * 2 * (rows + UNITS + 1) * UNITS

    def seconds():
        sleep(REST)
        take(WARM)
        start = perf_counter()
        take(TIMED)
        return (perf_counter() - start) / BATCHES

    return seconds if figure == "step" else lambda: resident() / state


def print_memory(case, outcome):
    """Print the memory of each process as a multiple of weights and moments."""
    multiples = ", ".join(f"{name} {x:.2f}" for name, x in outcome.medians.items())
    print(f"\n{case}, as multiples of weights and moments: {multiples}")


def python_of(way, options):
    """Return the interpreter that has a library."""
    if way == "toolkit" or options.peers is None:
        return sys.executable
    return str(Path(options.peers, way, "bin", "python"))


def compare(optimizer, options):
    """Measure all libraries in separate processes; print and return the rows."""
    with ExitStack() as stack:
        workers = {}
        for way in WAYS:
            python = python_of(way, options)
            if not Path(python).exists():
                print(f"{way} is left out: there is no {python}")
                continue
            entry = WorkerCommand((python, *sys.argv, "--worker", way))
            workers[way] = stack.enter_context(closing(Worker(entry)))
        rows = []
        for figure, show in (("step", print_case), ("memory", print_memory)):
            case = f"{optimizer} {figure}"
            asks = {way: partial(worker.query, case) for way, worker in workers.items()}
            outcome = interleave_samples(asks, options.runs if figure == "step" else 1)
            show(case, outcome)
            rows.append(outcome.row(case))
    return rows


def main():
    """Run the comparison, or run as one of its processes."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--json", metavar="PATH", help="where to keep every run")
    options.add_argument("--only", default="", choices=("", *COPIES))
    options.add_argument("--peers", metavar="DIR", help="their environments")
    options.add_argument("--worker", help=argparse.SUPPRESS)
    options = options.parse_args()
    if options.worker:
        serve(partial(prepare, options.worker, options.rows))
        return
    names = [name for name in COPIES if options.only in name]
    save(options.json, [row for name in names for row in compare(name, options)])


if __name__ == "__main__":
    main()
