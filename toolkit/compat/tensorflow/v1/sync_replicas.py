"""SyncReplicasOptimizer: steps with the mean gradient of several workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit import ops
from toolkit.compat.tensorflow.v1.optimizers import Optimizer
from toolkit.compat.tensorflow.v1.tensors import GraphOperation, GraphStep
from toolkit.compat.tensorflow.v1.variables import GraphVariable, colocate
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.type_aliases import TensorLike


class SyncReplicasOptimizer(Optimizer):
    """Steps of another optimizer with the mean of the first gradients to arrive.

    Each worker runs the operation once per step. The task of each Variable adds up the
    gradients. After `replicas_to_aggregate` gradients it updates the Variable once by
    their mean, and the count restarts. A late gradient of a previous step is dropped.
    In a session on a cluster, a run ends after the step; no queues, hooks or tokens are
    needed. With more workers than required gradients, slow or lost workers do not delay
    a step.

    Args:
        opt: the optimizer.
        replicas_to_aggregate: the number of gradients per step.
        total_num_replicas: the number of workers; replicas_to_aggregate if None.
        variable_averages, variables_to_average: only None; use
            `tf.train.ExponentialMovingAverage.apply`.
        use_locking: has no effect: a task always changes its Variables together.
        name: of the operation, and of the counters.

    Raises:
        ArgumentError: if there are fewer workers than required gradients.

    Example:
        >>> import toolkit.compat.tensorflow.v1 as tf
        >>> with tf.Graph().as_default(), tf.Session() as session:
        ...     w = tf.get_variable("w", initializer=4.0)
        ...     step = tf.train.get_or_create_global_step()
        ...     opt = tf.train.GradientDescentOptimizer(0.25)
        ...     train = tf.train.SyncReplicasOptimizer(opt, 2).minimize(w * w, step)
        ...     session.run(tf.global_variables_initializer())
        ...     [(session.run(train), session.run(w).item())[1] for _ in range(4)]
        [4.0, 2.0, 2.0, 1.0]
    """

    def __init__(
        self,
        opt: Optimizer,
        replicas_to_aggregate: int,
        total_num_replicas: int | None = None,
        variable_averages: Any = None,
        variables_to_average: Any = None,
        use_locking: bool = False,
        name: str = "sync_replicas",
    ) -> None:
        super().__init__(0.0, use_locking, name)
        if variable_averages is not None or variables_to_average is not None:
            raise UnsupportedError(
                "SyncReplicasOptimizer: variable_averages must be None; use "
                "tf.train.ExponentialMovingAverage.apply"
            )
        total = (
            replicas_to_aggregate if total_num_replicas is None else total_num_replicas
        )
        if not 0 < replicas_to_aggregate <= total:
            raise ArgumentError(
                "SyncReplicasOptimizer: expected 0 < replicas_to_aggregate <= "
                f"total_num_replicas; received {replicas_to_aggregate} and {total}"
            )
        self._opt, self._required = opt, replicas_to_aggregate
        self._counts: dict[Any, list[GraphVariable]] = {}

    def get_slot_names(self) -> list[str]:
        return self._opt.get_slot_names()

    def get_slot(self, var: Any, name: str) -> GraphVariable | None:
        return self._opt.get_slot(var, name)

    def variables(self) -> list[GraphVariable]:
        counts = [v for group in self._counts.values() for v in group]
        return [*self._opt.variables(), *counts]

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        return self._opt.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> GraphOperation:
        """Return the operation that contributes gradients, and waits for the step.

        Args:
            grads_and_vars: pairs, as from `compute_gradients`.
            global_step: the Variable that counts steps; required.
            name: of the operation.
        """
        if not isinstance(global_step, GraphVariable):
            raise ArgumentError(
                "SyncReplicasOptimizer: global_step is required to check staleness"
            )
        pairs = [(g, v) for g, v in grads_and_vars if g is not None]
        if not pairs:
            raise ArgumentError("No gradients provided for any variable.")
        graph = global_step.graph
        slots = self._opt.make_state(graph, [v for _, v in pairs])
        shared = self._opt.variables()[: len(self._opt.shared)]
        with graph.as_default(), graph.control_dependencies(None):
            with graph.name_scope(None):
                sums = [self._counters_of(v, sums=True) for _, v in pairs]
                steps = self._counters_of(global_step)
                rounds = self._counters_of(shared[0]) if shared else []
        gs, variables = zip(*pairs, strict=True)
        state = variables, slots, sums, shared, rounds
        step = GraphStep(self._collect, "SyncReplicas")
        groups = [*sums, steps, *([rounds] if rounds else [])]
        step.awaits = (global_step, global_step, *(group[1] for group in groups))
        arguments = gs, state, self._opt.rate(), global_step, steps
        return graph.append(step, arguments, None, name=name or self._name)

    def _counters_of(self, v: GraphVariable, sums: bool = False) -> list[GraphVariable]:
        """Return the counters of a Variable: number of gradients, step, and their
        sum."""
        if v not in self._counts:
            path = f"{v.path}/{self._name}"
            with colocate(v):
                variables = [
                    GraphVariable(0, False, name=f"{path}/{key}", dtype="int64")
                    for key in ("count", "step")
                ]
                if sums:
                    zeros = ops.zeros(tuple(v.shape), v.dtype)
                    variables.append(GraphVariable(zeros, False, name=f"{path}/sum"))
            self._counts[v] = variables
        return self._counts[v]

    def _collect(
        self,
        run: Any,
        gs: Sequence[Any],
        state: Any,
        rate: TensorLike,
        global_step: GraphVariable,
        steps: list[Any],
    ) -> None:
        variables, slots, sums, shared, rounds = state
        # The step of this worker's gradient. It is a separate value, so that the task
        # of the Variable does not read the current step when the gradient arrives.
        start_step = ops.cast(ops.stop_gradient(run.value(global_step)), "int64")
        common = [run.cell(v).read() for v in shared]
        for g, v, variable_slots, counts in zip(
            gs, variables, slots, sums, strict=True
        ):
            with run.at(v):
                cells = [run.cell(v), *map(run.cell, variable_slots)]
                p, *old = [cell.read() for cell in cells]
                is_new, is_full, count = self._count_gradient(run, start_step, counts)
                total = run.cell(counts[2])
                sum_value = total.read() + ops.where(is_new, run.value(g), 0)
                mean = sum_value / ops.cast(ops.maximum(count, 1), p.dtype)
                lr = ops.cast(run.value(rate), p.dtype)
                values = list(self._opt.update(p, mean, lr, old, common))
                if v.constraint is not None:
                    values[0] = v.constraint(values[0])
                for cell, value, before in zip(cells, values, [p, *old], strict=True):
                    cell.assign(ops.where(is_full, value, before))
                total.assign(ops.where(is_full, 0, sum_value))
        if shared:
            with run.at(shared[0]):
                _, is_full, _ = self._count_gradient(run, start_step, rounds)
                new_shared = self._opt.update_shared(common)
                for v, value, before in zip(shared, new_shared, common, strict=True):
                    run.cell(v).assign(ops.where(is_full, value, before))
        with run.at(global_step):
            _, is_full, _ = self._count_gradient(run, start_step, steps)
            run.cell(global_step).assign_add(ops.cast(is_full, global_step.dtype))

    def _count_gradient(
        self, run: Any, start_step: Tensor, counts: list[Any]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return whether a gradient is current, whether it completes a step, and the
        count."""
        count, step = map(run.cell, counts[:2])
        is_new = start_step >= step.read()
        new_count = count.read() + ops.cast(is_new, "int64")
        is_full = new_count >= self._required
        count.assign(ops.where(is_full, 0, new_count))
        # After the loss of a worker, this Variable can be one step late.
        after = ops.maximum(step.read(), start_step) + 1
        step.assign(ops.where(is_full, after, step.read()))
        return is_new, is_full, new_count
