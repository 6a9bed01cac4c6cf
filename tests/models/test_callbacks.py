"""Test callbacks: when hooks run, and the effect of each callback."""

import contextlib
import csv
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import toolkit
from toolkit import Input, Sequential, callbacks, layers
from toolkit.callbacks import Callback, CallbackList, History
from toolkit.errors import ArgumentError
from toolkit.models.callbacks import progress

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 4)).astype("float32")
Y = RNG.normal(size=(12, 2)).astype("float32")


def make_model(rate=0.01, **arguments):
    model = Sequential([Input((4,)), layers.Dense(2)])
    model.compile(toolkit.optimizers.SGD(rate), "mse", **arguments)
    return model


class Script(Callback):
    """A callback that passes its own values to later callbacks."""

    def __init__(self, **values):
        super().__init__()
        self.values = values

    def on_epoch_end(self, epoch, logs=None):
        logs.update({name: float(v[epoch]) for name, v in self.values.items()})


def run(callback, epochs, model=None, **values):
    model = model or make_model()
    return model.fit(
        *(X, Y), epochs=epochs, callbacks=[Script(**values), callback], verbose=0
    )


# --- hooks ----------------------------------------------------------------------------


class Recorder(Callback):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __getattribute__(self, name):
        if not name.startswith("on_"):
            return super().__getattribute__(name)
        return lambda *args, logs=None, **kwargs: self.calls.append((name, *args[:1]))


def test_order_of_hooks():
    recorder, model = Recorder(), make_model()
    model.fit(X, Y, batch_size=6, validation_data=(X, Y), callbacks=recorder, verbose=0)
    names = [call[0] for call in recorder.calls]
    step = ["on_train_batch_begin", "on_train_batch_end"]
    test = ["on_test_batch_begin", "on_test_batch_end"]
    assert names == [
        "on_train_begin",
        "on_epoch_begin",
        *step * 2,
        "on_test_begin",
        *test * 2,
        "on_test_end",
        "on_epoch_end",
        "on_train_end",
    ]
    recorder.calls.clear()
    model.predict(X, batch_size=6, callbacks=[recorder], verbose=0)
    assert [call[0] for call in recorder.calls] == [
        "on_predict_begin",
        *["on_predict_batch_begin", "on_predict_batch_end"] * 2,
        "on_predict_end",
    ]


def test_logs_params_and_model():
    logs_by_hook = {}

    class Spy(Callback):
        def on_batch_end(self, batch, logs=None):  # the older name
            logs_by_hook.setdefault("batches", []).append((batch, sorted(logs)))

        def on_epoch_end(self, epoch, logs=None):
            logs_by_hook["epoch"] = logs, self.params, self.model

        def on_predict_batch_end(self, batch, logs=None):
            logs_by_hook["outputs"] = logs["outputs"].shape

    model = make_model(metrics=["mae"])
    model.fit(X, Y, batch_size=6, epochs=2, callbacks=[Spy()], verbose=0)
    assert logs_by_hook["batches"] == [(0, ["loss", "mae"]), (1, ["loss", "mae"])] * 2
    logs, params, seen_model = logs_by_hook["epoch"]
    assert all(type(value) is float for value in logs.values())
    assert params == {"verbose": 0, "epochs": 2, "steps": 2}
    assert seen_model is model
    model.predict(X, batch_size=8, callbacks=[Spy()], verbose=0)
    assert logs_by_hook["outputs"] == (4, 2)


def test_hooks_without_overrides_cost_no_time():
    modes = ("", "train_", "test_", "predict_")
    hooks = [f"on_{mode}batch_{edge}" for mode in modes for edge in ("begin", "end")]
    quiet = CallbackList([Callback(), History()])
    assert not any(quiet.listeners_of(hook) for hook in hooks)
    quiet.append(callbacks.LambdaCallback(on_train_batch_end=print))
    heard = [hook for hook in hooks if quiet.listeners_of(hook)]
    assert heard == ["on_train_batch_end"]


def test_history():
    model = make_model(metrics=["mae"])
    history = model.fit(X, Y, epochs=3, verbose=0)
    assert history is model.history
    assert history.epoch == [0, 1, 2]
    assert list(history.history) == ["loss", "mae"]
    assert all(len(values) == 3 for values in history.history.values())
    continued = model.fit(X, Y, epochs=5, initial_epoch=3, verbose=0)
    assert continued.epoch == [3, 4]
    callback = History()
    assert model.fit(X, Y, verbose=0, callbacks=[callback]) is callback


