"""`tf.data.Options`, with the options of distributed data sets."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from toolkit import comm
from toolkit.data import Options as CoreOptions
from toolkit.distribution import distribution
from toolkit.errors import ArgumentError, UnsupportedError


class AutoShardPolicy(IntEnum):
    """How the processes of a job share a data set.

    AUTO, DATA and FILE are equal: each process reads its rows of each global batch. OFF
    means that each process provides its own batches.
    """

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


class DistributeOptions:
    """Options for distributed data sets.

    Args:
        auto_shard_policy: an AutoShardPolicy.
        num_devices: only None.
    """

    def __init__(
        self,
        auto_shard_policy: AutoShardPolicy = AutoShardPolicy.AUTO,
        num_devices: None = None,
    ) -> None:
        self.auto_shard_policy = auto_shard_policy
        self.num_devices = num_devices

    def __setattr__(self, name: str, value: object) -> None:
        if name == "auto_shard_policy":
            value = _policy(value)
        elif name != "num_devices":
            raise AttributeError(
                "DistributeOptions: expected auto_shard_policy or num_devices; "
                f"received {name!r}"
            )
        elif value is not None:
            raise UnsupportedError(
                f"DistributeOptions: num_devices={value!r} is not supported: the job "
                "determines the number of processes"
            )
        super().__setattr__(name, value)

    def check(self) -> None:
        """Raise an error if the policy differs from the distribution of the job."""
        if self.auto_shard_policy != AutoShardPolicy.OFF or comm.world().size == 1:
            return
        current = distribution()
        if current is None or current.auto_shard_dataset:
            raise UnsupportedError(
                "Options: AutoShardPolicy.OFF is not supported by this job, whose "
                "processes share each global batch: to provide the batches of each "
                "process, call toolkit.distribution.set_distribution(toolkit."
                "distribution.DataParallel(auto_shard_dataset=False)) first"
            )


def _policy(value: Any) -> AutoShardPolicy:
    try:
        policy = AutoShardPolicy(value)
    except ValueError as error:
        raise ArgumentError(
            f"DistributeOptions: expected an AutoShardPolicy; received {value!r}"
        ) from error
    if policy == AutoShardPolicy.HINT:
        raise UnsupportedError(
            "DistributeOptions: AutoShardPolicy.HINT is not supported: use DATA, and "
            "remove `shard` from the data set"
        )
    return policy


class Options(CoreOptions):
    """Options of a data set: those of `toolkit.data`, and `experimental_distribute`.

    Args:
        *args, **kwargs: the options of `toolkit.data.Options`.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> options = tf.data.Options()
        >>> policy = tf.data.experimental.AutoShardPolicy.DATA
        >>> options.experimental_distribute.auto_shard_policy = policy
        >>> len(tf.data.Dataset.range(3).with_options(options))
        3
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.experimental_distribute = DistributeOptions()
        super().__init__(*args, **kwargs)

    @property
    def experimental_distribute(self) -> DistributeOptions:
        """Return the options of distributed data sets."""
        options: DistributeOptions = vars(self)["_distribute"]
        return options

    @experimental_distribute.setter
    def experimental_distribute(self, options: DistributeOptions) -> None:
        if not isinstance(options, DistributeOptions):
            raise ArgumentError(
                "Options: expected experimental_distribute to be DistributeOptions; "
                f"received {options!r:.60}"
            )
        vars(self)["_distribute"] = options

    def __setattr__(self, name: str, value: object) -> None:
        if name == "experimental_distribute":
            object.__setattr__(self, name, value)  # calls the property
        else:
            super().__setattr__(name, value)

    def updated(self, other: Any) -> Options:
        """Return these options, updated with the other's values that are set.

        Args:
            other: the options.
        """
        core = as_core_options(self).updated(as_core_options(other))
        merged = Options(core.deterministic, None, None, None, core.autotune)
        merged.threading = core.threading
        latest = getattr(other, "experimental_distribute", DistributeOptions())
        is_set = latest.auto_shard_policy != AutoShardPolicy.AUTO
        merged.experimental_distribute = (
            latest if is_set else self.experimental_distribute
        )
        return merged


def as_core_options(options: CoreOptions) -> CoreOptions:
    """Return the options of a pipeline, without those of TensorFlow."""
    if not isinstance(options, Options):
        return options
    return CoreOptions(
        options.deterministic, autotune=options.autotune, threading=options.threading
    )
