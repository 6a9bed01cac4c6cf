"""Test weights in safetensors files with the names of the model or other names."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import toolkit as tk
from toolkit import layers
from toolkit.errors import (
    ArgumentError,
    MissingFileError,
    ModelFileError,
    NotBuiltError,
    UnwritableFileError,
)
from toolkit.reading.safetensors import read_safetensors, write_safetensors


def model_of(units=4, name=None):
    """Return a model with weights of several shapes, some of them not trainable."""
    return tk.Sequential(
        [
            tk.Input((3,)),
            layers.Dense(units, name="first"),
            layers.BatchNormalization(name="norm"),
            layers.Dropout(0.5),
            layers.Dense(2, name="last"),
        ],
        name=name,
    )


def unnamed():
    inputs = tk.Input((3,))
    x = layers.Dense(3)(layers.Dense(3)(inputs))
    inner = tk.Sequential([tk.Input((3,)), layers.Dense(3), layers.Dense(3)])
    return tk.Model(inputs, layers.Dense(3)(inner(x)))


def values(model):
    return [np.asarray(weight).copy() for weight in model.weights]


def change(model):
    """Assign other values to all weights."""
    rng = np.random.default_rng(3)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape))
    return model


def assert_same_values(model, expected):
    for weight, value in zip(model.weights, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(weight), value, weight.path)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.safetensors"


# --- names of the model ---------------------------------------------------------------


def test_weights_round_trip(path):
    model = change(model_of())
    model.save_weights(path)
    assert sorted(read_safetensors(path)) == [
        *("first/bias", "first/kernel", "last/bias", "last/kernel"),
        *("norm/beta", "norm/gamma", "norm/moving_mean", "norm/moving_variance"),
    ]
    other = model_of(name="another")
    other.load_weights(path)
    assert_same_values(other, values(model))


@pytest.mark.parametrize("make", [unnamed, lambda: tk.applications.MobileNetV2(
    weights=None, input_shape=(32, 32, 3), alpha=0.35, classes=3)])  # fmt: skip
def test_layers_with_default_names_are_numbered_again(path, make):
    model = change(make())
    model.save_weights(path)
    other = make()
    other.load_weights(path)
    assert_same_values(other, values(model))


def test_custom_names_are_not_renumbered(path):
    change(model_of()).save_weights(path)
    arrays = read_safetensors(path)
    arrays["norm_1/gamma"] = arrays.pop("norm/gamma")
    write_safetensors(path, arrays)
    with pytest.raises(ModelFileError, match="norm/gamma: missing"):
        model_of().load_weights(path)


def test_optimizer_and_seeds_are_not_stored(path):
    model = model_of()
    model.compile("adam", "mse")
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    model.save_weights(path)
    assert len(read_safetensors(path)) == len(model.weights)
    steps = int(model.optimizer.iterations)
    model.load_weights(path)
    assert int(model.optimizer.iterations) == steps


def test_two_weights_of_one_path_are_refused(path):
    a, b = layers.Dense(3, name="same"), layers.Dense(3, name="same")
    a.build((None, 3))
    b.build((None, 3))

    class Both(tk.Model):
        def __init__(self):
            super().__init__()
            self.a, self.b = a, b

        def call(self, x):
            return self.b(self.a(x))

    model = Both()
    model.build((None, 3))
    with pytest.raises(ArgumentError, match="two weights have the path"):
        model.save_weights(path)


# --- mismatches -----------------------------------------------------------------------


def test_every_mismatch_is_listed_and_nothing_changes(path):
    arrays = {n: np.asarray(a) for n, a in named(change(model_of())).items()}
    del arrays["last/kernel"]
    arrays["first/kernel"] = np.zeros((4, 3), "float32")
    arrays["norm/gamma"] = np.zeros(4, "int32")
    arrays["more"] = np.zeros(5, "float16")
    write_safetensors(path, arrays)
    model = model_of()
    before = values(model)
    with pytest.raises(ModelFileError) as caught:
        model.load_weights(path)
    assert str(caught.value).split("\n  ")[1:] == [
        "first/kernel: expected the shape (3, 4); the file has (4, 3)",
        "norm/gamma: expected float32; the file has int32",
        "last/kernel: missing in the file; expected float32 of shape (4, 2)",
        "more: unexpected, float16 of shape (5,)",
    ]
    assert_same_values(model, before)
    with pytest.warns(UserWarning, match="these weights are unchanged") as warned:
        model.load_weights(path, skip_mismatch=True)
    assert len(str(warned[0].message).split("\n  ")) == 5
    fit = arrays.keys() - {"first/kernel", "norm/gamma", "more"}
    for weight, old in zip(model.weights, before, strict=True):
        name = weight.path.partition("/")[2]
        expected = arrays[name] if name in fit else old
        np.testing.assert_array_equal(np.asarray(weight), expected)


def test_layouts_of_other_ranks_are_listed(path):
    arrays = named(change(model_of()))
    mapping = {name: (name, "a b -> b a") for name in arrays}
    write_safetensors(path, arrays)
    model = model_of()
    before = values(model)
    with pytest.raises(ModelFileError) as caught:
        model.load_weights(path, mapping=mapping)
    lines = str(caught.value).split("\n  ")[1:]
    messages = [line for line in lines if "mapping: the weight has the shape" in line]
    assert len(messages) == sum(array.ndim != 2 for array in arrays.values()) > 1
    assert any(line.startswith("norm/gamma: mapping: ") for line in messages)
    assert_same_values(model, before)
    with pytest.warns(UserWarning, match="these weights are unchanged"):
        model.load_weights(path, mapping=mapping, skip_mismatch=True)


def named(model):
    return {w.path.partition("/")[2]: np.asarray(w) for w in model.weights}


def test_skipped_layers(path):
    change(model_of()).save_weights(path)
    model = model_of()
    kernel = np.asarray(model.get_layer("first").kernel).copy()
    model.load_weights(path, objects_to_skip=[model.get_layer("first")])
    np.testing.assert_array_equal(model.get_layer("first").kernel, kernel)
    np.testing.assert_array_equal(
        named(model)["last/kernel"], read_safetensors(path)["last/kernel"]
    )
    model.save_weights(path, objects_to_skip=[model.get_layer("first")])
    assert "first/kernel" not in read_safetensors(path)
    model.load_weights(path, objects_to_skip=[model.get_layer("first")])
    with pytest.raises(ModelFileError, match="first/kernel: missing"):
        model.load_weights(path)


def test_ignored_arrays(path):
    change(model_of()).save_weights(path)
    arrays = read_safetensors(path)
    write_safetensors(path, arrays | {"a.counter": np.int64(3), "b.counter": [1.0]})
    model_of().load_weights(path, ignore=["*.counter"])
    model_of().load_weights(path, ignore="*.counter")
    with pytest.raises(ModelFileError, match=r"b\.counter: unexpected, float64"):
        model_of().load_weights(path, ignore=["a.*"])
    with pytest.raises(ArgumentError, match="patterns"):
        model_of().load_weights(path, ignore=[3])


def test_long_list_of_mismatches_is_truncated(path):
    write_safetensors(path, dict.fromkeys(map(str, range(5000)), np.zeros(1)))
    with pytest.raises(ModelFileError, match="and 4,008 more"):
        model_of().load_weights(path)


# --- dtypes ---------------------------------------------------------------------------

# dtype in the file, of the weight, values, the weight's value or a message
DTYPES = [
    ("bfloat16", "float32", [1.5, -2], [1.5, -2]),
    ("float16", "float32", [1.5, np.inf], [1.5, np.inf]),
    ("float64", "float32", [0.1, 3], np.float32([0.1, 3])),
    ("float32", "bfloat16", [1 + 2**-9, 3], [1, 3]),
    ("float32", "float16", [70000, 1], "too large for float16"),
    ("float64", "float32", [1e300, 1], "too large for float32"),
    ("float8_e4m3fn", "float32", [448, -0.5], [448, -0.5]),
    ("float8_e5m2", "bfloat16", [1.5, np.inf], [1.5, np.inf]),
    ("float32", "float8_e4m3fn", [500, 1], "too large for float8"),
    ("int64", "int32", [2**31 - 1, -(2**31)], [2**31 - 1, -(2**31)]),
    ("int64", "int32", [2**31, 0], "too large for int32"),
    ("int64", "uint8", [-1, 0], "too large for uint8"),
    ("uint64", "int64", [2**63, 0], "too large for int64"),
    ("uint8", "int64", [255, 0], [255, 0]),
    ("int32", "float32", [1, 2], "expected float32; the file has int32"),
    ("float32", "int32", [1, 2], "expected int32; the file has float32"),
    ("bool", "int32", [1, 0], "expected int32; the file has bool"),
    ("bool", "bool", [True, False], [True, False]),
    ("float32", "complex64", [1, 2], "expected complex64"),
    ("complex64", "float32", [1, 2], "expected float32"),
]  # fmt: skip


class QuantizedLayer(layers.Layer):
    """A layer with a weight of any dtype."""

    def __init__(self, weight_dtype, **kwargs):
        super().__init__(**kwargs)
        self.weight_dtype = weight_dtype

    def build(self, input_shape):
        self.kept = self.add_weight(
            shape=(2,), dtype=self.weight_dtype, initializer="zeros", trainable=False,
            name="kept",
        )  # fmt: skip

    def call(self, x):
        return x


@pytest.mark.parametrize(("stored", "dtype", "value", "expected"), DTYPES)
def test_dtypes(path, stored, dtype, value, expected):
    model = tk.Sequential([tk.Input((2,)), QuantizedLayer(dtype, name="layer")])
    array = np.array(value).astype(tk.dtypes.numpy_dtype(stored))
    write_safetensors(path, {"layer/kept": array})
    if isinstance(expected, str):
        with pytest.raises(ModelFileError, match=f"layer/kept: .*{expected}"):
            model.load_weights(path)
        assert not np.asarray(model.weights[0]).astype("complex64").any()
    else:
        model.load_weights(path)
        actual = np.asarray(model.weights[0])
        assert actual.dtype == tk.dtypes.numpy_dtype(dtype)
        assert actual.tolist() == np.array(expected).tolist()


# --- other names ----------------------------------------------------------------------

AS_IN_TORCH = {
    "*/kernel": ("*.weight", "o i -> i o"),
    "*/gamma": "*.weight",
    "*/moving_mean": "*.running_mean",
    "*/moving_variance": "*.running_var",
    "*/beta": "*.bias",
    "*/bias": "*.bias",
}


def test_name_table_in_both_directions(path):
    model = change(model_of())
    model.save_weights(path, mapping=AS_IN_TORCH)
    arrays = read_safetensors(path)
    assert arrays["first.weight"].shape == (4, 3)
    np.testing.assert_array_equal(arrays["first.weight"].T, model.weights[0])
    other = model_of()
    other.load_weights(path, mapping=AS_IN_TORCH)
    assert_same_values(other, values(model))


def test_name_function(path):
    write_safetensors(path, {"w": np.ones((4, 3), "float32"), "b": np.arange(4.0)})
    model = tk.Sequential([tk.Input((3,)), layers.Dense(4, name="d")])

    def mapping(name):
        return ("w", lambda w: 2 * w.T) if name.endswith("kernel") else "b"

    model.load_weights(path, mapping=mapping)
    assert np.all(np.asarray(model.weights[0]) == 2)
    np.testing.assert_array_equal(model.weights[1], np.arange(4))
    with pytest.raises(
        ArgumentError, match=r"d/kernel: .*the mapping's function cannot be inverted"
    ):
        model.save_weights(path, mapping=mapping)


def test_invalid_results_of_a_name_function(path):
    write_safetensors(path, {"w": np.ones((4, 3), "float32"), "b": np.ones(4)})
    model = tk.Sequential([tk.Input((3,)), layers.Dense(4, name="d")])
    for function, message in (
        (
            lambda w: w,
            r"d/kernel \(w\): expected the shape \(3, 4\); .*returned \(4, 3",
        ),
        (lambda w: w.T > 0, "expected float32; the mapping's function returned bool"),
    ):
        with pytest.raises(ModelFileError, match=message):
            model.load_weights(
                path, mapping={"d/kernel": ("w", function), "d/bias": "b"}
            )


def test_sum_of_several_arrays(path):
    write_safetensors(path, {"w": np.ones((3, 4)), "b1": np.ones(4), "b2": np.ones(4)})
    model = tk.Sequential([tk.Input((3,)), layers.Dense(4, name="d")])
    table = {"d/kernel": "w", "d/bias": (("b1", "b2"), np.add)}
    model.load_weights(path, mapping=table)
    assert np.asarray(model.weights[1]).tolist() == [2] * 4


def test_weights_without_an_array_or_a_row(path):
    write_safetensors(path, {"w": np.ones((3, 4))})
    model = tk.Sequential([tk.Input((3,)), layers.Dense(4, name="d")])
    with pytest.raises(ModelFileError, match="d/bias: the mapping has no row for it"):
        model.load_weights(path, mapping={"d/kernel": "w"})
    model.load_weights(path, mapping={"d/kernel": "w", "d/bias": None})
    model.save_weights(path, mapping={"d/kernel": "y", "d/bias": None})
    assert list(read_safetensors(path)) == ["y"]
    with pytest.raises(ArgumentError, match="no row for 'd/bias'"):
        model.save_weights(path, mapping={"d/kernel": "y"})


def test_parts_of_one_array(path):
    model = tk.Sequential([tk.Input((3,)), *(layers.Dense(3, name=n) for n in "qkv")])
    change(model)
    table = {
        f"{name}/{kind}": (f"qkv.{kind}", layout, index)
        for index, name in enumerate("qkv")
        for kind, layout in (("kernel", "(3 o) i -> i o"), ("bias", "(3 n) -> n"))
    }
    model.save_weights(path, mapping=table)
    arrays = read_safetensors(path)
    assert arrays["qkv.kernel"].shape == (9, 3) and arrays["qkv.bias"].shape == (9,)
    np.testing.assert_array_equal(arrays["qkv.kernel"][3:6].T, model.weights[2])
    other = tk.Sequential([tk.Input((3,)), *(layers.Dense(3, name=n) for n in "qkv")])
    other.load_weights(path, mapping=table)
    assert_same_values(other, values(model))
    with pytest.raises(ArgumentError, match=r"'qkv.bias' has 3 parts; .*\[1\] only"):
        model.save_weights(path, mapping=table | dict.fromkeys(("q/bias", "v/bias")))
    with pytest.raises(ArgumentError, match="q/bias cannot both be stored"):
        model.save_weights(path, mapping=table | {"k/bias": table["q/bias"]})


def test_two_weights_of_one_array(path):
    write_safetensors(path, {"w": np.ones((3, 3)), "b": np.ones(3)})
    model = tk.Sequential([tk.Input((3,)), *(layers.Dense(3, name=n) for n in "ab")])
    table = {"*/kernel": "w", "*/bias": "b"}
    model.load_weights(path, mapping=table)
    assert all(np.all(np.asarray(weight) == 1) for weight in model.weights)
    with pytest.raises(
        ArgumentError, match="b/kernel and a/kernel cannot both be stored"
    ):
        model.save_weights(path, mapping=table)


# --- several files --------------------------------------------------------------------


def save_list(path, model=None, size=3e-8):
    """Save files of at most 32 bytes."""
    (model or change(model_of())).save_weights(path, max_shard_size=size)
    return json.loads(path.read_text())


@pytest.fixture
def listing(tmp_path):
    return tmp_path / "m.safetensors.index.json"


def test_several_files(listing):
    model = change(model_of())
    files = save_list(listing, model, 48 / 2**30)
    names = sorted(os.listdir(listing.parent))
    assert names[0] == "m-00001-of-00004.safetensors" and len(names) == 5
    assert set(files["weight_map"].values()) == set(names[:-1])
    assert files["metadata"]["total_size"] == sum(v.nbytes for v in values(model))
    other = model_of()
    other.load_weights(listing)
    assert_same_values(other, values(model))
    for name, file in files["weight_map"].items():
        assert name in read_safetensors(listing.with_name(file))


def test_next_save_removes_the_files_of_the_last(listing):
    save_list(listing, size=48 / 2**30)
    listing.with_name("other.safetensors").write_bytes(b"")
    model = change(model_of())
    save_list(listing, model, 1)
    assert sorted(os.listdir(listing.parent)) == [
        *("m-00001-of-00001.safetensors", listing.name, "other.safetensors")
    ]
    other = model_of()
    other.load_weights(listing)
    assert_same_values(other, values(model))


def test_foreign_files_are_neither_replaced_nor_removed(listing):
    save_list(listing, size=48 / 2**30)
    manifest = json.loads(listing.read_text())
    del manifest["metadata"]["files"]  # as other libraries write it
    listing.write_text(json.dumps(manifest))
    save_list(listing, size=1)
    assert len(os.listdir(listing.parent)) == 6
    foreign = listing.with_name("n-00001-of-00001.safetensors")
    foreign.write_bytes(b"not ours")
    with pytest.raises(UnwritableFileError, match="does not belong to an older list"):
        save_list(listing.with_name("n.safetensors.index.json"), size=1)
    assert foreign.read_bytes() == b"not ours"


def test_name_of_a_single_file_becomes_the_name_of_a_manifest(path):
    with pytest.warns(
        UserWarning, match=r"is renamed to .*x\.safetensors\.index\.json"
    ):
        model_of().save_weights(path, max_shard_size=1)
    model_of().load_weights(path.with_name("x.safetensors.index.json"))


def test_weight_larger_than_the_file_size(listing):
    with pytest.raises(ArgumentError, match="exceeds the maximum shard size of 32"):
        save_list(listing, size=32 / 2**30)
    assert not os.listdir(listing.parent)


def edit(listing, change):
    manifest = json.loads(listing.read_text())
    change(manifest)
    listing.write_text(json.dumps(manifest))


def leads(name):
    def change(manifest):
        manifest["weight_map"]["first/kernel"] = name

    return change


BAD_LISTS = {
    "a list": (lambda found: None, "[]", "expected a list of files"),
    "no JSON": (lambda found: None, "{", "expected JSON"),
    "no map": (lambda found: found.pop("weight_map"), None, "expected a list of files"),
    "a map that is a list": (
        lambda found: found.update(weight_map=[]),
        None,
        "expected a list of files",
    ),
    "twice": (
        lambda found: None,
        '{"weight_map": {}, "weight_map": {}}',
        "occurs twice",
    ),
    **{
        name: (
            leads(name),
            None,
            "expected names of .safetensors files in the same folder",
        )
        for name in (
            *("../a.safetensors", "/etc/passwd", "/a.safetensors", "a/b.safetensors"),
            *("a\\b.safetensors", "C:a.safetensors", "..", "", "a.bin", "~", "a\0"),
            "\ud800.safetensors",
            "é" * 130 + ".safetensors",
        )
    },
    "a number": (leads(3), None, "expected names of .safetensors files"),
    "a list of names": (leads(["m"]), None, "expected names of .safetensors files"),
    "a file that is not there": (
        leads("a.safetensors"),
        None,
        "the file does not exist",
    ),
    "a file without it": (
        leads("m-00002-of-00002.safetensors"),
        None,
        "contains 'first/kernel', which the list does not assign",
    ),
    "an array that is nowhere": (
        lambda found: found["weight_map"].update(x="m-00001-of-00002.safetensors"),
        None,
        "'x' is not in 'm-00001-of-00002.safetensors', but the list assigns it",
    ),
    "an array that it lacks": (
        lambda found: found["weight_map"].pop("first/kernel"),
        None,
        "contains 'first/kernel', which the list does not assign",
    ),
    "too many files": (
        lambda found: found["weight_map"].update(
            {str(n): f"{n}.safetensors" for n in range(600)}
        ),
        None,
        "602 files exceed the limit",
    ),
}


@pytest.mark.parametrize("name", BAD_LISTS)
def test_invalid_manifests(listing, name):
    change, text, message = BAD_LISTS[name]
    save_list(listing, size=128 / 2**30)
    edit(listing, change)
    if text is not None:
        listing.write_text(text)
    model = model_of()
    before = values(model)
    with pytest.raises(ModelFileError, match=message):
        model.load_weights(listing)
    assert_same_values(model, before)


def test_links(listing, tmp_path):
    """Links to other folders are refused; Hugging Face's cache consists of links."""
    save_list(listing, size=128 / 2**30)
    snapshot, blobs = tmp_path / "snapshots" / "a", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, name in enumerate(sorted(os.listdir(tmp_path))):
        if (tmp_path / name).is_file():
            (tmp_path / name).rename(blobs / str(number))
            (snapshot / name).symlink_to(f"../../blobs/{number}")
    model_of().load_weights(snapshot / listing.name)
    shard = snapshot / "m-00001-of-00002.safetensors"
    (tmp_path / "secret").write_bytes(shard.read_bytes())
    shard.unlink()
    shard.symlink_to(tmp_path / "secret")
    with pytest.raises(ModelFileError, match="a link to a path outside of its folder"):
        model_of().load_weights(snapshot / listing.name)


