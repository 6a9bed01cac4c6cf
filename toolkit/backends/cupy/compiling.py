"""Kernel compilation in background threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolkit.backends.cupy.background import Background
from toolkit.backends.cupy.cuda.launch import Kernel
from toolkit.machine import available_cores


class Compiler(Background[Kernel, bytes]):
    """Pool that compiles kernels in parallel with tracing.

    Args:
        compile_kernel: a function that returns the machine code of a kernel; several
            threads call it.
    """

    def __init__(self, compile_kernel: Callable[[Kernel], bytes]) -> None:
        super().__init__(available_cores())
        self.compile_kernel = compile_kernel

    def compute(self, kernel: Kernel) -> bytes:
        return self.compile_kernel(kernel)

    def precompile(self, kernel: Kernel) -> None:
        """Start to compile a kernel; on repeat, also compile its batched kernel."""
        if not self.start(kernel) and kernel.batched:
            self.start(kernel.batched)

    def wait_for(self, kernels: Sequence[Kernel]) -> list[bytes]:
        """Wait for kernels to compile, and return their machine code."""
        for kernel in kernels:
            self.start(kernel)
        results = self.collect(kernels)
        return [results[k] if k in results else self.compile_kernel(k) for k in kernels]
