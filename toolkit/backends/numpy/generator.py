"""The code generator, as the NumPy backend uses it.

The backend imports this module for the first compiled function: the import of the
generator and its graph passes takes longer than the import of NumPy's kernels.
"""

from __future__ import annotations

from toolkit.backends.numpy import (
    fourier,
    narrow_rows,
    narrow_storage,
    pointwise,
    precision,
    reductions,
)
from toolkit.backends.numpy.jit import engine, loop, lowering, processor, roofline
from toolkit.backends.numpy.jit.calls import prepared
from toolkit.backends.numpy.jit.fused.elementwise import is_fusable, lower_fused
from toolkit.backends.numpy.jit.native import build
from toolkit.backends.numpy.jit.program import NativeProgram
from toolkit.backends.target import BackendPasses


class Generator:
    """The functions of the generator: lowering, programs, object files, processors."""

    anchors = lowering.ANCHORS
    passes = BackendPasses(
        after_expansion=(precision.widen,),
        before_fusion=(
            fourier.rewrite_transforms,
            pointwise.pointwise_gradients_as_products,
            reductions.separate_reductions,
            narrow_rows.join_narrow_rows,
        ),
        after_scheduling=(narrow_storage.store_narrow,),
    )

    is_fusable = staticmethod(is_fusable)
    takes_whole = staticmethod(lowering.takes_whole)

    lower = staticmethod(lowering.lower)
    lower_fused = staticmethod(lower_fused)
    lower_scan = staticmethod(loop.lower_scan)
    lower_choice = staticmethod(loop.lower_choice)
    lower_while = staticmethod(loop.lower_while)
    prepare = staticmethod(prepared)

    assemble = NativeProgram
    build_library = staticmethod(build.library)

    find_processors = staticmethod(processor.find)
    peak_rates = staticmethod(roofline.peaks)
    cache_folder = staticmethod(engine.cache_folder)
