"""Optimizers of TensorFlow 1: operations that update Variables and their slots.

The state of an optimizer is in Variables of the graph. They are initialized and saved
with all Variables; their names are TensorFlow's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolkit import ops
from toolkit.compat.tensorflow.v1.gradients import gradients
from toolkit.compat.tensorflow.v1.tensors import GraphOperation, GraphStep
from toolkit.compat.tensorflow.v1.variables import GraphKeys, GraphVariable, colocate
from toolkit.compiler.shared_steps import check_update
from toolkit.core.keras_tensor import KerasTensor
from toolkit.core.tensor import Tensor
from toolkit.errors import ArgumentError, ArgumentTypeError, TraceError
from toolkit.type_aliases import TensorLike


class Optimizer:
    """Base of the optimizers of graphs.

    Args:
        learning_rate: a number, a tensor of the graph, or a function that returns one.
        use_locking: has no effect: a run changes the Variables of a task together.
        name: of the operations, and of the slots.
    """

    # Names of the slots; initial values of the slots and of the shared Variables.
    slots: tuple[str, ...] = ()
    shared: dict[str, float] = {}

    def __init__(
        self, learning_rate: Any, use_locking: bool = False, name: str = "Optimizer"
    ) -> None:
        self._learning_rate, self._name = learning_rate, name
        self._slots: dict[str, dict[Any, GraphVariable]] = {s: {} for s in self.slots}
        self._shared: list[GraphVariable] = []

    def update(
        self,
        p: Tensor,
        g: Tensor,
        lr: Tensor,
        slots: list[Tensor],
        shared: list[Tensor],
    ) -> tuple[Tensor, ...]:
        """Return the new value of a Variable, then of its slots."""
        raise NotImplementedError

    def update_shared(self, shared: list[Tensor]) -> list[Tensor]:
        """Return the new values of the shared Variables."""
        return shared

    def first(self, slot: str) -> float:
        """Return the initial value of a slot."""
        return 0.0

    def get_name(self) -> str:
        """Return the name."""
        return self._name

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots."""
        return list(self.slots)

    def get_slot(self, var: Any, name: str) -> GraphVariable | None:
        """Return the slot of a Variable, None before `apply_gradients`."""
        return self._slots.get(name, {}).get(var)

    def variables(self) -> list[GraphVariable]:
        """Return the state of the optimizer."""
        slots = [
            v for by_variable in self._slots.values() for v in by_variable.values()
        ]
        return [*self._shared, *slots]

    def minimize(
        self,
        loss: Any,
        global_step: Any = None,
        var_list: Any = None,
        gate_gradients: object = 1,
        aggregation_method: object = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> GraphOperation:
        """Return the operation of one step: `compute_gradients`, then
        `apply_gradients`.

        `gate_gradients`, `aggregation_method` and `colocate_gradients_with_ops` have
        no effect.

        Raises:
            ArgumentError: if the loss depends on none of the Variables.
        """
        pairs = self.compute_gradients(loss, var_list, grad_loss=grad_loss)
        if all(g is None for g, _ in pairs):
            names = [v.name for _, v in pairs]
            raise ArgumentError(
                "No gradients provided for any variable, check your graph for ops that "
                f"do not support gradients, between variables {names} and loss {loss}."
            )
        return self.apply_gradients(pairs, global_step, name)

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: object = 1,
        aggregation_method: object = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Any]]:
        """Return pairs of a gradient, or None, and its Variable.

        Args:
            loss: a tensor of the graph.
            var_list: by default all trainable Variables.
            gate_gradients, aggregation_method, colocate_gradients_with_ops:
                TensorFlow's
                hints about the device and the order of computation.
            grad_loss: weights of the elements of the loss.
        """
        if not isinstance(loss, KerasTensor):
            raise ArgumentTypeError(
                f"{type(self).__name__}: expected the loss as a tensor of a graph; "
                f"received {loss!r}. With eager execution use tf.keras.optimizers"
            )
        if var_list is None:
            var_list = loss.graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)
        if not var_list:
            raise ArgumentError("No variables to optimize.")
        variables = list(var_list)
        computed = gradients(
            [loss], variables, None if grad_loss is None else [grad_loss]
        )
        return list(zip(computed, variables, strict=True))

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> GraphOperation:
        """Return the operation that updates each Variable by its gradient.

        Args:
            grads_and_vars: pairs, as from `compute_gradients`.
            global_step: a Variable to increment.
            name: of the operation.
        """
        check_update(f"{self._name}.apply_gradients")
        pairs = [(g, v) for g, v in grads_and_vars if g is not None]
        if not pairs:
            raise ArgumentError("No gradients provided for any variable.")
        graph = next(x.graph for pair in pairs for x in pair if getattr(x, "graph", 0))
        if graph.finalized:
            raise TraceError("Graph is finalized and cannot be modified.")
        gs, variables = zip(*pairs, strict=True)
        slots = self.make_state(graph, variables)
        step = GraphStep(self._apply, f"Apply{self._name}")
        arguments = (gs, variables, slots, self._shared, self.rate(), global_step)
        train = graph.append(step, arguments, None, name=name or self._name)
        graph.add_to_collection(GraphKeys.TRAIN_OP, train)
        return train

    def rate(self) -> Any:
        """Return the current learning rate."""
        rate = self._learning_rate
        return rate() if callable(rate) else rate

    def make_state(
        self, graph: Any, variables: Sequence[Any]
    ) -> list[list[GraphVariable]]:
        """Return the slots of each Variable; create missing slots and shared
        Variables."""
        with graph.as_default(), graph.control_dependencies(None):
            with graph.name_scope(None):
                slots = [self._slots_of(v) for v in variables]
                if self.shared and not self._shared:
                    with colocate(variables[0]):
                        self._shared = [
                            GraphVariable(value, False, name=name)
                            for name, value in self.shared.items()
                        ]
        return slots

    def _slots_of(self, v: Any) -> list[GraphVariable]:
        for slot in self.slots:
            if v not in self._slots[slot]:
                start = ops.full(tuple(v.shape), self.first(slot), v.dtype)
                path = f"{v.path}/{self._name}"
                with colocate(v):
                    self._slots[slot][v] = GraphVariable(start, False, name=path)
        return [self._slots[slot][v] for slot in self.slots]

    def _apply(
        self,
        run: Any,
        gs: Sequence[Any],
        variables: Sequence[Any],
        slots: list[list[Any]],
        shared: list[Any],
        rate: TensorLike,
        global_step: Any,
    ) -> None:
        common = [run.cell(v) for v in shared]
        read = [cell.read() for cell in common]
        for g, v, variable_slots in zip(gs, variables, slots, strict=True):
            with run.at(v):
                cells = [run.cell(v), *map(run.cell, variable_slots)]
                p, *state = [cell.read() for cell in cells]
                lr = ops.cast(run.value(rate), p.dtype)
                values = list(self.update(p, run.value(g), lr, state, read))
                if v.constraint is not None:
                    values[0] = v.constraint(values[0])
                for cell, value in zip(cells, values, strict=True):
                    cell.assign(value)
        if shared:
            with run.at(shared[0]):
                new_shared = self.update_shared(read)
                for cell, value in zip(common, new_shared, strict=True):
                    cell.assign(value)
        if global_step is not None:
            with run.at(global_step):
                run.cell(global_step).assign_add(1)


