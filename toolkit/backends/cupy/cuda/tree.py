"""Elementwise combinations along a tree, for sums between devices."""

from __future__ import annotations

from toolkit import dtypes
from toolkit.backends.cupy.cuda.body import kernel_text
from toolkit.backends.cupy.cuda.launch import (
    Argument,
    Buffer,
    Launch,
    Scalar,
    make_kernel,
)
from toolkit.backends.cupy.cuda.prelude import STORED
from toolkit.backends.cupy.cuda.scalars import (
    CUDAScalars,
    SourceWriter,
    Value,
    literal,
)
from toolkit.comm.ordered import IDENTITY_ELEMENTS
from toolkit.comm.sum_plans import Combine, Tree
from toolkit.errors import UnsupportedOnBackend
from toolkit.plans.loops.plan import MERGES

THREADS = 256


def generate_combine(step: Combine) -> Launch:
    """Return the launch of a step of a plan.

    Its buffers are the local pieces, the received data if any, and the destination. The
    element count is an argument, so steps of one tree share a kernel.
    """
    if step.dtype not in STORED:
        raise UnsupportedOnBackend(
            "all_reduce", step.dtype, "row-major", "GPUs combine only real numbers"
        )
    w = SourceWriter()
    w(
        f"const i64 i = (i64)blockIdx.x * {THREADS} + threadIdx.x;",
        "if (i >= size) return;",
    )
    result = _Writer(w, step).value(step.tree)
    w(f"target[i] = Narrow<{STORED[step.dtype]}>::of({result.text});")
    source, number = f"const {STORED[step.dtype]}*", "long long"
    item = dtypes.itemsize(step.dtype)
    parameters: list[tuple[str, str, Argument]] = [
        (source, f"own{k}", Buffer(k)) for k, _ in enumerate(step.local_pieces)
    ]
    buffers = len(parameters)
    if step.received is not None:
        parameters.append((source, "received", Buffer(buffers)))
        parameters.append((number, "stride", Scalar(step.stride // item)))
        buffers += 1
    parameters.append((f"{STORED[step.dtype]}*", "target", Buffer(buffers)))
    parameters.append((number, "size", Scalar(step.size)))
    text = kernel_text(parameters, THREADS, w.text)
    kernel = make_kernel(f"tree_{step.op}", text, [kind for kind, _, _ in parameters])
    grid = (-(-step.size // THREADS), 1, 1)
    return Launch(kernel, grid, (THREADS, 1, 1), tuple(p[2] for p in parameters))


class _Writer:
    """Writer of the values of one element."""

    def __init__(self, w: SourceWriter, step: Combine) -> None:
        self.w = w
        self.step = step
        self.s: CUDAScalars = CUDAScalars(w)

    def value(self, tree: Tree | None) -> Value:
        """Return the combination of a tree."""
        dtype, local_count = self.step.dtype, len(self.step.local_pieces)
        if tree is None:
            return Value(literal(IDENTITY_ELEMENTS[self.step.op], dtype), dtype)
        if isinstance(tree, tuple):
            return self.combine(*map(self.value, tree))
        name = (
            f"own{tree}[i]"
            if tree < local_count
            else f"received[{tree - local_count} * stride + i]"
        )
        return self.w.let(dtype, f"widen({name})")

    def combine(self, a: Value, b: Value) -> Value:
        """Return the combination of two values, rounded to the dtype."""
        value: Value = getattr(self.s, MERGES[self.step.op])(a, b)
        dtype = self.step.dtype
        if dtype in ("float16", "bfloat16"):
            # float16 and bfloat16 compute in float32
            value = Value(value.text, "float32")
        elif value.dtype == dtype:
            return value
        return self.s.cast(value, dtype)
