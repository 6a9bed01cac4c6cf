"""Tests of native libraries: the same bits as the JIT, and errors of callers."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import toolkit
from tests.backends.jit.libraries import MODELS, Loaded, by_jit, source_of
from toolkit import layers, ops
from toolkit.backends.library import Status
from toolkit.backends.numpy.jit.native import build
from toolkit.backends.numpy.jit.processor import FAMILIES, PROCESSORS, Processor
from toolkit.core.tensor import backend
from toolkit.errors import ArgumentError, OutOfRangeError, UnsupportedError

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def runs_here(name):
    """Return whether this machine can run code for a processor."""
    host = Processor.host()
    needs = {"x86-64-v2": "sse4.2", "x86-64-v3": "avx2", "x86-64-v4": "avx512vl"}
    return host.architecture == "x86_64" and host.has(needs.get(name, "none"))


def numbers(batch, shape, seed=0):
    draws = np.random.default_rng(seed).standard_normal((batch, *shape))
    return draws.astype("float32")


def model_source(name, batches, *, processor=None, network=None, **options):
    model = network or MODELS[name]()
    shape = model.input_shape[1:]
    function = lambda x: model(x, training=False)  # noqa: E731
    source = source_of(function, [(shape, "float32")], batches, processor, **options)
    return source, shape


def loaded(source, folder):
    return Loaded(backend().generator.build_library(source), folder)


@needs_compiler
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("processor", [None, "x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.one_in(3)
def test_outputs_have_the_bits_of_the_jit(name, processor, tmp_path):
    if processor is not None and not runs_here(processor):
        pytest.skip(f"this is no {processor}")
    source, shape = model_source(name, (1, 3, 32), processor=processor)
    library = loaded(source, tmp_path)
    memory = library.workspace()
    for batch in (32, 1, 3):
        x = numbers(batch, shape)
        status, (y,) = library.run(memory, batch, x)
        assert status == Status.OK
        np.testing.assert_array_equal(y, by_jit(source, batch, x)[0])


@needs_compiler
@pytest.mark.parametrize("processor", [None, "x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_object_contains_the_factors_of_transforms(processor, tmp_path):
    if processor is not None and not runs_here(processor):
        pytest.skip(f"this is no {processor}")
    network = toolkit.Sequential(
        [toolkit.Input((1200,)), layers.MelSpectrogram(fft_length=200, num_mel_bins=8)]
    )
    options = {"processor": processor, "network": network}
    source, shape = model_source("mel", (1, 3), **options)
    library = loaded(source, tmp_path)
    x = numbers(3, shape)
    status, (y,) = library.run(library.workspace(), 3, x)
    assert status == Status.OK
    np.testing.assert_array_equal(y, by_jit(source, 3, x)[0])


@needs_compiler
def test_outputs_have_the_bits_of_a_compiled_model(tmp_path):
    model = MODELS["cifar"]()
    source = source_of(model, [((32, 32, 3), "float32")], (3,))
    x = numbers(3, (32, 32, 3))
    library = loaded(source, tmp_path)
    status, (y,) = library.run(library.workspace(), 3, x)
    compiled = toolkit.function(lambda x: model(x, training=False))
    np.testing.assert_array_equal(y, np.array(compiled(toolkit.Tensor(x))))


@needs_compiler
@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("embed", [False, True])
def test_embedded_weights_and_threads(embed, threads, tmp_path):
    source, shape = model_source("cifar", (1, 64), embed=embed, threads=threads)
    library = loaded(source, tmp_path)
    count = ctypes.c_int32(3)
    status = library.function("threads")(count, ctypes.c_int32(-1))
    assert status == (Status.OK if threads else Status.NO_THREADS)
    x = numbers(65, shape)
    memory = library.workspace()
    for _ in range(3):
        status, (y,) = library.run(memory, 65, x)
        assert status == Status.OK
        np.testing.assert_array_equal(y[:64], by_jit(source, 64, x[:64])[0])
        np.testing.assert_array_equal(y[64:], by_jit(source, 1, x[64:])[0])
        library.function("stop")()
        library.function("threads")(count, ctypes.c_int32(0))
    library.function("stop")()


@needs_compiler
@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 21])
def test_incomplete_batch_is_padded_in_the_workspace(n, tmp_path):
    """The library neither reads nor writes after the end of the caller's arrays."""
    source, shape = model_source("mlp", (4, 16))
    library = loaded(source, tmp_path)
    x = numbers(n, shape)
    guard = np.full((n + 2, 10), 7, "float32")
    memory = library.workspace()
    ins = (ctypes.c_void_p * 1)(x.ctypes.data)
    outs = (ctypes.c_void_p * 1)(guard.ctypes.data)
    status = library.function("run")(
        ctypes.c_void_p(memory.ctypes.data), ctypes.c_int64(n), ins, outs
    )
    assert status == Status.OK
    assert (guard[n:] == 7).all()
    start = 0
    while start < n:
        batch = 16 if n - start >= 16 else 4
        batch_rows = x[start : start + batch]
        filled = batch_rows[np.minimum(np.arange(batch), len(batch_rows) - 1)]
        expected = by_jit(source, batch, filled)[0][: len(batch_rows)]
        np.testing.assert_array_equal(guard[start : start + len(batch_rows)], expected)
        start += len(batch_rows)


