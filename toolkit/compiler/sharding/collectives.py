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
from toolkit.comm.overlap import background_of
from toolkit.compiler.control import COLLECTIVE_KERNELS
from toolkit.compiler.sharding.layouts import MeshAxis, Partial, Split
from toolkit.ir import Kind, Node, Primitive, Spec

Array = Any
Run = Callable[[], None]
TOKEN = Spec((), "uint8")


def _reduced_spec(
    *inputs: Spec,
    axis: MeshAxis,
    terms: Sequence[Partial],
    specs: Sequence[Spec],
    ready: int = 0,
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
    *inputs: Spec,
    axis: MeshAxis,
    term: Partial,
    split: Split,
    whole: Spec,
    ready: int = 0,
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
    ready: int = 0,
) -> Run:
    """Combine terms of all ranks; those of one kind go together.

    The pieces of each sum are the first of the inputs. `ready` is the number of the
    operation, in the order of the whole graph, that gives the last of them.
    """
    given = iter(inputs)
    pieces = [[next(given) for _ in pieces_of(axis, t.units)] for t in terms]
    kinds = {
        kind: [i for i, term in enumerate(terms) if term == kind]
        for kind in dict.fromkeys(terms)
    }

    def prepared() -> list[Run]:
        return [
            run
            for kind, same in kinds.items()
            for run in ordered.prepare_all_reduce(
                axis.group,
                [[np.asarray(x, order="C") for x in pieces[i]] for i in same],
                axis.present(kind.units),
                [out[i] for i in same],
                kind.op,
            )
        ]

    if all(x.flags.c_contiguous for mine in pieces for x in mine):
        return partial(_run_all, prepared())
    return lambda: _run_all(prepared())  # copies, of what is there then


def _run_all(runs: Sequence[Run]) -> None:
    for run in runs:
        run()


def _reduce_scatter(
    *inputs: Array,
    out: Sequence[Array],
    axis: MeshAxis,
    term: Partial,
    split: Split,
    whole: Spec,
    ready: int = 0,
) -> Run:
    """Combine terms of all ranks, and keep this rank's rows of the result."""
    count = len(pieces_of(axis, term.units))
    leaves, units = axis.present(term.units), split.units(whole)

    def run() -> None:
        pieces = [np.asarray(x, order="C") for x in inputs[:count]]
        if units % axis.group.size == 0 and axis.leaves % axis.group.size == 0:
            ordered.reduce_scatter(axis.group, pieces, leaves, out[0], term.op)
            return
        result = np.empty(whole.shape, out[0].dtype)
        ordered.all_reduce(axis.group, [pieces], leaves, [result], term.op)
        out[0][...] = result[axis.part(split, whole)]

    return run


def _all_gather(
    x: Array,
    token: Array,
    out: Sequence[Array],
    axis: MeshAxis,
    split: Split,
    whole: Spec,
) -> Run:
    """Put the parts of all ranks together."""
    return partial(gather, x, out[0], axis, split)


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


class CollectiveKernel:
    """How the host runs a collective.

    Args:
        prepare: given arrays and attributes, returns what runs on them.
        node: that it is for.
        label: what it is for, for who watches.

    Attributes:
        background: what runs it beside other steps, if it does not run as one.
    """

    def __init__(self, prepare: Callable[..., Run], node: Node, label: str) -> None:
        self._prepare = prepare
        self.background = background_of(node.attrs["axis"].group)
        self._label = label

    def __call__(self, *arrays: Array, **options: Any) -> None:
        self.on(*arrays, **options)()

    def on(self, *arrays: Array, **options: Any) -> Run:
        """What runs on arrays that stay; the first time, it prepares that."""
        found: list[Run] = []

        def run() -> None:
            with comm.named(self._label):
                if not found:
                    found.append(self._prepare(*arrays, **options))
                found[0]()

        return run


COLLECTIVE_KERNELS.update(
    all_reduce=partial(CollectiveKernel, _all_reduce),
    reduce_scatter=partial(CollectiveKernel, _reduce_scatter),
    all_gather=partial(CollectiveKernel, _all_gather),
)
