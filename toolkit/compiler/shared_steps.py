"""Steps that all processes of a job compute together, and checks of all others."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from toolkit import comm
from toolkit.comm.launchers import launcher_variable
from toolkit.compiler import distribution_context
from toolkit.console.frames import warn_once
from toolkit.errors import ArgumentError
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


def check_update(name: str, is_first: bool = False) -> None:
    """Raise for an update of weights that each process would compute from its rows.

    Args:
        name: the method that updates.
        is_first: whether a job without a distribution gets a warning.
    """
    job = distribution_context.current()
    if job is None and is_first:
        warn_without_distribution(name)
    if job is None or _step.is_shared or job.num_processes == 1:
        return
    raise ArgumentError(
        f"{name}: each of the {job.num_processes} processes of the job would update "
        "its weights by the gradients of its rows alone, and train another model; put "
        "the step into `toolkit.function(step, distribute=True)`, which adds the "
        "gradients of all processes, or use `fit` without run_eagerly=True"
    )


def watch_gradients(sources: Iterable[object]) -> None:
    """Check the next assignment of variables whose gradients one process computes.

    Such an assignment is an update by hand, which `check_update` must refuse.

    Args:
        sources: tensors and variables.
    """
    job = distribution_context.current()
    if job is None or _step.is_shared or job.num_processes == 1:
        return
    for source in sources:
        if hasattr(source, "assignment_check"):
            source.assignment_check = _check_assignment


def _check_assignment(variable: Variable) -> None:
    check_update(f"{variable.path}.assign")
    variable.assignment_check = None


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
