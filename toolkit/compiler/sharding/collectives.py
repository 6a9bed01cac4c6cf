"""Collectives as nodes of a graph: what they compute, and how the host runs them.

A token goes from each to the next, so that no pass can change their order: all ranks
have to call them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from toolkit import comm
from toolkit.comm import ordered
from toolkit.comm.leaves import Subtree, pieces_of_ranks
from toolkit.compiler.control import COLLECTIVE_KERNELS
from toolkit.compiler.sharding.layouts import MeshAxis, Partial, Split
from toolkit.ir import Kind, Primitive, Spec

Array = Any
TOKEN = Spec((), "uint8")


def _reduced_spec(
    *inputs: Spec, axis: MeshAxis, terms: Sequence[Partial], specs: Sequence[Spec]
) -> Any:
    return (*specs, TOKEN)


def _gathered_spec(
    x: Spec, token: Spec, axis: MeshAxis, split: Split, whole: Spec
) -> Any:
    return whole, TOKEN


# Not in the registry: the compiler alone puts them into a graph.
all_reduce_p: Primitive = Primitive("all_reduce", Kind.COLLECTIVE, _reduced_spec)
all_gather_p: Primitive = Primitive("all_gather", Kind.COLLECTIVE, _gathered_spec)


def _scattered_spec(
    *inputs: Spec, axis: MeshAxis, term: Partial, split: Split, whole: Spec
) -> Any:
    return split.local(whole, len(axis.rows(split.units(whole)))), TOKEN


reduce_scatter_p: Primitive = Primitive(
    "reduce_scatter", Kind.COLLECTIVE, _scattered_spec
)


def pieces_of(axis: MeshAxis, units: int) -> Sequence[Subtree]:
    """The subtrees that this rank brings."""
    return pieces_of_ranks(axis.present(units), axis.group.size)[axis.group.rank]


def _all_reduce(
    *inputs: Array,
    out: Sequence[Array],
    axis: MeshAxis,
    terms: Sequence[Partial],
    specs: Sequence[Spec],
) -> None:
    """Combine terms of all ranks; those of one kind go together.

    The pieces of each sum are the first of the inputs.
    """
    given = iter(inputs)
    pieces = [[next(given) for _ in pieces_of(axis, t.units)] for t in terms]
    for kind in dict.fromkeys(terms):
        same = [i for i, term in enumerate(terms) if term == kind]
        ordered.all_reduce(
            axis.group,
            [[np.asarray(x, order="C") for x in pieces[i]] for i in same],
            axis.present(kind.units),
            [out[i] for i in same],
            kind.op,
        )


def _reduce_scatter(
    *inputs: Array,
    out: Sequence[Array],
    axis: MeshAxis,
    term: Partial,
    split: Split,
    whole: Spec,
) -> None:
    """Combine terms of all ranks, and keep this rank's rows of the result."""
    count = len(pieces_of(axis, term.units))
    pieces = [np.asarray(x, order="C") for x in inputs[:count]]
    leaves, units = axis.present(term.units), split.units(whole)
    if units % axis.group.size == 0 and axis.leaves % axis.group.size == 0:
        ordered.reduce_scatter(axis.group, pieces, leaves, out[0], term.op)
        return
    result = np.empty(whole.shape, out[0].dtype)
    ordered.all_reduce(axis.group, [pieces], leaves, [result], term.op)
    out[0][...] = result[axis.part(split, whole)]


def _all_gather(
    x: Array,
    token: Array,
    out: Sequence[Array],
    axis: MeshAxis,
    split: Split,
    whole: Spec,
) -> None:
    """Put the parts of all ranks together."""
    gather(x, out[0], axis, split)


def gather(x: Array, out: Array, axis: MeshAxis, split: Split) -> None:
    """Put the parts of all ranks together into an array of the whole value."""
    outer = prod(out.shape[: split.axis]) * split.major
    inner = split.minor * prod(out.shape[split.axis + 1 :])
    units, ranks = out.shape[split.axis], range(axis.group.size)
    units //= split.major * split.minor
    counts = [len(axis.rows(units, rank)) for rank in ranks]
    sizes = [count * outer * inner * x.dtype.itemsize for count in counts]
    # Parts that follow each other in memory are received where they belong.
    result = out.reshape(outer, units, inner)
    joined = result if outer == 1 else np.empty(result.size, x.dtype)
    axis.group.all_gather_varying(np.asarray(x, order="C"), joined, sizes)
    start = 0
    for rank in ranks if outer > 1 else ():
        rows, size = axis.rows(units, rank), counts[rank] * outer * inner
        part = joined[start : start + size].reshape(outer, counts[rank], inner)
        result[:, rows.start : rows.stop] = part
        start += size


def _labelled(kernel: Callable[..., None], label: str) -> Callable[..., None]:
    """A kernel that tells who watches for what it is called."""

    def run(*arrays: Array, **options: Any) -> None:
        with comm.named(label):
            kernel(*arrays, **options)

    return run


COLLECTIVE_KERNELS.update(
    all_reduce=partial(_labelled, _all_reduce),
    reduce_scatter=partial(_labelled, _reduce_scatter),
    all_gather=partial(_labelled, _all_gather),
)
