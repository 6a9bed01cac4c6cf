"""Launches of generated kernels: plain data that needs no device.

The parent package loads and runs it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toolkit.definitions.records import record
from toolkit.plans.rules import rules


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
        is_contracted: whether a product and a sum may be one rounded operation.
            Otherwise the bits of an element do not depend on the fusion of its nodes.
    """

    name: str
    source: str
    parameters: tuple[str, ...]
    batched: Kernel | None = None
    strides: tuple[int, ...] = ()
    is_contracted: bool = True


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

    def argument(value: Argument) -> Argument:
        if isinstance(value, Table):
            rows = (tuple(address(word) for word in row) for row in value.rows)
            return Table(tuple(rows))
        return address(value)  # type: ignore[no-any-return]

    return replace(launch, arguments=tuple(map(argument, launch.arguments)))


def make_kernel(family: str, text: str, parameters: Sequence[str]) -> Kernel:
    """Return a kernel with a name derived from its text.

    Args:
        family: the prefix of the name.
        text: the source, with `KERNEL` as the placeholder of the name.
        parameters: the C types of the arguments.
    """
    is_contracted = not rules.rows_independent
    # Kernels with the same text and different options have different names.
    content = text if is_contracted else f"{text}// without contraction\n"
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    name = f"{family}_{digest}"
    return Kernel(
        name,
        text.replace("KERNEL", name),
        tuple(parameters),
        is_contracted=is_contracted,
    )
