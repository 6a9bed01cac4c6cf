"""Steps of `fit` compared with the time of their arithmetic in large products.

    python benchmarks/peers/limits.py
    python benchmarks/peers/limits.py --only gpt --runs 3 --json limits.json

*Arithmetic* is the time of all operations of a step's kernels at the rate of the
fastest 1,024 x 1,024 product in float32, by toolkit or by NumPy's BLAS. The products
alternate with the epochs. *Arithmetic or memory* takes for each kernel the longer of
this time and of its memory traffic at the rate of copies. Cache hits are faster, so a
step can be below this bound.
"""

import argparse
import statistics
import sys
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of harness.py

import fits
import numpy as np
from harness import save

import toolkit as tk
from toolkit.bench.measure import repeat_call
from toolkit.bench.workloads import WORKLOADS

FITS = {name.partition("/")[0]: w for name, w in WORKLOADS.items() if w.kind == "fit"}
NAMES = ("toolkit", "arithmetic", "arithmetic or memory")
SIDE = 1024


def products():
    """Return a sampling function of two large products: toolkit's and NumPy's."""
    x = np.random.default_rng(0).random((2, SIDE, SIDE), dtype="float32")
    ours = partial(tk.function(tk.ops.matmul), *map(tk.ops.array, x))
    return repeat_call(ours), repeat_call(partial(np.matmul, *x))


def measure(workload, runs):
    """Return the seconds of each run's step, and its two bounds."""
    trainer, samples = fits.KerasTrainer(fits.OURS, workload), products()
    trainer.epoch()  # compiles
    steps, spent = [], []
    for _ in range(runs):
        steps.append(trainer.epoch()[0] / workload.steps)
        spent.append([sample() for sample in samples])
    rate = 2 * SIDE**3 / min(map(statistics.median, zip(*spent, strict=True)))
    plan = trainer.model.inspect(*(array[: workload.batch] for array in trainer.data))
    _, traffic = plan.program.backend.generator.peak_rates()
    times = [(kernel.flops / rate, kernel.nbytes / traffic) for kernel in plan.kernels]
    return steps, sum(a for a, _ in times), sum(map(max, times))


def main():
    """Measure each workload in sequence."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=7)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--json", metavar="PATH", help="where to keep every run")
    options.add_argument("--only", default="", help="networks with this in their name")
    options.add_argument("--quick", action="store_true", help="tiny batches, one run")
    options = options.parse_args()
    tk.config.set_num_threads(options.threads)
    rows = []
    for name, workload in (FITS | fits.WORKLOADS).items():
        if options.only not in name:
            continue
        if options.quick:
            samples, *limits = measure(workload.shorten(), 1)
        else:
            samples, *limits = measure(workload, options.runs)
        values = dict(zip(NAMES, (samples, *([t] for t in limits)), strict=True))
        median = {of: statistics.median(times) for of, times in values.items()}
        rows.append({"case": name, "median": median, "samples": values})
        text = ", ".join(f"{of} {1e3 * t:.3g} ms" for of, t in median.items())
        print(f"{name}: {text}; {median['toolkit'] / limits[0]:.2f}", flush=True)
        save(options.json, rows, threads=options.threads, peers=["arithmetic"])


if __name__ == "__main__":
    main()
