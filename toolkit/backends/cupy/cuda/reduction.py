"""Reductions within a thread, across the threads of a row, and across a block."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.backends.cupy.cuda.body import kernel_text, to_storage
from toolkit.backends.cupy.cuda.launch import Argument, Launch, make_kernel
from toolkit.backends.cupy.cuda.prelude import COMPUTED, STORED
from toolkit.backends.cupy.cuda.scalars import CUDAScalars, SourceWriter, Value, literal
from toolkit.plans.loops.plan import MERGES, identity

_NO_INDEX = 2**31 - 1


class Reducer:
    """Code generator for an associative reduction of elements.

    A state is one variable, or two for an argmax or argmin: the best element and its
    position.
    """

    def __init__(self, op: str, dtype: str, writer: SourceWriter) -> None:
        self.op = op
        self.dtype = dtype
        self.w = writer
        self.s: CUDAScalars = CUDAScalars(writer)
        self.is_argument: bool = op.startswith("arg")
        self.dtypes = (dtype, "int32") if self.is_argument else (dtype,)

    @property
    def identity(self) -> list[Value]:
        """Return the identity of the operation."""
        worst = Value(literal(identity(self.op, self.dtype), self.dtype), self.dtype)
        return [worst, Value(str(_NO_INDEX), "int32")][: len(self.dtypes)]

    def declare(self) -> list[Value]:
        """Declare variables with the identity."""
        state = [Value(self.w.name(), dtype) for dtype in self.dtypes]
        for x, first in zip(state, self.identity, strict=True):
            self.w(f"{COMPUTED[x.dtype]} {x.text} = {first.text};")
        return state

    def merge(self, a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
        """Return the combination of two states."""
        if not self.is_argument:
            combined: Value = getattr(self.s, MERGES[self.op])(a[0], b[0])
            return [combined]
        (x, i), (y, k) = a, b
        sign = "<" if self.op == "argmax" else ">"
        nan = not_nan = ""
        if x.is_float:
            nan = f"{y.text} != {y.text} && {x.text} == {x.text} || "
            not_nan = f" || {x.text} != {x.text} && {y.text} != {y.text}"
        better = self.w.let(
            "bool",
            f"{nan}{x.text} {sign} {y.text} || "
            f"({x.text} == {y.text}{not_nan}) && {k.text} < {i.text}",
        )
        return [self.s.select(better, y, x), self.s.select(better, k, i)]

    def add(self, state: Sequence[Value], other: Sequence[Value]) -> None:
        """Merge another state into variables."""
        for x, merged in zip(state, self.merge(state, other), strict=True):
            self.w(f"{x.text} = {merged.text};")

    def reduce_warp(self, state: Sequence[Value], width: int) -> None:
        """Reduce over `width` adjacent threads of a warp; all get the result."""
        step = width // 2
        while step:
            received = [
                self.w.let(x.dtype, f"exchange({x.text}, {step})") for x in state
            ]
            self.add(state, received)
            step //= 2

    def reduce_warps(self, state: Sequence[Value], warps: int, groups: int) -> None:
        """Reduce over the warps of a row, in order; all threads get the result."""
        w, partials = self.w, [self.w.name() for _ in state]
        for x, name in zip(state, partials, strict=True):
            w(f"__shared__ {COMPUTED[x.dtype]} {name}[{groups}][{warps}];")
        for x, name in zip(state, partials, strict=True):
            w(f"if (tx % 32 == 0) {name}[ty][tx / 32] = {x.text};")
        w("__syncthreads();")
        for x, first in zip(state, self.identity, strict=True):
            w(f"{x.text} = {first.text};")
        with w.block(f"for (int k = 0; k < {warps}; ++k)"):
            pairs = zip(state, partials, strict=True)
            self.add(state, [Value(f"{name}[ty][k]", x.dtype) for x, name in pairs])
        w("__syncthreads();")

    def result(self, state: Sequence[Value]) -> Value:
        """Return the result value of a state."""
        return state[-1]

    def reduce_block(self, x: Value, stride: int, threads: int) -> Value:
        """Combine the values of threads whose indices differ by multiples of `apart`.

        The first `apart` threads get the results. `shared` is memory for all threads.
        """
        w, shared = self.w, self.w.name()
        w(f"{x.ctype}* {shared} = ({x.ctype}*)shared;")
        w(f"{shared}[thread] = {x.text};")
        w("__syncthreads();")
        head = f"for (int d = {threads // 2}; d >= {stride}; d /= 2)"
        with w.block(head):
            with w.block("if (thread < d)"):
                pair = [
                    Value(f"{shared}[{i}]", x.dtype) for i in ("thread", "thread + d")
                ]
                w(f"{shared}[thread] = {self.merge(pair[:1], pair[1:])[0].text};")
            w("__syncthreads();")
        result = w.let(x.dtype, f"{shared}[thread]")
        w("__syncthreads();")
        return result


def combine_partials(
    op: str, dtype: str, count: int, columns: int, partials: Argument, out: Argument
) -> Launch:
    """Return the launch of out[c] = the reduction of parts[k, c] over k.

    Only the shape determines the order.
    """
    w = SourceWriter()
    reducer = Reducer(op, dtype, w)
    tx = min(32, power_of_two(columns))
    # There are few blocks, so use enough threads that each has only a few parts.
    ty = min(1024 // tx, power_of_two(count))
    computed = COMPUTED[dtype]
    w(f"const int thread = threadIdx.y * {tx} + threadIdx.x;")
    w(f"const i64 column = (i64)blockIdx.x * {tx} + threadIdx.x;")
    w(f"__shared__ u64 shared[{tx * ty}];")
    state = reducer.declare()
    with w.block(f"if (column < {columns})"):
        head = f"for (int k = threadIdx.y; k < {count}; k += {ty})"
        with w.block("#pragma unroll 4", head):
            reducer.add(state, [w.let(dtype, f"parts[(i64)k * {columns} + column]")])
    total = reducer.reduce_block(state[0], tx, tx * ty)
    with w.block(f"if (threadIdx.y == 0 && column < {columns})"):
        w(f"out[column] = {to_storage(total, dtype)};")
    parameters = [(f"const {computed}*", "parts", partials)]
    parameters.append((f"{STORED[dtype]}*", "out", out))
    text = kernel_text(parameters, tx * ty, w.text)
    kernel = make_kernel(f"combine_{op}", text, [p[0] for p in parameters])
    return Launch(kernel, (-(-columns // tx), 1, 1), (tx, ty, 1), (partials, out))


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is not less than n."""
    return 1 << max(0, n - 1).bit_length()
