"""The devices of this machine, and the one process that uses them."""

from __future__ import annotations

import os

from toolkit import config
from toolkit.errors import ArgumentError, UnsupportedError, unknown_choice

_KINDS = ("cpu", "gpu", "tpu")


def list_devices(device_type: str | None = None) -> list[str]:
    """The devices of one kind, such as ["cpu:0"].

    Args:
        device_type: "cpu", "gpu" or "tpu"; None for the fastest kind there is.

    Example:
        >>> from toolkit import distribution
        >>> distribution.list_devices("cpu")
        ['cpu:0']
    """
    if device_type is not None and device_type.lower() not in _KINDS:
        raise unknown_choice("list_devices: device_type", device_type, _KINDS)
    found = config.list_devices()
    for kind in [device_type.lower()] if device_type else ["gpu", "cpu"]:
        devices = [name for name in found if name.startswith(f"{kind}:")]
        if devices:
            return devices
    return []


def get_device_count(device_type: str | None = None) -> int:
    """How many devices of one kind there are: see `list_devices`."""
    return len(list_devices(device_type))


def initialize(
    job_addresses: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> None:
    """Accept a job of this process alone; refuse jobs of several.

    What is None is read from KERAS_DISTRIBUTION_JOB_ADDRESSES, _NUM_PROCESSES and
    _PROCESS_ID.

    Args:
        job_addresses: of all processes, with commas between.
        num_processes: how many there are.
        process_id: which one this is.

    Raises:
        UnsupportedError: for more than one process.
    """
    given = {
        "job_addresses": job_addresses,
        "num_processes": num_processes,
        "process_id": process_id,
    }
    for name, value in given.items():
        if value is None:
            given[name] = os.environ.get(f"KERAS_DISTRIBUTION_{name.upper()}")
    count, number = (
        _whole(name, given[name], default)
        for name, default in (("num_processes", 1), ("process_id", 0))
    )
    addresses = str(given["job_addresses"] or "").split(",")
    if count > 1 or len(addresses) > 1:
        raise UnsupportedError(
            "distribution.initialize: models are computed by one process; a job of "
            f"num_processes={count} with job_addresses={given['job_addresses']!r} is "
            "not supported"
        )
    if count != 1 or number != 0:
        raise ArgumentError(
            "distribution.initialize: expected num_processes=1 and process_id=0; "
            f"received {count} and {number}"
        )


def _whole(name: str, value: object, default: int) -> int:
    if value is None:
        return default
    try:
        return int(str(value))
    except ValueError as error:
        raise ArgumentError(
            f"distribution.initialize: {name} must be an integer; received {value!r}"
        ) from error
