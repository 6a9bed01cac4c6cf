"""Intel MKL through ctypes: matrix products, and vector functions of VML."""

from __future__ import annotations

import ctypes
import math
import site
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from toolkit.backends import openblas
from toolkit.backends.kernels import Kernel
from toolkit.backends.numpy import tiled_matmul
from toolkit.errors import ArgumentError
from toolkit.ir.scalars import SCALARS

Array = Any

# Codes from mkl_cblas.h, mkl_vml_defines.h and mkl_types.h.
_ROW_MAJOR, _NO_TRANS, _TRANS = 101, 111, 112
_HIGH_ACCURACY, _KEEP_SUBNORMALS, _IGNORE_ERRORS = 0x2, 0x140000, 0x100
_MODE = _HIGH_ACCURACY | _KEEP_SUBNORMALS | _IGNORE_ERRORS
_REPRODUCIBLE_RUNS = 2  # MKL_CBWR_AUTO
_LARGEST_INT = 2**31 - 1

# Below these sizes the overhead of ctypes exceeds the gain.
_MIN_PRODUCT_SIZE = 1 << 18
_MIN_VECTOR_SIZE = 2048
# Elements of one task.
_TASK_ELEMENTS = 1 << 18

_PREFIXES = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}


@lru_cache(maxsize=1)
def _library_path() -> Path | None:
    """Return the library that the `mkl` package installed, or None."""
    roots = [Path(root) for root in (sys.prefix, site.getuserbase())]
    for pattern in ("lib/libmkl_rt.*", "Library/bin/mkl_rt*.dll"):
        for root in roots:
            for path in sorted(root.glob(pattern)):
                return path
    return None


def is_installed() -> bool:
    """Return whether the `mkl` package is installed."""
    return _library_path() is not None


