"""Rewrites for patterns that cuDNN and cuBLASLt compute in one call."""

from __future__ import annotations

from toolkit.backends.cupy.passes.attention import give_outputs
from toolkit.backends.cupy.passes.casts import casts_first
from toolkit.backends.cupy.passes.norms import keep_norms
from toolkit.backends.cupy.passes.products import PARTS, join_products
from toolkit.backends.target import BackendPasses

PASSES = BackendPasses(
    after_trace=(give_outputs, keep_norms),
    before_fusion=(join_products,),
    product_parts=PARTS,
    after_scheduling=(casts_first,),
)
