"""Operations of each kind, as another package defines them with public names only."""

from __future__ import annotations

import math
from math import prod

from toolkit.backends import registry
from toolkit.backends.cupy.cuda.generators import GENERATORS
from toolkit.backends.cupy.cuda.launch import Buffer
from toolkit.backends.cupy.cuda.threads import Threads, offset_text
from toolkit.backends.numpy.jit.calls import Call, Lowered, partition
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.kernel import Kernel
from toolkit.backends.numpy.jit.lowering import LOWERINGS
from toolkit.backends.numpy.jit.math.exponential import exp
from toolkit.core.convert import to_float
from toolkit.core.tensor import bind
from toolkit.ir import PRIMITIVES, Kind, primitive
from toolkit.ir.scalars import SCALARS, scalar
from toolkit.ops.elementwise import elementwise
from toolkit.ops.symbolic import operation

# --- composites -----------------------------------------------------------------------

squash_p = elementwise(
    "squash",
    lambda s, x: s.divide(x, s.sqrt(s.add(s.const(1.0, x), s.multiply(x, x)))),
    lambda g, y, x: g * (1 - y * y) / (1 + x * x) ** 0.5,
)


@operation
def squash(x):
    """Compute x / sqrt(1 + x ** 2), elementwise."""
    return bind(squash_p, to_float(x))


# --- a new elementwise operation ------------------------------------------------------

scalar(
    "two_to", cost=13, array="exp2", cuda="exp2", llvm=lambda x: exp(x * math.log(2))
)
two_to_p = elementwise(
    "two_to", lambda s, x: s.two_to(x), lambda g, y, x: g * y * math.log(2)
)


@operation
def two_to(x):
    """Compute 2 ** x, elementwise."""
    return bind(two_to_p, to_float(x))


# --- custom kernels -------------------------------------------------------------------

mirror_p = primitive(
    "mirror",
    Kind.MOVE,
    lambda x: x,
    vjp=lambda g, y, x: bind(mirror_p, g),
    array=lambda xp, x: xp.flip(x, -1),
)


@operation
def mirror(x):
    """Reverse the elements of each row, along the last axis."""
    return bind(mirror_p, to_float(x))


def emit_mirror(dtype: str) -> Kernel:
    """Compute out[row, n] = x[row, columns - 1 - n]."""
    b = Kernel(1)
    x, out, columns = b.address(0), b.address(1), b.entry(2)
    with b.loop(b.low, b.high) as row:
        with b.loop(0, columns) as n:
            last = row * columns + columns - 1
            value = b.load(x, last - n, dtype, None)
            b.store(value, out, row * columns + n, None)
    return b


def lower_mirror(node, inputs, outputs):
    """Return the call that reverses rows, or None if the rows are not contiguous."""
    spec = inputs[0].spec
    if not inputs[0].is_contiguous or spec.dtype not in ("float32", "float64"):
        return None
    rows, operands = prod(spec.shape[:-1]), (("in", 0), ("out", 0))
    code, numbers = Code(emit_mirror, spec.dtype), spec.shape[-1:]
    call = Call(code, operands, numbers, rows, partition(rows), frozenset(operands))
    return Lowered((call,))


def generate_mirror(node, inputs, outputs, aligned):
    """Return a launch with one thread for each element."""
    (x,), (y,) = inputs, outputs
    if not y.spec.size:
        return []
    k = Threads("mirror", y.spec.shape, x, y)
    k.source("x", x.spec.dtype, Buffer(0))
    k.target("y", y.spec.dtype, Buffer(1))
    *rows, column = k.indices
    mirrored = offset_text(x, [*rows, f"({y.spec.shape[-1] - 1} - {column})"])
    k(f"y[{offset_text(y, k.indices)}] = x[{mirrored}];")
    return [k.launch()]


LOWERINGS["mirror"] = lower_mirror
GENERATORS["mirror"] = generate_mirror

FUNCTIONS = {"squash": squash, "two_to": two_to, "mirror": mirror}


def forget():
    """Undo the declarations, because other tests count the registered operations."""
    kernels = (backend.kernels for backend in registry._backends.values())
    for table in (PRIMITIVES, SCALARS, LOWERINGS, GENERATORS, *kernels):
        for name in FUNCTIONS:
            table.pop(name, None)
