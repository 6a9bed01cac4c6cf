"""Test callbacks that back up, average, send and show runs."""

import copy
import http.server
import json
import pickle
import struct
import threading

import numpy as np
import pytest

import toolkit
from toolkit import Input, Sequential, callbacks, layers, ops
from toolkit.data.records import masked_crc32c
from toolkit.errors import ArgumentError, ModelFileError
from toolkit.models.callbacks import logs as lazy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 4)).astype("float32")
Y = RNG.normal(size=(12, 2)).astype("float32")


def make_model(**arguments):
    model = Sequential(
        [Input((4,)), layers.Dense(8), layers.Dropout(0.3), layers.Dense(2)]
    )
    model.compile(toolkit.optimizers.Adam(0.05, **arguments), "mse")
    return model


# --- BackupAndRestore -----------------------------------------------------------------


class Stop(callbacks.Callback):
    """A callback that fails at the end of an epoch, with any error."""

    def __init__(self, epoch, error=RuntimeError):
        super().__init__()
        self.epoch = epoch
        self.error = error

    def on_epoch_end(self, epoch, logs=None):
        if epoch == self.epoch:
            raise self.error


def fit(model, *extra, epochs=5):
    return model.fit(X, Y, batch_size=4, epochs=epochs, callbacks=[*extra], verbose=0)


def make_compiled_model():
    toolkit.random.set_random_seed(1)
    return make_model()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_run_continues_to_the_same_bits(tmp_path, error):
    uninterrupted = make_compiled_model()
    fit(uninterrupted)
    first = make_compiled_model()
    with pytest.raises(error):
        fit(first, callbacks.BackupAndRestore(tmp_path / "b"), Stop(2, error))
    toolkit.random.set_random_seed(99)  # another process draws other numbers
    second = make_model()
    history = fit(second, callbacks.BackupAndRestore(tmp_path / "b"))
    assert history.epoch == [3, 4]
    for a, b in zip(uninterrupted.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not (tmp_path / "b").exists()


def test_backup_every_few_batches(tmp_path):
    model = make_compiled_model()
    callback = callbacks.BackupAndRestore(
        tmp_path, save_freq=2, delete_checkpoint=False
    )
    fit(model, callback, epochs=1)
    record = json.loads((tmp_path / "training_metadata.json").read_text())
    assert (record["epoch"], record["batch"]) == (0, 2)


def test_corrupt_backup_falls_back_to_the_previous_one(tmp_path):
    def backup():
        return callbacks.BackupAndRestore(
            tmp_path, double_checkpoint=True, delete_checkpoint=False
        )

    fit(make_compiled_model(), backup(), epochs=3)
    (tmp_path / "latest.weights.h5").write_bytes(b"damaged")
    assert fit(make_model(), backup(), epochs=4).epoch == [2, 3]


@pytest.mark.parametrize("name", ["latest.weights.h5", "training_metadata.json"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-9]),
        lambda path: path.write_bytes(path.read_bytes().replace(b"2", b"1")),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"[1]"),
        lambda path: path.unlink(),
    ],
)
def test_any_corrupt_file_falls_back_to_the_previous_backup(tmp_path, name, damage):
    def backup():
        return callbacks.BackupAndRestore(
            tmp_path, double_checkpoint=True, delete_checkpoint=False
        )

    uninterrupted = make_compiled_model()
    fit(uninterrupted, epochs=4)
    fit(make_compiled_model(), backup(), epochs=3)
    damage(tmp_path / name)
    model = make_model()
    assert fit(model, backup(), epochs=4).epoch == [2, 3]
    for actual, expected in zip(
        model.get_weights(), uninterrupted.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


def test_corruption_without_another_backup_is_an_error(tmp_path):
    callback = callbacks.BackupAndRestore(tmp_path, delete_checkpoint=False)
    fit(make_compiled_model(), callback, epochs=1)
    metadata = tmp_path / "training_metadata.json"
    metadata.write_bytes(metadata.read_bytes()[:-1])
    with pytest.raises(ModelFileError, match="is corrupt"):
        fit(make_model(), callback)


@pytest.mark.filterwarnings("ignore:load_weights")
def test_backup_of_another_model_is_unchanged(tmp_path):
    callback = callbacks.BackupAndRestore(
        tmp_path, double_checkpoint=True, delete_checkpoint=False
    )
    fit(make_compiled_model(), callback, epochs=2)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other_model = Sequential([Input((4,)), layers.Dense(2)])
    other_model.compile("adam", "mse")
    with pytest.raises(ModelFileError, match="does not fit"):
        fit(other_model, callback)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_crash_between_the_files_leaves_a_complete_backup(tmp_path):
    callback = callbacks.BackupAndRestore(tmp_path, delete_checkpoint=False)
    fit(make_compiled_model(), callback, epochs=2)
    weights = (tmp_path / "latest.weights.h5").read_bytes()
    fit(make_compiled_model(), callback, epochs=3)
    (tmp_path / "latest.weights.h5").write_bytes(weights)  # as if never replaced
    model = make_model()
    assert fit(model, callback, epochs=4).epoch == [2, 3]


def test_mixed_files_are_refused(tmp_path):
    callback = callbacks.BackupAndRestore(tmp_path, delete_checkpoint=False)
    fit(make_compiled_model(), callback, epochs=1)
    make_model().save_weights(tmp_path / "latest.weights.h5")
    with pytest.raises(ModelFileError, match="is not the file"):
        fit(make_model(), callback)


@pytest.mark.parametrize("arguments", [{"backup_dir": ""}, {"save_freq": 0.5}])
def test_backup_arguments(arguments):
    with pytest.raises(ArgumentError):
        callbacks.BackupAndRestore(**{"backup_dir": "b", **arguments})


# --- SwapEMAWeights -------------------------------------------------------------------


def test_evaluation_uses_the_averages():
    model = make_model(use_ema=True, ema_momentum=0.5)
    recorded = []

    class Look(callbacks.Callback):
        def on_test_begin(self, logs=None):
            recorded.append(self.model.get_weights())

    model.train_on_batch(X, Y)
    model.train_on_batch(X, Y)
    weights = model.get_weights()
    averages = [m.numpy() for _, m in model.optimizer.averaged()]
    model.evaluate(X, Y, callbacks=[callbacks.SwapEMAWeights(), Look()], verbose=0)
    for value, average, weight in zip(recorded[0], averages, weights, strict=True):
        np.testing.assert_array_equal(value, average)
        assert not np.array_equal(value, weight)
    for value, weight in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(value, weight)


def test_swapping_on_epochs_does_not_change_training():
    toolkit.random.set_random_seed(3)
    reference = make_model(use_ema=True)
    fit(reference)
    toolkit.random.set_random_seed(3)
    swapping = make_model(use_ema=True)
    fit(swapping, callbacks.SwapEMAWeights(swap_on_epoch=True))
    for a, b in zip(reference.get_weights(), swapping.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_swapping_without_averages_is_refused():
    with pytest.raises(ArgumentError, match="use_ema=True"):
        make_model().evaluate(X, Y, callbacks=[callbacks.SwapEMAWeights()], verbose=0)


# --- RemoteMonitor --------------------------------------------------------------------


@pytest.mark.parametrize("as_json", [True, False])
def test_epochs_are_posted(as_json):
    received = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers["Content-Length"])
            received.append((self.path, self.rfile.read(length).decode()))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.handle_request).start()
    root = f"http://127.0.0.1:{server.server_port}"
    monitor = callbacks.RemoteMonitor(root, send_as_json=as_json)
    monitor.on_epoch_end(3, {"loss": np.float32(0.5)})
    server.server_close()
    (path, body) = received[0]
    assert path == "/publish/epoch/end/"
    if as_json:
        assert json.loads(body) == {"epoch": 3, "loss": 0.5}
    else:
        assert body.startswith("data=%7B")