def test_all_files_of_a_manifest_share_one_budget(listing):
    model = tk.Sequential(
        [tk.Input((1000,))] + [layers.Dense(1000, name=f"d{i}") for i in range(12)]
    )
    save_list(listing, model, 4.1e6 / 2**30)
    tk.saving.set_load_budget(ratio=1, least=0)
    try:
        model.load_weights(listing)
    finally:
        tk.saving.set_load_budget()


# --- arguments ------------------------------------------------------------------------


def test_bad_arguments(path, tmp_path):
    model = model_of()
    model.save_weights(path)
    with pytest.raises(ArgumentError, match="exists already"):
        model.save_weights(path, overwrite=False)
    with pytest.raises(ArgumentError, match="by_name"):
        model.load_weights(path, by_name=True)
    with pytest.raises(NotBuiltError):
        tk.Sequential([layers.Dense(2)]).load_weights(path)
    with pytest.raises(NotBuiltError):
        tk.Sequential([layers.Dense(2)]).save_weights(path)
    with pytest.raises(MissingFileError):
        model.load_weights(tmp_path / "none.safetensors")
    with pytest.raises(MissingFileError):
        model.load_weights(tmp_path / "none.safetensors.index.json")
    h5 = tmp_path / "x.weights.h5"
    with pytest.raises(ArgumentError, match="`mapping` only supports '.safetensors'"):
        model.save_weights(h5, mapping={})
    model.save_weights(h5)
    for name in ("mapping", "ignore"):
        with pytest.raises(ArgumentError, match=f"`{name}` only supports"):
            model.load_weights(h5, **{name: {}})


def test_folder_is_refused(tmp_path):
    for name in ("a.safetensors", "a.safetensors.index.json"):
        (tmp_path / name).mkdir()
        with pytest.raises(ModelFileError):
            model_of().load_weights(tmp_path / name)
        with pytest.raises((ModelFileError, ArgumentError)):
            model_of().save_weights(tmp_path / name)
    with pytest.raises(ArgumentError, match="expected a file that ends in"):
        model_of().load_weights(tmp_path)
