"""Tests of the undefined symbols of objects: only system calls and threads."""

from __future__ import annotations

import shutil
import subprocess

import pytest

pytest.importorskip("llvmlite")

from tests.backends.jit.libraries import source_of
from tests.layers.test_generated import IN_PYTHON, ROWS, called
from toolkit import ops, tree
from toolkit.core.tensor import backend

pytestmark = pytest.mark.skipif(shutil.which("nm") is None, reason="no binutils")

ALLOWED = {"syscall", "sched_yield", "pthread_create", "pthread_join"}
# Division of integers, which is in the compiler's own library of each ARM toolchain.
ARM_DIVISION = {"__aeabi_idivmod", "__aeabi_ldivmod"}
TARGETS = {
    "x86-64-v2": ALLOWED,
    "x86-64": ALLOWED,
    "aarch64": ALLOWED,
    "armv7": ALLOWED | ARM_DIVISION,
    "riscv64": ALLOWED,
}
UNARY = (
    *(
        "exp",
        "expm1",
        "log",
        "log2",
        "exp2",
        "log1p",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "tanh",
        "erf",
    ),
    *("tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "arcsinh", "arccosh"),
    *(
        "arctanh",
        "cbrt",
        "erfinv",
        "sigmoid",
        "gelu",
        "sign",
        "floor",
        "ceil",
        "round",
        "trunc",
    ),
)
BINARY = ("divide", "power", "maximum", "arctan2", "floor_divide", "mod")
WHOLE = ("floor_divide", "remainder", "gcd", "left_shift", "right_shift", "maximum")
# The tested operations, by dtype.
OPERATIONS = {
    **dict.fromkeys(("float32", "float64"), (*UNARY, *BINARY)),
    **dict.fromkeys(("int32", "int64"), WHOLE),
}


def undefined(source, folder):
    """The names that an object leaves to the linker."""
    path = folder / "m.o"
    path.write_bytes(backend().generator.build_library(source).code)
    completed = subprocess.run(
        ["nm", "-u", path], capture_output=True, text=True, check=True
    )
    return set(completed.stdout.split()) - {"U"}


@pytest.mark.parametrize("row", [row for row in ROWS if row not in IN_PYTHON])
@pytest.mark.one_in(8)
def test_a_layer_needs_no_library(row, tmp_path):
    make, *shapes = ROWS[row]
    _, inputs, call = called(make, shapes, training=False)
    arrays = tree.flatten(inputs)

    def function(*xs):
        return tuple(tree.flatten(call(*tree.pack_sequence_as(inputs, xs))))

    specs = [(x.shape[1:], str(x.dtype)) for x in arrays]
    batches = [arrays[0].shape[0]]
    source = source_of(function, specs, batches, "x86-64-v2", threads=True)
    assert undefined(source, tmp_path) == ALLOWED


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", OPERATIONS)
@pytest.mark.one_in(2)
def test_operations_need_no_library(dtype, target, tmp_path):
    def function(x, y):
        arguments = {
            name: (x,) if name in UNARY else (x, y) for name in OPERATIONS[dtype]
        }
        return tuple(getattr(ops, name)(*xs) for name, xs in arguments.items())

    source = source_of(function, [((17,), dtype)] * 2, [2], target, threads=True)
    assert undefined(source, tmp_path) <= TARGETS[target]
