"""The costs of products in blocks of bfloat16, and of the same products in float32."""

from __future__ import annotations

from toolkit.backends.numpy.jit.processor import current
from toolkit.definitions.records import record


@record
class BlockRates:
    """The throughput of a core in FLOP/s and bytes/s.

    Attributes:
        float32_flops: FLOP/s of products in float32.
        packed_bytes: bytes/s of the packing of operands into blocks.
        tile_flops: FLOP/s of products in AMX tiles.
        dot_speedup: the speedup of dot products over float32: a factor of 2, less a
            tenth for loads and stores of sums.
    """

    float32_flops: float
    packed_bytes: float
    tile_flops: float = 1.5e12
    dot_speedup: float = 1.8

    def prefers_blocks(
        self, flops: int, block_flops: int, packed: int, speedup: float = 1
    ) -> bool:
        """Return whether blocks take less time than float32.

        Args:
            flops: of the product.
            block_flops: the FLOPs of whole blocks.
            packed: the bytes that are packed.
            speedup: the speedup of the float32 algorithm over a direct product.
        """
        dot_flops = self.dot_speedup * self.float32_flops
        block_rate = self.tile_flops if current().has_tiles else dot_flops
        seconds = block_flops / block_rate + packed / self.packed_bytes
        return seconds < flops / (self.float32_flops * speedup)
