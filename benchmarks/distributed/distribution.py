"""Ordered all-reduce compared with MPI's, over sizes and ranks.

    python benchmarks/distributed/distribution.py
    python benchmarks/distributed/distribution.py --ranks 2 --json sums.json

Calls of both alternate, so that the load of the machine affects both equally. A time is
the median over calls of the slowest rank's time. MPI's `Allreduce` guarantees no order,
and its bits depend on the number of ranks and on sizes. The bits of `comm.all_reduce`
do not.
"""

import argparse
import math
import statistics
import sys
import time

import jobs
import numpy as np

from toolkit import comm
from toolkit.comm import mpi
from toolkit.comm.ordered import prepare_all_reduce

SIZES = [1 << n for n in range(16, 27, 2)]  # bytes: 64 KB to 64 MB
QUICK = [1 << 10, 1 << 16]
SECONDS = 1.5  # for each size and implementation


def times_of(group, ways, seconds):
    """Return the median seconds of each implementation; calls alternate."""
    for way in ways.values():  # the first call prepares buffers for later calls
        _measure_once(group, way)
    first = sum(_measure_once(group, way) for way in ways.values())
    slowest = max(comm.exchange(group, first))
    count = max(3, min(500, int(seconds * len(ways) / slowest)))
    durations = np.empty((len(ways), count))
    for repetition in range(count):
        for position, way in enumerate(ways.values()):
            durations[position, repetition] = _measure_once(group, way)
    everyone = np.empty((group.size, *durations.shape))
    group.all_gather(durations, everyone)
    medians = np.median(everyone.max(axis=0), axis=1)
    return dict(zip(ways, medians.tolist(), strict=True))


def _measure_once(group, way):
    group.barrier()
    began = time.perf_counter()
    way()
    return time.perf_counter() - began


def work(path, sizes, seconds):
    """Run the work of one rank; the first rank writes the rows."""
    group = comm.world()
    api, leaves = mpi.library(), comm.Leaves.of_rows(group.size, group.size)
    rows = []
    for nbytes in sizes:
        term = np.random.default_rng(group.rank).random(nbytes // 4, "float32")
        out = np.empty_like(term)
        ways = {
            "Allreduce": lambda x=term, y=out: api.COMM_WORLD.Allreduce(x, y),
            # As in programs, whose arrays keep their addresses.
            "ordered": prepare_all_reduce(group, [[term]], leaves, [out])[0],
        }
        times = times_of(group, ways, seconds)
        rows.append({"ranks": group.size, "bytes": nbytes, **times})
    jobs.write(group, path, rows)


def show(rows):
    """Return a table, and the geometric mean and the maximum of the ratios."""
    print(f"{'ranks':>5} {'bytes':>12} {'Allreduce':>12} {'ordered':>12} {'ratio':>6}")
    for row in rows:
        row["ratio"] = row["ordered"] / row["Allreduce"]
        times = "".join(
            f"{row[way] * 1e6:9.0f} us " for way in ("Allreduce", "ordered")
        )
        print(f"{row['ranks']:5} {row['bytes']:12,} {times} {row['ratio']:6.2f}")
    ratios = [row["ratio"] for row in rows]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"ordered over Allreduce: {mean:.2f} in the mean, {max(ratios):.2f} at most")


def main():
    """Start the jobs, or run as one of their ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--quick", action="store_true", help="two sizes, a moment each")
    parser.add_argument("--json", help="file to write the rows to")
    parser.add_argument("--found", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes, seconds = options.sizes, options.seconds
    if options.quick:
        sizes, seconds = QUICK, 0.05
    if options.found:
        work(options.found, sizes, seconds)
        return 0
    work_of = "--seconds", seconds, "--sizes", *sizes
    rows = [row for n in options.ranks for row in jobs.run_job(n, *work_of)]
    show(rows)
    jobs.save(options.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
