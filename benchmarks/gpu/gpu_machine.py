"""Description of a GPU machine for a session, by the standard library only.

A missing component is not an error: its entry is empty, or contains the reason.
"""

import ctypes
import glob
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from gpu_rehearsal import is_on

# Distributions whose versions are recorded, for every interpreter.
DISTRIBUTIONS = (
    *("numpy", "h5py", "tqdm", "ml_dtypes", "llvmlite"),
    *("pytest", "pytest-xdist", "hypothesis", "cloudpickle"),
    *("cupy-cuda13x", "cupy-cuda12x", "cuda-pathfinder", "nvidia-cudnn-frontend"),
    *("nvidia-cudnn-cu13", "nvidia-cudnn-cu12", "nvidia-cublas", "nvidia-cublas-cu12"),
    *("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "nvidia-nccl-cu13"),
    *("torch", "triton", "jax", "jaxlib", "keras", "tensorflow"),
)
# Programs that are useful if they are on PATH.
PROGRAMS = ("nvidia-smi", "nvcc", "compute-sanitizer", "ncu", "g++", "mpirun")
# CUDA libraries by their file names.
LIBRARIES = ("cublasLt", "cudnn", "nvrtc", "cudart", "nccl", "cuda.so")
PYTHONS = (
    *("/usr/bin/python3", "/usr/local/bin/python3", "/opt/*/bin/python3"),
    *("/opt/*/.venv/bin/python3", "/opt/*/envs/*/bin/python3"),
)
SMI = "name,driver_version,memory.total,compute_cap,clocks.max.sm,power.limit"
# The time limit of one query, in seconds.
PATIENCE = 10


def describe_machine(folder):
    """Return the complete description, as plain data.

    Args:
        folder: the folder whose free disk space is measured.
    """
    questions = {
        "system": system,
        "disk": partial(disk, folder),
        "gpu": gpus,
        "driver": driver,
        "programs": programs,
        "libraries": libraries,
        "pythons": pythons,
    }
    return {name: _answer(ask) for name, ask in questions.items()}


def _answer(ask):
    try:
        return ask()
    except Exception as error:  # one query of many: the other queries continue
        return f"{type(error).__name__}: {error}"


def run(*command, seconds=PATIENCE):
    """Return the output of a program, or the reason for its failure."""
    try:
        process = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    return process.stdout.strip()


def system():
    """Return the CPU, the memory, and the operating system."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    memory = Path("/proc/meminfo").read_text("utf-8").splitlines()[:3]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": [" ".join(line.split()) for line in memory],
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        "interpreter": sys.executable,
    }


def disk(folder):
    """Return the free bytes of a folder and of the folder for temporary files."""
    folders = {str(folder), tempfile.gettempdir()}
    return {path: shutil.disk_usage(path).free for path in sorted(folders)}


def gpus():
    """Return nvidia-smi's description of each GPU."""
    if shutil.which("nvidia-smi") is None:
        return "no nvidia-smi"
    rows = run("nvidia-smi", f"--query-gpu={SMI}", "--format=csv,noheader")
    return {"rows": rows.splitlines(), "all": run("nvidia-smi")}


def driver():
    """Return the newest CUDA version of the driver, for example 13000.

    Without one, return the reason.
    """
    library, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    status = library.cuDriverGetVersion(ctypes.byref(version))
    return version.value if status == 0 else f"cuDriverGetVersion: {status}"


def programs():
    """Return the paths of the programs on PATH or in CUDA's own folder."""
    path = f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin"
    paths = {name: shutil.which(name, path=path) for name in PROGRAMS}
    return {name: where for name, where in paths.items() if where}


def libraries():
    """Return the CUDA library files of the system or a toolkit."""
    lines = run("ldconfig", "-p").splitlines()
    paths = [line.partition("=>")[2].strip() for line in lines]
    paths += glob.glob("/usr/local/cuda*/lib64/lib*.so.*")
    prefixes = [f"lib{name}" for name in LIBRARIES]
    matches = (path for path in paths if Path(path).name.startswith(tuple(prefixes)))
    return sorted(set(matches))


def pythons():
    """Return the versions in each interpreter, by its path."""
    names = [
        sys.executable,
        *(p for p in map(shutil.which, ("python3", "python")) if p),
    ]
    for pattern in PYTHONS:
        names += sorted(glob.glob(pattern))
    # Not resolved: the links of a virtual environment identify it.
    return {name: ask_python(name) for name in dict.fromkeys(names)}


def ask_python(interpreter):
    """Return the result of `describe_python` in another interpreter."""
    text = run(interpreter, __file__)
    try:
        return json.loads(text.splitlines()[-1])
    except (IndexError, ValueError):
        return text[-300:]


def describe_python():
    """Return the versions of this interpreter, its packages, and CUDA files."""
    versions = {}
    for name in DISTRIBUTIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "version": platform.python_version(),
        "distributions": versions,
        "files": wheel_files(),
    }


def wheel_files():
    """Return the libraries in wheels of the `nvidia` namespace, with their bytes."""
    spec = find_spec("nvidia")
    roots = map(Path, (spec.submodule_search_locations or ()) if spec else ())
    files = (f for root in roots for f in sorted(root.glob("*/lib/lib*.so.*")))
    prefixes = tuple(f"lib{name}" for name in LIBRARIES)
    return {
        str(path): path.stat().st_size
        for path in files
        if path.name.startswith(prefixes)
    }


def index():
    """Return "reachable" if pip can fetch a small package, else the error."""
    if is_on():
        return "not asked in a rehearsal"
    with tempfile.TemporaryDirectory() as folder:
        options = "--no-deps --no-input --retries 0 --timeout 5 -q".split()
        words = run(
            *(sys.executable, "-m", "pip", "download", *options),
            *("-d", folder, "cuda-pathfinder"),
            seconds=2 * PATIENCE,
        )
        if any(Path(folder).iterdir()):
            return "reachable"
    return f"not reachable: {words[-300:]}"


if __name__ == "__main__":
    print(json.dumps(describe_python()))
