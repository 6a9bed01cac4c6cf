"""What libraries compute by one call beside a product, as the compiler asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from toolkit.backends.base import Operand


class Calls(Protocol):
    """What the libraries of a backend compute by one call."""

    def follow(self, nodes: Sequence[Any]) -> bool:
        """Whether a product or convolution and what follows it are one call.

        Args:
            nodes: that one first; each of the others reads the one before.
        """

    def take(
        self,
        node: Any,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        is_aligned: bool,
    ) -> bool:
        """Whether a product with what is computed beside it is one call."""
