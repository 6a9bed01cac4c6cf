"""How a node becomes launches of generated kernels: the vocabulary, and one table.

A generator is `generate(node, inputs, outputs, aligned)`; it returns the launches that
compute the node, in order, or None where no generated kernel fits. All is plain data,
made without a device: what loads and runs it stands beside this package.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

from toolkit.backends.base import Operand, contiguous
from toolkit.backends.loops.iteration_space import REDUCTIONS
from toolkit.definitions.records import record
from toolkit.dtypes import is_complex
from toolkit.ir import Primitive

__all__ = [
    "Operand",
    "contiguous",
    "generate",
    "make_kernel",
    "moved",
    "scratch_bytes",
]


@record
class Kernel:
    """One complete CUDA source with one `extern "C"` kernel.

    Attributes:
        name: of the kernel; only equal sources share it.
        source: the text to compile, which includes nothing.
        parameters: the C types of the arguments.
        many: the kernel for many launches of this one, if there is one:
            `batched_launch.rows_of` makes its table.
        strides: if so, the bytes that each address reaches further for every `count`.
    """

    name: str
    source: str
    parameters: tuple[str, ...]
    many: Kernel | None = None
    strides: tuple[int, ...] = ()


@record
class Buffer:
    """The address of an operand: the inputs in order, then the outputs."""

    index: int


@record
class Scratch:
    """The address of scratch memory, which the launches of one node share."""

    offset: int
    nbytes: int


@record
class Scalar:
    """A number that is known now."""

    value: int | float
    ctype: str = "long long"


@record
class Problem:
    """The address of three int64 in device memory, all zero as long as all is well.

    A kernel that meets a bad index writes 1, the index, and the limit.
    """


@record
class Table:
    """The address of rows of int64 in device memory: addresses, and plain numbers."""

    rows: tuple[tuple[Buffer | Scratch | int, ...], ...]


Argument = Buffer | Scratch | Scalar | Problem | Table


@record
class Launch:
    """One launch of a kernel.

    Attributes:
        kernel: what runs.
        grid, block: how many blocks, and threads of each.
        arguments: one for each parameter of the kernel.
        shared_bytes: dynamic shared memory.
        problem: what to say of a bad index, with {index} and {limit}.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0
    problem: str = ""


def scratch_bytes(launches: Sequence[Launch]) -> int:
    """The bytes of scratch memory that the launches of a node share."""
    found = [a for launch in launches for a in launch.arguments]
    found += [
        word
        for a in found
        if isinstance(a, Table)
        for row in a.rows
        for word in row
        if isinstance(word, Scratch)
    ]
    ends = [a.offset + a.nbytes for a in found if isinstance(a, Scratch)]
    return max(ends, default=0)


def moved(launch: Launch, places: Sequence[Buffer | Scratch], base: int) -> Launch:
    """A launch on other places: of each buffer, and where its scratch begins."""

    def place(word: Any) -> Any:
        if isinstance(word, Buffer):
            return places[word.index]
        if isinstance(word, Scratch):
            return replace(word, offset=word.offset + base)
        return word

    def argument(found: Argument) -> Argument:
        if isinstance(found, Table):
            rows = (tuple(place(word) for word in row) for row in found.rows)
            return Table(tuple(rows))
        return place(found)  # type: ignore[no-any-return]

    return replace(launch, arguments=tuple(map(argument, launch.arguments)))


def make_kernel(family: str, text: str, parameters: Sequence[str]) -> Kernel:
    """A kernel whose name is made from its text.

    Args:
        family: the beginning of the name.
        text: the source, in which `KERNEL` stands for the name.
        parameters: the C types of the arguments.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    name = f"{family}_{digest}"
    return Kernel(name, text.replace("KERNEL", name), tuple(parameters))


Generator = Callable[
    [Any, Sequence[Operand], Sequence[Operand], bool], Sequence[Launch] | None
]

# Where the generator is of what has a scalar rule.
_OF_RULES = "fused:generate_single"
# The generator of each primitive, or where it is, by module of this package; "fused" is
# that of whole bodies. What is elementwise needs none of its own.
GENERATORS: dict[str, str | Generator] = {
    "fused": "fused:generate_fused",
    **dict.fromkeys(REDUCTIONS, "fused:generate_reduction"),
    **dict.fromkeys(("reshape", "transpose", "broadcast_to"), "move:generate_copy"),
    **dict.fromkeys(("bitcast", "stop_gradient"), "move:generate_copy"),
    **dict.fromkeys(("matmul", "matmul_integer"), "products:generate_matmul"),
    "gather": "index:generate_gather",
    "take_along_axis": "index:generate_take_along_axis",
    "scatter": "index:generate_scatter",
    "put_along_axis": "index:generate_put_along_axis",
    **dict.fromkeys(("cumsum", "cumprod"), "scan:generate_cumulative"),
    "random_uniform": "random:generate_random_uniform",
    "max_pool": "pool:generate_max_pool",
    "max_pool_gather": "pool:generate_max_pool_gather",
    "max_pool_scatter": "pool:generate_max_pool_scatter",
    "sum_pool": "pool:generate_sum_pool",
    "sum_pool_grad": "pool:generate_sum_pool_grad",
    "argsort": "sort:generate_argsort",
    "searchsorted": "sort:generate_searchsorted",
    "slice": "move:generate_slice",
    "concatenate": "move:generate_concatenate",
    "pad": "move:generate_pad",
    "dynamic_slice": "move:generate_dynamic_slice",
    "dynamic_update_slice": "move:generate_dynamic_update_slice",
}


def generator(op: Primitive) -> Generator | None:
    """The generator of a primitive, None if it has none."""
    found = GENERATORS.get(op.name, _OF_RULES if op.scalar else None)
    return _imported(found) if isinstance(found, str) else found


@cache
def _imported(place: str) -> Generator:
    module, _, function = place.partition(":")
    package = __name__.rpartition(".")[0]
    found: Generator = getattr(import_module(f"{package}.{module}"), function)
    return found


def generate(
    node: Any,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    aligned: bool = True,
) -> tuple[Launch, ...] | None:
    """The launches that compute a node, or None where no generated kernel fits.

    Args:
        node: of a fused or of any other primitive.
        inputs, outputs: the operands in the order of the node's; outputs are whole
            arrays in row-major order.
        aligned: whether the addresses of all operands are multiples of 16.
    """
    if any(is_complex(x.spec.dtype) for x in (*inputs, *outputs)):
        return None
    make = generator(node.op)
    launches = make and make(node, inputs, outputs, aligned)
    return None if launches is None else tuple(launches)
