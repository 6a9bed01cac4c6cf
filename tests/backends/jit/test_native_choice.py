"""Tests of native libraries that select programs by the features of the processor."""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from tests.backends.jit.libraries import MODELS, by_jit, source_of
from tests.backends.jit.test_native import (
    counting_source,
    loaded,
    model_source,
    numbers,
    runs_here,
)
from tests.backends.jit.test_native_callers import check_close, run_in_c
from toolkit import ops
from toolkit.backends.library import Status
from toolkit.backends.numpy.jit.native import features
from toolkit.backends.numpy.jit.processor import FAMILIES, Processor
from toolkit.core.tensor import backend
from toolkit.errors import OutOfRangeError

LEVELS = FAMILIES["x86-64"]
# The first missing feature of a processor of each level.
LACKED = {"x86-64-v2": "fma", "x86-64-v3": "avx512vl", "x86-64-v4": None}
# Bits that are reserved or belong to other processors: never set with the real ones.
RESERVED = {"sse4.2": 16, "fma": 16, "avx512vl": 26, "avx512vpopcntdq": 15}
RESERVED |= {"avx512bf16": 15}

needs_x86 = pytest.mark.skipif(
    shutil.which("cc") is None or Processor.host().architecture != "x86_64",
    reason="asks an x86",
)


@pytest.fixture
def lack(monkeypatch):
    """`lack(feature)`: libraries that are built then do not find it here."""

    def lack(feature):
        tables = features._ONE_C, features._SEVEN_B, features._SEVEN_C
        tables += (features._PART_A,)
        (bits,) = [table for table in tables if feature in table]
        monkeypatch.setitem(bits, feature, RESERVED[feature])

    return lack


@pytest.fixture(params=range(len(LEVELS)), ids=LEVELS)
def level(request, lack):
    """The number of a level, which is the best that libraries find here."""
    name = LEVELS[request.param]
    if not runs_here(name):
        pytest.skip(f"this is no {name}")
    if LACKED[name]:
        lack(LACKED[name])
    return request.param


def init(library):
    """Return the result of `init`."""
    size = library.function("workspace_size")(ctypes.c_int64(0))
    memory = np.zeros(size, np.uint8)
    return library.function("init")(
        ctypes.c_void_p(memory.ctypes.data),
        ctypes.c_void_p(library.weights.ctypes.data),
        ctypes.c_int64(0),
    )


def chosen(memory):
    """Whose programs a workspace is for: a word of it says so."""
    start = -memory.ctypes.data % 64
    return memory[start : start + 128].view(np.int64)[9]


@needs_x86
@pytest.mark.parametrize(
    "feature", ["avx512vpopcntdq", "fma", "avx512vl", "avx512bf16"]
)
def test_lower_processor_level_is_reported(feature, tmp_path, lack):
    source, _ = model_source("mlp", (1,), processor="x86-64-v2")
    assert init(loaded(source, tmp_path)) == Status.OK
    lack(feature)
    lesser = [replace(source.processors[0], features=f"+{feature}")]
    (tmp_path / "other").mkdir()
    other = loaded(
        replace(source, prefix="other", processors=lesser), tmp_path / "other"
    )
    assert init(other) == Status.UNSUPPORTED_PROCESSOR


@needs_x86
def test_processor_below_all_levels_is_reported(tmp_path, lack):
    lack("sse4.2")
    source, _ = model_source("mlp", (1,), processor="x86-64")
    assert init(loaded(source, tmp_path)) == Status.UNSUPPORTED_PROCESSOR


@needs_x86
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.one_in(4)
def test_best_supported_programs_run(name, level, threads, tmp_path):
    """Their bits equal the result of a library for that level only."""
    options = {"threads": threads > 1}
    source, shape = model_source(name, (1, 3, 32), processor="x86-64", **options)
    library = loaded(source, tmp_path)
    library.function("threads")(ctypes.c_int32(threads), ctypes.c_int32(0))
    memory = library.workspace()
    assert chosen(memory) == level
    for batch in (32, 1, 3):
        x = numbers(batch, shape)
        status, (y,) = library.run(memory, batch, x)
        assert status == Status.OK
        np.testing.assert_array_equal(y, by_jit(source, batch, x, body=level)[0])
    library.function("stop")()


def two_lookups(index):
    """One in 10 rows, one of the index before in 10 columns."""
    table = ops.reshape(ops.arange(40, dtype="float32"), (10, 4))
    table = table + ops.sum(ops.cast(index, "float32"))
    columns = ops.broadcast_to(index - 1, (4, index.shape[0]))
    looked_up = ops.take_along_axis(ops.transpose(table), columns, axis=1)
    return ops.take(table, index, axis=0) + ops.transpose(looked_up)


@needs_x86
@pytest.mark.parametrize("index", [10, 11])
def test_messages_are_from_the_selected_programs(index, level, tmp_path):
    source = source_of(two_lookups, [((), "int32")], (1, 4), name="x86-64")
    library = loaded(source, tmp_path)
    memory, indices = library.workspace(), np.array([1, 2, index, 3], "int32")
    status, _ = library.run(memory, 4, indices)
    assert status == Status.OUT_OF_RANGE
    with pytest.raises(OutOfRangeError) as error:
        by_jit(source, 4, indices, body=level)
    message = library.function("message")(
        ctypes.c_void_p(memory.ctypes.data), ctypes.c_int32(status)
    )
    assert message.decode() == str(error.value)


@needs_x86
def test_selected_programs_preserve_states(level, tmp_path):
    library = loaded(counting_source(name="x86-64"), tmp_path)
    memory, indices = library.workspace(), np.array([1, 2], "int32")
    rows = np.arange(4, 12, dtype="float32").reshape(2, 4)
    for call in (1, 2):
        status, (y,) = library.run(memory, 2, indices)
        assert status == Status.OK
        np.testing.assert_array_equal(y, rows + 5 + call * rows.sum())


def test_weights_are_stored_once_and_workspace_is_the_maximum():
    embed = {"embed": True}
    together, _ = model_source("cifar", (1, 16), processor="x86-64", **embed)
    sources = [model_source("cifar", (1, 16), processor=x, **embed)[0] for x in LEVELS]
    library = backend().generator.build_library(together)
    libraries = [backend().generator.build_library(source) for source in sources]
    code = [len(library.code) - library.weights_bytes for library in libraries]
    assert len(library.code) - library.weights_bytes < sum(code)
    for batch, nbytes in library.workspace_bytes.items():
        assert nbytes == max(library.workspace_bytes[batch] for library in libraries)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processor", "level"), [("Nehalem", "x86-64-v2"), ("Haswell", "x86-64-v3")]
)
def test_emulated_processors(processor, level, tmp_path):
    """The emulator ends a program at an instruction that the processor lacks."""
    qemu = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    compiler = shutil.which("x86_64-linux-gnu-gcc")
    if not (qemu and compiler):
        pytest.skip("no emulator")
    source, shape = model_source("cifar", (1, 4), processor="x86-64")
    x, runner = numbers(5, shape), (qemu, "-cpu", processor)
    y = run_in_c(
        backend().generator.build_library(source),
        x,
        tmp_path,
        compiler,
        runner,
        ("-static",),
    )
    body = LEVELS.index(level)
    if runs_here(level):
        expected = [by_jit(source, 4, x[:4], body=body)[0]]
        expected.append(by_jit(source, 1, x[4:], body=body)[0])
        check_close(y, np.concatenate(expected))
