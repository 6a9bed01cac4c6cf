"""Test weights in files: round trips, rollback, corrupt and hostile files."""

import io
import os
from pathlib import Path

import h5py
import numpy as np
import pytest

import toolkit
from toolkit import Input, Model, Sequential, layers
from toolkit.errors import ArgumentError, ModelFileError, NotBuiltError
from toolkit.reading import hdf5

X = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")


def make_model(units=3, last=2):
    return Sequential(
        [
            Input((4,)),
            layers.Dense(units, name="first"),
            layers.BatchNormalization(),
            layers.Dense(last, name="last"),
        ]
    )


def assert_same(a, b):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.fixture
def saved(tmp_path):
    model, path = make_model(), tmp_path / "x.weights.h5"
    model.set_weights(
        [np.full_like(w, i + 1) for i, w in enumerate(model.get_weights())]
    )
    model.save_weights(path)
    return path


def edit(path, change):
    with h5py.File(path, "r+") as file:
        change(file)


def test_round_trip(saved):
    model = make_model()
    model.load_weights(str(saved))
    assert [float(w.flat[0]) for w in model.get_weights()] == list(range(1, 9))


def test_round_trip_of_the_optimizer(tmp_path):
    def compiled():
        model = make_model()
        model.compile("adam", "mse")
        return model

    model, path = compiled(), tmp_path / "x.weights.h5"
    model.fit(X, X[:, :2], epochs=3, verbose=0)
    model.save_weights(path)
    restored = compiled()
    restored.optimizer.build(restored.trainable_variables)
    restored.load_weights(path)
    for a, b in zip(
        model.optimizer.variables, restored.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    losses = [m.train_on_batch(X, X[:, :2]) for m in (model, restored)]
    assert losses[0] == losses[1]
    without_optimizer = make_model()
    without_optimizer.load_weights(
        path
    )  # a model without an optimizer ignores its state
    other = make_model()
    other.compile("sgd", "mse")
    other.optimizer.build(other.trainable_variables)
    with pytest.warns(
        UserWarning, match="'sgd.* keeps its current state: .* of another optimizer"
    ):
        other.load_weights(path)


@pytest.mark.parametrize("name", ["Adam", "SGD"])
def test_new_optimizer_keeps_its_learning_rate(name, tmp_path):
    make = getattr(toolkit.optimizers, name)
    model, path = make_model(), tmp_path / "x.weights.h5"
    model.compile(make(0.1), "mse")
    model.fit(X, X[:, :2], verbose=0)
    model.save_weights(path)
    restored = make_model()
    restored.compile(make(0.001), "mse")
    with pytest.warns(
        UserWarning, match="keeps its current state: the optimizer is not built yet"
    ):
        restored.load_weights(path)
    np.testing.assert_array_equal(restored.predict(X), model.predict(X))
    assert float(restored.optimizer.learning_rate) == pytest.approx(0.001)
    assert int(restored.optimizer.iterations) == 0
    untrained = make_model()
    untrained.compile(make(0.1), "mse")
    untrained.save_weights(path)
    restored.load_weights(path)  # of an optimizer without steps: no warning


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_dtypes(dtype, tmp_path):
    def make():
        return Sequential([Input((4,)), layers.Dense(3, dtype=dtype)])

    model, restored = make(), make()
    model.save_weights(tmp_path / "x.weights.h5")
    restored.load_weights(tmp_path / "x.weights.h5")
    assert restored.weights[0].dtype == dtype
    assert_same(model.get_weights(), restored.get_weights())


def test_float32_weights_load_into_a_mixed_model(saved):
    policy = "mixed_bfloat16"
    model = Sequential(
        [
            Input((4,)),
            layers.Dense(3, dtype=policy),
            layers.BatchNormalization(dtype=policy),
            layers.Dense(2, dtype=policy),
        ]
    )
    model.load_weights(saved)
    assert [float(w.flat[0]) for w in model.get_weights()] == list(range(1, 9))


def test_shared_layers_are_saved_once(tmp_path):
    shared = layers.Dense(4)
    a = Input((4,))
    model = Model(a, shared(shared(a)))
    model.save_weights(tmp_path / "x.weights.h5")
    with h5py.File(tmp_path / "x.weights.h5") as file:
        assert list(file["layers"]) == ["dense", "input_layer"]


def test_layer_with_custom_saving(tmp_path):
    class Table(layers.Layer):
        def __init__(self):
            super().__init__()
            self.words = np.array([1, 2, 3])
            self.built = True

        def call(self, x):
            return x

        def save_own_variables(self, store):
            store["words"] = self.words

        def load_own_variables(self, store):
            if "words" not in store:
                raise ValueError("the table has no words")
            self.words = store["words"]

    def make():
        return Sequential([Input((4,)), Table(), layers.Dense(2)])

    model, restored = make(), make()
    model.layers[0].words = np.array([7, 8])
    model.save_weights(tmp_path / "x.weights.h5")
    restored.load_weights(tmp_path / "x.weights.h5")
    assert restored.layers[0].words.tolist() == [7, 8]
    edit(tmp_path / "x.weights.h5", lambda f: f.__delitem__("layers/table/vars/words"))
    with pytest.raises(
        ModelFileError, match="layers/table/vars: the table has no words"
    ):
        restored.load_weights(tmp_path / "x.weights.h5")


# --- mismatches -----------------------------------------------------------------------


def test_every_mismatch_is_listed_and_nothing_changes(saved):
    model = Sequential(
        [
            Input((4,)),
            layers.Dense(5, use_bias=False, name="first"),
            layers.BatchNormalization(),
            layers.Dense(2, name="last"),
            layers.Dense(1, name="extra"),
        ]
    )
    before = model.get_weights()
    with pytest.raises(ModelFileError) as caught:
        model.load_weights(saved)
    message = str(caught.value)
    assert "The model is unchanged" in message
    for line in (
        r"layers/dense/vars/0: expected sequential",
        "of shape (4, 5); the file has (4, 3)",
        "layers/dense/vars/1: unexpected, of shape (3,)",
        "layers/batch_normalization/vars/3: expected",
        "layers/dense_2/vars/0: missing in the file; expected",
        "layers/dense_2/vars/1: missing",
    ):
        assert line in message
    assert_same(before, model.get_weights())


def test_unknown_values_are_skipped(saved):
    model = Sequential([Input((4,)), layers.Dense(3), layers.BatchNormalization()])
    with pytest.warns(UserWarning, match="layers/dense_1/vars/0: unexpected"):
        model.load_weights(saved)
    skipped = make_model()
    skipped.load_weights(saved)
    assert_same(model.layers[0].get_weights(), skipped.layers[0].get_weights())


def test_skip_mismatch(saved):
    model = make_model(last=5)
    start = model.get_weights()
    with pytest.warns(
        UserWarning, match=r"these weights are unchanged:\n  layers/dense_1/vars/0"
    ):
        model.load_weights(saved, skip_mismatch=True)
    assert [float(w.flat[0]) for w in model.get_weights()[:6]] == list(range(1, 7))
    assert_same(start[6:], model.get_weights()[6:])


def test_objects_to_skip(saved):
    model = make_model()
    start = model.get_weights()
    model.load_weights(saved, objects_to_skip=[model.layers[2]])
    assert float(model.get_weights()[0].flat[0]) == 1
    assert_same(start[6:], model.get_weights()[6:])


# --- invalid files --------------------------------------------------------------------


def refuse(path, message):
    model = make_model()
    before = model.get_weights()
    with pytest.raises(ModelFileError, match=message):
        model.load_weights(path)
    assert_same(before, model.get_weights())


@pytest.mark.parametrize("size", [0, 10, 100, 2000, -1000, -1])
def test_truncated(saved, size):
    data = saved.read_bytes()
    saved.write_bytes(data[:size])
    refuse(saved, "x.weights.h5")


def test_foreign(tmp_path, saved):
    path = tmp_path / "y.weights.h5"
    path.write_bytes(b"PK\x03\x04 this is no HDF5 file" * 100)
    refuse(path, "expected an HDF5 file")
    with h5py.File(path, "w") as file:
        file["other/data"] = np.zeros(3)
    refuse(path, "other/data: unexpected")
    with h5py.File(path, "w") as file:
        file["layers/dense/vars/0"] = np.array([b"text"])
    refuse(path, "missing in the file")


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        make_model().load_weights(tmp_path / "none.weights.h5")


def replace(file, item):
    del file["layers/dense/vars/0"]
    file["layers/dense/vars/0"] = item


def test_links_and_external_storage_are_refused(saved, tmp_path):
    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["data"] = np.ones((4, 3), "float32")
    content = saved.read_bytes()

    edit(saved, lambda f: replace(f, h5py.ExternalLink(str(other), "data")))
    refuse(saved, "layers/dense/vars/0 is a link")
    saved.write_bytes(content)
    edit(saved, lambda f: replace(f, h5py.SoftLink("/layers/dense_1/vars/0")))
    refuse(saved, "is a link")
    saved.write_bytes(content)

    def external(file):
        del file["layers/dense/vars/0"]
        storage = [(str(other), 0, 48)]
        file.create_dataset("layers/dense/vars/0", (4, 3), "f4", external=storage)

    edit(saved, external)
    refuse(saved, "its data is in another file")
    saved.write_bytes(content)

    def virtual(file):
        del file["layers/dense/vars/0"]
        layout = h5py.VirtualLayout((4, 3), "f4")
        layout[:] = h5py.VirtualSource(str(other), "data", (4, 3))
        file.create_virtual_dataset("layers/dense/vars/0", layout)

    edit(saved, virtual)
    refuse(saved, "its data is in another file")
    saved.write_bytes(content)
    edit(saved, lambda f: f.__setitem__("layers/loop", f["layers"]))
    refuse(saved, "second path of an object")


def test_huge_declared_shapes_are_never_read(saved):
    def bomb(file):
        del file["layers/dense/vars/0"]
        file.create_dataset("layers/dense/vars/0", (1 << 40,), "f4", chunks=(1024,))

    edit(saved, bomb)
    refuse(saved, "the file has")
    dataset = hdf5.Dataset
    with h5py.File(saved) as file:
        declared = dataset("x", file["layers/dense/vars/0"])
        with pytest.raises(ModelFileError, match="declares 4398046511104 bytes"):
            declared.read()


def test_strings_are_refused(saved):
    edit(saved, lambda f: replace(f, np.full((4, 3), b"text")))
    refuse(saved, "expected numbers")


# --- writing --------------------------------------------------------------------------


def test_failed_write_keeps_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    for name in ("write_groups", "os.replace", "os.fsync"):
        with monkeypatch.context() as patch:
            if name == "write_groups":
                patch.setattr("toolkit.models.saving.weights.write_groups", fail)
            else:
                patch.setattr(name, fail)
            with pytest.raises(ModelFileError, match="No space left"):
                make_model().save_weights(saved)
        assert saved.read_bytes() == before
        assert os.listdir(saved.parent) == [saved.name]


def test_interrupted_write_keeps_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def interrupt(path, groups):
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr("toolkit.models.saving.weights.write_groups", interrupt)
    with pytest.raises(KeyboardInterrupt):
        make_model().save_weights(saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_unwritable_path(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in ("missing", "file"):
        with pytest.raises(ModelFileError, match="cannot write"):
            make_model().save_weights(tmp_path / folder / "x.weights.h5")
    (tmp_path / "folder.weights.h5").mkdir()
    with pytest.raises(ModelFileError, match="cannot write"):
        make_model().save_weights(tmp_path / "folder.weights.h5")


def test_link_is_followed(tmp_path):
    real, link = tmp_path / "real.weights.h5", tmp_path / "link.weights.h5"
    make_model().save_weights(real)
    link.symlink_to(real)
    before = real.read_bytes()
    make_model().save_weights(link)
    assert link.is_symlink()
    assert real.read_bytes() != before


def test_arguments_of_save_weights(saved):
    model = make_model()
    with pytest.raises(ArgumentError, match=r"ends in '\.weights\.h5'"):
        model.save_weights(saved.parent / "x.h5")
    with pytest.raises(ArgumentError, match="exists already"):
        model.save_weights(saved, overwrite=False)
    with pytest.raises(ArgumentError, match="increase max_shard_size"):
        model.save_weights(saved.parent / "x.weights.json", max_shard_size=1e-9)
    for name in ("x.weights.json", "x.safetensors.index.json"):
        for size in (0, -1, float("nan")):
            with pytest.raises(
                ArgumentError,
                match="a number of gigabytes > 0",
            ):
                model.save_weights(saved.parent / name, max_shard_size=size)
            assert not (saved.parent / name).exists()
    unbuilt = Sequential([layers.Dense(2)])
    with pytest.raises(NotBuiltError, match="save_weights"):
        unbuilt.save_weights(saved)
    with pytest.raises(NotBuiltError, match="load_weights"):
        unbuilt.load_weights(saved)


def test_only_numpy_is_imported_before_a_file_is_accessed():
    assert "h5py" not in vars(toolkit.models.saving.weights)


def test_many_nested_models_are_all_saved(tmp_path):
    """The list of a model's layers is created on each access: its id may be reused."""

    def build():
        x = inputs = toolkit.Input((3,))
        for _ in range(20):
            nested = [toolkit.layers.Dense(3), toolkit.layers.Dense(3)]
            x = toolkit.Sequential(nested)(x)
        return toolkit.Model(inputs, x)

    model, restored = build(), build()
    model.save_weights(tmp_path / "nested.weights.h5")
    restored.load_weights(tmp_path / "nested.weights.h5")
    for a, b in zip(model.get_weights(), restored.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", ["m.keras", "folder", "stream"])
def test_file_without_the_state_of_the_optimizer(tmp_path, kind):
    toolkit.utils.set_random_seed(0)
    model = toolkit.Sequential([toolkit.Input((3,)), layers.Dense(2)])
    model.compile(toolkit.optimizers.Adam(0.25), "mse")
    x = np.ones((4, 3), "float32")
    model.fit(x, x[:, :2], verbose=0)
    file = io.BytesIO() if kind == "stream" else tmp_path / kind
    zipped = False if kind == "folder" else None
    toolkit.saving.save_model(model, file, zipped=zipped, include_optimizer=False)
    if kind == "stream":
        file.seek(0)
    loaded = toolkit.saving.load_model(file)
    np.testing.assert_array_equal(loaded.get_weights()[0], model.get_weights()[0])
    assert float(loaded.optimizer.learning_rate) == 0.25
    assert int(loaded.optimizer.iterations) == 0
    assert not any(np.any(v.numpy()) for v in loaded.optimizer.variables[2:])
    loaded.fit(x, x[:, :2], verbose=0)
