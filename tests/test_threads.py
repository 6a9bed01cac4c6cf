"""Tests of threads and processes: the same bits for any number, at any time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from textwrap import dedent

import numpy as np
import pytest

import toolkit
from toolkit import layers, ops
from toolkit.processes.threads import map_in_threads


@pytest.fixture(autouse=True)
def restore_threads():
    yield
    toolkit.config.set_num_threads(None)


def network():
    toolkit.utils.set_random_seed(0)
    model = toolkit.Sequential(
        [
            toolkit.Input((16, 16, 3)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def data(count=96):
    random = np.random.default_rng(0)
    x = random.random((count, 16, 16, 3), np.float32)
    return x, random.integers(0, 10, count)


def weights_after_training(threads, epochs=2):
    toolkit.config.set_num_threads(threads)
    model = network()
    model.fit(*data(), batch_size=48, epochs=epochs, verbose=0)
    return [v.numpy() for v in model.weights]


def test_training_gives_the_same_bits_for_any_number_of_threads():
    one, *other_weights = (weights_after_training(threads) for threads in (1, 2, 3))
    for other in other_weights:
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="the system cannot bind threads"
)
def test_training_on_a_processor_that_another_program_needs():
    """Threads sleep while they wait, and the last task wakes the calling thread."""
    expected = weights_after_training(1, epochs=1)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    other_program = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        weights = weights_after_training(3, epochs=1)
    finally:
        os.sched_setaffinity(0, cores)
        other_program.kill()
        other_program.wait()
    for a, b in zip(weights, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("calls", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_eight_threads_call_one_function(calls):
    toolkit.config.set_num_threads(2)
    weights = ops.convert_to_tensor(np.random.default_rng(0).random((256, 256)))

    @toolkit.function
    def score(x):
        return ops.sum(ops.tanh(ops.matmul(x, ops.cast(weights, "float32"))), axis=1)

    x = np.random.default_rng(1).random((64, 256), np.float32)
    expected = score(x).numpy()

    def work(_):
        scores = (score(x).numpy() for _ in range(calls // 8))
        return all(np.array_equal(y, expected) for y in scores)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_fork_during_training():
    """Check that parent and child continue in their own threads to equal weights."""
    toolkit.config.set_num_threads(2)
    expected = weights_after_training(2, epochs=3)
    model, (x, y) = network(), data()
    model.fit(x, y, batch_size=48, epochs=1, verbose=0)
    child = os.fork()
    if child == 0:  # leave without pytest's own shutdown
        code = 2
        try:
            code = int(not _finish_training(model, x, y, expected))
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert _finish_training(model, x, y, expected)


def _finish_training(model, x, y, expected):
    model.fit(x, y, batch_size=48, initial_epoch=1, epochs=3, verbose=0)
    weights = [v.numpy() for v in model.weights]
    return all(np.array_equal(a, b) for a, b in zip(weights, expected, strict=True))


def test_threads_compute_after_the_main_thread_has_ended(tmp_path):
    """`ThreadPoolExecutor` refuses that."""
    script = """
        import threading
        import numpy as np
        import toolkit as tk

        def work():
            threading.main_thread().join()
            x = np.random.default_rng(0).random((64, 6), "float32")
            data = tk.data.Dataset.from_tensor_slices((x, x[:, :1]))
            data = data.map(lambda x, y: (x * 2, y), num_parallel_calls=2).batch(16)
            model = tk.Sequential([tk.layers.Dense(20, "relu"), tk.layers.Dense(1)])
            model.compile("adam", "mse")
            print(len(model.fit(data.prefetch(2), epochs=2, verbose=0).epoch))
            print(tk.ops.matmul(np.ones((600, 600)), np.ones((600, 600)))[0, 0].item())

        threading.Thread(target=work).start()
    """
    environment = {**os.environ, "TOOLKIT_CACHE_DIR": str(tmp_path)}
    process = subprocess.run(
        [sys.executable, "-c", dedent(script)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (process.stdout, process.stderr) == ("2\n600.0\n", "")


def test_map_in_threads_returns_results_in_order():
    barrier = threading.Barrier(3)

    def square(value):
        barrier.wait(30)  # three threads run
        return value * value

    assert map_in_threads(square, range(9), 3) == [i * i for i in range(9)]
    assert map_in_threads(square, [], 3) == []


def test_map_in_threads_raises_the_error_of_a_thread_or_of_the_iterator():
    def fail(value):
        if value == 2:
            raise KeyError(value)

    def items():
        yield 1
        raise ValueError("an item")

    with pytest.raises(KeyError):
        map_in_threads(fail, range(5), 2)
    with pytest.raises(ValueError, match="an item"):
        map_in_threads(fail, items(), 2)


def test_map_in_threads_needs_no_thread(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert map_in_threads(lambda x: -x, range(4), 2) == [0, -1, -2, -3]
