"""Test models as native libraries: their results and refusals."""

import platform
import shlex
import shutil
import sys

import numpy as np
import pytest

import toolkit
from toolkit import layers, ops
from toolkit.core.tensor import backend
from toolkit.errors import (
    ArgumentError,
    ArgumentTypeError,
    OutOfRangeError,
    ShapeError,
    ToolkitError,
    TraceError,
    UnsupportedError,
)
from toolkit.export.native.checking import check_native
from toolkit.export.native.link import _zig_linker, find_linker
from toolkit.layers import InputSpec
from toolkit.reading.safetensors import read_safetensors

pytestmark = [
    pytest.mark.skipif(not shutil.which("cc"), reason="there is no linker"),
    pytest.mark.skipif(platform.system() != "Linux", reason="libraries are for Linux"),
]
TARGETS = (
    *("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64", "armv7", "riscv64"),
    "wasm32",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Enter an empty folder for the test."""
    folder_path = tmp_path / "own"
    folder_path.mkdir(mode=0o700)
    monkeypatch.chdir(folder_path)
    return folder_path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype="float32")


def small(name="small"):
    toolkit.utils.set_random_seed(0)
    return toolkit.Sequential(
        [
            toolkit.Input((6, 6, 2), name="images"),
            layers.Conv2D(5, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(4, activation="softmax"),
        ],
        name=name,
    )


def exported(model, **options):
    """Return the library of a model, loaded in Python."""
    model.export("m.so", verbose=False, **options)
    return toolkit.load_native("./m.so")


# --- results --------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 5, 16, 23, 64, 256, 300])
def test_any_number_of_rows(folder, rows):
    model, x = small(), random(300, 6, 6, 2)
    library = exported(model)
    assert library.batches == (1, 4, 16, 64, 256)
    expected = ops.convert_to_numpy(model(x, training=False))
    np.testing.assert_allclose(library.predict(x[:rows]), expected[:rows], atol=1e-6)


@pytest.mark.parametrize("rows", [1, 4, 16])
def test_same_bits_as_the_compiled_model(folder, rows):
    model, x = small(), random(rows, 6, 6, 2)
    compiled = toolkit.function(lambda x: model(x, training=False))
    expected = ops.convert_to_numpy(compiled(ops.convert_to_tensor(x)))
    assert exported(model, batch=rows).predict(x).tobytes() == expected.tobytes()


@pytest.mark.parametrize("batch", [1, 7, [8, 3]])
def test_selected_batch_sizes(folder, batch):
    model, x = small(), random(29, 6, 6, 2)
    library = exported(model, batch=batch)
    assert library.batches == tuple(
        sorted([batch] if isinstance(batch, int) else batch)
    )
    expected = ops.convert_to_numpy(model(x, training=False))
    np.testing.assert_allclose(library.predict(x), expected, atol=1e-6)


def test_workspace_limits_the_number_of_sizes(folder):
    assert exported(small(), workspace=6_000).batches == (1, 4)
    assert exported(small(), workspace=0).batches == (1,)


def test_several_inputs_and_outputs(folder):
    a = toolkit.Input((3,), name="a")
    b = toolkit.Input((4, 2), name="b", dtype="int32")
    y = layers.Dense(2, name="first")(a)
    z = layers.Activation("relu", name="second")(ops.cast(b, "float32"))
    library = exported(toolkit.Model([a, b], [y, z]))
    assert [x.name for x in library.inputs] == ["a", "b"]
    assert [y.name for y in library.outputs] == ["first", "second"]
    predictions = library.predict({"a": random(5, 3), "b": np.full((5, 4, 2), -1)})
    assert [y.shape for y in predictions] == [(5, 2), (5, 4, 2)]
    assert not predictions[1].any()


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint8", "bool", "float16"])
def test_dtypes(folder, dtype):
    x = toolkit.Input((3,), dtype=dtype)
    library = exported(toolkit.Model(x, ops.concatenate([x, x], axis=-1)))
    array = np.array([[0, 1, 1], [1, 0, 0]]).astype(dtype)
    predictions = library.predict(array)
    assert predictions.dtype == dtype
    np.testing.assert_array_equal(predictions, np.concatenate([array, array], -1))


def test_indices_are_checked(folder):
    model = toolkit.Sequential(
        [toolkit.Input((2,), dtype="int32"), layers.Embedding(10, 3)]
    )
    library = exported(model)
    library.predict([[0, 9]])
    with pytest.raises(OutOfRangeError, match=r"m\.so:.*10"):
        library.predict([[0, 10]])


def test_inputs_by_a_signature(folder):
    class Own(toolkit.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(2)

        def call(self, x, y):
            return {"sum": self.dense(x) + y, "x": x}

    model = Own()
    model(random(2, 3), random(2, 2))
    specs = [InputSpec(shape=(None, n), dtype="float32") for n in (3, 2)]
    library = exported(model, input_signature=specs)
    assert [y.name for y in library.outputs] == ["sum", "x"]
    assert check_native(model, "m.so", input_signature=specs).error < 1e-6


def test_selected_extents(folder):
    model = toolkit.Sequential([toolkit.Input((None, 3)), layers.LSTM(4)])
    library = exported(model, sizes={"dim_0_1": 7})
    assert library.inputs[0].shape == (None, 7, 3)
    x = random(5, 7, 3)
    expected = ops.convert_to_numpy(model(x))
    np.testing.assert_allclose(library.predict(x), expected, atol=1e-6)


# --- supported numbers of rows --------------------------------------------------------


def stateful():
    return toolkit.Sequential(
        [toolkit.Input((5, 3), batch_size=2), layers.LSTM(4, stateful=True)]
    )


def centred():
    """Return a model whose rows depend on other rows."""
    x = toolkit.Input((3,))
    return toolkit.Model(x, x - ops.mean(x, axis=0))


def summed():
    """Return a model with an output without a batch axis."""
    x = toolkit.Input((3,))
    return toolkit.Model(x, ops.sum(x, axis=0))


def shared():
    """Return a model whose rows depend on the batch size."""
    x = toolkit.Input((3,))
    divide = layers.Lambda(lambda x: x / ops.cast(ops.shape(x)[0], x.dtype))
    return toolkit.Model(x, divide(x))


@pytest.mark.parametrize(
    "make, is_wanted",
    [(small, False), (centred, True), (summed, True), (shared, True), (stateful, True)],
)
def test_whole_batch_models_are_refused(make, is_wanted, folder):
    model = make()
    batch = (2,) if make is stateful else (2, 4)
    library = exported(model, batch=batch)
    assert library.takes_whole_batches is is_wanted
    x = random(3, *model.input_shape[1:])
    if is_wanted:
        with pytest.raises((ArgumentError, ShapeError), match="batches|expected"):
            library.predict(x)
    else:
        assert library.predict(x).shape == (3, 4)
    if make is stateful:  # the check has changed no state
        np.testing.assert_allclose(library.predict(x[:2]), model(x[:2]), atol=1e-6)


# --- states ---------------------------------------------------------------------------


def test_state_of_a_layer(folder):
    model = stateful()
    library = exported(model)
    x = random(2, 5, 3)
    expected = [ops.convert_to_numpy(model(x)) for _ in range(3)]
    assert library.is_stateful
    for _ in range(2):
        for expected_state in expected:
            np.testing.assert_allclose(library.predict(x), expected_state, atol=1e-6)
        library.reset()


def test_state_equals_the_state_at_export(folder):
    model = toolkit.Sequential(
        [toolkit.Input((5, 3), batch_size=2), layers.GRU(4, stateful=True)]
    )
    x = random(2, 5, 3)
    model(x)
    library = exported(model)
    np.testing.assert_allclose(library.predict(x), model(x), atol=1e-6)


class Noise(layers.Layer):
    """A layer that draws random numbers, also in inference."""

    def __init__(self):
        super().__init__()
        self.seeds = toolkit.random.SeedGenerator(3)

    def call(self, x):
        return x + toolkit.random.uniform((4, 2), seed=self.seeds)


def test_seeds_are_a_state(folder):
    model = toolkit.Sequential([toolkit.Input((2,), batch_size=4), Noise()])
    library, x = exported(model), np.zeros((4, 2), "float32")
    first, second = library.predict(x), library.predict(x)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, model(x))
    np.testing.assert_array_equal(second, model(x))


# --- dependent rows -------------------------------------------------------------------


def test_dependent_rows(folder):
    x = toolkit.Input((3,))
    library = exported(toolkit.Model(x, x - ops.mean(x, axis=0)), batch=[2, 5])
    rows = random(5, 3)
    np.testing.assert_allclose(library.predict(rows), rows - rows.mean(0), atol=1e-6)
    with pytest.raises(ArgumentError, match="no program supports batches"):
        library.predict(rows[:4])


def test_output_without_a_batch(folder):
    x = toolkit.Input((3,))
    library = exported(toolkit.Model(x, ops.mean(x, axis=0)), batch=5)
    assert library.outputs[0].shape == (3,)
    rows = random(5, 3)
    np.testing.assert_allclose(library.predict(rows), rows.mean(0), atol=1e-6)


# --- files ----------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_object_files_of_every_target(folder, target):
    model = small()
    for name in ("a", "b"):
        (folder / name).mkdir()
        model.export(f"{name}/m.o", target=target, batch=[1, 4], verbose=False)
    for name in ("m.o", "m.h"):
        assert (folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes()
    assert f'M_TARGET "{target}"' in (folder / "a" / "m.h").read_text()
    assert bytes(folder) not in (folder / "a" / "m.o").read_bytes()


def test_weights_in_a_file(folder):
    model, x = small(), random(3, 6, 6, 2)
    library = exported(model, weights="file")
    assert names(folder) == ["m.h", "m.safetensors", "m.so"]
    expected = ops.convert_to_numpy(model(x, training=False))
    np.testing.assert_allclose(library.predict(x), expected, atol=1e-6)
    stored = read_safetensors(folder / "m.safetensors")
    kernel = model.layers[-1].kernel
    np.testing.assert_array_equal(stored[kernel.path], kernel)


def test_different_weights_are_detected(folder):
    model = small()
    model.export("m.so", weights="file", verbose=False)
    file_bytes = (folder / "m.safetensors").read_bytes()
    model.layers[-1].bias.assign_add(np.ones(4))
    model.export("m.so", weights="file", verbose=False)
    (folder / "m.safetensors").write_bytes(file_bytes)
    with pytest.raises(ToolkitError, match="SHA-256"):
        toolkit.load_native("./m.so")


def test_too_many_weights_to_embed(folder, monkeypatch):
    monkeypatch.setattr("toolkit.export.native.weights.MAX_EMBEDDED_BYTES", 100)
    with pytest.raises(UnsupportedError, match=r"use weights='file'"):
        small().export("m.so", weights="embed")
    monkeypatch.setattr("toolkit.export.native.weights.DEFAULT_EMBED_LIMIT", 100)
    small().export("m.so", verbose=False)
    assert "m.safetensors" in names(folder)


def test_threads(folder):
    model, x = small(), random(64, 6, 6, 2)
    model.export("m.so", verbose=False)
    model.export("alone.so", threads=False, verbose=False)
    expected = toolkit.load_native("./m.so").predict(x)
    predictions = toolkit.load_native("./m.so", threads=2).predict(x)
    assert predictions.tobytes() == expected.tobytes()
    single_thread = toolkit.load_native("./alone.so").predict(x)
    assert single_thread.tobytes() == expected.tobytes()
    with pytest.raises(UnsupportedError, match="threads"):
        toolkit.load_native("./alone.so", threads=2)
    with pytest.raises(UnsupportedError, match="wasm32 has no threads"):
        model.export("m.o", target="wasm32", threads=True)


def test_prefix(folder):
    small().export("2-nd name.so", verbose=False)
    assert "m2_nd_name_run(" in (folder / "2-nd name.h").read_text()
    toolkit.load_native("./2-nd name.so")
    small().export("other.so", prefix="own", verbose=False)
    toolkit.load_native("./other.so", prefix="own")


# --- refusals -------------------------------------------------------------------------


def text_model():
    x = toolkit.Input((1,), dtype="string")
    return toolkit.Model(x, layers.StringLookup(vocabulary=["a"], name="words")(x))


def hashing():
    x = toolkit.Input((1,), dtype="int32")
    return toolkit.Model(x, layers.Hashing(5, name="bins")(x))


class Factor(layers.Layer):
    """A layer for which no code is generated."""

    def call(self, x):
        return ops.svd(x)[0]


def factoring():
    x = toolkit.Input((3, 3))
    return toolkit.Model(x, Factor(name="factor")(x))


def growing():
    x = toolkit.Input((3,))
    return toolkit.Model(x, ops.concatenate([x, x], axis=0))


def sequences():
    return toolkit.Sequential([toolkit.Input((None, 3), name="steps"), layers.LSTM(2)])


def fixed():
    return toolkit.Sequential([toolkit.Input((3,), batch_size=2), layers.Dense(2)])


@pytest.mark.parametrize(
    "make, options, error, expected",
    [
        (text_model, {}, UnsupportedError, "dtype 'string'.*Export a model that"),
        (hashing, {}, TraceError, "Hashing 'bins'.*apply it to the data"),
        (
            factoring,
            {},
            UnsupportedError,
            "svd in .*factor.*outside of the model",
        ),
        (growing, {}, UnsupportedError, r"shapes \(2, 3\) for 1, .*Fix the batch"),
        (sequences, {}, UnsupportedError, r"axis 1 of input 'steps'.*'dim_0_1': 64"),
        (
            sequences,
            {"sizes": {"dim_0_1": [3, 4]}},
            ArgumentError,
            "one integer > 0 for 'dim_0_1'",
        ),
        (sequences, {"sizes": {"dim_1": 3}}, ArgumentError, r"some of \['dim_0_1'\]"),
        (fixed, {"batch": 3}, ArgumentError, r"fix it to 2; received \[3\]"),
        (small, {"batch": 0}, ArgumentError, "integers > 0; received 0"),
        (small, {"batch": []}, ArgumentError, r"received \[\]"),
        (small, {"batch": [1, True]}, ArgumentError, "True"),
        (small, {"weights": "inside"}, ArgumentError, "'embed', 'file' or None"),
        (small, {"prefix": "a b"}, ArgumentError, "a name in C; received 'a b'"),
        (small, {"target": "x86-64-v9"}, ArgumentError, "x86-64-v9"),
        (small, {"target": "wasm32"}, ArgumentError, r"has no \.so files"),
        (small, {"trgt": "wasm32"}, ArgumentTypeError, "did you mean 'target'"),
        (small, {"format": "nativ"}, ArgumentError, "did you mean 'native'"),
    ],
)
def test_refusals(folder, make, options, error, expected):
    with pytest.raises(error, match=expected):
        make().export("m.so", **options)
    assert names(folder) == []


def halves():
    policy = "mixed_float16"
    return toolkit.Sequential([toolkit.Input((3,)), layers.Dense(2, dtype=policy)])


def complex_numbers():
    x = toolkit.Input((3,))
    return toolkit.Model(x, ops.real(ops.cast(x, "complex64") * 2))


FLOAT16_TARGETS = ("x86-64-v3", "x86-64-v4", "aarch64")


@pytest.mark.parametrize(
    "target, processor",
    [
        ("x86-64-v2", "x86-64-v2"),
        ("x86-64", "x86-64-v2"),
        *((name, name) for name in ("armv7", "riscv64", "wasm32")),
    ],
)
def test_a_processor_without_float16_is_named(folder, target, processor):
    expected = (
        f"for float16 on {processor}, the dtype of cast in .*dense.*"
        f"Use the target {', '.join(FLOAT16_TARGETS)}, or another dtype"
    )
    with pytest.raises(UnsupportedError, match=expected):
        halves().export("m.o", target=target)


@pytest.mark.parametrize("target", FLOAT16_TARGETS)
def test_processors_with_float16(folder, target):
    halves().export("m.o", target=target, verbose=False)


def test_a_dtype_without_machine_code_is_named(folder):
    with pytest.raises(UnsupportedError, match=r"for complex64 on .*Use another dtype"):
        complex_numbers().export("m.o")


def test_format_by_name_needs_a_suffix(folder):
    with pytest.raises(ArgumentError, match="ends in one of"):
        small().export("m.bin", format="native")
    small().export("m.o", format="native", verbose=False)


def test_backends_without_libraries_are_refused(folder):
    before = toolkit.config.backend()
    toolkit.config.set_backend("reference")
    try:
        with pytest.raises(UnsupportedError, match="reference does not support native"):
            small().export("m.so")
    finally:
        toolkit.config.set_backend(before)


def test_check_detects_another_model(folder):
    model = small()
    model.export("m.so", verbose=False)
    result = check_native(model, "m.so")
    assert result.error < 1e-6
    assert result.rows == [1, 4, 16, 64, 256, 2, 13]
    model.layers[-1].bias.assign([4, 0, 0, 0])
    with pytest.raises(ToolkitError, match="differs from the model by"):
        check_native(model, "m.so")


MACHINES = {"aarch64": 183, "armv7": 40, "riscv64": 243}  # in the headers of ELF files


@pytest.mark.parametrize("target", MACHINES)
def test_shared_libraries_of_other_processors(folder, target):
    if find_linker(f"{target}-unknown-linux-gnu") is None:
        pytest.skip(f"there is no linker for {target}")
    model = small()
    model.export("m.so", target=target, batch=1, verbose=False)
    head = (folder / "m.so").read_bytes()[:20]
    assert head[:4] == b"\x7fELF"
    assert int.from_bytes(head[18:20], "little") == MACHINES[target]
    with pytest.raises(ToolkitError, match="expected a shared library for this system"):
        toolkit.load_native("./m.so")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["x86-64-v2", *MACHINES, "wasm32"])
def test_wheel_of_the_linker(folder, target):
    pytest.importorskip("ziglang")
    ending = "wasm" if target == "wasm32" else "so"
    triple = backend().generator.processors(target)[0].triple
    command = shlex.join(_zig_linker(triple, (sys.executable, "-m", "ziglang")).command)
    small().export(f"m.{ending}", target=target, linker=command, verbose=False)
    assert (folder / f"m.{ending}").stat().st_size > 10_000


@pytest.mark.parametrize("ending", ["so", "o", "a", "wasm"])
def test_same_model_has_the_same_bytes(folder, ending):
    if ending == "wasm" and shutil.which("wasm-ld") is None:
        pytest.skip("there is no wasm-ld")
    for name in ("a", "b"):
        (folder / name).mkdir()
        small().export(f"{name}/m.{ending}", verbose=False)
    for name in (f"m.{ending}", "m.h"):
        assert (folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes()
        assert bytes(folder) not in (folder / "a" / name).read_bytes()
