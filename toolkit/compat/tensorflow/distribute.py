"""`tf.distribute`: all strategies have one replica, also in a job of processes."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from types import SimpleNamespace
from typing import Any

from toolkit import comm, ops
from toolkit.compat.tensorflow.arguments import axes
from toolkit.compat.tensorflow.autograph import converted
from toolkit.compat.tensorflow.functions import Function, JobFunction
from toolkit.compat.tensorflow.modes import NeedsJob, local
from toolkit.compat.tensorflow.scopes import device
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.compiler.shared_steps import is_shared_step
from toolkit.core.tensor import state
from toolkit.data.batch_shards import LocalRows
from toolkit.distribution import distribution
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.thread_state import ThreadState
from toolkit.tree import flatten, map_structure
from toolkit.type_aliases import Axis

_MAX_FUNCTIONS = 64  # functions of `run` whose programs a strategy keeps in a job


class _Replica(ThreadState):
    strategy: Strategy | None = None  # the strategy whose `run` is active


_replica = _Replica()


class ReduceOp(Enum):
    """Reductions over the values of replicas."""

    SUM = "SUM"
    MEAN = "MEAN"


class Strategy:
    """A strategy with one replica: this process, or all processes of a job.

    A job of `toolkit run` with a distribution is one replica. Its batches are global
    batches, and its processes compute the calls of `run` together. Losses, gradients
    and metrics in these calls are those of the global batch. Therefore
    `num_replicas_in_sync` is 1, and no value needs to be scaled or summed.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> strategy = tf.distribute.MirroredStrategy()
        >>> with strategy.scope():
        ...     v = tf.Variable(1.0)
        >>> float(strategy.run(lambda x: v * x, args=(tf.constant(3.0),)))
        3.0
    """

    num_replicas_in_sync = 1

    def __init__(self) -> None:
        self._functions: OrderedDict[Any, JobFunction] = OrderedDict()

    @contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Return a context in which models and Variables belong to the strategy;
        `get_strategy` returns it inside."""
        _entered.append(self)
        try:
            yield self
        finally:
            _entered.pop()

    def run(
        self,
        fn: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        options: object = None,
    ) -> Any:
        """Return the result of the only replica: `fn(*args, **kwargs)`.

        In a job, `fn` is traced, and the processes compute it together: each process
        passes its element of `experimental_distribute_dataset`, or the same batch.

        Args:
            fn: the function.
            args, kwargs: its arguments.
            options: has no effect.

        Raises:
            UnsupportedError: in a job, `fn` cannot be traced.
        """
        call = self._function_of(fn)
        with _replica.override(strategy=self):
            return call(*args, **(kwargs or {}))

    def _function_of(self, fn: Callable[..., object]) -> Callable[..., object]:
        """Return the function to call: for a job, the function of all processes."""
        current = distribution()
        is_in_job = current is not None and current.is_partitioned
        if state.trace is not None:
            if is_in_job and not is_shared_step():
                raise NeedsJob
            return converted(fn) if local.is_tracing else fn
        if not is_in_job:
            return fn
        if isinstance(fn, Function):
            return fn.in_job()
        if fn not in self._functions:
            self._functions[fn] = JobFunction(fn)
        self._functions.move_to_end(fn)
        if len(self._functions) > _MAX_FUNCTIONS:
            self._functions.popitem(last=False)
        return self._functions[fn]

    def reduce(self, reduce_op: object, value: object, axis: Axis) -> Any:
        """Return the value of the only replica; summed or averaged over an axis, if
        any."""
        if axis is None:
            return self._full(value)
        is_sum = str(getattr(reduce_op, "value", reduce_op)).upper() == "SUM"
        function = ops.sum if is_sum else ops.mean
        return map_structure(lambda x: function(x, axis=axes(axis)), self._full(value))

    def _full(self, value: object) -> Any:
        """Return a value with tensors; rows of a process become the global batch."""
        if any(isinstance(leaf, LocalRows) for leaf in flatten(value)):
            return self.run(_same, args=(value,))
        return map_structure(convert, value)

    def gather(self, value: object, axis: int) -> Any:
        """Return the value of the only replica; `axis` has no effect."""
        return self._full(value)

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        """Return the value of each replica: one."""
        return (value,)

    def experimental_distribute_values_from_function(
        self, value_fn: Callable[[ValueContext], object]
    ) -> Any:
        """Return the value that a function creates for the only replica."""
        return value_fn(ValueContext())

    def experimental_distribute_dataset(
        self, dataset: object, options: object = None
    ) -> Any:
        """Return a data set of the batches of the replica.

        In a job, each process gets its rows of each global batch, for `run`.

        Args:
            dataset: a data set of global batches, equal in all processes.
            options: has no effect.
        """
        current = distribution()
        return dataset if current is None else current.distribute_dataset(dataset)

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], object], options: object = None
    ) -> Any:
        """Return the batches of the data set that a function creates.

        Args:
            dataset_fn: a function of an InputContext. It returns global batches, the
                same in all processes: there is one pipeline.
            options: has no effect.
        """
        return self.experimental_distribute_dataset(dataset_fn(InputContext()))


def _same(value: object) -> object:
    return value


