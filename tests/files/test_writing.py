"""Files in a folder that does not exist: it is created, or the error names it."""

from __future__ import annotations

import os
import re
import warnings

import numpy as np
import pytest

import toolkit
from toolkit import callbacks, data, distribution, layers, ops, utils
from toolkit.data import Dataset
from toolkit.errors import UnwritableFileError
from toolkit.models import load_model

X = np.ones((8, 4), "float32")
Y = np.ones((8, 1), "float32")


def built():
    model = toolkit.Sequential([toolkit.Input((4,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def fit(*listed):
    return built().fit(X, Y, verbose=0, callbacks=[*listed])


def batches():
    dataset = Dataset.from_tensor_slices((X, Y)).batch(4)
    for _ in dataset:
        pass
    return dataset


def inspection():
    return toolkit.function(lambda x: ops.exp(x) @ x).inspect(ops.ones((4, 4)))


def forecast():
    options = {"batch_size": 4, "x": X, "y": Y, "timing": lambda kernel: 1e-3}
    return distribution.simulate(built(), [2], **options)


def editor(path):
    model = built()
    folder = os.path.dirname(os.path.dirname(path))
    model.save(os.path.join(folder, "source.keras"))
    return toolkit.saving.KerasFileEditor(os.path.join(folder, "source.keras"))


# A name with its ending, and a function that writes the file.
REFUSED = {
    "m.keras": lambda path: built().save(path),
    "w.weights.h5": lambda path: built().save_weights(path),
    "w.safetensors": lambda path: built().save_weights(path),
    "edited.weights.h5": lambda path: editor(path).save(path),
    "model.svg": lambda path: utils.plot_model(built(), path),
    "history.svg": lambda path: fit().plot(path),
    "saved.svg": lambda path: fit().plot().save(path),
    "report.html": lambda path: built().report(path),
    "model.dot": lambda path: utils.model_to_dot(built()).write(path),
    "log.csv": lambda path: fit(callbacks.CSVLogger(path)),
    "appended.csv": lambda path: fit(callbacks.CSVLogger(path, append=True)),
    "pass.svg": lambda path: batches().plot(path),
    "pass.json": lambda path: batches().timeline(path),
    "arena.svg": lambda path: inspection().plot(to_file=path),
    "trace.json": lambda path: inspection().trace(path),
    "image.png": lambda path: utils.save_img(path, np.zeros((4, 4, 3))),
    "records": lambda path: data.TFRecordWriter(path),
    "records.gz": lambda path: data.TFRecordWriter(path, "GZIP"),
    "records.zlib": lambda path: data.TFRecordWriter(path, "ZLIB"),
    "ranks.svg": lambda path: forecast().plot(path),
    "checkpoint": lambda path: distribution.Checkpoint(built()).save(path),
}


@pytest.mark.parametrize("name", REFUSED)
def test_error_names_the_missing_folder(name, tmp_path):
    folder = tmp_path / "missing"
    path = str(folder / name)
    with pytest.raises(UnwritableFileError) as caught:
        REFUSED[name](path)
    message = str(caught.value)
    assert message.startswith(f"cannot write {path!r}: "), message
    fix = f"the folder {str(folder)!r} does not exist; create it with os.makedirs("
    assert fix in message, message
    assert ".tmp" not in message
    assert not folder.exists()


def test_error_names_a_relative_folder_as_the_user_did(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UnwritableFileError, match=r"'no/such' .* os.makedirs\('no/such"
    ):
        fit(callbacks.CSVLogger("no/such/log.csv"))


def test_error_of_a_path_that_is_a_folder(tmp_path):
    path = tmp_path / "folder.svg"
    path.mkdir()
    with pytest.raises(UnwritableFileError, match=re.escape(repr(str(path)))):
        utils.plot_model(built(), path)


# Writers that create the folder, as in Keras and TensorFlow.
CREATED = {
    "m.h5": lambda path: built().save(path),
    "m{epoch}.keras": lambda path: fit(callbacks.ModelCheckpoint(path)),
    "m{epoch}.weights.h5": lambda path: fit(
        callbacks.ModelCheckpoint(path, save_weights_only=True)
    ),
    "logs": lambda path: fit(callbacks.TensorBoard(path)),
    "backup": lambda path: fit(
        callbacks.BackupAndRestore(path, delete_checkpoint=False)
    ),
    "elements": lambda path: Dataset.range(4).save(path),
    "cache": lambda path: list(Dataset.range(4).cache(path)),
    "snapshot": lambda path: list(Dataset.range(4).snapshot(path)),
}


@pytest.mark.parametrize("name", CREATED)
def test_folder_is_created(name, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        CREATED[name](str(tmp_path / "missing" / name))
    written = [*(tmp_path / "missing").rglob("*")]
    assert any(path.is_file() and path.stat().st_size for path in written)
    if name == "m.h5":
        load_model(written[0])


def test_write_file_creates_the_folder(tmp_path):
    import toolkit.compat.tensorflow as tf

    path = tmp_path / "a" / "b" / "text"
    tf.io.write_file(str(path), "words")
    assert path.read_text() == "words"
