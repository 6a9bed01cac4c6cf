"""Going on without lost ranks: what all ranks do together is done once, or again."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from toolkit import comm
from toolkit.comm import jobs
from toolkit.comm.replacements import HAS_FAILED, IS_READY, Coming
from toolkit.comm.watch import KILL
from toolkit.errors import LaunchError, RankLostError
from toolkit.models.saving.state import all_variables

Result = TypeVar("Result")


class Resizable(Protocol):
    """What a distribution does where ranks are lost.

    Attributes:
        holds_all: whether each rank has the whole state of the model.
    """

    holds_all: bool

    def resize(self, counts: bool) -> None:
        """Make anew what was made of the groups of the ranks before.

        Args:
            counts: whether the results of the operation count in which one was lost.
        """

    def begin_run(self) -> None:
        """What all ranks do before a run of `fit`."""


class Recovery:
    """The operations that all ranks of a job take part in, which survive a lost rank.

    They are numbered. In an elastic job the results of each count only after a barrier,
    which no rank leaves before all ranks have theirs. So when a rank is lost, either
    some rank has left the barrier, and every other can leave it too, or none has, and
    all do the operation again with the ranks that are left.

    Attributes:
        runs: how often `fit` has begun.
        version: how often ranks were lost; programs of an older one are of no use.
        callbacks: makes those that the launcher adds to each `fit`.
    """

    def __init__(self) -> None:
        self.runs = 0
        self.version = 0
        self.callbacks: Callable[[], list[Any]] = list
        self._distribution: Resizable | None = None
        self._size = 0  # how many ranks there should be
        self._done = 0
        self._model: Any = None  # that is trained
        self._coming: Coming | None = None

    def follow(self, distribution: Resizable) -> None:
        """Go on with this distribution, of all ranks that are there, if one is lost."""
        self._distribution, self._size = distribution, comm.world().size

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
                self._resize(counts)
                self._replace(len(told))
                return counts
            except RankLostError:  # one more
                continue

    def _resize(self, counts: bool) -> None:
        """Make groups and programs those of the ranks that are there now."""
        if self._distribution is not None:
            self._distribution.resize(counts)
        self.version += 1

    # --- replacements -----------------------------------------------------------------

    def begin(self, model: Any) -> None:
        """Begin a run of `fit`, or take it up in the place of a lost rank."""
        self.runs += 1
        self._model = model
        if jobs.is_outside():
            try:
                jobs.join()
                self._resize(counts=False)
                self._hand_over(model)
                self.settle()
            except RankLostError:  # the others leave this one out, too
                os.kill(os.getpid(), KILL)
        elif comm.is_elastic() and self._distribution is not None:
            self.run(self._distribution.begin_run)

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
            self._admit(coming)

    def _admit(self, coming: Coming) -> None:
        """Let replacements in, unless a rank is lost at the moment."""
        version, merged = self.version, coming.merge()
        told = self.run(lambda: comm.exchange(comm.world(), merged is not None))
        if merged is not None and all(told) and version == self.version:
            jobs.admit(merged)
            self._resize(counts=False)
            self.run(lambda: self._hand_over(self._model))
        elif merged is not None:
            merged.revoke()  # who waits in it leaves

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
        holds_all = self._distribution is None or self._distribution.holds_all
        if jobs.replaces() and is_training and holds_all:
            self._coming = jobs.replacements(self._size - left)

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


# Of this process: operations are numbered whatever distribution they belong to.
recovery = Recovery()