def test_unreachable_server_is_a_warning():
    with pytest.warns(UserWarning, match="could not reach"):
        callbacks.RemoteMonitor("http://127.0.0.1:9").on_epoch_end(0, {})
    with pytest.raises(ArgumentError, match="http"):
        callbacks.RemoteMonitor("file:///")


# --- TensorBoard ----------------------------------------------------------------------


def records(folder):
    """Return the records of the only file in a folder; check the checksums."""
    (file,) = folder.glob("events.out.tfevents.*")
    data, parsed = file.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12])[0] == masked_crc32c(data[:8])
        body = data[12 : 12 + length]
        (crc,) = struct.unpack("<I", data[12 + length : 16 + length])
        assert crc == masked_crc32c(body)
        parsed.append(body)
        data = data[16 + length :]
    return parsed


def fields(message):
    """Return (number, value) of each field of a message."""

    def varint():
        nonlocal message
        value, shift = 0, 0
        while True:
            byte, message = message[0], message[1:]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while message:
        key = varint()
        size = {0: None, 1: 8, 2: -1, 5: 4}[key & 7]
        if size is None:
            yield key >> 3, varint()
            continue
        if size < 0:
            size = varint()
        value, message = message[:size], message[size:]
        yield key >> 3, value


def values(folder):
    """Return (tag, step, the fields of the value) of all events."""
    tagged_values = []
    for record in records(folder):
        event = dict(fields(record))
        if 5 in event:
            value = dict(fields(dict(fields(event[5]))[1]))
            tagged_values.append((value[1].decode(), event.get(2, 0), value))
    return tagged_values


