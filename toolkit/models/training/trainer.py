"""Trainer: `compile`, `fit`, `evaluate`, `predict` and single steps."""

from __future__ import annotations

from typing import Any

from toolkit import inspection, metrics as metrics_module, optimizers
from toolkit.arguments import check_arguments, is_int
from toolkit.buffer_pool import release_spare_memory
from toolkit.console.frames import warn
from toolkit.console.tracebacks import filter_traceback
from toolkit.errors import ArgumentError, unknown_choice
from toolkit.layers.rollback import rollback_on_error
from toolkit.layers.tracking import no_tracking
from toolkit.models.callbacks.callback_list import CallbackList
from toolkit.models.callbacks.history import History
from toolkit.models.callbacks.logs import python_logs
from toolkit.models.training.arrays import (
    check_class_weight,
    is_arrays,
    split_arrays,
    weights_of_classes,
)
from toolkit.models.training.compile_config import CompileConfigured
from toolkit.models.training.compile_loss import CompileLoss
from toolkit.models.training.compile_metrics import CompileMetrics
from toolkit.models.training.data_adapters import named_errors, unpack_x_y_sample_weight
from toolkit.models.training.epochs import EpochBatches, is_due, make_batches
from toolkit.models.training.evaluation import Evaluation, check_run, make_batch
from toolkit.models.training.loss_watch import LossWatch
from toolkit.models.training.nonfinite_steps import find_nonfinite
from toolkit.models.training.resuming import Progress
from toolkit.models.training.run_coordinator import (
    RunCoordinator,
    coordinate_run,
    shared_run,
)
from toolkit.models.training.sources import make_source
from toolkit.models.training.step_functions import for_batches
from toolkit.models.training.steps import overrides
from toolkit.settings import max_epochs
from toolkit.thread_state import restore_on_error


