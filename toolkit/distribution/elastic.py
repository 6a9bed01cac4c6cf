"""Going on without lost ranks: what all ranks do together is done once, or again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from toolkit import comm
from toolkit.comm import jobs
from toolkit.comm.replacements import HAS_FAILED, IS_READY, Coming
from toolkit.errors import LaunchError, RankLostError
from toolkit.models.saving.state import all_variables

Result = TypeVar("Result")


class Recovery:
    """The operations that all ranks of a job take part in, which survive a lost rank.

    They are numbered. In an elastic job the results of each count only after a barrier,
    which no rank leaves before all ranks have theirs. So when a rank is lost, either
    some rank has left the barrier, and every other can leave it too, or none has, and
    all do the operation again with the ranks that are left.

    Attributes:
        size: how many ranks there should be.
        can_replace: whether a replacement can be given all that it needs.
        runs: how often `fit` has begun.
        version: how often ranks were lost; programs of an older one are of no use.
        rebuild: makes anew what was made of the groups of the ranks before; all ranks
            that are left call it, with whether the results of the operation count in
            which one was lost.
        prepare: what all ranks do before a run of `fit`.
        callbacks: makes those that the launcher adds to each `fit`.
    """

    def __init__(self) -> None:
        self.size = 0
        self.can_replace = True
        self.runs = 0
        self.version = 0
        self.rebuild: Callable[[bool], None] = _nothing
        self.prepare: Callable[[], None] = _no_work
        self.callbacks: Callable[[], list[Any]] = list
        self._done = 0
        self._model: Any = None  # that is trained
        self._coming: Coming | None = None

    def run(self, operation: Callable[[], Result]) -> Result:
        """The result of an operation, which is done again where ranks are lost."""
        while True:
            version = self.version
            try:
                result = operation()
                self.settle()
            except RankLostError:
                self.recover(version)
            else:
                return result

    def settle(self) -> None:
        """End an operation: its results count when this returns.

        Raises:
            RankLostError: they do not count; `recover`, then do it again.
        """
        if comm.is_elastic():
            try:
                comm.world().barrier()
            except RankLostError:
                if not self._leave_out(has_results=True):
                    raise
        self._done += 1

    def recover(self, version: int) -> None:
        """Go on without lost ranks; called where an operation has raised.

        Args:
            version: that of when the operation began.

        Raises:
            LaunchError: if the job cannot go on.
        """
        if version == self.version:
            self._leave_out(has_results=False)

    def _leave_out(self, has_results: bool) -> bool:
        """Make the job one of the ranks that are left.

        Args:
            has_results: whether this rank has those of the operation in which the rank
                was lost.

        Returns:
            Whether they count.
        """
        while True:
            world = comm.recover()
            try:
                told = comm.exchange(world, [self._done, has_results])
                newest = max(done for done, _ in told)
                if any(done + has < newest for done, has in told):
                    raise LaunchError(
                        "recover: ranks are further apart than one operation; received "
                        f"{told}, the number of operations and whether the next is done"
                    )
                counts = self._done < newest
                self.rebuild(counts)
                self.version += 1
                self._replace(len(told))
                return counts
            except RankLostError:  # one more
                continue

    # --- replacements -----------------------------------------------------------------

    def begin(self, model: Any) -> None:
        """Begin a run of `fit`, or take it up in the place of a lost rank."""
        self.runs += 1
        self._model = model
        if jobs.is_outside():
            jobs.join()
            self.rebuild(False)
            try:
                self._hand_over(model)
                self.settle()
            except RankLostError:  # the others leave this one out, too
                os.kill(os.getpid(), signal.SIGKILL)
        elif comm.is_elastic():
            self.run(self.prepare)

    def end(self) -> None:
        """End the run: who has not come yet is sent away."""
        self._model = None
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None

    def after_step(self) -> None:
        """Let replacements in that are ready; all ranks call this between steps."""
        if self._coming is None:
            return
        states = self.run(self._states)
        if HAS_FAILED in states:
            self._coming.cancel()
            self._coming = None
        elif set(states) == {IS_READY}:
            coming, self._coming = self._coming, None
            jobs.admit(coming)
            self.rebuild(False)
            self.version += 1
            self.run(lambda: self._hand_over(self._model))

    def _states(self) -> list[int]:
        """What each rank knows of the replacements."""
        state = None if self._coming is None else self._coming.state
        return comm.exchange(comm.world(), state)

    def _replace(self, left: int) -> None:
        """Start processes for lost ranks, where they can join.

        They run the script from its start, so what they can take up is its first `fit`.
        """
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None
        is_training = self._model is not None and self.runs == 1
        if jobs.replaces() and is_training and self.can_replace:
            self._coming = jobs.replacements(self.size - left)

    def _hand_over(self, model: Any) -> None:
        """Give the state of training to those that have joined."""
        world, variables, record = comm.world(), all_variables(model), None
        if world.rank == 0:
            record = {"done": self._done, "run": model._progress.record()}
        record = comm.exchange(world, record)[0]
        is_new = self._done < record["done"]
        for variable in variables:
            array = np.array(variable.numpy())
            world.broadcast(array)
            if is_new:
                variable.assign(array)
        if is_new:
            self._done = record["done"]
            model._progress.take_up(record["run"])


def _nothing(counts: bool) -> None:
    """What there is to make anew before a distribution is set."""


def _no_work() -> None:
    """What there is to do before a run without a distribution."""


# Of this process: operations are numbered whatever distribution they belong to.
recovery = Recovery()
