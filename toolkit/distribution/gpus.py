"""GPUs of a job: one for each process, and their collectives."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit import comm, settings
from toolkit.backends.base import Backend
from toolkit.comm import Group
from toolkit.console.frames import warn_once
from toolkit.distribution.layouts import DeviceMesh
from toolkit.errors import (
    ArgumentError,
    BackendUnavailable,
    UnsupportedError,
)
from toolkit.functions.local_rows import group_by_rank


def check_device(name: str, mesh: DeviceMesh, backend: Backend) -> None:
    """Raise if a step runs on another kind of device than the mesh has.

    Args:
        name: the step in errors.
        mesh: a mesh with one device for each process.
        backend: the backend that runs the step.
    """
    kind = "gpu" if backend.is_accelerator else "cpu"
    kinds = {str(device).lower().partition(":")[0] for device in mesh.devices.ravel()}
    if kinds != {kind}:
        received = ", ".join(map(str, mesh.devices.ravel()))
        raise ArgumentError(
            f"{name}: the step runs on {backend.device_name}, so the mesh must have "
            f"{kind.upper()}s; received {received}. Set TOOLKIT_DEVICE=gpu to run "
            "steps on GPUs, or pass "
            f"devices=toolkit.distribution.list_devices({kind!r})"
        )


def connect_gpus(
    name: str, backend: Backend, groups: Sequence[Group], needs_nccl: bool = False
) -> None:
    """Connect the GPUs of a job along each axis of its mesh; all ranks call this.

    Without a library that connects them, collectives copy through host memory, and
    rank 0 warns once. If the library is required, this is an error.

    Args:
        name: the step in errors.
        backend: the backend of this rank's GPU.
        groups: the groups of this rank, one for each axis.
        needs_nccl: whether the library is required.

    Raises:
        BackendUnavailable: the library is required, and a rank does not have it.
        UnsupportedError: the job uses autotuning.
        ArgumentError: two ranks use one GPU, or the GPUs differ.
    """
    world = comm.world()
    if world.size == 1:
        return
    are_shared = _compare_gpus(name, backend, world)
    # NCCL refuses ranks on one GPU, unless its environment variable permits them.
    reasons = (BackendUnavailable, ArgumentError) if are_shared else BackendUnavailable
    try:
        backend.connect([group for group in groups if group.size > 1], world)
    except reasons as error:
        if needs_nccl:
            raise type(error)(
                f"{name}: reduction='nccl' needs NCCL: {error}"
            ) from error
        if world.rank == 0:
            warn_once(
                world,
                "GPUs: sums over the processes are copied through host memory, which "
                f"is slow: {error}",
                topic="collectives through host memory",
            )


def _compare_gpus(name: str, backend: Backend, group: Group) -> bool:
    """Return whether ranks share a GPU; raise if they cannot train one model.

    All ranks get the same result or error.
    """
    model = f"{backend.device_model}, matmul precision {settings.matmul_precision()}"
    facts = [backend.device_identity, model, settings.autotune()]
    identities, models, tuned = zip(*comm.exchange(group, facts), strict=True)
    if any(tuned):
        raise UnsupportedError(
            f"{name}: autotuning is not supported in a job of several processes, "
            "because ranks would choose different algorithms; call "
            "toolkit.config.set_autotune(False)"
        )
    if len(set(models)) > 1:
        raise ArgumentError(
            f"{name}: expected equal GPUs and libraries on all ranks; received "
            f"{group_by_rank(models)}"
        )
    are_shared = len(set(identities)) < len(identities)
    if are_shared and not _can_share():
        raise ArgumentError(
            f"{name}: expected one GPU for each rank; received "
            f"{group_by_rank(identities)}. Start at most one process for each GPU of a "
            "machine; TOOLKIT_SHARE_GPU=on permits ranks to share a GPU"
        )
    return are_shared


def _can_share() -> bool:
    setting = settings.environment("SHARE_GPU", "off")
    if setting not in ("on", "off"):
        raise ArgumentError(
            f"TOOLKIT_SHARE_GPU: expected 'on' or 'off'; received {setting!r}"
        )
    return setting == "on"
