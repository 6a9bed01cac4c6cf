"""Coordination of `fit`, `evaluate` and `predict` between the processes of a job."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import TypeVar, cast

from toolkit import comm, tree
from toolkit.comm.flight_recorder import Step, begin_step
from toolkit.compiler import distribution_context
from toolkit.compiler.distribution_context import DistributionContext
from toolkit.compiler.shared_steps import warn_without_distribution
from toolkit.functions.job_checks import ComparedState
from toolkit.functions.local_rows import (
    Batch,
    JobSharing,
    check_same_batch,
    checksum_of_batch,
    complete_local_batch,
    count_rows,
    data_mismatch_error,
    describe_batch,
    rows_mismatch_error,
    take_local_outputs,
)
from toolkit.models.callbacks.callback_list import CallbackList
from toolkit.models.saving.state import all_variables
from toolkit.models.training.agreement import Agreement
from toolkit.models.training.epochs import EpochBatches
from toolkit.models.training.sources import Source
from toolkit.models.training.steps import Steps
from toolkit.random.seeds import global_seed_generator, global_state

Method = TypeVar("Method", bound=Callable[..., object])


def coordinate_run(model: Steps) -> RunCoordinator:
    """Return the coordinator for a run of a model, or for one step of it."""
    job = distribution_context.current()
    if job is None:
        warn_without_distribution(model.name)
        return RunCoordinator()
    if model.run_eagerly:
        return RecoveryCoordinator(job, model)
    return JobCoordinator(job, model)


def shared_run(method: Method) -> Method:
    """Return a method of a model whose errors are sent to the processes of the job.

    Args:
        method: a method that all processes call together.
    """

    @wraps(method)
    def wrapper(self: Steps, *args: object, **kwargs: object) -> object:
        if distribution_context.current() is None or self.run_eagerly:
            return method(self, *args, **kwargs)
        with comm.shared_operation(method.__name__):
            return method(self, *args, **kwargs)

    return cast(Method, wrapper)


class RunCoordinator:
    """Coordinator of a run; this class is for one process, which needs no peers.

    A run calls it before the first step, with the data, the built model and the
    callbacks; then after each step and epoch, and at the end of training.

    Attributes:
        is_shared: whether several processes compute each step together.
    """

    is_shared = False

    def compare_data(
        self, batches: EpochBatches | None, peek: bool = True, label: str = ""
    ) -> None:
        """Raise for data whose length, shape or order differs between processes.

        Such processes would run different numbers of steps, and wait forever; or take
        their rows of batches that other processes do not have. From now on each process
        has only its rows of every batch.

        Args:
            batches: the steps; None for no steps, which all processes must agree on,
                too.
            peek: whether to compare the first batch, too.
            label: the prefix of an error.

        Raises:
            ArgumentError: on all processes.
        """

    def complete_batch(self, batch: Batch) -> Batch:
        """Return the batch of a single step, with the specs of the full batch.

        Raises:
            ArgumentError: on all processes, unless each has the batch or its rows.
        """
        return batch

    def local_outputs(self, outputs: Batch, batch: object) -> Batch:
        """Return the outputs of a step for the rows that this process passed.

        Args:
            outputs: the outputs of all rows.
            batch: the batch of the step; no effect in one process.
        """
        return outputs

    def compare_state(self, force: bool = False) -> None:
        """Raise for weights, seeds and optimizer settings that differ.

        Args:
            force: whether to repeat an earlier comparison.

        Raises:
            ArgumentError: on all processes, with the first difference.
        """

    def add_callbacks(self, callbacks: object) -> object:
        """Return the callbacks of `fit`, and of the launcher of a job.

        Args:
            callbacks: a nest of callbacks; a CallbackList is complete.
        """
        return callbacks

    def stop_together(
        self, callbacks: CallbackList, **arguments: object
    ) -> AbstractContextManager[None]:
        """Return a context of steps that end, also by Ctrl-C, in all processes at once.

        Args:
            callbacks: the callbacks of the run; no effect in one process.
            **arguments: arguments of the run, which must be equal in all processes; no
                effect in one process.

        Raises:
            ArgumentError: on all processes, for different arguments.
        """
        return nullcontext()

    def sharing_errors(self, name: str) -> AbstractContextManager[None]:
        """Return a context whose errors are sent to the other processes at once.

        Args:
            name: the operation; no effect in one process.
        """
        return nullcontext()

    def begin_training(self) -> None:
        """Start the epochs of `fit`, or resume them as a replacement."""

    def end_training(self) -> None:
        """End the epochs of `fit`."""

    def begin_step(self, run: str, index: int, epoch: int | None = None) -> None:
        """Record the next step, for reports about processes that are late.

        Args:
            run: the name of the run.
            index: the index of the step.
            epoch: the index of the epoch, if there are epochs.
        """

    def should_stop(self, requested: bool) -> bool:
        """Return whether all processes stop after this step.

        Args:
            requested: whether this process requests a stop.

        Raises:
            KeyboardInterrupt: one of the processes received Ctrl-C.
        """
        return requested

    def end_training_step(self, requested: bool) -> bool:
        """Return `should_stop`; if not, admit replacements of lost processes."""
        return self.should_stop(requested)

    def end_epoch(self, requested: bool) -> bool:
        """Return whether all processes stop after this epoch of `fit`.

        Raises:
            ArgumentError: on all processes, for settings of the optimizer, such as a
                learning rate, that one process alone has changed.
        """
        return requested


class RecoveryCoordinator(RunCoordinator):
    """Coordinator of processes that compute alone, in a job that replaces lost ones.

    Args:
        job: the job, of which all processes call the same methods.
        model: the model of the run.
    """

    def __init__(self, job: DistributionContext, model: Steps) -> None:
        self._job, self._model = job, model

    def begin_training(self) -> None:
        self._job.recovery.begin(self._model)

    def end_training(self) -> None:
        self._job.recovery.end()

    def end_training_step(self, requested: bool) -> bool:
        stops = self.should_stop(requested)
        if not stops:
            self._job.recovery.after_step()
        return stops


class JobCoordinator(RecoveryCoordinator):
    """Coordinator of the processes of a job, which compute each step together."""

    is_shared = True
    _agreement: Agreement | None = None  # None if one process decides

    # --- data -------------------------------------------------------------------------

    def compare_data(
        self, batches: EpochBatches | None, peek: bool = True, label: str = ""
    ) -> None:
        sharing, order = None, None  # a fingerprint, before the first batch is read
        if batches is not None and self._model._can_compile():
            sharing = self._share_batches(batches.source)
            if self._job.auto_shard_dataset:
                order = batches.source.fingerprint()
        local = "nothing" if batches is None else _describe(batches, peek)
        if sharing is not None and sharing.first_checksum is not None:
            words = [f"a first batch with the checksum {sharing.first_checksum:08x}"]
            order = " and ".join([*words, *filter(None, [order])])
        exchanged = self._job.exchange([local, order])
        texts = [text for text, _ in exchanged]
        if len(set(texts)) > 1:
            raise data_mismatch_error(texts, label)
        orders = [text for _, text in exchanged]
        if len(set(orders)) > 1:
            raise rows_mismatch_error(orders, label)

    def _share_batches(self, source: Source) -> JobSharing:
        # Then the comparison of the data determines the shapes of all batches.
        has_equal_batches = source.num_batches is not None and (
            self._job.auto_shard_dataset or source.samples is not None
        )
        sharing = JobSharing(self._job, compares=not has_equal_batches)
        source.share_batches(sharing)
        return sharing

    def _has_local_batches(self) -> bool:
        """Return whether the user passes only the local rows of each batch."""
        return not self._job.auto_shard_dataset and self._model._can_compile()

    def complete_batch(self, batch: Batch) -> Batch:
        checksum = 0
        if self._job.auto_shard_dataset and self._job.num_processes > 1:
            checksum = checksum_of_batch(batch)
        check_same_batch(self._job, batch, checksum=checksum)
        if not self._has_local_batches():
            return batch
        return complete_local_batch(self._job, batch)

    def local_outputs(self, outputs: Batch, batch: object) -> Batch:
        if not self._has_local_batches():
            return outputs
        return take_local_outputs(outputs, count_rows(batch), self._job.rows)

    # --- state ------------------------------------------------------------------------

    def compare_state(self, force: bool = False) -> None:
        job, model = self._job, self._model
        previous = model._compared_state
        if previous is not None and previous.job is job and not force:
            previous.compare()
            return
        variables = all_variables(model)
        if global_state() is not None:  # its creation would draw a seed
            variables.append(global_seed_generator().state)
        optimizer = model.optimizer
        slots = [] if optimizer is None else optimizer.variables
        state = ComparedState(job)
        state.add(variables, [v for v in slots if v.shape == ()])
        model._compared_state = state  # also for processes that join later

    # --- steps ------------------------------------------------------------------------

    def add_callbacks(self, callbacks: object) -> object:
        if isinstance(callbacks, CallbackList):
            return callbacks
        return [*tree.flatten(callbacks or []), *self._job.recovery.callbacks()]

    def stop_together(
        self, callbacks: CallbackList, **arguments: object
    ) -> AbstractContextManager[None]:
        if self._job.num_processes == 1:
            return nullcontext()
        arguments["steps_per_execution"] = self._model.steps_per_execution
        self._agreement = Agreement(self._job, callbacks, arguments)
        return self._agreement

    def sharing_errors(self, name: str) -> AbstractContextManager[None]:
        return comm.shared_operation(name)

    def begin_step(self, run: str, index: int, epoch: int | None = None) -> None:
        number = None if epoch is None else epoch + 1
        begin_step(Step(run, index + 1, number))

    def should_stop(self, requested: bool, force: bool = False) -> bool:
        if self._agreement is None:
            return requested
        return self._agreement.should_stop(requested, force)

    def end_epoch(self, requested: bool) -> bool:
        stops = self.should_stop(requested, force=True)
        if self._model._compared_state is not None:
            self._model._compared_state.compare("fit: after an epoch: ")
        return stops


def _describe(batches: EpochBatches, peek: bool) -> str:
    source = batches.source
    counts = {
        "samples": source.samples,
        "batches per epoch": batches.num_batches,
        "samples per batch": source.batch_size,
    }
    words = [f"{count} {name}" for name, count in counts.items() if count is not None]
    first = tree.flatten(batches.peek()) if peek else []
    shapes = describe_batch(first)
    if shapes:
        words.append(f"a first batch of {shapes}")
    return ", ".join(words) or "an unknown number of batches"
