"""The NumPy backend: the shared kernels, and the kernels of MKL if it is used."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from toolkit.ir import Node

if TYPE_CHECKING:
    from toolkit.backends.numpy.generator import Generator


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

    def can_fuse(self, node: Node) -> bool:
        """Return whether the generator supports the operation and its dtypes."""
        return self.can_generate and self.generator.is_fusable(node)

    def can_compute(self, node: Node) -> bool:
        """Return whether a kernel exists or the generator supports the whole node."""
        if super().can_compute(node):
            return True
        return self.can_generate and self.generator.takes_whole(node)

    @property
    def anchors(self) -> Collection[str]:
        """The products and convolutions that support an epilogue."""
        return self.generator.anchors if self.can_generate else ()

    @property
    def can_specialize(self) -> bool:  # type: ignore[override]
        """Whether generated code caches values computed from frozen inputs."""
        return self.can_generate

    @property
    def passes(self) -> BackendPasses:  # type: ignore[override]
        """The graph passes for generated code."""
        if not self.can_generate:
            return BackendPasses()
        return self.generator.passes

    def lower(
        self,
        node: Node,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        is_aligned: bool = True,
    ) -> Any:
        """Return generated calls for a node; None if the kernels of NumPy run it."""
        if not self.can_generate:
            return None
        return self.generator.lower(node, inputs, outputs)

    def specialize(self, lowered: Any, frozen: Collection[int], result: int = 0) -> Any:
        """Return the calls without the calls that depend on frozen inputs only."""
        return self.generator.prepare(lowered, frozen, result)

    def assemble(self, lowered: Sequence[Any], shares: Any, barrier: int) -> Any:
        """Return one program of machine code for consecutive lowered nodes."""
        return self.generator.assemble(lowered, shares, barrier)

    def lower_loop(
        self,
        body: Any,
        arena: tuple[str, int],
        moves: Sequence[LoopOperand],
        iterations: int,
        initial_outputs: Sequence[tuple[int, Spec]] = (),
        changing: Collection[tuple[str, int]] = (),
    ) -> Any:
        """Return one call that runs a program for a number of iterations."""
        return self.generator.lower_scan(
            body, arena, moves, iterations, initial_outputs, changing
        )

    def processors(
        self, name: str | None = None, threads: bool = True
    ) -> Sequence[Any]:
        """Return the target processors of machine code; see `Backend.processors`."""
        if not self.can_generate:
            return super().processors(name, threads)
        return self.generator.find_processors(name, threads)

    def build_library(self, source: LibrarySource) -> Library:
        """Return one object file of machine code; see `Backend.library`."""
        if not self.can_generate:
            return super().build_library(source)
        return self.generator.build_library(source)

    def lower_branch(
        self,
        branches: Sequence[Any],
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
    ) -> Any:
        """Return two calls, of which one runs its program."""
        return self.generator.lower_choice(branches, inputs, outputs)

    def lower_while(
        self,
        condition: Any,
        body: Any,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        limit: int | None,
        initial_outputs: Collection[int] = (),
    ) -> Any:
        """Return calls for the first condition, the loop, and its results."""
        return self.generator.lower_while(
            condition, body, inputs, outputs, limit, initial_outputs
        )

    @property
    def can_jump(self) -> bool:  # type: ignore[override]
        """Whether llvmlite is installed."""
        return self.can_generate

    @cached_property
    def _has_llvmlite(self) -> bool:
        return find_spec("llvmlite") is not None

    @cached_property
    def can_generate(self) -> bool:
        """Whether llvmlite is installed; without it, there is one warning."""
        if not self._has_llvmlite:
            warn(
                "llvmlite is not installed: compiled functions use NumPy kernels, "
                "which are several times slower (pip install llvmlite)"
            )
        return self._has_llvmlite

    @cached_property
    def generator(self) -> type[Generator]:
        """The code generator."""
        from toolkit.backends.numpy.generator import Generator

        return Generator

    def peak_rates(self) -> tuple[float, float] | None:
        """Return measured peak operations and bytes per second; None without a JIT."""
        return self.generator.peak_rates() if self.can_generate else None

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
        return self.generator.cache_folder() if self.can_generate else None
