"""Evaluation: `evaluate`, `predict`, and the common part of all runs."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from toolkit import tree
from toolkit.arguments import check_arguments, is_int
from toolkit.backends.memory import device_memories
from toolkit.compiler import distribution_context
from toolkit.console.frames import warn_once
from toolkit.core.composites import has_composites
from toolkit.core.fetching import fetch
from toolkit.core.tensor import Tensor
from toolkit.core.trace import StatelessScope
from toolkit.errors import ArgumentError, NotCompiledError, ShapeError, unknown_choice
from toolkit.layers.call import context as layer_context
from toolkit.layers.input_spec import InputSpec
from toolkit.models.callbacks.callback_list import CallbackList
from toolkit.models.callbacks.logs import python_logs
from toolkit.models.training.arrays import batch_tensors
from toolkit.models.training.compile_metrics import CompileMetrics
from toolkit.models.training.data_adapters import (
    named_errors,
    pack_x_y_sample_weight,
    unpack_x_y_sample_weight,
)
from toolkit.models.training.empty_data import empty_data_error
from toolkit.models.training.epochs import EpochBatches, make_batches
from toolkit.models.training.logit_checks import Head, find_heads
from toolkit.models.training.run_coordinator import (
    RunCoordinator,
    coordinate_run,
    shared_run,
)
from toolkit.models.training.sources import DEFAULT_BATCH
from toolkit.models.training.step_functions import EAGER_FIX, for_batches
from toolkit.models.training.steps import Steps, batch_size, overrides
from toolkit.ops.symbolic import KerasTensor, infer
from toolkit.thread_state import restore_on_error
from toolkit.type_aliases import Array

_VERBOSE = ("auto", 0, 1, 2)


# Maximum number of batches whose outputs are in transfer during later steps.
_AHEAD = 2


class _Outputs:
    """Outputs of a batch in transfer to the host."""

    def __init__(self, outputs: Any) -> None:
        self.structure = tree.structure_of(outputs)
        self.fetched = fetch(tree.flatten(outputs))

    def get(self) -> Any:
        return tree.pack_sequence_as(self.structure, self.fetched.get())


class Evaluation(Steps):
    """Runs over data that do not change weights."""

    stop_evaluating: bool = False
    stop_predicting: bool = False

    @check_arguments
    @shared_run
    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Compute loss and metrics over data.

        Args:
            x, y, batch_size, verbose, sample_weight, callbacks: the same as in `fit`.
            steps: the number of batches; all if None.
            return_dict: whether to return a dict by name.

        Returns:
            The loss, or a list of loss and metrics, or a dict of them.
        """
        self._check_compiled("evaluate")
        check_run("evaluate", verbose)
        run = coordinate_run(self)
        with named_errors("evaluate"):
            batches = make_batches(x, y, sample_weight, batch_size, steps)
            self._prepare_batches(batches.source, "test_function")
            run.compare_data(batches)
            self._prepare_for(batches.peek(), "test_step")
            run.compare_state()
        callbacks = self._callback_list(callbacks, verbose, 1, batches)
        with run.stop_together(callbacks):
            logs = self._evaluate(run, batches, callbacks)
        return logs if return_dict else self._order_logs(logs)

    def _evaluate(
        self, run: RunCoordinator, batches: EpochBatches, callbacks: CallbackList
    ) -> dict[str, Any]:
        batches.restart()
        step = for_batches(self.make_test_function(), batches.source)
        self.stop_evaluating = False
        callbacks.on_test_begin()
        self.reset_metrics()
        logs: Any = {}
        last: int | None = None
        for first, last, group in batches.groups(self.steps_per_execution):
            run.begin_step("evaluate", first)
            callbacks.on_test_batch_begin(first)
            for batch in group:
                logs = step(batch)
            callbacks.on_test_batch_end(last, logs)
            if run.should_stop(self.stop_evaluating):
                self.stop_evaluating = True
                break
        if last is None:
            self._warn_of_no_batch(batches)
        logs = self._final_logs(logs)
        callbacks.on_test_end(logs)
        return logs

    def _warn_of_no_batch(self, batches: EpochBatches) -> None:
        """Warn once that validation has no results; `evaluate` raises earlier."""
        error = empty_data_error(getattr(batches.source, "_batches", None))
        warn_once(
            self,
            f"validation_data: {error}; the logs contain no results of validation",
            topic="empty validation",
        )

    @check_arguments
    @shared_run
    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Array:
        """Return the outputs for all samples, as NumPy arrays in the outputs' nest.

        Args:
            x, batch_size, verbose, callbacks: the same as in `fit`.
            steps: the number of batches; all if None.
        """
        check_run("predict", verbose)
        run = coordinate_run(self)
        watched = callbacks or steps or _shows_progress(verbose) or run.is_shared
        if not watched and self._is_one_batch(x, batch_size):
            return self.predict_on_batch(x)
        with named_errors("predict"):
            batches = make_batches(x, None, None, batch_size, steps)
            self._prepare_batches(batches.source, "predict_function")
            run.compare_data(batches)
            self._prepare_for(batches.peek(), "predict_step")
            run.compare_state()
        callbacks = self._callback_list(callbacks, verbose, 1, batches)
        with run.stop_together(callbacks):
            return self._predict(run, batches, callbacks)

    def _is_one_batch(self, x: object, batch_size: int | None) -> bool:
        """Return whether all data is one batch: then skip the bookkeeping of a run.

        It takes as long as the computation of a small network.
        """
        if type(x) is not np.ndarray or x.dtype.kind not in "biuf" or not x.ndim:
            return False
        maximum = DEFAULT_BATCH if batch_size is None else batch_size
        return 0 < len(x) <= maximum and self.built

    def _predict(
        self, run: RunCoordinator, batches: EpochBatches, callbacks: CallbackList
    ) -> Array:
        step = for_batches(self.make_predict_function(), batches.source)
        self.stop_predicting = False
        callbacks.on_predict_begin()
        results: list[Any] = []
        pending: deque[Any] = deque()
        for first, last, group in batches.groups(self.steps_per_execution):
            run.begin_step("predict", first)
            callbacks.on_predict_batch_begin(first)
            outputs = [run.local_outputs(step(batch), batch) for batch in group]
            if device_memories:
                pending += map(_Outputs, outputs)
            else:
                results += outputs
            while len(pending) > _AHEAD:
                results.append(pending.popleft().get())
            if len(outputs) > 1:
                outputs = [tree.map_structure(_concatenate, *outputs)]
            callbacks.on_predict_batch_end(last, {"outputs": outputs[0]})
            if run.should_stop(self.stop_predicting):
                self.stop_predicting = True
                break
        results += (outputs.get() for outputs in pending)
        callbacks.on_predict_end()
        arrays: Array = tree.map_structure(_concatenate, *results)
        return arrays

    @check_arguments
    @shared_run
    def test_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Compute loss and metrics of one batch; returns the same as `evaluate`.

        Args:
            x, y, sample_weight: a batch, the same as in `fit`.
            return_dict: whether to return a dict by name.

        Returns:
            The loss, or a list of loss and metrics, or a dict of them.
        """
        self._check_compiled("test_on_batch")
        run = coordinate_run(self)
        with named_errors("test_on_batch"):
            batch = run.complete_batch(make_batch(x, y, sample_weight))
            self._prepare_for(batch, "test_step")
            run.compare_state()
        self.reset_metrics()
        logs = python_logs(self.make_test_function()(batch))
        return logs if return_dict else self._order_logs(logs)

    @check_arguments
    @shared_run
    def predict_on_batch(self, x: Any) -> Array:
        """Return the outputs for one batch, as NumPy arrays.

        Args:
            x: the inputs of a batch.
        """
        run = coordinate_run(self)
        with named_errors("predict_on_batch"):
            batch = run.complete_batch((batch_tensors(x, "x"),))
            run.compare_state()
        outputs = run.local_outputs(self.make_predict_function()(batch), batch)
        arrays: Array = tree.map_structure(_concatenate, outputs)
        return arrays

    def _check_compiled(self, method: str) -> None:
        if not self.compiled:
            raise NotCompiledError(
                f"{method}: You must call `compile(optimizer, loss)` first"
            )

    def _callback_list(
        self,
        callbacks: Any,
        verbose: int | str,
        epochs: int,
        batches: EpochBatches,
        add_history: bool = False,
    ) -> CallbackList:
        """Return the callbacks of a run; see `CallbackList` for the arguments."""
        if isinstance(callbacks, CallbackList):
            return callbacks
        return CallbackList(
            callbacks,
            add_history=add_history,
            add_progbar=_shows_progress(verbose),
            model=self,
            verbose=verbose,
            epochs=epochs,
            steps=batches.num_batches,
        )

    def _prepare_for(self, batch: Any, step: str) -> None:
        """Create missing weights, losses and metrics.

        A user's step creates them itself if they cannot be created before it: it can
        call the model with other data, or compare other values.
        """
        try:
            with restore_on_error():
                self._build_missing(batch)
        except Exception as error:
            if not overrides(self, step):
                if isinstance(error, ShapeError) and self._is_swapped(batch):
                    error.args = (f"{error}; x and y seem to be swapped",)
                raise

    def _is_swapped(self, batch: Any) -> bool:
        """Return whether the targets, but not the inputs, fit the model's input."""
        x, y, _ = unpack_x_y_sample_weight(batch)
        inputs = getattr(self, "inputs", None)
        if inputs is None or len(inputs) != 1:
            return False
        if not isinstance(x, Tensor) or not isinstance(y, Tensor):
            return False
        spec = InputSpec(shape=(None, *inputs[0].shape[1:]))
        fits = [spec.mismatch(array.shape, array.dtype) is None for array in (x, y)]
        return fits == [False, True]

    def _build_missing(self, batch: Any) -> None:
        unbuilt_components: list[Any] = []
        if unpack_x_y_sample_weight(batch)[1] is not None:
            components = (self._compile_loss, self._compile_metrics)
            unbuilt_components = [
                component
                for component in components
                if component is not None and not component.built
            ]
        if self.run_eagerly:
            self._build_eagerly(batch, unbuilt_components)
            return
        self._build_for_batches(unpack_x_y_sample_weight(batch)[0])
        has_unbuilt_layers = not all(layer.built for layer in self._flatten_layers())
        if (has_unbuilt_layers or unbuilt_components) and self._defines_call():
            x, y, _ = unpack_x_y_sample_weight(tree.map_structure(_symbol, batch))
            heads: list[Head | None] = []
            if self._can_compile() and not has_composites(batch):

                def forward(x: object) -> object:
                    outputs = self._forward(x, training=False)
                    heads[:] = find_heads(outputs)
                    return outputs

                y_pred = infer(forward, (x,), {}, fix=EAGER_FIX)
            else:
                y_pred = self._forward(unpack_x_y_sample_weight(batch)[0], False)
                y_pred = tree.map_structure(_symbol, y_pred)
            for component in unbuilt_components:
                component.build(y, y_pred)
            if any(component is self._compile_loss for component in unbuilt_components):
                self._check_targets(unpack_x_y_sample_weight(batch)[1], y_pred, heads)

    def _build_eagerly(self, batch: object, unbuilt_components: list[Any]) -> None:
        """Create missing weights, losses and metrics by a call on a batch.

        Nothing is traced, so that layers can use the values of their inputs.
        """
        is_built = all(layer.built for layer in self._flatten_layers())
        if (is_built and not unbuilt_components) or not self._defines_call():
            return
        x, y, _ = unpack_x_y_sample_weight(batch)
        y_pred = self._output_symbols(batch_size(x)) if is_built else None
        if y_pred is None:
            # The first step follows: it must receive the same seeds and states.
            with layer_context.override(is_eager=True), StatelessScope():
                y_pred = self._forward(x, training=False)
            y_pred = tree.map_structure(_symbol, y_pred)
        for component in unbuilt_components:
            component.build(tree.map_structure(_symbol, y), y_pred)
        if any(component is self._compile_loss for component in unbuilt_components):
            self._check_targets(y, y_pred, [])

    def _output_symbols(self, batch_size: int) -> object:
        """Return symbols like the outputs of a batch; None if a call must show them."""
        return None

    def _build_for_batches(self, x: Any) -> None:
        """Build the model for batches of any size, if its class supports it."""

    def _check_targets(
        self, y: object, y_pred: object, heads: list[Head | None]
    ) -> None:
        """Check the first targets, unless a subclass overrides their use.

        Args:
            y: the targets.
            y_pred: symbols of the outputs.
            heads: the last operations of the outputs; empty if they are unknown.
        """
        steps = ("train_step", "test_step", "compute_loss")
        if all(getattr(type(self), name) is getattr(Steps, name) for name in steps):
            self._compile_loss.check_targets(y, y_pred)
            if heads:
                packed = tree.pack_sequence_as(y_pred, heads)
                self._compile_loss.check_heads(self, packed)

    def _defines_call(self) -> bool:
        return True

    def _final_logs(self, logs: Any) -> dict[str, Any]:
        """Return the metrics over the full epoch, or the logs of a custom step."""
        if not isinstance(logs, dict):
            return {}
        results = self.get_metrics_result()
        if set(results) != set(logs):
            return python_logs(logs)
        tracker = self._loss_tracker
        namesakes = [m for m in self.metrics if tracker and m.name == tracker.name]
        if len(namesakes) == 1 and namesakes[0] is tracker and tracker.count == 0:
            results[tracker.name] = logs[tracker.name]  # the step did not update it
            if len(results) > 1 and float(logs[tracker.name]) == 0:
                warn_once(
                    self,
                    f"{self.name}: the loss in the logs is 0, because the custom step "
                    "does not update the metric 'loss', and `compute_metrics` does "
                    "not, either; for the metric of this name in `self.metrics`, call "
                    "metric.update_state(loss)",
                    topic="loss metric",
                )
        return python_logs(results)

    def _order_logs(self, logs: dict[str, Any]) -> Any:
        """Return the values of logs in the order of the metrics, or the only value."""
        names: list[str] = []
        for metric in self.metrics:
            if isinstance(metric, CompileMetrics):
                names += [component.name for component in metric.metrics]
            else:
                names.append(metric.name)
        ordered = [logs[name] for name in names if name in logs]
        ordered += [logs[key] for key in sorted(logs) if key not in names]
        return ordered[0] if len(ordered) == 1 else ordered


