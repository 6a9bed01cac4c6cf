"""`tf.distribute` on one device: all strategies have one replica."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from types import SimpleNamespace
from typing import Any

from toolkit import comm, ops
from toolkit.compat.tensorflow.arguments import axes
from toolkit.compat.tensorflow.scopes import device
from toolkit.compat.tensorflow.tensor_classes import convert
from toolkit.core.tensor import Tensor
from toolkit.distribution import distribution
from toolkit.errors import ArgumentError, UnsupportedError
from toolkit.type_aliases import Axis


class ReduceOp(Enum):
    """Reductions over the values of replicas."""

    SUM = "SUM"
    MEAN = "MEAN"


class Strategy:
    """A strategy with one replica on the current device.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> strategy = tf.distribute.MirroredStrategy()
        >>> with strategy.scope():
        ...     v = tf.Variable(1.0)
        >>> float(strategy.run(lambda x: v * x, args=(tf.constant(3.0),)))
        3.0
    """

    num_replicas_in_sync = 1

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
        fn: Callable[..., Any],
        args: Any = (),
        kwargs: Any = None,
        options: object = None,
    ) -> Any:
        """Return the result of the only replica: `fn(*args, **kwargs)`."""
        return fn(*args, **(kwargs or {}))

    def reduce(self, reduce_op: Any, value: Any, axis: Axis) -> Tensor:
        """Return the value of the only replica; summed or averaged over an axis, if
        any."""
        if axis is None:
            return convert(value)
        is_sum = str(getattr(reduce_op, "value", reduce_op)).upper() == "SUM"
        return (ops.sum if is_sum else ops.mean)(value, axis=axes(axis))

    def gather(self, value: Any, axis: int) -> Tensor:
        """Return the value of the only replica; `axis` has no effect."""
        return convert(value)

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        """Return the value of each replica: one."""
        return (value,)

    def experimental_distribute_dataset(
        self, dataset: Any, options: object = None
    ) -> Any:
        """Return the data set: the only replica receives all of it; options have no
        effect."""
        return dataset

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[Any], Any], options: object = None
    ) -> Any:
        """Return the data set that a function creates from an InputContext.

        `options` have no effect.
        """
        return dataset_fn(InputContext())


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


def _check_one(strategy: str, devices: Sequence[Any] | None) -> None:
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
        self, devices: Sequence[Any] | None = None, cross_device_ops: object = None
    ) -> None:
        _check_one("MirroredStrategy", devices)


class OneDeviceStrategy(Strategy):
    """A Strategy of one device, selected as by `tf.device`.

    Args:
        device: its name.
    """

    def __init__(self, device: str) -> None:
        _check_job("OneDeviceStrategy")
        self._device = device

    @contextmanager
    def scope(self) -> Iterator[Strategy]:
        """Return a context for models and Variables on the device."""
        with device(self._device), super().scope():
            yield self

    def run(
        self,
        fn: Callable[..., Any],
        args: Any = (),
        kwargs: Any = None,
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
        self, cluster_resolver: Any = None, communication_options: object = None
    ) -> None:
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
        compute_devices: Sequence[Any] | None = None,
        parameter_device: object = None,
    ) -> None:
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
        implementation: Any = CommunicationImplementation.AUTO,
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
    return _entered[-1] if _entered else _default


def has_strategy() -> bool:
    """Return whether the code runs in a strategy's scope."""
    return bool(_entered)


def in_cross_replica_context() -> bool:
    """Return whether the code runs in a strategy's scope."""
    return has_strategy()


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"tf.distribute.{name} is not supported: use toolkit.distribution"
    )
