"""Training steps on two ranks: compared with one process, and over a slow link.

    python benchmarks/distributed/distributed_steps.py
    python benchmarks/distributed/distributed_steps.py --networks gpt --json steps.json
    python benchmarks/distributed/distributed_steps.py --torch peers/torch/bin/python

On a busy machine, `chrt -r 5` before the command prevents interference. Jobs alternate,
because the load of the machine changes with time. "one" is a process with two threads.
"two" is two ranks with one thread each. "waiting" and "link" are two ranks on a link of
100 MB/s and 1 ms, injected by TOOLKIT_LINK. "waiting" exchanges after the backward
pass, "link" during it. The bound of "link" is 1.15 times the longer of computation
("two") and transfer, plus the time of the first sum. "torch" is DistributedDataParallel
over gloo on two ranks with one thread each, eager or compiled, whichever is faster.
"predicted" is the estimate of `distribution.simulate` for "two" and for "link".
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import jobs

from toolkit import comm, distribution
from toolkit.bench.workloads import WORKLOADS
from toolkit.ir import Kind

NETWORKS = ("cifar_cnn", "gpt", "mnist_mlp")
LINK = "0.001,100e6"
# Name -> ranks, threads per rank, and settings.
JOBS = {
    "one": (1, 2, {}),
    "two": (2, 1, {}),
    "waiting": (2, 1, {"TOOLKIT_LINK": LINK, "TOOLKIT_OVERLAP": "off"}),
    "link": (2, 1, {"TOOLKIT_LINK": LINK}),
}


# The input of the simulator: ranks on one machine, and the link between them.
LINKS = {
    "two": distribution.Link(ranks_per_node=2),
    "link": distribution.Link(
        ranks_per_node=2, node_latency=0.001, node_bandwidth=100e6
    ),
}


def let_exchange_wake():
    """Let the exchange thread preempt compute threads, which `chrt` prevents."""
    if os.sched_getscheduler(0) in (os.SCHED_RR, os.SCHED_FIFO):
        above = os.sched_param(os.sched_getparam(0).sched_priority + 1)
        for thread in threading.enumerate():
            if thread.name == "toolkit exchange":
                os.sched_setscheduler(thread.native_id, os.SCHED_RR, above)


def work(path, name, steps, batch):
    """Run the work of one rank; the first rank writes its result."""
    import toolkit

    group = comm.world()
    toolkit.utils.set_random_seed(0)
    if group.size > 1:
        distribution.set_distribution(distribution.DataParallel())
    workload = WORKLOADS[f"{name}/fit"]
    x, y = workload.data(batch or workload.batch)
    model = workload.build(toolkit)
    durations = []
    for number in range(steps + 3):
        if number == 2:
            let_exchange_wake()
        group.barrier()
        began = time.perf_counter()
        model.train_on_batch(x, y)
        durations.append(time.perf_counter() - began)
    slowest = [
        max(times) for times in zip(*comm.exchange(group, durations), strict=True)
    ]
    report = model.make_train_function().inspect()
    report.measure()
    sent = [k for k in report.kernels if k.nodes[0].op.kind is Kind.COLLECTIVE]
    seconds = [k.seconds or 0.0 for k in sent]
    row = {"step": statistics.median(slowest[3:]), "sent": sum(seconds)}
    row |= {"first": seconds[0] if seconds else 0.0, "sums": len(sent)}
    jobs.write(group, path, row)


def predict(path, name, batch):
    """Write the simulator's estimate for each link."""
    import toolkit

    toolkit.utils.set_random_seed(0)
    workload = WORKLOADS[f"{name}/fit"]
    rows = batch or workload.batch
    x, y = workload.data(rows)
    model = workload.build(toolkit)
    model.train_on_batch(x, y)
    predictions = {}
    for job, link in LINKS.items():
        os.environ.update(JOBS[job][2])
        simulation = distribution.simulate(
            model, 2, link, rows // 2, x=x, y=y, overlap=job == "link"
        )
        predictions[job] = simulation.of("data parallel", 2).seconds
    jobs.write(comm.world(), path, predictions)


def run(name, job, options):
    """Return the result of one job, or "predicted"."""
    ranks, threads, variables = JOBS.get(job, (1, 1, {}))
    script = ["--networks", name, "--steps", options.steps, "--batch", options.batch]
    script += ["--predict"] if job == "predicted" else []
    settings = {"TOOLKIT_NUM_THREADS": str(threads), **variables}
    return jobs.run_job(ranks, *script, **settings)


def run_torch(name, options):
    """Return the time of a step with two ranks of torch."""
    script = Path(__file__).with_name("distributed_torch.py")
    command = [options.torch, str(script), name, "--steps", str(options.steps)]
    environment = {**os.environ, "PYTHONPATH": str(script.resolve().parents[2])}
    process = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return min(json.loads(process.stdout).values())


def measure(name, options):
    """Return the medians over rounds, in which all jobs of a network alternate."""
    rounds, torch = [], []
    for _ in range(options.rounds):
        rounds.append({job: run(name, job, options) for job in [*JOBS, "predicted"]})
        if options.torch:
            torch.append(run_torch(name, options))
    row = {"network": name}
    if torch:
        row["torch"] = statistics.median(torch)
    for job in JOBS:
        row[job] = statistics.median(result[job]["step"] for result in rounds)
    for job in LINKS:
        predicted = statistics.median(result["predicted"][job] for result in rounds)
        row[f"predicted {job}"] = predicted
    for key in ("sent", "first", "sums"):
        row[key] = statistics.median(result["link"][key] for result in rounds)
    row["ranks over threads"] = row["two"] / row["one"]
    row["bound"] = 1.15 * max(row["two"], row["sent"]) + row["first"]
    return row


def show(rows):
    """Return a table in milliseconds."""
    columns = [*JOBS, "sent", "first", "bound"]
    print(f"{'ms':10}", *(f"{c:>8}" for c in columns), "  two/one  link/bound  sums")
    for row in rows:
        times = (f"{1e3 * row[column]:8.2f}" for column in columns)
        share = row["link"] / row["bound"]
        ratios = f"{row['ranks over threads']:9.2f}  {share:10.2f}  {row['sums']:4.0f}"
        print(f"{row['network']:10}", *times, ratios)
        for job in LINKS:
            seconds = row[f"predicted {job}"]
            print(
                f"{'':10} {job}: predicted {1e3 * seconds:.2f}, "
                f"{seconds / row[job]:.2f}"
            )
        if "torch" in row:
            share = row["two"] / row["torch"]
            print(f"{'':10} torch {1e3 * row['torch']:.2f}, two/torch {share:.2f}")


def main():
    """Start the jobs, or run as one of their ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=0, help="rows, if not as usual")
    parser.add_argument("--json", help="file to write the rows to")
    parser.add_argument("--torch", help="the interpreter of make_peers.sh's torch")
    parser.add_argument("--found", help=argparse.SUPPRESS)
    parser.add_argument("--predict", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.predict:
        predict(options.found, options.networks[0], options.batch)
        return 0
    if options.found:
        work(options.found, options.networks[0], options.steps, options.batch)
        return 0
    rows = [measure(name, options) for name in options.networks]
    show(rows)
    jobs.save(options.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
