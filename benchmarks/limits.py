"""Steps of `fit` beside what their arithmetic takes at this processor's peak.

    python benchmarks/limits.py
    python benchmarks/limits.py --only gpt --runs 3 --json limits.json

Beside a measured step stand two times that no code of ours could be below. *Arithmetic*
is that of all operations of its kernels at the highest rate of float32 that the
processor reaches, with operands in registers. *Arithmetic or memory* counts for each
kernel the longer of that and of its traffic at the rate of copies in memory; what comes
from a cache is quicker than that, so a step may be below it.
"""

import argparse
import statistics

import fits
from harness import save

import toolkit as tk
from toolkit.bench.measure import epoch_timer
from toolkit.bench.workloads import WORKLOADS

FITS = {name.partition("/")[0]: w for name, w in WORKLOADS.items() if w.kind == "fit"}
NAMES = ("toolkit", "arithmetic", "arithmetic or memory")


def measured(workload, runs, quick):
    """Seconds of each run's step, and the two times below it."""
    workload = workload.shortened() if quick else workload
    model, (x, y) = workload.build(tk), workload.make_data()
    timer = epoch_timer(tk)
    options = {"batch_size": workload.batch, "verbose": 0, "callbacks": [timer]}
    found = []
    for _ in range(runs + 1):  # the first one compiles
        model.fit(x, y, **options)
        found.append(timer.seconds / workload.steps)
    plan = model.inspect(x[: workload.batch], y[: workload.batch])
    rate, traffic = plan.program.backend.peaks()
    times = [(kernel.flops / rate, kernel.nbytes / traffic) for kernel in plan.kernels]
    return found[1:], sum(a for a, _ in times), sum(map(max, times))


def main():
    """Measure each, one after the other."""
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
        runs = 1 if options.quick else options.runs
        samples, *limits = measured(workload, runs, options.quick)
        values = dict(zip(NAMES, (samples, *([t] for t in limits)), strict=True))
        median = {of: statistics.median(times) for of, times in values.items()}
        rows.append({"case": name, "median": median, "samples": values})
        text = ", ".join(f"{of} {1e3 * t:.3g} ms" for of, t in median.items())
        print(f"{name}: {text}; {median['toolkit'] / limits[0]:.2f}", flush=True)
        save(options.json, rows, threads=options.threads, peers=["arithmetic"])


if __name__ == "__main__":
    main()
