"""`tf.train` without the optimizers: the global step, decays, moving averages."""

from __future__ import annotations

from typing import Any

from toolkit import ops
from toolkit.compat.tensorflow.v1.graph import Graph, get_default_graph, record
from toolkit.compat.tensorflow.v1.tensors import GraphStep
from toolkit.compat.tensorflow.v1.variables import GraphKeys, GraphVariable
from toolkit.errors import ArgumentError
from toolkit.optimizers import schedules
from toolkit.type_aliases import TensorLike


def get_global_step(graph: Graph | None = None) -> GraphVariable | None:
    """Return the Variable that counts steps; None if it does not exist."""
    graph = graph or get_default_graph()
    variables = graph.get_collection(GraphKeys.GLOBAL_STEP)
    return variables[0] if variables else None


def create_global_step(graph: Graph | None = None) -> GraphVariable:
    """Create the Variable that counts steps: `global_step`, an int64.

    Raises:
        ArgumentError: if it exists.
    """
    graph = graph or get_default_graph()
    if get_global_step(graph) is not None:
        raise ArgumentError('"global_step" already exists.')
    with graph.as_default(), graph.name_scope(None):
        keys = [GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP]
        return GraphVariable(
            0, False, collections=keys, name="global_step", dtype="int64"
        )


def get_or_create_global_step(graph: Graph | None = None) -> GraphVariable:
    """Return the Variable that counts steps; the first call creates it."""
    return get_global_step(graph) or create_global_step(graph)


def global_step(sess: Any, global_step_tensor: Any) -> int:
    """Return the number of steps in a session."""
    return int(sess.run(global_step_tensor))


def _apply_schedule(schedule: Any, global_step: Any, name: str | None) -> Any:
    """Return the rate at a step, as an operation with a name."""

    def decay(step: Any) -> Any:
        return schedule(step)

    if global_step is None:
        raise ArgumentError(f"{name}: expected a global_step; received None")
    return record(decay, (global_step,), name)


def exponential_decay(
    learning_rate: float,
    global_step: Any,
    decay_steps: int,
    decay_rate: float,
    staircase: bool = False,
    name: str | None = None,
) -> Any:
    """Return learning_rate * decay_rate ** (step / decay_steps); staircase: floor."""
    schedule = schedules.ExponentialDecay(
        learning_rate, decay_steps, decay_rate, staircase
    )
    return _apply_schedule(schedule, global_step, name or "ExponentialDecay")


def inverse_time_decay(
    learning_rate: float,
    global_step: Any,
    decay_steps: int,
    decay_rate: float,
    staircase: bool = False,
    name: str | None = None,
) -> Any:
    """Return learning_rate / (1 + decay_rate * step / decay_steps)."""
    schedule = schedules.InverseTimeDecay(
        learning_rate, decay_steps, decay_rate, staircase
    )
    return _apply_schedule(schedule, global_step, name or "InverseTimeDecay")


def natural_exp_decay(
    learning_rate: float,
    global_step: Any,
    decay_steps: int,
    decay_rate: float,
    staircase: bool = False,
    name: str | None = None,
) -> Any:
    """Return learning_rate * exp(-decay_rate * step / decay_steps)."""
    rate = float(ops.exp(-float(decay_rate)))
    return exponential_decay(
        learning_rate,
        global_step,
        decay_steps,
        rate,
        staircase,
        name or "NaturalExpDecay",
    )


def polynomial_decay(
    learning_rate: float,
    global_step: Any,
    decay_steps: int,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
    name: str | None = None,
) -> Any:
    """Decay from learning_rate to end_learning_rate within decay_steps."""
    schedule = schedules.PolynomialDecay(
        learning_rate, decay_steps, end_learning_rate, power, cycle
    )
    return _apply_schedule(schedule, global_step, name or "PolynomialDecay")


def piecewise_constant(
    x: TensorLike, boundaries: Any, values: Any, name: str | None = None
) -> Any:
    """Return values[0] while x <= boundaries[0], then values[1], and so on."""
    schedule = schedules.PiecewiseConstantDecay(list(boundaries), list(values))
    return _apply_schedule(schedule, x, name or "PiecewiseConstant")


piecewise_constant_decay = piecewise_constant


def cosine_decay(
    learning_rate: float,
    global_step: Any,
    decay_steps: int,
    alpha: float = 0.0,
    name: str | None = None,
) -> Any:
    """Decay from learning_rate to alpha * learning_rate along half a cosine."""
    schedule = schedules.CosineDecay(learning_rate, decay_steps, alpha)
    return _apply_schedule(schedule, global_step, name or "CosineDecay")


class ExponentialMovingAverage:
    """Moving averages of Variables: average = decay * average + (1 - decay) * value.

    Args:
        decay: of the averages, in [0, 1).
        num_updates: a tensor that counts updates; then decay is at most
            (1 + num_updates) / (10 + num_updates).
        zero_debias: only False.
        name: of the averages.
    """

    def __init__(
        self,
        decay: float,
        num_updates: Any = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        if zero_debias:
            raise ArgumentError("ExponentialMovingAverage: zero_debias must be False")
        self._decay, self._num_updates, self._name = decay, num_updates, name
        self._averages: dict[Any, GraphVariable] = {}

    def apply(self, var_list: Any = None) -> Any:
        """Return the operation that updates the averages, which the first call creates.

        Args:
            var_list: by default the trainable Variables.
        """
        graph = get_default_graph()
        if var_list is None:
            var_list = graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)
        keys = [GraphKeys.GLOBAL_VARIABLES, GraphKeys.MOVING_AVERAGE_VARIABLES]
        for v in var_list:
            if v not in self._averages:
                with graph.control_dependencies(None), graph.name_scope(None):
                    path = f"{v.path}/{self._name}"
                    self._averages[v] = GraphVariable(
                        v.initial_value, False, collections=keys, name=path
                    )
        averages = [self._averages[v] for v in var_list]
        step = GraphStep(self._update, self._name)
        arguments = (list(var_list), averages, self._num_updates)
        return graph.append(step, arguments, None)

    def _update(
        self, run: Any, variables: Any, averages: Any, updates: TensorLike
    ) -> None:
        decay: Any = self._decay
        if updates is not None:
            count = ops.cast(run.value(updates), "float32")
            decay = ops.minimum(decay, (1.0 + count) / (10.0 + count))
        for v, average in zip(variables, averages, strict=True):
            with run.at(average):
                change = (1.0 - decay) * (run.cell(average).read() - run.value(v))
                run.cell(average).assign_sub(change)

    def average(self, var: Any) -> GraphVariable | None:
        """Return the average of a Variable, None before `apply`."""
        return self._averages.get(var)

    def average_name(self, var: Any) -> str:
        """Return the name of the average of a Variable."""
        return f"{var.path}/{self._name}"
