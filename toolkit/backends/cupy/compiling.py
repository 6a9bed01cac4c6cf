"""Kernels that are compiled beside what their caller does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolkit.backends.cupy.background import Background
from toolkit.backends.cupy.cuda.launch import Kernel
from toolkit.machine import available_cores


class Compiler(Background[Kernel, bytes]):
    """Compiles kernels from when they are known of to when they are needed.

    Args:
        compile_kernel: gives the machine code of a kernel; called by several threads.
    """

    def __init__(self, compile_kernel: Callable[[Kernel], bytes]) -> None:
        super().__init__(available_cores())
        self.compile_kernel = compile_kernel

    def make(self, kernel: Kernel) -> bytes:
        return self.compile_kernel(kernel)

    def foresee(self, kernel: Kernel) -> None:
        """Compile a kernel that a program will start; once more, also that of many."""
        if not self.begin(kernel) and kernel.many:
            self.begin(kernel.many)

    def compiled(self, kernels: Sequence[Kernel]) -> list[bytes]:
        """The machine code of kernels, once it is there."""
        for kernel in kernels:
            self.begin(kernel)
        made = self.taken(kernels)
        return [made[k] if k in made else self.compile_kernel(k) for k in kernels]