def test_events_of_a_run(tmp_path):
    model = make_model()
    board = callbacks.TensorBoard(
        tmp_path, histogram_freq=1, write_images=True, update_freq=2,
        write_steps_per_second=True,
    )  # fmt: skip
    history = model.fit(
        *(X, Y),
        batch_size=3,
        epochs=2,
        validation_data=(X, Y),
        callbacks=board,
        verbose=0,
    )
    train = values(tmp_path / "train")
    scalars = {(t, s): struct.unpack("<f", v[2])[0] for t, s, v in train if 2 in v}
    assert scalars["epoch_loss", 1] == np.float32(history.history["loss"][1])
    assert scalars["epoch_learning_rate", 0] == np.float32(0.05)
    assert [s for t, s in scalars if t == "batch_loss"] == [2, 4, 6, 8]
    assert scalars["epoch_steps_per_second", 0] > 0
    values_by_tag = {t: s for t, s, _ in values(tmp_path / "validation")}
    assert (
        values_by_tag["evaluation_loss_vs_iterations"] == 8
        and values_by_tag["epoch_loss"] == 1
    )
    histograms = [v for t, s, v in train if t == f"{model.weights[0].path}/histogram"]
    assert len(histograms) == 2
    numbers = dict(fields(histograms[1][5]))
    weights = model.get_weights()[0]
    assert struct.unpack("<d", numbers[1])[0] == weights.min()
    assert np.frombuffer(numbers[7], "<f8").sum() == weights.size
    (image, *_) = [v for t, _, v in train if "/image/" in t]
    assert dict(fields(image[4]))[4].startswith(b"\x89PNG")
    (text,) = [v for t, _, v in train if t == "keras"]
    assert b"dropout" in dict(fields(text[8]))[8]


def test_embeddings_for_the_projector(tmp_path):
    model = Sequential(
        [Input((2,), dtype="int32"), layers.Embedding(5, 3, name="words")]
    )
    model.compile("sgd", "mse")
    board = callbacks.TensorBoard(
        tmp_path, write_graph=False, embeddings_freq=1, embeddings_metadata="names.tsv"
    )
    model.fit(np.ones((4, 2)), np.ones((4, 2, 3)), callbacks=board, verbose=0)
    table = np.loadtxt(tmp_path / "train" / "words.tsv")
    np.testing.assert_allclose(table, model.get_weights()[0], rtol=1e-6)
    config = (tmp_path / "train" / "projector_config.pbtxt").read_text()
    assert 'metadata_path: "names.tsv"' in config


@pytest.mark.parametrize("batches", [2, "10,20", (10, 20), [1, 1]])
def test_profile_has_no_effect_and_warns(batches):
    with pytest.warns(UserWarning, match="profile_batch.*no effect"):
        callbacks.TensorBoard(profile_batch=batches)


@pytest.mark.parametrize("batches", [-1, "a", (2, 1), (1, 2, 3), None, []])
def test_invalid_profile_batches(batches):
    with pytest.raises(ArgumentError, match="profile_batch"):
        callbacks.TensorBoard(profile_batch=batches)


def test_lazy_logs_are_read_on_access(monkeypatch):
    read = []
    real = lazy.fetch
    monkeypatch.setattr(lazy, "fetch", lambda values: read.append(1) or real(values))
    logs = {"loss": ops.ones(()) * 2, "parts": {"b": ops.ones(2), "a": 3}}
    expected = {"a": 3, "loss": 2.0}

    def make_logs():
        read.clear()
        return lazy.LazyLogs(logs)

    actual = make_logs()
    assert list(actual) == ["loss", "a", "b"]
    assert len(actual) == 3
    assert "loss" in actual
    assert not read
    for use in (dict, lambda x: {**x}, copy.deepcopy, lambda x: x | {}):
        eager_logs = use(make_logs())
        assert len(read) == 1
        assert eager_logs.pop("b").shape == (2,)
        assert eager_logs == expected
        assert type(eager_logs["loss"]) is float
    del logs["parts"]["b"]
    assert json.loads(json.dumps(make_logs())) == expected
    assert pickle.loads(pickle.dumps(make_logs())) == expected
    assert make_logs() == expected
    assert make_logs().get("loss") == 2.0
    actual = make_logs()
    actual["lr"] = 0.5
    assert actual.items() >= expected.items()
    assert actual["lr"] == 0.5


def test_metrics_of_several_numbers_are_arrays():
    x = np.random.default_rng(0).normal(size=(6, 4))
    y = np.eye(3)[np.arange(6) % 3]
    model = toolkit.Sequential([toolkit.layers.Dense(3, "softmax")])
    scores = [toolkit.metrics.F1Score(), toolkit.metrics.Precision([0.2, 0.6])]
    model.compile("sgd", "categorical_crossentropy", metrics=scores)
    logs = model.fit(x, y, verbose=0).history
    actual = [logs["f1_score"][0], *model.evaluate(x, y, verbose=0)[1:]]
    actual += [*model.train_on_batch(x, y)[1:]]
    assert [type(value) for value in actual] == [np.ndarray] * 5
    assert [value.shape for value in actual] == [(3,), (3,), (2,), (3,), (2,)]
