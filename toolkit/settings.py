"""What `toolkit.config` sets, and the one place that reads the environment.

Variables: TOOLKIT_HOME (or KERAS_HOME) the cache folder, TOOLKIT_FLOATX,
TOOLKIT_BACKEND, TOOLKIT_DEVICE, TOOLKIT_BLAS, TOOLKIT_NUM_THREADS,
TOOLKIT_MATMUL_PRECISION ("highest", "strict" or "tf32"),
TOOLKIT_CACHE_DIR (compiled kernels; "off" for none),
TOOLKIT_AUTOTUNE ("on" to time what libraries on a GPU propose),
TOOLKIT_MAX_EPOCHS and TOOLKIT_MAX_STEPS_PER_EPOCH,
TOOLKIT_TRACEBACK_FILTERING ("off" for whole tracebacks).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def environment(name: str, default: str | None = None) -> str | None:
    """The environment variable TOOLKIT_<name>, or `default`."""
    return os.environ.get(f"TOOLKIT_{name}", default)


def home() -> Path:
    """The folder for downloads and caches; it is created by whoever writes there."""
    chosen = environment("HOME") or os.environ.get("KERAS_HOME")
    return Path(chosen).expanduser() if chosen else Path.home() / ".toolkit"


values: dict[str, Any] = {
    "floatx": "float32",
    "epsilon": 1e-7,
    "image_data_format": "channels_last",
    "backend": environment("BACKEND", "numpy"),
    "device": environment("DEVICE"),
    "flash_attention": None,
    "matmul_precision": environment("MATMUL_PRECISION", "strict"),
    "autotune": environment("AUTOTUNE") == "on",
    "threads": None,
    "logical_devices": {"cpu": 1},
    "interactive_logging": True,
    "traceback_filtering": environment("TRACEBACK_FILTERING") != "off",
}
