"""Plans of tree reductions between devices: transfers, kernels and gathers.

The trees are the same as in `ordered`, so the results are bitwise equal. Each rank
computes its plan from the same terms. Sends and receives match in order. A plan
contains no addresses; the executor maps its locations to addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from toolkit import dtypes
from toolkit.comm.leaves import Leaves, Subtree, combine_subtree
from toolkit.comm.ordered import IDENTITY_ELEMENTS, OPERATIONS
from toolkit.definitions.records import record
from toolkit.errors import ArgumentError, unknown_choice

# Up to this number of bytes, each rank gets all pieces and combines them itself.
MAX_DIRECT_SIZE = 8 << 10
# Alignment of received data in bytes, sufficient for wide loads.
ALIGNMENT = 256
# Combination tree: the index of a piece, or two subtrees.
Tree: TypeAlias = "int | tuple[Tree, Tree]"


class Term(NamedTuple):
    """Tensor of which each rank has some pieces.

    Attributes:
        size: the number of elements.
        dtype: the dtype of the elements.
        leaves: the leaves of the pieces.
        op: the operation: "sum", "prod", "max", "min", "any" or "all".
    """

    size: int
    dtype: str
    leaves: Leaves
    op: str = "sum"


class Location(NamedTuple):
    """Memory location of a rank.

    Attributes:
        kind: "piece" for an input piece, "out" for a result, or "scratch".
        number: the index within the kind; pieces are numbered across all terms.
        offset: the offset in bytes.
    """

    kind: str
    number: int
    offset: int


class Move(NamedTuple):
    """Bytes to send to, or receive from, another rank."""

    peer: int
    location: Location
    nbytes: int


class ShardGather(NamedTuple):
    """Equal parts of all ranks to gather."""

    shard: Location
    full: Location
    nbytes: int  # of a part


@record
class Transfer:
    """Concurrent sends and receives, matched in order between two ranks."""

    sends: tuple[Move, ...]
    receives: tuple[Move, ...]


@record
class Combine:
    """Kernel that combines pieces elementwise along a tree.

    Attributes:
        dtype, op: as in a `Term`.
        size: the number of elements.
        local_pieces: the pieces of this rank; they have the first indices of the tree.
        received: the start of the pieces of other ranks, or None.
        stride: the distance between received pieces in bytes.
        tree: the combination tree.
        target: the destination, which can overlap one of this rank's pieces.
    """

    dtype: str
    op: str
    size: int
    local_pieces: tuple[Location, ...]
    received: Location | None
    stride: int
    tree: Tree | None
    target: Location


@record
class AllGather:
    """All-gather of parts of several tensors."""

    gathers: tuple[ShardGather, ...]


class LibraryTerm(NamedTuple):
    """Term of a rank that a library adds to the terms of other ranks.

    Attributes:
        source, target: the term, and the sum or the part of it.
        size: the number of elements of the target.
        dtype: the dtype of the elements.
    """

    source: Location
    target: Location
    size: int
    dtype: str


@record
class LibrarySum:
    """Sums over the ranks by a library, in its own order.

    Attributes:
        operation: "all_reduce" or "reduce_scatter".
        terms: the terms.
    """

    operation: str
    terms: tuple[LibraryTerm, ...]


Step: TypeAlias = Transfer | Combine | AllGather | LibrarySum


@record
class SumPlan:
    """Sequence of steps for one rank.

    Attributes:
        steps: transfers, kernels and gathers.
        scratch: the size of the receive buffer in bytes.
    """

    steps: tuple[Step, ...]
    scratch: int


def can_add_by_library(term: Term) -> bool:
    """Return whether a library adds a term. Other results have no rounding errors."""
    return term.op == "sum" and dtypes.is_float(term.dtype) and term.size > 0


def plan_all_reduce(
    rank: int, ranks: int, terms: Sequence[Term], uses_library: bool = False
) -> SumPlan:
    """Return an all-reduce plan: one exchange for all terms.

    Args:
        rank, ranks: the rank of the plan, and the number of ranks.
        terms: the terms, equal on all ranks; result k has the location ("out", k, 0).
        uses_library: whether a library adds the sums of floats, in its own order.
    """
    plan = _Planner(rank, ranks)
    for number, term in enumerate(terms):
        if uses_library and ranks > 1 and can_add_by_library(term):
            plan.add_by_library("all_reduce", number, term)
            continue
        is_small = term.size * dtypes.itemsize(term.dtype) <= MAX_DIRECT_SIZE
        bounds = (
            [(0, term.size)] * ranks if is_small else _split_elements(term.size, ranks)
        )
        plan.reduce(number, term, bounds, bounds[rank][0])
        if not is_small and ranks > 1:
            plan.gather(number, term, bounds)
    return plan.build()


def plan_reduce_scatter(
    rank: int,
    ranks: int,
    term: Term,
    bounds: Sequence[tuple[int, int]] | None = None,
    uses_library: bool = False,
) -> SumPlan:
    """Return a reduce-scatter plan, with the result at location ("out", 0, 0).

    Args:
        rank, ranks: the rank of the plan, and the number of ranks.
        term: the term, equal on all ranks.
        bounds: the elements (start, stop) of each rank; by default equal parts.
        uses_library: whether a library adds a sum of floats in equal parts.
    """
    if bounds is None and term.size % ranks:
        raise ArgumentError(
            "reduce_scatter: expected a number of elements that is divisible by "
            f"{ranks}; received {term.size}"
        )
    plan = _Planner(rank, ranks)
    bounds = list(bounds or _split_elements(term.size, ranks))
    are_equal = len({stop - start for start, stop in bounds}) == 1
    if uses_library and ranks > 1 and are_equal and can_add_by_library(term):
        plan.add_by_library("reduce_scatter", 0, term)
    else:
        plan.reduce(0, term, bounds, 0)
    return plan.build()


def _split_elements(size: int, ranks: int) -> list[tuple[int, int]]:
    """Return the elements that each rank combines, in equal parts if possible."""
    return [(r * size // ranks, (r + 1) * size // ranks) for r in range(ranks)]


@dataclass
class _Planner:
    """Builder of a plan; the terms share its steps."""

    rank: int
    ranks: int
    pieces: int = 0
    scratch: int = 0
    sends: list[Move] = field(default_factory=list)
    receives: list[Move] = field(default_factory=list)
    combines: list[Combine] = field(default_factory=list)
    gathers: list[ShardGather] = field(default_factory=list)
    library_sums: dict[str, list[LibraryTerm]] = field(default_factory=dict)
    last_sends: list[Move] = field(default_factory=list)
    last_receives: list[Move] = field(default_factory=list)

    @property
    def peers(self) -> Iterator[int]:
        return (r for r in range(self.ranks) if r != self.rank)

    def reduce(
        self, number: int, term: Term, bounds: Sequence[tuple[int, int]], start: int
    ) -> None:
        """Combine this rank's part of a term, and send other ranks theirs.

        Args:
            number, term: the index of the term, and the term.
            bounds: the elements (start, stop) that each rank combines.
            start: the first element of this rank's part in the result.
        """
        _check(term)
        itemsize = dtypes.itemsize(term.dtype)
        keys = [term.leaves.pieces(r, self.ranks) for r in range(self.ranks)]
        first, last = bounds[self.rank]
        size = last - first
        local_pieces = range(self.pieces, self.pieces + len(keys[self.rank]))
        self.pieces = local_pieces.stop
        for peer in self.peers:
            begin, end = (itemsize * bound for bound in bounds[peer])
            locations = [Location("piece", piece, begin) for piece in local_pieces]
            self.sends += [Move(peer, location, end - begin) for location in locations]
        base, stride = self.scratch, -(-size * itemsize // ALIGNMENT) * ALIGNMENT
        for peer in self.peers:
            for _ in keys[peer]:
                location = Location("scratch", 0, self.scratch)
                self.receives.append(Move(peer, location, size * itemsize))
                self.scratch += stride
        all_keys = [*keys[self.rank], *(key for r in self.peers for key in keys[r])]
        numbers: dict[Subtree, Tree] = {key: n for n, key in enumerate(all_keys)}
        tree = combine_subtree((0, term.leaves.span), numbers.get, _make_pair)
        if size:
            self.combines.append(
                Combine(
                    term.dtype,
                    term.op,
                    size,
                    tuple(
                        Location("piece", piece, first * itemsize)
                        for piece in local_pieces
                    ),
                    Location("scratch", 0, base)
                    if len(all_keys) > len(local_pieces)
                    else None,
                    stride,
                    tree,
                    Location("out", number, start * itemsize),
                )
            )

    def add_by_library(self, operation: str, number: int, term: Term) -> None:
        """Combine this rank's pieces of a term, and add the ranks by a library."""
        _check(term)
        keys = term.leaves.pieces(self.rank, self.ranks)
        pieces = [Location("piece", self.pieces + i, 0) for i in range(len(keys))]
        self.pieces += len(pieces)
        is_whole, size = operation == "all_reduce", term.size
        target = Location("out", number, 0)
        if len(pieces) == 1:
            (source,) = pieces
        else:  # without a piece, the term is zero
            source = target if is_whole else Location("scratch", 0, self.scratch)
            if not is_whole:
                nbytes = size * dtypes.itemsize(term.dtype)
                self.scratch += -(-nbytes // ALIGNMENT) * ALIGNMENT
            numbers: dict[Subtree, Tree] = {key: n for n, key in enumerate(keys)}
            tree = combine_subtree((0, term.leaves.span), numbers.get, _make_pair)
            arguments = term.dtype, term.op, size, tuple(pieces), None, 0, tree
            self.combines.append(Combine(*arguments, source))
        result_size = size if is_whole else size // self.ranks
        added = LibraryTerm(source, target, result_size, term.dtype)
        self.library_sums.setdefault(operation, []).append(added)

    def gather(
        self, number: int, term: Term, bounds: Sequence[tuple[int, int]]
    ) -> None:
        """Gather the parts of a result on all ranks."""
        itemsize = dtypes.itemsize(term.dtype)
        shards = [
            (Location("out", number, begin * itemsize), (end - begin) * itemsize)
            for begin, end in bounds
        ]
        location, nbytes = shards[self.rank]
        if len({size for _, size in shards}) == 1:
            self.gathers.append(
                ShardGather(location, Location("out", number, 0), nbytes)
            )
            return
        self.last_sends += [Move(r, location, nbytes) for r in self.peers]
        self.last_receives += [Move(r, *shards[r]) for r in self.peers]

    def build(self) -> SumPlan:
        """Return the plan without empty steps."""
        steps: list[Step] = [
            Transfer(_nonempty_moves(self.sends), _nonempty_moves(self.receives)),
            *self.combines,
            *(LibrarySum(name, tuple(x)) for name, x in self.library_sums.items()),
            AllGather(tuple(self.gathers)),
            Transfer(
                _nonempty_moves(self.last_sends), _nonempty_moves(self.last_receives)
            ),
        ]
        return SumPlan(tuple(step for step in steps if _has_work(step)), self.scratch)


def _nonempty_moves(moves: Sequence[Move]) -> tuple[Move, ...]:
    return tuple(move for move in moves if move.nbytes)


def _has_work(step: Step) -> bool:
    if isinstance(step, Transfer):
        return bool(step.sends or step.receives)
    return bool(step.gathers) if isinstance(step, AllGather) else True


def _make_pair(lhs: Tree, rhs: Tree) -> Tree:
    return lhs, rhs


def _check(term: Term) -> None:
    """Raise an error for an invalid term."""
    if term.op not in OPERATIONS:
        raise unknown_choice("all_reduce: op", term.op, OPERATIONS)
    if not term.leaves.present and term.op not in IDENTITY_ELEMENTS:
        raise ArgumentError(f"all_reduce: no rank has rows for the {term.op} of")
