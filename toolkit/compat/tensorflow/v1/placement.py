"""Devices of graph operations: "/job:ps/task:0/cpu:0", also partial names."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from toolkit import dtypes
from toolkit.errors import DeviceError

# A device scope: a place, a function of an operation, or None to ignore outer scopes.
Scope = Any


class Place(NamedTuple):
    """A task of a cluster and a device of the task; None for an open field.

    Example:
        >>> from toolkit.compat.tensorflow.v1.placement import parse
        >>> parse("/job:worker/replica:0/task:1/device:CPU:0")
        Place(job='worker', task=1, device='cpu:0')
    """

    job: str | None = None
    task: int | None = None
    device: str | None = None

    def within(self, outer: Place) -> Place:
        """Fill the open fields from the outer place."""
        return Place(
            outer.job if self.job is None else self.job,
            outer.task if self.task is None else self.task,
            outer.device if self.device is None else self.device,
        )

    @property
    def is_remote(self) -> bool:
        """Return whether it names a task of a cluster."""
        return self.job is not None or self.task is not None

    def __str__(self) -> str:
        if not self.is_remote:
            return self.device or ""
        job = "" if self.job is None else f"/job:{self.job}"
        task = "" if self.task is None else f"/task:{self.task}"
        return job + task + (f"/{self.device}" if self.device else "")


def parse(name: str | Place | None) -> Place:
    """Parse a device string.

    Raises:
        DeviceError: if it is invalid.
    """
    if isinstance(name, Place):
        return name
    fields: dict[str, Any] = {}
    for field in str(name or "").split("/"):
        kind, _, value = field.lower().partition(":")
        if kind == "job" and value:
            fields["job"] = field.partition(":")[2]
        elif kind == "task" and value.isdigit():
            fields["task"] = int(value)
        elif kind == "device" and value:
            fields["device"] = value
        elif kind in ("cpu", "gpu"):
            fields["device"] = f"{kind}:{value or 0}"
        elif field and (kind, value) != ("replica", "0"):
            raise DeviceError(
                f"device {name!r}: expected a name such as '/job:worker/task:1/cpu:0'; "
                f"received {field!r}"
            )
    if fields.get("job") == "localhost":  # always the current process
        fields.pop("job")
        fields.pop("task", None)
    return Place(**fields)


def resolve_device(
    operation: Any, scopes: list[Scope], outermost: str | None
) -> str | None:
    """Return the device of an operation within scopes, the last one innermost.

    Args:
        operation: the operation, whose `device` the functions of scopes can read.
        scopes: of the graph.
        outermost: the device of the process's scope.
    """
    location = Place()
    for scope in reversed(scopes):
        if scope is None:
            break
        if isinstance(scope, Place):
            location = location.within(scope)
        else:
            operation.device = str(location) or None
            location = parse(scope(operation))
    else:
        location = location.within(parse(outermost))
    return str(location) or None


class RoundRobin:
    """A strategy that assigns operations to tasks cyclically."""

    def __init__(self, num_tasks: int) -> None:
        self._count, self._next = num_tasks, 0

    def __call__(self, operation: Any) -> int:
        """Return the next task; the operation has no effect."""
        task, self._next = self._next, (self._next + 1) % self._count
        return task


def byte_size_load_fn(op: Any) -> int:
    """Return the size of a Variable in bytes: the memory and traffic of its task."""
    (x,) = op.outputs
    return prod(x.shape) * dtypes.itemsize(str(x.dtype))


class GreedyLoadBalancingStrategy:
    """A strategy that assigns each operation to the task with the smallest load.

    Args:
        num_tasks: the number of tasks.
        load_fn: from an operation to its load, such as `byte_size_load_fn`.

    Example:
        >>> import toolkit.compat.tensorflow.v1 as tf
        >>> with tf.Graph().as_default():
        ...     greedy = tf.train.GreedyLoadBalancingStrategy(2)
        ...     with tf.device(tf.train.replica_device_setter(2, ps_strategy=greedy)):
        ...         sizes = {"a": 9, "b": 2, "c": 4}
        ...         variables = [tf.get_variable(n, (k,)) for n, k in sizes.items()]
        ...     [v.device for v in variables]
        ['/job:ps/task:0', '/job:ps/task:1', '/job:ps/task:1']
    """

    def __init__(
        self, num_tasks: int, load_fn: Callable[[Any], float] = byte_size_load_fn
    ) -> None:
        self._loads, self._load_of = [0.0] * num_tasks, load_fn

    def __call__(self, operation: Any) -> int:
        """Return the task of an operation."""
        task = self._loads.index(min(self._loads))
        self._loads[task] += self._load_of(operation)
        return task


def replica_device_setter(
    ps_tasks: int = 0,
    ps_device: str = "/job:ps",
    worker_device: str = "/job:worker",
    merge_devices: bool = True,
    cluster: Any = None,
    ps_ops: Any = None,
    ps_strategy: Callable[[Any], int] | None = None,
) -> Callable[[Any], str] | None:
    """Return a function for `tf.device` that puts Variables on parameter servers.

    Args:
        ps_tasks: the number of parameter servers; 0 gives None.
        ps_device, worker_device: the devices; if `ps_device` has no task, the strategy
            selects one.
        merge_devices: only True: inner scopes have priority.
        cluster: a `ClusterSpec`, whose job of `ps_device` has the number of tasks.
        ps_ops: types of operations for the parameter servers; by default Variables.
        ps_strategy: from an operation to a task number; cyclic by default.

    Returns:
        The function; None if there are no parameter servers.

    Example:
        >>> import toolkit.compat.tensorflow.v1 as tf
        >>> cluster = tf.train.ClusterSpec({"ps": ["a:1", "b:1"], "worker": ["c:1"]})
        >>> with tf.Graph().as_default():
        ...     with tf.device(tf.train.replica_device_setter(cluster=cluster)):
        ...         v = tf.get_variable("v", (2,))
        ...         w = tf.get_variable("w", (2,))
        ...         x = v + w
        >>> v.device, w.device, x.device
        ('/job:ps/task:0', '/job:ps/task:1', '/job:worker')
    """
    if not merge_devices:
        raise DeviceError("replica_device_setter: merge_devices must be True")
    servers, worker = parse(ps_device), parse(worker_device)
    if cluster is not None:
        ps_tasks = len(cluster.as_dict().get(servers.job, ()))
    if not ps_tasks:
        return None
    types = ("Variable", "VariableV2", "VarHandleOp") if ps_ops is None else ps_ops
    strategy = ps_strategy or RoundRobin(ps_tasks)

    def choose(operation: Any) -> str:
        location = parse(operation.device)
        if operation.type not in types:
            return str(location.within(worker))
        if servers.task is None and location.job in (None, servers.job):
            if location.task is None:
                location = location._replace(task=strategy(operation))
        return str(location.within(servers))

    return choose
