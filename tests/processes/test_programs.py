"""Test that programs, libraries and packages are not searched in the current folder."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.processes.hostile import hostile, start, variables, what_ran
from toolkit.processes import (
    clean_environment,
    find_package_folders,
    find_program,
    python_command,
)

__all__ = ["hostile"]  # a fixture

posix = pytest.mark.skipif(os.name == "nt", reason="programs have endings there")


@posix
@pytest.mark.parametrize("path", ["", ".", ":", "relative", "./relative::."])
def test_relative_entries_of_PATH_are_skipped(path, hostile, monkeypatch):
    monkeypatch.chdir(hostile)
    monkeypatch.setenv("PATH", path)
    assert find_program("mpirun") is None
    monkeypatch.setenv("PATH", f"{path}:{hostile / 'relative'}")
    assert find_program("mpirun") == str(hostile / "relative" / "mpirun")


@posix
def test_path_of_the_user_is_kept(hostile, monkeypatch):
    monkeypatch.chdir(hostile)
    assert find_program("./cc") == str(hostile / "cc")
    assert find_program("./no-such") is None
    (hostile / "cc").chmod(0o644)
    assert find_program("./cc") is None


def test_environment_of_children(monkeypatch):
    for name, value in variables().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", "x")
    environment = clean_environment(MORE="1")
    assert environment["MORE"] == "1" and "PYTHONPATH" not in environment
    assert all(os.path.isabs(entry) for entry in environment["PATH"].split(os.pathsep))
    assert "LD_LIBRARY_PATH" not in environment and "LIBRARY_PATH" not in environment


def test_packages_of_the_current_folder_are_not_found(tmp_path, monkeypatch):
    (tmp_path / "nvidia" / "cu13" / "lib").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", ".", *sys.path])
    assert tmp_path / "nvidia" not in find_package_folders("nvidia")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert find_package_folders("nvidia") == [tmp_path / "nvidia"]
    assert find_package_folders("no_such_package") == []


LIBRARY = """
#include <fcntl.h>
__attribute__((constructor)) void begin(void) { creat("ran-library", 0600); }
"""


@posix
@pytest.mark.skipif(not shutil.which("cc"), reason="there is no compiler")
def test_libraries_of_the_current_folder_are_not_loaded(tmp_path):
    (tmp_path / "a.c").write_text(LIBRARY)
    names = ["libnvrtc.so", "libnccl.so.2", "libcublasLt.so.13", "libcudnn.so.9"]
    make = ["cc", "-shared", "-fPIC", "-o", names[0], "a.c"]
    subprocess.run(make, cwd=tmp_path, check=True)
    for name in names[1:]:
        shutil.copy(tmp_path / names[0], tmp_path / name)
    code = (
        "from toolkit.backends.cupy import libraries, nvrtc\n"
        "from toolkit.comm import nccl_library\n"
        "from toolkit.errors import BackendUnavailable\n"
        "from toolkit.processes import load_library\n"
        "nvrtc.library()\n"
        "for load in (nccl_library.library, lambda: libraries.load('cublasLt'),"
        " lambda: libraries.load('cudnn')):\n"
        "    try:\n        load()\n"
        "    except BackendUnavailable:\n        pass\n"
        "load_library('libm.so.6')\n"
    )
    process = start([sys.executable, "-P", "-c", code], tmp_path)
    assert process.returncode == 0, process.stderr
    assert what_ran(tmp_path) == []


def test_options_of_the_interpreter_are_inherited():
    code = (
        "from toolkit.processes import python_command\n"
        "print(*python_command('toolkit.launch:main')[1:5])"
    )
    process = start([sys.executable, "-P", "-E", "-s", "-B", "-c", code], "/")
    assert process.stdout.split() == ["-P", "-E", "-s", "-B"], process.stderr


def test_process_without_an_interpreter(monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(NotImplementedError, match="sys.executable"):
        python_command("toolkit.launch:main")
