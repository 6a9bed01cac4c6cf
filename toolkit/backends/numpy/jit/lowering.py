"""How a node becomes calls of generated functions: the vocabulary, and one table.

A lowering is `lower(node, inputs, outputs)` and returns a `Lowered`, or None where no
generated function fits; those that may take an epilogue get a Graph instead of a node,
whose first node is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from importlib import import_module
from math import prod
from typing import Any

from toolkit.backends.base import Operand, aligned, contiguous
from toolkit.backends.loops.iteration_space import index_problem
from toolkit.backends.loops.planner import TASKS
from toolkit.backends.numpy.jit.code import Code
from toolkit.backends.numpy.jit.math.bfloat16 import NARROW, WIDE
from toolkit.definitions.records import record
from toolkit.dtypes import is_complex
from toolkit.ir import Graph, Node, Value, cast_node

# What lowerings take from here, some of it from elsewhere.
__all__ = ["TASKS", "Call", "Lowered", "Operand", "contiguous", "index_problem"]

# ("in" | "out" | "work" | "error", which one, or the offset in bytes).
Reference = tuple[str, int]
ERROR: Reference = ("error", 0)


@record
class Call:
    """One generated function on its operands, and how its work divides.

    Attributes:
        code: the function.
        operands: whose addresses stand in the table, in this order.
        numbers: what follows the addresses in the table.
        rows: the independent units of work; 0: nothing to do.
        grain: rows of one task. A function of shapes only.
        row_operands: those of which rows [low, high) touch only the same share of the
            leading extent, so that chains of calls can run a few rows at a time.
        flops, nbytes: arithmetic and memory traffic of all rows.
        prepares: the bytes of its only operand that is no input, if all that the call
            does is to write there what follows from the others, and later calls only
            read it; else 0.
        is_stream: whether its rows read on in memory where the ones before them end, so
            that a thread that is alone should run all of them as one task. What a row
            computes may not depend on its task then.
        problem: what to say of a bad index, with {index} and {limit}, as the NumPy
            kernel of the primitive does.
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

    # Whether it can run on any thread beside other calls.
    can_branch = True

    @property
    def codes(self) -> list[Code]:
        """The functions that it runs."""
        return [self.code]

    @property
    def given(self) -> list[Reference]:
        """The operands that are inputs."""
        return [place for place in self.operands if place[0] == "in"]

    @property
    def follows_from_inputs(self) -> bool:
        """Whether it reads inputs alone, to write one operand."""
        return len(self.operands) - len(self.given) == 1

    @property
    def made(self) -> Reference:
        """The operand that a call that prepares something writes."""
        (found,) = (place for place in self.operands if place[0] != "in")
        return found

    @property
    def recipe(self) -> Hashable:
        """Equal for calls that make the same of the same operands."""
        return self.code, self.numbers, self.rows

    @property
    def tasks(self) -> int:
        """How many tasks the rows divide into."""
        return -(-self.rows // self.grain)


@record
class Lowered:
    """The calls of a node, in order, and the bytes of scratch memory they share.

    Attributes:
        calls: of each run.
        work: the bytes of scratch memory.
        prepared: calls that one run is enough for.
        kept: the bytes of what each of those makes: the operands ("kept", number).
    """

    calls: Sequence[Call] = field(default_factory=tuple)
    work: int = 0
    prepared: Sequence[Call] = ()
    kept: Sequence[int] = ()


def partition(rows: int, most: int = TASKS) -> int:
    """The grain of rows, of no more than so many tasks, which are one at least.

    Consecutive calls on the rows of a batch share one partition.
    """
    return max(1, -(-rows // max(1, min(TASKS, most))))


def operands_of(body: Graph) -> tuple[Reference, ...]:
    """Where the inputs and outputs of a body are."""
    inputs: list[Reference] = [("in", i) for i in range(len(body.inputs))]
    return (*inputs, *(("out", i) for i in range(len(body.outputs))))


Lowering = Callable[[Any, Sequence[Operand], Sequence[Operand]], Lowered | None]

# The lowering of each primitive, or where it is, by module of this package. Those in
# ANCHORS take a Graph: their node, followed by elementwise nodes on its result.
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
# Composites that need not be taken apart, where what they compute with is a float.
COMPOSITES = frozenset({"attention", "attention_grad", "matmul_int4"})
# Queries that fill the vectors of attention's kernel. For fewer, but for one, which has
# a kernel of its own, two products and a softmax are quicker.
FEWEST_TARGETS = 25
ANCHORS = frozenset(
    {
        *("conv", "conv_input_grad", "conv_integer"),
        *("matmul", "matmul_int4", "matmul_integer"),
    }
)
# What some processors compute several times as fast if the factors are bfloat16.
PRODUCTS = frozenset({"conv", "conv_input_grad", "conv_kernel_grad", "matmul"})
# Those of ANCHORS that are lowered behind copies of factors that are not contiguous.
STRAIGHT = frozenset({"matmul_int4", "conv_integer"})


def may_round(product: Node) -> bool:
    """Whether a product, of one matrix or group, may round its factors to bfloat16."""
    if product.attrs.get("factors") != NARROW:
        return False
    if product.op.name == "matmul":
        return bool(prod(product.inputs[1].spec.shape[:-2]) == 1)
    return bool(product.attrs["groups"] == 1)


def takes_whole(node: Any) -> bool:
    """Whether a composite is lowered as it is."""
    if node.op.name not in COMPOSITES:
        return False
    # What is bfloat16 becomes float32 before it is lowered.
    found = {x.spec.dtype for x in node.inputs}
    if node.op.name == "matmul_int4":
        return found <= {"float32", "bfloat16", "int8", "uint8"}
    if node.op.name == "attention" and 1 < _targets(node) < FEWEST_TARGETS:
        return False
    return found <= {"float32", "float64", "bfloat16", "bool"}


def _targets(attention: Any) -> int:
    """How many queries each head has."""
    count: int = attention.inputs[0].spec.shape[1]
    return count


def lowering(name: str) -> Lowering | None:
    """The lowering of a primitive, None if it has none."""
    found = LOWERINGS.get(name)
    return _imported(found) if isinstance(found, str) else found


@cache
def _imported(place: str) -> Lowering:
    module, _, function = place.partition(":")
    package = __name__.rpartition(".")[0]
    found: Lowering = getattr(import_module(f"{package}.{module}"), function)
    return found


def lower(
    node: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Lowered | None:
    """The calls that compute a node, or None if NumPy has to.

    Args:
        node: of a fused or of any other primitive.
        inputs, outputs: the operands in the order of the node's.
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
        lowered = _of_wide(lower_node, argument, inputs, outputs)
    if lowered is None and (argument is node or name in STRAIGHT):
        return _of_copies(lower_node, argument, inputs, outputs)
    return lowered


def _of_wide(
    lower_node: Lowering,
    argument: Any,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
) -> Lowered | None:
    """A product that is lowered for float32 only, behind casts of its factors.

    None if none of them is bfloat16.
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
    argument = _reading(argument, wide)
    return behind_copies(casts, lower_node, argument, inputs, outputs)


def _reading(argument: Any, instead: Mapping[Any, Any]) -> Any:
    """A node, or all nodes of a body, that read other values instead of some."""
    inputs = [instead.get(x, x) for x in argument.inputs]
    if not isinstance(argument, Graph):
        return argument.with_inputs(inputs)
    nodes = [_reading(node, instead) for node in argument.nodes]
    return Graph(tuple(inputs), tuple(nodes), argument.outputs)


def _of_copies(
    lower_node: Lowering,
    argument: Any,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
) -> Lowered | None:
    """What is lowered for contiguous inputs only, behind copies of those that are not.

    None if strides are not why nothing fits.
    """
    views = [i for i, x in enumerate(inputs) if not x.is_contiguous]
    if not views:
        return None
    copies = {i: contiguous(inputs[i].spec) for i in views}
    return behind_copies(copies, lower_node, argument, inputs, outputs)


def behind_copies(
    copies: Mapping[int, Operand],
    lower_node: Lowering,
    argument: Any,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
) -> Lowered | None:
    """The calls of a node behind those that copy some inputs.

    Args:
        copies: by the numbers of the inputs, as the node reads them.
        lower_node, argument, inputs, outputs: what is lowered, and of what.
    """
    read = [copies.get(i, x) for i, x in enumerate(inputs)]
    lowered = lower_node(argument, read, outputs)
    if lowered is None:
        return None
    calls: list[Any] = []
    places: dict[Reference, Reference] = {}
    work = lowered.work
    for i, copy in copies.items():
        place = places["in", i] = "work", aligned(work)
        instead = {("in", 0): ("in", i), ("out", 0): place}
        size = aligned(copy.spec.nbytes)
        copying = (replace(call, prepares=size) for call in _copying(inputs[i], copy))
        calls += [redirected(call, instead) for call in copying]
        work = place[1] + size
    calls += [redirected(call, places) for call in lowered.calls]
    return Lowered(calls, work)


def _copying(source: Operand, copy: Operand) -> Sequence[Call]:
    """The calls that write the elements of an operand in row-major order."""
    if source.spec.dtype == copy.spec.dtype:
        lowered = _imported(_COPY)(None, [source], [copy])
    else:
        cast = cast_node(Value(source.spec), Value(copy.spec))
        body = Graph(cast.inputs, (cast,), cast.outputs)
        lowered = _imported(_FUSED)(body, [source], [copy])
    assert lowered is not None and not lowered.work
    return lowered.calls


def prepared(lowered: Lowered, frozen: Collection[int], result: int = 0) -> Lowered:
    """The same where some inputs never change: what they decide alone is made once.

    Args:
        lowered: the calls of a node.
        frozen: the numbers of the inputs that never change.
        result: the bytes of the only output if that may be made once, too, which it
            is if one call makes it: the operand ("kept", 0), and no calls are left.
    """
    if result and len(lowered.calls) == 1 and not lowered.work:
        call = lowered.calls[0]
        if isinstance(call, Call) and all(o[0] in ("in", "out") for o in call.operands):
            lowered = Lowered([replace(call, prepares=result)])
    calls: list[Call] = []
    once: list[Call] = []
    places: dict[Reference, Reference] = {}
    gaps: dict[int, int] = {}
    for call in lowered.calls:
        is_known = all(number in frozen for _, number in call.given)
        # What is packed of a copy is packed again where the copy is.
        if call.prepares and call.follows_from_inputs and is_known:
            made = call.made
            places[made] = "kept", len(once)
            if made[0] == "work":
                gaps[made[1]] = aligned(call.prepares)
            # It runs alone, in no chain of rows.
            once.append(replace(call, row_operands=frozenset()))
        else:
            calls.append(call)
    if not once:
        return lowered
    for call in calls:
        for kind, start in call.operands:
            if kind == "work" and start not in gaps:
                before = sum(size for gap, size in gaps.items() if gap < start)
                places[kind, start] = kind, start - before
    return Lowered(
        [redirected(call, places) for call in calls],
        lowered.work - sum(gaps.values()),
        [redirected(call, places) for call in once],
        [call.prepares for call in once],
    )


def redirected(call: Call, places: Mapping[Reference, Reference]) -> Call:
    """The call with some of its operands in other places."""
    return replace(
        call,
        operands=tuple(places.get(o, o) for o in call.operands),
        row_operands=frozenset(places.get(o, o) for o in call.row_operands),
    )
