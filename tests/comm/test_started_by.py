"""Tests of the job of a process, as its launcher describes it."""

import pytest

from toolkit.comm import jobs, launchers
from toolkit.comm.sockets import rendezvous
from toolkit.errors import ArgumentError, LaunchError

VARIABLES = ("TOOLKIT_PROCESSES", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
VARIABLES += ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "TOOLKIT_TIMEOUT")
VARIABLES += ("SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES", "SLURM_JOB_ID")
VARIABLES += ("SLURM_STEP_ID", "PMIX_RANK", "TOOLKIT_JOB", "TOOLKIT_JOB_SECRET")
VARIABLES += ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
VARIABLES += ("JOB_COMPLETION_INDEX",)
SECRET = "a secret of a job, long"
# The variables of a rank under torchrun, Slurm and Kubernetes.
TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29400",
}
SLURM = {
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "localhost",
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "3",
}
KUBERNETES = {
    "JOB_COMPLETION_INDEX": "3",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "5000",
}


@pytest.fixture
def set_variables(monkeypatch):
    """Set the variables of a launcher, and no others."""

    def set_all(variables):
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_all


@pytest.mark.parametrize(
    "variables, expected",
    [
        ({}, None),
        ({"TOOLKIT_PROCESSES": "4"}, ("TOOLKIT_PROCESSES", 4)),
        ({"PMI_SIZE": "2"}, ("PMI_SIZE", 2)),
        (TORCHRUN, ("WORLD_SIZE", 2)),
        (KUBERNETES, ("WORLD_SIZE", 4)),
        # A script in the shell of an allocation is a single process.
        ({"SLURM_STEP_NUM_TASKS": "4"}, None),
        (
            {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "1"},
            ("SLURM_STEP_NUM_TASKS", 4),
        ),
        # Below mpirun the step has one task for each machine.
        (
            {
                "SLURM_STEP_NUM_TASKS": "1",
                "SLURM_PROCID": "0",
                "OMPI_COMM_WORLD_SIZE": "8",
            },
            ("OMPI_COMM_WORLD_SIZE", 8),
        ),
    ],
)
def test_launchers_declare_the_world_size(set_variables, variables, expected):
    set_variables(variables)
    assert jobs.launcher_variable() == expected


@pytest.mark.parametrize(
    "variables, expected",
    [
        ({"OMPI_COMM_WORLD_SIZE": "2"}, True),
        ({"PMI_SIZE": "2"}, True),
        ({"TOOLKIT_JOB": "folder", "OMPI_COMM_WORLD_SIZE": "2"}, False),
        (SLURM, False),
        (TORCHRUN, False),
    ],
)
def test_mpi_is_used_if_it_started_the_ranks(set_variables, variables, expected):
    set_variables(variables)
    assert launchers.uses_mpi() is expected


@pytest.mark.parametrize(
    "variables, rank, endpoint, root",
    [
        (TORCHRUN, 1, "tcp://127.0.0.1:*", "tcp://127.0.0.1:29401"),
        ({**TORCHRUN, "RANK": "0"}, 0, "tcp://127.0.0.1:29401", None),
        (SLURM, 1, "tcp://127.0.0.1:*", "tcp://127.0.0.1:20220"),
        ({**KUBERNETES, "MASTER_ADDR": "127.0.0.2"}, 3, "tcp://*:*", None),
    ],
)
def test_ranks_find_the_first_one(set_variables, variables, rank, endpoint, root):
    set_variables({**variables, "TOOLKIT_JOB_SECRET": SECRET})
    membership = rendezvous.find_membership(4)
    assert (membership.rank, membership.endpoint) == (rank, endpoint)
    assert membership.secret == SECRET.encode()
    assert root is None or membership.root == root


def test_several_machines_need_a_secret(set_variables):
    set_variables({**TORCHRUN, "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.2"})
    with pytest.raises(LaunchError, match="TOOLKIT_JOB_SECRET.*openssl rand"):
        rendezvous.find_membership(2)


def test_one_machine_has_the_secret_of_the_account(
    set_variables, monkeypatch, tmp_path
):
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))
    set_variables(TORCHRUN)
    secret = rendezvous.find_membership(2).secret
    assert rendezvous.find_membership(2).secret == secret and len(secret) == 64
    assert (tmp_path / "home" / "job_secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "nodes, host",
    [
        ("gpu03", "gpu03"),
        ("a,b", "a"),
        ("node[007-010,3],x", "node007"),
        ("n[1,4].cluster,m", "n1.cluster"),
    ],
)
def test_first_host_of_a_list_of_slurm(nodes, host):
    assert rendezvous.first_host(nodes) == host


def test_missing_variable_is_named(set_variables):
    set_variables({"RANK": "x", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"})
    with pytest.raises(LaunchError, match="RANK: expected a number; received 'x'"):
        rendezvous.find_membership(2)


def test_invalid_world_size_is_refused(monkeypatch):
    monkeypatch.setenv("TOOLKIT_PROCESSES", "many")
    with pytest.raises(LaunchError, match="TOOLKIT_PROCESSES.*'many'"):
        jobs.launcher_variable()


@pytest.mark.parametrize("value", ["0", "-1", "soon", "nan"])
def test_a_timeout_must_be_seconds(monkeypatch, value):
    monkeypatch.setenv("TOOLKIT_TIMEOUT", value)
    with pytest.raises(ArgumentError, match="TOOLKIT_TIMEOUT"):
        jobs.timeout()


def test_timeouts(monkeypatch):
    monkeypatch.delenv("TOOLKIT_TIMEOUT", raising=False)
    assert jobs.timeout() == jobs.TIMEOUT
    monkeypatch.setenv("TOOLKIT_TIMEOUT", "inf")
    assert jobs.timeout() == float("inf")
