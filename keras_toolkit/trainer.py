"""`fit`, `evaluate` and `predict`: one compiled program a step."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from keras.src import (
    callbacks as callbacks_module,
    optimizers as optimizers_module,
    tree,
)
from keras.src.backend import config
from keras.src.trainers import trainer as base_trainer
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils
from keras.src.utils import traceback_utils
from keras.src.utils.python_utils import is_default, pythonify_logs

from keras_toolkit.batches import BatchIterator
from keras_toolkit.core import convert_to_numpy
from keras_toolkit.generation import compile_generation
from keras_toolkit.steps import make_step
from toolkit import GradientTape, comm


class ToolkitTrainer(base_trainer.Trainer):
    """The loops of a model of Keras, with steps that are programs of toolkit."""

    def __init__(self) -> None:
        super().__init__()
        self.train_function: Any = None
        self.test_function: Any = None
        self.predict_function: Any = None
        self._eval_epoch_iterator: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Compile the text generation of models, such as the models of KerasHub."""
        super().__init_subclass__(**kwargs)
        if "make_generate_function" in vars(cls):
            cls.make_generate_function = compile_generation(cls.make_generate_function)

    def _forward(self, x: Any, training: bool) -> Any:
        if self._call_has_training_arg:
            return self(x, training=training)
        return self(x)

    def _forward_with_loss(self, data: Any, training: bool) -> tuple[Any, Any]:
        """Return the outputs and the loss of a batch, and update the loss tracker."""
        x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(data)
        y_pred = self._forward(x, training)
        loss = self._compute_loss(
            x=x,
            y=y,
            y_pred=y_pred,
            sample_weight=sample_weight,
            training=training,
        )
        samples = next(leaf for leaf in tree.flatten(x) if leaf is not None).shape[0]
        self._loss_tracker.update_state(loss, sample_weight=samples)
        return y_pred, loss

    def train_step(self, data: Any) -> dict[str, Any]:
        """Train on one batch and return the metrics."""
        with GradientTape() as tape:
            y_pred, loss = self._forward_with_loss(data, training=True)
            if self.optimizer is not None:
                loss = self.optimizer.scale_loss(loss)
        weights = self.trainable_weights
        if weights:
            gradients = tape.gradient(loss, weights)
            self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        else:
            warnings.warn(
                "The model does not have any trainable weights.", stacklevel=2
            )
        x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(data)
        return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def test_step(self, data: Any) -> dict[str, Any]:
        """Evaluate one batch and return the metrics."""
        y_pred, _ = self._forward_with_loss(data, training=False)
        x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(data)
        return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def predict_step(self, data: Any) -> Any:
        """Return the outputs for one batch."""
        x, _, _ = data_adapter_utils.unpack_x_y_sample_weight(data)
        return self._forward(x, training=False)

    def _make_function(self, step: Callable[[Any], Any], join: Any) -> Any:
        return make_step(
            step, join=join, run_eagerly=self.run_eagerly, jit_compile=self.jit_compile
        )

    def make_train_function(self, force: bool = False) -> Any:
        """Return the function that trains on a list of batches."""
        if self.train_function is None or force:
            self.train_function = self._make_function(self.train_step, join="last")
        return self.train_function

    def make_test_function(self, force: bool = False) -> Any:
        """Return the function that evaluates a list of batches."""
        if self.test_function is None or force:
            self.test_function = self._make_function(self.test_step, join="last")
        return self.test_function

    def make_predict_function(self, force: bool = False) -> Any:
        """Return the function that computes the outputs of a list of batches."""
        if self.predict_function is None or force:
            self.predict_function = self._make_function(self.predict_step, join="rows")
        return self.predict_function

    def _callback_list(
        self, callbacks: Any, verbose: Any, epochs: int, steps: Any, history: bool
    ) -> Any:
        if isinstance(callbacks, callbacks_module.CallbackList):
            return callbacks
        return callbacks_module.CallbackList(
            callbacks,
            add_history=history,
            add_progbar=verbose != 0,
            verbose=verbose,
            epochs=epochs,
            steps=steps,
            model=self,
        )

    @traceback_utils.filter_traceback
    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: Any = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: Any = 1,
    ) -> Any:
        """Train the model; see `keras.Model.fit`."""
        self._assert_compile_called("fit")
        _refuse_jobs()
        max_epochs = config.max_epochs()
        if max_epochs and max_epochs < epochs:
            warnings.warn(f"Limiting epochs to {max_epochs}", stacklevel=2)
            epochs = max_epochs
        self._eval_epoch_iterator = None
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = (
                array_slicing.train_validation_split(
                    (x, y, sample_weight), validation_split=validation_split
                )
            )
        batches = BatchIterator(
            x=x,
            y=y,
            sample_weight=sample_weight,
            batch_size=batch_size,
            steps_per_epoch=steps_per_epoch,
            shuffle=shuffle,
            class_weight=class_weight,
            steps_per_execution=self.steps_per_execution,
        )
        self._symbolic_build(iterator=batches)
        batches.reset()
        callbacks = self._callback_list(
            callbacks, verbose, epochs, batches.num_batches, history=True
        )
        self.stop_training = False
        self.make_train_function()
        callbacks.on_train_begin()
        training_logs: Any = {}
        for epoch in range(self._initial_epoch or initial_epoch, epochs):
            epoch_logs = self._train_epoch(epoch, batches, callbacks)
            if validation_data is not None and self._should_eval(
                epoch, validation_freq
            ):
                epoch_logs |= self._validate(
                    validation_data,
                    validation_batch_size or batch_size,
                    validation_steps,
                    callbacks,
                )
            callbacks.on_epoch_end(epoch, epoch_logs)
            training_logs = epoch_logs
            if self.stop_training:
                break
        if isinstance(self.optimizer, optimizers_module.Optimizer) and epochs > 0:
            self.optimizer.finalize_variable_values(self.trainable_weights)
        self._eval_epoch_iterator = None
        callbacks.on_train_end(logs=training_logs)
        return self.history

    def _train_epoch(self, epoch: int, batches: Any, callbacks: Any) -> dict[str, Any]:
        """Run the steps of one epoch and return its metrics."""
        self.reset_metrics()
        callbacks.on_epoch_begin(epoch)
        logs: Any = {}
        has_hooks = _has_batch_hooks(callbacks, "train")
        for begin_step, end_step, data in batches:
            if has_hooks:
                callbacks.on_train_batch_begin(begin_step)
            logs = self.train_function(data)
            if has_hooks:
                callbacks.on_train_batch_end(end_step, logs)
            if self.stop_training:
                break
        return dict(self._get_metrics_result_or_logs(logs))

    def _validate(
        self, data: Any, batch_size: Any, steps: Any, callbacks: Any
    ) -> dict[str, Any]:
        """Evaluate the validation data and return its metrics with a prefix."""
        x, y, sample_weight = data_adapter_utils.unpack_x_y_sample_weight(data)
        if self._eval_epoch_iterator is None:
            self._eval_epoch_iterator = BatchIterator(
                x=x,
                y=y,
                sample_weight=sample_weight,
                batch_size=batch_size,
                steps_per_execution=self.steps_per_execution,
                steps_per_epoch=steps,
                shuffle=False,
            )
        logs = self.evaluate(
            x=x,
            y=y,
            sample_weight=sample_weight,
            batch_size=batch_size,
            steps=steps,
            callbacks=callbacks,
            return_dict=True,
            _use_cached_eval_dataset=True,
        )
        return {f"val_{name}": value for name, value in logs.items()}

    @traceback_utils.filter_traceback
    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Return the loss and the metrics for data; see `keras.Model.evaluate`."""
        self._assert_compile_called("evaluate")
        use_cached_iterator = kwargs.pop("_use_cached_eval_dataset", False)
        if kwargs:
            raise ValueError(f"Arguments not recognized: {kwargs}")
        if use_cached_iterator:
            batches = self._eval_epoch_iterator
        else:
            batches = BatchIterator(
                x=x,
                y=y,
                sample_weight=sample_weight,
                batch_size=batch_size,
                steps_per_epoch=steps,
                shuffle=False,
                steps_per_execution=self.steps_per_execution,
            )
        self._symbolic_build(iterator=batches)
        batches.reset()
        callbacks = self._callback_list(
            callbacks, verbose, 1, batches.num_batches, history=False
        )
        self.make_test_function()
        self.stop_evaluating = False
        callbacks.on_test_begin()
        logs: Any = {}
        self.reset_metrics()
        has_hooks = _has_batch_hooks(callbacks, "test")
        for begin_step, end_step, data in batches:
            if has_hooks:
                callbacks.on_test_batch_begin(begin_step)
            logs = self.test_function(data)
            if has_hooks:
                callbacks.on_test_batch_end(end_step, logs)
            if self.stop_evaluating:
                break
        logs = pythonify_logs(self._get_metrics_result_or_logs(logs))
        callbacks.on_test_end(logs)
        return logs if return_dict else self._flatten_metrics_in_order(logs)

    @traceback_utils.filter_traceback
    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """Return the outputs for data as arrays; see `keras.Model.predict`."""
        batches = BatchIterator(
            x=x,
            batch_size=batch_size,
            steps_per_epoch=steps,
            shuffle=False,
            steps_per_execution=self.steps_per_execution,
        )
        callbacks = self._callback_list(
            callbacks, verbose, 1, batches.num_batches, history=False
        )
        self.make_predict_function()
        self.stop_predicting = False
        callbacks.on_predict_begin()
        outputs = []
        has_hooks = _has_batch_hooks(callbacks, "predict")
        for begin_step, end_step, data in batches:
            if has_hooks:
                callbacks.on_predict_batch_begin(begin_step)
            batch_outputs = self.predict_function(data)
            outputs.append(tree.map_structure(convert_to_numpy, batch_outputs))
            if has_hooks:
                callbacks.on_predict_batch_end(end_step, {"outputs": batch_outputs})
            if self.stop_predicting:
                break
        callbacks.on_predict_end()
        if not outputs:
            raise ValueError("predict: expected at least one batch; the data is empty")
        return tree.map_structure(lambda *arrays: np.concatenate(arrays), *outputs)

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Train on one batch and return the loss and the metrics."""
        self._assert_compile_called("train_on_batch")
        if class_weight is not None:
            if sample_weight is not None:
                raise ValueError(
                    "Arguments `sample_weight` and `class_weight` cannot be specified "
                    f"at the same time. Received: sample_weight={sample_weight}, "
                    f"class_weight={class_weight}"
                )
            sample_weight = data_adapter_utils.class_weight_to_sample_weights(
                y, class_weight
            )
        data = (x, y, sample_weight)
        self._symbolic_build(data_batch=data)
        return self._on_batch(self.make_train_function(), data, return_dict)

    def test_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Evaluate one batch and return the loss and the metrics."""
        self._assert_compile_called("test_on_batch")
        data = (x, y, sample_weight)
        self._symbolic_build(data_batch=data)
        return self._on_batch(self.make_test_function(), data, return_dict)

    def _on_batch(
        self, function: Callable[[Sequence[Any]], Any], data: Any, return_dict: bool
    ) -> Any:
        self.reset_metrics()
        logs = pythonify_logs(function([data]))
        return logs if return_dict else self._flatten_metrics_in_order(logs)

    def predict_on_batch(self, x: Any) -> Any:
        """Return the outputs for one batch as arrays."""
        outputs = self.make_predict_function()([(x,)])
        return tree.map_structure(convert_to_numpy, outputs)


def _has_batch_hooks(callbacks: Any, phase: str) -> bool:
    """Tell whether any callback has a method that runs before or after each batch.

    Where none has, `fit` need not read the metrics of each step.

    Args:
        callbacks: the list of Keras, or a user's own object.
        phase: "train", "test" or "predict".
    """
    if type(callbacks) is not callbacks_module.CallbackList:
        return True
    names = [f"on_{phase}_batch_begin", f"on_{phase}_batch_end"]
    names += ["on_batch_begin", "on_batch_end"] if phase == "train" else []
    return any(
        not is_default(getattr(callback, name))
        for callback in callbacks.callbacks
        for name in names
    )


def _refuse_jobs() -> None:
    """Raise in a job of several processes: each would train a separate model."""
    if comm.world().size > 1:
        raise NotImplementedError(
            "fit: the toolkit backend trains models of Keras in one process; this job "
            f"has {comm.world().size}. `toolkit.distribution` trains models of toolkit "
            "in several"
        )