def test_lambda_callback():
    events = []
    callback = callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: events.append(epoch),
        on_train_begin=lambda logs: events.append("begin"),
        on_test_end=lambda logs: events.append("tested"),
    )
    make_model().fit(
        X, Y, epochs=2, callbacks=[callback], validation_data=(X, Y), verbose=0
    )
    assert events == ["begin", "tested", 0, "tested", 1]
    with pytest.raises(ArgumentError, match="'on_epoch'"):
        callbacks.LambdaCallback(on_epoch=print)


def test_callback_can_stop_runs():
    class Stop(Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = True

        def on_test_batch_end(self, batch, logs=None):
            self.model.stop_evaluating = True

        def on_predict_batch_end(self, batch, logs=None):
            self.model.stop_predicting = True

    model = make_model()
    history = model.fit(X, Y, epochs=4, batch_size=2, callbacks=[Stop()], verbose=0)
    assert len(history.history["loss"]) == 1
    assert int(model.optimizer.iterations) == 1
    model.evaluate(X, Y, batch_size=2, callbacks=[Stop()], verbose=0)
    assert len(model.predict(X, batch_size=2, callbacks=[Stop()], verbose=0)) == 2


# --- early stopping -------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, values, epochs",
    [
        ({"patience": 0}, [3, 2, 2, 1], 3),
        ({"patience": 2}, [3, 2, 2, 2, 1, 0], 4),
        ({"patience": 2}, [3, 2, 2, 1, 1, 1, 1], 6),
        ({"patience": 1, "min_delta": 0.6}, [3, 2.5, 1, 1, 1], 2),
        ({"patience": 1, "mode": "max"}, [1, 2, 3, 3, 4], 4),
        ({"patience": 2, "baseline": 1.0}, [5, 4, 3, 2], 4),
        ({"patience": 1, "start_from_epoch": 3}, [1, 2, 3, 4, 5, 6], 5),
    ],
)
def test_early_stopping(arguments, values, epochs):
    stop = callbacks.EarlyStopping("watched_loss", **arguments)
    history = run(stop, len(values), watched_loss=values)
    assert len(history.epoch) == epochs


def test_early_stopping_restores_the_best_weights(capsys):
    model, weights = make_model(rate=0.1), []
    record_weights = callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: weights.append(model.get_weights())
    )
    stop = callbacks.EarlyStopping(
        "watched_loss", patience=2, restore_best_weights=True, verbose=1
    )
    model.fit(
        *(X, Y),
        epochs=9,
        callbacks=[record_weights, Script(watched_loss=[3, 1, 2, 2, 2]), stop],
        verbose=0,
    )
    assert stop.best_epoch == 1
    for a, b in zip(model.get_weights(), weights[1], strict=True):
        np.testing.assert_array_equal(a, b)
    assert "Epoch 4: early stopping" in capsys.readouterr().out


def test_direction_of_a_metric_is_inferred():
    stop = callbacks.EarlyStopping("val_accuracy", patience=1)
    model = Sequential([Input((4,)), layers.Dense(2)])
    model.compile("sgd", "mse", metrics=["accuracy"])
    run(stop, 3, model, val_accuracy=[0.1, 0.2, 0.3])
    assert stop.best == 0.3
    with pytest.raises(ArgumentError, match="mode='min' or mode='max'"):
        run(callbacks.EarlyStopping("riches"), 3, riches=[1, 2, 3])
    with pytest.warns(UserWarning, match="'least' is unknown"):
        assert callbacks.EarlyStopping(mode="least").mode == "auto"


def test_missing_quantity_warns():
    with pytest.warns(UserWarning, match="'val_loss' is not in the logs; .* loss"):
        run(callbacks.EarlyStopping(), 1)


# --- other callbacks ------------------------------------------------------------------


def test_terminate_on_nan(capsys):
    y = np.full_like(Y, np.nan)
    model = make_model()
    with pytest.warns(UserWarning, match="the loss is nan"):
        model.fit(
            *(X, y),
            epochs=3,
            batch_size=4,
            callbacks=[callbacks.TerminateOnNaN()],
            verbose=0,
        )
    assert int(model.optimizer.iterations) == 1
    assert "Batch 0: Invalid loss nan" in capsys.readouterr().out
    strict = callbacks.TerminateOnNaN(raise_error=True)
    with (
        pytest.warns(UserWarning, match="the loss is nan"),
        pytest.raises(RuntimeError, match="at batch 0"),
    ):
        model.fit(X, y, callbacks=[strict], verbose=0)


