"""GPU programs: steps in order, bound to memory, and captured as one graph.

After two runs on the same memory, the steps are captured as a CUDA graph, which
launches them in one call. Batches alternate between two addresses, so there are two
graphs. Arrays with a different address in every call, for example new results, are
copied to and from staging memory. A run never waits for the device. A program with
collectives is captured from its second run on, on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter_ns
from types import MappingProxyType
from typing import Any, NamedTuple

from toolkit.backends.cupy.binding import Binder, Binding, ResolvedAddress, to_reference
from toolkit.backends.cupy.cuda.launch import Buffer, Launch, Scratch, Table
from toolkit.backends.cupy.device import Device, describe_largest
from toolkit.backends.cupy.memory import SMALL, pack_offsets
from toolkit.backends.cupy.steps import (
    WORKSPACES,
    Dnn,
    Exchange,
    Loop,
    Lowered,
    Product,
    Step,
)
from toolkit.comm.group import Group
from toolkit.definitions.records import record
from toolkit.errors import OutOfDeviceMemory
from toolkit.ir import Spec
from toolkit.plans.operands import StepSpan, align_up

Resolve = Callable[[int, tuple[str, int]], ResolvedAddress]
Copy = tuple[int, int, int]

# The maximum number of addresses per array, each with bound steps: batches alternate
# between two. An array with more addresses is copied to staging memory. Results up to
# this many bytes are staged at once. Persistent arrays such as Variables are staged
# only up to this size, for example metrics.
MAX_ADDRESSES = 2
# The maximum number of cached address sets.
MAX_BINDINGS = 4


class CallTable(list[int]):
    """Addresses of the arrays of a call, and their specs.

    Args:
        specs: of the inputs and outputs, by number.
        retained: the numbers of the arrays that keep their addresses.
        plan: of the memory of the program's intermediate values.
    """

    def __init__(
        self, specs: Sequence[Spec], retained: Collection[int] = (), plan: Any = None
    ) -> None:
        super().__init__([0] * len(specs))
        self.plan = plan
        self.specs: list[Spec] = list(specs)
        self.retained: frozenset[int] = frozenset(retained)


@record
class StepSource:
    """Source of a program part."""

    step: Step

    def text(self) -> str:
        """Return the CUDA of a generated kernel, or the library call as data."""
        return (
            self.step.kernel.source
            if isinstance(self.step, Launch)
            else repr(self.step)
        )


class TimedSection(NamedTuple):
    """Part of a program that is timed separately: see `TimedUnit`."""

    moment: int
    nodes: list[int]
    flops: int
    nbytes: int
    sources: list[StepSource]
    is_shared: bool
    duration: int


def operands_of(step: Step, inputs: int) -> list[tuple[str, int]]:
    """Return every operand that a step reads or writes."""
    if isinstance(step, Loop):
        bases = [p for m in step.moves for p in (m.base, m.first, m.last) if p]
        return [to_reference(step.arena, inputs), *bases]
    if isinstance(step, Launch):
        words: list[Any] = []
        for argument in step.arguments:
            rows = argument.rows if isinstance(argument, Table) else ((argument,),)
            words += [word for row in rows for word in row]
        addresses = [w for w in words if isinstance(w, (Buffer, Scratch))]
        return [to_reference(address, inputs) for address in addresses]
    return [to_reference(address, inputs) for address in step.operands]


class GpuProgram:
    """Program of consecutive lowered nodes.

    Args:
        device: the device that runs it.
        nodes: in execution order.
        joins: the node before which the steps wait for each collective, by index: see
            `find_joins`.
    """

    def __init__(
        self,
        device: Device,
        nodes: Sequence[Lowered],
        joins: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self.device = device
        self.nodes: list[Lowered] = list(nodes)
        self.joins: dict[int, int] = dict(joins)
        # The names of the collectives, by group.
        self.exchanges: dict[Group, list[str]] = {}
        for _, step in self.steps:
            if isinstance(step, Exchange):
                self.exchanges.setdefault(step.group, []).append(step.name)
        # The number of runs with any memory.
        self.runs: int = 0

    @property
    def moments(self) -> dict[int, StepSpan]:
        """Return the moments: only a collective runs in parallel with other nodes."""
        return {
            i: StepSpan(i, i, max(i, self.joins.get(i, 0) - 1))
            for i in range(len(self.nodes))
        }

    @property
    def steps(self) -> Iterator[tuple[int, Step]]:
        """Yield every step with the index of its node, in order."""
        return ((i, s) for i, node in enumerate(self.nodes) for s in node.steps)

    @property
    def timed_sections(self) -> list[TimedSection]:
        """Return the separately timed parts: see `TimedSection`."""
        return [
            TimedSection(
                i,
                [i],
                sum(map(_flops, node.steps)),
                0,
                [StepSource(s) for s in node.steps],
                False,
                moments.last - moments.first,
            )
            for (i, moments), node in zip(self.moments.items(), self.nodes, strict=True)
        ]

    def bind(self, resolve: Resolve, objects: CallTable) -> Runner:
        """Bind the program to memory.

        Args:
            resolve: a function that returns the location of an operand, by the index of
                its node.
            objects: the table in which the caller stores the address of each numbered
                array before a run.
        """
        return Runner(self, resolve, objects)


def _flops(step: Step) -> int:
    if isinstance(step, Product):
        return step.gemm.flops
    if isinstance(step, Dnn):
        return step.signature.flops
    if isinstance(step, Loop):
        return step.iterations * sum(_flops(s) for _, s in step.body.code.steps)
    return 0


class Runner:
    """Program bound to memory; one caller at a time can run it."""

    def __init__(self, program: GpuProgram, resolve: Resolve, objects: CallTable):
        self.program = program
        self.device: Device = program.device
        self.resolve = resolve
        self.objects = objects
        # Staging memory, by the number of an array with a new address in every call.
        self.staged: dict[int, Any] = {}
        # The copies to staging memory before the steps and from it after them: the
        # number of the array, the address of its staging memory, and the bytes.
        self.copies_in: list[Copy] = []
        self.copies_out: list[Copy] = []
        # The other arrays, and the addresses at which each was seen.
        self.unstaged: list[int] = list(range(len(objects)))
        self.addresses: list[set[int]] = [set() for _ in objects]
        self.bindings: dict[tuple[int, ...], Binding] = {}
        self.scratch: Any = None
        self.workspaces: list[tuple[int, None] | tuple[int, int]] = list(WORKSPACES)
        self.used: tuple[set[int], set[int]] = self._used()

    def _used(self) -> tuple[set[int], set[int]]:
        """Return the numbers of a call's arrays that steps read and write."""
        read: set[int] = set()
        written: set[int] = set()
        for i, node in enumerate(self.program.nodes):
            for name in (
                n for step in node.steps for n in operands_of(step, node.inputs)
            ):
                number = self.resolve(i, name)[0]
                if number is not None:
                    (written if name[0] == "out" else read).add(number)
        return read, written

    def run(self) -> None:
        """Launch every step; the device can still compute when this returns."""
        if self.device.broken:
            raise self.device.broken
        with self.device.scope(), self.device.failing():
            self.device.uploads.mark()
            self.device.submit_exchanges(self.program.exchanges)
            binding = self._bound()
            self._copy(self.copies_in, is_inward=True)
            # NCCL requires that a collective is captured on all ranks or on none. The
            # number of runs is equal on all ranks, but the addresses are not.
            program = self.program
            runs = program.runs if program.joins else binding.runs
            if binding.replay is None and runs and self.device.captures:
                binding.replay = self.device.capture(partial(self._start, binding))
            if binding.replay is None:
                self._start(binding)
            else:
                self.device.last = self._describe
                binding.replay()
            binding.runs += 1
            program.runs += 1
            self._copy(self.copies_out, is_inward=False)
            self.device.watch(binding.words, binding.problems)

    def timed(self) -> list[tuple[int, int, int, int]]:
        """Run and time each node; return (node, start, end, 0) for each."""
        rows = []
        with self.device.scope(), self.device.failing():
            binding = self._bound()
            self._copy(self.copies_in, is_inward=True)
            for i, call in binding.calls:
                self.device.last = partial(self._describe, i)
                start = perf_counter_ns()
                call()
                self.device.synchronize()
                rows.append((i, start, perf_counter_ns(), 0))
            self._copy(self.copies_out, is_inward=False)
        return rows

    def _start(self, binding: Binding) -> None:
        for i, call in binding.calls:
            self.device.last = partial(self._describe, i)
            call()

    def _describe(self, which: int | None = None) -> str:
        """Return the name of a node's operation, or of the whole program."""
        names = [node.name for node in self.program.nodes]
        if which is not None:
            return names[which]
        return f"{len(names)} captured nodes, from {names[0]} to {names[-1]}"

    def _copy(self, copies: Sequence[Copy], is_inward: bool) -> None:
        """Copy staged arrays in or out; contiguous ones use one copy."""
        run_start: tuple[int, int, int] | None = None
        for number, inner, nbytes in copies:
            outer = self.objects[number]
            if run_start is not None and _is_contiguous(
                run_start, (outer, inner, nbytes)
            ):
                run_start = run_start[0], run_start[1], outer - run_start[0] + nbytes
            else:
                self._copied(run_start, is_inward)
                run_start = outer, inner, nbytes
        self._copied(run_start, is_inward)

    def _copied(self, piece: tuple[int, int, int] | None, is_inward: bool) -> None:
        if piece is not None:
            outer, inner, nbytes = piece
            pair = (inner, outer) if is_inward else (outer, inner)
            self.device.copy(*pair, nbytes)

    def _bound(self) -> Binding:
        """Return the steps bound to the addresses of this call."""
        binding = self.bindings.get(self._key())
        if binding is None:
            self._stage()
            if len(self.bindings) >= MAX_BINDINGS:
                del self.bindings[next(iter(self.bindings))]
            binding = self.bindings[self._key()] = self._bind()
        return binding

    def _key(self) -> tuple[int, ...]:
        return tuple(map(self.objects.__getitem__, self.unstaged))

    def _stage(self) -> None:
        """Allocate staging memory for arrays with too many addresses."""
        worn = []
        for i in self.unstaged:
            addresses, spec = self.addresses[i], self.objects.specs[i]
            addresses.add(self.objects[i])
            is_small = spec.nbytes <= SMALL
            limit = 1 if is_small and i in self.used[1] else MAX_ADDRESSES
            if i in self.objects.retained:
                limit = MAX_ADDRESSES if is_small else len(addresses)
            if len(addresses) > limit:
                worn.append(i)
        if worn:
            specs = [self.objects.specs[i] for i in worn]
            offsets, end = pack_offsets([spec.nbytes for spec in specs])
            block = self.device.allocate(
                (end,), "uint8", "persistent inputs and outputs"
            )
            for i, offset, spec in zip(worn, offsets, specs, strict=True):
                view = self.device.view(block, offset, spec.shape, spec.dtype)
                self.staged[i] = view
            copies = [
                (i, self.device.address(y), self.objects.specs[i].nbytes)
                for i, y in self.staged.items()
            ]
            self.copies_in, self.copies_out = (
                [copy for copy in copies if copy[0] in used] for used in self.used
            )
            self.unstaged = [i for i in self.unstaged if i not in self.staged]
            self.bindings.clear()

    def _bind(self) -> Binding:
        """Resolve all addresses; if memory is short, retry with less scratch memory."""
        while self.workspaces:
            try:
                return Binder(self, *self.workspaces[0]).bind()
            except MemoryError:
                self.scratch = None
                del self.workspaces[0]  # nor for later addresses
                self.device.reclaim()
        raise OutOfDeviceMemory(
            f"{self.device.name}: not enough memory for the scratch memory of the "
            f"libraries, even with the minimum; {self.device.memory()}"
            f"{describe_largest(self.objects.plan)}"
        )

    def address(self, where: ResolvedAddress) -> int:
        """Return the address of a location."""
        number, offset = where
        if number is None:
            return offset
        staged = self.staged.get(number)
        base = self.objects[number] if staged is None else self.device.address(staged)
        return base + offset


def _is_contiguous(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    """Return whether a copy is contiguous with the previous one on both sides."""
    distance = other[0] - one[0]
    return distance == other[1] - one[1] and distance == align_up(one[2])
