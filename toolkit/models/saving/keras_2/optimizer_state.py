"""The state of an optimizer in a file of Keras 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit.console.frames import warn
from toolkit.core.variable import assign_all

if TYPE_CHECKING:
    from toolkit.reading.hdf5 import Dataset


# Sublayers of MultiHeadAttention, which were private attributes.
_PARTS = {f"_{name}_dense": f"{name}_dense" for name in ("query", "key", "value")}
_PARTS["_output_dense"] = "output_dense"


def split_state(
    datasets: dict[str, Dataset],
) -> tuple[dict[str, Dataset], list[Dataset]]:
    """Split the datasets of a `.keras` file into layers and the optimizer.

    Metrics are left out: each epoch resets them, and their names have changed.
    """
    layers, state = {}, {}
    for path, dataset in datasets.items():
        first, _, suffix = path.partition("/")
        key = suffix.removeprefix("vars/")
        if first == "optimizer" and key.isdecimal():
            state[int(key)] = dataset
        elif first != "metrics":
            path = "/".join(
                _PARTS.get(component, component) for component in path.split("/")
            )
            layers[path] = dataset
    return layers, [state[key] for key in sorted(state)]


def load_optimizer_state(model: Any, stored: list[Dataset], is_by_slot: bool) -> None:
    """Load the state of a model's optimizer from a file of Keras 2.

    Keras 2 does not store the learning rate in the state. The optimizer keeps the rate
    of its config.

    Args:
        model: a compiled model.
        stored: the number of steps, then the slots.
        is_by_slot: whether the order is by slot, then by variable, as before Keras
            2.11; else by variable, then by slot.
    """
    optimizer = model.optimizer
    optimizer.build(model.trainable_variables)
    slots = stored[1:]
    count = len(model.trainable_variables)
    if is_by_slot and count:
        slots = [slot for first in range(count) for slot in slots[first::count]]
    rate = optimizer._learning_rate
    variables = [variable for variable in optimizer.variables if variable is not rate]
    datasets = [*stored[:1], *slots]
    if len(variables) == 1:  # Keras 2 stores an unused momentum, too
        datasets = datasets[:1]
    if not variables or [tuple(v.shape) for v in variables] != [
        d.shape for d in datasets
    ]:
        if stored and stored[0].shape == () and stored[0].read():
            warn(
                "load_model: the file contains the state of another optimizer; the "
                f"state of {optimizer.name!r} is reset"
            )
        return
    assign_all((v, d.read()) for v, d in zip(variables, datasets, strict=True))
