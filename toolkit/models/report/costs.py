"""Costs of a model: time and memory, by layer and in total."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolkit import dtypes, tree
from toolkit.core.tensor import Tensor
from toolkit.core.trace import StatelessScope
from toolkit.errors import ToolkitError
from toolkit.functions.function import Function
from toolkit.inspection import Inspection, Kernel
from toolkit.layers import InputLayer
from toolkit.models.summary import class_name
from toolkit.pictures.axes import bytes_text, count_text, seconds_text
from toolkit.pictures.boxes import truncate
from toolkit.pictures.page import FOLD, Markup, bar, figure, join, table, tag

if TYPE_CHECKING:
    from toolkit.layers.layer import Layer

_REPEATS = 15  # of a measurement
_KERNELS = 12  # the number of slowest kernels, and of layers, in the lists
_LONG = 64  # characters of their names
_UNKNOWN = "\N{EN DASH}"


@dataclass
class LayerCost:
    """Cost of a layer.

    Attributes:
        weights, outputs: their sizes in bytes.
        calls: the number of calls in one forward pass.
        seconds, flops, scratch: per call, compiled separately; None if that is
            impossible.
    """

    name: str
    kind: str
    weights: int
    outputs: int
    calls: int
    seconds: float | None = None
    flops: int | None = None
    scratch: int | None = None

    @property
    def total(self) -> float:
        """Return the seconds of all calls."""
        return self.calls * (self.seconds or 0.0)


def weight_bytes(variables: Any) -> int:
    """Return the bytes of Variables, each counted once."""
    unique = {id(v): v for v in variables}.values()
    return sum(v.size * dtypes.itemsize(v.dtype) for v in unique)


def layer_costs(model: Any, x: Any) -> list[LayerCost]:
    """Return the costs of the called layers of a forward pass, in order."""
    calls: dict[int, list[Any]] = {}
    operations = getattr(model, "operations", model.layers)
    layers = [layer for layer in operations if not isinstance(layer, InputLayer)]
    with StatelessScope(), _recorded(layers, calls):
        model(x, training=False)
    by_id = {id(layer): layer for layer in layers}
    return [_cost(by_id[key], layer_calls) for key, layer_calls in calls.items()]


@contextmanager
def _recorded(layers: list[Any], calls: dict[int, list[Any]]) -> Iterator[None]:
    """Record the arguments and outputs of each call of these layers."""

    def watch(layer: Any, call: Any) -> Any:
        def watched(*args: Any, **kwargs: Any) -> Any:
            outputs = call(*args, **kwargs)
            calls.setdefault(id(layer), []).append((args, kwargs, outputs))
            return outputs

        return watched

    for layer in layers:
        layer.__dict__["call"] = watch(layer, layer.call)
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["call"]


def _cost(layer: Layer, calls: list[Any]) -> LayerCost:
    args, kwargs, outputs = calls[0]
    tensors = [x for x in tree.flatten(outputs) if isinstance(x, Tensor)]
    cost = LayerCost(
        layer.name,
        class_name(layer),
        weight_bytes(getattr(layer, "weights", ())),
        sum(x.spec.nbytes for x in tensors),
        len(calls),
    )
    if getattr(layer, "runs_before_program", False):
        return cost
    try:
        plan = _compile_alone(layer, args, kwargs)
    except (ToolkitError, TypeError):  # layers that cannot be compiled separately
        return cost
    kernels = plan.measure(_REPEATS)
    cost.seconds = sum(kernel.seconds or 0.0 for kernel in kernels)
    cost.flops = sum(kernel.flops for kernel in kernels)
    cost.scratch = plan.peak_bytes
    return cost


def _compile_alone(layer: Layer, args: Any, kwargs: Any) -> Inspection:
    """Return one call of a layer as a separate program."""
    leaves = tree.flatten((args, kwargs))
    indices = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def forward(*tensors: Any) -> Any:
        filled = list(leaves)
        for index, tensor in zip(indices, tensors, strict=True):
            filled[index] = tensor
        inputs, options = tree.pack_sequence_as((args, kwargs), filled)
        return layer(*inputs, **options)

    return Function(forward).inspect(*[leaves[i] for i in indices])


def step_seconds(plan: Inspection) -> float:
    """Return the total time of a measured program's kernels."""
    return sum(kernel.seconds or 0.0 for kernel in plan.kernels)


