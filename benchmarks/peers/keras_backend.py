"""Keras on toolkit beside the API of toolkit and the other backends of Keras.

    python benchmarks/peers/keras_backend.py --only mnist --json result.json

The Python that runs it needs Keras, TensorFlow, torch and JAX. The same Keras code runs
on each backend. Each has a separate process for each workload, and they alternate. The
table has two ratios of medians: to `fit` and the other methods of toolkit, and to the
best of the other backends. `--quick` runs tiny workloads once.
"""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import mean

from peers_worker import KERAS_BACKEND, PEERS, WORKERS

from toolkit.bench import suite
from toolkit.bench.report import OURS, relative_spread
from toolkit.bench.workloads import WORKLOADS

WORKER = Path(__file__).resolve().parent / "peers_worker.py"
BACKENDS = [name for name in PEERS if name.startswith("Keras/")]


def candidates():
    """Return toolkit, Keras on toolkit, and Keras on each installed backend."""
    yield suite.OURS
    for name in (KERAS_BACKEND, *BACKENDS):
        peer = WORKERS[name]
        if name == KERAS_BACKEND or find_spec(peer.folder):
            command = (sys.executable, str(WORKER), name)
            yield suite.Candidate(name, command, peer.kinds, peer.environment)


def ratios(row):
    """Return the ratios to the API of toolkit and to the best backend, or None."""
    medians = row["median"]
    measured = medians.get(KERAS_BACKEND)
    peers = [medians[name] for name in BACKENDS if name in medians]
    to_own = measured / medians[OURS] if measured and OURS in medians else None
    to_best = measured / min(peers) if measured and peers else None
    return to_own, to_best


def table(record):
    """Return the rows as a table of Markdown."""
    names = [OURS, KERAS_BACKEND, *BACKENDS]
    lines = [
        f"| workload | {' | '.join(names)} | over toolkit | over the best |",
        f"|---|{'--:|' * (len(names) + 2)}",
    ]
    for row in record["rows"]:
        if row["case"] not in WORKLOADS or KERAS_BACKEND not in row["median"]:
            continue
        cells = [
            f"{row['median'][name]:.4g} ±{relative_spread(row, name):.0%}"
            if name in row["median"]
            else ""
            for name in names
        ]
        cells += ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios(row)]
        lines.append(f"| {row['case']} | {' | '.join(cells)} |")
    best = [ratios(row)[1] for row in record["rows"] if row["case"] in WORKLOADS]
    best = [ratio for ratio in best if ratio is not None]
    if best:
        lines.append(f"\nMean of the ratios to the best backend: {mean(best):.2f}")
    return "\n".join(lines)


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    suite.add_options(parser)
    options = parser.parse_args()
    record = suite.run(list(candidates()), options)
    print(table(record))


if __name__ == "__main__":
    main()
