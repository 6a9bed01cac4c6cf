"""The NumPy backend: the shared kernels, and the kernels of MKL if it is used."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.array import array_table
from toolkit.backends.base import Backend, Kernel, LoopOperand, Operand
from toolkit.backends.library import Library, LibrarySource
from toolkit.backends.numpy import eager
from toolkit.backends.numpy.blas import find_blas
from toolkit.backends.target import BackendPasses
from toolkit.buffer_pool import RESULT_POOL
from toolkit.console.frames import warn
from toolkit.ir import Primitive, Spec


class NumPyBackend(Backend):
    """NumPy on the CPU.

    Args:
        blas: "numpy" for the BLAS of the NumPy build, "mkl" for the BLAS of the `mkl`
            package, or "auto" for MKL if it is installed and the BLAS of NumPy
            otherwise.
        threads: the number of threads of the BLAS; None does not change it.
    """

    name = "numpy"

    def __init__(self, blas: str = "auto", threads: int | None = None) -> None:
        self.blas: Any = find_blas(blas)
        table = array_table(np, self.blas.gemm)
        super().__init__(table | self.blas.kernels(table))
        if threads is not None:
            self.blas.threads = threads

    def make_eager_kernel(self, primitive: Primitive) -> Kernel:
        """Return the kernel of NumPy, with generated code for large calls."""
        kernel = super().make_eager_kernel(primitive)
        if not self._has_llvmlite:
            return kernel
        return eager.eager_kernel(self, primitive, kernel)

    def allocate_results(
        self, specs: Sequence[tuple[tuple[int, ...], str]]
    ) -> list[Any]:
        """Return arrays for the results of one call, from the buffer pool."""
        return [
            RESULT_POOL.empty(shape, dtypes.numpy_dtype(dtype))
            for shape, dtype in specs
        ]

    def can_fuse(self, node: Any) -> bool:
        """Return whether the generator supports the operation and its dtypes."""
        return self.jit is not None and self.jit.is_fusable(node)

    def can_compute(self, node: Any) -> bool:
        """Return whether a kernel exists or the generator supports the whole node."""
        if super().can_compute(node):
            return True
        return bool(self.lowering.takes_whole(node)) and self.can_generate

    @property
    def anchors(self) -> Collection[str]:
        """The products and convolutions that support an epilogue."""
        return self.lowering.ANCHORS if self.can_generate else ()

    @property
    def can_specialize(self) -> bool:  # type: ignore[override]
        """Whether generated code caches values computed from frozen inputs."""
        return self.can_generate

    @property
    def can_generate(self) -> bool:
        """Whether llvmlite is installed."""
        return self.jit is not None

    @property
    def passes(self) -> BackendPasses:  # type: ignore[override]
        """The graph passes for generated code."""
        if not self.can_generate:
            return BackendPasses()
        precision = import_module("toolkit.backends.numpy.precision")
        fourier = import_module("toolkit.backends.numpy.fourier")
        narrow_rows = import_module("toolkit.backends.numpy.narrow_rows")
        pointwise = import_module("toolkit.backends.numpy.pointwise")
        reductions = import_module("toolkit.backends.numpy.reductions")
        narrow_storage = import_module("toolkit.backends.numpy.narrow_storage")
        return BackendPasses(
            after_expansion=(precision.widen,),
            before_fusion=(
                fourier.rewrite_transforms,
                pointwise.pointwise_gradients_as_products,
                reductions.separate_reductions,
                narrow_rows.join_narrow_rows,
            ),
            after_scheduling=(narrow_storage.store_narrow,),
        )

    def lower(
        self,
        node: Any,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        is_aligned: bool = True,
    ) -> Any:
        """Return generated calls for a node; None if the kernels of NumPy run it."""
        return self.jit and self.lowering.lower(node, inputs, outputs)

    def specialize(self, lowered: Any, frozen: Collection[int], result: int = 0) -> Any:
        """Return the calls without the calls that depend on frozen inputs only."""
        return self.lowering.prepared(lowered, frozen, result)

    def assemble(self, lowered: Sequence[Any], shares: Any, barrier: int) -> Any:
        """Return one program of machine code for consecutive lowered nodes."""
        program = import_module("toolkit.backends.numpy.jit.program")
        return program.NativeProgram(lowered, shares, barrier)

    def lower_loop(
        self,
        body: Any,
        arena: tuple[str, int],
        moves: Sequence[LoopOperand],
        turns: int,
        begun: Sequence[tuple[int, Spec]] = (),
        changing: Collection[tuple[str, int]] = (),
    ) -> Any:
        """Return one call that runs a program for a number of iterations."""
        return self._loops.lower_scan(body, arena, moves, turns, begun, changing)

    def processors(
        self, name: str | None = None, threads: bool = True
    ) -> Sequence[Any]:
        """Return the target processors of machine code; see `Backend.processors`."""
        if not self.can_generate:
            return super().processors(name, threads)
        processor = import_module("toolkit.backends.numpy.jit.processor")
        processors: Sequence[Any] = processor.find(name, threads)
        return processors

    def build_library(self, source: LibrarySource) -> Library:
        """Return one object file of machine code; see `Backend.library`."""
        if not self.can_generate:
            return super().build_library(source)
        build = import_module("toolkit.backends.numpy.jit.native.build")
        library: Library = build.library(source)
        return library

    def lower_branch(
        self,
        branches: Sequence[Any],
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
    ) -> Any:
        """Return two calls, of which one runs its program."""
        return self._loops.lower_choice(branches, inputs, outputs)

    def lower_while(
        self,
        condition: Any,
        body: Any,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        limit: int | None,
        begun: Collection[int] = (),
    ) -> Any:
        """Return calls for the first condition, the loop, and its results."""
        return self._loops.lower_while(condition, body, inputs, outputs, limit, begun)

    @property
    def can_jump(self) -> bool:  # type: ignore[override]
        """Whether llvmlite is installed."""
        return self.can_generate

    @property
    def _loops(self) -> Any:
        return import_module("toolkit.backends.numpy.jit.loop")

    @cached_property
    def lowering(self) -> Any:
        """The module that lowers nodes."""
        return import_module("toolkit.backends.numpy.jit.lowering")

    @cached_property
    def _has_llvmlite(self) -> bool:
        return find_spec("llvmlite") is not None

    @cached_property
    def jit(self) -> Any:
        """The kernel generator; None, after one warning, without llvmlite."""
        if not self._has_llvmlite:
            warn(
                "llvmlite is not installed: compiled functions run on NumPy's kernels, "
                "several times slower (pip install llvmlite)"
            )
            return None
        return import_module("toolkit.backends.numpy.jit.fused.elementwise")

    def peak_rates(self) -> tuple[float, float] | None:
        """Return measured peak operations and bytes per second; None without a JIT."""
        if self.jit is None:
            return None
        roofline = import_module("toolkit.backends.numpy.jit.roofline")
        peaks: tuple[float, float] = roofline.peaks()
        return peaks

    def set_thread_count(self, count: int) -> None:
        """Set the thread count of the BLAS; generated programs read the setting."""
        self.blas.threads = count

    def describe(self) -> dict[str, Any]:
        """Return the CPU, the BLAS and its number of threads."""
        return {
            **super().describe(),
            "numpy": np.__version__,
            "blas": self.blas.description,
            "threads": self.blas.threads,
        }

    def cache_folder(self) -> Path | None:
        """Return the cache folder of generated code."""
        if not self.can_generate:
            return None
        engine = import_module("toolkit.backends.numpy.jit.engine")
        folder: Path | None = engine.cache_folder()
        return folder
