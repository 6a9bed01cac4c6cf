"""What a program on a GPU does, step by step, as plain data made without a device.

A step is a launch of a generated kernel, a product by cuBLASLt, a graph of cuDNN, or a
loop over the steps of another program. Operands are named as launches name them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolkit.backends.base import Move, Operand, aligned
from toolkit.backends.cupy.cublaslt import Gemm
from toolkit.backends.cupy.cuda.launch import (
    Argument,
    Buffer,
    Launch,
    Scratch,
    Table,
    generate,
    scratch_bytes,
)
from toolkit.backends.cupy.signatures import Signature
from toolkit.ir import PRIMITIVES, Node, Spec
from toolkit.tensor import Tensor

Place = Buffer | Scratch


@dataclass(frozen=True)
class Product:
    """A matrix product: a, b, d, then a bias and what an epilogue keeps, if any."""

    gemm: Gemm
    operands: tuple[Place, ...]
    offsets: tuple[int, ...] = (0, 0, 0)

    @property
    def flops(self) -> int:
        return self.gemm.flops
