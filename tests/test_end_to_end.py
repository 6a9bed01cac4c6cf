"""End-to-end tests: training converges, is reproducible, and allocates no arrays."""

import os
import runpy
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import toolkit
from toolkit import callbacks, layers
from toolkit.datasets import digits

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
DIGEST = """
import hashlib, runpy, sys
model = runpy.run_path(sys.argv[1])["main"](sys.argv[2:])
weights = b"".join(array.tobytes() for array in model.get_weights())
print(hashlib.sha256(weights).hexdigest())
"""


def example(name, **options):
    """Return the compiled network of an example."""
    model = runpy.run_path(str(EXAMPLES / f"{name}.py"))["build_model"]()
    loss = "sparse_categorical_crossentropy"
    model.compile("adam", loss, metrics=["accuracy"], **options)
    return model


def test_a_network_learns_real_digits():
    toolkit.utils.set_random_seed(0)
    (x_train, y_train), (x_test, y_test) = digits.load_data()
    model = example("digits_mlp")
    _, before = model.evaluate(x_test, y_test, verbose=0)
    history = model.fit(x_train, y_train, epochs=4, verbose=0).history
    _, after = model.evaluate(x_test, y_test, verbose=0)
    assert before < 0.3
    assert after > 0.9
    assert history["loss"] == sorted(history["loss"], reverse=True)


def weights_of_a_new_process(name, arguments, hash_seed):
    """Return the hash of the weights after training in a new process."""
    process = subprocess.run(
        [sys.executable, "-c", DIGEST, str(EXAMPLES / f"{name}.py"), *arguments],
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()[-1]


@pytest.mark.parametrize("name", ["digits_mlp", "digits_cnn"])
def test_the_same_seed_gives_the_same_bits(name):
    def train(hash_seed, seed="3"):
        options = ["--epochs", "1", "--seed", seed]
        return weights_of_a_new_process(name, options, hash_seed)

    assert train("0") == train("1")
    if name == "digits_mlp":
        assert train("0", seed="4") != train("0")


def test_traced_and_eager_steps_agree():
    results = []
    for run_eagerly in (False, True):
        toolkit.utils.set_random_seed(0)
        (x, y), _ = digits.load_data()
        model = example("digits_mlp", run_eagerly=run_eagerly)
        model.fit(x[:96], y[:96], epochs=1, shuffle=False, verbose=0)
        results.append(model.get_weights())
    # Generated functions round differently from NumPy.
    for traced, eager in zip(*results, strict=True):
        np.testing.assert_allclose(traced, eager, rtol=1e-4, atol=1e-6)


# --- memory ---------------------------------------------------------------------------

STEPS = 4


class NewMemory(callbacks.Callback):
    """Record tracemalloc's peak of each step, and the arrays that remain after it."""

    def __init__(self):
        super().__init__()
        self.peaks = []

    def on_train_batch_begin(self, batch, logs=None):
        tracemalloc.reset_peak()
        self.before, _ = tracemalloc.get_traced_memory()

    def on_train_batch_end(self, batch, logs=None):
        _, peak = tracemalloc.get_traced_memory()
        self.peaks.append(peak - self.before)


def large_arrays(snapshot):
    """Count the live arrays of more than 1 KB that exist since tracing started."""
    only = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    return sum(trace.size > 1024 for trace in snapshot.filter_traces([only]).traces)


def recurrent():
    model = toolkit.Sequential(
        [
            toolkit.Input((8, 8)),
            layers.LSTM(16, dropout=0.2),
            layers.Dense(10, activation="softmax"),
        ]
    )
    optimizer = toolkit.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=1.0)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


MODELS = {
    "digits_mlp": lambda: example("digits_mlp"),
    "digits_cnn": lambda: example("digits_cnn"),
    "recurrent": recurrent,
}


@pytest.mark.parametrize("name", MODELS)
def test_steady_step_allocates_no_arrays(name):
    batch = 512
    random = np.random.default_rng(0)
    x = random.integers(0, 17, (STEPS * batch, 8, 8)).astype("uint8")
    y = random.integers(0, 10, STEPS * batch).astype("uint8")
    model, memory = MODELS[name](), NewMemory()
    options = {"batch_size": batch, "verbose": 0}
    model.fit(x, y, epochs=2, **options)
    # The buffers of NumPy's iterators are not arrays: use the minimum buffer size.
    size = np.setbufsize(16)
    tracemalloc.start()
    try:
        model.fit(x, y, epochs=3, callbacks=[memory], **options)
        arrays_before = large_arrays(tracemalloc.take_snapshot())
    finally:
        tracemalloc.stop()
        np.setbufsize(size)
    # The limit covers small Python objects; the smallest array of a batch, (512, 10),
    # has 20 KB. The best epoch counts, because a table of Python may grow at any
    # moment.
    epochs = [memory.peaks[i : i + STEPS] for i in range(0, len(memory.peaks), STEPS)]
    assert min(map(max, epochs)) < 16_000
    assert arrays_before <= 2  # the last batch


@pytest.mark.parametrize("name", MODELS)
def test_the_plan_is_tight(name):
    x, y = np.zeros((32, 8, 8), "uint8"), np.zeros(32, "uint8")
    plan = MODELS[name]().inspect(x, y)
    assert plan.live_bytes <= plan.peak_bytes <= 1.2 * plan.live_bytes
    assert f"peak {plan.peak_bytes:,} bytes" in str(plan)


# --- one step by hand -----------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"use_ema": True}, {"amsgrad": True}])
def test_an_optimizer_is_built_in_its_first_traced_step(options):
    w = toolkit.Variable([3.0, -2.0])
    optimizer = toolkit.optimizers.Adam(0.1, **options)

    @toolkit.function
    def step():
        with toolkit.GradientTape() as tape:
            loss = toolkit.ops.sum(w * w)
        optimizer.apply(tape.gradient(loss, [w]), [w])
        return loss

    losses = [float(step()) for _ in range(20)]
    assert losses == sorted(losses, reverse=True)
    assert int(optimizer.iterations) == 20
