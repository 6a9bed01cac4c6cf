"""Inspection of a compiled function: passes, kernels, memory, times."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit import dtypes, pictures
from toolkit.backends.memory import Memory
from toolkit.compiler.bound import BoundProgram, Event, TimedUnit
from toolkit.compiler.pipeline import stages
from toolkit.compiler.program import Program
from toolkit.core.variable import Variable
from toolkit.definitions.records import record
from toolkit.errors import unknown_choice
from toolkit.files.writing import write_text
from toolkit.inspection import drawing
from toolkit.inspection.scaling import (
    Scaling,
    measured_stages,
    predict_scaling,
    spans,
    time_between,
)
from toolkit.ir import Graph, Kind, Node, Value, format_graph

if TYPE_CHECKING:
    from toolkit.pictures.picture import Picture


@record
class Kernel:
    """Unit of execution: one kernel, or generated calls that run together.

    Attributes:
        name: the names of its primitives.
        nodes: their nodes; each node that is not a view is in exactly one kernel.
        flops, nbytes: arithmetic operations, and bytes of memory traffic; 0 if it is
            not generated code.
        moments: the steps of the memory plan in which it runs. Most kernels have one;
            some prepare weights earlier, or combine partial sums of threads later. A
            collective that runs in parallel with later kernels has the first and the
            last one. Kernels that share a moment run in parallel.
        seconds: the median of its measured times, None before `measure`.
        roofline: the fraction of the processor's best performance: the time of its
            arithmetic or its traffic at the measured peaks, divided by `seconds`. It is
            above 1 if data is read from a cache and not from memory.

    Example:
        >>> import toolkit
        >>> from toolkit import ops
        >>> x = ops.ones((4, 4))
        >>> plan = toolkit.function(lambda x: ops.exp(x) @ x).inspect(x)
        >>> [kernel.nbytes > 0 for kernel in plan.kernels]
        [True, True]
    """

    name: str
    nodes: tuple[Node, ...]
    flops: int = 0
    nbytes: int = 0
    moments: tuple[int, ...] = ()
    seconds: float | None = None
    roofline: float | None = None


class Inspection:
    """The graph after each pass, the memory plan, and the kernels of a program.

    Print it, or read `passes` (name -> graph), `kernels`, `peak_bytes` and
    `live_bytes`. `measure` times the kernels, `source` shows their code, and `trace`
    writes a timeline.

    Args:
        name: name of the function.
        program: its program.
        variables: the last inputs of the program.

    Example:
        >>> import toolkit
        >>> from toolkit import ops
        >>> x = ops.ones((4, 4))
        >>> plan = toolkit.function(lambda x: ops.exp(x) @ x).inspect(x)
        >>> plan.peak_bytes
        64
    """

    def __init__(
        self, name: str, program: Program, variables: Sequence[Variable] = ()
    ) -> None:
        self.name = name
        self.program = program
        self._variables = variables
        # The unit numbers of each kernel.
        self._unit_groups = _joined(self._bound.timed_units)
        self.kernels: list[Kernel] = [
            _kernel([self._bound.timed_units[i] for i in numbers])
            for numbers in self._unit_groups
        ]

    @property
    def passes(self) -> list[tuple[str, Any]]:
        """Return pairs of a pass's name and the graph after it, in order."""
        return list(stages(self.program.source, self.program.backend))

    @property
    def graph(self) -> Any:
        """Return the final graph, in execution order."""
        return self.program.graph

    @property
    def peak_bytes(self) -> int:
        """Return the bytes of the arena, including sub-programs."""
        return self.program.nbytes

    @property
    def live_bytes(self) -> int:
        """Return the largest number of bytes that are live at the same time."""
        return self.program.plan.live_peak

    @property
    def side_by_side(self) -> dict[int, list[int]]:
        """Return the moments with several parallel kernels, and their numbers."""
        by_moment: defaultdict[int, list[int]] = defaultdict(list)
        for number, kernel in enumerate(self.kernels):
            for moment in kernel.moments:
                by_moment[moment].append(number)
        return {moment: n for moment, n in sorted(by_moment.items()) if len(n) > 1}

    def source(self, kernel: int) -> str:
        """Return the LLVM IR of a kernel; "" for NumPy kernels.

        Args:
            kernel: the index of the kernel in `kernels`.
        """
        units = (self._bound.timed_units[i] for i in self._unit_groups[kernel])
        codes = (code.text() for unit in units for code in unit.codes)
        return "\n\n".join(dict.fromkeys(codes))

    def measure(self, repeats: int = 5) -> list[Kernel]:
        """Run on the Variables' values and random data; this changes nothing.

        Floats are random in [0, 1), integers are zero.

        Args:
            repeats: the number of timed runs, whose median counts.

        Returns:
            The kernels with their median seconds and their fraction of the roofline,
            the slowest first.
        """
        self._events()  # warm up the caches
        runs = [spans(self._events(), attrgetter("unit")) for _ in range(repeats)]
        peaks = self.program.backend.generator.peak_rates()
        self.kernels = [
            _timed(kernel, _median(numbers, runs), peaks)
            for kernel, numbers in zip(self.kernels, self._unit_groups, strict=True)
        ]
        return sorted(self.kernels, key=lambda k: -(k.seconds or 0.0))

    def scaling(
        self, cores: Sequence[int] = (1, 2, 4, 8, 16, 32), repeats: int = 5
    ) -> list[Scaling]:
        """Predict the time of a run on other numbers of cores.

        The tasks of a run are timed with the current number of threads. A simulation
        assigns them in order to the given number of cores, each to the first free core.
        At a barrier, all threads wait for the last one. The time of serial parts, and
        the time between kernels, stays constant (Amdahl's law, kernel by kernel). It is
        a model: a loop over steps counts as one task, and memory bandwidth is assumed
        to scale with the cores.

        Args:
            cores: the numbers of cores.
            repeats: number of timed runs; the median run is used.

        Returns:
            One `Scaling` for each number of cores: its `seconds`, its `speed_up` over
            one core, and the kernels for which cores are `waiting`.

        Example:
            >>> import toolkit
            >>> from toolkit import ops
            >>> x = ops.ones((512, 512))
            >>> plan = toolkit.function(lambda x: ops.tanh(x @ x)).inspect(x)
            >>> one, four = plan.scaling((1, 4))
            >>> one.speed_up, four.cores, four.seconds <= one.seconds
            (1.0, 4, True)
        """
        kernel_of = {
            unit: k for k, units in enumerate(self._unit_groups) for unit in units
        }
        self._events()  # warm up the caches
        runs = sorted((self._events() for _ in range(repeats)), key=_busy)
        run, units = runs[repeats // 2], self._bound.timed_units
        stages = measured_stages(run, units, kernel_of)
        idle = time_between(run, units)
        return [predict_scaling(stages, idle, count) for count in cores]

    def plot(
        self,
        what: str = "arena",
        to_file: str | PathLike[str] | None = None,
        expand: bool | None = None,
    ) -> Picture:
        """Draw the memory plan, or the graph.

        Args:
            what: "arena" for each buffer as a rectangle, its lifetime across and its
                bytes up; "graph" for the kernels and the values between them.
            to_file: the file to save to: ".svg" needs no other package, ".png" and
                ".pdf" need Matplotlib.
            expand: whether the graph shows each node, in frames for kernels; default:
                if there are few nodes.

        Returns:
            A picture that notebooks show; its `svg()` returns text, `save(path)` writes
            a file.

        Example:
            >>> import toolkit
            >>> from toolkit import ops
            >>> x = ops.ones((4, 4))
            >>> plan = toolkit.function(lambda x: ops.exp(x) @ x).inspect(x)
            >>> plan.plot().title
            'Arena of <lambda>: 64 B, at most 64 B live at the same time'
        """
        if what == "arena":
            picture = drawing.draw_arena(self)
        elif what == "graph":
            picture = drawing.draw_graph(self, expand)
        else:
            raise unknown_choice("Inspection.plot: what", what, ("arena", "graph"))
        if to_file is not None:
            picture.save(to_file)
        return picture

    def trace(self, path: str | PathLike[str]) -> None:
        """Run once and write a timeline for Perfetto and chrome://tracing.

        Args:
            path: a ".json" file.
        """
        rows = list(self._rows())
        write_text(path, json.dumps({"traceEvents": rows, "displayTimeUnit": "ms"}))

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Yield the events of a timeline."""
        self._events()  # warm up the caches
        number_of = {
            unit: k for k, units in enumerate(self._unit_groups) for unit in units
        }
        for event in self._events():
            number = number_of[event.unit]
            kernel = self.kernels[number]
            arguments = {"flops": kernel.flops, "bytes": kernel.nbytes}
            yield {
                "name": kernel.name,
                "ph": "X",
                "ts": 1e6 * event.start,
                "dur": 1e6 * (event.end - event.start),
                "pid": 0,
                "tid": event.thread,
                "args": {"kernel": number, **arguments},
            }

    def _events(self) -> list[Event]:
        events: list[Event] = []
        inputs, outs = self._arrays
        with self.program.backend.kernels.errstate():
            self._bound.run(inputs, outs, events)
        return events

    @cached_property
    def _bound(self) -> BoundProgram:
        return BoundProgram(self.program)

    @cached_property
    def _arrays(self) -> tuple[list[Any], list[Any]]:
        """Return inputs and memory for outputs, reused so that caches are warm."""
        program = self.program
        inputs = sample_inputs(program.graph, program.backend.memory, self._variables)
        return inputs, outputs_for(program)

    def __str__(self) -> str:
        sections = [f"function {self.name} on backend {self.program.backend.name}"]
        for title, rows in self._sections():
            sections += [f"\n{title}:", *rows]
        return "\n".join([*sections, *self._memory_rows()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return a summary, with the sections folded."""
        tag, kernels = pictures.page.tag, f"{len(self.kernels)} kernels"
        head = f" on backend {self.program.backend.name}, {kernels}"
        return pictures.notebook.note(
            tag("div", tag("b", f"function {self.name}"), head),
            *(tag("div", row) for row in self._memory_rows()),
            *(
                tag("details", tag("summary", title), tag("pre", "\n".join(rows)))
                for title, rows in self._sections()
            ),
        )

    def _sections(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the title and the lines of each section."""
        yield "passes", self._pass_rows()
        numbers = enumerate(self.kernels)
        marks = {node: f"{i:>4}" for i, kernel in numbers for node in kernel.nodes}
        schedule = format_graph(self.graph, marks)
        yield "schedule, with the number of each node's kernel", [schedule]
        yield "kernels", self._kernel_rows()
        if exchanges := self._exchange_rows():
            yield "exchanged", exchanges
        yield "arena", self._arena_rows()

    def _memory_rows(self) -> Iterator[str]:
        """Yield lines about the bytes of the program."""
        live = f"maximum of live bytes {self.live_bytes:,}"
        yield f"peak {self.peak_bytes:,} bytes; {live}"
        if cached := self.program.preparations:
            nbytes = sum(x.nbytes for x in cached)
            yield (
                f"cached until a weight changes: {nbytes:,} bytes for {len(cached)} "
                "kernels"
            )

    def _pass_rows(self) -> list[str]:
        """Return the changes of each pass; the last row shows the fusion of nodes."""
        (first, before), *remaining = self.passes
        kinds = Counter(node.op.kind.value for node in before.nodes)
        counts = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
        rows, idle = [_pass_row(first, before, f"({counts})")], []
        for name, graph in remaining:
            if str(graph) == str(before):
                idle.append(name)
            else:
                rows.append(_pass_row(name, graph, _difference(before, graph)))
            before = graph
        loops = [n.attrs["body"] for n in self.graph.nodes if n.op.name == "fused"]
        if loops:
            body_nodes = sum(len(body.nodes) for body in loops)
            count = "1 loop" if len(loops) == 1 else f"{len(loops)} loops"
            rows.append(
                _pass_row("fuse", self.graph, f"{body_nodes} of them in {count}")
            )
        return [*rows, f"  nothing to do for {', '.join(dict.fromkeys(idle))}"]

    def _kernel_rows(self) -> list[str]:
        rows = ["   no       Mflop      Kbytes    time us  roofline  moment   what"]
        for i, k in enumerate(self.kernels):
            time = "" if k.seconds is None else f"{1e6 * k.seconds:.1f}"
            share = "" if k.roofline is None else f"{k.roofline:.0%}"
            when = ", ".join(map(str, k.moments))
            rows.append(
                f"  {i:3}  {k.flops / 1e6:10.3f}  {k.nbytes / 1e3:10.1f}  {time:>9}  "
                f"{share:>8}  {when:7}  {k.name}"
            )
        for moment, numbers in self.side_by_side.items():
            listed = ", ".join(map(str, numbers))
            rows.append(f"  parallel in moment {moment}: kernels {listed}")
        return rows

    def _exchange_rows(self) -> list[str]:
        """Return the exchanges with other processes of the job, if there are any."""
        rows = ["   no  along     Kbytes    time us  moments   what, of which layers"]
        for i, k in enumerate(self.kernels):
            node = k.nodes[0]
            if node.op.kind is not Kind.COLLECTIVE:
                continue
            time = "" if k.seconds is None else f"{1e6 * k.seconds:.1f}"
            when = "-".join(map(str, k.moments))
            for name, results in _messages_of(node):
                origins = dict.fromkeys("/".join(y.origin) or "-" for y in results)
                nbytes = sum(y.spec.nbytes for y in results)
                rows.append(
                    f"  {i:3}  {node.attrs['axis'].name:8}  {nbytes / 1e3:8.1f}  "
                    f"{time:>9}  {when:8}  {name} of {', '.join(origins)}"
                )
                time = ""  # of the first one: they run as one
        return rows if len(rows) > 1 else []

    def _arena_rows(self) -> list[str]:
        rows = ["      offset       bytes  first  last  what"]
        for b in sorted(self.program.plan.distinct, key=lambda b: (b.offset, b.first)):
            rows.append(
                f"  {b.offset:10,}  {b.nbytes:10,}  {b.first:5}  {b.last:4}  {b.label}"
            )
        return rows


def sample_inputs(
    graph: Graph, memory: Memory, variables: Sequence[Variable]
) -> list[Any]:
    """Return inputs: random floats and zeros, then the values of Variables."""
    random = np.random.default_rng(0)
    inputs = []
    for x in graph.inputs[: len(graph.inputs) - len(variables)]:
        shape, dtype = x.spec.shape, dtypes.numpy_dtype(x.spec.dtype)
        is_float = dtypes.is_float(x.spec.dtype)
        values = random.random(shape) if is_float else np.zeros(shape)
        inputs.append(values.astype(dtype))
    inputs_of_program = [*inputs, *(np.asarray(variable) for variable in variables)]
    return [memory.copy_array(memory.asarray(x)) for x in inputs_of_program]


def outputs_for(program: Program) -> list[Any]:
    """Allocate the outputs of a program."""
    specs = (y.spec for y in program.graph.outputs)
    return [program.backend.memory.empty(spec.shape, spec.dtype) for spec in specs]


def _pass_row(name: str, graph: Graph, label: str) -> str:
    count = len(graph.nodes)
    return f"  {name:10} {count:5} {'node ' if count == 1 else 'nodes'}  {label}"


def _difference(before: Graph, after: Graph) -> str:
    """Return the primitives that a pass removed from the graph, and added to it."""
    old, new = (Counter(node.op.name for node in g.nodes) for g in (before, after))
    removed, added = _listed(old - new), _listed(new - old)
    texts = [f"without {removed}"] * bool(removed) + [f"with {added}"] * bool(added)
    return "; ".join(texts) or "other operands"


def _listed(names: Counter[str]) -> str:
    return ", ".join(f"{n} {name}" if n > 1 else name for name, n in names.items())


def _joined(units: Sequence[TimedUnit]) -> list[list[int]]:
    """Return the unit numbers in groups: units of a node are in one group."""
    groups: list[tuple[set[Node], list[int]]] = []
    for number, unit in enumerate(units):
        nodes, numbers = set(unit.nodes), [number]
        separate = []
        for group in groups:
            if nodes.isdisjoint(group[0]):
                separate.append(group)
            else:
                nodes |= group[0]
                numbers = [*group[1], *numbers]
        groups = [*separate, (nodes, numbers)]
    return sorted(sorted(numbers) for _, numbers in groups)


def _kernel(units: Sequence[TimedUnit]) -> Kernel:
    nodes = tuple(dict.fromkeys(node for unit in units for node in unit.nodes))
    names: list[str] = []
    for node in nodes:
        if node.op.name == "fused":
            names += [member.op.name for member in node.attrs["body"].nodes]
        elif "members" in node.attrs:  # collectives that run as one
            names += [member.name for member in node.attrs["members"]]
        else:
            names.append(node.op.name)
    return Kernel(
        _listed(Counter(names)),
        nodes,
        sum(unit.flops for unit in units),
        sum(unit.nbytes for unit in units),
        tuple(
            dict.fromkeys(
                moment
                for unit in units
                for moment in (unit.moment, unit.moment + unit.duration)
            )
        ),
    )


def _messages_of(node: Node) -> Iterator[tuple[str, Sequence[Value]]]:
    """Yield the name and the results of each collective that a node runs."""
    results = node.outputs[:-1]  # without the token
    if "members" not in node.attrs:
        condition = ", if needed" if node.attrs.get("conditional") else ""
        yield f"{node.op.name}{condition}", results
        return
    first = 0
    for member in node.attrs["members"]:
        last = first + len(member.attrs["specs"])
        yield f"{member.name}, in one message", results[first:last]
        first = last


def _busy(events: Sequence[Event]) -> float:
    """Return the busy time of all threads in seconds."""
    return sum(event.end - event.start for event in events)


def _median(units: Sequence[int], runs: Sequence[Counter[int]]) -> float:
    return float(np.median([sum(run[unit] for unit in units) for run in runs]))


def _timed(kernel: Kernel, seconds: float, peaks: tuple[float, float] | None) -> Kernel:
    share = None
    if peaks is not None and seconds and (kernel.flops or kernel.nbytes):
        best = max(kernel.flops / peaks[0], kernel.nbytes / peaks[1])
        share = best / seconds
    return replace(kernel, seconds=seconds, roofline=share)
