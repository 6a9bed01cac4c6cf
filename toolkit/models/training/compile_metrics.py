"""CompileMetrics: the metrics of all outputs of a model as one."""

from __future__ import annotations

from typing import Any

from toolkit import metrics as metrics_module, tree
from toolkit.console.frames import warn
from toolkit.errors import ArgumentError
from toolkit.models.training.compile_checks import (
    add_term_to_shape_errors,
    describe_term,
)
from toolkit.models.training.compile_utils import (
    ACCURACY,
    check_names,
    describe,
    get_metric,
    is_flat,
)
from toolkit.models.training.pair_checks import warn_of_pairs


class OutputMetrics:
    """Metrics of one output."""

    def __init__(self, metrics: list[Any], output_name: str | None) -> None:
        self.metrics = metrics
        self.output_name = output_name

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        for metric in self.metrics:
            name, output = metric.name, self.output_name
            label = describe_term("metric", name, output)
            with (
                add_term_to_shape_errors("metric", name, output, y_true, y_pred),
                warn_of_pairs(label, y_true, y_pred),
            ):
                metric.update_state(y_true, y_pred, sample_weight=sample_weight)

    def full_name(self, name: str) -> str:
        return f"{self.output_name}_{name}" if self.output_name else name


class CompileMetrics:
    """Metrics of `compile`, matched to the outputs in the first step.

    Args:
        metrics: metrics that ignore sample weights.
        weighted_metrics: metrics that use sample weights.
        output_names: the names of the outputs, or None.
    """

    def __init__(
        self, metrics: Any, weighted_metrics: Any, output_names: Any = None
    ) -> None:
        arguments = {"metrics": metrics, "weighted_metrics": weighted_metrics}
        for argument, value in arguments.items():
            if value and not isinstance(value, (list, tuple, dict)):
                raise ArgumentError(
                    f"compile: expected `{argument}` to be a list, tuple or dict of "
                    f"metrics; received {value!r}"
                )
            check_names(metrics_module.get, value, ACCURACY)
        self.name = "compile_metrics"
        self.built: bool = False
        self.output_names: list[str] | None = output_names
        self._arguments = arguments
        self._plain: list[OutputMetrics | None] = []
        self._weighted: list[OutputMetrics | None] = []
        self._order: list[Any] | None = None

    @property
    def metrics(self) -> list[Any]:
        """Return all metrics, once they are matched to the outputs."""
        groups = [g for g in (*self._plain, *self._weighted) if g is not None]
        return [metric for group in groups for metric in group.metrics]

    @property
    def variables(self) -> list[Any]:
        return [v for metric in self.metrics for v in metric.variables]

    def build(self, y_true: Any, y_pred: Any) -> None:
        """Match metrics and outputs, with example tensors or symbols of both."""
        names = self._resolve_names(y_pred)
        is_nested = is_flat(y_pred) and len(tree.flatten(y_pred)) > 1
        self._order = names if is_nested and all(names) else None
        groups = [
            self._match(argument, value, y_true, y_pred, names)
            for argument, value in self._arguments.items()
        ]
        self._plain, self._weighted = groups
        self.built = True

    def _resolve_names(self, y_pred: Any) -> list[Any]:
        """Return the names of the outputs in flattening order."""
        count = len(tree.flatten(y_pred))
        if is_flat(y_pred) and isinstance(y_pred, dict):
            if self.output_names and set(y_pred) == set(self.output_names):
                return self.output_names
            return tree.keys_of(y_pred)
        if self.output_names and len(self.output_names) == count:
            return self.output_names
        return [None] * count

    def _match(
        self,
        argument: str,
        metrics: Any,
        y_true: Any,
        y_pred: Any,
        names: list[Any],
    ) -> list[OutputMetrics | None]:
        """Return the metrics of each output."""
        if not metrics:
            return []
        true, pred = self._flatten(y_true), self._flatten(y_pred)
        if len(pred) == 1:
            flat = tree.flatten(metrics)
            if (
                isinstance(metrics, dict)
                and names[0]
                and not set(metrics) <= set(names)
            ):
                warn(
                    f"compile: {argument} are for {sorted(metrics)}, but they are "
                    f"applied to the only output {names[0]!r}"
                )
            return [_group(flat, tree.flatten(y_true)[0], pred[0], None)]
        if len(true) != len(pred):
            raise ArgumentError(
                f"compile: {argument} need targets for all {len(pred)} outputs, or a "
                f"dict of targets by the outputs' names; received {len(true)} targets"
            )
        per_output = self._per_output(argument, metrics, y_pred, names)
        rows = zip(per_output, true, pred, names, strict=True)
        return [_group(m, t, p, name) for m, t, p, name in rows]

    def _per_output(
        self, argument: str, metrics: Any, y_pred: Any, names: list[Any]
    ) -> list[Any]:
        if is_flat(y_pred):
            if isinstance(metrics, (list, tuple)) and len(metrics) == len(names):
                return list(metrics)
            if isinstance(metrics, dict) and set(metrics) <= set(names):
                return [metrics.get(name) for name in names]
        elif not isinstance(metrics, dict) or isinstance(y_pred, dict):
            try:
                return tree.flatten_up_to(y_pred, metrics)
            except (ArgumentError, TypeError):
                pass
        hint = f", or a dict by their names {names}" if any(names) else ""
        raise ArgumentError(
            f"compile: expected `{argument}` to hold one entry for each output, in the "
            f"structure {describe(y_pred)}{hint}; received {metrics!r}"
        )

    def _flatten(self, structure: Any) -> list[Any]:
        if isinstance(structure, dict) and self._order is not None:
            return [structure.get(name) for name in self._order]
        return tree.flatten(structure)

    def update_state(
        self,
        y_true: Any,
        y_pred: Any,
        sample_weight: Any = None,
    ) -> None:
        """Update each metric with the targets, outputs and weights of its output."""
        if not self.built:
            self.build(y_true, y_pred)
        true, pred = self._flatten(y_true), self._flatten(y_pred)
        weights = self._flatten(sample_weight)
        if len(weights) < len(true):  # one for all, or None
            weights = [weights[0]] * len(true)
        for group, t, p in zip(self._plain, true, pred, strict=False):
            if group is not None:
                group.update_state(t, p)
        for group, t, p, w in zip(self._weighted, true, pred, weights, strict=False):
            if group is not None:
                group.update_state(t, p, w)

    def reset_state(self) -> None:
        """Reset all metrics."""
        for metric in self.metrics:
            metric.reset_state()

    def result(self) -> dict[str, Any]:
        """Return the result of each metric under its name in the logs."""
        results: dict[str, Any] = {}
        for group in filter(None, self._plain):
            for metric in group.metrics:
                results[_unique_name(group.full_name(metric.name), results)] = (
                    metric.result()
                )
        for group in filter(None, self._weighted):
            for metric in group.metrics:
                name = group.full_name(metric.name)
                if name in results:
                    name = _unique_name(
                        group.full_name(f"weighted_{metric.name}"), results
                    )
                results[name] = metric.result()
        return results


def _group(
    metrics: Any, y_true: Any, y_pred: Any, output_name: str | None
) -> OutputMetrics | None:
    if metrics is None:
        return None
    if y_true is None:
        raise ArgumentError("compile: metrics need targets `y`; received None")
    metric_list = list(metrics) if isinstance(metrics, (list, tuple)) else [metrics]
    return OutputMetrics(
        [get_metric(m, y_true, y_pred) for m in metric_list], output_name
    )


def _unique_name(name: str, used: dict[str, Any]) -> str:
    """Return `name`, or the first unused one of name_1, name_2, ..."""
    if name not in used:
        return name
    count = 1
    while f"{name}_{count}" in used:
        count += 1
    return f"{name}_{count}"
