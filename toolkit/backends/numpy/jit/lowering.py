"""Lowering of nodes to calls of generated functions.

A lowering is a function `lower(node, inputs, outputs)`. It returns a `Lowered`, or None
if no generated function supports the node. The lowering of an anchor receives a Graph
whose first node is the anchor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from importlib import import_module
from math import prod
from typing import Any

from toolkit.backends.base import Operand, align_up, contiguous
from toolkit.backends.loops.iteration_space import index_problem
from toolkit.backends.loops.planner import TASKS
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.math.bfloat16 import NARROW, WIDE
from toolkit.definitions.records import record
from toolkit.dtypes import is_complex
from toolkit.ir import Graph, Node, Value, cast_node

# Names for the modules of lowerings, some of them imported above.
__all__ = ["TASKS", "Call", "Lowered", "Operand", "contiguous", "index_problem"]

# ("in" | "out" | "work" | "error", the operand's number or the offset in bytes).
Reference = tuple[str, int]
ERROR: Reference = ("error", 0)


@record
class Call:
    """A call of one generated function, and the division of its work.

    Attributes:
        code: the function.
        operands: the operands with an address in the table, in this order.
        numbers: the integers after the addresses in the table.
        rows: the independent units of work; 0: no work.
        grain: the rows of one task. It depends on shapes only.
        row_operands: operands of which rows [low, high) access only the same fraction
            of the leading extent. Chains of calls on such operands run a few rows at a
            time.
        flops, nbytes: arithmetic and memory traffic of all rows.
        prepares: nonzero if the call only computes one operand from its inputs, and
            later calls only read this operand. It is then the operand's size in bytes.
        is_stream: whether the rows are consecutive in memory, so that a single thread
            runs all rows as one task. The result of a row must not depend on its task.
        problem: the message for a bad index, with {index} and {limit}, equal to the
            message of the NumPy kernel.
    """

    code: Code
    operands: tuple[Reference, ...]
    numbers: tuple[int, ...] = ()
    rows: int = 1
    grain: int = 1
    row_operands: frozenset[Reference] = frozenset()
    flops: int = 0
    nbytes: int = 0
    prepares: int = 0
    is_stream: bool = False
    problem: str = "index {index} is out of range for {limit} elements"

    # Whether it can run in parallel with other calls.
    can_branch = True

    @property
    def codes(self) -> list[Code]:
        """The functions that it runs."""
        return [self.code]

    @property
    def inputs(self) -> list[Reference]:
        """The operands that are inputs."""
        return [operand for operand in self.operands if operand[0] == "in"]

    @property
    def has_single_destination(self) -> bool:
        """Whether the call computes one operand from inputs only."""
        return len(self.operands) - len(self.inputs) == 1

    @property
    def destination(self) -> Reference:
        """The operand that a preparing call writes."""
        (destination,) = (operand for operand in self.operands if operand[0] != "in")
        return destination

    @property
    def recipe(self) -> Hashable:
        """A key that is equal for calls with equal results for equal operands."""
        return self.code, self.numbers, self.rows

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return -(-self.rows // self.grain)


@record
class Lowered:
    """The calls of a node, in order, and their scratch memory.

    Attributes:
        calls: the calls of each run.
        work: the size of the shared scratch memory in bytes.
        prepared: calls that run once, before the first run.
        kept_sizes: the size in bytes of the result of each prepared call: the operands
            ("kept", number).
    """

    calls: Sequence[Call] = field(default_factory=tuple)
    work: int = 0
    prepared: Sequence[Call] = ()
    kept_sizes: Sequence[int] = ()


def partition(rows: int, maximum: int = TASKS) -> int:
    """Return the rows of a task, for at most `maximum` tasks.

    Consecutive calls on the rows of a batch share one partition.
    """
    return max(1, -(-rows // max(1, min(TASKS, maximum))))


def operands_of(body: Graph) -> tuple[Reference, ...]:
    """Return the references of the inputs and outputs of a body."""
    inputs: list[Reference] = [("in", i) for i in range(len(body.inputs))]
    return (*inputs, *(("out", i) for i in range(len(body.outputs))))


Lowering = Callable[[Any, Sequence[Operand], Sequence[Operand]], Lowered | None]

# The lowering of each primitive, or its module and name in this package. The lowerings
# of ANCHORS receive a Graph: their node, then elementwise nodes on its result.
_COPY, _FUSED = "kernels.move:lower_copy", "fused.elementwise:lower_fused"
LOWERINGS: dict[str, str | Lowering] = {
    "fused": _FUSED,
    "conv": "kernels.conv:lower_conv",
    "conv_input_grad": "kernels.conv:lower_conv_input_grad",
    "conv_kernel_grad": "kernels.conv:lower_conv_kernel_grad",
    "conv_integer": "kernels.integer:lower_conv_integer",
    "matmul": "kernels.matmul:lower_matmul",
    "matmul_int4": "kernels.matmul:lower_matmul_int4",
    "matmul_integer": "kernels.integer:lower_matmul_integer",
    "max_pool": "kernels.pool:lower_max_pool",
    "max_pool_scatter": "kernels.pool:lower_max_pool_scatter",
    "max_pool_gather": "kernels.pool:lower_max_pool_gather",
    "sum_pool": "kernels.pool:lower_sum_pool",
    "sum_pool_grad": "kernels.pool:lower_sum_pool_grad",
    "dft": "kernels.fourier:lower_dft",
    "rdft": "kernels.fourier:lower_rdft",
    "irdft": "kernels.fourier:lower_irdft",
    "gather": "kernels.index:lower_gather",
    "scatter": "kernels.index:lower_scatter",
    "take_along_axis": "kernels.index:lower_take_along_axis",
    "put_along_axis": "kernels.index:lower_put_along_axis",
    "dynamic_slice": "kernels.move:lower_dynamic_slice",
    "dynamic_update_slice": "kernels.move:lower_dynamic_update_slice",
    "reshape": _COPY,
    "stop_gradient": _COPY,
    "transfer": _COPY,
    "concatenate": "kernels.move:lower_concatenate",
    "pad": "kernels.move:lower_pad",
    **dict.fromkeys(
        ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin"),
        "kernels.middle_axis:lower_middle",
    ),
    "cumsum": "kernels.scan:lower_cumulative",
    "cumprod": "kernels.scan:lower_cumulative",
    "argsort": "kernels.sort:lower_argsort",
    "searchsorted": "kernels.sort:lower_searchsorted",
    "random_uniform": "kernels.random:lower_random_uniform",
    "attention": "kernels.attention:lower_attention",
    "attention_grad": "kernels.attention:lower_attention_grad",
}
# Composites that are lowered whole, if they compute in floating point.
COMPOSITES = frozenset({"attention", "attention_grad", "matmul_int4"})
# The number of queries from which attention fills the vectors of its kernel. For fewer
# queries two products and a softmax are faster. A single query has a separate kernel.
MIN_ATTENTION_QUERIES = 25
ANCHORS = frozenset(
    {
        *("conv", "conv_input_grad", "conv_integer"),
        *("matmul", "matmul_int4", "matmul_integer"),
    }
)
# Primitives that some processors compute several times faster for bfloat16 factors.
PRODUCTS = frozenset({"conv", "conv_input_grad", "conv_kernel_grad", "matmul"})
# The ANCHORS that are lowered with copies of factors that are not contiguous.
CONTIGUOUS_ONLY = frozenset({"matmul_int4", "conv_integer"})


def can_round_factors(product: Node) -> bool:
    """Return whether a product, of one matrix or group, can round its factors."""
    if product.attrs.get("factors") != NARROW:
        return False
    if product.op.name == "matmul":
        return bool(prod(product.inputs[1].spec.shape[:-2]) == 1)
    return bool(product.attrs["groups"] == 1)


def takes_whole(node: Any) -> bool:
    """Return whether a composite is lowered without decomposition."""
    if node.op.name not in COMPOSITES:
        return False
    # bfloat16 values become float32 before lowering.
    input_dtypes = {x.spec.dtype for x in node.inputs}
    if node.op.name == "matmul_int4":
        return input_dtypes <= {"float32", "bfloat16", "int8", "uint8"}
    if node.op.name == "attention" and 1 < _query_count(node) < MIN_ATTENTION_QUERIES:
        return False
    return input_dtypes <= {"float32", "float64", "bfloat16", "bool"}


def _query_count(attention: Any) -> int:
    """Return the number of queries of each head."""
    count: int = attention.inputs[0].spec.shape[1]
    return count


def lowering(name: str) -> Lowering | None:
    """Return the lowering of a primitive; None if it has none."""
    entry = LOWERINGS.get(name)
    return _import_lowering(entry) if isinstance(entry, str) else entry


@cache
def _import_lowering(path: str) -> Lowering:
    module, _, function = path.partition(":")
    package = __name__.rpartition(".")[0]
    imported: Lowering = getattr(import_module(f"{package}.{module}"), function)
    return imported


def lower(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """Return the calls that compute a node, or None if NumPy must compute it.

    Args:
        node: a node of the primitive "fused" or of another primitive.
        inputs, outputs: the operands, in the order of the node's.
    """
    if any(is_complex(x.spec.dtype) for x in (*inputs, *outputs)):
        return None
    name, argument = node.op.name, node
    if name == "fused":
        body = node.attrs["body"]
        first = body.nodes[0].op.name
        is_copy = first == "stop_gradient" and len(body.nodes) == len(inputs) == 1
        name, argument = (first if first in ANCHORS or is_copy else name), body
    elif name in ANCHORS:
        argument = Graph(node.inputs, (node,), node.outputs)
    lower_node = lowering(name)
    if lower_node is None:
        return None
    lowered = lower_node(argument, inputs, outputs)
    if lowered is None and name in PRODUCTS:
        lowered = _lower_with_casts(lower_node, argument, inputs, outputs)
    if lowered is None and (argument is node or name in CONTIGUOUS_ONLY):
        return _lower_contiguous(lower_node, argument, inputs, outputs)
    return lowered


def _lower_with_casts(
    lower_node: Lowering,
    argument: Any,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
) -> Lowered | None:
    """Lower a product whose lowering supports float32 only, after casts of its factors.

    Return None if no factor is bfloat16.
    """
    product = argument.nodes[0] if isinstance(argument, Graph) else argument
    wide: dict[Any, Any] = {
        x: Value(x.spec.with_dtype(WIDE))
        for x in product.inputs
        if x.spec.dtype == NARROW
    }
    if not wide:
        return None
    casts = {
        i: contiguous(wide[x].spec) for i, x in enumerate(argument.inputs) if x in wide
    }
    argument = _replace_inputs(argument, wide)
    return lower_with_copies(casts, lower_node, argument, inputs, outputs)


def _replace_inputs(argument: Any, replacements: Mapping[Any, Any]) -> Any:
    """Replace the inputs of a node, or of all nodes of a body."""
    inputs = [replacements.get(x, x) for x in argument.inputs]
    if not isinstance(argument, Graph):
        return argument.with_inputs(inputs)
    nodes = [_replace_inputs(node, replacements) for node in argument.nodes]
    return Graph(tuple(inputs), tuple(nodes), argument.outputs)


def _lower_contiguous(
    lower_node: Lowering,
    argument: Any,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
) -> Lowered | None:
    """Lower a node that requires contiguous inputs, after copies of the other inputs.

    Return None if all inputs are contiguous.
    """
    views = [i for i, x in enumerate(inputs) if not x.is_contiguous]
    if not views:
        return None
    copies = {i: contiguous(inputs[i].spec) for i in views}
    return lower_with_copies(copies, lower_node, argument, inputs, outputs)


def lower_with_copies(
    copies: Mapping[int, Operand],
    lower_node: Lowering,
    argument: Any,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
) -> Lowered | None:
    """Return the calls of a node after copies of some inputs.

    Args:
        copies: the operands that the node reads instead, by input number.
        lower_node, argument, inputs, outputs: the lowering and its arguments.
    """
    read = [copies.get(i, x) for i, x in enumerate(inputs)]
    lowered = lower_node(argument, read, outputs)
    if lowered is None:
        return None
    calls: list[Any] = []
    references: dict[Reference, Reference] = {}
    work = lowered.work
    for i, copy in copies.items():
        reference = references["in", i] = "work", align_up(work)
        replacements = {("in", 0): ("in", i), ("out", 0): reference}
        size = align_up(copy.spec.nbytes)
        copying = (
            replace(call, prepares=size) for call in _copy_calls(inputs[i], copy)
        )
        calls += [redirect_operands(call, replacements) for call in copying]
        work = reference[1] + size
    calls += [redirect_operands(call, references) for call in lowered.calls]
    return Lowered(calls, work)


def _copy_calls(source: Operand, copy: Operand) -> Sequence[Call]:
    """Return the calls that copy an operand in row-major order."""
    if source.spec.dtype == copy.spec.dtype:
        lowered = _import_lowering(_COPY)(None, [source], [copy])
    else:
        cast = cast_node(Value(source.spec), Value(copy.spec))
        body = Graph(cast.inputs, (cast,), cast.outputs)
        lowered = _import_lowering(_FUSED)(body, [source], [copy])
    assert lowered is not None and not lowered.work
    return lowered.calls


def prepared(lowered: Lowered, frozen: Collection[int], result: int = 0) -> Lowered:
    """Move calls that depend on frozen inputs only out of the calls of each run.

    Args:
        lowered: the calls of a node.
        frozen: the numbers of the inputs that never change.
        result: the size in bytes of the only output if it can be computed once, too;
            otherwise 0. If one call computes it, it becomes the operand ("kept", 0),
            and each run has no calls.
    """
    if result and len(lowered.calls) == 1 and not lowered.work:
        call = lowered.calls[0]
        if isinstance(call, Call) and all(o[0] in ("in", "out") for o in call.operands):
            lowered = Lowered([replace(call, prepares=result)])
    calls: list[Call] = []
    prepared_calls: list[Call] = []
    references: dict[Reference, Reference] = {}
    gaps: dict[int, int] = {}
    for call in lowered.calls:
        is_known = all(number in frozen for _, number in call.inputs)
        # A call that packs a copy runs again whenever the copy runs.
        if call.prepares and call.has_single_destination and is_known:
            destination = call.destination
            references[destination] = "kept", len(prepared_calls)
            if destination[0] == "work":
                gaps[destination[1]] = align_up(call.prepares)
            # It runs alone and not in a chain of rows.
            prepared_calls.append(replace(call, row_operands=frozenset()))
        else:
            calls.append(call)
    if not prepared_calls:
        return lowered
    for call in calls:
        for kind, start in call.operands:
            if kind == "work" and start not in gaps:
                before = sum(size for gap, size in gaps.items() if gap < start)
                references[kind, start] = kind, start - before
    return Lowered(
        [redirect_operands(call, references) for call in calls],
        lowered.work - sum(gaps.values()),
        [redirect_operands(call, references) for call in prepared_calls],
        [call.prepares for call in prepared_calls],
    )


def redirect_operands(call: Call, references: Mapping[Reference, Reference]) -> Call:
    """Return the call with some of its operands replaced."""
    return replace(
        call,
        operands=tuple(references.get(o, o) for o in call.operands),
        row_operands=frozenset(references.get(o, o) for o in call.row_operands),
    )
