"""Test that an interrupted run of `fit` continues to the same bits from any step."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import toolkit as tk
from toolkit import callbacks, layers
from toolkit.data import Dataset
from toolkit.errors import ArgumentError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(22, 4)).astype("float32")
Y = RNG.normal(size=(22, 2)).astype("float32")


class Squares(tk.utils.PyDataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        rows = slice(4 * index, 4 * index + 4)
        return X[rows], Y[rows]


class Batches:
    """An iterable whose passes are equal."""

    def __iter__(self):
        return (Squares()[i] for i in range(6))


def slices():
    return Dataset.from_tensor_slices((X, Y))


def mapped():
    shuffled = slices().shuffle(22).map(lambda x, y: (2 * x, y), num_parallel_calls=2)
    return shuffled.batch(4)


# The kind of data -> a function that returns new arguments of `fit`.
DATA = {
    "arrays": lambda: {"x": X, "y": Y, "batch_size": 4},
    "arrays in order": lambda: {"x": X, "y": Y, "batch_size": 4, "shuffle": False},
    "inside batches": lambda: {"x": X, "y": Y, "batch_size": 4, "shuffle": "batch"},
    "some steps": lambda: {"x": X, "y": Y, "batch_size": 4, "steps_per_epoch": 3},
    "dataset": lambda: {"x": slices().shuffle(22).batch(4)},
    "dataset, some steps": lambda: {
        "x": slices().shuffle(7).repeat().batch(4),
        "steps_per_epoch": 5,
    },
    "parallel": lambda: {"x": mapped()},
    "filtered": lambda: {
        "x": slices().shuffle(9).filter(lambda x, y: x[0] > -1).batch(4)
    },
    "iterator": lambda: {
        "x": iter(slices().shuffle(22).repeat().batch(4)),
        "steps_per_epoch": 5,
    },
    "PyDataset": lambda: {"x": Squares()},
    "PyDataset, workers": lambda: {"x": Squares(workers=2), "shuffle": False},
    "iterable": lambda: {"x": Batches()},
}


def make(seed, **arguments):
    tk.utils.set_random_seed(seed)
    model = tk.Sequential([tk.Input((4,)), layers.Dense(8), layers.Dropout(0.3)])
    model.add(layers.Dense(2))
    model.compile(tk.optimizers.Adam(0.05), "mse", metrics=["mae"], **arguments)
    return model


class Stop(callbacks.Callback):
    """A callback that fails after a number of steps of a run."""

    def __init__(self, steps):
        super().__init__()
        self.steps = itertools.count(1)
        self.last = steps

    def on_train_batch_end(self, batch, logs=None):
        if next(self.steps) == self.last:
            raise KeyboardInterrupt


def run(model, data, *extra):
    watched = [callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=1), *extra]
    return model.fit(**data, epochs=3, callbacks=watched, verbose=0)


def interrupted(tmp_path, kind, steps, save_freq=1, **arguments):
    """Return the history and weights of a run that stops once and continues."""

    def backup():
        return callbacks.BackupAndRestore(tmp_path / "backup", save_freq=save_freq)

    with pytest.raises(KeyboardInterrupt):
        run(make(1, **arguments), DATA[kind](), backup(), Stop(steps))
    model = make(99, **arguments)  # another process without the old state
    history = run(model, DATA[kind](), backup())
    return history, model.get_weights()


def check(expected, actual):
    for a, b in zip(expected[1], actual[1], strict=True):
        np.testing.assert_array_equal(a, b)
    for name, values in actual[0].history.items():
        assert values == expected[0].history[name][-len(values) :], name


@pytest.mark.parametrize("steps", [2, 5, 6, 7])
@pytest.mark.parametrize("kind", DATA)
@pytest.mark.one_in(12)
def test_run_continues_within_an_epoch(tmp_path, kind, steps):
    model = make(1)
    history = run(model, DATA[kind]())
    check((history, model.get_weights()), interrupted(tmp_path, kind, steps))


@pytest.mark.parametrize("kind", ["arrays", "dataset", "PyDataset"])
def test_run_continues_after_the_last_backup(tmp_path, kind):
    model = make(1, steps_per_execution=2)
    history = run(model, DATA[kind]())
    results = interrupted(tmp_path, kind, 4, save_freq=4, steps_per_execution=2)
    check((history, model.get_weights()), results)


def test_epochs_of_a_dataset_have_the_same_order(tmp_path):
    model = make(1)
    history = run(model, DATA["dataset"]())
    results = interrupted(tmp_path, "dataset", 8, save_freq="epoch")
    assert results[0].epoch == [1, 2]
    check((history, model.get_weights()), results)


class Counter(callbacks.Callback):
    """Count the steps and the epochs, also across restarts."""

    counts = (0, 0)

    def on_train_batch_end(self, batch, logs=None):
        self.counts = self.counts[0] + 1, self.counts[1]

    def on_epoch_end(self, epoch, logs=None):
        self.counts = self.counts[0], self.counts[1] + 1

    def state_dict(self):
        return {"counts": list(self.counts)}

    def load_state_dict(self, state):
        self.counts = tuple(state["counts"])


@pytest.mark.parametrize("save_freq", [2, "epoch"])
@pytest.mark.parametrize("is_first", [True, False])
def test_backup_contains_the_callbacks_before_and_after_it(
    tmp_path, save_freq, is_first
):
    def start(*extra):
        backup = callbacks.BackupAndRestore(tmp_path / "backup", save_freq=save_freq)
        counter = Counter()
        pair = [backup, counter] if is_first else [counter, backup]
        make(1).fit(X, Y, epochs=3, callbacks=[*pair, *extra], batch_size=4, verbose=0)
        return counter.counts

    with pytest.raises(KeyboardInterrupt):
        start(Stop(9))  # epochs have 6 steps
    assert start() == (18, 3)


def test_callback_that_cannot_be_saved_is_named(tmp_path):
    class Odd(callbacks.Callback):
        def state_dict(self):
            return {"what": object()}

    backup = callbacks.BackupAndRestore(tmp_path / "b", save_freq=1)
    with pytest.raises(ArgumentError, match=r"Odd\.state_dict: .*object"):
        run(make(1), DATA["arrays"](), backup, Odd())


SCRIPT = textwrap.dedent(
    """
    import os, signal, sys
    import numpy as np
    import toolkit as tk
    from toolkit.data import Dataset

    folder, kill_at = sys.argv[1], int(sys.argv[2])
    tk.utils.set_random_seed(4)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 4)).astype("float32"), rng.normal(size=(40, 2))
    model = tk.Sequential([tk.Input((4,)), tk.layers.Dense(2)])
    model.compile("adam", "mse")

    class Kill(tk.callbacks.Callback):
        step = 0

        def on_train_batch_end(self, batch, logs=None):
            self.step += 1
            if self.step == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    backup = tk.callbacks.BackupAndRestore(folder, save_freq=2)
    data = Dataset.from_tensor_slices((x, y)).shuffle(40).batch(4)
    data = data.prefetch(2)
    model.fit(data, epochs=2, callbacks=[backup, Kill()], verbose=0)
    print(b"".join(w.tobytes() for w in model.get_weights()).hex())
    """
)


@pytest.mark.slow
def test_killed_process_loses_no_saved_step(tmp_path):
    def start(folder, kill_at):
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / folder), str(kill_at)]
        return subprocess.run(command, capture_output=True, text=True, env=os.environ)

    expected = start("whole", 0)
    assert expected.returncode == 0, expected.stderr
    for kill_at in (3, 5, 6):  # each kill is later: the run continues three times
        assert start("killed", kill_at).returncode == -signal.SIGKILL
    assert start("killed", 0).stdout == expected.stdout
