"""Training steps of torch's DistributedDataParallel, for distributed_steps.py.

    torch/bin/python benchmarks/distributed/distributed_torch.py mnist_mlp --steps 30

Two processes over gloo with one thread each train the networks of peers_torch.py on
half of a batch each. The script prints the median step time of the slower process, as
JSON: eager, or compiled by torch.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "peers"))

import peers_torch
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from toolkit.bench.workloads import WORKLOADS

RANKS = 2


def work(rank, name, steps, compiled):
    """Run the work of one process; the first one prints the median."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    distributed.init_process_group("gloo", rank=rank, world_size=RANKS)
    workload = WORKLOADS[f"{name}/fit"]
    recipe = peers_torch.RECIPES[name]
    half = workload.batch // RANKS
    x, y = (array[rank * half :][:half] for array in peers_torch.tensors(workload))
    x = peers_torch.inputs(x)
    model = DistributedDataParallel(peers_torch.build(recipe).train())
    optimizer = recipe.optimizer(model.parameters())

    def loss_of(x, y):
        outputs = model(x)
        hits = None if recipe.hits is None else recipe.hits(outputs, y)
        return recipe.loss(outputs, y), hits

    forward = torch.compile(loss_of) if compiled else loss_of
    durations = []
    for _ in range(steps + 5):
        distributed.barrier()
        began = time.perf_counter()
        optimizer.zero_grad()
        loss, _ = forward(x, y)
        loss.backward()
        optimizer.step()
        loss.item()
        durations.append(time.perf_counter() - began)
    times = torch.tensor(durations[5:], dtype=torch.float64)
    distributed.all_reduce(times, distributed.ReduceOp.MAX)
    if rank == 0:
        print(statistics.median(times.tolist()))
    distributed.barrier()
    distributed.destroy_process_group()


def run(name, steps, compiled):
    """Return the median seconds of a step of two processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, name, "--steps", str(steps)]
    command += ["--compiled"] if compiled else []
    processes = [
        subprocess.Popen(
            [*command, "--rank", str(rank)],
            env={**os.environ, **where},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError(f"{name}: a process of torch has failed")
    return float(outputs[0].split()[-1])


def main():
    """Start the processes, or run as one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", choices=peers_torch.RECIPES)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--compiled", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        work(options.rank, options.network, options.steps, options.compiled)
        return
    ways = {"written": False, "compiled": True}
    print(
        json.dumps({k: run(options.network, options.steps, v) for k, v in ways.items()})
    )


if __name__ == "__main__":
    main()
