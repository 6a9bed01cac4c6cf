"""Kernels for every array module with NumPy's interface."""

from __future__ import annotations

from typing import Any

from toolkit.backends.array.contract import Contract
from toolkit.backends.array.conv import Conv
from toolkit.backends.array.elementwise import Elementwise
from toolkit.backends.array.index import Index
from toolkit.backends.array.linalg import Linalg
from toolkit.backends.array.pool import Pool
from toolkit.backends.array.random import Random
from toolkit.backends.array.reduce import Reduce
from toolkit.backends.array.shape import Shape
from toolkit.backends.array.sort import Sort
from toolkit.backends.kernels import Kernel

FAMILIES = (
    *(Elementwise, Reduce, Shape, Index, Contract, Linalg, Conv, Pool, Sort, Random),
)


def array_table(xp: Any, gemm: Kernel | None = None) -> dict[str, Kernel]:
    """Return the kernels of every primitive on `xp`, with `gemm` as its matmul."""
    table: dict[str, Kernel] = {}
    for family in FAMILIES:
        table.update(family(xp, gemm).table())
    return table