@needs_compiler
def test_smaller_workspaces_use_the_smaller_sizes(tmp_path):
    source, shape = model_source("mlp", (1, 4, 16))
    library = loaded(source, tmp_path)
    sizes = [
        library.function("workspace_size")(ctypes.c_int64(n)) for n in (1, 4, 5, 0)
    ]
    workspace_bytes = library.library.workspace_bytes
    assert sizes == [
        workspace_bytes[1],
        workspace_bytes[4],
        workspace_bytes[4],
        workspace_bytes[16],
    ]
    x = numbers(5, shape)
    status, (y,) = library.run(library.workspace(5), 5, x)
    np.testing.assert_array_equal(y[:4], by_jit(source, 4, x[:4])[0])
    np.testing.assert_array_equal(y[4:], by_jit(source, 1, x[4:])[0])


@needs_compiler
def test_moved_or_foreign_workspace_is_refused(tmp_path):
    (tmp_path / "other").mkdir()
    source, shape = model_source("mlp", (1,))
    one = loaded(source, tmp_path)
    other = loaded(replace(source, prefix="other"), tmp_path / "other")
    memory, x = one.workspace(), numbers(1, shape)
    assert other.run(memory, 1, x)[0] == Status.NOT_INITIALIZED
    assert one.run(memory.copy(), 1, x)[0] == Status.NOT_INITIALIZED
    assert one.run(memory, 1, x)[0] == Status.OK


def row_of(table, index):
    return ops.take(table, index, axis=0)


def lookup_source(batches=(1, 4), **options):
    table = toolkit.Variable(np.arange(40, dtype="float32").reshape(10, 4))
    return source_of(lambda i: row_of(table, i), [((), "int32")], batches, **options)


@needs_compiler
def test_invalid_index_has_a_status_and_a_message(tmp_path):
    source = lookup_source()
    library = loaded(source, tmp_path)
    memory = library.workspace()
    for index in (10, -1234567, 2**31 - 1):
        indices = np.array([1, 2, index, 3], "int32")
        status, _ = library.run(memory, 4, indices)
        assert status == Status.OUT_OF_RANGE
        with pytest.raises(OutOfRangeError) as error:
            by_jit(source, 4, indices)
        length = library.function("message")(
            ctypes.c_void_p(memory.ctypes.data), ctypes.c_int32(status)
        )
        assert length.decode() == str(error.value)
    status, (y,) = library.run(memory, 5, np.arange(5, dtype="int32"))
    assert status == Status.OK
    np.testing.assert_array_equal(y, np.arange(20).reshape(5, 4))


def counting_source(**options):
    """Of a function that counts its calls, and fails where an index is wrong."""
    count = toolkit.Variable(np.array([5.0, 7.0], "float32"))
    table = toolkit.Variable(np.arange(40, dtype="float32").reshape(10, 4))

    def step(index):
        rows = row_of(table, index)
        count.assign(count.read() + ops.sum(rows))
        return rows + count.read()[0]

    return source_of(step, [((), "int32")], (2, 4), **options)


@needs_compiler
@pytest.mark.parametrize("embed", [False, True])
def test_states_are_in_the_workspace(embed, tmp_path):
    library = loaded(counting_source(embed=embed), tmp_path)
    assert library.function("state_count")() == 1
    assert library.library.has_states and library.library.takes_whole_batches
    first, second = library.workspace(), library.workspace()
    indices = np.array([1, 2], "int32")
    added = np.arange(4, 12).sum()
    rows = np.arange(4, 12, dtype="float32").reshape(2, 4)

    def run(memory):
        status, (y,) = library.run(memory, 2, indices)
        assert status == Status.OK
        return y

    for call in (1, 2, 3):
        np.testing.assert_array_equal(run(first), rows + 5 + call * added)
    np.testing.assert_array_equal(run(second), rows + 5 + added)
    bad = np.array([1, 11], "int32")
    assert library.run(first, 2, bad)[0] == Status.OUT_OF_RANGE
    np.testing.assert_array_equal(run(first), rows + 5 + 4 * added)
    assert library.run(first, 3, np.zeros(3, "int32"))[0] == Status.BAD_BATCH
    np.testing.assert_array_equal(run(first), rows + 5 + 5 * added)
    library.function("reset")(ctypes.c_void_p(first.ctypes.data))
    np.testing.assert_array_equal(run(first), rows + 5 + added)


