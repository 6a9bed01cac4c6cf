"""Test CheckpointManager: training with regular checkpoints, and its continuation."""

import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from textwrap import dedent

import numpy as np
import pytest

import toolkit as tk
from tests.comm import ranks
from tests.distribution import jobs
from toolkit.distribution import Checkpoint, CheckpointManager
from toolkit.errors import ArgumentError, ModelFileError, NotBuiltError

X = np.random.default_rng(0).normal(size=(24, 5)).astype("float32")
Y = np.ones((24, 1), "float32")


class Stopped(Exception):
    """The exception that ends a run."""


class Stop(tk.callbacks.Callback):
    """A callback that ends a run after a number of batches."""

    def __init__(self, batches):
        super().__init__()
        self.remaining = batches

    def on_train_batch_end(self, batch, logs=None):
        self.remaining -= 1
        if not self.remaining:
            raise Stopped


def make():
    tk.utils.set_random_seed(0)
    layers = [tk.Input((5,)), tk.layers.Dense(7), tk.layers.Dropout(0.5)]
    model = tk.Sequential([*layers, tk.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def train(*callbacks, epochs=4):
    model = make()
    model.fit(X, Y, 4, epochs, verbose=0, callbacks=list(callbacks))
    return model


def bits(model):
    return [
        np.asarray(v).tobytes() for v in [*model.variables, *model.optimizer.variables]
    ]


def names(folder):
    return sorted(os.listdir(folder))


@pytest.mark.parametrize(
    "save_freq, batches", [("epoch", 15), (4, 15), (5, 6), (1, 23)]
)
@pytest.mark.parametrize("wait", [True, False])
def test_continued_run_has_the_same_bits(tmp_path, save_freq, batches, wait):
    def manager():
        return CheckpointManager(tmp_path, save_freq, wait=wait)

    with pytest.raises(Stopped):
        train(manager(), Stop(batches))
    expected = bits(train())
    assert bits(train(manager())) == expected


def test_newest_checkpoints_are_kept(tmp_path):
    manager = CheckpointManager(tmp_path / "a" / "b", save_freq=2, max_to_keep=2)
    train(manager)
    assert names(tmp_path / "a" / "b") == ["checkpoint-000011", "checkpoint-000012"]
    assert manager.latest() == tmp_path / "a" / "b" / "checkpoint-000012"
    train(CheckpointManager(tmp_path / "c", max_to_keep=None))
    assert len(names(tmp_path / "c")) == 4


def test_completed_epochs_are_not_repeated(tmp_path):
    expected = bits(train(CheckpointManager(tmp_path)))
    history = []
    resumed_model = train(
        CheckpointManager(tmp_path),
        tk.callbacks.LambdaCallback(on_epoch_begin=lambda n, logs: history.append(n)),
    )
    assert bits(resumed_model) == expected and not history
    before = names(tmp_path)
    train(CheckpointManager(tmp_path, restore=False), epochs=1)
    assert names(tmp_path) != before  # the numbers continue


def damage(folder):
    file = folder / "rank-00000.bin"
    raw = bytearray(file.read_bytes())
    raw[5] = (raw[5] + 1) % 256
    file.write_bytes(raw)


def test_corrupt_checkpoint_is_skipped(tmp_path):
    expected = bits(train(CheckpointManager(tmp_path)))
    damage(tmp_path / "checkpoint-000004")
    with pytest.warns(UserWarning, match="skipped: .*checkpoint-000004.*corrupt"):
        assert bits(train(CheckpointManager(tmp_path))) == expected
    for name in names(tmp_path):
        damage(tmp_path / name)
    with pytest.warns(UserWarning, match="skipped"):
        with pytest.raises(ModelFileError, match="corrupt"):
            train(CheckpointManager(tmp_path))


def test_latest_has_all_files(tmp_path):
    manager = CheckpointManager(tmp_path)
    train(manager)
    (tmp_path / "checkpoint-000009").mkdir()
    os.truncate(tmp_path / "checkpoint-000004" / "rank-00000.bin", 10)
    (tmp_path / "checkpoint-000003" / "state.json").write_text("{}")
    assert manager.latest() == tmp_path / "checkpoint-000002"


def test_foreign_files_are_kept(tmp_path):
    (tmp_path / "checkpoint-000001").mkdir()
    (tmp_path / "checkpoint-000001" / "mine.txt").write_text("mine")
    (tmp_path / "notes").write_text("mine")
    train(CheckpointManager(tmp_path, save_freq=2, max_to_keep=1))
    assert (tmp_path / "checkpoint-000001" / "mine.txt").exists()
    assert names(tmp_path) == ["checkpoint-000001", "checkpoint-000013", "notes"]


def test_folder_without_a_run_is_refused(tmp_path):
    model = make()
    Checkpoint(model).save(tmp_path / "checkpoint-000001", position=3)
    with pytest.warns(UserWarning, match="skipped"):
        with pytest.raises(ModelFileError, match="variable|position of a run"):
            train(CheckpointManager(tmp_path))


@pytest.mark.parametrize(
    "options",
    [
        {"save_freq": 0},
        {"save_freq": "batch"},
        {"max_to_keep": 0},
        {"max_to_keep": 1.5},
    ],
)
def test_invalid_arguments_are_refused(tmp_path, options):
    with pytest.raises(ArgumentError, match=next(iter(options))):
        CheckpointManager(tmp_path, **options)


def test_unbuilt_model_is_refused(tmp_path):
    model = tk.Sequential([tk.layers.Dense(1)])
    model.compile("sgd", "mse")
    manager = CheckpointManager(tmp_path)
    manager.set_model(model)
    with pytest.raises(NotBuiltError, match="built before `fit`"):
        manager.on_train_begin()


JOB = """
import hashlib, os, sys
import numpy as np
import toolkit as tk
from toolkit import comm
from toolkit.distribution import CheckpointManager, DataParallel, set_distribution

folder, stop = sys.argv[1], int(sys.argv[2])
tk.utils.set_random_seed(0)
set_distribution(DataParallel(shards=4, shard_optimizer=sys.argv[3] == "zero"))
hidden = [tk.layers.Dense(64), tk.layers.Dropout(0.5), tk.layers.Dense(32)]
model = tk.Sequential([tk.Input((40,)), *hidden, tk.layers.Dense(1)])
model.compile("adam", "mse")
random = np.random.default_rng(0)
x, y = random.normal(size=(64, 40)).astype("float32"), np.ones((64, 1), "float32")


class Stop(tk.callbacks.Callback):
    left = stop

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


manager = CheckpointManager(folder, save_freq=3)
try:
    model.fit(x, y, 8, epochs=3, verbose=0, callbacks=[manager, Stop()])
except KeyboardInterrupt:
    pass
whole = [v.numpy().tobytes() for v in [*model.variables, *model.optimizer.variables]]
if comm.world().rank == 0:
    print("latest", manager.latest() and manager.latest().name)
    print("bits", hashlib.sha256(b"".join(whole)).hexdigest())
"""


@pytest.mark.slow
def test_run_continues_with_other_ranks_and_layouts(tmp_path):
    def job(count, stop, layout, folder="x"):
        arguments = [str(tmp_path / folder), str(stop), layout]
        process = ranks.run_ranks(tmp_path, count, JOB, *arguments)
        assert process.code == 0, process.errors
        return dict(line.split() for line in process.out.splitlines())

    assert job(3, 10, "zero")["latest"] == "checkpoint-000003"
    files = [
        tmp_path / "x" / "checkpoint-000003" / f"rank-0000{r}.bin" for r in range(3)
    ]
    sizes = [file.stat().st_size for file in files]
    assert max(sizes) <= sum(sizes) / 3 * 1.05
    assert job(1, 8, "plain")["latest"] == "checkpoint-000005"
    reports = job(2, 0, "zero")
    assert reports["bits"] == job(1, 0, "plain", "y")["bits"]


LOSING = """
    from toolkit.comm import local
    distribution.set_distribution(distribution.DataParallel(shards=4))
    tk.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    x, y = random.random((62, 300), "float32"), random.random((62, 4), "float32")
    model = tk.Sequential([tk.Input((300,)), layers.Dense(640), layers.Dense(4)])
    model.compile("adam", "mse")
    killer, batch, delay = map(float, sys.argv[1:])

    class Lose(tk.callbacks.Callback):
        steps = 0

        def on_train_batch_begin(self, _, logs=None):
            self.steps += 1
            if rank == killer and self.steps == batch:
                import threading
                threading.Timer(delay, lambda: os.kill(os.getpid(), 9)).start()

    manager = distribution.CheckpointManager("x", save_freq=1, wait={wait})
    model.fit(x, y, batch_size=15, epochs=4, verbose=0, callbacks=[Lose(), manager])
    tell([state_of(model), manager.latest().name, comm.world().size])
    if comm.world().rank == 0:
        left = state_of(model)
        checkpoint = distribution.Checkpoint(model, local.single())
        checkpoint.restore(manager.latest())
        assert state_of(model) == left
"""


@pytest.mark.parametrize(
    "killer, batch, delay, wait",
    [(1, 5, 0.02, False), (0, 9, 0.01, False), (2, 3, 0.0, True), (0, 6, 0.03, True)],
)
@pytest.mark.one_in(4)
def test_run_continues_after_a_rank_fails_during_a_save(
    tmp_path, killer, batch, delay, wait
):
    def train(processes, *moment):
        text = LOSING.format(wait=wait)
        (tmp_path / "x").mkdir()
        flags = ["--elastic"] if processes > 1 else []
        reports = jobs.run(tmp_path, processes, text, *map(str, moment), flags=flags)
        shutil.rmtree(tmp_path / "x")
        return reports

    ((expected_bits, _, _),) = train(1, 5, 0, 0)
    for bits, latest, remaining in train(3, killer, batch, delay):
        assert (bits, remaining) == (expected_bits, 2)
        assert int(latest.removeprefix("checkpoint-")) >= 15


@pytest.mark.parametrize("kind", [CheckpointManager, tk.callbacks.BackupAndRestore])
def test_a_resumed_run_prints_its_checkpoint(tmp_path, kind, capsys):
    def run(epochs, *stops, verbose=2):
        with pytest.raises(Stopped) if stops else nullcontext():
            callbacks = [*stops, kind(tmp_path / "saves", **options)]
            make().fit(X, Y, 4, epochs, verbose=verbose, callbacks=callbacks)
        lines = capsys.readouterr().out.splitlines()
        return [line for line in lines if line.startswith("fit: continues from")]

    is_backup = kind is tk.callbacks.BackupAndRestore
    options = {"save_freq": 4}
    options |= {"delete_checkpoint": False} if is_backup else {"wait": True}
    assert run(3, Stop(11)) == []
    (line,) = run(3)
    assert "saves" in line and line.endswith(": epoch 2 of 3, after 2 steps")
    options["save_freq"] = "epoch"
    assert run(4) != []
    (line,) = run(4)
    assert line.endswith("all 4 epochs are complete")
    assert run(4, verbose=0) == []


def test_saves_end_after_the_error_of_all_ranks_has_ended_the_script(tmp_path):
    """A rank writes its file when the main threads of all ranks have ended."""
    text = """
        import threading

        fsync = os.fsync
        def slow_fsync(file):
            if rank == 1:
                threading.main_thread().join()
                time.sleep(1)
            fsync(file)
        os.fsync = slow_fsync

        class Stop(tk.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if batch == 2:
                    raise KeyError("stop")

        distribution.set_distribution(distribution.DataParallel())
        model = network()
        model.build((None, 6))
        x = np.ones((40, 6), "float32")
        manager = distribution.CheckpointManager("saved", save_freq=2)
        try:
            model.fit(x, x[:, :1], 8, verbose=0, callbacks=[manager, Stop()])
        except KeyError:
            tell("stopped")
    """
    assert jobs.run(tmp_path, 2, text, errors="") == ["stopped"] * 2
    assert Checkpoint.latest(tmp_path / "saved") is not None


def test_an_error_of_a_save_that_no_call_raises_is_printed(tmp_path):
    script = """
        import sys
        import toolkit as tk
        from toolkit import distribution

        model = tk.Sequential([tk.Input((2,)), tk.layers.Dense(1)])
        checkpoint = distribution.Checkpoint(model)
        for raises in (True, False):
            checkpoint.save(sys.argv[1], wait=False)
            try:
                if raises:
                    checkpoint.wait()
            except tk.errors.UnwritableFileError:
                print("raised")
    """
    (tmp_path / "saved").mkdir()
    command = [sys.executable, "-c", dedent(script), str(tmp_path / "saved")]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert process.stdout == "raised\n"
    assert process.stderr.count("UnwritableFileError: cannot write") == 1