def costs_section(costs: list[LayerCost], plan: Inspection, samples: int) -> Markup:
    """Return time and memory of each layer, and of the whole forward pass."""
    heads = ("Layer", "Time", "Operations", "Weights", "Outputs", "Scratch")
    numbers = range(1, len(heads))
    longest = max((cost.total for cost in costs), default=0.0) or 1.0
    rows = [_row(cost, longest) for cost in costs]
    listed = table(heads, rows, "Forward pass by layer", numbers)
    if len(costs) > FOLD:
        order = sorted(range(len(costs)), key=lambda i: -costs[i].total)
        slowest = [rows[i] for i in order[:_KERNELS]]
        caption = f"The {_KERNELS} slowest of {len(costs)} layers"
        listed = join((table(heads, slowest, caption, numbers), listed))
    layer_seconds, model_seconds = sum(cost.total for cost in costs), step_seconds(plan)
    note = (
        f"Measured on this machine with a batch of {samples}. Each layer is compiled "
        f"separately, and the sum is {seconds_text(layer_seconds)}. The compiled "
        f"model fuses layers: a forward pass takes {seconds_text(model_seconds)} and "
        f"needs {bytes_text(plan.peak_bytes)} for intermediate values."
    )
    return tag(
        "section", tag("h2", "Time and memory"), tag("p", note), listed, id="costs"
    )


def _row(cost: LayerCost, longest: float) -> tuple[Any, ...]:
    return (
        join((cost.name, tag("span", cost.kind, class_="note"))),
        bar(cost.total / longest, seconds_text(cost.total))
        if cost.seconds is not None
        else _UNKNOWN,
        _or_unknown(cost.flops, count_text),
        bytes_text(cost.weights),
        bytes_text(cost.outputs),
        _or_unknown(cost.scratch, bytes_text),
    )


def _or_unknown(value: Any, text: Any) -> str:
    return _UNKNOWN if value is None else text(value)


def _kernel_title(number: int, kernel: Kernel) -> Markup:
    """Return the layers of a kernel, above its operations."""
    layers = dict.fromkeys(
        "/".join(y.origin)
        for node in kernel.nodes
        for member in (node.attrs["body"].nodes if node.op.name == "fused" else (node,))
        for y in member.outputs
        if y.origin
    )
    operations = truncate(kernel.name, _LONG)
    if not layers:
        return tag("span", f"{number}: {operations}", title=kernel.name)
    names = ", ".join(name.rpartition("/")[2] for name in layers)
    return tag(
        "span",
        f"{number}: {truncate(names, _LONG)}",
        tag("span", operations, class_="note"),
        title=f"{', '.join(layers)}: {kernel.name}",
    )


def _roofline_text(fraction: float | None) -> str:
    if fraction is None:
        return ""
    return "above 100%" if fraction > 1.005 else f"{fraction:.0%}"


def program_section(plan: Inspection, name: str) -> Markup:
    """Return the slowest kernels of a step, and its arena over time."""
    total = step_seconds(plan)
    longest = max((kernel.seconds or 0.0 for kernel in plan.kernels), default=0.0)
    kernels = sorted(enumerate(plan.kernels), key=lambda pair: -(pair[1].seconds or 0))
    rows = [
        (
            _kernel_title(number, kernel),
            bar(
                (kernel.seconds or 0.0) / (longest or 1.0),
                seconds_text(kernel.seconds or 0.0),
            ),
            count_text(kernel.flops),
            bytes_text(kernel.nbytes),
            _roofline_text(kernel.roofline),
        )
        for number, kernel in kernels[:_KERNELS]
    ]
    heads = ("Kernel", "Time", "Operations", "Traffic", "Fraction of the roofline")
    count = len(plan.kernels)
    caption = f"The {min(_KERNELS, count)} slowest of {count:,} kernels"
    note = (
        f"A step of {name} is a graph of {len(plan.passes[0][1].nodes):,} nodes, "
        f"compiled to {count:,} kernels that take {seconds_text(total)}. A kernel "
        "above 100% of the roofline reads its data from a cache, not from memory."
    )
    hint = "Point at a block to see its value and its lifetime."
    drawing = figure(plan.plot(), hint, min_scale=0.7)
    listed = table(heads, rows, caption, numbers=(1, 2, 3, 4))
    heading = tag("h2", "Compiled program")
    return tag("section", heading, tag("p", note), listed, drawing, id="compiler")
