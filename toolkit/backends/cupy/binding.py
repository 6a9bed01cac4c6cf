"""Binding of a program's steps to the addresses of a call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from toolkit.backends.cupy.cuda.launch import (
    Buffer,
    Launch,
    Problem,
    Scalar,
    Scratch,
    Table,
)
from toolkit.backends.cupy.device_sums import bind_plan
from toolkit.backends.cupy.exchange_stream import ExchangeCall
from toolkit.backends.cupy.joining import BoundLaunch, Call, batch_launches
from toolkit.backends.cupy.steps import Address, Dnn, Exchange, Loop, Product, Step
from toolkit.comm.sum_plans import Location
from toolkit.plans.operands import LoopOperand

if TYPE_CHECKING:
    from toolkit.backends.cupy.program import GpuProgram, Runner

# (None, an address) or (the number of an array of the call, an offset).
ResolvedAddress = tuple[int | None, int]


def to_reference(address: Address, inputs: int) -> tuple[str, int]:
    """Return a location in the compiler's notation."""
    if isinstance(address, Scratch):
        return "work", address.offset
    if address.index < inputs:
        return "in", address.index
    return "out", address.index - inputs


@dataclass
class Binding:
    """Steps of a program bound to one set of addresses.

    Attributes:
        calls: one function for each step, by the index of its node.
        retained: memory that only addresses refer to.
        problems: the error messages for a bad index, with three words each in `words`.
        runs: the number of runs so far.
        replay: launches the captured graph, after the capture.
    """

    calls: list[tuple[int, Callable[[], None]]]
    retained: list[Any]
    problems: list[str]
    words: Any = None
    runs: int = 0
    replay: Callable[[], None] | None = None


