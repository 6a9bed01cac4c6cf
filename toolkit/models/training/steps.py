"""Steps of training, evaluation and prediction, and their compilation."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolkit import ops, settings, tree
from toolkit.autodiff.tape import GradientTape
from toolkit.backends.memory import device_memories
from toolkit.compiler import distribution_context
from toolkit.console.frames import warn, warn_once
from toolkit.core.composites import Composite
from toolkit.core.convert import convert, extent, is_strings
from toolkit.core.trace import StatelessScope
from toolkit.core.variable import current_value
from toolkit.errors import ArgumentError
from toolkit.functions.job_checks import ComparedState
from toolkit.layers.tracking import owned_state, unique
from toolkit.layers.walks import cache_walk
from toolkit.metrics.metric import Metric
from toolkit.models.training.data_adapters import unpack_x_y_sample_weight
from toolkit.models.training.step_functions import (
    CompiledStep,
    EagerStep,
    Preparation,
    Step,
    warn_of_python,
)
from toolkit.models.training.training_mode import watch_training_mode
from toolkit.release.deprecation import deprecated

if TYPE_CHECKING:
    from toolkit.models.training.sources import Source


class Steps:
    """Overridable steps of a model, with their losses and metrics."""

    optimizer: Any = None
    loss: Any = None
    compiled = False
    run_eagerly = False
    jit_compile: bool | str = "auto"
    steps_per_execution = 1
    train_function: Any = None
    test_function: Any = None
    predict_function: Any = None
    _compile_loss: Any = None
    _compile_metrics: Any = None
    _loss_tracker: Any = None
    # the variables that the processes of a job have compared
    _compared_state: ComparedState | None = None

    if TYPE_CHECKING:  # the rest of a model is defined by Layer
        __call__: Any

        def __getattr__(self, name: str) -> Any: ...

    def _forward(self, x: Any, training: bool) -> Any:
        if self._info.takes_training:
            return self(x, training=training)
        with watch_training_mode(self, training):
            return self(x)

    def train_step(self, data: Any) -> dict[str, Any]:
        """Run one step of training on a batch; override it for custom training.

        Args:
            data: a batch from `fit` as tensors: x, (x,), (x, y) or (x, y,
                sample_weight), or an element of a data set.

        Returns:
            The logs: name -> 0-d tensor.
        """
        x, y, sample_weight = unpack_x_y_sample_weight(data)
        variables = self.trainable_variables
        with GradientTape() as tape:
            y_pred = self._forward(x, training=True)
            loss = self._total_loss(x, y, y_pred, sample_weight, training=True)
            scaled = loss
            if self.optimizer is not None:
                scaled = self.optimizer.scale_loss(loss)
        self._loss_tracker.update_state(loss, sample_weight=samples(x))
        if variables:
            self.optimizer.apply(tape.gradient(scaled, variables), variables)
        else:
            warn(f"{self.name}: the model has no trainable weights")
        return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def test_step(self, data: Any) -> dict[str, Any]:
        """Run one step of evaluation on a batch and return the logs.

        Args:
            data: a batch: x, (x,), (x, y) or (x, y, sample_weight).

        Returns:
            The logs: name -> 0-d tensor.
        """
        x, y, sample_weight = unpack_x_y_sample_weight(data)
        y_pred = self._forward(x, training=False)
        loss = self._total_loss(x, y, y_pred, sample_weight, training=False)
        self._loss_tracker.update_state(loss, sample_weight=samples(x))
        return self.compute_metrics(x, y, y_pred, sample_weight=sample_weight)

    def predict_step(self, data: Any) -> Any:
        """Return the outputs for a batch.

        Args:
            data: a batch: x, (x,), (x, y) or (x, y, sample_weight).
        """
        x, _, _ = unpack_x_y_sample_weight(data)
        return self._forward(x, training=False)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Return the total loss of a batch: the compiled losses plus `self.losses`.

        Args:
            x: the inputs.
            y: the targets.
            y_pred: the outputs of the model.
            sample_weight: the weights of the samples.
            training: whether this is a step of training.

        Returns:
            A 0-d tensor.
        """
        terms = []
        if self._compile_loss is not None:
            loss = self._compile_loss(y, y_pred, sample_weight)
            terms += [] if loss is None else [loss]
        for loss in self.losses:
            terms.append(ops.sum(ops.cast(loss, settings.floatx())))
        if not terms:
            raise ArgumentError(
                f"{self.name}: there is no loss to compute; pass `loss` to compile()"
            )
        total = terms[0]
        for term in terms[1:]:
            total = ops.add(total, term)
        return total

    def _total_loss(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any, training: bool
    ) -> Any:
        """Call `compute_loss`, with or without `training` in an override."""
        arguments = {"x": x, "y": y, "y_pred": y_pred, "sample_weight": sample_weight}
        if "training" in inspect.signature(self.compute_loss).parameters:
            arguments["training"] = training
        return self.compute_loss(**arguments)

    @deprecated("use `compute_loss(x, y, y_pred, sample_weight)`", since="0.1")
    def compiled_loss(
        self, y: Any, y_pred: Any, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """Call `compute_loss` under its old name, with a warning.

        Args:
            y: the targets.
            y_pred: the outputs of the model.
            sample_weight: the weights of the samples.
            training: whether this is a step of training.

        Returns:
            The total loss.
        """
        return self._total_loss(None, y, y_pred, sample_weight, training)

    @property
    @deprecated("use `compute_metrics(x, y, y_pred)`", since="0.1")
    def compiled_metrics(self) -> Any:
        """Return an object with `update_state(y, y_pred)` of the metrics."""
        return self._compile_metrics or _EmptyMetrics()

    def stateless_compute_loss(
        self,
        trainable_variables: Any,
        non_trainable_variables: Any,
        metrics_variables: Any,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Call `compute_loss` with given values of the variables, changing none.

        Variables with an empty list of values keep their values.

        Args:
            trainable_variables: values of `trainable_variables`.
            non_trainable_variables: values of `non_trainable_variables`.
            metrics_variables: values of `metrics_variables`.
            x: the inputs.
            y: the targets.
            y_pred: the outputs of the model.
            sample_weight: the weights of the samples.
            training: whether this is a step of training.

        Returns:
            (loss, (new values of trainable, non-trainable and metrics variables)).
        """
        local_metrics = (
            self.trainable_variables,
            self.non_trainable_variables,
            self.metrics_variables,
        )
        values = (trainable_variables, non_trainable_variables, metrics_variables)
        pairs = [
            pair
            for variables, override in zip(local_metrics, values, strict=True)
            if override
            for pair in zip(variables, override, strict=True)
        ]
        with StatelessScope(pairs):
            loss = self._total_loss(x, y, y_pred, sample_weight, training)
            metric_values = [[v.value for v in group] for group in local_metrics[1:]]
        return loss, (trainable_variables, *metric_values)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        """Update the compiled metrics with a batch and return all results.

        Args:
            x: the inputs.
            y: the targets.
            y_pred: the outputs of the model.
            sample_weight: the weights of the samples.

        Returns:
            The results of all metrics: name -> 0-d tensor.
        """
        if self._compile_metrics is not None:
            self._compile_metrics.update_state(y, y_pred, sample_weight)
        return self.get_metrics_result()

    def get_metrics_result(self) -> dict[str, Any]:
        """Return the results of all metrics: name -> 0-d tensor."""
        results: dict[str, Any] = {}
        for metric in self.metrics:
            result = metric.result()
            results.update(
                result if isinstance(result, dict) else {metric.name: result}
            )
        # A metric can return its state, which later changes.
        return tree.map_structure(current_value, results)

    @property
    def metrics(self) -> list[Any]:
        """Return the metrics: the loss, those in `compile`, of the model and layers."""
        results = []
        if self.compiled:
            local_metrics = (self._loss_tracker, self._compile_metrics)
            results += [metric for metric in local_metrics if metric is not None]
            if self._compile_loss is not None:
                results += self._compile_loss.metrics
        return unique([*results, *self._layer_metrics()])

    @cache_walk
    def _layer_metrics(self) -> list[Any]:
        """Return the metrics of the model and its layers."""
        # Nested models have losses and metrics of their separate training: skip them.
        layers: list[Any] = [
            layer
            for layer in self._flatten_layers()
            if layer is self or not isinstance(layer, Steps)
        ]
        return [metric for layer in layers for metric in owned_state(layer, Metric)]

    @property
    def metrics_names(self) -> list[str]:
        """Return the names of `metrics`."""
        return [metric.name for metric in self.metrics]

    def reset_metrics(self) -> None:
        """Reset all metrics."""
        for metric in self.metrics:
            metric.reset_state()

    def _make_function(self, step: Step) -> Any:
        if self.run_eagerly:
            reason = "run_eagerly=True disables compilation"
            return EagerStep(step, reason, is_requested=True)
        layer = self._uncompiled_layer()
        if layer is None:
            self._warn_of_split()
            return CompiledStep(step, self.jit_compile, self)
        reason = f"the layer {layer.name!r} ({type(layer).__name__}) "
        if layer.runs_before_program:
            reason += "runs in Python, and a step of several processes is one program"
        else:
            reason += "does not support compilation (supports_jit=False)"
        reason += "; write it with toolkit.ops, or apply it to the data, in Dataset.map"
        if not layer.warns_of_python:
            warn_of_python(self, reason)
        return EagerStep(step, reason)

    def _warn_of_split(self) -> None:
        """Warn if one program was requested, and a layer runs before it."""
        if self.jit_compile is not True:
            return
        layer = next((x for x in self._flatten_layers() if not x.supports_jit), None)
        if layer is not None:
            warn_once(
                self,
                f"{self.name}: jit_compile=True cannot compile the layer "
                f"{layer.name!r} ({type(layer).__name__}), which runs in Python before "
                "each step; to run it in parallel with the steps, apply it to the "
                "data, in Dataset.map",
            )

    def _is_fresh(self, function: Callable[..., Any]) -> bool:
        """Return whether the function matches `run_eagerly`, or is user-defined."""
        if type(function) is CompiledStep:
            return not self.run_eagerly
        if type(function) is EagerStep:
            return self.run_eagerly or self._uncompiled_layer() is not None
        return function is not None

    def _uncompiled_layer(self) -> Any:
        """Return the first layer that a compiled step cannot call, or None.

        In one process a layer on strings can run before the program.
        """
        is_alone = distribution_context.current() is None
        for layer in self._flatten_layers():
            if not layer.supports_jit and not (is_alone and layer.runs_before_program):
                return layer
        return None

    def _can_compile(self) -> bool:
        return all(layer.supports_jit for layer in self._flatten_layers())

    def _prepare_batches(self, source: Source, function: str) -> None:
        """Let the thread of a pipeline run slow layers on strings.

        Args:
            source: the source of the batches.
            function: the attribute that calls the step.
        """
        # A GPU receives arrays from the thread of the steps only.
        is_shared = distribution_context.current() is not None or device_memories
        on_host = any(layer.runs_before_program for layer in self._flatten_layers())
        if is_shared or not on_host or self.run_eagerly:
            return

        source.preparation = Preparation(self, function)

    def make_train_function(self, force: bool = False) -> Any:
        """Return the cached function that runs `train_step` on a batch.

        Args:
            force: whether to create a new function.
        """
        if force or not self._is_fresh(self.train_function):
            self.train_function = self._make_function(self.train_step)
        return self.train_function

    def make_test_function(self, force: bool = False) -> Any:
        """Return the cached function that runs `test_step` on a batch.

        Args:
            force: whether to create a new function.
        """
        if force or not self._is_fresh(self.test_function):
            self.test_function = self._make_function(self.test_step)
        return self.test_function

    def make_predict_function(self, force: bool = False) -> Any:
        """Return the cached function that runs `predict_step` on a batch.

        Args:
            force: whether to create a new function.
        """
        if force or not self._is_fresh(self.predict_function):
            self.predict_function = self._make_function(self.predict_step)
        return self.predict_function


class _EmptyMetrics:
    """Placeholder for the metrics of a model that was compiled without any."""

    def update_state(self, y: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Do nothing."""


def overrides(model: Any, step: str) -> bool:
    """Return whether a model overrides a step, such as "train_step"."""
    return getattr(type(model), step) is not getattr(Steps, step)


def samples(x: Any) -> Any:
    """Return the number of samples in a batch, as a weight of its means."""
    return extent(batch_size(x), "float32")


def batch_size(x: Any) -> int:
    """Return the number of samples in a batch."""
    leaf = next(leaf for leaf in tree.flatten(x) if leaf is not None)
    leaf = leaf if is_strings(leaf) or isinstance(leaf, Composite) else convert(leaf)
    return leaf.shape[0]
