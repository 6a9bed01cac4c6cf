"""GPUs of the ranks of one machine: each rank sees one."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, MutableMapping
from pathlib import Path

# Variables of launchers for the rank on this machine, and the number of ranks on it:
# toolkit, Open MPI, MPICH, torchrun, Slurm.
_VARIABLES = (
    ("TOOLKIT_LOCAL_RANK", "TOOLKIT_LOCAL_PROCESSES"),
    ("TOOLKIT_LOCAL_RANK", "TOOLKIT_PROCESSES"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
)
_VISIBLE = "CUDA_VISIBLE_DEVICES"
# The folder in which NVIDIA's driver for Linux lists its devices.
DRIVER_FOLDER = Path("/proc/driver/nvidia/gpus")
# The GPUs of this process before `assign_gpu` selected one.
_all_names: list[str] = []


def assign_gpu(
    environment: MutableMapping[str, str], folder: Path = DRIVER_FOLDER
) -> None:
    """Make one GPU visible to this rank, by its rank on this machine.

    It sets CUDA_VISIBLE_DEVICES, which CUDA reads once, when it is loaded. It changes
    nothing if the launcher has selected fewer GPUs than ranks, as Slurm does for each
    task, or if the machine has fewer GPUs than ranks.

    Args:
        environment: the environment variables of the process.
        folder: the folder in which the driver lists its devices.
    """
    rank, count = _read_local_rank(environment)
    names = _all_names[:] = _visible_names(environment, folder)
    if 1 < count <= len(names) and rank < count:
        environment[_VISIBLE] = names[rank]


def assign_free_gpu(
    environment: MutableMapping[str, str],
    used: Collection[str],
) -> None:
    """Make a GPU visible to the replacement of a lost rank that no other rank uses.

    The process has called `assign_gpu`.

    Args:
        environment: the environment variables of the process.
        used: the GPUs of the other ranks on this machine.
    """
    rank, _ = _read_local_rank(environment)  # among the replacements
    free = [name for name in _all_names if name not in used]
    if used and rank < len(free):
        environment[_VISIBLE] = free[rank]


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
    """Return the GPUs that the environment of a rank makes visible."""
    visible = environment.get(_VISIBLE, "")
    return [name.strip() for name in visible.split(",") if name.strip()]


def _visible_names(environment: Mapping[str, str], folder: Path) -> list[str]:
    if _VISIBLE in environment:
        return visible_gpus(environment)
    return [str(number) for number, _ in enumerate(_list_devices(folder))]


def _read_local_rank(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return the rank on this machine, and the number of ranks on it."""
    for rank_name, count_name in _VARIABLES:
        rank = environment.get(rank_name, "")
        # In Slurm, "4(x2)" means 4 on each of 2 machines.
        count = re.match(r"[1-9]\d*", environment.get(count_name, ""))
        if rank.isdecimal() and count:
            return int(rank), int(count[0])
    return 0, 1


def _list_devices(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []
