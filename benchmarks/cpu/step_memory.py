"""Memory allocations of a training step, and the tightness of its memory plan.

    python benchmarks/cpu/step_memory.py

New memory is tracemalloc's peak during steady steps of `fit`, from one callback call to
the next, so without the batch. The remainder is small Python objects and the logs.
NumPy's iterators use their smallest buffers, which are not arrays but count. Planned is
the size of the arena, compared with the live bytes at the schedule's peak.
"""

import runpy
import sys
import tracemalloc
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of harness.py

import numpy as np
from harness import parser, save

import toolkit

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STEPS = 6
# Example, batch size, shape and bound of the inputs, shape of the labels.
CASES = (
    ("digits_mlp", 32, (8, 8), 17, ()),
    ("digits_cnn", 32, (8, 8), 17, ()),
    ("cifar10_cnn", 32, (32, 32, 3), 256, (1,)),
    ("char_lm", 8, (64,), 96, (64,)),
)


class Peaks(toolkit.callbacks.Callback):
    """Callback that records the new memory of each step."""

    def __init__(self):
        super().__init__()
        self.peaks = []

    def on_train_batch_begin(self, batch, logs=None):
        tracemalloc.reset_peak()
        self.before, _ = tracemalloc.get_traced_memory()

    def on_train_batch_end(self, batch, logs=None):
        _, peak = tracemalloc.get_traced_memory()
        self.peaks.append(peak - self.before)


def build(name):
    """Build the model of an example, compiled."""
    model = runpy.run_path(str(EXAMPLES / f"{name}.py"))["build_model"]()
    logits = name == "char_lm"
    loss = toolkit.losses.SparseCategoricalCrossentropy(from_logits=logits)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


def measure(name, batch, shape, bound, labels):
    """Return a row: the peaks of new memory, and the plan."""
    random = np.random.default_rng(0)
    x = random.integers(0, bound, (STEPS * batch, *shape)).astype("uint8")
    y = random.integers(0, 10, (STEPS * batch, *labels)).astype("uint8")
    model, peaks = build(name), Peaks()
    options = {"batch_size": batch, "verbose": 0}
    model.fit(x, y, epochs=2, **options)
    size = np.setbufsize(16)
    tracemalloc.start()
    try:
        model.fit(x, y, epochs=2, callbacks=[peaks], **options)
    finally:
        tracemalloc.stop()
        np.setbufsize(size)
    plan = model.inspect(x[:batch], y[:batch])
    first, second = peaks.peaks[:STEPS], peaks.peaks[STEPS:]
    return {
        "case": name,
        # A Python table can grow at any moment, but not in every epoch.
        "new": min(max(first), max(second)),
        "planned": plan.peak_bytes,
        "live": plan.live_bytes,
        "ratio": plan.peak_bytes / plan.live_bytes,
    }


def main():
    """Print a row for each example."""
    options = parser(__doc__).parse_args()
    rows = []
    print(f"{'bytes':14}{'new in a step':>16}{'planned':>14}{'live':>14}{'ratio':>8}")
    for case in CASES:
        if options.only not in case[0]:
            continue
        row = measure(*case)
        rows.append(row)
        counts = "".join(f"{row[key]:14,}" for key in ("planned", "live"))
        print(f"{row['case']:14}{row['new']:16,}{counts}{row['ratio']:8.3f}")
    save(options.json, rows)


if __name__ == "__main__":
    main()
