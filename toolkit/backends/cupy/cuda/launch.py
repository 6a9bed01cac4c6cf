"""Launches of generated kernels: the data types, and the table of generators.

A generator is `generate(node, inputs, outputs, aligned)`. It returns the launches that
compute the node, in order, or None if no generated kernel applies. All of it is plain
data and needs no device; the parent package loads and runs it.
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
    "rebase_launch",
    "scratch_bytes",
]


@record
class Kernel:
    """Complete CUDA source with one `extern "C"` kernel.

    Attributes:
        name: of the kernel; only equal sources share a name.
        source: the text to compile, without includes.
        parameters: the C types of the arguments.
        batched: the batched kernel for many launches of this one, or None;
            `batched_launch.build_table` builds its table.
        strides: if `batched` is set, the bytes that each address advances per `count`.
    """

    name: str
    source: str
    parameters: tuple[str, ...]
    batched: Kernel | None = None
    strides: tuple[int, ...] = ()


@record
class Buffer:
    """Address of an operand: the inputs in order, then the outputs."""

    index: int


@record
class Scratch:
    """Address of scratch memory, which the launches of one node share."""

    offset: int
    nbytes: int


@record
class Scalar:
    """Constant number of a launch."""

    value: int | float
    ctype: str = "long long"


@record
class Problem:
    """Address of three int64 in device memory, all zero without errors.

    A kernel that finds a bad index writes 1, the index, and the limit.
    """


@record
class Table:
    """Address of rows of int64 in device memory: addresses and plain numbers."""

    rows: tuple[tuple[Buffer | Scratch | int, ...], ...]


Argument = Buffer | Scratch | Scalar | Problem | Table


@record
class Launch:
    """Launch of a kernel.

    Attributes:
        kernel: the kernel.
        grid, block: the number of blocks, and of threads per block.
        arguments: one for each parameter of the kernel.
        shared_bytes: dynamic shared memory.
        problem: the error message for a bad index, with {index} and {limit}.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0
    problem: str = ""


def scratch_bytes(launches: Sequence[Launch]) -> int:
    """Return the bytes of scratch memory that the launches of a node share."""
    arguments = [a for launch in launches for a in launch.arguments]
    arguments += [
        word
        for a in arguments
        if isinstance(a, Table)
        for row in a.rows
        for word in row
        if isinstance(word, Scratch)
    ]
    ends = [a.offset + a.nbytes for a in arguments if isinstance(a, Scratch)]
    return max(ends, default=0)


def rebase_launch(
    launch: Launch, addresses: Sequence[Buffer | Scratch], base: int
) -> Launch:
    """Return a launch with each buffer replaced, and scratch memory from `base`."""

    def address(word: Any) -> Any:
        if isinstance(word, Buffer):
            return addresses[word.index]
        if isinstance(word, Scratch):
            return replace(word, offset=word.offset + base)
        return word

    def argument(found: Argument) -> Argument:
        if isinstance(found, Table):
            rows = (tuple(address(word) for word in row) for row in found.rows)
            return Table(tuple(rows))
        return address(found)  # type: ignore[no-any-return]

    return replace(launch, arguments=tuple(map(argument, launch.arguments)))


def make_kernel(family: str, text: str, parameters: Sequence[str]) -> Kernel:
    """Return a kernel with a name derived from its text.

    Args:
        family: the prefix of the name.
        text: the source, with `KERNEL` as the placeholder of the name.
        parameters: the C types of the arguments.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    name = f"{family}_{digest}"
    return Kernel(name, text.replace("KERNEL", name), tuple(parameters))


Generator = Callable[
    [Any, Sequence[Operand], Sequence[Operand], bool], Sequence[Launch] | None
]

# Generator of primitives that have a scalar rule.
_SCALAR_RULE = "fused:generate_single"
# The generator of each primitive, or its location as a module of this package. "fused"
# is the generator of whole bodies. Elementwise primitives need no entry.
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


def find_generator(op: Primitive) -> Generator | None:
    """Return the generator of a primitive, or None."""
    found = GENERATORS.get(op.name, _SCALAR_RULE if op.scalar else None)
    return _import(found) if isinstance(found, str) else found


@cache
def _import(location: str) -> Generator:
    module, _, function = location.partition(":")
    package = __name__.rpartition(".")[0]
    found: Generator = getattr(import_module(f"{package}.{module}"), function)
    return found


def generate(
    node: Any,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    aligned: bool = True,
) -> tuple[Launch, ...] | None:
    """Return the launches that compute a node, or None if no generated kernel applies.

    Args:
        node: of a fused or of any other primitive.
        inputs, outputs: the operands in the order of the node; outputs are whole arrays
            in row-major order.
        aligned: whether the addresses of all operands are multiples of 16.
    """
    if any(is_complex(x.spec.dtype) for x in (*inputs, *outputs)):
        return None
    make = find_generator(node.op)
    launches = make and make(node, inputs, outputs, aligned)
    return None if launches is None else tuple(launches)
