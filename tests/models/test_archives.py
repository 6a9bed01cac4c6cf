"""Test whole-model files: hostile and corrupt files, folders, shards, old configs."""

import io
import json
import warnings
import zipfile

import h5py
import numpy as np
import pytest

import toolkit
from toolkit import Input, Sequential, layers, saving
from toolkit.errors import ArgumentError, ModelFileError
from toolkit.models.saving import archives

X = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")


def make_model():
    return Sequential([Input((4,)), layers.Dense(3), layers.Dropout(0.5)])


@pytest.fixture
def saved(tmp_path):
    make_model().save(tmp_path / "x.keras")
    return tmp_path / "x.keras"


def rewrite(path, change, compression=zipfile.ZIP_STORED):
    """Replace the members of an archive by the result of `change`."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members = change(members) or members
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def rewrite_config(path, change):
    def apply(members):
        config = json.loads(members["config.json"])
        change(config)
        members["config.json"] = json.dumps(config).encode()

    rewrite(path, apply)


def test_members(saved):
    with zipfile.ZipFile(saved) as archive:
        infos = archive.infolist()
        names = [info.filename for info in infos]
        assert names == ["metadata.json", "config.json", "model.weights.h5"]
        assert all(info.compress_type == zipfile.ZIP_STORED for info in infos)
        assert json.loads(archive.read("metadata.json"))["keras_version"] == "3.15.1"


def test_training_continues_after_loading(tmp_path):
    model = Sequential([Input((4,)), layers.Dense(3), layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    model.fit(X, X[:, :1], epochs=2, verbose=0)
    model.save(tmp_path / "x.keras")
    restored = saving.load_model(tmp_path / "x.keras")
    assert restored.optimizer.iterations == model.optimizer.iterations
    losses = [m.train_on_batch(X, X[:, :1]) for m in (model, restored)]
    np.testing.assert_array_equal(*losses)
    assert not saving.load_model(tmp_path / "x.keras", compile=False).compiled


def test_folders(tmp_path):
    model = make_model()
    for _ in range(2):  # the second one replaces the first
        saving.save_model(model, tmp_path / "folder", zipped=False)
    restored = saving.load_model(tmp_path / "folder")
    np.testing.assert_array_equal(restored.predict(X), model.predict(X))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder"]


def test_assets(tmp_path):
    @saving.register_keras_serializable("test_archives")
    class Words(layers.Layer):
        words = ("a",)

        def call(self, x):
            return x

        def save_assets(self, folder):
            with open(f"{folder}/words.txt", "w", encoding="utf-8") as file:
                file.write(" ".join(self.words))

        def load_assets(self, folder):
            with open(f"{folder}/words.txt", encoding="utf-8") as file:
                self.words = tuple(file.read().split())

    model = Sequential([Input((4,)), Words()])
    model.layers[0].words = ("b", "c")
    for path, zipped in ((tmp_path / "x.keras", True), (tmp_path / "x", False)):
        saving.save_model(model, path, zipped=zipped)
        assert saving.load_model(path).layers[0].words == ("b", "c")


def test_failed_write_keeps_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(archives, "write_groups", fail)
    with pytest.raises(ModelFileError, match="disk full"):
        make_model().save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_arguments(saved):
    model = make_model()
    with pytest.raises(ArgumentError, match="exists already"):
        model.save(saved, overwrite=False)
    with pytest.raises(ArgumentError, match="ends in .keras or .h5"):
        model.save(saved.parent / "x.pb")
    with pytest.raises(ArgumentError, match="folder"):
        model.save(saved, zipped=False)
    with pytest.raises(ArgumentError, match="save_format"):
        model.save(saved, save_format="tf")
    model.save(saved, save_format="keras_v3")
    with pytest.raises(FileNotFoundError):
        saving.load_model(saved.parent / "none.keras")
    with pytest.raises(ArgumentError, match="TensorFlow graph"):
        saving.load_model(saved.parent / "x.pb")


def test_weights_alone(saved):
    model = make_model()
    model.load_weights(saved)
    np.testing.assert_array_equal(model.predict(X), saving.load_model(saved).predict(X))
    with pytest.raises(ArgumentError, match="objects_to_skip"):
        model.load_weights(saved, objects_to_skip=[model.layers[0]])


# --- hostile files --------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 10, 200, -40])
def test_truncated(saved, size):
    data = saved.read_bytes()
    saved.write_bytes(data[:size])
    with pytest.raises(ModelFileError):
        saving.load_model(saved)


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "assets/../../evil", "C:/evil", "a\\b"]
)
def test_names_outside_of_the_archive_are_refused(saved, name):
    rewrite(saved, lambda members: {**members, name: b"x"})
    with pytest.raises(ModelFileError, match="outside of the archive|plain name"):
        saving.load_model(saved)


def test_duplicate_members_are_refused(saved):
    with zipfile.ZipFile(saved, "a") as archive:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            archive.writestr("config.json", "{}")
    with pytest.raises(ModelFileError, match="twice"):
        saving.load_model(saved)


def test_zip_bombs_are_refused(saved):
    bomb = b"0" * (1 << 24)
    rewrite(saved, lambda m: {**m, "assets/x": bomb}, zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelFileError, match="declares"):
        saving.load_model(saved)


def test_shapes_without_values_are_refused(saved):
    def change(config):
        config["config"]["layers"][1]["config"]["units"] = 10**9

    rewrite_config(saved, change)
    with pytest.raises(ModelFileError, match="more than the size of the file"):
        saving.load_model(saved)


def test_huge_datasets_are_refused(saved):
    def change(members):
        file = io.BytesIO(members["model.weights.h5"])
        with h5py.File(file, "r+") as weights:
            del weights["layers/dense/vars/0"]
            weights.create_dataset(
                "layers/dense/vars/0", (10**6, 10**6), "f4", chunks=True
            )
        members["model.weights.h5"] = file.getvalue()

    rewrite(saved, change)
    with pytest.raises(ModelFileError, match="declares"):
        saving.load_model(saved)


@pytest.mark.parametrize(
    "layer, words",
    [
        ({"class_name": "get_file", "module": "keras.utils"}, "locate class"),
        ({"class_name": "Popen", "module": "subprocess"}, "locate class"),
        ({"class_name": "load_model", "module": "keras.models"}, "locate class"),
        ({"class_name": "function", "module": "os", "config": "system"}, "locate"),
        ({"class_name": "__lambda__", "config": {"value": ["4wEA"]}}, "arbitrary code"),
    ],
)
def test_forbidden_names_in_configs(saved, layer, words):
    def change(config):
        config["config"]["layers"][1] = {"config": {}, **layer}

    rewrite_config(saved, change)
    with pytest.raises(ValueError, match=words):
        saving.load_model(saved)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"[" * 10**5, b'{"a": 1}', b"1"])
def test_invalid_configs_are_refused(saved, text):
    rewrite(saved, lambda members: {**members, "config.json": text})
    with pytest.raises(ModelFileError):
        saving.load_model(saved)


def test_missing_members(saved):
    for name in ("config.json", "model.weights.h5"):
        path = saved.with_name(f"{name}.keras")
        path.write_bytes(saved.read_bytes())
        rewrite(path, lambda m, gone=name: {k: m[k] for k in m if k != gone})
        with pytest.raises(ModelFileError, match=name):
            saving.load_model(path)


# --- shards ---------------------------------------------------------------------------


def test_shards(tmp_path):
    model, restored = make_model(), make_model()
    path = tmp_path / "x.weights.json"
    model.save_weights(path, max_shard_size=50 / 2**30)
    listing = json.loads(path.read_text())
    assert listing["metadata"]["total_size"] == 60
    assert listing["weight_map"]["/layers/dense/vars"] == [
        "x_00000.weights.h5",
        "x_00001.weights.h5",
    ]
    restored.load_weights(path)
    np.testing.assert_array_equal(restored.predict(X), model.predict(X))
    listing["weight_map"]["/layers/dense/vars"] = "../x.weights.h5"
    path.write_text(json.dumps(listing))
    with pytest.raises(ModelFileError, match="in the same folder"):
        restored.load_weights(path)


# --- older files ----------------------------------------------------------------------


def test_configs_of_keras_2(tmp_path):
    path = tmp_path / "old.h5"
    model = Sequential(
        [
            Input((6, 6, 2)),
            layers.DepthwiseConv2D(3, name="depth"),
            layers.Flatten(name="flat"),
            layers.Dense(2, name="head"),
        ]
    )
    model.compile("sgd", "mse")
    model.save(path)
    batch = [None, 6, 6, 2]
    depth = {"name": "depth", "kernel_size": [3, 3], "groups": 1, "dtype": "float32"}
    old = [
        ("InputLayer", {"batch_input_shape": batch, "name": "in", "sparse": False}),
        ("DepthwiseConv2D", {**depth, "batch_input_shape": batch}),
        ("Flatten", {"name": "flat", "dtype": "float32"}),
        ("Dense", {"name": "head", "units": 2, "activation": "linear"}),
    ]
    config = {
        "name": "old",
        "layers": [{"class_name": name, "config": c} for name, c in old],
    }
    training = {
        "loss": "mse",
        "metrics": None,
        "loss_weights": None,
        "optimizer_config": {
            "class_name": "SGD",
            "config": {"lr": 0.25, "decay": 0.0, "momentum": 0.0, "nesterov": False},
        },
    }
    with h5py.File(path, "r+") as file:
        file.attrs["model_config"] = json.dumps(
            {"class_name": "Sequential", "config": config}
        )
        del file["optimizer_weights"]
        file.attrs["keras_version"] = "2.3.1"
        file.attrs["training_config"] = json.dumps(training)
    restored = saving.load_model(path)
    x = np.ones((1, 6, 6, 2), "float32")
    np.testing.assert_array_equal(restored.predict(x), model.predict(x))
    assert float(restored.optimizer.learning_rate) == 0.25


@pytest.mark.parametrize("is_list", [False, True])
def test_old_layers_define_the_input_shape(tmp_path, is_list):
    path = tmp_path / "old.h5"
    model = Sequential([Input((4,)), layers.Dense(3, name="a"), layers.Dense(2)])
    model.save(path)
    names = [layer.name for layer in model.layers]
    old = [
        {"class_name": "Dense", "config": {"name": name, "units": units}}
        for name, units in zip(names, (3, 2), strict=True)
    ]
    old[0]["config"]["batch_input_shape"] = [None, 4]
    config = old if is_list else {"name": "old", "layers": old}
    with h5py.File(path, "r+") as file:
        file.attrs["keras_version"] = "2.2.4"
        file.attrs["model_config"] = json.dumps(
            {"class_name": "Sequential", "config": config}
        )
    restored = saving.load_model(path)  # warnings are errors
    assert restored.input_shape == (None, 4)
    assert [layer.name for layer in restored.layers] == names
    np.testing.assert_array_equal(restored.predict(X), model.predict(X))


def test_older_weights_by_order_and_by_name(tmp_path):
    path = tmp_path / "x.h5"
    model = make_model()
    model.save(path)
    same_names = Sequential([Input((4,)), layers.Dense(3, name=model.layers[0].name)])
    same_names.load_weights(path)
    np.testing.assert_array_equal(same_names.predict(X), model.predict(X))
    same_names.layers[0].kernel.assign(np.zeros((4, 3)))
    same_names.load_weights(path, by_name=True)
    np.testing.assert_array_equal(same_names.predict(X), model.predict(X))
    incompatible = Sequential([Input((4,)), layers.Dense(5)])
    with pytest.raises(ModelFileError, match="Shape mismatch"):
        incompatible.load_weights(path)
    with pytest.warns(UserWarning, match="these weights are unchanged"):
        incompatible.load_weights(path, skip_mismatch=True)


def test_long_lists_of_names_are_split(tmp_path, monkeypatch):
    from toolkit.models.saving import legacy_h5

    monkeypatch.setattr(legacy_h5, "_HEADER_LIMIT", 40)
    model = Sequential([Input((4,)), *(layers.Dense(2) for _ in range(9))])
    model.save(tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as file:
        assert "layer_names1" in file["model_weights"].attrs
    restored = saving.load_model(tmp_path / "x.h5")
    np.testing.assert_array_equal(restored.predict(X), model.predict(X))


# --- JSON -----------------------------------------------------------------------------


def test_json():
    model = make_model()
    text = model.to_json(indent=1)
    restored = toolkit.models.model_from_json(text)
    restored.set_weights(model.get_weights())
    np.testing.assert_array_equal(restored.predict(X), model.predict(X))
    with pytest.raises(ArgumentError, match="string"):
        toolkit.models.model_from_json({})


def test_calls_before_keras_3():
    def layer(name, class_name, calls, **config):
        config = {"name": name, **config}
        return {
            "class_name": class_name,
            "name": name,
            "config": config,
            "inbound_nodes": calls,
        }

    config = {
        "name": "old",
        "layers": [
            layer("in", "InputLayer", [], batch_input_shape=[None, 4]),
            layer("a", "Dense", [[["in", 0, 0, {}]]], units=4),
            layer("sum", "Add", [[["in", 0, 0, {}], ["a", 0, 0, {}]]]),
        ],
        "input_layers": [["in", 0, 0]],
        "output_layers": [["sum", 0, 0]],
    }
    model = toolkit.models.Functional.from_config(config)
    x = np.ones((1, 4), "float32")
    expected = x + x @ model.get_layer("a").kernel.numpy()
    np.testing.assert_allclose(model.predict(x), expected, rtol=1e-5)
    config["layers"][1]["inbound_nodes"] = [[["gone", 0, 0, {}]]]
    with pytest.raises(ArgumentError, match="Missing node: gone"):
        toolkit.models.Functional.from_config(config)


# --- editing --------------------------------------------------------------------------


def test_edited_file_fits_another_model(saved, tmp_path, capsys):
    other_model = Sequential([Input((4,)), layers.Dense(3), layers.Dense(2)])
    editor = saving.KerasFileEditor(saved)
    assert editor.config["class_name"] == "Sequential"
    assert editor.compare(make_model())["status"] == "success"
    assert editor.compare(other_model)["error_count"] == 1
    editor.add_object("layers/tail", {"0": np.ones((3, 2))})
    editor.add_weights("tail", {"1": np.ones(5), "2": np.ones(1)})
    editor.rename_object("layers/tail", "dense_1")
    differences = editor.compare(other_model)
    assert differences == {"status": "error", "error_count": 2, "match_count": 3}
    editor.delete_weight("dense_1", "2")
    editor.add_weights("dense_1", {"1": np.ones(2)})
    assert editor.compare(other_model)["match_count"] == 4
    editor.save(tmp_path / "new.weights.h5")
    other_model.load_weights(tmp_path / "new.weights.h5")
    np.testing.assert_array_equal(other_model.layers[1].bias, np.ones(2))
    reopened = saving.KerasFileEditor(tmp_path / "new.weights.h5")
    reopened.delete_object("dense_1")
    assert list(reopened.weights_dict["layers"]) == ["dense"]
    reopened.summary()
    assert "└─ 1: shape=(3,), dtype=float32" in capsys.readouterr().out


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda e: e.rename_object("dense", "a/b"), "leaf name"),
        (lambda e: e.rename_object("layers/other", "a"), "Path 'layers/other'"),
        (lambda e: e.delete_object("nothing"), "nowhere"),
        (lambda e: e.delete_object("0"), "more than once"),
        (lambda e: e.add_object("x/dense", {}), "Path 'x'"),
        (lambda e: e.add_object("dense_1", [1]), "should be a dict"),
        (lambda e: e.delete_weight("dense", "7"), "Weight 7 not found"),
        (lambda e: e.save("x.h5"), "weights.h5"),
    ],
)
def test_editor_refuses_invalid_changes(saved, change, message):
    editor = saving.KerasFileEditor(saved)
    editor.add_object("layers/twin", {"0": np.ones(1)})
    with pytest.raises(ArgumentError, match=message):
        change(editor)


@pytest.mark.parametrize(
    "link, kind",
    [
        (h5py.SoftLink("/real"), "SoftLink"),
        (h5py.ExternalLink("/etc/other.h5", "/layers"), "ExternalLink"),
    ],
)
def test_editor_follows_no_links(tmp_path, link, kind):
    with h5py.File(tmp_path / "x.weights.h5", "w") as file:
        file.create_group("real").create_dataset("0", data=np.zeros(1))
        file["layers"] = link
    with pytest.raises(ModelFileError, match=kind):
        saving.KerasFileEditor(tmp_path / "x.weights.h5")