def test_model_checkpoint(tmp_path, capsys):
    path = tmp_path / "deep" / "{epoch:02d}-{watched_loss:.1f}.weights.h5"
    callback = callbacks.ModelCheckpoint(
        path,
        monitor="watched_loss",
        save_best_only=True,
        save_weights_only=True,
        verbose=1,
    )
    model = make_model()
    run(callback, 4, model, watched_loss=[3, 4, 2, 2])
    names = sorted(p.name for p in path.parent.iterdir())
    assert names == ["01-3.0.weights.h5", "03-2.0.weights.h5"]
    assert capsys.readouterr().out.count("did not improve") == 2
    model.load_weights(path.parent / names[1])


@pytest.mark.parametrize(
    "make",
    [
        callbacks.EarlyStopping,
        callbacks.ReduceLROnPlateau,
        lambda name: callbacks.ModelCheckpoint("x.keras", name, save_best_only=True),
    ],
)
def test_name_with_unknown_direction(make):
    """Test that the run does not train until the last epoch first."""
    callback = make("val_acc")
    with pytest.raises(ArgumentError, match="direction of 'val_acc' is unknown"):
        make_model().fit(X, Y, epochs=2, callbacks=[callback], verbose=0)


def test_metrics_of_several_numbers(tmp_path):
    """Each epoch is saved because no epoch is the best; lines show the mean."""
    model = Sequential([Input((3,)), layers.Dense(2)])
    model.compile(loss="mse", metrics=[toolkit.metrics.F1Score(name="each")])
    callback = callbacks.ModelCheckpoint(
        tmp_path / "{epoch}.weights.h5", "each", 0, True, True, mode="max"
    )
    x, y = np.ones((4, 3), "float32"), np.eye(2, dtype="float32")[[0, 1, 1, 0]]
    with pytest.warns(UserWarning, match=r"'each' has the shape \(2,\)"):
        model.fit(x, y, epochs=2, callbacks=[callback], verbose=0)
    assert len(list(tmp_path.iterdir())) == 2
    assert progress.format_logs({"each": np.array([3.0, 1.0])}) == "each: 2.0000"


def test_model_checkpoint_every_few_batches(tmp_path):
    callback = callbacks.ModelCheckpoint(
        tmp_path / "{epoch}-{batch}.weights.h5", save_weights_only=True, save_freq=3
    )
    make_model().fit(X, Y, batch_size=3, epochs=2, callbacks=[callback], verbose=0)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "1-3.weights.h5",
        "2-2.weights.h5",
    ]


