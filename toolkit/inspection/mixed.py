"""Inspection of a compiled function with partitions on several devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

from toolkit.compiler.execute import Executable
from toolkit.compiler.mixed import MixedProgram
from toolkit.compiler.program import Program
from toolkit.core.variable import Variable
from toolkit.definitions.records import record
from toolkit.errors import OutOfRangeError, UnsupportedError
from toolkit.inspection.inspection import Inspection, Kernel, outputs_for, sample_inputs
from toolkit.ir import Value

if TYPE_CHECKING:
    from toolkit.pictures.picture import Picture

Arrays = dict[Value, Any]


def inspect_program(
    name: str, program: Program | MixedProgram, variables: Sequence[Variable]
) -> Inspection:
    """Return the inspection of a program, or of each partition on several devices.

    `inspect` of a model or of a `toolkit.function` calls it.

    Args:
        name: the name of the function.
        program: its program.
        variables: the last inputs of the program.

    Returns:
        The inspection.

    Raises:
        UnsupportedError: the step is a pipeline.

    Example:
        >>> import toolkit
        >>> from toolkit import ops
        >>> x = ops.ones((4, 4))
        >>> plan = toolkit.function(lambda x: ops.exp(x) @ x).inspect(x)
        >>> again = toolkit.inspection.inspect_program("again", plan.program, ())
        >>> again.peak_bytes == plan.peak_bytes
        True
    """
    if isinstance(program, MixedProgram):
        return MixedInspection(name, program, variables)
    if not isinstance(program, Program):
        raise UnsupportedError(
            f"inspect: {name} is computed in the stages of a pipeline, and each "
            "stage has separate programs"
        )
    return Inspection(name, program, variables)


@record
class Transfer:
    """A value that is copied from one device to another.

    Attributes:
        label: the value: its name or its primitive, and its shape and dtype.
        nbytes: bytes copied in each call.
        source, target: the devices.
    """

    label: str
    nbytes: int
    source: str
    target: str


class PartitionInspection(Inspection):
    """A partition: the kernels that run on one device before values pass to another.

    Args:
        arrays: returns the arrays of the values of the whole program.
    """

    def __init__(
        self, name: str, program: Program, arrays: Callable[[], Arrays]
    ) -> None:
        super().__init__(name, program)
        self._values = arrays

    @property
    def device(self) -> str:
        """Return the device, or several logical devices of one memory."""
        default = self.program.backend.device_name
        devices = {node.device or default for node in self.program.source.nodes}
        return ", ".join(sorted(devices))

    @cached_property
    def _arrays(self) -> tuple[list[Any], list[Any]]:
        values = self._values()
        inputs = [values[x] for x in self.program.source.inputs]
        return inputs, outputs_for(self.program)


class MixedInspection(Inspection):
    """An inspection for each partition, with the transfers between them.

    Attributes:
        partitions: in execution order.
        transfers: the values that are copied between devices.
    """

    def __init__(
        self, name: str, program: MixedProgram, variables: Sequence[Variable] = ()
    ) -> None:
        self.name = name
        self.program: Any = program
        self._variables = variables
        self.partitions: list[PartitionInspection] = [
            PartitionInspection(
                f"{name}, part {i}", partition.program, lambda: self._values
            )
            for i, partition in enumerate(program.partitions)
        ]
        self.transfers: list[Transfer] = list(self._transfers())

    @property
    def kernels(self) -> list[Kernel]:  # type: ignore[override]
        """Return the kernels of all partitions, with consecutive moments."""
        result, start = [], 0
        for partition in self.partitions:
            moments = [m for kernel in partition.kernels for m in kernel.moments]
            for kernel in partition.kernels:
                later = tuple(start + moment for moment in kernel.moments)
                result.append(replace(kernel, moments=later))
            start += max(moments, default=-1) + 1
        return result

    @property
    def passes(self) -> list[tuple[str, Any]]:
        """Return pairs of partition and pass, and the graph after it, in order."""
        return [
            (f"part {i}: {name}", graph)
            for i, partition in enumerate(self.partitions)
            for name, graph in partition.passes
        ]

    @property
    def live_bytes(self) -> int:
        """Return the largest number of live bytes in any partition."""
        return max((partition.live_bytes for partition in self.partitions), default=0)

    def source(self, kernel: int) -> str:
        """Return the generated code of a kernel, by its number among all partitions."""
        for partition in self.partitions:
            if kernel < len(partition.kernels):
                return partition.source(kernel)
            kernel -= len(partition.kernels)
        raise OutOfRangeError("source: no kernel has this number")

    def measure(self, repeats: int = 5) -> list[Kernel]:
        """Measure as for one device, by partition, without the transfers."""
        for partition in self.partitions:
            partition.measure(repeats)
        return sorted(self.kernels, key=lambda k: -(k.seconds or 0.0))

    def plot(
        self,
        what: str = "arena",
        to_file: str | PathLike[str] | None = None,
        expand: bool | None = None,
    ) -> Picture:
        """Raise an error: each partition has a separate arena and graph.

        Raises:
            UnsupportedError: always; `partitions[i].plot()` draws one.
        """
        raise UnsupportedError(
            f"Inspection.plot: {self.name} has {len(self.partitions)} parts on "
            "several devices, each with a separate arena and graph. Plot one part by "
            f"partitions[i].plot({what!r})"
        )

    def _rows(self) -> Iterator[dict[str, Any]]:
        for number, partition in enumerate(self.partitions):
            yield from ({**row, "pid": number} for row in partition._rows())

    @cached_property
    def _values(self) -> Arrays:
        """Return every value between partitions, after a run on random data."""
        graph = self.program.graph
        inputs = sample_inputs(graph, self.program.backend.memory, self._variables)
        values: Arrays = dict(zip(graph.inputs, inputs, strict=True))
        for partition in self.program.partitions:
            outputs = Executable(partition.program)(
                [values[x] for x in partition.inputs]
            )
            values.update(zip(partition.outputs, outputs, strict=True))
        return values

    def _transfers(self) -> Iterator[Transfer]:
        """Yield transfers in the order of the partitions, then transfers of results."""
        graph, home = self.program.graph, self.program.backend
        inputs = enumerate(graph.inputs)
        producers = {x: (home, graph.names.get(x, f"input {i}")) for i, x in inputs}
        for partition in self.program.partitions:
            for node in partition.program.source.nodes:
                for y in node.outputs:
                    producers[y] = partition.program.backend, node.op.name
        readers = [
            (partition.program.backend, partition.inputs)
            for partition in self.program.partitions
        ]
        for backend, values in [*readers, (home, graph.outputs)]:
            for x in values:
                owner, name = producers.get(x, (backend, ""))
                if owner is not backend:
                    devices = owner.device_name, backend.device_name
                    yield Transfer(f"{name}: {x.spec}", x.spec.nbytes, *devices)

    def __str__(self) -> str:
        devices = sorted({partition.device for partition in self.partitions})
        rows = [f"function {self.name} on {', '.join(devices)}", "\nparts:"]
        for i, partition in enumerate(self.partitions):
            names = ", ".join(kernel.name for kernel in partition.kernels)
            rows.append(
                f"  {i:3}  on {partition.device}: {names or 'nothing to compute'}"
            )
        rows.append("\ntransfers:")
        for t in self.transfers:
            rows.append(f"  {t.nbytes:10,} bytes  {t.source} to {t.target}  {t.label}")
        rows += [f"\n{partition}" for partition in self.partitions]
        rows.append(f"\npeak of all arenas {self.peak_bytes:,} bytes")
        return "\n".join(rows)

    __repr__ = __str__