@needs_compiler
def test_incomplete_batches_may_be_refused(tmp_path):
    source, shape = model_source("mlp", (2, 4), takes_whole_batches=True)
    library = loaded(source, tmp_path)
    assert library.library.takes_whole_batches
    memory, x = library.workspace(), numbers(6, shape)
    status_by_batch = {n: library.run(memory, n, x[:n])[0] for n in (1, 2, 3, 4, 6)}
    assert [n for n, status in status_by_batch.items() if status == Status.OK] == [2, 4]
    assert set(status_by_batch.values()) == {Status.OK, Status.BAD_BATCH}


@needs_compiler
def test_zero_rows_are_no_full_batch(tmp_path):
    source, shape = model_source("mlp", (2,), takes_whole_batches=True)
    library = loaded(source, tmp_path)
    x = numbers(0, shape)
    assert library.run(library.workspace(), 0, x)[0] == Status.BAD_BATCH


@needs_compiler
def test_message_before_the_first_error(tmp_path):
    library = loaded(lookup_source(), tmp_path)
    memory = library.workspace()  # of bytes that are no text
    status = ctypes.c_int32(Status.OUT_OF_RANGE)
    message = library.function("message")
    assert message(ctypes.c_void_p(memory.ctypes.data), status) == message(None, status)


@needs_compiler
def test_counts_may_be_null(tmp_path):
    source, _ = model_source("mlp", (1,))
    library = loaded(source, tmp_path)
    for name in ("inputs", "outputs", "batches"):
        function = library.function(name)
        function.restype = ctypes.c_void_p
        count = ctypes.c_int32(-1)
        assert function(None) == function(ctypes.byref(count)) is not None
        assert count.value == 1


@needs_compiler
def test_bad_arguments_have_a_status(tmp_path):
    source, _ = model_source("mlp", (1,))
    library = loaded(source, tmp_path)
    memory = library.workspace()
    run, at = library.function("run"), ctypes.c_void_p(memory.ctypes.data)
    table, one = (ctypes.c_void_p * 1)(), ctypes.c_int64(1)
    assert run(None, one, table, table) == Status.NOT_INITIALIZED
    assert run(at, one, table, table) == Status.BAD_ARGUMENT
    assert run(at, one, None, table) == Status.BAD_ARGUMENT
    assert run(at, ctypes.c_int64(-1), table, table) == Status.BAD_ARGUMENT
    init = library.function("init")
    assert init(None, None, one) == Status.BAD_ARGUMENT
    assert init(at, None, one) == Status.NO_WEIGHTS
    weights = ctypes.c_void_p(library.weights.ctypes.data)
    assert init(at, weights, ctypes.c_int64(-5)) == Status.BAD_ARGUMENT
    assert library.function("workspace_size")(ctypes.c_int64(-5)) == 0
    threads = library.function("threads")
    assert threads(ctypes.c_int32(0), ctypes.c_int32(0)) == Status.BAD_ARGUMENT
    messages = {
        library.function("message")(at, ctypes.c_int32(k)) for k in (*Status, 99, -1)
    }
    assert len(messages) == len(Status) + 1


@pytest.mark.parametrize("name", [*PROCESSORS, *FAMILIES])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.one_in(4)
def test_objects_for_every_processor(name, model):
    source, _ = model_source(model, (1, 4), processor=name, threads=True)
    library = backend().generator.build_library(source)
    assert library.triple == PROCESSORS[FAMILIES.get(name, (name,))[0]].triple
    magic = b"\0asm" if name == "wasm32" else b"\x7fELF"
    assert library.code.startswith(magic)
    assert library.has_threads == (name != "wasm32")


