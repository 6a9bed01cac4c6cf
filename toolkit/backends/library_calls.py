"""Interface by which the compiler queries the limits of one library call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from toolkit.ir import Node
from toolkit.plans.operands import Operand


class LibraryCallLimits(Protocol):
    """Limits of one library call of a backend."""

    def can_take_epilogue(self, nodes: Sequence[Any]) -> bool:
        """Return whether a product or convolution and the nodes after it are one call.

        Args:
            nodes: the product or convolution first; every other node reads the previous
                one.
        """

    def can_lower(
        self,
        node: Node,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        is_aligned: bool,
    ) -> bool:
        """Return whether a product with its extra results is one call."""