class Binder:
    """Converter of steps into calls on addresses."""

    def __init__(self, runner: Runner, limit: int, dnn_limit: int | None) -> None:
        self.runner = runner
        self.device = runner.device
        self.limit: int = limit
        self.dnn_limit: int | None = dnn_limit
        self.binding: Binding = Binding([], [], [])
        self.scratch: int = 0
        self.words: Any = None

    def bind(self) -> Binding:
        """Bind all steps of the program."""
        program = self.runner.program
        plain = list(iter_steps(program))
        count = Counter(s.kernel for _, s in plain if isinstance(s, Launch))
        exchanges = [step for _, step in plain if isinstance(step, Exchange)]
        count.update(x.kernel for step in exchanges for x in step.launches)
        # These compile together with the kernels that can launch several of them at
        # once.
        twins = [k.batched for k, times in count.items() if k.batched and times > 1]
        kernels = list(dict.fromkeys((*count, *twins)))
        # Build plans first: kernels compile in parallel.
        graphs = [step.signature for _, step in plain if isinstance(step, Dnn)]
        self.device.prepare(graphs, self.dnn_limit)
        self.functions = dict(zip(kernels, self.device.load(kernels), strict=True))
        needed = max((self._workspace(step) for _, step in plain), default=0)
        if needed:
            # Bindings of one program never run concurrently.
            if self.runner.scratch is None or self.runner.scratch.nbytes < needed:
                self.runner.scratch = self.device.empty((needed,), "uint8")
            self.binding.retained.append(self.runner.scratch)
            self.scratch = self.device.address(self.runner.scratch)
        problems = sum(
            times * sum(isinstance(a, Problem) for a in step.arguments)
            for times, step in plain
            if isinstance(step, Launch)
        )
        if problems:
            self.words = self.device.upload([0] * (3 * problems))
            self.binding.words = self.words
        calls: list[Call] = []
        # The last collective to wait for before a node.
        pending: dict[int, ExchangeCall] = {}
        for i, node in enumerate(program.nodes):
            if i in pending:
                calls.append((i, pending[i].join))
            resolve = partial(self.runner.resolve, i)
            arguments = node.inputs, resolve, self.runner.address
            of_node = [
                (i, call)
                for step in node.steps
                for call in self._calls(step, *arguments)
            ]
            if i in program.joins:
                started = [call for _, call in self._batched(of_node)]
                exchange = ExchangeCall(self.device, started)
                pending[program.joins[i]] = exchange
                of_node = [(i, exchange)]
            calls += of_node
        if len(program.nodes) in pending:
            calls.append((len(program.nodes) - 1, pending[len(program.nodes)].join))
        self.binding.calls = self._batched(calls)
        return self.binding

    def _batched(self, calls: list[Call]) -> list[Call]:
        return list(batch_launches(calls, self.device, self.binding.retained))

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
        resolve: Callable[[tuple[str, int]], ResolvedAddress],
        address: Callable[[ResolvedAddress], int],
    ) -> Iterator[Callable[[], None]]:
        """Yield the calls of a step."""

        def at(location: Address) -> int:
            return address(resolve(to_reference(location, inputs)))

        if isinstance(step, Launch):
            arguments = [self._argument(a, at, step) for a in step.arguments]
            function, shape = self.functions[step.kernel], (step.grid, step.block)
            yield BoundLaunch(
                step.kernel, function, *shape, tuple(arguments), step.shared_bytes
            )
        elif isinstance(step, Product):
            offsets = (*step.offsets, *[0] * len(step.operands))
            pairs = zip(step.operands, offsets, strict=False)
            pointers = tuple(at(address) + offset for address, offset in pairs)
            product = self.device.product(step.gemm, pointers, self.limit)
            yield partial(product, pointers, self.scratch)
        elif isinstance(step, Dnn):
            plan = self.device.dnn(step.signature, self.dnn_limit)
            yield partial(plan, tuple(map(at, step.operands)), self.scratch)
        elif isinstance(step, Exchange):
            yield from self._bind_exchange(step, at)
        else:
            yield from self._unroll_loop(step, resolve, address)

    def _bind_exchange(
        self, step: Exchange, at: Callable[[Address], int]
    ) -> Iterator[Callable[[], None]]:
        """Yield the transfers and kernels of a collective."""
        *addresses, scratch = map(at, step.operands)
        bases = {
            "piece": addresses[: step.pieces],
            "out": addresses[step.pieces :],
            "scratch": [scratch],
        }

        def locate(location: Location) -> int:
            return bases[location.kind][location.number] + location.offset

        starts = [(x, self.functions[x.kernel]) for x in step.launches]
        group = self.device.groups[step.group]
        arguments = group, self.device, locate, step.name
        yield from bind_plan(step.plan, starts, *arguments)

    def _argument(
        self, argument: Any, at: Callable[[Address], int], step: Launch
    ) -> Any:
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
            self.binding.retained.append(table)
            return self.device.address(table)
        return at(argument)

    def _unroll_loop(
        self,
        loop: Loop,
        resolve: Callable[[tuple[str, int]], ResolvedAddress],
        address: Callable[[ResolvedAddress], int],
    ) -> Iterator[Callable[[], None]]:
        """Yield the calls of a loop, in order for all iterations."""
        arena = address(resolve(("work", loop.arena.offset)))
        locations = loop.body.locations.at(arena)

        for iteration in range(loop.iterations):

            def inner(where: ResolvedAddress, iteration: int = iteration) -> int:
                number, offset = where
                if number is None:
                    return offset
                base, shift = locate_in_iteration(
                    loop.moves[number], iteration, loop.iterations
                )
                return address(resolve(base)) + shift + offset

            for i, node in enumerate(loop.body.code.nodes):
                location = partial(locations, i)
                for step in node.steps:
                    yield from self._calls(step, node.inputs, location, inner)


def locate_in_iteration(
    loop_operand: LoopOperand, iteration: int, iterations: int
) -> tuple[tuple[str, int], int]:
    """Return the operand and the offset of a loop body's array in one iteration."""
    if iteration == 0 and loop_operand.first is not None:
        return loop_operand.first, 0
    if iteration == iterations - 1 and loop_operand.last is not None:
        return loop_operand.last, 0
    shift = loop_operand.offset + iteration * loop_operand.stride
    return loop_operand.base, shift + loop_operand.delta * (
        (iteration + loop_operand.phase) % 2
    )


def iter_steps(program: GpuProgram) -> Iterator[tuple[int, Step]]:
    """Yield the steps of a program and its loops, each with its number of runs."""
    for _, step in program.steps:
        if isinstance(step, Loop):
            for times, inner in iter_steps(step.body.code):
                yield times * step.iterations, inner
        else:
            yield 1, step
