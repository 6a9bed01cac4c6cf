"""Training step of the digits networks: comparison with Keras, and a profile.

    python benchmarks/cpu/digits_step.py --peer-python ../peers/bin/python

After the comparison, the script prints a profile of toolkit: the seconds inside
kernels, the Python overhead around them, and the slowest kernels.
"""

import runpy
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of harness.py

from harness import Candidate, main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CASES = ["digits_mlp", "digits_cnn"]
BATCH, STEPS = 32, 45


def digits():
    """Return random uint8 images and labels for an epoch of the examples."""
    import numpy as np

    random = np.random.default_rng(0)
    x = random.integers(0, 17, (BATCH * STEPS, 8, 8)).astype("uint8")
    return x, random.integers(0, 10, BATCH * STEPS).astype("uint8")


def build(case):
    """Build and compile the network of the example."""
    import toolkit

    model = runpy.run_path(str(EXAMPLES / f"{case}.py"))["build_model"]()
    rate = toolkit.optimizers.schedules.CosineDecay(2e-3, 900)
    model.compile(
        optimizer=toolkit.optimizers.Adam(rate),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def with_toolkit(case):
    """Return an epoch of `fit` of the example's network, and its number of steps."""
    model, (x, y) = build(case), digits()
    return lambda: model.fit(x, y, batch_size=BATCH, verbose=0), STEPS


def with_keras(case):
    """Run the same example with Keras under the name of toolkit."""
    import types

    import keras

    datasets = types.ModuleType("toolkit.datasets")
    datasets.digits = None
    sys.modules |= {"toolkit": keras, "toolkit.datasets": datasets}
    return with_toolkit(case)


def account(case, runs):
    """Print the time of a step's kernels, and the overhead around them."""
    sample = CANDIDATES[0].prepare(case)
    step = min(sample() for _ in range(runs))
    model, (x, y) = build(case), digits()
    kernels = model.inspect(x[:BATCH], y[:BATCH]).measure(max(runs, 5))
    total = sum(kernel.seconds or 0 for kernel in kernels)
    print(f"\n{case}: a step takes {step * 1e6:.0f} us at best, ", end="")
    print(f"its {len(kernels)} kernel calls {total * 1e6:.0f} us;")
    print(f"  outside of them: {max(0, 1 - total / step):.0%}")
    ranked = sorted(kernels, key=lambda kernel: -(kernel.seconds or 0))
    for kernel in ranked[:8]:
        seconds = kernel.seconds or 0
        print(f"  {kernel.name:40.40} {seconds * 1e6:8.0f} us  {seconds / total:6.1%}")


CANDIDATES = (
    Candidate("toolkit", with_toolkit),
    Candidate("keras on torch", with_keras, True, {"KERAS_BACKEND": "torch"}),
    Candidate("keras on jax", with_keras, True, {"KERAS_BACKEND": "jax"}),
)

if __name__ == "__main__":
    if options := main(__doc__, CASES, CANDIDATES):
        for case in CASES:
            if options.only in case:
                account(case, options.runs)