class Trainer(CompileConfigured, Evaluation):
    """Training, evaluation and prediction: the part of a Model that a Layer lacks."""

    history: Any = None
    stop_training: bool = False
    _progress: Progress | None = None  # of the run, for backups
    _trained: Any = None  # the optimizer and variables of train_function

    @check_arguments
    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        loss_weights: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        jit_compile: bool | str = "auto",
        auto_scale_loss: bool = True,
    ) -> None:
        """Configure training and evaluation.

        Args:
            optimizer: an optimizer or its name.
            loss: a loss, its name, or a function of (y_true, y_pred); or a nest of them
                like the outputs, as a list or a dict by output name.
            loss_weights: factors of the losses, in the same structure.
            metrics: a list of metrics, names or functions; for several outputs, one
                entry per output.
            weighted_metrics: the same, for metrics that use sample weights.
            run_eagerly: whether to run steps as Python code, for debugging.
            steps_per_execution: the number of steps between the calls of callbacks.
            jit_compile: "auto" and True compile; False runs separate kernels.
            auto_scale_loss: whether a "mixed_float16" model scales its loss.
        """
        if jit_compile not in ("auto", True, False):
            raise unknown_choice(
                "compile: jit_compile", jit_compile, ("auto", True, False)
            )
        if not is_int(steps_per_execution) or steps_per_execution < 1:
            raise ArgumentError(
                "compile: expected steps_per_execution >= 1; received "
                f"{steps_per_execution!r}"
            )
        if jit_compile is True and run_eagerly:
            warn(
                "compile: run_eagerly=True disables compilation, so jit_compile is "
                "set to False"
            )
            jit_compile = False
        self._check_initialized()
        names = getattr(self, "output_names", None)
        instance = optimizers.get(optimizer)
        with rollback_on_error([self]), no_tracking():
            self.loss = self._loss_attribute(loss)
            self._compiled_with = {
                "optimizer": instance,
                "loss": loss,
                "loss_weights": loss_weights,
                "metrics": metrics,
                "weighted_metrics": weighted_metrics,
                "run_eagerly": run_eagerly,
                "steps_per_execution": steps_per_execution,
                "jit_compile": jit_compile,
            }
            self._compile_loss = None
            if loss is not None:
                self._compile_loss = CompileLoss(loss, loss_weights, names)
            self._compile_metrics = None
            if metrics is not None or weighted_metrics is not None:
                self._compile_metrics = CompileMetrics(metrics, weighted_metrics, names)
            # Last, because it modifies its argument.
            scales = auto_scale_loss and instance is not None
            self.optimizer = self._with_loss_scale(instance) if scales else instance
            self._loss_tracker = metrics_module.Mean(name="loss")
            self._trained = None
            self.train_function: Any
            self.test_function: Any
            self.predict_function: Any
            self.train_function = self.test_function = self.predict_function = None
        self.run_eagerly = run_eagerly
        self.jit_compile = jit_compile
        self.steps_per_execution = steps_per_execution
        self.stop_training = False
        self.compiled = True

    def _with_loss_scale(self, optimizer: Any) -> Any:
        """Return the optimizer, wrapped in loss scaling if float16 needs it."""
        scaling = optimizers.LossScaleOptimizer
        is_mixed_float16 = self.dtype_policy.name == "mixed_float16"
        if not is_mixed_float16 or isinstance(optimizer, scaling):
            return optimizer
        return scaling(optimizer, name="loss_scale_optimizer")

    @check_arguments
    @shared_run
    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool | str = True,
        class_weight: dict[int, float] | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int | list[int] = 1,
    ) -> History:
        """Train the model.

        Args:
            x: arrays, one entry per sample; or a generator, or an object that returns
                batches by `__iter__` or by `__getitem__` and `__len__`.
            y: targets, if x is arrays.
            batch_size: samples per step; 32 if None.
            epochs: the number of the last epoch, counted from 1.
            verbose: 0 silent, 1 a bar, 2 lines; "auto" depends on the terminal.
            callbacks: a list of callbacks.
            validation_split: the fraction of the samples, taken from the end before
                shuffling, for validation.
            validation_data: (x, y), (x, y, sample_weight), or batches as for `x`.
            shuffle: whether each epoch has a new order; "batch": inside batches only.
            class_weight: class -> weight of its samples in the loss.
            sample_weight: the weights of the samples in the loss.
            initial_epoch: the first epoch, counted from 0.
            steps_per_epoch: the number of steps of an epoch; all batches if None.
            validation_steps: the same for validation.
            validation_batch_size: samples per step of validation.
            validation_freq: the epochs between validations, or a list of epochs.

        Returns:
            A History: its `history` maps names to a list of values, one per epoch.

        Raises:
            NotCompiledError: before `compile`.
            KeyboardInterrupt: after Ctrl-C, at the end of the step and `on_train_end`.
        """
        self._check_compiled("fit")
        check_run("fit", verbose, validation_freq)
        for name, number in (("epochs", epochs), ("initial_epoch", initial_epoch)):
            if not is_int(number) or number < 0:
                raise ArgumentError(f"fit: expected {name} >= 0; received {number!r}")
        if initial_epoch > epochs:
            warn(
                f"fit: no epoch runs, because initial_epoch={initial_epoch} is "
                f"larger than epochs={epochs}, the index of the last epoch"
            )
        limit = max_epochs()
        if limit is not None and limit < epochs:
            warn(f"fit: set_max_epochs limits epochs to {limit}")
            epochs = limit
        run = coordinate_run(self)
        with named_errors("fit"):
            if validation_split and validation_data is None:
                train, validation_data = split_arrays(
                    x, y, sample_weight, validation_split
                )
                x, y, sample_weight = train
            source = make_source(
                x, y, sample_weight, batch_size, steps_per_epoch, shuffle, class_weight
            )
            self._prepare_batches(source, "train_function")
            batches = EpochBatches(source, steps_per_epoch)
            size = validation_batch_size
            validation = _validation(validation_data, size, source, validation_steps)
            if validation is not None:
                self._prepare_batches(validation.source, "test_function")
            run.compare_data(batches)
            run.compare_data(validation, peek=False, label="validation_data: ")
            self._prepare_for(batches.peek(), "train_step")
            self._prepare_optimizer()
            run.compare_state(force=True)
        callbacks = self._callback_list(
            run.add_callbacks(callbacks), verbose, epochs, batches, add_history=True
        )
        numbers = range(initial_epoch, epochs)
        with run.stop_together(
            callbacks, epochs=(initial_epoch, epochs), validation_freq=validation_freq
        ):
            self._fit(run, batches, callbacks, numbers, validation, validation_freq)
        release_spare_memory()
        history: History = self.history
        return history

    def _fit(
        self,
        run: RunCoordinator,
        batches: EpochBatches,
        callbacks: CallbackList,
        epochs: range,
        validation: EpochBatches | None,
        validation_freq: Any,
    ) -> None:
        self.stop_training = False
        watch = LossWatch(self, batches.source.find_nonfinite)
        logs: dict[str, Any] = {}
        progress = self._progress = Progress(self, batches, callbacks)
        callbacks.on_train_begin()
        run.begin_training()
        if progress.epoch is not None:  # a callback restored a backup, or a job did
            epochs = range(progress.epoch, epochs.stop)
            progress.begin()
        try:
            with restore_on_error(), run.sharing_errors("fit"):
                for epoch in epochs:
                    progress.begin_epoch(epoch)
                    callbacks.on_epoch_begin(epoch)
                    logs = self._train_epoch(run, batches, callbacks, watch, epoch)
                    if batches.exhausted and not logs:
                        break
                    logs = self._final_logs(logs)
                    if validation is not None and is_due(epoch, validation_freq):
                        results = self._evaluate(run, validation, callbacks)
                        logs.update({f"val_{name}": x for name, x in results.items()})
                    callbacks.on_epoch_end(epoch, logs)
                    self.stop_training = run.end_epoch(self.stop_training)
                    if self.stop_training or batches.exhausted:
                        break
        except KeyboardInterrupt:
            callbacks.on_train_end(logs)
            raise
        except Exception as error:
            filter_traceback(error)
            raise
        finally:
            run.end_training()
        if self.optimizer is not None and epochs:
            self.optimizer.finalize_variable_values(self.trainable_variables)
        callbacks.on_train_end(logs)

    def _train_epoch(
        self,
        run: RunCoordinator,
        batches: EpochBatches,
        callbacks: CallbackList,
        watch: LossWatch,
        epoch: int,
    ) -> dict[str, Any]:
        """Run the steps of one epoch; return the logs of the last step."""
        step = for_batches(self.make_train_function(), batches.source)
        # A resumed epoch can already have had its last step.
        logs: dict[str, Any] = self.get_metrics_result() if batches.num_yielded else {}
        try:
            for first, last, group in batches.groups(self.steps_per_execution):
                run.begin_step("fit", first, epoch)
                callbacks.on_train_batch_begin(first)
                for batch in group:
                    logs = step(batch)
                    watch.add(logs, batch)
                if watch.is_due():
                    watch.check()
                callbacks.on_train_batch_end(last, logs)
                if run.end_training_step(self.stop_training):
                    self.stop_training = True
                    break
        finally:
            watch.check(wait=True)
        return logs

    @check_arguments
    @shared_run
    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: dict[int, float] | None = None,
        return_dict: bool = False,
    ) -> Any:
        """Run one step of training on one batch; returns the same as `evaluate`.

        Args:
            x, y, sample_weight: a batch, the same as in `fit`.
            class_weight: a weight for each label, by label.
            return_dict: whether to return a dict by name.

        Returns:
            The loss, or a list of loss and metrics, or a dict of them.
        """
        self._check_compiled("train_on_batch")
        run = coordinate_run(self)
        with named_errors("train_on_batch"):
            if class_weight is not None:
                check_class_weight(class_weight)
                sample_weight = weights_of_classes(y, sample_weight, class_weight)
            batch = run.complete_batch(make_batch(x, y, sample_weight))
            self._prepare_for(batch, "train_step")
            self._prepare_optimizer()
            run.compare_state()
        self.reset_metrics()
        logs = python_logs(self.make_train_function()(batch))
        return logs if return_dict else self._order_logs(logs)

    def inspect(
        self, x: Any = None, y: Any = None, sample_weight: Any = None
    ) -> inspection.Inspection:
        """Return the compiler's report of a step, which can be printed.

        Args:
            x, y, sample_weight: a batch. With targets, or if the model is compiled
                without a loss, it is the training step; otherwise the prediction step.
                Without x, it is the last step that ran.
        """
        batch = None
        functions = [self.train_function, self.test_function, self.predict_function]
        if x is not None:
            training = self.compiled and (y is not None or not self._compile_loss)
            with named_errors("inspect"):
                batch = make_batch(x, y, sample_weight)
                step = "train_step" if training else "predict_step"
                self._prepare_for(batch, step)
                if training:
                    self._prepare_optimizer()
            train = training and self.make_train_function()
            functions = [train or self.make_predict_function()]
        for function in functions:
            report = None if function is None else function.inspect(batch)
            if report is not None:
                return report
        reasons = [f.reason for f in functions if getattr(f, "reason", "")]
        if reasons:
            raise ArgumentError(f"inspect: there is no program, because {reasons[0]}")
        raise ArgumentError(
            "inspect: no step has been compiled; pass a batch or call `fit` first"
        )

    def find_nonfinite(
        self, x: object, y: object = None, sample_weight: object = None
    ) -> str:
        """Return the cause of a loss or gradient that is not finite, as text.

        It runs one step of training on a batch, as Python code, and changes nothing.
        Use the weights from before the first step with NaN: this step changes weights
        to NaN.

        Args:
            x, y, sample_weight: a batch, the same as in `fit`.

        Returns:
            A text that names the data, or the operation and its layer; "" if the loss
            and all gradients are finite.

        Raises:
            ArgumentError: some weights are not finite.

        Example:
            >>> import toolkit
            >>> from toolkit import layers, ops
            >>> logarithm = layers.Lambda(ops.log, name="log")
            >>> model = toolkit.Sequential([toolkit.Input((1,)), logarithm])
            >>> model.compile(loss="mse")
            >>> model.find_nonfinite(ops.zeros((2, 1)), ops.zeros((2, 1)))
            "the loss is inf because of `log` of values from 0 to 0, in the layer 'log'"
        """
        self._check_compiled("find_nonfinite")
        with named_errors("find_nonfinite"):
            batch = make_batch(x, y, sample_weight)
            self._prepare_for(batch, "train_step")
            return find_nonfinite(self, batch)

    def __getstate__(self) -> dict[str, Any]:
        """Copy and pickle everything except the identities of Variables."""
        dropped = dict.fromkeys(("_trained", "_progress", "_compared_state"))
        return {**self.__dict__, **dropped}

    def _prepare_optimizer(self) -> None:
        """Create the optimizer's slots, and record the current trainable variables."""
        if self.optimizer is None:
            return
        variables = self.trainable_variables
        if not self.optimizer.built:
            is_custom = overrides(self, "train_step")
            if is_custom and not all(layer.built for layer in self._flatten_layers()):
                return  # the step creates the weights, then `apply` the slots
            self.optimizer.build(variables)
        trained = (id(self.optimizer), *map(id, variables))
        if self._trained == trained:
            return
        if self._trained is not None:
            if self._trained[1:] != trained[1:]:
                warn(
                    f"{self.name}: the trainable variables have changed since the "
                    "last step. To pass them to the optimizer, call compile() again"
                )
            self.train_function = None
        self._trained = trained


def _validation(
    data: Any, batch_size: int | None, train: Any, steps: int | None
) -> EpochBatches | None:
    """Return the steps of validation; arrays use the batch size of training."""
    if data is None:
        return None
    x, y, sample_weight = unpack_x_y_sample_weight(data)
    with named_errors("validation_data"):
        if batch_size is None and is_arrays(x):
            batch_size = train.batch_size
        return make_batches(x, y, sample_weight, batch_size, steps)
