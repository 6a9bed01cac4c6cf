"""Show the installed packages, the compute devices, the caches and missing extras.

Examples:
  $ toolkit info
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

import toolkit
from toolkit import config
from toolkit.backends.registry import describe_backends, get_backend
from toolkit.console.messages import format_size
from toolkit.processes import clean_environment, find_program
from toolkit.release import DISTRIBUTION, requirement

# Extra -> (its module, its purpose).
EXTRAS = {
    "cuda12": ("cupy", "NVIDIA GPUs with CUDA 12"),
    "cuda13": ("cupy", "NVIDIA GPUs with CUDA 13"),
    "mkl": ("mkl", "faster matrix products on Intel processors"),
    "images": ("PIL", "image files"),
    "regex": ("re2", "regular expressions of tf.strings in linear time"),
    "plot": ("matplotlib", "pictures as PNG, PDF and JPEG; SVG needs no package"),
    "workers": ("cloudpickle", "worker processes for all functions"),
    "mpi": ("mpi4py", "distributed jobs over MPI: toolkit run --mpi"),
    "ray": ("ray", "toolkit.ray, training on clusters of Ray"),
    "serve": ("uvicorn", "toolkit.serving.App in an ASGI server"),
    "aot": ("ziglang", "native libraries for other processors"),
    "sklearn": ("sklearn", "toolkit.wrappers, estimators for scikit-learn"),
    "keras": ("keras", "Keras with this package as its backend: keras_toolkit"),
}
# Required package -> its module.
REQUIRED = {
    **{name: name for name in ("numpy", "h5py", "tqdm", "ml_dtypes", "llvmlite")},
    "pyzmq": "zmq",
    "google-crc32c": "google_crc32c",
}
_CUDA13_DRIVER = 580  # first driver version with CUDA 13


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add no options."""


def run(options: argparse.Namespace) -> int:
    """Print all sections; return 1 if a required package is missing."""
    sections = {
        "Versions": _version_rows(),
        "Machine": _machine_rows(),
        "Backends": _backend_rows(),
        "Caches": _cache_rows(),
        "Not installed": _missing_package_rows(),
    }
    for title, generator in sections.items():
        rows = list(generator)
        if rows:
            print(title)
            width = max(len(name) for name, _ in rows)
            for name, value in rows:
                print(f"  {name:{width}}  {value}")
    return int(any(find_spec(module) is None for module in REQUIRED.values()))


Rows = Iterator[tuple[str, object]]


def _version_rows() -> Rows:
    yield "toolkit", f"{toolkit.__version__}, in {Path(toolkit.__file__).parent}"
    yield "python", f"{platform.python_version()}, {sys.executable}"
    for name in REQUIRED:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            yield name, "missing"


def _machine_rows() -> Rows:
    yield "system", f"{platform.system()} {platform.release()}, {platform.machine()}"
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        yield "memory", format_size(pages * size)
    gpus = list_gpus()
    for gpu in gpus:
        yield "gpu", gpu
    if not gpus:
        yield "gpu", "none that nvidia-smi reports"


def list_gpus() -> list[str]:
    """Return the name, memory and driver of each NVIDIA GPU, from nvidia-smi."""
    command = find_program("nvidia-smi")
    if command is None:
        return []
    query = ["--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        result = subprocess.run(
            [command, *query],
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return result.stdout.splitlines() if result.returncode == 0 else []


def _backend_rows() -> Rows:
    for name, facts in describe_backends().items():
        description = ", ".join(f"{key} {value}" for key, value in facts.items())
        yield f"{name} (in use)" if name == config.backend() else name, description
    yield "devices", ", ".join(config.list_devices())


def _cache_rows() -> Rows:
    folder = get_backend(config.backend()).generator.cache_folder()
    yield "compiled code", _describe_folder(folder, "TOOLKIT_CACHE_DIR")
    yield (
        "downloads",
        _describe_folder(config.home(), "TOOLKIT_HOME", excluded=folder),
    )


def _describe_folder(
    path: Path | None, variable: str, excluded: Path | None = None
) -> str:
    """Return a cache folder and its size, without another cache in it."""
    if path is None:
        return f"off ({variable})"
    all_files = [file for file in path.rglob("*") if file.is_file()]
    files = [
        file for file in all_files if excluded is None or excluded not in file.parents
    ]
    size = sum(file.stat().st_size for file in files)
    return f"{format_size(size)} in {len(files)} files, {path} ({variable})"


def _missing_package_rows() -> Rows:
    for name, module in REQUIRED.items():
        if find_spec(module) is None:
            yield name, f'is required: pip install "{name}"'
    for extra, (module, purpose) in EXTRAS.items():
        if find_spec(module) is None and _is_relevant(extra):
            yield extra, f"{purpose}: pip install {_pip_requirements(extra)}"


def _is_relevant(extra: str) -> bool:
    """Return whether an extra is for this machine; CUDA extras depend on the driver."""
    if not extra.startswith("cuda"):
        return True
    drivers = [
        int(match[1])
        for gpu in list_gpus()
        if (match := re.search(r"(\d+)\.\S*$", gpu))
    ]
    cuda_extra = "cuda13" if min(drivers, default=0) >= _CUDA13_DRIVER else "cuda12"
    return bool(drivers) and extra == cuda_extra


def _pip_requirements(extra: str) -> str:
    """Return the pip requirements of an extra, from this package's metadata."""
    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return requirement(extra)
    pattern = re.compile(rf"""extra == ['"]{extra}['"]""")
    requirements = [
        line.partition(";")[0].strip() for line in lines if pattern.search(line)
    ]
    return " ".join(f'"{requirement}"' for requirement in requirements)
