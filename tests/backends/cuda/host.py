"""Generated kernels on the processor: compiled by g++ with a small shim, and run."""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from toolkit import dtypes
from toolkit.backends.cupy.cuda.launch import (
    Buffer,
    Problem,
    Scalar,
    Scratch,
    Table,
    scratch_bytes,
)

SHIM = Path(__file__).with_name("shim.h")
# The shim needs the fibers and the float16 type of GNU's compiler on Linux.
GXX = shutil.which("g++") if sys.platform == "linux" else None
OPTIONS = ("-std=c++17", "-O1", "-w", "-fwrapv", "-fno-strict-aliasing", "-fPIC")
POISON, GUARD = 0xA5, 256
CTYPES = {
    "long long": ctypes.c_longlong,
    "int": ctypes.c_int,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


class Host:
    """Compiled kernels.

    Args:
        launches: all that will be run.
        folder: where to build.
    """

    def __init__(self, launches, folder):
        kernels = {launch.kernel.name: launch.kernel for launch in launches}
        sources = [f'#include "{SHIM}"']
        for kernel in kernels.values():
            arguments = ", ".join(
                f"*({ctype}*)a[{i}]" for i, ctype in enumerate(kernel.parameters)
            )
            fibers = int("__syncthreads" in kernel.source.rpartition("#endif")[2])
            fibers |= int("exchange(" in kernel.source.rpartition("#endif")[2])
            sources += [
                kernel.source,
                f"static void call_{kernel.name}(void** a) "
                f"{{ {kernel.name}({arguments}); }}",
                f'extern "C" void run_{kernel.name}'
                "(void** a, const unsigned* sizes, int backwards) "
                f"{{ run_grid(call_{kernel.name}, a, sizes, {fibers}, backwards); }}",
            ]
        source, library = folder / "kernels.cpp", folder / "kernels.so"
        source.write_text("\n".join(sources))
        command = [GXX, *OPTIONS, "-shared", str(source), "-o", str(library)]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
        assert completed.returncode == 0, completed.stderr[:4000]
        self.library = ctypes.CDLL(str(library))

    def run(self, launches, inputs, outputs):
        """Fresh outputs, filled twice: in both orders of threads, with equal bits.

        Args:
            launches: of one node.
            inputs: arrays.
            outputs: specs.

        Returns:
            The output arrays, and the three numbers of the problem.
        """
        first = self._run(launches, inputs, outputs, False)
        second = self._run(launches, inputs, outputs, True)
        for a, b in zip(first[0], second[0], strict=True):
            assert a.tobytes() == b.tobytes(), "the order of threads shows"
        return first

    def _run(self, launches, inputs, outputs, backwards):
        results = [guarded(spec.nbytes) for spec in outputs]
        scratch = guarded(scratch_bytes(launches))
        problem = np.zeros(3, np.int64)
        addresses = [x.ctypes.data for x in inputs]
        addresses += [x.ctypes.data + GUARD for x in results]
        references = []

        def address(word):
            if isinstance(word, Buffer):
                return addresses[word.index]
            if isinstance(word, Scratch):
                assert word.offset + word.nbytes <= scratch.size - 2 * GUARD
                return scratch.ctypes.data + GUARD + word.offset
            return word

        def argument(operand):
            if isinstance(operand, Scalar):
                return CTYPES[operand.ctype](operand.value)
            if isinstance(operand, Problem):
                return ctypes.c_void_p(problem.ctypes.data)
            if isinstance(operand, Table):
                rows = [[address(word) for word in row] for row in operand.rows]
                references.append(np.array(rows, np.int64))
                return ctypes.c_void_p(references[-1].ctypes.data)
            return ctypes.c_void_p(address(operand))

        for launch in launches:
            values = [argument(value) for value in launch.arguments]
            pointers = [ctypes.addressof(value) for value in values]
            array = (ctypes.c_void_p * len(pointers))(*pointers)
            sizes = (ctypes.c_uint * 6)(*launch.grid, *launch.block)
            getattr(self.library, f"run_{launch.kernel.name}")(array, sizes, backwards)
        for block in (scratch, *results):
            edges = (block[:GUARD], block[block.size - GUARD :])
            assert all((edge == POISON).all() for edge in edges), "wrote outside"
        return [
            block[GUARD : GUARD + spec.nbytes]
            .view(dtypes.numpy_dtype(spec.dtype))
            .reshape(spec.shape)
            for block, spec in zip(results, outputs, strict=True)
        ], problem


def guarded(nbytes):
    """Memory of nonsense, and a guard on each side of it."""
    nbytes += 2 * GUARD
    block = np.empty(nbytes + 64, np.uint8)
    start = -block.ctypes.data % 64
    block = block[start : start + nbytes]
    block[...] = POISON
    return block
