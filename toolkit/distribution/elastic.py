"""Elastic training: collective operations are committed or repeated after a loss."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from toolkit import comm
from toolkit.comm import jobs
from toolkit.comm.replacements import HAS_FAILED, IS_READY, PendingReplacements
from toolkit.comm.watchdog import KILL
from toolkit.errors import LaunchError, RankLostError
from toolkit.models.saving.state import all_variables

Result = TypeVar("Result")


class ElasticDistribution(Protocol):
    """Interface of distributions for the loss of ranks.

    Attributes:
        holds_all: whether each rank has the whole state of the model.
    """

    holds_all: bool

    def resize(self, counts: bool) -> None:
        """Recreate the data that depends on the previous groups.

        Args:
            counts: whether the results of the interrupted operation are valid.
        """

    def begin_run(self) -> None:
        """Prepare a run of `fit`; all ranks call this."""


class Recovery:
    """Collective operations of a job that survive the loss of a rank.

    The operations are numbered. In an elastic job, the results of an operation are
    valid only after a barrier, which no rank leaves before all ranks have their
    results. After a loss there are two cases. If some rank left the barrier, every
    other rank can leave it too. Otherwise the remaining ranks repeat the operation.

    Attributes:
        runs: the number of calls of `fit`.
        version: the number of losses; programs of an older version are invalid.
        callbacks: a function that returns the launcher's callbacks for each `fit`.
    """

    def __init__(self) -> None:
        self.runs = 0
        self.version = 0
        self.callbacks: Callable[[], list[Any]] = list
        self._distribution: ElasticDistribution | None = None
        self._size = 0  # target number of ranks
        self._done = 0
        self._model: Any = None  # the model in training
        self._coming: PendingReplacements | None = None

    def follow(self, distribution: ElasticDistribution) -> None:
        """Use this distribution of all current ranks for recovery."""
        self._distribution, self._size = distribution, comm.world().size

    def run(self, operation: Callable[[], Result]) -> Result:
        """Return the result of an operation, repeated after a loss of ranks."""
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
        """Commit an operation: its results are valid after the return.

        Raises:
            RankLostError: the results are invalid; call `recover`, then repeat the
                operation.
        """
        if comm.is_elastic():
            try:
                comm.world().barrier()
            except RankLostError:
                if not self._leave_out(has_results=True):
                    raise
        self._done += 1

    def recover(self, version: int) -> None:
        """Remove lost ranks after an operation raised an error.

        Args:
            version: the version at the start of the operation.

        Raises:
            LaunchError: the job cannot continue.
        """
        if version == self.version:
            self._leave_out(has_results=False)

    def _leave_out(self, has_results: bool) -> bool:
        """Shrink the job to the remaining ranks.

        Args:
            has_results: whether this rank has the results of the interrupted operation.

        Returns:
            Whether the results are valid.
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
            except RankLostError:  # another loss
                continue

    def _resize(self, counts: bool) -> None:
        """Recreate groups and programs for the current ranks."""
        if self._distribution is not None:
            self._distribution.resize(counts)
        self.version += 1

    # --- replacements -----------------------------------------------------------------

    def begin(self, model: Any) -> None:
        """Start a run of `fit`, or resume it as a replacement of a lost rank."""
        self.runs += 1
        self._model = model
        if jobs.is_replacement():
            try:
                jobs.join()
                self._resize(counts=False)
                self._hand_over(model)
                self.settle()
            except RankLostError:  # the remaining ranks remove this one too
                os.kill(os.getpid(), KILL)
        elif comm.is_elastic() and self._distribution is not None:
            self.run(self._distribution.begin_run)

    def end(self) -> None:
        """End the run and cancel pending replacements."""
        self._model = None
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None

    def after_step(self) -> None:
        """Admit ready replacements; all ranks call this between steps."""
        if self._coming is None:
            return
        states = self.run(self._states)
        if HAS_FAILED in states:
            self._coming.cancel()
            self._coming = None
        elif set(states) == {IS_READY}:
            coming, self._coming = self._coming, None
            self._admit(coming)

    def _admit(self, coming: PendingReplacements) -> None:
        """Admit replacements, unless a rank is lost now."""
        version, merged = self.version, coming.merge()
        told = self.run(lambda: comm.exchange(comm.world(), merged is not None))
        if merged is not None and all(told) and version == self.version:
            jobs.admit(merged)
            self._resize(counts=False)
            self.run(lambda: self._hand_over(self._model))
        elif merged is not None:
            merged.revoke()  # releases ranks that wait in it

    def _states(self) -> list[int]:
        """Return the state of the replacements as seen by each rank."""
        state = None if self._coming is None else self._coming.state
        return comm.exchange(comm.world(), state)

    def _replace(self, left: int) -> None:
        """Start replacements for lost ranks, if they can join.

        They run the script from its start, so they can only resume its first `fit`.
        """
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None
        is_training = self._model is not None and self.runs == 1
        holds_all = self._distribution is None or self._distribution.holds_all
        if jobs.can_replace() and is_training and holds_all:
            self._coming = jobs.start_replacements(self._size - left)

    def _hand_over(self, model: Any) -> None:
        """Send the training state to the ranks that joined."""
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
            model._progress.restore_record(record["run"])


# One per process: operations of all distributions share the numbering.
recovery = Recovery()