def _shows_progress(verbose: int | str) -> bool:
    """Return whether this process shows progress."""
    return verbose != 0 and distribution_context.is_chief()


def check_run(method: str, verbose: Any, validation_freq: Any = 1) -> None:
    """Raise unless these arguments of a run are valid."""
    if verbose not in _VERBOSE:
        raise unknown_choice(f"{method}: verbose", verbose, _VERBOSE)
    allowed = isinstance(validation_freq, (list, tuple, set))
    if not allowed and not (is_int(validation_freq) and validation_freq > 0):
        raise ArgumentError(
            f"{method}: expected validation_freq to be a number >= 1 or a list of "
            f"epochs; received {validation_freq!r}"
        )


def make_batch(x: Any, y: Any, sample_weight: Any) -> Any:
    """Return a batch as tensors."""
    components = {"x": x, "y": y, "sample_weight": sample_weight}
    packed = pack_x_y_sample_weight(
        *(batch_tensors(v, k) for k, v in components.items())
    )
    return packed if isinstance(packed, tuple) else (packed,)


def _symbol(leaf: Any) -> Any:
    return None if leaf is None else KerasTensor(leaf.shape, leaf.dtype)


def _concatenate(*components: Any) -> Array:
    """Concatenate the arrays of all batches into memory that is not shared."""
    if len(components) == 1:
        return np.array(components[0])
    return np.concatenate([np.asarray(component) for component in components])
