"""Kernels that are compiled beside what their caller does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

from toolkit.backends.cupy.cuda.launch import Kernel
from toolkit.machine import available_cores


class Compiler:
    """Compiles kernels in threads, from when they are known of to when they are needed.

    Args:
        compile_kernel: gives the machine code of a kernel; called by several threads.
    """

    def __init__(self, compile_kernel: Callable[[Kernel], bytes]) -> None:
        self.compile_kernel = compile_kernel
        self._begun: dict[Kernel, Future[bytes]] = {}
        # The threads are there only while there is something to compile.
        self._threads: ThreadPoolExecutor | None = None
        self._turn = Lock()

    def foresee(self, kernel: Kernel) -> None:
        """Compile a kernel that a program will start; once more, also that of many."""
        is_known = kernel in self._begun
        self.begin([kernel.many if is_known and kernel.many else kernel])

    def begin(self, kernels: Sequence[Kernel]) -> None:
        """Compile kernels that `compiled` will be asked for."""
        with self._turn:
            for kernel in kernels:
                if kernel not in self._begun:
                    if self._threads is None:
                        self._threads = ThreadPoolExecutor(available_cores())
                    self._begun[kernel] = self._threads.submit(
                        self.compile_kernel, kernel
                    )

    def compiled(self, kernels: Sequence[Kernel]) -> list[bytes]:
        """The machine code of kernels, once it is there."""
        self.begin(kernels)
        with self._turn:
            found = [self._begun.pop(kernel) for kernel in kernels]
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)
        return [each.result() for each in found]
