"""Rewrites for what cuDNN and cuBLASLt compute by one call."""

from __future__ import annotations

from toolkit.backends.cupy.passes.attention import give_outputs
from toolkit.backends.cupy.passes.branches import select_branches
from toolkit.backends.cupy.passes.casts import casts_first
from toolkit.backends.cupy.passes.norms import keep_norms
from toolkit.backends.cupy.passes.products import join_products
from toolkit.backends.target import BackendPasses

PASSES = BackendPasses(
    traced=(select_branches, give_outputs, keep_norms),
    simplified=(join_products,),
    scheduled=(casts_first,),
)
