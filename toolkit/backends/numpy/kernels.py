"""The NumPy backend: the shared kernels, and the kernels of MKL if it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit import dtypes
from toolkit.backends.array import array_table
from toolkit.backends.base import Backend
from toolkit.backends.generator import CodeGenerator
from toolkit.backends.kernels import Kernel, Reads
from toolkit.backends.memory import Array, Memory
from toolkit.backends.numpy import eager
from toolkit.backends.numpy.blas import find_blas
from toolkit.backends.numpy.direct_calls import direct_call
from toolkit.backends.numpy.equal_code import has_equal_code
from toolkit.backends.numpy.fused_steps import fuse_steps
from toolkit.buffer_pool import RESULT_POOL
from toolkit.console.frames import warn
from toolkit.ir import Node, Primitive, Spec, Value

if TYPE_CHECKING:
    from toolkit.backends.numpy.generator import LlvmGenerator


class ResultMemory(Memory):
    """Memory of the host that reuses the memory of results."""

    def allocate_results(
        self, specs: Sequence[tuple[tuple[int, ...], str]]
    ) -> list[Any]:
        """Return arrays for the results of one call, from the buffer pool."""
        return [allocate() for allocate in self.allocators(specs)]

    def allocators(
        self, specs: Sequence[tuple[tuple[int, ...], str]]
    ) -> list[Callable[[], Array]]:
        """Return functions that allocate results in the buffer pool."""
        return [
            RESULT_POOL.allocator(shape, dtypes.numpy_dtype(dtype))
            for shape, dtype in specs
        ]


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
        super().__init__(table | self.blas.kernels(table), ResultMemory())
        if threads is not None:
            self.blas.threads = threads

    def make_eager_kernel(self, primitive: Primitive) -> Kernel:
        """Return the kernel of NumPy, with generated code for large calls."""
        kernel = super().make_eager_kernel(primitive)
        if not self._has_llvmlite:
            return kernel
        return eager.eager_kernel(self, primitive, kernel)

    def sized_kernel(
        self,
        primitive: Primitive,
        specs: Sequence[Spec],
        attrs: Mapping[str, object],
        used: Sequence[bool] = (True, True),
    ) -> Kernel:
        """Return the kernel of NumPy, or generated code, by the sizes of a call."""
        chosen = self.eager_kernel(primitive)
        kernel = eager.sized_kernel(chosen, primitive, specs, attrs)
        if kernel is not self.kernels.get(primitive.name):
            return kernel
        return direct_call(primitive, kernel, specs, attrs, used) or kernel

    def hot_kernel(
        self, primitive: Primitive, specs: Sequence[Spec], attrs: Mapping[str, object]
    ) -> Kernel | None:
        """Return generated code with the bits of NumPy, if it is faster."""
        kernel = self.eager_kernel(primitive)
        return eager.hot_kernel(kernel, primitive, specs, attrs)

    def fuse_steps(
        self,
        steps: Sequence[tuple[Kernel, Node]],
        outputs: Sequence[Value],
        constants: Mapping[Value, Array],
    ) -> list[tuple[Kernel, Node]]:
        """Return steps with one loop for consecutive elementwise ones."""
        return fuse_steps(self, steps, outputs, constants)

    def has_equal_code(self, kernel: Kernel, node: Node, reads: Reads) -> bool:
        """Return whether code of a program has the same bits as a kernel."""
        return has_equal_code(kernel, node, reads)

    @cached_property
    def _has_llvmlite(self) -> bool:
        return find_spec("llvmlite") is not None

    @cached_property
    def generator(self) -> CodeGenerator:
        """Return the generator of machine code.

        Without llvmlite, it generates no code, and there is one warning.
        """
        if self._has_llvmlite:
            return self.llvm_generator
        warn(
            "llvmlite is not installed: compiled functions use NumPy kernels, "
            "which are several times slower (pip install llvmlite)"
        )
        return CodeGenerator(self.name)

    @cached_property
    def llvm_generator(self) -> LlvmGenerator:
        """Return the generator of machine code, which requires llvmlite."""
        from toolkit.backends.numpy.generator import LlvmGenerator

        return LlvmGenerator(self.name)

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
