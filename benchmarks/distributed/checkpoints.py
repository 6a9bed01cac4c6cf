"""Checkpoints of a job: write time per rank, and the stall of training.

    python benchmarks/distributed/checkpoints.py
    python benchmarks/distributed/checkpoints.py --ranks 1 4 --megabytes 400

The benchmark repeatedly saves a model with Adam's slot variables, of a given total
size, with `wait=False`. "blocked" is the time of `save` on the slowest rank. "on disk"
is the time until the checkpoint has its final name. Both are medians without the first
save, which allocates the memory.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import jobs

import toolkit as tk
from toolkit import comm
from toolkit.distribution import Checkpoint, DataParallel, set_distribution

WAYS = {"all hold all": False, "split slots": True}
UNITS = 1024


def work(path, megabytes, saves):
    """Run the work of one rank; the first rank writes the rows."""
    rows, group = [], comm.world()
    for way, shard_optimizer in WAYS.items():
        set_distribution(DataParallel(shard_optimizer=shard_optimizer))
        count = max(1, round(megabytes * 1e6 / 12 / UNITS**2))
        dense = [tk.layers.Dense(UNITS) for _ in range(count)]
        model = tk.Sequential([tk.Input((UNITS,)), *dense])
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
        checkpoint = Checkpoint(model)
        folder = Path(path).parent
        blocked, unblocked = [], []
        for number in range(saves + 1):
            group.barrier()
            target = folder / f"{shard_optimizer}-{number}"
            began = time.perf_counter()
            checkpoint.save(target, wait=False)
            blocked.append(time.perf_counter() - began)
            checkpoint.wait()
            unblocked.append(time.perf_counter() - began)
            sizes = [file.stat().st_size for file in sorted(target.glob("*.bin"))]
        slowest = [
            max(times) for times in zip(*comm.exchange(group, blocked), strict=True)
        ]
        rows.append(
            {
                "ranks": group.size,
                "way": way,
                "bytes": sum(sizes),
                "largest share": max(sizes) / sum(sizes),
                "blocked": statistics.median(slowest[1:]),
                "on disk": statistics.median(unblocked[1:]),
            }
        )
    jobs.write(group, path, rows)


def show(rows):
    """Return a table."""
    print(f"{'ranks':>5} {'':13} {'MB':>6} {'share':>7} {'blocked':>10} {'on disk':>9}")
    for row in rows:
        print(
            f"{row['ranks']:5} {row['way']:13} {row['bytes'] / 1e6:6.0f} "
            f"{row['largest share']:7.2%} {row['blocked'] * 1e3:7.1f} ms "
            f"{row['on disk'] * 1e3:6.0f} ms"
        )


def main():
    """Start the jobs, or run as one of their ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--saves", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="a small model, one save")
    parser.add_argument("--json", help="file to write the rows to")
    parser.add_argument("--found", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.megabytes, options.saves = 12.0, 1
    if options.found:
        work(options.found, options.megabytes, options.saves)
        return 0
    sizes = "--megabytes", options.megabytes, "--saves", options.saves
    rows = [row for n in options.ranks for row in jobs.run_job(n, *sizes)]
    show(rows)
    jobs.save(options.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