@pytest.mark.skipif(shutil.which("nm") is None, reason="no binutils")
@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("name", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64"])
@pytest.mark.one_in(4)
def test_only_libc_is_needed(name, threads, tmp_path):
    needed = {"syscall", "sched_yield", "pthread_create", "pthread_join"}
    allowed = needed if threads else set()
    for model in MODELS:
        source, _ = model_source(model, (1, 4), processor=name, threads=threads)
        path = tmp_path / f"{model}.o"
        path.write_bytes(backend().generator.build_library(source).code)
        completed = subprocess.run(["nm", "-u", path], capture_output=True, text=True)
        assert set(completed.stdout.split()) - {"U"} == allowed


REBUILT = """
import hashlib
import sys
from tests.backends.jit.test_native import backend, model_source, toolkit

toolkit.utils.set_random_seed(1)
source, _ = model_source("lstm", (1, 4), processor=sys.argv[1], embed=True)
print(hashlib.sha256(backend().generator.build_library(source).code).hexdigest())
"""


@pytest.mark.parametrize("processor", ["x86-64-v3", "x86-64"])
def test_bytes_are_reproducible(processor):
    digests = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        completed = subprocess.run(
            [sys.executable, "-c", REBUILT, processor],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(completed.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("name", ["armv7", "wasm32"])
def test_sizes_above_32_bits_are_refused(name):
    rows = 1 << 20
    source, _ = model_source("mlp", (1, rows), processor=name)
    expected = rf"batches of {rows} needs \d{{10}}"
    with pytest.raises(UnsupportedError, match=expected):
        backend().generator.build_library(source)


@pytest.mark.parametrize("kind", ["weights", "constants"])
def test_weights_above_32_bits(kind, monkeypatch):
    numbers = np.arange(64, dtype="float32")
    added = toolkit.Variable(numbers) if kind == "weights" else numbers
    source = source_of(lambda x: x + added, [((64,), "float32")], (1,), "wasm32")
    monkeypatch.setattr(build, "_ADDRESSABLE", 256)
    with pytest.raises(UnsupportedError, match=rf"{kind} needs \d+$"):
        backend().generator.build_library(source)


def test_unknown_processors_are_refused():
    with pytest.raises(ArgumentError, match="x86-64-v3"):
        backend().generator.processors("z80")


def test_other_backends_refuse():
    reference = toolkit.backends.registry.get_backend("reference")
    with pytest.raises(UnsupportedError, match="reference"):
        reference.generator.processors(None)


@needs_compiler
def test_weights_are_packed_once(tmp_path):
    """`init` packs each layout of the weights; `run` reads only the packed layouts."""
    source, shape = model_source("cifar", (16, 32))
    first, second = source.programs
    assert first.bodies[0].code.prepared
    calls = [call for _, call in first.bodies[0].code.calls]
    assert not any(call.prepares for call in calls)
    library = loaded(source, tmp_path)
    library.weights = library.weights.copy()
    memory, x = library.workspace(), numbers(32, shape)
    (weight,) = [w for w in source.weights if w.array.shape == (3, 3, 64, 64)]
    stored_weight = [w for w in library.library.weights if w.weight is weight][0]
    _, (before,) = library.run(memory, 32, x)
    library.weights[
        stored_weight.offset : stored_weight.offset + stored_weight.nbytes
    ] = 0
    _, (after,) = library.run(memory, 32, x)
    np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(before, by_jit(source, 32, x)[0])


@needs_compiler
def test_loops_use_packed_weights_and_update_caches_in_place(tmp_path):
    weight = toolkit.Variable(numbers(96, (96,)) / 8)

    def written(x):
        def body(i, x, cache):
            x = ops.tanh(x @ weight)
            return i + 1, x, ops.slice_update(cache, (0, i, 0), x[:, None])

        start = 0, x, ops.zeros((x.shape[0], 5, 96))
        return ops.while_loop(lambda i, *_: i < 4, body, start)[2]

    source = source_of(written, [((96,), "float32")], (1, 2))
    assert source.programs[0].bodies[0].code.prepared
    library = loaded(source, tmp_path)
    for batch in (1, 2):
        x = numbers(batch, (96,), 1)
        memory = library.workspace(batch)
        for _ in range(2):
            _, (actual,) = library.run(memory, batch, x)
            np.testing.assert_array_equal(actual, by_jit(source, batch, x)[0])
        np.testing.assert_allclose(actual, written(x), 1e-5, 1e-5)


def test_equal_packed_weights_are_stored_once():
    both_programs, _ = model_source("cifar", (16, 32))
    one_program = replace(both_programs, programs=both_programs.programs[:1])
    libraries = [
        backend().generator.build_library(source)
        for source in (one_program, both_programs)
    ]
    grown = libraries[1].workspace_bytes[32] - libraries[0].workspace_bytes[16]
    arenas = [p.bodies[0].arena_bytes for p in both_programs.programs]
    assert grown - (arenas[1] - arenas[0]) < 65536
