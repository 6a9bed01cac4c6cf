"""Programs on a GPU: steps in order, bound to memory, and captured as one graph.

After two runs on the same memory the steps are captured as a CUDA graph, which starts
them all by one call. What lies elsewhere in every call, a batch say, is copied into
memory that stays; nothing in a run waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import Any

from toolkit.backends.base import Move
from toolkit.backends.cupy.cuda.launch import (
    Buffer,
    Launch,
    Problem,
    Scalar,
    Scratch,
    Table,
)
from toolkit.backends.cupy.device import Device, OutOfMemory
from toolkit.backends.cupy.joining import Call, Start, join
from toolkit.backends.cupy.steps import Dnn, Loop, Lowered, Place, Product, Step
from toolkit.errors import OutOfDeviceMemory
from toolkit.ir import Spec

# (None, an address) or (the number of an array of the call, an offset).
Where = tuple[int | None, int]
Resolve = Callable[[int, tuple[str, int]], Where]

# Runs on the same memory before the steps are captured.
WARM_UP = 1
# Arrays that stay from call to call, as Variables do, are copied too if they are no
# larger than this and were elsewhere so often, as those of metrics are.
SMALL = 64 << 10
MOST_MOVES = 2
# Bytes that a product may use as scratch memory, and a graph of cuDNN (None: as many as
# it likes); after running out of memory, those of the second row.
WORKSPACES = ((32 << 20, None), (1 << 20, 64 << 20))


class CallTable(list[int]):
    """The addresses of the arrays of a call, and their specs.

    Args:
        specs: of the inputs and outputs, by number.
        kept: the numbers of those that should stay where they are.
    """

    def __init__(self, specs: Sequence[Spec], kept: Collection[int] = ()) -> None:
        super().__init__([0] * len(specs))
        self.specs = list(specs)
        self.kept = frozenset(kept)


@dataclass(frozen=True)
class Text:
    """What a part was made from."""

    step: Step

    def text(self) -> str:
        """CUDA of a generated kernel; else the call of a library as data."""
        return (
            self.step.kernel.source
            if isinstance(self.step, Launch)
            else repr(self.step)
        )


def operand(place: Place, inputs: int) -> tuple[str, int]:
    """A place as the compiler names it."""
    if isinstance(place, Scratch):
        return "work", place.offset
    if place.index < inputs:
        return "in", place.index
    return "out", place.index - inputs


def names_of(step: Step, inputs: int) -> list[tuple[str, int]]:
    """Every operand that a step reads or writes."""
    if isinstance(step, Loop):
        found = [p for m in step.moves for p in (m.base, m.first, m.last) if p]
        return [operand(step.arena, inputs), *found]
    if isinstance(step, Launch):
        words: list[Any] = []
        for argument in step.arguments:
            rows = argument.rows if isinstance(argument, Table) else ((argument,),)
            words += [word for row in rows for word in row]
        places = [w for w in words if isinstance(w, (Buffer, Scratch))]
        return [operand(place, inputs) for place in places]
    return [operand(place, inputs) for place in step.operands]


class GpuProgram:
    """Consecutive lowered nodes.

    Args:
        device: where it runs.
        nodes: in the order in which they run.
    """

    def __init__(self, device: Device, nodes: Sequence[Lowered]) -> None:
        self.device = device
        self.nodes = list(nodes)

    @property
    def moments(self) -> dict[int, tuple[int, int]]:
        """One node runs after the other."""
        return {i: (i, i) for i in range(len(self.nodes))}

    @property
    def steps(self) -> Iterator[tuple[int, Step]]:
        """Every step with the index of its node, in order."""
        return ((i, s) for i, node in enumerate(self.nodes) for s in node.steps)

    @property
    def parts(self) -> list[tuple[int, list[int], int, int, list[Text]]]:
        """What is timed by itself: its moment, node, flops, bytes, and its steps."""
        return [
            (i, [i], sum(map(_flops, node.steps)), 0, [Text(s) for s in node.steps])
            for i, node in enumerate(self.nodes)
        ]

    def bind(self, resolve: Resolve, objects: CallTable) -> Runner:
        """Put the program on memory.

        Args:
            resolve: the place of an operand, by the index of its node.
            objects: in which the caller puts the address of each numbered array before
                a run.
        """
        return Runner(self, resolve, objects)


def _flops(step: Step) -> int:
    if isinstance(step, Product):
        return step.gemm.flops
    if isinstance(step, Dnn):
        return step.signature.flops
    if isinstance(step, Loop):
        return step.turns * sum(_flops(s) for _, s in step.body.native[1].steps)
    return 0


@dataclass
class Binding:
    """The steps on one set of addresses.

    Attributes:
        calls: one function for each step, by the index of its node.
        kept: memory that only addresses point to.
        problems: what to say of a bad index, three words each in `words`.
        runs: how often it ran; replay: starts the captured graph, once there is one.
    """

    calls: list[tuple[int, Callable[[], None]]]
    kept: list[Any]
    problems: list[str]
    words: Any = None
    runs: int = 0
    replay: Callable[[], None] | None = None


class Runner:
    """A program bound to memory; one caller at a time may run it."""

    def __init__(self, program: GpuProgram, resolve: Resolve, objects: CallTable):
        self.program = program
        self.device = program.device
        self.resolve = resolve
        self.objects = objects
        self.moves = [0] * len(objects)
        self.last: list[int] = []
        # Memory that stays, by the number of an array that is elsewhere in every call.
        self.staged: dict[int, Any] = {}
        self.binding: Binding | None = None
        self.used = self._used()

    def _used(self) -> tuple[set[int], set[int]]:
        """The numbers of the arrays of a call that steps read, and write."""
        read: set[int] = set()
        written: set[int] = set()
        for i, node in enumerate(self.program.nodes):
            for name in (n for step in node.steps for n in names_of(step, node.inputs)):
                number = self.resolve(i, name)[0]
                if number is not None:
                    (written if name[0] == "out" else read).add(number)
        return read, written

    def run(self) -> None:
        """Start every step; the device may still compute when this returns."""
        with self.device.scope():
            self._check()
            binding = self._bound()
            self._copy(binding, self.used[0], inward=True)
            if binding.replay is not None:
                binding.replay()
            elif binding.runs >= WARM_UP and self.device.captures:
                binding.replay = self.device.capture(partial(_start, binding))
                binding.replay()
            else:
                _start(binding)
            binding.runs += 1
            self._copy(binding, self.used[1], inward=False)
            self.device.watch(binding.words, binding.problems)

    def timed(self) -> list[tuple[int, int, int, int]]:
        """Run; (node, start, end, 0) of each node, waiting for each."""
        rows = []
        with self.device.scope():
            binding = self._bound()
            self._copy(binding, self.used[0], inward=True)
            for i, call in binding.calls:
                start = perf_counter_ns()
                call()
                self.device.synchronize()
                rows.append((i, start, perf_counter_ns(), 0))
            self._copy(binding, self.used[1], inward=False)
        return rows

    def _check(self) -> None:
        if self.device.broken:
            raise self.device.broken

    def _copy(self, binding: Binding, numbers: set[int], inward: bool) -> None:
        for number, array in self.staged.items():
            if number in numbers:
                pair = self.device.address(array), self.objects[number]
                target, source = pair if inward else pair[::-1]
                self.device.copy(target, source, self.objects.specs[number].nbytes)

    def _bound(self) -> Binding:
        """The steps on the addresses of this call."""
        moved = [
            i
            for i, (new, old) in enumerate(zip(self.objects, self.last, strict=False))
            if new != old and i not in self.staged
        ]
        if self.binding is None or moved:
            for i in moved:
                self.moves[i] += 1
                spec = self.objects.specs[i]
                is_worn = self.moves[i] >= MOST_MOVES and spec.nbytes <= SMALL
                if is_worn or i not in self.objects.kept:
                    self.staged[i] = self.device.empty(spec.shape, spec.dtype)
            self.binding = self._bind()
        self.last = list(self.objects)
        return self.binding

    def _bind(self) -> Binding:
        """Resolve all addresses; if memory runs out, once more with less scratch."""
        self.binding = None
        for limits in WORKSPACES:
            try:
                return _Binder(self, *limits).bind()
            except OutOfMemory:
                self.device.trim()
        raise OutOfDeviceMemory(
            f"{self.device.name}: no memory for the scratch space of a program; "
            f"{self.device.memory()}"
        )

    def address(self, where: Where) -> int:
        """The address of a place."""
        number, offset = where
        if number is None:
            return offset
        staged = self.staged.get(number)
        base = self.objects[number] if staged is None else self.device.address(staged)
        return base + offset


def _start(binding: Binding) -> None:
    for _, call in binding.calls:
        call()


class _Binder:
    """Turns steps into calls on addresses."""

    def __init__(self, runner: Runner, limit: int, dnn_limit: int | None) -> None:
        self.runner = runner
        self.device = runner.device
        self.limit, self.dnn_limit = limit, dnn_limit
        self.binding = Binding([], [], [])
        self.scratch: int = 0
        self.words: Any = None

    def bind(self) -> Binding:
        """All steps of the program."""
        program = self.runner.program
        plain = list(_plain(program))
        kernels = list({s.kernel: 0 for _, s in plain if isinstance(s, Launch)})
        self.functions = dict(zip(kernels, self.device.load(kernels), strict=True))
        needed = max((self._workspace(step) for _, step in plain), default=0)
        if needed:
            scratch = self.device.empty((needed,), "uint8")
            self.binding.kept.append(scratch)
            self.scratch = self.device.address(scratch)
        count = sum(
            times * sum(isinstance(a, Problem) for a in step.arguments)
            for times, step in plain
            if isinstance(step, Launch)
        )
        if count:
            self.words = self.device.upload([0] * (3 * count))
            self.binding.words = self.words
        calls: list[Call] = []
        for i, node in enumerate(program.nodes):
            resolve = partial(self.runner.resolve, i)
            for step in node.steps:
                for call in self._calls(
                    step, node.inputs, resolve, self.runner.address
                ):
                    calls.append((i, call))
        self.binding.calls = list(join(calls, self.device, self.binding.kept))
        return self.binding

    def _workspace(self, step: Step) -> int:
        if isinstance(step, Product):
            return self.limit
        if isinstance(step, Dnn):
            return int(self.device.dnn(step.signature, self.dnn_limit).workspace)
        return 0

    def _calls(
        self,
        step: Step,
        inputs: int,
        resolve: Callable[[tuple[str, int]], Where],
        address: Callable[[Where], int],
    ) -> Iterator[Callable[[], None]]:
        """The calls of a step."""

        def at(place: Place) -> int:
            return address(resolve(operand(place, inputs)))

        if isinstance(step, Launch):
            arguments = [self._argument(a, at, step) for a in step.arguments]
            function, shape = self.functions[step.kernel], (step.grid, step.block)
            yield Start(
                step.kernel, function, *shape, tuple(arguments), step.shared_bytes
            )
        elif isinstance(step, Product):
            offsets = (*step.offsets, *[0] * len(step.operands))
            pairs = zip(step.operands, offsets, strict=False)
            pointers = tuple(at(place) + offset for place, offset in pairs)
            product = self.device.product(step.gemm, pointers, self.limit)
            yield partial(product, pointers, self.scratch)
        elif isinstance(step, Dnn):
            plan = self.device.dnn(step.signature, self.dnn_limit)
            yield partial(plan, tuple(map(at, step.operands)), self.scratch)
        else:
            yield from self._turns(step, inputs, resolve, address)

    def _argument(self, argument: Any, at: Callable[[Place], int], step: Launch) -> Any:
        if isinstance(argument, Scalar):
            return self.device.scalar(argument.value, argument.ctype)
        if isinstance(argument, Problem):
            self.binding.problems.append(step.problem)
            first: int = self.device.address(self.words)
            return first + 24 * (len(self.binding.problems) - 1)
        if isinstance(argument, Table):
            words = [
                at(w) if isinstance(w, (Buffer, Scratch)) else w
                for row in argument.rows
                for w in row
            ]
            table = self.device.upload(words)
            self.binding.kept.append(table)
            return self.device.address(table)
        return at(argument)

    def _turns(
        self,
        loop: Loop,
        inputs: int,
        resolve: Callable[[tuple[str, int]], Where],
        address: Callable[[Where], int],
    ) -> Iterator[Callable[[], None]]:
        """The calls of a loop, all turns one after the other."""
        arena = address(resolve(("work", loop.arena.offset)))
        members, program = loop.body.native

        for turn in range(loop.turns):

            def inner(where: Where, turn: int = turn) -> int:
                number, offset = where
                if number is None:
                    return offset
                base, shift = position(loop.moves[number], turn, loop.turns)
                return address(resolve(base)) + shift + offset

            for i, node in enumerate(program.nodes):
                place = partial(loop.body.place, arena, members[i])
                for step in node.steps:
                    yield from self._calls(step, node.inputs, place, inner)


def position(move: Move, turn: int, turns: int) -> tuple[tuple[str, int], int]:
    """Where an array of a loop's body is in a turn: an operand, and an offset."""
    if turn == 0 and move.first is not None:
        return move.first, 0
    if turn == turns - 1 and move.last is not None:
        return move.last, 0
    shift = move.offset + turn * move.stride
    return move.base, shift + move.delta * ((turn + move.phase) % 2)


def _plain(program: GpuProgram) -> Iterator[tuple[int, Step]]:
    """The steps of a program and of the loops in it, with how often each runs."""
    for _, step in program.steps:
        if isinstance(step, Loop):
            for times, inner in _plain(step.body.native[1]):
                yield times * step.turns, inner
        else:
            yield 1, step