@pytest.mark.parametrize(
    "path, arguments, message",
    [
        ("x.npz", {}, r"`\.keras` or `\.h5`"),
        ("x.h5", {"save_weights_only": True}, r"`\.weights\.h5`"),
        ("x.weights.h5", {"save_weights_only": True, "save_freq": "b"}, "save_freq"),
    ],
)
def test_model_checkpoint_refuses_invalid_arguments(path, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        callbacks.ModelCheckpoint(path, **arguments)


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_model_checkpoint_of_whole_models(tmp_path, suffix, capsys):
    model = make_model()
    callback = callbacks.ModelCheckpoint(tmp_path / f"best.{suffix}", verbose=1)
    model.fit(X, Y, epochs=2, callbacks=[callback], verbose=0)
    restored = toolkit.saving.load_model(tmp_path / f"best.{suffix}")
    np.testing.assert_array_equal(restored(X), model(X))
    assert int(restored.optimizer.iterations) == int(model.optimizer.iterations)
    assert capsys.readouterr().out.count("finished saving model") == 2


def test_model_checkpoint_to_a_folder(tmp_path):
    (tmp_path / "x.keras").mkdir()
    callback = callbacks.ModelCheckpoint(tmp_path / "x.keras")
    with pytest.raises(IsADirectoryError, match="non-directory filepath"):
        run(callback, 1)


def test_orbax_is_refused():
    with pytest.raises(NotImplementedError, match="ModelCheckpoint"):
        callbacks.OrbaxCheckpoint("folder")


def test_model_checkpoint_with_an_unknown_field(tmp_path):
    path = tmp_path / "{typo}.weights.h5"
    with pytest.raises(KeyError, match="'typo'; available are epoch, loss"):
        run(callbacks.ModelCheckpoint(path, save_weights_only=True), 1)


def test_csv_logger(tmp_path):
    path = tmp_path / "log.csv"
    arguments = {"validation_data": (X, Y), "verbose": 0}
    make_model().fit(
        *(X, Y), epochs=2, callbacks=[callbacks.CSVLogger(path)], **arguments
    )
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert list(rows[0]) == ["epoch", "loss", "val_loss"]
    assert [row["epoch"] for row in rows] == ["0", "1"]
    logger = callbacks.CSVLogger(path, append=True)
    history = make_model().fit(X, Y, callbacks=[logger], **arguments)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == 3
    assert float(rows[2]["loss"]) == history.history["loss"][0]


def test_csv_logger_reserves_columns_for_later_validation(tmp_path):
    path = tmp_path / "log.csv"
    make_model().fit(
        *(X, Y),
        epochs=2,
        validation_data=(X, Y),
        validation_freq=2,
        callbacks=[callbacks.CSVLogger(path, separator=";")],
        verbose=0,
    )
    rows = list(csv.DictReader(path.read_text().splitlines(), delimiter=";"))
    assert [row["val_loss"] == "NA" for row in rows] == [True, False]


def test_learning_rate_scheduler():
    model = make_model(rate=1.0)
    scheduler = callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
    history = model.fit(X, Y, epochs=3, callbacks=[scheduler], verbose=0)
    assert float(model.optimizer.learning_rate) == 0.125
    assert history.history["learning_rate"] == [0.5, 0.25, 0.125]
    invalid = callbacks.LearningRateScheduler(lambda epoch, rate: None)
    with pytest.raises(ArgumentError, match="received None"):
        model.fit(X, Y, callbacks=[invalid], verbose=0)


def test_reduce_learning_rate_on_plateau():
    model = make_model(rate=1.0)
    reduce = callbacks.ReduceLROnPlateau(
        "watched_loss", factor=0.5, patience=2, cooldown=1, min_lr=0.2
    )
    history = run(reduce, 10, model, watched_loss=[3, 2, 2, 2, 2, 2, 2, 2, 2, 2])
    rates = [1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2]
    assert history.history["learning_rate"] == pytest.approx(rates)
    assert float(model.optimizer.learning_rate) == pytest.approx(0.2)
    with pytest.raises(ArgumentError, match="factor < 1"):
        callbacks.ReduceLROnPlateau(factor=1.0)


# --- state ----------------------------------------------------------------------------


def test_state_of_early_stopping_survives_a_restart():
    values = [3, 2, 2, 2, 2, 2]
    uninterrupted = callbacks.EarlyStopping("watched_loss", patience=3)
    expected = run(uninterrupted, 6, watched_loss=values).epoch
    first = callbacks.EarlyStopping("watched_loss", patience=3)
    run(first, 3, watched_loss=values)
    second = callbacks.EarlyStopping("watched_loss", patience=3)
    second.load_state_dict(first.state_dict())
    history = make_model().fit(
        *(X, Y),
        initial_epoch=3,
        epochs=6,
        callbacks=[Script(watched_loss=values), second],
        verbose=0,
    )
    assert [0, 1, 2, *history.epoch] == expected


def test_older_name_of_min_delta():
    with pytest.warns(DeprecationWarning, match="`epsilon` is deprecated.*`min_delta`"):
        callback = callbacks.ReduceLROnPlateau(epsilon=0.5)
    assert callback.min_delta == callbacks.ReduceLROnPlateau(min_delta=0.5).min_delta
    with pytest.raises(TypeError, match="did you mean 'patience'"):
        callbacks.ReduceLROnPlateau(patient=3)


@pytest.mark.parametrize(
    "make",
    [
        callbacks.Callback,
        callbacks.History,
        callbacks.EarlyStopping,
        callbacks.TerminateOnNaN,
        callbacks.ReduceLROnPlateau,
        callbacks.ProgbarLogger,
        callbacks.LambdaCallback,
        lambda: callbacks.LearningRateScheduler(lambda epoch, rate: rate),
        lambda: callbacks.ModelCheckpoint("x.weights.h5", save_weights_only=True),
        lambda: callbacks.CSVLogger("x.csv"),
    ],
)
def test_every_callback_has_a_state(make):
    callback = make()
    state = callback.state_dict()
    callback.load_state_dict(state)
    assert callback.state_dict() == state
    with pytest.raises(ArgumentError, match="expected the keys"):
        callback.load_state_dict({"other": 1})


# --- progress -------------------------------------------------------------------------


def test_epoch_lines_without_a_terminal(capsys):
    make_model(metrics=["mae"]).fit(X, Y, batch_size=4, epochs=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[::2] == ["Epoch 1/2", "Epoch 2/2"]
    assert lines[1].startswith("3/3 - ")
    assert "loss: " in lines[3]
    assert "mae: " in lines[3]
    make_model().fit(X, Y, batch_size=4, verbose=2)
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_verbose(capsys):
    model = make_model()
    model.fit(X, Y, verbose=0)
    assert capsys.readouterr().out == ""
    model.evaluate(X, Y, verbose=2)
    assert capsys.readouterr().out.startswith("1/1 - ")
    model.predict(X, verbose=2)
    assert capsys.readouterr().out.startswith("1/1 - ")
    with pytest.raises(ArgumentError, match="verbose"):
        model.fit(X, Y, verbose="loud")


def test_verbose_1_without_a_terminal_prints_lines(capsys):
    make_model().fit(X, Y, batch_size=4, verbose=1)
    output = capsys.readouterr().out
    assert output.startswith("3/3 - ") and "\r" not in output


def fit_on_terminal(columns):
    """Return the lines that `fit` leaves on a terminal of this width."""
    pty = pytest.importorskip("pty")
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r});"
        "from test_callbacks import *;"
        "make_model(metrics=['mae']).fit(X, Y, epochs=2, validation_data=(X, Y))"
    )
    main, child = pty.openpty()
    termios = pytest.importorskip("termios")
    termios.tcsetwinsize(child, (24, columns))
    with os.fdopen(main, "rb", closefd=True) as terminal:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=child, stdout=child, stderr=child
        )
        os.close(child)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while chunk := terminal.read1():
                shown += chunk
        assert process.wait() == 0
    rows = [row.split("\r")[-1] for row in shown.decode().split("\r\n")]
    return [row.strip() for row in rows if " - " in row]


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_last_line_of_an_epoch_on_a_terminal_shows_every_metric(columns):
    rows = fit_on_terminal(columns)
    assert [row.split(" - ")[0] for row in rows] == ["Epoch 1/2", "Epoch 2/2"]
    for row in rows:
        for name in ("loss", "mae", "val_loss", "val_mae"):
            assert f" {name}: " in row


