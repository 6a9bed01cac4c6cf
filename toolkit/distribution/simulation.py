"""Simulation of a training step on many ranks, to compare layouts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toolkit.arguments import is_int
from toolkit.backends.target import Target
from toolkit.bench.busy import busy_processes
from toolkit.comm import Group
from toolkit.comm.slow_link import SlowGroup, with_simulated_link
from toolkit.compiler.passes.simplify import share
from toolkit.compiler.pipeline import compile_program
from toolkit.compiler.program import Program
from toolkit.compiler.sharding.buckets import join_collectives
from toolkit.compiler.sharding.layouts import MeshAxis, Split
from toolkit.compiler.sharding.partition import partition
from toolkit.compiler.sharding.propagate import propagate
from toolkit.definitions.records import record
from toolkit.distribution.timeline import Link, Work, simulate_step
from toolkit.errors import ArgumentError
from toolkit.inspection.inspection import Inspection, Kernel
from toolkit.ir import Kind
from toolkit.pictures.curves import Curve, Panel, draw_curves

if TYPE_CHECKING:
    from toolkit.pictures.picture import Picture

RANKS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


@record
class Prediction:
    """Predicted step on a number of ranks.

    Attributes:
        layout: "data parallel", "ZeRO 1" or "FSDP".
        ranks: the number of ranks.
        seconds: the time of a step.
        exposed: the seconds of communication without overlapping kernels.
        exchanged: the bytes of collectives, by kind.
        memory: the bytes of a rank: its arena and its shard of the state.
        efficiency: the time of one rank without communication, divided by `seconds`.
        by_formula: whether the layout's bytes and memory use formulas, not from a
            partitioned graph.

    Example:
        >>> import numpy as np
        >>> import toolkit as tk
        >>> model = tk.Sequential([tk.Input((4,)), tk.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> x, y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
        >>> forecast = tk.distribution.simulate(
        ...     model, [2, 4], batch_size=4, x=x, y=y, timing=lambda kernel: 1e-3
        ... )
        >>> forecast.of("data parallel", 4).ranks
        4
    """

    layout: str
    ranks: int
    seconds: float
    exposed: float
    exchanged: dict[str, int]
    memory: int
    efficiency: float
    by_formula: bool


@record
class Simulation:
    """Predictions by layout and number of ranks; print it, or `plot` it.

    Attributes:
        predictions: one for each layout and number of ranks.

    Example:
        >>> import numpy as np
        >>> import toolkit as tk
        >>> model = tk.Sequential([tk.Input((4,)), tk.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> x, y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
        >>> forecast = tk.distribution.simulate(
        ...     model, [2, 4], batch_size=4, x=x, y=y, timing=lambda kernel: 1e-3
        ... )
        >>> [p.ranks for p in forecast.predictions if p.layout == "FSDP"]
        [2, 4]
    """

    predictions: tuple[Prediction, ...]

    def of(self, layout: str, ranks: int) -> Prediction:
        """Return the prediction for a layout and a number of ranks.

        Args:
            layout: "data parallel", "ZeRO 1" or "FSDP".
            ranks: one of the simulated numbers of ranks.
        """
        for prediction in self.predictions:
            if (prediction.layout, prediction.ranks) == (layout, ranks):
                return prediction
        raise ArgumentError(
            "Simulation.of: expected a simulated layout and number of ranks; "
            f"received {layout!r} and {ranks}"
        )

    def best(self, ranks: int, memory: int | None = None) -> Prediction | None:
        """Return the fastest layout; equally fast ones are ranked by memory.

        Args:
            ranks: the number of ranks.
            memory: the memory of a rank in bytes; None means unlimited.

        Returns:
            Its prediction; None if no layout fits.
        """
        candidates = [p for p in self.predictions if p.ranks == ranks]
        candidates = [p for p in candidates if memory is None or p.memory <= memory]
        return min(candidates, key=lambda p: (p.seconds, p.memory), default=None)

    def plot(self, to_file: str | os.PathLike[str] | None = None) -> Picture:
        """Plot the efficiency of each layout over the number of ranks.

        Args:
            to_file: the path of a picture to write, if any.

        Returns:
            The picture, which notebooks display.
        """
        curves = [
            Curve(
                layout,
                [p.ranks for p in predictions],
                [p.efficiency for p in predictions],
                color,
            )
            for (layout, predictions), color in zip(
                self._by_layout().items(), ("first", "second", "muted"), strict=False
            )
        ]
        panel = Panel("predicted efficiency", curves)
        picture = draw_curves([panel], "Predicted efficiency over ranks", "ranks")
        if to_file is not None:
            picture.save(to_file)
        return picture

    def _by_layout(self) -> dict[str, list[Prediction]]:
        by_layout: dict[str, list[Prediction]] = {}
        for p in self.predictions:
            by_layout.setdefault(p.layout, []).append(p)
        return by_layout

    def __str__(self) -> str:
        rows = [
            "predictions, not measurements (*: by formula, not from a partitioned "
            "graph)",
            "  ranks  layout            step ms  exposed ms  Mbytes moved  "
            "Mbytes/rank  efficiency",
        ]
        for p in sorted(self.predictions, key=lambda p: p.ranks):
            name = p.layout + "*" * p.by_formula
            total_nbytes = sum(p.exchanged.values())
            rows.append(
                f"{p.ranks:7,}  {name:15}  {1e3 * p.seconds:8.2f}  "
                f"{1e3 * p.exposed:10.2f}  {total_nbytes / 1e6:12.2f}  "
                f"{p.memory / 1e6:11.2f}  {p.efficiency:10.0%}"
            )
        return "\n".join(rows)

    __repr__ = __str__


def simulate(
    model: Any,
    ranks: int | Sequence[int] = RANKS,
    link: Link | None = None,
    batch_size: int = 32,
    *,
    x: Any,
    y: Any,
    overlap: bool | None = None,
    jitter: float = 0.0,
    timing: Callable[[Kernel], float] | None = None,
) -> Simulation:
    """Predict the training step of a model on many ranks.

    The step is partitioned as in `DataParallel`. The kernels of one rank are timed
    once, with a load on the cores of other ranks. The number of rows per rank is
    constant (weak scaling), so an efficiency of 1 is the speed of one rank.

    Args:
        model: a model compiled with a loss and an optimizer.
        ranks: the number of ranks, or several numbers.
        link: the link between ranks; by default 10 GB/s and 5 microseconds, with one
            rank per node.
        batch_size: the number of rows of a rank.
        x, y: arrays with at least one row, as examples for batches.
        overlap: whether kernels run during a collective. None means yes if a network
            connects the ranks, as in real programs.
        jitter: the standard deviation of a rank's compute time, as a fraction.
        timing: a function that returns the seconds of a kernel, instead of a
            measurement.

    Returns:
        The predictions, including layouts whose memory and bytes follow from data
        parallelism by formulas (arXiv:1910.02054).

    Example:
        >>> import numpy as np
        >>> import toolkit as tk
        >>> model = tk.Sequential([tk.Input((4,)), tk.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> x, y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
        >>> forecast = tk.distribution.simulate(
        ...     model, [2, 4], batch_size=4, x=x, y=y, timing=lambda kernel: 1e-3
        ... )
        >>> forecast.best(4) in forecast.predictions
        True
    """
    counts = [ranks] if is_int(ranks) else list(ranks)  # type: ignore[arg-type]
    if not counts or not all(is_int(n) and n > 0 for n in [*counts, batch_size]):
        raise ArgumentError(
            "simulate: expected ranks and batch_size of at least 1; received "
            f"{ranks!r} and {batch_size!r}"
        )
    link = link or Link()
    has_overlap = max(counts) > link.ranks_per_node if overlap is None else overlap
    rows = _rows(x, 2 * batch_size), _rows(y, 2 * batch_size)
    inspection = _compile_rank_program(model, *rows, has_overlap)
    num_peers = min(link.ranks_per_node, os.cpu_count() or 1, max(counts)) - 1
    work = _list_work(inspection, timing, num_peers)
    weights = sum(_nbytes(v) for v in model.trainable_variables)
    slots = sum(_nbytes(v) for v in model.optimizer.variables if v.ndim)
    state = sum(map(_nbytes, {id(v): v for v in inspection._variables}.values()))
    single_rank_seconds = simulate_step(work, 1, link).seconds
    predictions: list[Prediction] = []
    for n in counts:
        overlaps = n > link.ranks_per_node if overlap is None else overlap
        step = simulate_step(work, n, link, overlaps, jitter)
        sizes = {
            "data parallel": state,
            "ZeRO 1": state - slots + slots // n,
            "FSDP": state - slots - weights + (slots + weights) // n,
        }
        for layout, state_size in sizes.items():
            gather_seconds = 0.0
            exchanged = dict(step.exchanged)
            if layout == "FSDP" and n > 1:
                # It scatters the sums once, and gathers the weights twice.
                gather_seconds = link.seconds("all_gather", weights, n)
                exchanged["all_gather"] = exchanged.get("all_gather", 0) + weights
            seconds = step.seconds + gather_seconds
            memory = inspection.peak_bytes + state_size
            exposed = max(0.0, seconds - step.compute)
            efficiency = single_rank_seconds / seconds if seconds else 1.0
            fields = (
                seconds,
                exposed,
                exchanged,
                memory,
                efficiency,
                layout != "data parallel",
            )
            predictions.append(Prediction(layout, n, *fields))
    return Simulation(tuple(predictions))


class _SimulatedPair:
    """Group that simulates two ranks and transfers nothing.

    Args:
        is_remote: whether kernels overlap with communication.
    """

    rank, size = 0, 2

    def __init__(self, is_remote: bool) -> None:
        self.is_remote = is_remote

    def all_to_all(self, *arguments: Any) -> None:
        """Transfer nothing."""

    def all_gather(self, *arguments: Any) -> None:
        """Transfer nothing."""

    def all_gather_varying(self, *arguments: Any) -> None:
        """Transfer nothing."""


class _CalculatedLink(SlowGroup):
    """Slow link with calculated delays instead of waits."""

    def _delay(self, sent: int, received: int) -> None:
        """Take no time."""


def _rows(array: Any, count: int) -> Any:
    return np.resize(np.asarray(array), (count, *np.shape(array)[1:]))


def _nbytes(variable: Any) -> int:
    return int(np.asarray(variable).nbytes)


def _compile_rank_program(model: Any, x: Any, y: Any, has_overlap: bool) -> Inspection:
    """Return one rank's program of a training step for two ranks.

    Args:
        model, x, y: the model and a batch.
        has_overlap: whether communication overlaps with kernels.
    """
    inspection = model.inspect(x, y)
    program, variables = inspection.program, inspection._variables
    if not isinstance(program, Program) or program.backend.is_accelerator:
        raise ArgumentError("simulate: expected a model with a step on the CPU")
    pair = _SimulatedPair(has_overlap)
    graph, group = program.source, with_simulated_link(_as_group(pair))
    if isinstance(group, SlowGroup):  # uses the bucket size of that link
        group = _CalculatedLink(group.group, group.latency, group.bandwidth)
    axis = MeshAxis("batch", group, 2, even=False)
    count = len(graph.inputs) - len(variables)
    is_batched = [
        bool(v.spec.shape) and v.spec.shape[0] == len(x) for v in graph.inputs
    ]
    layouts = [
        Split(0) if i < count and is_row else None
        for i, is_row in enumerate(is_batched)
    ]
    target = Target(program.backend)
    shared = share(propagate(graph, axis, layouts).graph, target)
    local = partition(propagate(shared, axis, layouts), axis, layouts)
    rank_program = compile_program(join_collectives(local), target, inspection.name)
    pair.is_remote = True  # no rank can share memory with it
    return Inspection(inspection.name, rank_program, variables)


def _as_group(group: Any) -> Group:
    result: Group = group
    return result


def _list_work(
    inspection: Inspection, timing: Callable[[Kernel], float] | None, num_peers: int
) -> list[Work]:
    """Return the kernels and collectives in execution order."""
    if timing is None:
        with busy_processes(num_peers):
            inspection.measure()
    kernels = sorted(inspection.kernels, key=lambda k: min(k.moments, default=0))
    index_of = {node: i for i, k in enumerate(kernels) for node in k.nodes}
    producers = {y: node for node in index_of for y in node.outputs}
    work = []
    for i, kernel in enumerate(kernels):
        sources = [
            producers[v] for n in kernel.nodes for v in n.inputs if v in producers
        ]
        source_indices = {index_of[node] for node in sources}
        seconds = (kernel.seconds or 0.0) if timing is None else timing(kernel)
        node = kernel.nodes[0]
        kind, nbytes = "", 0
        if node.op.kind is Kind.COLLECTIVE:
            kind = node.op.name
            values = (node.inputs if kind == "all_gather" else node.outputs)[:-1]
            nbytes = sum(v.spec.nbytes for v in values)
        dependencies = tuple(sorted(j for j in source_indices if j < i))
        work.append(Work(seconds, dependencies, kind, nbytes))
    return work
