"""Rewrites for patterns that cuDNN and cuBLASLt compute in one call."""

from __future__ import annotations

from toolkit.backends.cupy.passes.attention import use_attention_outputs
from toolkit.backends.cupy.passes.casts import hoist_casts
from toolkit.backends.cupy.passes.norms import keep_batch_norms
from toolkit.backends.cupy.passes.products import PARTS, join_products
from toolkit.backends.target import BackendPasses

PASSES = BackendPasses(
    after_trace=(use_attention_outputs, keep_batch_norms),
    before_fusion=(join_products,),
    product_parts=PARTS,
    after_scheduling=(hoist_casts,),
)
