"""Programs, libraries and packages by name, never from the current folder.

Empty and relative entries of a search path mean the current folder. They are common by
accident, as in `PATH=$PATH:`, so each search skips them.
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

# Variables that are lists of folders in which compilers, loaders and launchers search.
_SEARCH_PATHS = (
    *("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"),
    *("LIBRARY_PATH", "COMPILER_PATH", "CPATH", "C_INCLUDE_PATH"),
)
# The loader's own folders, for a system whose search path names the current folder.
_LIBRARY_FOLDERS = ("/usr/local/lib", "/lib64", "/usr/lib64", "/lib", "/usr/lib")


def absolute_entries(value: str) -> list[str]:
    """Return the absolute folders of a search path, in their order."""
    return [entry for entry in value.split(os.pathsep) if os.path.isabs(entry)]


def clean_environment(**variables: str) -> dict[str, str]:
    """Return the environment for a child process.

    It has no PYTHONPATH, because `python_command` gives the folders of modules, and no
    relative folders in the search paths of programs and libraries.

    Args:
        **variables: variables to add.
    """
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    for name in _SEARCH_PATHS:
        if name in environment:
            environment[name] = os.pathsep.join(absolute_entries(environment[name]))
            if not environment[name]:
                del environment[name]
    return environment | variables


def find_program(name: str) -> str | None:
    """Return the path of a program, or None if there is none.

    Args:
        name: a name to look up in the absolute folders of PATH, or a path with a
            folder, which the user chose.
    """
    if os.path.dirname(name):
        return next(_program_paths(os.path.abspath(name)), None)
    for folder in absolute_entries(os.environ.get("PATH", os.defpath)):
        for path in _program_paths(os.path.join(folder, name)):
            return path
    return None


def set_processor_name() -> None:
    """Set the processor name in `platform`, as `uname` reports it.

    Otherwise `platform` runs `uname` when a library requests the name. If PATH has an
    empty or relative entry, this searches the current folder for the program.
    """
    entries = os.environ.get("PATH", "").split(os.pathsep)
    if sys.platform == "win32" or all(map(os.path.isabs, entries)):
        return
    uname_fields = vars(platform.uname())
    program = find_program("uname")
    if "processor" not in uname_fields and program is not None:
        result = subprocess.run(
            [program, "-p"], env=clean_environment(), capture_output=True, text=True
        )
        name = result.stdout.strip()
        uname_fields["processor"] = "" if name == "unknown" else name


def _program_paths(path: str) -> Iterator[str]:
    """Yield the path of a program, with the endings of programs on Windows."""
    suffixes = [""]
    if sys.platform == "win32":
        suffixes += os.environ.get("PATHEXT", ".EXE").split(os.pathsep)
    for suffix in suffixes:
        if os.path.isfile(path + suffix) and os.access(path + suffix, os.X_OK):
            yield path + suffix


def find_package_folders(name: str) -> list[Path]:
    """Return the folders of an installed package, without importing it.

    Args:
        name: of a top-level package. A namespace package may have several folders.
    """
    folders = [entry for entry in sys.path if os.path.isabs(entry)]
    spec = PathFinder.find_spec(name, folders)
    locations = spec.submodule_search_locations if spec is not None else None
    return [Path(folder) for folder in locations or ()]


def load_library(name: str, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """Load a shared library.

    Args:
        name: an absolute path, or a name that the system's loader looks up.
        mode: as for `ctypes.CDLL`.

    Raises:
        OSError: if there is no such library.
    """
    search_path = os.environ.get("LD_LIBRARY_PATH", "")
    has_relative_entry = len(absolute_entries(search_path)) < len(
        search_path.split(os.pathsep)
    )
    if os.path.isabs(name) or not (search_path and has_relative_entry):
        return ctypes.CDLL(name, mode=mode)
    # The loader would look in the current folder, so its search is done before.
    multiarch = getattr(sys.implementation, "_multiarch", "")
    folders = [
        *absolute_entries(search_path),
        f"/usr/lib/{multiarch}",
        *_LIBRARY_FOLDERS,
    ]
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return ctypes.CDLL(path, mode=mode)
    raise OSError(f"{name}: not in {os.pathsep.join(folders)}")