def test_bar_is_closed_after_an_interrupt(capsys, monkeypatch):
    class Interrupt(Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    bar = callbacks.ProgbarLogger()
    with pytest.raises(KeyboardInterrupt):
        make_model().fit(X, Y, callbacks=[Interrupt(), bar], verbose=1)
    assert bar._bar is None


def test_tqdm_is_imported_late(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.std", None)
    make_model().fit(X, Y, verbose=2)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with pytest.raises(ImportError):
        make_model().fit(X, Y, verbose=1)


def test_pace_excludes_the_first_step(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(progress, "perf_counter", lambda: clock[0])
    logger = callbacks.ProgbarLogger()
    logger.set_params({"verbose": 2, "steps": 3, "epochs": 1})
    logger.on_epoch_begin(0)
    for batch, seconds in enumerate((10.0, 10.1, 10.2)):  # the first step compiles
        clock[0] = seconds
        logger.on_train_batch_end(batch)
    logger.on_epoch_end(0, {"loss": 0.5})
    assert capsys.readouterr().out == "3/3 - 10s - 100ms/step - loss: 0.5000\n"


def test_states_of_saving_callbacks_keep_their_names(tmp_path):
    """Older backups contain these names."""
    checkpoint = callbacks.ModelCheckpoint(tmp_path / "x.keras", save_freq=5)
    checkpoint.load_state_dict({"best": 0.5, "_batches_since_save": 3})
    assert checkpoint.state_dict() == {"best": 0.5, "_batches_since_save": 3}
    saved = []
    checkpoint._save = lambda batch, logs: saved.append(batch)
    checkpoint.on_epoch_begin(2)
    for batch in range(9):
        checkpoint.on_train_batch_end(batch)
    assert saved == [1, 6]  # two batches after the three, then five
    backup = callbacks.BackupAndRestore(tmp_path)
    assert backup.state_dict() == {"_epoch": 0, "_last_batch": -1, "_waiting": 0}


def test_callbacks_name_a_schedule_of_the_optimizer():
    schedule = toolkit.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    model = make_model()
    model.compile(toolkit.optimizers.SGD(schedule, name="s"), "mse")
    scheduler = callbacks.LearningRateScheduler(lambda epoch, rate: rate)
    with pytest.raises(TypeError, match="LearningRateScheduler: the optimizer 's' has"):
        model.fit(X, Y, callbacks=[scheduler], verbose=0)
    reduction = callbacks.ReduceLROnPlateau("loss")
    with pytest.warns(UserWarning, match="ReduceLROnPlateau: the optimizer 's' has a"):
        model.fit(X, Y, callbacks=[reduction], verbose=0)
