"""Devices of a job, and the processes that use them."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np

from toolkit import comm, config
from toolkit.core.tensor import backend
from toolkit.errors import ArgumentError, unknown_choice
from toolkit.random.seeds import global_state, set_global_state

_KINDS = ("cpu", "gpu", "tpu")


def list_devices(device_type: str | None = None) -> list[str]:
    """Return the devices of one type in a job, such as ["cpu:0"].

    In a job of several processes, each process has one device: two processes on the
    CPU are "cpu:0" and "cpu:1".

    Args:
        device_type: "cpu", "gpu" or "tpu"; None selects the fastest available type.

    Returns:
        The names of the devices; an empty list without a device of the type.

    Example:
        >>> from toolkit import distribution
        >>> distribution.list_devices("cpu")
        ['cpu:0']
    """
    if device_type is not None and device_type.lower() not in _KINDS:
        raise unknown_choice("list_devices: device_type", device_type, _KINDS)
    names = config.list_devices()
    for kind in [device_type.lower()] if device_type else ["gpu", "cpu"]:
        devices = [name for name in names if name.startswith(f"{kind}:")]
        if devices:
            size = comm.world().size
            return devices if size == 1 else [f"{kind}:{i}" for i in range(size)]
    return []


def current_kind() -> str:
    """Return the type of the current device, on which steps run: "cpu" or "gpu"."""
    return "gpu" if backend().is_accelerator else "cpu"


def get_device_count(device_type: str | None = None) -> int:
    """Return the number of devices of one type in a job.

    Args:
        device_type: "cpu", "gpu" or "tpu"; None selects the fastest available type.

    Returns:
        The length of `list_devices(device_type)`.

    Example:
        >>> from toolkit import distribution
        >>> distribution.get_device_count("cpu")
        1
    """
    return len(list_devices(device_type))


def initialize(
    job_addresses: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> None:
    """Join the job of this process, and agree on random seeds.

    `toolkit run --processes 4 train.py`, or `mpirun` with `python -m toolkit.launch`,
    starts and connects the processes of a job. The arguments, or
    KERAS_DISTRIBUTION_JOB_ADDRESSES, _NUM_PROCESSES and _PROCESS_ID, are compared with
    this job.

    Args:
        job_addresses: comma-separated addresses of all processes.
        num_processes: the number of processes.
        process_id: the rank of this process.

    Raises:
        ArgumentError: the arguments do not match the job.

    Example:
        >>> from toolkit import distribution
        >>> distribution.initialize(num_processes=1, process_id=0)
    """
    arguments: dict[str, object] = {
        "job_addresses": job_addresses,
        "num_processes": num_processes,
        "process_id": process_id,
    }
    for name, value in arguments.items():
        if value is None:
            arguments[name] = os.environ.get(f"KERAS_DISTRIBUTION_{name.upper()}")
    group = comm.world()
    count = _parse_integer("num_processes", arguments["num_processes"], group.size)
    rank = _parse_integer("process_id", arguments["process_id"], group.rank)
    addresses = str(arguments["job_addresses"] or "").split(",")
    if count != group.size or len(addresses) > max(group.size, 1):
        raise ArgumentError(
            f"distribution.initialize: this job has {group.size} processes; received "
            f"num_processes={count} with "
            f"job_addresses={arguments['job_addresses']!r}. `toolkit run --processes "
            f"{count}` starts a script with this number"
        )
    if rank != group.rank:
        raise ArgumentError(
            f"distribution.initialize: expected process_id={group.rank}, the rank of "
            f"this process; received {rank}"
        )
    agree_on_seeds()


def agree_on_seeds() -> None:
    """Set the random seeds of all ranks to the seeds of rank 0."""
    group = comm.world()
    if group.size == 1:
        return
    numpy_state: Any = np.random.get_state(legacy=False)
    arrays = {
        name: np.asarray(value).tolist() for name, value in numpy_state["state"].items()
    }
    states = [random.getstate(), {**numpy_state, "state": arrays}, global_state()]
    (version, state, next_gauss), numpy_state, key = comm.exchange(group, states)[0]
    random.setstate((version, tuple(state), next_gauss))
    np.random.set_state(numpy_state)
    set_global_state(key)


def _parse_integer(name: str, value: object, default: int) -> int:
    if value is None:
        return default
    try:
        return int(str(value))
    except ValueError as error:
        raise ArgumentError(
            f"distribution.initialize: {name} must be an integer; received {value!r}"
        ) from error