class GradientDescentOptimizer(Optimizer):
    """p = p - lr * g.

    Args:
        learning_rate, use_locking, name: as in `Optimizer`.

    Example:
        >>> import toolkit.compat.tensorflow.v1 as tf
        >>> with tf.Graph().as_default(), tf.Session() as session:
        ...     w = tf.get_variable("w", initializer=4.0)
        ...     step = tf.train.GradientDescentOptimizer(0.25).minimize(w * w)
        ...     session.run(tf.global_variables_initializer())
        ...     session.run(step)
        ...     float(session.run(w))
        2.0
    """

    def __init__(
        self,
        learning_rate: Any,
        use_locking: bool = False,
        name: str = "GradientDescent",
    ) -> None:
        super().__init__(learning_rate, use_locking, name)

    def update(self, p, g, lr, slots, shared):
        return (p - lr * g,)


class MomentumOptimizer(Optimizer):
    """a = momentum * a + g;  p = p - lr * a, with Nesterov p - lr * (g + momentum * a).

    Args:
        learning_rate, use_locking, name: as in `Optimizer`.
        momentum: a number.
        use_nesterov: whether to use Nesterov momentum.
    """

    slots: tuple[str, ...] = ("momentum",)

    def __init__(
        self,
        learning_rate: Any,
        momentum: float,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(learning_rate, use_locking, name)
        self._momentum, self._nesterov = momentum, use_nesterov

    def update(self, p, g, lr, slots, shared):
        a = self._momentum * slots[0] + g
        return p - lr * (g + self._momentum * a if self._nesterov else a), a


class AdamOptimizer(Optimizer):
    """m = m + (1-b1)(g-m);  v = v + (1-b2)(g²-v);  p = p - rate * m / (sqrt(v) + e).

    rate = lr * sqrt(1 - b2^t) / (1 - b1^t).

    Args:
        learning_rate, use_locking, name: as in `Optimizer`.
        beta1, beta2: decays of the averages.
        epsilon: e.
    """

    slots: tuple[str, ...] = ("m", "v")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        super().__init__(learning_rate, use_locking, name)
        self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon
        self.shared: dict[str, float] = {"beta1_power": beta1, "beta2_power": beta2}

    def update(self, p, g, lr, slots, shared):
        power1, power2 = (ops.cast(power, p.dtype) for power in shared)
        m = slots[0] + (1.0 - self._beta1) * (g - slots[0])
        v = slots[1] + (1.0 - self._beta2) * (ops.square(g) - slots[1])
        rate = lr * ops.sqrt(1.0 - power2) / (1.0 - power1)
        return p - rate * m / (ops.sqrt(v) + self._epsilon), m, v

    def update_shared(self, shared: list[Tensor]) -> list[Tensor]:
        return [shared[0] * self._beta1, shared[1] * self._beta2]


class RMSPropOptimizer(Optimizer):
    """s = d * s + (1-d) * g²;  a = momentum * a + lr * g / sqrt(s + e);  p = p - a.

    d is the decay. If centered, the square of the average of g is subtracted from s.

    Args:
        learning_rate, use_locking, name: as in `Optimizer`.
        decay, momentum: numbers.
        epsilon: e.
        centered: whether to use the variance instead of the second moment.
    """

    def __init__(
        self,
        learning_rate: Any,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        self.slots: tuple[str, ...] = (
            ("rms", "mg", "momentum") if centered else ("rms", "momentum")
        )
        super().__init__(learning_rate, use_locking, name)
        self._decay, self._momentum, self._epsilon = decay, momentum, epsilon

    def first(self, slot: str) -> float:
        return float(slot == "rms")

    def update(self, p, g, lr, slots, shared):
        s, *mean, a = slots
        s = self._decay * s + (1.0 - self._decay) * ops.square(g)
        variance = s
        if mean:
            mean = [self._decay * mean[0] + (1.0 - self._decay) * g]
            variance = s - ops.square(mean[0])
        a = self._momentum * a + lr * g * ops.rsqrt(variance + self._epsilon)
        return (p - a, s, *mean, a)


class AdagradOptimizer(Optimizer):
    """s = s + g²;  p = p - lr * g / sqrt(s).

    Args:
        learning_rate, use_locking, name: as in `Optimizer`.
        initial_accumulator_value: the initial value of s, > 0.
    """

    slots: tuple[str, ...] = ("accumulator",)

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        if initial_accumulator_value <= 0:
            raise ArgumentError(
                "AdagradOptimizer: initial_accumulator_value must be positive; "
                f"received {initial_accumulator_value}"
            )
        super().__init__(learning_rate, use_locking, name)
        self._start = initial_accumulator_value

    def first(self, slot: str) -> float:
        return self._start

    def update(self, p, g, lr, slots, shared):
        s = slots[0] + ops.square(g)
        return p - lr * g * ops.rsqrt(s), s


class AdadeltaOptimizer(Optimizer):
    """s = rho * s + (1-rho) * g²;  d = g * sqrt((u + e) / (s + e));  p = p - lr * d.

    Then u = rho * u + (1-rho) * d².

    Args:
        learning_rate, use_locking, name: as in `Optimizer`.
        rho: decay of the averages.
        epsilon: e.
    """

    slots: tuple[str, ...] = ("accum", "accum_update")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.95,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        super().__init__(learning_rate, use_locking, name)
        self._rho, self._epsilon = rho, epsilon

    def update(self, p, g, lr, slots, shared):
        rho, epsilon = self._rho, self._epsilon
        s = rho * slots[0] + (1.0 - rho) * ops.square(g)
        d = g * ops.sqrt(slots[1] + epsilon) * ops.rsqrt(s + epsilon)
        return p - lr * d, s, rho * slots[1] + (1.0 - rho) * ops.square(d)
