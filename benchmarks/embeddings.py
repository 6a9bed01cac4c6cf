"""A recommender with two tables of 1,000,000 x 64: steps of training, and its memory.

Two towers: an embedding of users and one of items, a Dense layer on each, and the dot
product of both as the score. Each way runs in a process of its own; their rounds are
interleaved. A row has the wall time of a step and the CPU time of all its threads.

    python benchmarks/embeddings.py --peers DIR
    python benchmarks/embeddings.py --rows 100000 --optimizer sgd --ways toolkit

DIR is what benchmarks/make_peers.sh made. Without it peers are imported from this
environment; one that is not there is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Step = Callable[[Any, Any, Any], float]
UNITS = 64


def toolkit_step(rows: int, optimizer: str) -> Step:
    """A compiled step."""
    import toolkit
    from toolkit import layers, losses, optimizers

    found = {"adam": optimizers.LazyAdam, "sgd": optimizers.SGD}
    users = toolkit.Input((), dtype="int32")
    items = toolkit.Input((), dtype="int32")
    towers = [
        layers.Dense(UNITS)(layers.Embedding(rows, UNITS)(x)) for x in (users, items)
    ]
    model = toolkit.Model([users, items], layers.Dot(-1)(towers))
    loss = losses.BinaryCrossentropy(from_logits=True)
    model.compile(found[optimizer](0.001), loss)

    def step(user: Any, item: Any, label: Any) -> float:
        return float(model.train_on_batch([user, item], label))

    return step


def keras_step(rows: int, optimizer: str) -> Step:
    """A compiled step of Keras on TensorFlow, which has gradients of IndexedSlices."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras
    from keras import layers, losses, optimizers

    found = {"adam": optimizers.Adam, "sgd": optimizers.SGD}
    users = keras.Input((), dtype="int32")
    items = keras.Input((), dtype="int32")
    towers = [
        layers.Dense(UNITS)(layers.Embedding(rows, UNITS)(x)) for x in (users, items)
    ]
    model = keras.Model([users, items], layers.Dot(-1)(towers))
    loss = losses.BinaryCrossentropy(from_logits=True)
    model.compile(found[optimizer](0.001), loss)

    def step(user: Any, item: Any, label: Any) -> float:
        return float(model.train_on_batch([user, item], label))

    return step


def torch_step(rows: int, optimizer: str) -> Step:
    """Tables with sparse gradients, SparseAdam for them and Adam for the rest."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    tables = [torch.nn.Embedding(rows, UNITS, sparse=True) for _ in range(2)]
    towers = [torch.nn.Linear(UNITS, UNITS) for _ in range(2)]
    sparse = [p for table in tables for p in table.parameters()]
    dense = [p for tower in towers for p in tower.parameters()]
    if optimizer == "adam":
        optimizers = [torch.optim.SparseAdam(sparse), torch.optim.Adam(dense)]
    else:
        optimizers = [torch.optim.SGD([*sparse, *dense], 0.001)]
    loss_of = torch.nn.BCEWithLogitsLoss()

    def step(user: Any, item: Any, label: Any) -> float:
        inputs = (torch.from_numpy(user), torch.from_numpy(item))
        vectors = [
            tower(table(x))
            for tower, table, x in zip(towers, tables, inputs, strict=True)
        ]
        score = (vectors[0] * vectors[1]).sum(-1, keepdim=True)
        loss = loss_of(score, torch.from_numpy(label))
        for each in optimizers:
            each.zero_grad()
        loss.backward()
        for each in optimizers:
            each.step()
        return float(loss.detach())

    return step


# By the name of the environment.
WAYS = {"toolkit": toolkit_step, "tensorflow": keras_step, "torch": torch_step}


def work(way: str, options: argparse.Namespace) -> None:
    """Time rounds of steps, one for each line that comes in."""
    rng = np.random.default_rng(0)
    try:
        step = WAYS[way](options.rows, options.optimizer)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), flush=True)
        return
    size = options.batch
    batches = [
        (
            rng.integers(0, options.rows, size).astype("int32"),
            rng.integers(0, options.rows, size).astype("int32"),
            rng.integers(0, 2, (size, 1)).astype("float32"),
        )
        for _ in range(64)
    ]
    for batch in batches:  # moments that are zero get their memory when it is written
        step(*batch)
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        for i in range(options.steps):
            loss = step(*batches[i % len(batches)])
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        now = pages * resource.getpagesize()
        found = {"wall": wall, "cpu": cpu, "peak": peak, "now": now, "loss": loss}
        print(json.dumps(found), flush=True)


def interpreter_of(way: str, options: argparse.Namespace) -> str:
    """The Python that runs a way."""
    if way == "toolkit" or options.peers is None:
        return sys.executable
    return str(Path(options.peers, way, "bin", "python"))


def main() -> None:
    """Compare the ways, or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=50, help="of one round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--optimizer", choices=("adam", "sgd"), default="adam")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--peers", metavar="DIR", help="with their environments")
    parser.add_argument("--worker", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options)
        return
    compare(options)


def compare(options: argparse.Namespace) -> None:
    """Run the ways in turns and print a row for each."""
    workers = {}
    for way in options.ways:
        command = [interpreter_of(way, options), __file__, *sys.argv[1:]]
        worker = subprocess.Popen(
            [*command, "--worker", way],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        line = json.loads(worker.stdout.readline())  # type: ignore[union-attr]
        if "missing" in line:
            print(f"{way}: left out: {line['missing']}")
            worker.wait()
        else:
            workers[way] = worker
    rounds: dict[str, list[dict[str, float]]] = {way: [] for way in workers}
    for _ in range(options.rounds):
        for way, worker in workers.items():
            worker.stdin.write("go\n")  # type: ignore[union-attr]
            worker.stdin.flush()  # type: ignore[union-attr]
            line = json.loads(worker.stdout.readline())  # type: ignore[union-attr]
            rounds[way].append(line)
    copies = {"adam": 3, "sgd": 1}[options.optimizer]
    state = 4 * copies * 2 * (options.rows * UNITS + UNITS * UNITS + UNITS)
    print(f"{options.optimizer}, weights and moments: {state / 2**20:.0f} MiB")
    for way, found in rounds.items():
        wall, cpu = (
            1e3 * statistics.median(line[name] for line in found) / options.steps
            for name in ("wall", "cpu")
        )
        peak, now, loss = (found[-1][name] for name in ("peak", "now", "loss"))
        print(
            f"{way:10} {wall:8.2f} ms a step, {cpu:8.2f} ms of CPU; "
            f"memory {now / 2**20:6.0f} MiB, {now / state:.2f} x, at most "
            f"{peak / state:.2f} x; loss {loss:.4f}"
        )
    for worker in workers.values():
        worker.stdin.close()  # type: ignore[union-attr]
        worker.wait()


if __name__ == "__main__":
    main()
