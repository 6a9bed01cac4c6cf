"""Test the checksums of model files: corrupt or mixed files are refused."""

import json
import os
import shutil
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

import toolkit as tk
from toolkit import layers, saving
from toolkit.errors import ArgumentError, ModelFileError, UnwritableFileError

X = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
ENDINGS = {
    "keras": "x.keras",
    "weights": "x.weights.h5",
    "legacy": "x.h5",
    "shards": "x.weights.json",
    "folder": "x",
}


@saving.register_keras_serializable("test_checksums")
class Words(layers.Layer):
    """A layer that stores its words in a file."""

    words = "a b"

    def call(self, x):
        return x

    def save_assets(self, folder):
        Path(folder, "words.txt").write_text(self.words, "utf-8")

    def load_assets(self, folder):
        self.words = Path(folder, "words.txt").read_text("utf-8")


def make_model(seed=1, words="a b"):
    tk.utils.set_random_seed(seed)
    model = tk.Sequential([tk.Input((4,)), layers.Dense(4), layers.Dense(4), Words()])
    model.layers[-1].words = words
    return model


def save(model, kind, folder):
    path = folder / ENDINGS[kind]
    if kind in ("keras", "legacy"):
        model.save(path)
    elif kind == "folder":
        saving.save_model(model, path, zipped=False)
    else:
        size = 100 / 2**30 if kind == "shards" else None
        model.save_weights(path, max_shard_size=size)
    return path


def load(kind, path):
    if kind in ("keras", "legacy", "folder"):
        return saving.load_model(path)
    model = make_model(seed=2)
    model.load_weights(path)
    return model


def file_with_weights(kind, path):
    names = {"folder": path / "model.weights.h5"}
    return names.get(kind, path.with_name("x_00001.weights.h5"))


# --- weights --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ENDINGS)
@pytest.mark.parametrize("mask", [1, 128])
def test_flipped_bit_of_a_weight_is_detected(kind, mask, tmp_path):
    model = make_model()
    path = save(model, kind, tmp_path)
    np.testing.assert_array_equal(load(kind, path).predict(X), model.predict(X))
    files_by_format = {"folder": path / "model.weights.h5"}
    files = (
        [files_by_format.get(kind, path)] if kind != "shards" else tmp_path.glob("*.h5")
    )
    value = model.get_weights()[2].tobytes()
    (file_with_value,) = [file for file in files if value in file.read_bytes()]
    data = bytearray(file_with_value.read_bytes())
    data[data.index(value) + 5] ^= mask
    file_with_value.write_bytes(data)
    with pytest.raises(ModelFileError, match="not those that were saved|corrupt"):
        load(kind, path)


