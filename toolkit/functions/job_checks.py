"""Checks that the weights of a job are equal on all processes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from toolkit.backends.memory import to_host
from toolkit.compiler.distribution_context import DistributionContext
from toolkit.core.locks import changes
from toolkit.errors import ArgumentError
from toolkit.functions.local_rows import describe_batch, group_by_rank

if TYPE_CHECKING:
    from toolkit.core.variable import Variable


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
