"""`tf.device`, `tf.name_scope` and `tf.init_scope`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from toolkit.compat.tensorflow.config import get_soft_device_placement
from toolkit.compat.tensorflow.modes import building_graph, mode
from toolkit.core import naming, tensor as core
from toolkit.core.trace import no_trace
from toolkit.errors import DeviceError

# Kinds of devices in TensorFlow, which uses another device if one does not exist.
_KINDS = ("cpu", "gpu", "tpu")


class name_scope(ExitStack):
    """A scope that prefixes the paths of new Variables with a name.

    Args:
        name: one name, or several with "/" in between. In a graph it is a prefix of the
            names of operations.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> with tf.name_scope("encoder"):
        ...     tf.Variable(1.0, name="w").name
        'encoder/w:0'
    """

    def __init__(self, name: str | None) -> None:
        super().__init__()
        self.name = name

    def __enter__(self) -> Any:
        if building_graph():
            return self.enter_context(mode.graph().name_scope(self.name))
        for name in filter(None, str(self.name).split("/")):
            self.enter_context(naming.name_scope(name))
        return naming.current_path() + "/"


def device(device_name: Any) -> Any:
    """Run the operations inside on a device: "/GPU:0", "cpu:0", or None for any.

    The CPU replaces a missing device, unless
    `tf.config.set_soft_device_placement(False)` was called.

    In a graph it can be a task of a cluster, "/job:worker/task:1", or a function from
    an operation to such a name.
    """
    if building_graph():
        return mode.graph().device(device_name)
    if device_name is None:
        return ExitStack()
    if callable(device_name) or "/job:" in device_name.replace("/job:localhost", ""):
        raise DeviceError(
            "tf.device: expected a device of this process; received "
            f"{device_name!r}. Other devices are supported only in compat.v1 graphs, "
            "in sessions on a cluster"
        )
    fields = [field for field in device_name.split("/") if field]
    try:
        return core.device(fields[-1].removeprefix("device:").lower())
    except DeviceError:
        kind = fields[-1].removeprefix("device:").partition(":")[0].lower()
        if not get_soft_device_placement() or kind not in _KINDS:
            raise
        return core.device("cpu")


def init_scope() -> Any:
    """Run the code inside eagerly, also in a traced function."""
    return no_trace()
