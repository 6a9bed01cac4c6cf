"""The reference backend: every kernel in plain NumPy, slow but easy to check.

It is the definition that other backends are tested against, so it shares no kernel with
them but what a primitive's record says, uses nothing optional, and needs no scratch
memory.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np

from toolkit.backends.base import Backend, Kernel
from toolkit.backends.reference import arrays, images, linalg, scalars
from toolkit.backends.reference.common import kernel
from toolkit.backends.rendering import ArrayScalars, rendered
from toolkit.ir import Primitive

__all__ = ["ReferenceBackend", "create"]


class ReferenceBackend(Backend):
    """Plain NumPy, whatever the primitive."""

    name = "reference"

    def render(self, record: Primitive) -> Kernel | None:
        """The kernel that follows from a primitive's record."""
        return rendered(record, ArrayScalars(np, scalars.WORDS))


def create() -> ReferenceBackend:
    """The backend with a kernel for every primitive."""
    return ReferenceBackend(
        {
            **_functions(arrays),
            **_functions(images),
            **_functions(linalg),
        }
    )


def _functions(module: ModuleType) -> dict[str, Kernel]:
    """The public functions that a module defines, as kernels."""
    return {
        name: kernel(value)
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "") == module.__name__
    }
