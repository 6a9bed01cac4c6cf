"""Eager kernels: the steps of one node, on the arrays of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit import dtypes
from toolkit.backends.cupy.availability import EXTRAS
from toolkit.backends.cupy.binding import ResolvedAddress
from toolkit.backends.cupy.generator import CudaGenerator
from toolkit.backends.cupy.program import CallTable, GpuProgram, Runner
from toolkit.backends.kernels import Kernel
from toolkit.errors import BackendUnavailable, UnsupportedOnBackend
from toolkit.ir import PRIMITIVES, Node, Spec, Value
from toolkit.plans.operands import Operand, contiguous

Array = Any
# Number of call signatures that one primitive caches.
MAX_PROGRAMS = 256
ALIGNED = 16


class EagerKernel:
    """Primitive that lowers once per call signature.

    Args:
        generator: the generator of the steps.
        name: of the primitive.
        other: the array module's kernel for calls without steps, or None.
    """

    def __init__(
        self, generator: CudaGenerator, name: str, other: Kernel | None
    ) -> None:
        self.generator = generator
        self.device = generator.device
        self.name = name
        self.fallback = other
        self.programs: dict[Any, tuple[GpuProgram | None, tuple[Spec, ...]]] = {}

    def __call__(
        self, *arrays: Array, out: Any = None, work: Any = None, **attrs: Any
    ) -> Any:
        device = self.device
        inputs = [device.place(x) for x in arrays]
        operands = [_operand(x) for x in inputs]
        is_aligned = all(device.address(x) % ALIGNED == 0 for x in inputs)
        program, results = self._program(operands, is_aligned, attrs)
        if program is None:
            return self._call_fallback(inputs, out, attrs)
        destinations = out if isinstance(out, tuple) else (out,) * len(results)
        results_in = [
            y
            if y is not None and y.flags.c_contiguous
            else device.allocate(spec.shape, spec.dtype, "an array")
            for y, spec in zip(destinations, results, strict=True)
        ]
        with device.scope():
            self._run(program, [*inputs, *results_in], len(inputs))
            for y, result in zip(destinations, results_in, strict=True):
                if y is not None and y is not result:
                    y[...] = result
        outs = tuple(results_in) if out is None else destinations
        return outs if len(results) > 1 else outs[0]

    def precompile(self, operands: Sequence[Operand], attrs: dict[str, Any]) -> None:
        """Start to compile the kernels of a call on such operands."""
        program, _ = self._program(list(operands), True, attrs)
        for node in program.nodes if program else ():
            self.device.precompile(node.steps)

    def _program(
        self, operands: list[Operand], is_aligned: bool, attrs: dict[str, Any]
    ) -> tuple[GpuProgram | None, tuple[Spec, ...]]:
        numerics = self.generator.numerics
        key = tuple(operands), is_aligned, numerics, tuple(attrs.items())
        if key not in self.programs:
            if len(self.programs) >= MAX_PROGRAMS:
                del self.programs[next(iter(self.programs))]
            primitive = PRIMITIVES[self.name]
            specs = primitive.spec(*(x.spec for x in operands), **attrs)
            results = specs if isinstance(specs, tuple) else (specs,)
            values = [Value(x.spec) for x in operands]
            node = Node(primitive, values, attrs, [Value(y) for y in results])
            outputs = [contiguous(y) for y in results]
            lowered = self.generator.lower(node, operands, outputs, is_aligned)
            program = GpuProgram(self.device, [lowered]) if lowered else None
            self.programs[key] = program, results
        return self.programs[key]

    def _run(self, program: GpuProgram, arrays: list[Array], inputs: int) -> None:
        device = program.device
        (node,) = program.nodes
        scratch = (
            device.allocate((node.work,), "uint8", "an array") if node.work else None
        )

        def resolve(index: int, operand: tuple[str, int]) -> ResolvedAddress:
            kind, number = operand
            if kind == "work":
                return None, device.address(scratch) + number
            return number if kind == "in" else inputs + number, 0

        objects = CallTable([_operand(x).spec for x in arrays])
        objects[:] = [device.address(x) for x in arrays]
        Runner(program, resolve, objects).run()

    def _call_fallback(self, inputs: list[Array], out: Any, attrs: Any) -> Any:
        if self.fallback is None:
            raise UnsupportedOnBackend(
                *(self.name, ", ".join(str(x.dtype) for x in inputs), "row-major"),
                "neither a generator nor the array module supports it",
            )
        device = self.device
        device.last = lambda: self.name
        try:
            with device.scope(), device.failing(), device.raising():
                return self.fallback(*inputs, out=out, **attrs)
        except ImportError as error:  # CuPy loads a library at its first use
            raise BackendUnavailable(f"{self.name}: {error}: {EXTRAS}") from error


def _operand(array: Array) -> Operand:
    spec = Spec(array.shape, dtypes.name_of(array.dtype))
    return Operand(spec, tuple(array.strides))
