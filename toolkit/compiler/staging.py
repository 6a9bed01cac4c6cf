"""Collectives of arrays on a device through host memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toolkit.backends.memory import Memory

Array = Any
Run = Callable[[], None]


class StagedCollective:
    """Kernel that copies its operands to the host, and the results to the device.

    Args:
        kernel: the kernel on arrays of the host.
        memory: the memory of the device.
    """

    # It calls the device, which one thread at a time does.
    background = None

    def __init__(self, kernel: Any, memory: Memory) -> None:
        self._kernel = kernel
        self._memory = memory

    def __call__(self, *arrays: Array, **options: Any) -> None:
        self.on(*arrays, **options)()

    def on(self, *arrays: Array, out: Sequence[Array], **options: object) -> Run:
        """Return the function for persistent arrays."""
        *operands, _ = arrays  # without the token, which has no content
        token = np.zeros((), np.uint8)

        def run() -> None:
            copies = self._memory.fetch(operands).get()
            results = [np.empty(y.shape, y.dtype) for y in out[:-1]]
            self._kernel(*copies, token, out=(*results, token), **options)
            for target, result in zip(out[:-1], results, strict=True):
                self._memory.overwrite(target, result)

        return run
