"""Input pipeline compared with tf.data, torch's DataLoader and a plain NumPy loop.

    benchmarks/peers/make_peers.sh ../peers
    python benchmarks/data/pipeline.py --peers ../peers

Each job runs in a separate process for each library, and they alternate. The script
prints the medians, the ratio to the baseline of the bar, and whether the bar is met.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of harness.py

from harness import save

WORKER = Path(__file__).with_name("pipeline_worker.py")
LIBRARIES = ("toolkit", "numpy", "torch", "tf.data")

GENERATORS = [  # with single elements, and in batches
    f"generator_{kind}_{size}"
    for kind in ("scalars", "images", "dicts")
    for size in (1, 32, 256)
]

Times = dict[str, float]


@dataclass
class Bar:
    """Bar that a result should reach.

    Attributes:
        figure: a function from the libraries' medians to the judged value.
        limit: the maximum value.
        words: its description.
    """

    figure: Callable[[Times], float]
    limit: float
    words: str


def peer_bar(name: str, limit: float) -> Bar:
    """Return a bar on our time divided by another library's."""
    return Bar(lambda t: t["toolkit"] / t[name], limit, f"time / {name}")


def of_ideal(seconds: float, limit: float) -> Bar:
    """Return a bar on our time divided by the minimum possible time."""
    return Bar(lambda t: t["toolkit"] / seconds, limit, f"time / {seconds:g} s")


JOBS = {
    "naive": [of_ideal(0.21, 1.03)],
    "prefetch": [of_ideal(0.17, 1.05)],
    "interleave": [of_ideal(0.80, 1.03)],
    "parallel_interleave": [of_ideal(0.29, 1.15)],
    "gather": [
        peer_bar("numpy", 1 / 0.8),
        peer_bar("tf.data", 0.2),
        peer_bar("torch", 0.2),
    ],
    "elements": [peer_bar("torch", 1.0), peer_bar("tf.data", 0.1)],
    **{job: [peer_bar("torch", 1.0)] for job in GENERATORS},
    "blocking": [of_ideal(1 / 3200, 1 / 0.95)],
    "python_bound": [
        Bar(lambda t: t["toolkit"] / t["one process"], 1 / 1.7, "time / one process")
    ],
    "files": [of_ideal(0.2, 1.1)],
    "first_batch": [of_ideal(1.0, 0.020)],
    "shuffle_memory": [of_ideal(1.0, 0.05)],
    "cache_memory": [of_ideal(1.0, 1.05)],
    "save_position": [of_ideal(1.0, 0.001)],
    "restore_position": [of_ideal(1.0, 0.001)],
}
PEERS_OF_JOB = {  # the other libraries of a job
    "gather": ("numpy", "torch", "tf.data"),
    "elements": ("torch", "tf.data"),
    **dict.fromkeys(GENERATORS, ("torch", "tf.data")),
    "blocking": ("torch", "tf.data"),
    "python_bound": ("one process",),
    "naive": ("tf.data",),
    "prefetch": ("tf.data",),
    "interleave": ("tf.data",),
    "parallel_interleave": ("tf.data",),
}


def interpreter(library: str, peers: Path | None) -> str | None:
    """Return the Python that has a library; None if there is none."""
    folder = {"torch": "torch", "tf.data": "tensorflow"}.get(library)
    if folder is None:
        return sys.executable
    python = peers and peers / folder / "bin" / "python"
    return str(python) if python and python.exists() else None


def sample(python: str, library: str, job: str) -> float:
    """Return one result: seconds (per element, for many), or a fraction of memory."""
    command = [python, str(WORKER), library, job]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"{library}, {job}:\n{result.stderr[-2000:]}")
    return float(json.loads(result.stdout.splitlines()[-1]))


def main() -> None:
    """Measure, print, save."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--peers", type=Path, help="what make_peers.sh has made")
    arguments.add_argument("--only", default="", help="jobs with this in their name")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--json", metavar="PATH", help="where to keep every sample")
    options = arguments.parse_args()
    record = {}
    for job, bars in JOBS.items():
        if options.only not in job:
            continue
        pythons = {"toolkit": sys.executable}
        for library in PEERS_OF_JOB.get(job, ()):
            python = interpreter(library, options.peers)
            if python is not None:
                pythons[library] = python
        seconds_by_library: dict[str, list[float]] = {
            library: [] for library in pythons
        }
        for _ in range(options.rounds):
            for library, python in pythons.items():
                seconds_by_library[library].append(sample(python, library, job))
        record[job] = seconds_by_library
        report(
            job,
            {name: median(values) for name, values in seconds_by_library.items()},
            bars,
        )
    save(options.json, record)


def report(job: str, times: Times, bars: list[Bar]) -> None:
    """Print a job's medians and bars."""
    figures = ", ".join(f"{name} {value:.4g}" for name, value in times.items())
    print(f"{job}: {figures}")
    for bar in bars:
        try:
            figure = bar.figure(times)
        except KeyError as missing:
            print(f"    no {missing}: not judged")
            continue
        verdict = "met" if figure <= bar.limit else "missed"
        print(f"    {bar.words}: {figure:.3g}, bar {bar.limit:.3g}: {verdict}")


if __name__ == "__main__":
    main()
