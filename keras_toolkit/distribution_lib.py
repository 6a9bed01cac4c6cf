"""The devices and processes of a job; `toolkit.distribution` has the strategies."""

from __future__ import annotations

from typing import Any

from toolkit import comm, distribution

get_device_count = distribution.get_device_count
initialize = distribution.initialize
list_devices = distribution.list_devices


def num_processes() -> int:
    """Return the number of processes of the job."""
    return comm.world().size


def process_id() -> int:
    """Return the number of this process in the job."""
    return comm.world().rank


def distribute_tensor(tensor: Any, layout: Any) -> Any:
    """Refuse to distribute a tensor."""
    raise _refusal()


def _to_backend_mesh(device_mesh: Any) -> Any:
    raise _refusal()


def _to_backend_layout(tensor_layout: Any) -> Any:
    raise _refusal()


def _refusal() -> NotImplementedError:
    return NotImplementedError(
        "keras.distribution: the toolkit backend does not train Keras models on "
        "several devices; for models of toolkit, use `toolkit.distribution`"
    )
