"""Checks of the processes of a job, against training that goes apart."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from toolkit import comm
from toolkit.backends.memory import to_host
from toolkit.comm.launchers import launcher_variable
from toolkit.compiler import distribution_context
from toolkit.compiler.distribution_context import DistributionContext
from toolkit.console.frames import warn_once
from toolkit.core.locks import changes
from toolkit.errors import ArgumentError
from toolkit.functions.local_rows import describe_batch, group_by_rank
from toolkit.thread_state import ThreadState

if TYPE_CHECKING:
    from toolkit.core.variable import Variable


class _Step(ThreadState):
    # Whether all processes run the code that runs now, on the same batch.
    is_shared = False


_step = _Step()


def shared_step() -> AbstractContextManager[None]:
    """Return a context of code that all processes of a job run on the same batch."""
    return _step.override(is_shared=True)


def is_shared_step() -> bool:
    """Return whether all processes of the job run this code on the same batch."""
    return _step.is_shared


def check_update(name: str) -> None:
    """Raise for an update of weights that each process would compute from its rows.

    Args:
        name: the method that updates.
    """
    job = distribution_context.current()
    if job is None or _step.is_shared or job.num_processes == 1:
        return
    raise ArgumentError(
        f"{name}: each of the {job.num_processes} processes of the job would update "
        "its weights by the gradients of its rows alone, and train another model; put "
        "the step into `toolkit.function(step, distribute=True)`, which adds the "
        "gradients of all processes, or use `fit` without run_eagerly=True"
    )


def warn_without_distribution(name: str) -> None:
    """Warn once in a job of several processes that has no distribution.

    Args:
        name: the model, or the function.
    """
    if launcher_variable() is None:
        return
    world = comm.world()
    if world.size > 1 and world.rank == 0:
        warn_once(
            world,
            f"{name}: each of the {world.size} processes of this job computes alone, "
            "on all data; to train one model together, call `toolkit.distribution."
            "set_distribution(toolkit.distribution.DataParallel())` first",
            topic="no distribution",
        )


class ComparedState:
    """Variables of steps, whose values are equal on all processes of a job.

    An assignment outside of the steps can change that. So each comparison hashes the
    variables that this process has assigned since the last one.

    Args:
        job: the job.
    """

    def __init__(self, job: DistributionContext) -> None:
        self.job = job
        self._variables: dict[Variable, None] = {}
        self._settings: dict[Variable, None] = {}
        self._num_assignments = 0

    def add(
        self,
        variables: Sequence[Variable],
        settings: Sequence[Variable],
        label: str = "",
    ) -> None:
        """Compare the values of variables, and watch them from now on.

        Args:
            variables: the variables, in the same order on all processes.
            settings: those that each comparison hashes: the small ones, which steps or
                schedules often change.
            label: the prefix of an error.

        Raises:
            ArgumentError: on all processes, with the first difference.
        """
        num_assignments = changes.num_assignments
        if self.job.num_processes > 1:
            compare_variables(self.job, variables, label)
        if not self._variables:
            self._num_assignments = num_assignments
        self._variables.update(dict.fromkeys(variables))
        self._settings.update(dict.fromkeys(settings))

    def compare(self, label: str = "") -> None:
        """Raise for a variable that only some processes have assigned or changed.

        Equal states cost one exchange of a number.

        Args:
            label: the prefix of an error.

        Raises:
            ArgumentError: on all processes, with the first difference.
        """
        if self.job.num_processes == 1:
            return
        num_assignments = changes.num_assignments
        assigned = self._find_assigned(num_assignments)
        checksum = 0
        for variable in self._settings:
            checksum = crc32(np.asarray(variable).tobytes(), checksum)
        for number in assigned:
            variable = self._by_number(number)
            value = 0 if variable.placement is not None else _checksum(variable)
            checksum = crc32(f"{number} {value}".encode(), checksum)
        if len(set(self.job.agree("settings", checksum))) > 1:
            # Other settings can be the cause of other weights.
            compare_variables(self.job, list(self._settings), label)
            compare_variables(self.job, list(self._variables), label)
            self._compare_shards(assigned, label)
        self._num_assignments = num_assignments

    def _find_assigned(self, num_assignments: int) -> list[int]:
        """Return the numbers of the variables that were assigned, without settings."""
        if num_assignments == self._num_assignments:
            return []
        return [
            number
            for number, variable in enumerate(self._variables)
            if variable.last_assignment > self._num_assignments
            and variable not in self._settings
        ]

    def _by_number(self, number: int) -> Variable:
        return next(islice(self._variables, number, None))

    def _compare_shards(self, assigned: Sequence[int], label: str) -> None:
        """Raise for a split variable of which only some processes assigned a shard."""
        variables = map(self._by_number, assigned)
        paths = [v.path for v in variables if v.placement is not None]
        received = self.job.exchange(", ".join(paths) or "none")
        if len(set(received)) > 1:
            raise ArgumentError(
                f"{label}expected assignments of the same split variables on all "
                f"ranks; received {group_by_rank(received)}"
            )


def compare_variables(
    job: DistributionContext, variables: Sequence[Variable], label: str = ""
) -> None:
    """Raise for variables that differ between the processes of a job.

    Args:
        job: the job, of which all processes call this.
        variables: the variables, in the same order on all processes.
        label: the prefix of an error.

    Raises:
        ArgumentError: on all processes, with the first difference.
    """
    sums = [None if v.placement is not None else _checksum(v) for v in variables]
    exchanged = job.exchange([describe_batch(variables), sums])
    if len({shapes for shapes, _ in exchanged}) > 1:
        return  # other programs, which are compared before they run
    sums_of_ranks = (sums_of_rank for _, sums_of_rank in exchanged)
    rows = enumerate(zip(*sums_of_ranks, strict=True))
    differs = next((number for number, row in rows if len({*row}) > 1), None)
    if differs is None:
        return
    variable = variables[differs]
    first = np.asarray(variable).ravel()[:3].tolist()
    received = job.exchange(f"{variable.path} with the first values {first}")
    raise ArgumentError(
        f"{label}expected the same weights, seeds and settings of the optimizer on "
        f"all ranks; received {group_by_rank(received)}"
    )


def _checksum(variable: Variable) -> int:
    """Return a checksum of a variable, without donating its buffer."""
    with variable.lock:
        array = np.ascontiguousarray(to_host(variable._tensor._array))
        return crc32(array.reshape(-1).view(np.uint8).data)
