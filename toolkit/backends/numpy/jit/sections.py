"""Sections: chains of calls over the same rows, run a few rows at a time.

A convolution, its activation and its pooling access megabytes for a whole batch, and
kilobytes for one image. Calls over the same rows join one section if each call reads
only the current rows of the section's results. The section then runs depth first, so
the results of one call are still in the cache for the next call. Only independent calls
are reordered.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from toolkit.backends.numpy.jit.calls import Call, Reference, partition
from toolkit.backends.numpy.jit.processor import current
from toolkit.errors import ArgumentError
from toolkit.ir.extents import has_extent, is_always, largest, smallest, value_of
from toolkit.plans.operands import OperandMemory

# Approximate speed of one core, for the decision whether to use several threads.
_CORE_FLOPS, _CORE_BYTES = 5e10, 1e10
# Dispatch and join take less than a microsecond if the workers are awake.
_MIN_SHARED_SECONDS = 15e-6
# The maximum size of a task, in tasks of a partition.
_MAX_PARTITIONS = 2


def estimate_seconds(call: Call) -> float:
    """Return the approximate duration of a call on one thread."""
    flops, nbytes = value_of(call.flops), value_of(call.nbytes)
    seconds: float = max(flops / _CORE_FLOPS, nbytes / _CORE_BYTES)
    return seconds


# Returns the share of an operand, by the index of its node.
Shares = Callable[[int, Reference], OperandMemory]


@dataclass
class Section:
    """Calls that run together, a group of rows at a time.

    calls: pairs of the index of the node and the call.
    factors: rows of each call per row of the section.
    is_late: whether all calls before the barrier must end first.
    """

    calls: list[tuple[int, Call]]
    factors: list[int]
    rows: int
    grain: int
    is_late: bool = False
    row_bytes: int = 0
    # The size in bytes of memory that all rows access, by owner; and the total.
    common: dict[Hashable, int] = field(default_factory=dict)
    common_bytes: int = 0
    has_slots: bool = False  # whether a call accumulates a partial result per task
    # The cache of the processor. The rows of a group should fit in it.
    cache_bytes: int = field(default_factory=lambda: current().cache_bytes)
    # Owners of written memory; whether each row writes only its part.
    writes: dict[Hashable, bool] = field(default_factory=dict)
    accesses: set[Hashable] = field(default_factory=set)

    @property
    def sections(self) -> list[Section]:
        """The parallel branches: only this section."""
        return [self]

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return -(-self.rows // self.grain)

    @property
    def group(self) -> int:
        """The number of rows that run together, depth first."""
        if len(self.calls) == 1:
            return self.rows
        row_bytes = max(1, value_of(self.row_bytes))
        group: int = smallest(self.grain, max(1, self.cache_bytes // 4 // row_bytes))
        return group

    @property
    def is_shared(self) -> bool:
        """Whether several threads are worthwhile."""
        total = sum(estimate_seconds(call) for _, call in self.calls)
        return value_of(self.tasks) > 1 and total >= _MIN_SHARED_SECONDS

    @property
    def is_stream(self) -> bool:
        """Whether a single thread runs all tasks as one."""
        return len(self.calls) == 1 and self.calls[0][1].is_stream

    @property
    def is_branch(self) -> bool:
        """Whether it can run on one thread, in parallel with other sections."""
        # The branches of a step have one message for an error.
        has_message = any(call.error is ArgumentError for _, call in self.calls)
        can_branch = not has_message and all(call.can_branch for _, call in self.calls)
        return can_branch and not self.is_shared

    def grain_with(self, call: Call, factor: int) -> int:
        """Return the grain if a call joins: some calls are slow for few rows.

        The grain of a section with slots is fixed.
        """
        minimum = -(-call.grain // factor)
        has_slots = self.has_slots or _has_slots(call)
        limit = value_of(_MAX_PARTITIONS * partition(self.rows))
        if has_slots or value_of(minimum) > limit:
            return self.grain
        grain: int = largest(self.grain, minimum)
        return grain

    def add(self, index: int, call: Call, factor: int, shares: Shares) -> None:
        """Append a call."""
        self.grain = self.grain_with(call, factor)
        self.has_slots |= _has_slots(call)
        self.calls.append((index, call))
        self.factors.append(factor)
        for operand in call.operands:
            if operand[0] == "error":
                continue
            share, by_rows = shares(index, operand), operand in call.row_operands
            self.accesses.add(share.owner)
            if operand[0] in ("out", "work"):
                by_rows_so_far = self.writes.get(share.owner, True)
                self.writes[share.owner] = (
                    by_rows_so_far and by_rows and share.keeps_rows(self.rows)
                )
            if by_rows:
                self.row_bytes += value_of(share.nbytes) // max(1, value_of(self.rows))
            else:
                self.common_bytes += share.nbytes - self.common.get(share.owner, 0)
                self.common[share.owner] = share.nbytes


def _accumulates(call: Call, operand: Reference) -> bool:
    """Return whether a call accumulates partial results, one slot for each task."""
    return operand[0] in ("out", "work") and operand not in call.row_operands


def _has_slots(call: Call) -> bool:
    return any(_accumulates(call, operand) for operand in call.operands)


@dataclass
class Branches:
    """Independent sections that run in parallel."""

    sections: list[Section]
    is_shared = True

    @property
    def tasks(self) -> int:
        """The number of tasks; each section is one task."""
        return len(self.sections)

    @property
    def is_late(self) -> bool:
        """Whether all calls before the barrier must end first."""
        return self.sections[0].is_late

    @property
    def calls(self) -> list[tuple[int, Call]]:
        """The calls of all sections."""
        return [pair for section in self.sections for pair in section.calls]

    @property
    def gain(self) -> float:
        """The approximate time that two threads save, in seconds."""
        costs = [
            sum(estimate_seconds(call) for _, call in s.calls) for s in self.sections
        ]
        return sum(costs) - max(costs)


def parallelize(candidates: Sequence[Section]) -> list[Section | Branches]:
    """Run independent sections in parallel if each needs only one thread.

    Each section joins the first possible branches. For example, the weights of a
    convolution are packed while the previous convolution runs. Branches that save less
    than the cost of a wake-up stay sequential.
    """
    schedule = _BranchSchedule()
    for section in candidates:
        schedule.add_call(section)
    return [s for step in schedule.steps for s in _keep_profitable(step)]


class _BranchSchedule:
    """A sequence of sections and branches, with the memory that they access."""

    def __init__(self) -> None:
        self.steps: list[Section | Branches] = []
        self.branches: list[int] = []  # the indices of the branches in `steps`
        # The last part that writes, or accesses, the memory of an owner.
        self.last_write: dict[Hashable, int] = {}
        self.last_access: dict[Hashable, int] = {}
        self.first_late = 0  # the first part after the barrier

    def add_call(self, section: Section) -> None:
        """Add a section to the first branches that it can join, or append it."""
        if section.is_late and not (self.steps and self.steps[-1].is_late):
            self.first_late = len(self.steps)
        number = self._find_branch(section) if section.is_branch else None
        if number is None:
            number = len(self.steps)
            if section.is_branch:
                self.branches.append(number)
            self.steps.append(Branches([section]) if section.is_branch else section)
        else:
            self.steps[number].sections.append(section)
        for owner in section.accesses:
            self.last_access[owner] = max(number, self.last_access.get(owner, -1))
        for owner in section.writes:
            self.last_write[owner] = max(number, self.last_write.get(owner, -1))

    def _find_branch(self, section: Section) -> int | None:
        """Return the first branches after all dependencies of a section."""
        depends = [self.last_write.get(owner, -1) for owner in section.accesses]
        depends += [self.last_access.get(owner, -1) for owner in section.writes]
        first = max([*depends, self.first_late - 1 if section.is_late else -1]) + 1
        number = bisect_left(self.branches, first)
        return self.branches[number] if number < len(self.branches) else None


def _keep_profitable(step: Section | Branches) -> Sequence[Section | Branches]:
    """Return branches, or their sections in sequence if the gain is small."""
    if isinstance(step, Section) or step.gain >= _MIN_SHARED_SECONDS:
        return [step]
    return step.sections


def sections(
    calls: Sequence[tuple[int, Call]], shares: Shares, barrier: int
) -> list[Section]:
    """Join calls to sections in a deterministic order.

    Args:
        calls: pairs of the index of the node and the call, in a valid order.
        shares: returns the memory that an operand occupies.
        barrier: calls of this node and of later nodes run after all other calls.
    """
    builder = _SectionBuilder(shares)
    for index, call in calls:
        if index >= barrier and not builder.earliest:
            builder.flush()
            builder.earliest = len(builder.sections)
            builder.is_late = True
        builder.add_call(index, call)
    builder.flush()
    return builder.sections


class _SectionBuilder:
    """The sections so far, and calls that wait for a reader of their results."""

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        self.sections: list[Section] = []
        self.earliest = 0  # the first section that a call can join
        self.is_late = False
        self.writer: dict[Hashable, int] = {}  # the last section that writes an owner
        self.waiting: dict[Hashable, tuple[int, Call]] = {}  # by written owner

    def add_call(self, index: int, call: Call) -> None:
        """Join a call to the section that it depends on, or start a section."""
        owners = {
            operand: self.shares(index, operand).owner
            for operand in call.operands
            if operand[0] != "error"
        }
        needed = [o for o in dict.fromkeys(owners.values()) if o in self.waiting]
        last = self._last(owners.values())
        if last < 0 and not needed and self._may_wait(call):
            owners_written = self._written_owners(index, call)
            self.waiting.update(dict.fromkeys(owners_written, (index, call)))
            return
        for owner in needed:
            if owner in self.waiting:
                waiting = self.waiting[owner]
                for written in self._written_owners(*waiting):
                    del self.waiting[written]
                self._append(*waiting, last)
        self._append(index, call, self._last(owners.values()))

    def flush(self) -> None:
        """Append the calls that still wait for a reader."""
        waiting = {id(pair): pair for pair in self.waiting.values()}
        self.waiting.clear()
        for pair in waiting.values():
            self._append(*pair, len(self.sections) - 1)

    def _written_owners(self, index: int, call: Call) -> set[Hashable]:
        """Return the owners of the memory that a call writes."""
        operands = (o for o in call.operands if o[0] in ("out", "work"))
        return {self.shares(index, operand).owner for operand in operands}

    def _may_wait(self, call: Call) -> bool:
        """Return whether a call only writes rows, for example random numbers."""
        destinations = [operand for operand in call.operands if operand[0] != "in"]
        return bool(destinations) and call.row_operands.issuperset(destinations)

    def _last(self, owners: Iterable[Hashable]) -> int:
        """Return the last section that writes one of these owners."""
        return max((self.writer.get(owner, -1) for owner in owners), default=-1)

    def _append(self, index: int, call: Call, section: int) -> None:
        joins = section >= self.earliest and section >= 0
        if not joins or not _try_join(self.sections[section], index, call, self.shares):
            section = len(self.sections)
            self.sections.append(Section([], [], call.rows, call.grain, self.is_late))
            self.sections[section].add(index, call, 1, self.shares)
        for owner in self._written_owners(index, call):
            self.writer[owner] = max(section, self.writer.get(owner, -1))


def _try_join(section: Section, index: int, call: Call, shares: Shares) -> bool:
    """Join a call to a section if possible; return whether it joined."""
    if not call.row_operands or not section.calls[0][1].row_operands:
        return False
    factor, remainder = divmod(call.rows, section.rows)
    # The answer must be the same for all values of free extents.
    if not is_always(remainder, 0) or has_extent(factor) or not factor:
        return False
    common: dict[Hashable, int] = {}
    for operand in call.operands:
        if operand[0] == "error":
            return False
        share, by_rows = shares(index, operand), operand in call.row_operands
        if share.owner in section.writes:
            in_step = by_rows and share.keeps_rows(section.rows)
            in_step = in_step and section.writes[share.owner]
            if not in_step:
                return False
        if not by_rows:
            common[share.owner] = share.nbytes
            # With a different grain, two threads would accumulate in the same slot.
            grain = factor * section.grain
            if _accumulates(call, operand) and not is_always(call.grain, grain):
                return False
    # Memory that every group reads again.
    shared_bytes = sum(section.common.get(owner, 0) for owner in common)
    common_bytes = section.common_bytes - shared_bytes + sum(common.values())
    if value_of(common_bytes) > section.cache_bytes // 2:
        return False
    minimum = value_of(partition(section.rows))
    if not minimum <= value_of(section.grain) <= _MAX_PARTITIONS * minimum:
        return False
    section.add(index, call, factor, shares)
    return True