class ReplicaContext:
    """Context of the code in `Strategy.run`: the only replica.

    Args:
        strategy: the strategy.
    """

    num_replicas_in_sync = 1
    replica_id_in_sync_group = 0

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy

    def all_reduce(
        self, reduce_op: object, value: object, options: object = None
    ) -> Any:
        """Return the value, because it is that of all replicas.

        `reduce_op` has no effect, and `options` has no effect.
        """
        return map_structure(convert, value)

    def all_gather(self, value: object, axis: int, options: object = None) -> Any:
        """Return the value, because it is that of all replicas.

        `axis` has no effect, and `options` has no effect.
        """
        return map_structure(convert, value)

    def merge_call(
        self,
        merge_fn: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        """Return `merge_fn(strategy, *args, **kwargs)`."""
        with _replica.override(strategy=None):
            return merge_fn(self.strategy, *args, **(kwargs or {}))


class ValueContext:
    """Argument of a function that creates the value of a replica."""

    num_replicas_in_sync = 1
    replica_id_in_sync_group = 0


class InputContext:
    """Argument of a function that creates a data set: there is one pipeline."""

    num_input_pipelines = 1
    input_pipeline_id = 0
    num_replicas_in_sync = 1

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Return the size of a batch, unchanged."""
        return global_batch_size


def _check_job(strategy: str) -> None:
    """Refuse a strategy whose workers or processes would train separate models."""
    if distribution() is not None:
        return  # `fit` computes its steps in all processes together
    processes, workers = comm.world().size, _count_workers()
    if max(processes, workers) == 1:
        return
    source = f"this job has {processes} processes"
    if processes == 1:
        source = f"TF_CONFIG names {workers} workers, and this process is alone"
    raise UnsupportedError(
        f"{strategy}: {source}, which would train separate models: start the script by "
        "`toolkit run`, and call toolkit.distribution.set_distribution("
        "toolkit.distribution.DataParallel()) first"
    )


def _count_workers() -> int:
    """Return the number of workers in the variable TF_CONFIG, or 1."""
    try:
        cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
        return max(1, sum(len(cluster.get(task, ())) for task in ("chief", "worker")))
    except (ValueError, AttributeError, TypeError) as error:
        raise ArgumentError(
            "TF_CONFIG: expected JSON with the hosts of a cluster; received "
            f"{os.environ['TF_CONFIG']!r:.80}"
        ) from error


def _check_one(strategy: str, devices: Sequence[object] | None) -> None:
    if devices is not None and len(devices) > 1:
        raise UnsupportedError(
            f"{strategy}: expected one device; received {list(devices)}: use "
            "toolkit.distribution for several"
        )
    _check_job(strategy)


class MirroredStrategy(Strategy):
    """A Strategy of one device.

    Args:
        devices: None, or one device.
        cross_device_ops: has no effect: there is one device.
    """

    def __init__(
        self, devices: Sequence[object] | None = None, cross_device_ops: object = None
    ) -> None:
        super().__init__()
        _check_one("MirroredStrategy", devices)


class OneDeviceStrategy(Strategy):
    """A Strategy of one device, selected as by `tf.device`.

    Args:
        device: its name.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        _check_job("OneDeviceStrategy")
        self._device = device

    @contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Return a context for models and Variables on the device."""
        with device(self._device), super().scope():
            yield self

    def run(
        self,
        fn: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        options: object = None,
    ) -> Any:
        """Return the result of `fn(*args, **kwargs)`, computed on the device."""
        with device(self._device):
            return super().run(fn, args, kwargs)


class MultiWorkerMirroredStrategy(Strategy):
    """A Strategy of one worker.

    Args:
        cluster_resolver: only None: one worker.
        communication_options: has no effect: there is no communication.
    """

    def __init__(
        self, cluster_resolver: object = None, communication_options: object = None
    ) -> None:
        super().__init__()
        if cluster_resolver is not None:
            raise UnsupportedError(
                "MultiWorkerMirroredStrategy: only cluster_resolver=None is supported, "
                "one worker"
            )
        _check_job("MultiWorkerMirroredStrategy")


class CentralStorageStrategy(Strategy):
    """A Strategy of one device, whose Variables are on the CPU in TensorFlow.

    Args:
        compute_devices: None, or one device.
        parameter_device: has no effect: Variables are on the compute device.
    """

    def __init__(
        self,
        compute_devices: Sequence[object] | None = None,
        parameter_device: object = None,
    ) -> None:
        super().__init__()
        _check_one("CentralStorageStrategy", compute_devices)


class CommunicationImplementation(Enum):
    """Communication libraries of workers."""

    AUTO, RING, NCCL = "AUTO", "RING", "NCCL"


class CommunicationOptions:
    """Options for the communication of workers; only stored.

    Args:
        bytes_per_pack: bytes per message.
        timeout_seconds: the timeout.
        implementation: a CommunicationImplementation.
    """

    def __init__(
        self,
        bytes_per_pack: int = 0,
        timeout_seconds: float | None = None,
        implementation: object = CommunicationImplementation.AUTO,
    ) -> None:
        self.bytes_per_pack = bytes_per_pack
        self.timeout_seconds = timeout_seconds
        self.implementation = implementation


experimental: SimpleNamespace = SimpleNamespace(
    CentralStorageStrategy=CentralStorageStrategy,
    CommunicationImplementation=CommunicationImplementation,
    CommunicationOptions=CommunicationOptions,
    MultiWorkerMirroredStrategy=MultiWorkerMirroredStrategy,
)
_default = Strategy()
_entered: list[Strategy] = []


def get_strategy() -> Strategy:
    """Return the strategy of the innermost scope, or the default one."""
    if _replica.strategy is not None:
        return _replica.strategy
    return _entered[-1] if _entered else _default


def has_strategy() -> bool:
    """Return whether the code runs in a strategy's scope or in its `run`."""
    return bool(_entered) or _replica.strategy not in (None, _default)


def in_cross_replica_context() -> bool:
    """Return whether the code runs in a strategy's scope, and not in its `run`."""
    return has_strategy() and _replica.strategy is None


def get_replica_context() -> ReplicaContext | None:
    """Return the context of the replica, or None in a cross-replica context."""
    if in_cross_replica_context():
        return None
    return ReplicaContext(_replica.strategy or _default)


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"tf.distribute.{name} is not supported: use toolkit.distribution"
    )
