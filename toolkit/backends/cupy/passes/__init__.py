"""Rewrites for patterns that cuDNN and cuBLASLt compute in one call."""

from __future__ import annotations

from toolkit.backends.cupy.passes.attention import give_outputs
from toolkit.backends.cupy.passes.casts import casts_first
from toolkit.backends.cupy.passes.norms import keep_norms
from toolkit.backends.cupy.passes.products import PARTS, join_products
from toolkit.backends.target import BackendPasses

PASSES = BackendPasses(
    traced=(give_outputs, keep_norms),
    simplified=(join_products,),
    parts=PARTS,
    scheduled=(casts_first,),
)
