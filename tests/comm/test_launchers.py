"""Tests of jobs that other launchers start, as their environment describes them."""

import os
import shutil
import socket
import subprocess
import sys

import pytest

from tests.comm import ranks

SCRIPT = """
import numpy as np
from toolkit import comm

group = comm.world()
assert comm.exchange(group, group.rank) == [0, 1, 2]
out = np.empty(4)
comm.all_reduce(group, [[np.ones(4)]], comm.Leaves.of_rows(3, 3), [out])
print("sum", out[0], group.size, flush=True)
"""
LOCAL = {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3"}
# Another name of this machine: as for several machines.
REMOTE = {"MASTER_ADDR": "127.0.0.2", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "1"}
LAUNCH = ("-m", "toolkit.launch")
SECRET = {"TOOLKIT_JOB_SECRET": "a secret for all processes"}
SLURM = {
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NODELIST": "localhost",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_ID": "0",
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(folder, rank_name, source=SCRIPT, options=LAUNCH, **variables):
    """Start three processes; return their exit codes and outputs."""
    (folder / "script.py").write_text(source)
    processes = []
    for rank in range(3):
        job = {rank_name: str(rank), "TOOLKIT_HOME": str(folder / "home"), **variables}
        process = subprocess.Popen(
            [sys.executable, *options, str(folder / "script.py")],
            env=ranks.environment_of(**job),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
    outputs = [process.communicate(timeout=60) for process in processes]
    return [process.returncode for process in processes], outputs


@pytest.mark.parametrize(
    "rank_name, variables",
    [
        ("RANK", LOCAL),
        ("RANK", {**REMOTE, **SECRET}),
        ("JOB_COMPLETION_INDEX", {**REMOTE, **SECRET}),
        ("SLURM_PROCID", SLURM),
    ],
    ids=["torchrun", "torchrun on machines", "Kubernetes", "Slurm"],
)
@pytest.mark.one_in(2)
def test_launchers_start_a_job(tmp_path, rank_name, variables):
    port = free_port()
    # Slurm has no port, but the number of the job.
    location = {"SLURM_JOB_ID": str(port)} if variables is SLURM else {}
    location = location or {"MASTER_PORT": str(port)}
    codes, outputs = start(tmp_path, rank_name, **variables, **location)
    assert codes == [0, 0, 0], outputs
    assert [output for output, _ in outputs] == ["sum 3.0 3\n"] * 3


def test_script_without_the_module_is_a_rank_too(tmp_path):
    variables = {**LOCAL, "MASTER_PORT": str(free_port())}
    codes, outputs = start(tmp_path, "RANK", options=(), **variables)
    assert codes == [0, 0, 0], outputs
    assert [output for output, _ in outputs] == ["sum 3.0 3\n"] * 3


def test_several_machines_without_a_secret_are_an_error(tmp_path):
    codes, outputs = start(tmp_path, "RANK", **REMOTE, MASTER_PORT=str(free_port()))
    assert codes == [1, 1, 1]
    errors = "".join(errors for _, errors in outputs)
    assert errors.count("TOOLKIT_JOB_SECRET: expected the secret") == 1
    assert "openssl rand -hex 32" in errors


def test_failing_rank_ends_the_other_ranks(tmp_path):
    source = (
        "from toolkit import comm\nif comm.world().rank == 1: raise KeyError('x')\n"
    )
    source += "comm.world().barrier()"
    variables = {**LOCAL, "MASTER_PORT": str(free_port())}
    codes, outputs = start(tmp_path, "RANK", source, **variables)
    assert codes == [1, 1, 1]
    assert "".join(errors for _, errors in outputs).count("Traceback") == 1


@pytest.mark.skipif(shutil.which("torchrun") is None, reason="torch is not installed")
def test_torchrun(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = ["torchrun", "--standalone", "--nproc-per-node", "3"]
    command += ["-m", "toolkit.launch", str(tmp_path / "script.py")]
    variables = {"TOOLKIT_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    process = ranks.start(command, 120, **variables)
    assert process.out.count("sum 3.0 3") == 3, process.errors
