"""Test that each rank of a machine sees one GPU."""

import pytest

from toolkit.comm.local_gpus import assign_free_gpu, assign_gpu

TORCHRUN = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    "variables, visible",
    [
        ({}, None),
        ({"TOOLKIT_LOCAL_RANK": "0", "TOOLKIT_PROCESSES": "1"}, None),
        ({"TOOLKIT_LOCAL_RANK": "3", "TOOLKIT_PROCESSES": "4"}, "3"),
        # The second of two hosts.
        (
            {
                "TOOLKIT_LOCAL_RANK": "1",
                "TOOLKIT_LOCAL_PROCESSES": "4",
                "TOOLKIT_PROCESSES": "8",
            },
            "1",
        ),
        (
            {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
            "1",
        ),
        ({"MPI_LOCALRANKID": "2", "MPI_LOCALNRANKS": "3"}, "2"),
        (TORCHRUN, "1"),
        ({"SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}, "1"),
        # The user or the scheduler has selected GPUs.
        ({**TORCHRUN, "CUDA_VISIBLE_DEVICES": "4, GPU-8f"}, "GPU-8f"),
        ({**TORCHRUN, "CUDA_VISIBLE_DEVICES": "6"}, "6"),
        ({**TORCHRUN, "CUDA_VISIBLE_DEVICES": ""}, ""),
        # More ranks than GPUs.
        ({"TOOLKIT_LOCAL_RANK": "0", "TOOLKIT_PROCESSES": "5"}, None),
    ],
)
def test_rank_sees_its_gpu(tmp_path, variables, visible):
    for number in range(4):
        (tmp_path / f"0000:{number}b:00.0").mkdir()
    environment = dict(variables)
    assign_gpu(environment, tmp_path)
    assert environment.get("CUDA_VISIBLE_DEVICES") == visible


@pytest.mark.parametrize(
    "used, rank, before, visible",
    [
        (["0", "2", "3"], "0", None, "1"),
        (["0", "3"], "1", None, "2"),
        (["4"], "0", "4,6", "6"),
        # The ranks of this machine use no GPU, or all of them.
        ([], "0", "4,6", "4"),
        (["4", "6"], "1", "4,6", "6"),
    ],
)
def test_replacement_sees_a_free_gpu(tmp_path, used, rank, before, visible):
    for number in range(4):
        (tmp_path / f"0000:{number}b:00.0").mkdir()
    environment = {
        "OMPI_COMM_WORLD_LOCAL_RANK": rank,
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    }
    if before is not None:
        environment["CUDA_VISIBLE_DEVICES"] = before
    assign_gpu(environment, tmp_path)
    assign_free_gpu(environment, used)
    assert environment["CUDA_VISIBLE_DEVICES"] == visible


def test_machine_without_a_driver_is_unchanged(tmp_path):
    environment = dict(TORCHRUN)
    assign_gpu(environment, tmp_path / "none")
    assert environment == TORCHRUN
