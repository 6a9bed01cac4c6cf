"""Kernels that are compiled beside what their caller does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
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
        # There from the first kernel that is begun until all that are needed are asked
        # for.
        self._threads: ThreadPoolExecutor | None = None
        self._turn = Lock()

    def foresee(self, kernel: Kernel) -> None:
        """Compile a kernel that a program will start; once more, also that of many."""
        with self._turn:
            is_known = kernel in self._begun
            self._begin(kernel.many if is_known and kernel.many else kernel)

    def compiled(self, kernels: Sequence[Kernel]) -> list[bytes]:
        """The machine code of kernels, once it is there."""
        with self._turn:
            for kernel in kernels:
                self._begin(kernel)
            found = {k: self._begun.pop(k) for k in kernels if k in self._begun}
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)
        try:
            return [self._result(kernel, found.get(kernel)) for kernel in kernels]
        except BaseException:
            if threads is not None:
                threads.shutdown(wait=False, cancel_futures=True)
            raise

    def cancel(self) -> None:
        """Compile nothing more of what was begun."""
        with self._turn:
            threads, self._threads = self._threads, None
            self._begun.clear()
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, kernel: Kernel) -> None:
        if kernel not in self._begun:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(available_cores())
            with suppress(RuntimeError):  # the system has no room for a thread
                self._begun[kernel] = self._threads.submit(self.compile_kernel, kernel)

    def _result(self, kernel: Kernel, begun: Future[bytes] | None) -> bytes:
        if begun is not None:
            with suppress(CancelledError):  # as another program came to nothing
                return begun.result()
        return self.compile_kernel(kernel)
