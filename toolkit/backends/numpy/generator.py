"""The code generator of the NumPy backend.

The backend imports this module for the first compiled function: the import of the
generator and its graph passes takes longer than the import of NumPy's kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.backends.generator import CodeGenerator
from toolkit.backends.numpy import (
    fourier,
    narrow_factors,
    narrow_rows,
    narrow_storage,
    outer_products,
    pointwise,
    precision,
    reductions,
)
from toolkit.backends.numpy.jit import engine, loop, lowering, processor, roofline
from toolkit.backends.numpy.jit.calls import Lowered, name_calls, prepared
from toolkit.backends.numpy.jit.fused.elementwise import is_fusable, lower_fused
from toolkit.backends.numpy.jit.native import build
from toolkit.backends.numpy.jit.program import NativeProgram
from toolkit.backends.target import BackendPasses
from toolkit.ir import Node
from toolkit.plans.operands import Operand


class LlvmGenerator(CodeGenerator):
    """Generator of machine code for CPUs: kernels, programs and object files."""

    can_generate = True
    can_jump = True
    can_specialize = True
    anchors = lowering.ANCHORS
    passes = BackendPasses(
        after_expansion=(precision.widen,),
        before_fusion=(
            fourier.rewrite_transforms,
            pointwise.pointwise_gradients_as_products,
            outer_products.multiply_outer_products,
            reductions.separate_reductions,
            narrow_factors.read_narrow_factors,
            narrow_rows.join_narrow_rows,
        ),
        after_scheduling=(narrow_storage.store_narrow,),
    )

    can_fuse = staticmethod(is_fusable)
    can_lower_composite = staticmethod(lowering.takes_whole)
    specialize = staticmethod(prepared)
    assemble = staticmethod(NativeProgram)
    lower_loop = staticmethod(loop.lower_scan)
    lower_branch = staticmethod(loop.lower_branch)
    lower_while = staticmethod(loop.lower_while)
    processors = staticmethod(processor.find)
    missing_dtypes = staticmethod(processor.missing_dtypes)
    build_library = staticmethod(build.build_library)
    peak_rates = staticmethod(roofline.peaks)
    cache_folder = staticmethod(engine.cache_folder)
    lower_body = staticmethod(lower_fused)

    def lower(
        self,
        node: Node,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        is_aligned: bool = True,
    ) -> Lowered | None:
        """Return the calls that compute a node; None if a kernel of NumPy runs it."""
        lowered = lowering.lower(node, inputs, outputs)
        return None if lowered is None else name_calls(lowered, node.origin)
