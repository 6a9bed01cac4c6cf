"""Reference backend: every kernel in plain NumPy, slow but easy to verify.

Other backends are tested against this definition. So it shares no kernel with them
except the rules in a primitive's record, uses no optional dependency, and needs no
scratch memory.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np

from toolkit.backends.base import Backend
from toolkit.backends.kernels import (
    ArrayScalars,
    Kernel,
    KernelTable,
    render_kernel,
)
from toolkit.backends.reference import arrays, images, linalg, scalars
from toolkit.backends.reference.common import kernel
from toolkit.ir import Primitive

__all__ = ["ReferenceBackend", "create"]


class ReferenceKernels(KernelTable):
    """Kernels that compute every primitive in plain NumPy."""

    def render(self, record: Primitive) -> Kernel | None:
        """Return the kernel that the rules of a primitive's record define."""
        return render_kernel(record, ArrayScalars(np, scalars.WORDS))


class ReferenceBackend(Backend):
    """Backend that computes every primitive in plain NumPy."""

    name = "reference"


def create() -> ReferenceBackend:
    """Return the backend with a kernel for every primitive."""
    functions = _functions(arrays) | _functions(images) | _functions(linalg)
    return ReferenceBackend(ReferenceKernels(functions))


def _functions(module: ModuleType) -> dict[str, Kernel]:
    """Return the public functions that a module defines, as kernels."""
    return {
        name: kernel(value)
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "") == module.__name__
    }