class Mkl:
    """MKL for float32 and float64; other dtypes use the BLAS of NumPy.

    Each call of MKL runs on one thread, so results do not depend on the thread count.

    Args:
        numpy: the BLAS of the NumPy build.
    """

    def __init__(self, numpy: Any) -> None:
        path = _library_path()
        if path is None:
            raise ArgumentError(
                "blas: expected an installed `mkl` package for 'mkl'; received none "
                "(pip install mkl)"
            )
        self._numpy = numpy
        self._library = ctypes.CDLL(str(path))
        self._use_threads = self._library.MKL_Set_Num_Threads_Local
        self._count = int(self._library.MKL_Get_Max_Threads())
        self._library.MKL_CBWR_Set(_REPRODUCIBLE_RUNS)
        self._gemm = {p: self._declare_gemm(p) for p in _PREFIXES.values()}
        self._batch = {p: self._declare_batch(p) for p in _PREFIXES.values()}

    @property
    def description(self) -> str:
        """The name and version."""
        text = ctypes.create_string_buffer(200)
        self._library.MKL_Get_Version_String(text, len(text))
        version = text.value.decode().partition("Version ")[2].partition("-")[0]
        return f"MKL {version}"

    @property
    def threads(self) -> int:
        """The number of threads."""
        return self._count

    @threads.setter
    def threads(self, count: int) -> None:
        self._library.MKL_Set_Num_Threads(count)
        self._numpy.threads = self._count = count

    @contextmanager
    def _single_thread(self) -> Iterator[None]:
        """Set MKL to one thread for this thread; 0 restores the global setting."""
        before = self._use_threads(1)
        try:
            yield
        finally:
            self._use_threads(before)

    def kernels(self, table: dict[str, Kernel]) -> dict[str, Kernel]:
        """Return VML kernels; short arrays and other dtypes use `table`."""
        functions = {
            name: self._vector(word.vml, table[name])
            for name, word in SCALARS.items()
            if word.vml
        }
        return self._numpy.kernels(table) | functions  # type: ignore[no-any-return]

    def gemm(self, a: Array, b: Array, out: Array | None = None) -> Array:
        """Compute np.matmul for operands of two or more axes."""
        rows, depth, columns = a.shape[-2], a.shape[-1], b.shape[-1]
        is_small = depth == 1 or rows * depth * columns < _MIN_PRODUCT_SIZE
        if is_small or a.dtype not in _PREFIXES:
            return self._numpy.gemm(a, b, out)
        if tiled_matmul.needs_tiles(a, b):
            return tiled_matmul.multiply_tiled(a, b, out, self._count, self._multiply)
        return self._multiply(a, b, out)

    def _multiply(self, a: Array, b: Array, out: Array | None = None) -> Array:
        """Compute the products of matrices on one thread."""
        if out is None:
            batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
            out = np.empty((*batch, a.shape[-2], b.shape[-1]), a.dtype)
        arrays = (a, b, out)
        layouts = [matrix_layout(x) for x in arrays]
        strides = [_batch_stride(x, out.shape[:-2]) for x in arrays]
        if None in layouts or None in strides or not _is_stack(out):
            with openblas.single_threaded:
                return np.matmul(a, b, out=out)
        with self._single_thread():
            self._call(arrays, layouts, strides)
        return out

    def _call(self, arrays: Any, layouts: Any, strides: Any) -> None:
        a, b, out = arrays
        prefix = _PREFIXES[a.dtype]
        (trans_a, lead_a), (trans_b, lead_b), (_, lead_out) = layouts
        pa, pb, po = (x.__array_interface__["data"][0] for x in arrays)
        extents = a.shape[-2], b.shape[-1], a.shape[-1]
        size = (_ROW_MAJOR, trans_a, trans_b, *extents, 1.0)
        count = math.prod(out.shape[:-2])
        if count == 1:
            self._gemm[prefix](*size, pa, lead_a, pb, lead_b, 0.0, po, lead_out)
        else:
            sa, sb, so = strides
            operands = (pa, lead_a, sa, pb, lead_b, sb, 0.0, po, lead_out, so, count)
            self._batch[prefix](*size, *operands)

    def _declare_gemm(self, prefix: str) -> Any:
        integer, pointer = ctypes.c_int, ctypes.c_void_p
        real = ctypes.c_float if prefix == "s" else ctypes.c_double
        function = self._library[f"cblas_{prefix}gemm"]
        operand = (pointer, integer)
        function.argtypes = (*[integer] * 6, real, *operand * 2, real, *operand)
        function.restype = None
        return function

    def _declare_batch(self, prefix: str) -> Any:
        integer, pointer = ctypes.c_int, ctypes.c_void_p
        real = ctypes.c_float if prefix == "s" else ctypes.c_double
        function = self._library[f"cblas_{prefix}gemm_batch_strided"]
        operand = (pointer, integer, integer)
        function.argtypes = (
            *[integer] * 6,
            real,
            *operand * 2,
            real,
            *operand,
            integer,
        )
        function.restype = None
        return function

    def _vector(self, name: str, fallback: Kernel) -> Kernel:
        """Return a kernel that calls VML for long contiguous arrays."""
        functions = {}
        for dtype, prefix in _PREFIXES.items():
            function = functions[dtype] = self._library[f"vm{prefix}{name}"]
            pointer = ctypes.c_void_p
            function.argtypes = (ctypes.c_int, pointer, pointer, ctypes.c_int64)
            function.restype = None

        def kernel(x: Array, *, out: Array | None = None, **work: Array) -> Array:
            function = functions.get(x.dtype)
            fits = _MIN_VECTOR_SIZE <= x.size <= _LARGEST_INT and x.flags.c_contiguous
            if function is None or not fits:
                return fallback(x, out=out, **work)
            if out is None:
                out = np.empty(x.shape, x.dtype)
            elif not out.flags.c_contiguous:
                return fallback(x, out=out, **work)
            self._apply(function, x, out)
            return out

        rule = getattr(fallback, "workspace", None)
        if rule is not None:
            kernel.workspace = rule  # type: ignore[attr-defined]
        return kernel

    def _apply(self, function: Callable[..., Any], x: Array, out: Array) -> None:
        """Apply a vector function to ranges of contiguous arrays."""
        source, target = (a.__array_interface__["data"][0] for a in (x, out))

        def apply_range(start: int) -> None:
            size, offset = min(_TASK_ELEMENTS, x.size - start), start * x.itemsize
            with self._single_thread():
                function(size, source + offset, target + offset, _MODE)

        tasks = [
            partial(apply_range, start) for start in range(0, x.size, _TASK_ELEMENTS)
        ]
        tiled_matmul.run_tasks(tasks, self._count)


def matrix_layout(x: Array) -> tuple[int, int] | None:
    """Return the transposition flag of a matrix, and its leading dimension.

    Return None if BLAS cannot read the matrix with its strides.
    """
    down, across = (stride // x.itemsize for stride in x.strides[-2:])
    rows, columns = x.shape[-2:]
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        layout, lead = _NO_TRANS, max(down if rows > 1 else columns, columns)
    elif (down == 1 or rows == 1) and (across >= rows or columns == 1):
        layout, lead = _TRANS, max(across if columns > 1 else rows, rows)
    else:
        return None
    return (layout, lead) if 0 < lead <= _LARGEST_INT else None


def _is_stack(out: Array) -> bool:
    """Return whether matrices are row-major and do not overlap, as MKL requires."""
    rows, lead = out.shape[-2], out.strides[-2]
    stack = zip(out.shape[:-2], out.strides, strict=False)
    is_disjoint = all(n == 1 or stride >= rows * lead for n, stride in stack)
    return out.strides[-1] == out.itemsize and is_disjoint


def _batch_stride(x: Array, batch: tuple[int, ...]) -> int | None:
    """Return the stride between the matrices of a stack; None if it varies."""
    new_axes = len(batch) - (x.ndim - 2)
    axes = []
    for i, extent in enumerate(batch):
        repeated = i < new_axes or x.shape[i - new_axes] == 1
        if extent != 1:
            axes.append((extent, 0 if repeated else x.strides[i - new_axes]))
    for (_, outer), (n, inner) in zip(axes, axes[1:], strict=False):
        if outer != n * inner:
            return None
    stride = axes[-1][1] // x.itemsize if axes else 0
    return stride if 0 <= stride <= _LARGEST_INT else None
