"""Elastic training: collective operations are committed or repeated after a loss."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from toolkit import comm
from toolkit.backends.base import Backend
from toolkit.comm import jobs
from toolkit.comm.replacements import HAS_FAILED, IS_READY, PendingReplacements
from toolkit.comm.watchdog import KILL_SIGNAL
from toolkit.errors import LaunchError, RankLostError
from toolkit.models.saving.state import all_variables

Result = TypeVar("Result")


class ElasticDistribution(Protocol):
    """Interface of distributions for the loss of ranks.

    Attributes:
        has_full_state: whether each rank has the full state of the model.
    """

    has_full_state: bool

    def resize(self, is_committed: bool) -> None:
        """Recreate the data that depends on the previous groups.

        Args:
            is_committed: whether the results of the interrupted operation are valid.
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
        self._backend: Backend | None = None  # of the steps
        self._size = 0  # target number of ranks
        self._num_committed = 0
        self._model: Any = None  # the model in training
        self._pending: PendingReplacements | None = None

    def use_distribution(self, distribution: ElasticDistribution) -> None:
        """Use this distribution of all current ranks for recovery."""
        self._distribution, self._size = distribution, comm.world().size

    def use_backend(self, backend: Backend) -> None:
        """Use this backend for the next steps."""
        self._backend = backend

    def commit_step(self) -> None:
        """Commit a step of the backend; see `commit`."""
        assert self._backend is not None
        self._backend.finish()
        self.commit()

    def run(self, operation: Callable[[], Result]) -> Result:
        """Return the result of an operation, repeated after a loss of ranks."""
        while True:
            version = self.version
            try:
                result = operation()
                self.commit()
            except RankLostError:
                self.recover(version)
            else:
                return result

    def commit(self) -> None:
        """Commit an operation: its results are valid after the return.

        Raises:
            RankLostError: the results are invalid; call `recover`, then repeat the
                operation.
        """
        if comm.is_elastic():
            try:
                comm.world().barrier()
            except RankLostError:
                if not self._remove_lost_ranks(has_results=True):
                    raise
        self._num_committed += 1

    def recover(self, version: int) -> None:
        """Remove lost ranks, in the handler of a `RankLostError` of an operation.

        Args:
            version: the version at the start of the operation.

        Raises:
            LaunchError: the job cannot continue.
            RankLostError: the same error, if the job is not elastic.
        """
        if not comm.is_elastic():
            raise  # the error that the caller handles
        if version == self.version:
            self._remove_lost_ranks(has_results=False)

    def _remove_lost_ranks(self, has_results: bool) -> bool:
        """Shrink the job to the remaining ranks.

        Args:
            has_results: whether this rank has the results of the interrupted operation.

        Returns:
            Whether the results are valid.
        """
        while True:
            if self._backend is not None:
                self._backend.disconnect()
            world = comm.recover()
            try:
                reports = comm.exchange(world, [self._num_committed, has_results])
                newest = max(count for count, _ in reports)
                if any(count + has_result < newest for count, has_result in reports):
                    raise LaunchError(
                        "recover: ranks differ by more than one operation; received "
                        f"{reports}, the number of operations and whether the next "
                        "is done"
                    )
                is_committed = self._num_committed < newest
                self._resize(is_committed)
                self._start_replacements(len(reports))
                return is_committed
            except RankLostError:  # another loss
                continue

    def _resize(self, is_committed: bool) -> None:
        """Recreate groups and programs for the current ranks."""
        if self._distribution is not None:
            self._distribution.resize(is_committed)
        self.version += 1

    # --- replacements -----------------------------------------------------------------

    def begin(self, model: Any) -> None:
        """Start a run of `fit`, or resume it as a replacement of a lost rank."""
        self.runs += 1
        self._model = model
        if jobs.is_replacement():
            try:
                jobs.join()
                self._resize(is_committed=False)
                self._send_state(model)
                self.commit()
            except RankLostError:  # the remaining ranks remove this one too
                os.kill(os.getpid(), KILL_SIGNAL)
        elif comm.is_elastic() and self._distribution is not None:
            self.run(self._distribution.begin_run)

    def end(self) -> None:
        """End the run and cancel pending replacements."""
        self._model = None
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None

    def after_step(self) -> None:
        """Admit ready replacements; all ranks call this between steps."""
        if self._pending is None:
            return
        states = self.run(self._exchange_states)
        if HAS_FAILED in states:
            self._pending.cancel()
            self._pending = None
        elif set(states) == {IS_READY}:
            pending, self._pending = self._pending, None
            self._admit(pending)

    def _admit(self, pending: PendingReplacements) -> None:
        """Admit replacements, unless a rank is lost now."""
        version, group = self.version, pending.merge()
        are_merged = self.run(lambda: comm.exchange(comm.world(), group is not None))
        if group is not None and all(are_merged) and version == self.version:
            jobs.admit(group)
            self._resize(is_committed=False)
            self.run(lambda: self._send_state(self._model))
        elif group is not None:
            group.revoke()  # releases ranks that wait in it

    def _exchange_states(self) -> list[int]:
        """Return the state of the replacements as seen by each rank."""
        state = None if self._pending is None else self._pending.state
        return comm.exchange(comm.world(), state)

    def _start_replacements(self, num_ranks: int) -> None:
        """Start replacements for lost ranks, if they can join.

        They run the script from its start, so they can only resume its first `fit`.
        """
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        is_training = self._model is not None and self.runs == 1
        has_full_state = self._distribution is None or self._distribution.has_full_state
        if jobs.can_replace() and is_training and has_full_state:
            self._pending = jobs.start_replacements(self._size - num_ranks)

    def _send_state(self, model: Any) -> None:
        """Send the training state to the ranks that joined."""
        world, variables, record = comm.world(), all_variables(model), None
        if world.rank == 0:
            record = {"done": self._num_committed, "run": model._progress.record()}
        record = comm.exchange(world, record)[0]
        is_new = self._num_committed < record["done"]
        for variable in variables:
            array = np.array(variable.numpy())
            world.broadcast(array)
            if is_new:
                variable.assign(array)
        if is_new:
            self._num_committed = record["done"]
            model._progress.restore_record(record["run"])


# One per process: operations of all distributions share the numbering.
recovery = Recovery()
