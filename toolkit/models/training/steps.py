"""Steps of training, evaluation and prediction, and their compilation."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolkit import inspection, ops, settings, tree
from toolkit.autodiff.tape import GradientTape
from toolkit.compiler import distribution_context
from toolkit.compiler.distribution_context import DistributionContext
from toolkit.console.frames import warn
from toolkit.core.composites import Composite, has_composites
from toolkit.core.convert import convert, extent, is_strings
from toolkit.core.tensor import Tensor
from toolkit.core.trace import StatelessScope
from toolkit.core.variable import current_value
from toolkit.errors import ArgumentError, OutOfRangeError, RankLostError
from toolkit.functions.function import Function
from toolkit.layers.tracking import owned_state, unique
from toolkit.layers.walks import cache_walk
from toolkit.metrics.metric import Metric
from toolkit.models.training.compile_checks import describe_indices
from toolkit.models.training.data_adapters import unpack_x_y_sample_weight
from toolkit.models.training.structure import Structure
from toolkit.thread_state import restore_on_error

Step = Callable[[Any], Any]
_TENSOR = {Tensor}


class CompiledStep:
    """Step as one traced program per signature of its batches.

    Args:
        step: the traced function; a change of the model's structure retraces it.
        jit_compile: the same as in `compile`.
        model: the model of the step.
    """

    def __init__(self, step: Step, jit_compile: bool | str, model: Any = None) -> None:
        self.step = step
        self.jit_compile = jit_compile
        self._structure = Structure(model)
        self._functions: dict[Any, Function] = {}
        self._first_batch_spec: Any = None  # a structure of specs like the first batch
        self._context = distribution_context.current()
        self._version = 0
        self._past_traces = 0  # the number of discarded traces

    @property
    def trace_count(self) -> int:
        """Return the number of runs of the step's Python code."""
        count = sum(function.trace_count for function in self._functions.values())
        return self._past_traces + count

    def __call__(self, batch: Any) -> Any:
        if not _is_flat(batch) and has_composites(batch):
            return EagerStep(self.step)(batch)  # a graph cannot contain ragged rows
        while True:
            function, leaves = self._function_for(batch)
            try:
                return function(*leaves)
            except OutOfRangeError as error:
                raise OutOfRangeError(
                    f"{function.name}: {error}: a label, or an input of an Embedding "
                    f"({describe_indices(batch)}; to find the layer, compile with "
                    "run_eagerly=True)"
                ) from error
            except RankLostError:
                if self._context is None:
                    raise
                self._context.recovery.recover(self._version)

    def __getstate__(self) -> dict[str, Any]:
        """Copy without traces: they use the Variables of the original."""
        return {**self.__dict__, "_functions": {}, "_past_traces": 0}

    def _function_for(self, batch: Any) -> tuple[Function, Any]:
        context = distribution_context.current()
        if self._context is not context:
            self._functions.clear()
            self._context = context
        if context is not None and context.recovery.version != self._version:
            for cached in self._functions.values():
                cached.invalidate()
            self._version = context.recovery.version
        if self._structure.has_changed():
            self._past_traces = self.trace_count
            self._functions.clear()
        key, leaves = self._flatten(batch)
        function = self._functions.get(key)
        if function is None:
            function = self._make(key, batch)
        return function, leaves

    def _flatten(self, batch: Any) -> tuple[Any, Any]:
        if type(batch) is Tensor:
            return Tensor, (batch,)
        if _is_flat(batch):
            return len(batch), batch
        return tree.signature(batch), tree.flatten(batch)

    def _make(self, key: Any, batch: Any) -> Function:
        structure = tree.structure_of(batch)
        step = self.step

        def run(*leaves: Any) -> Any:
            outputs = step(tree.pack_sequence_as(structure, leaves))
            # including everything that the first call of a model has built
            self._structure.record_current()
            return outputs

        run.__name__ = getattr(step, "__name__", "step")
        if self._first_batch_spec is None:
            self._first_batch_spec = tree.map_structure(_spec_of, batch)
        function = Function(
            run, jit_compile=self.jit_compile, distribution=self._context
        )
        self._functions[key] = function
        return function

    def inspect(self, batch: Any = None) -> inspection.Inspection | None:
        """Return the compiler's report of the step for this batch or a similar one."""
        if batch is None:
            if self._first_batch_spec is None:
                return None
            batch = tree.map_structure(_zeros_like, self._first_batch_spec)
        function, leaves = self._function_for(batch)
        return function.inspect(*leaves)


def _is_flat(batch: Any) -> bool:
    """Return whether a batch is a tensor or a tuple of tensors, the fastest cases."""
    if type(batch) is tuple:
        return _TENSOR.issuperset(map(type, batch))
    return type(batch) is Tensor


def _spec_of(leaf: Any) -> Any:
    return None if leaf is None else leaf.spec


def _zeros_like(spec: Any) -> Any:
    return None if spec is None else ops.zeros(spec.shape, spec.dtype)


class EagerStep:
    """Step that runs as Python code; its Variables change together at the end."""

    def __init__(self, step: Step) -> None:
        self.step = step

    def __call__(self, batch: Any) -> Any:
        with restore_on_error(), StatelessScope() as scope:
            outputs = self.step(batch)
        writes = list(scope.writes.items())
        try:
            _assign(writes)
        except BaseException:  # an interrupt: finish, then re-raise it
            _assign(writes)
            raise
        return outputs

    def inspect(self, batch: Any = None) -> inspection.Inspection | None:
        """Return None: there is no graph."""
        return None


def _assign(writes: list[tuple[Any, Tensor]]) -> None:
    for variable, value in writes:
        variable.assign(value)


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
    # the job whose processes have compared their weights
    _compared_job: DistributionContext | None = None

    if TYPE_CHECKING:  # the rest of a model is defined by Layer
        __call__: Any

        def __getattr__(self, name: str) -> Any: ...

    def _forward(self, x: Any, training: bool) -> Any:
        if self._info.takes_training:
            return self(x, training=training)
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
        _warn_of_old_name("compiled_loss", "compute_loss(x, y, y_pred, sample_weight)")
        return self._total_loss(None, y, y_pred, sample_weight, training)

    @property
    def compiled_metrics(self) -> Any:
        """Return an object with `update_state(y, y_pred)` of the metrics."""
        _warn_of_old_name("compiled_metrics", "compute_metrics(x, y, y_pred)")
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
        if self.run_eagerly or not self._can_compile():
            return EagerStep(step)
        return CompiledStep(step, self.jit_compile, self)

    def _is_fresh(self, function: Callable[..., Any]) -> bool:
        """Return whether the function matches `run_eagerly`, or is user-defined."""
        if type(function) is CompiledStep:
            return not self.run_eagerly
        if type(function) is EagerStep:
            return self.run_eagerly or not self._can_compile()
        return function is not None

    def _can_compile(self) -> bool:
        return all(layer.supports_jit for layer in self._flatten_layers())

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


def _warn_of_old_name(name: str, new_name: str) -> None:
    warn(f"`{name}` is deprecated: use self.{new_name}")


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
    return int(leaf.shape[0])
