"""Checks of the processes of a job, against training that goes apart."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from toolkit import comm
from toolkit.comm.launchers import launcher_variable
from toolkit.compiler import distribution_context
from toolkit.compiler.distribution_context import DistributionContext
from toolkit.console.frames import warn_once
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


def compare_settings(
    job: DistributionContext, settings: Sequence[Variable], label: str
) -> None:
    """Raise for settings, such as a learning rate, that one process has changed.

    Equal settings cost one exchange of a number.

    Args:
        job: the job, of which all processes call this.
        settings: variables without axes, in the same order on all processes.
        label: the prefix of an error.

    Raises:
        ArgumentError: on all processes, with the first difference.
    """
    checksum = 0
    for variable in settings:
        checksum = crc32(np.asarray(variable).tobytes(), checksum)
    if len(set(job.agree("settings", checksum))) > 1:
        compare_variables(job, settings, label)


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
        array = np.ascontiguousarray(variable._tensor._array)
        return crc32(array.reshape(-1).view(np.uint8).data)
