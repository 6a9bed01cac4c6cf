"""Requirements of a GPU session, their sources, and the steps that run without them.

No interpreter is modified: packages from wheels or from an index go into a separate
folder of the session, which is first on the path of its steps.
"""

import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import gpu_machine


@dataclass(frozen=True)
class Need:
    """Requirement that steps import or load.

    Attributes:
        module: the module to import.
        requirement: the requirement for the package index.
        without: the steps that need it.
    """

    module: str
    requirement: str
    without: str


NEEDS = {
    need.module: need
    for need in (
        Need("numpy", "numpy>=2.1,<2.6", "nothing runs"),
        Need("h5py", "h5py>=3.11", "nothing runs"),
        Need("tqdm", "tqdm>=4.66", "nothing runs"),
        Need("ml_dtypes", "ml_dtypes>=0.5", "nothing runs"),
        Need("llvmlite", "llvmlite>=0.44", "nothing is compiled for the processor"),
        Need("cupy", "cupy-cuda{cuda}x[ctk]>=14.2,<15", "nothing runs on the GPU"),
        Need(
            "cudnn",
            "nvidia-cudnn-frontend>=1.28,<1.29",
            "convolutions run as products, slowly; attention is composed",
        ),
        Need("pytest", "pytest>=8.2", "no conformance tests"),
        Need("hypothesis", "hypothesis>=6.100", "no conformance tests"),
        Need("xdist", "pytest-xdist>=3.6", "tests run in one process"),
        Need("torch", "torch", "no comparison with torch"),
        Need("jax", "jax[cuda{cuda}]", "no comparison with JAX"),
        Need("keras", "keras", "no comparison with Keras"),
    )
}
# Peers are gigabytes, so only installed or supplied ones take part.
NEVER_FETCHED = ("torch", "jax")

# Sizes are of files for CPython 3.12 on x86-64, as of November 2026.
PLAN = """\
What a session needs, and the least to bring along where no package index can be
reached. Put wheels into a folder and name it by --wheels. What is installed is used
first; CUDA's libraries are found in the wheels that PyTorch and JAX bring, too.

installed there         bring (MiB)                       what runs
----------------------  --------------------------------  ------------------------
PyTorch and CuPy        nvidia-cudnn-frontend 1.28 (5.4)  everything
PyTorch, without CuPy   and cuda-pathfinder 1.9 (0.1),    everything
                        cupy-cuda13x 14.2 (66.2)
CuPy and a driver       nvidia-cuda-nvrtc 13.0 (86.0)     generated kernels alone:
                                                          `kernel` in step `first`
                        and nvidia-cublas 13.1 (403)      all but cuDNN's: slow
                                                          convolutions
                        and nvidia-cudnn-cu13 9.19 (349)  everything

Where 64 MiB are too few for that:
- of CuPy, cupy/cuda/thrust.*.so and jitify.*.so can stay behind (50.4 are left; sorting
  and a few more functions of CuPy's own are then missing), and of NVRTC all but
  libnvrtc.so.13 and libnvrtc-builtins.so.13.0 (43.0 are left);
- cuBLASLt and cuDNN cannot be made so small: one is a single file, and what the other
  loads depends on the graph. Without cuBLASLt the backend does not start.
numpy, h5py, tqdm, ml_dtypes and llvmlite are needed by everything, pytest and
hypothesis by the tests.
"""


def has(module, site=None):
    """Return whether a module is in this environment or the session's folder."""
    if site is not None and any(
        (Path(site) / f"{module}{end}").exists() for end in ("", ".py")
    ):
        return True
    try:
        return find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):  # of its parent package
        return False


def wheels_in(folder):
    """Return the wheels of a folder, by name."""
    return sorted(Path(folder).glob("*.whl")) if folder else []


def cuda_of(facts):
    """Return the major CUDA version of packages that a driver supports: 13, or 12."""
    driver = facts.get("driver")
    return 12 if isinstance(driver, int) and driver < 13000 else 13


def get(facts, site, wheels=None, seconds=240):
    """Install missing requirements into a folder, from wheels, then from an index.

    Args:
        facts: the result of `gpu_machine.describe_machine`; receives an entry for the
            index, if it is queried.
        site: the folder into which wheels are unpacked.
        wheels: a folder of wheels, or None.
        seconds: the time limit of an index.

    Returns:
        By module: "installed", "from wheels", "from the index", or "missing: ..." with
            the steps that need it; and under "words" the error of pip.
    """
    status = {name: "installed" for name in NEEDS if has(name)}
    words = []
    if files := wheels_in(wheels):
        options = ("--no-index", "--no-deps", "--no-compile")
        words += pip(site, seconds, *options, *map(str, files))
        status |= {n: "from wheels" for n in NEEDS if n not in status and has(n, site)}
    remaining = [n for n in NEEDS if n not in status and n not in NEVER_FETCHED]
    if remaining and "index" not in facts:
        facts["index"] = gpu_machine.index()
    if remaining and facts["index"] == "reachable":
        names = [NEEDS[n].requirement.format(cuda=cuda_of(facts)) for n in remaining]
        words += pip(site, seconds, *names)
        status |= {n: "from the index" for n in remaining if has(n, site)}
    for name, need in NEEDS.items():
        status.setdefault(name, f"missing: {need.without}")
    if words:
        status["words"] = "; ".join(words)
    return status


def pip(site, seconds, *arguments):
    """Install into a folder; return the error as a list of at most one line."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(site)]
    try:
        process = subprocess.run(
            [*command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"pip took longer than {seconds} s"]
    return [] if process.returncode == 0 else [process.stdout.strip()[-500:]]