def test_other_values_under_the_same_names_are_detected(tmp_path):
    """Also in a ZIP whose own checksums match the new bytes."""
    path = save(make_model(), "keras", tmp_path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    inner = tmp_path / "inner.h5"
    inner.write_bytes(members["model.weights.h5"])
    with h5py.File(inner, "a") as file:
        file["layers/dense/vars/0"][0, 0] += 1
    members["model.weights.h5"] = inner.read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(ModelFileError, match="layers/dense/vars/0: its values are not"):
        saving.load_model(path)


def test_swapped_weights_are_detected(tmp_path):
    path = save(make_model(), "weights", tmp_path)
    with h5py.File(path, "a") as file:
        for source, target in (("dense", "other"), ("dense_1", "dense")):
            file.move(f"layers/{source}", f"layers/{target}")
        file.move("layers/other", "layers/dense_1")
    with pytest.raises(ModelFileError, match="its values are not"):
        load("weights", path)


@pytest.mark.parametrize("changes", [True, False])
def test_file_without_a_checksum_loads(tmp_path, changes):
    model = make_model()
    path = save(model, "weights", tmp_path)
    with h5py.File(path, "a") as file:
        dataset = file["layers/dense/vars/1"]
        if changes:  # new ones have none
            del file["layers/dense/vars/1"]
            file["layers/dense/vars/1"] = np.ones(4, "float32")
        else:
            del dataset.attrs["crc32"]
    restored = load("weights", path)
    assert (restored.layers[0].bias.numpy() == 1).all() == changes


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint32", "int64", "float16", "bfloat16", "float64"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_arrays_of_all_dtypes_and_shapes(tmp_path, dtype, shape):
    class Own(layers.Layer):
        def build(self, _):
            self.w = self.add_weight(shape, "ones", dtype, trainable=False)

        def call(self, x):
            return x

    model = tk.Sequential([tk.Input((4,)), Own()])
    model.save_weights(tmp_path / "x.weights.h5")
    with h5py.File(tmp_path / "x.weights.h5") as file:
        assert "crc32" in file["layers/own/vars/0"].attrs
    model.load_weights(tmp_path / "x.weights.h5")
    assert model.weights[0].dtype == dtype


def test_equal_weights_write_equal_bytes(tmp_path):
    model = make_model()
    first = save(model, "weights", tmp_path).read_bytes()
    assert save(model, "weights", tmp_path).read_bytes() == first


# --- related files --------------------------------------------------------------------


def test_missing_listed_file_is_detected(tmp_path):
    path = save(make_model(), "keras", tmp_path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    (asset,) = [name for name in members if name.startswith("assets/")]
    del members[asset]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(ModelFileError, match="member 'assets/"):
        saving.load_model(path)


@pytest.mark.parametrize("name", ["config.json", "model.weights.h5", "assets"])
def test_files_of_two_models_in_a_folder_are_refused(tmp_path, name):
    (tmp_path / "other").mkdir()
    path = save(make_model(), "folder", tmp_path)
    other = save(make_model(3, "b c"), "folder", tmp_path / "other")
    target = path / name
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    with pytest.raises((ModelFileError, ArgumentError), match="missing|not supported"):
        saving.load_model(path)
    (other / name).rename(target)
    if name == "config.json":
        target.write_bytes(target.read_bytes().replace(b"true", b"false", 1))
    with pytest.raises(ModelFileError, match="differs from the file that was saved"):
        saving.load_model(path)


def test_shards_of_two_saves_are_refused(tmp_path):
    (tmp_path / "other").mkdir()
    path = save(make_model(), "shards", tmp_path)
    other = save(make_model(3), "shards", tmp_path / "other")
    other.with_name("x_00001.weights.h5").rename(path.with_name("x_00001.weights.h5"))
    with pytest.raises(ModelFileError, match="was saved at another time"):
        load("shards", path)


# --- existing files -------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [["thesis.tex"], ["config.json"], ["inner/thesis.tex"], ["assets/a.txt"]],
)
def test_folder_of_foreign_files_is_unchanged(tmp_path, names):
    path = tmp_path / "x"
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("years of work")
    with pytest.raises(
        UnwritableFileError, match="files that do not belong to a saved model"
    ):
        save(make_model(), "folder", tmp_path)
    paths = [p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()]
    assert paths == names
    assert (path / names[0]).read_text() == "years of work"


@pytest.mark.parametrize("name", ["thesis.tex", "assets/words/mine.txt", ".hidden"])
def test_foreign_files_next_to_a_model_are_kept(tmp_path, name):
    path = save(make_model(), "folder", tmp_path)
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_text("years of work")
    with pytest.raises(
        UnwritableFileError, match="files that do not belong to a saved model"
    ):
        save(make_model(3), "folder", tmp_path)
    assert (path / name).read_text() == "years of work"
    np.testing.assert_array_equal(load("folder", path).predict(X), make_model()(X))


def test_links_in_the_folder_of_a_model_are_not_followed(tmp_path):
    path = save(make_model(), "folder", tmp_path)
    target = tmp_path / "outside"
    shutil.move(path / "assets", target)
    (path / "assets").symlink_to(target)
    before = {p: p.read_bytes() for p in target.rglob("*") if p.is_file()}
    with pytest.raises(UnwritableFileError):
        save(make_model(3, "b c"), "folder", tmp_path)
    assert all(p.read_bytes() == data for p, data in before.items())


def test_folder_of_keras_is_replaced(tmp_path):
    path = save(make_model(), "folder", tmp_path)
    metadata = json.loads((path / "metadata.json").read_text())
    del metadata["files"]
    (path / "metadata.json").write_text(json.dumps(metadata))
    load("folder", path)  # without a manifest, too
    model = make_model(3, "b c")
    save(model, "folder", tmp_path)
    restored = load("folder", path)
    assert restored.layers[-1].words == "b c"
    np.testing.assert_array_equal(restored.predict(X), model.predict(X))
    assert sorted(os.listdir(path)) == [
        *("assets", "config.json", "metadata.json", "model.weights.h5"),
    ]


def test_obsolete_assets_are_removed(tmp_path):
    path = save(make_model(), "folder", tmp_path)
    without_assets = tk.Sequential([tk.Input((4,)), layers.Dense(2)])
    save(without_assets, "folder", tmp_path)
    assert not [p for p in path.rglob("*") if p.is_file() and "assets" in p.parts]


def test_obsolete_shards_are_removed(tmp_path):
    path = save(make_model(), "shards", tmp_path)
    shards = len(list(tmp_path.glob("x_*")))
    make_model(3).save_weights(path, max_shard_size=1)
    assert shards > 1 and os.listdir(tmp_path).count("x_00000.weights.h5") == 1
    assert len(os.listdir(tmp_path)) == 2
    np.testing.assert_array_equal(load("shards", path).predict(X), make_model(3)(X))


@pytest.mark.parametrize("name", ["x_00000.weights.h5", "x_00001.weights.h5"])
def test_foreign_file_with_the_name_of_a_shard_is_kept(tmp_path, name):
    (tmp_path / name).write_text("years of work")
    with pytest.raises(UnwritableFileError, match="move it away"):
        save(make_model(), "shards", tmp_path)
    assert os.listdir(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "years of work"


def test_listed_files_of_keras_are_replaced_and_other_files_kept(tmp_path):
    path = save(make_model(), "shards", tmp_path)
    listing = json.loads(path.read_text())
    del listing["metadata"]["files"]
    path.write_text(json.dumps(listing))
    shards = sorted(tmp_path.glob("x_*"))
    make_model(3).save_weights(path, max_shard_size=1)
    assert sorted(tmp_path.glob("x_*")) == shards
    np.testing.assert_array_equal(load("shards", path).predict(X), make_model(3)(X))


@pytest.mark.parametrize("kind", ["folder", "shards"])
def test_full_disk_keeps_the_older_save(tmp_path, kind, monkeypatch):
    model = make_model()
    path = save(model, kind, tmp_path)
    before = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*"))

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    module = "archives" if kind == "folder" else "shards"
    for name in (f"toolkit.models.saving.{module}.write_groups", "os.fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(name, fail)
            with pytest.raises(UnwritableFileError, match="No space left"):
                save(make_model(3), kind, tmp_path)
        assert sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*")) == before
        np.testing.assert_array_equal(load(kind, path).predict(X), model.predict(X))
