"""What is set for the whole process, and the one place that reads the environment.

`toolkit.config` shows it to users, with the devices and the dtype policy.

Variables: TOOLKIT_HOME (or KERAS_HOME) the cache folder, TOOLKIT_FLOATX,
TOOLKIT_BACKEND, TOOLKIT_DEVICE, TOOLKIT_BLAS, TOOLKIT_NUM_THREADS,
TOOLKIT_MATMUL_PRECISION ("highest", "strict" or "tf32"),
TOOLKIT_PROCESSOR ("x86-64-v2", "x86-64-v3", ...: generate code for no better one),
TOOLKIT_CACHE_DIR (compiled kernels; "off" for none),
TOOLKIT_AUTOTUNE ("on" to time what libraries on a GPU propose),
TOOLKIT_MAX_EPOCHS and TOOLKIT_MAX_STEPS_PER_EPOCH,
TOOLKIT_TRACEBACK_FILTERING ("off" for whole tracebacks); of jobs, see `toolkit run`:
TOOLKIT_CLUSTER_TOKEN (the secret of the tasks of a cluster),
TOOLKIT_PROCESSES, TOOLKIT_TIMEOUT in seconds, TOOLKIT_ELASTIC ("1" to go on without
lost processes), TOOLKIT_REPLACE ("1" to start others for them), TOOLKIT_SNAPSHOTS (the
folder that each `fit` saves to and goes on from, of a job alone), TOOLKIT_OUTCOME (the
file that tells the launcher how a job has ended), TOOLKIT_OVERLAP ("on" or "off":
exchange beside what is computed; if not set, over a network only), TOOLKIT_LINK
("0.001,100e6": be as slow as a link of so many seconds and bytes a second, to see what
it would do).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from toolkit.errors import ArgumentError, unknown_choice
from toolkit.machine import available_cores

VERSION = "0.1.0"  # of the package

_FLOATX = ("bfloat16", "float16", "float32", "float64")
_DATA_FORMATS = ("channels_first", "channels_last")
_PRECISIONS = ("highest", "strict", "tf32")
# The backend that the devices "gpu:0" and so on belong to.
GPU_BACKEND = "cupy"
# What computes constants while a program for any backend is compiled.
HOST_BACKEND = "numpy"


def environment(name: str, default: str | None = None) -> str | None:
    """The environment variable TOOLKIT_<name>, or `default`."""
    return os.environ.get(f"TOOLKIT_{name}", default)


def timeout(default: float) -> float:
    """TOOLKIT_TIMEOUT, in seconds above 0, or `default`."""
    given = environment("TIMEOUT")
    try:
        seconds = default if given is None else float(given)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ArgumentError(
            f"TOOLKIT_TIMEOUT: expected seconds, above 0; received {given!r}"
        )
    return seconds


def home() -> Path:
    """The folder for downloads and caches; it is created by whoever writes there."""
    chosen = environment("HOME") or os.environ.get("KERAS_HOME")
    return Path(chosen).expanduser() if chosen else Path.home() / ".toolkit"


def keras_home() -> Path | None:
    """Return the folder in which Keras keeps downloads, unless `home()` is the same.

    Verified files are read from it. Nothing is written there.
    """
    folder = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()
    return None if folder == home() else folder


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

_placements: dict[tuple[Any, ...], int] = {}


def floatx() -> str:
    """The default floating dtype, "float32" unless set.

    Example:
        >>> import toolkit
        >>> toolkit.config.floatx()
        'float32'
    """
    return values["floatx"]


def set_floatx(value: str) -> None:
    """Set the default floating dtype: bfloat16, float16, float32 or float64."""
    if value not in _FLOATX:
        raise unknown_choice("set_floatx", value, _FLOATX)
    values["floatx"] = value


def epsilon() -> float:
    """The small number that keeps logarithms and quotients finite, 1e-7 unless set."""
    return values["epsilon"]


def set_epsilon(value: float) -> None:
    """Set the small number that keeps logarithms and quotients finite."""
    if not value > 0:
        raise ArgumentError(f"set_epsilon: expected a value > 0; received {value!r}")
    values["epsilon"] = float(value)


def image_data_format() -> str:
    """The default layout of images: "channels_last" unless set."""
    return values["image_data_format"]


def set_image_data_format(data_format: str) -> None:
    """Set the default layout of images: "channels_last" or "channels_first"."""
    values["image_data_format"] = standardize_data_format(data_format)


def standardize_data_format(data_format: str | None) -> str:
    """`data_format` in lower case, checked; None is the global default."""
    if data_format is None:
        return image_data_format()
    chosen = str(data_format).lower()
    if chosen not in _DATA_FORMATS:
        raise unknown_choice("data_format", data_format, _DATA_FORMATS)
    return chosen


def enable_flash_attention() -> None:
    """Let attention be computed block by block, as it is unless disabled.

    It is a preference: compiled functions compute attention in blocks where they can,
    and eager calls as a whole.
    """
    values["flash_attention"] = None


def disable_flash_attention() -> None:
    """Compute attention as a whole; results differ in their last bits."""
    values["flash_attention"] = False


def is_flash_attention_enabled() -> bool | None:
    """None if attention may be computed block by block, False if that was disabled."""
    return values["flash_attention"]


def matmul_precision() -> str:
    """How products and convolutions of float32 are computed, "strict" unless set."""
    chosen: str = values["matmul_precision"]
    if chosen not in _PRECISIONS:
        raise unknown_choice("TOOLKIT_MATMUL_PRECISION", chosen, _PRECISIONS)
    return chosen


def set_matmul_precision(precision: str) -> None:
    """Choose how products and convolutions of float32 are computed.

    Args:
        precision: "strict" for float32 throughout; "highest" to also compute every
            convolution as the sum that defines it, not by Winograd's transforms, whose
            errors are up to 3 times as large and reach 3 pixels out of a window; or
            "tf32" to let a GPU's tensor cores round factors to 10 bits.
    """
    if precision not in _PRECISIONS:
        raise unknown_choice("set_matmul_precision", precision, _PRECISIONS)
    values["matmul_precision"] = precision
    place()


def autotune() -> bool:
    """Whether plans of libraries on a GPU are timed, False unless set."""
    return values["autotune"]


def set_autotune(enabled: bool) -> None:
    """Choose whether to time what libraries on a GPU propose, and take the fastest.

    cuDNN and cuBLASLt know several ways to compute a convolution, an attention or a
    product, and name first what they expect to be fast. With autotuning they are timed
    before the first step; the choice is kept on disk, so that later processes with
    autotuning compute the same bits. It changes nothing on a processor.

    Args:
        enabled: False unless set, here or by TOOLKIT_AUTOTUNE=on.

    Example:
        >>> import toolkit
        >>> toolkit.config.set_autotune(True)
        >>> toolkit.config.autotune()
        True
        >>> toolkit.config.set_autotune(False)
    """
    if not isinstance(enabled, bool):
        raise ArgumentError(
            f"set_autotune: expected True or False; received {enabled!r}"
        )
    values["autotune"] = enabled
    place()


def enable_interactive_logging() -> None:
    """Print messages and progress on standard output, as is done unless disabled."""
    values["interactive_logging"] = True


def disable_interactive_logging() -> None:
    """Send messages and progress to the logger "toolkit", lines for each epoch."""
    values["interactive_logging"] = False


def is_interactive_logging_enabled() -> bool:
    """Whether messages and progress go to standard output."""
    return values["interactive_logging"]


def enable_traceback_filtering() -> None:
    """Leave the package's own frames out of tracebacks, as is done unless disabled.

    What remains of an error inside of a layer or a model is the user's own code.
    """
    values["traceback_filtering"] = True


def disable_traceback_filtering() -> None:
    """Show tracebacks whole, with the package's own frames."""
    values["traceback_filtering"] = False


def is_traceback_filtering_enabled() -> bool:
    """Whether tracebacks leave out the package's own frames."""
    return values["traceback_filtering"]


def max_epochs() -> int | None:
    """The limit on the epochs of any `fit`, None unless set."""
    return _limit("max_epochs")


def set_max_epochs(max_epochs: int | None) -> None:
    """Limit the epochs of any `fit`, to try a script quickly; None for no limit.

    TOOLKIT_MAX_EPOCHS does the same.
    """
    values["max_epochs"] = _checked_limit("set_max_epochs", max_epochs)


def max_steps_per_epoch() -> int | None:
    """The limit on the steps of an epoch, None unless set."""
    return _limit("max_steps_per_epoch")


def set_max_steps_per_epoch(max_steps_per_epoch: int | None) -> None:
    """Limit the steps of an epoch, of `evaluate` and `predict` too; None for no limit.

    TOOLKIT_MAX_STEPS_PER_EPOCH does the same.
    """
    values["max_steps_per_epoch"] = _checked_limit(
        "set_max_steps_per_epoch", max_steps_per_epoch
    )


def _limit(name: str) -> int | None:
    if name not in values:
        given = environment(name.upper())
        number = int(given) if given and given.isdecimal() else given
        values[name] = _checked_limit(f"TOOLKIT_{name.upper()}", number)
    return values[name]


def _checked_limit(what: str, limit: Any) -> int | None:
    if limit is not None and not (type(limit) is int and limit >= 1):
        raise ArgumentError(f"{what}: expected a number >= 1; received {limit!r}")
    return limit


def backend() -> str:
    """The name of the backend that computes, "numpy" unless TOOLKIT_BACKEND is set."""
    return values["backend"]


def backend_of(device: str | None) -> str:
    """The name of the backend that computes on a device; None: on the default one."""
    name = device or values["device"]
    if name is None or not name.lower().startswith("gpu"):
        return values["backend"]
    number = name.partition(":")[2]
    return GPU_BACKEND if number in ("", "0") else f"{GPU_BACKEND}:{number}"


def placement() -> int:
    """A number for the settings that decide what a function is compiled to."""
    return values["placement"]


def place() -> None:
    """Find the number of the settings; equal ones have the same."""
    s = values
    key = s["backend"], s["device"], s["matmul_precision"], s["autotune"]
    s["placement"] = _placements.setdefault(key, len(_placements))


def num_threads() -> int:
    """How many threads compute: the cores that this process may use, unless set.

    Those that it is bound to, and that control groups allow it, count.

    Example:
        >>> import toolkit
        >>> toolkit.config.set_num_threads(1)
        >>> toolkit.config.num_threads()
        1
        >>> toolkit.config.set_num_threads(None)
    """
    if values["threads"] is None:
        values["threads"] = default_num_threads()
    return values["threads"]


def default_num_threads() -> int:
    """What TOOLKIT_NUM_THREADS says; without it, every core that may be used."""
    chosen = environment("NUM_THREADS")
    if chosen is None:
        return available_cores()
    if not (chosen.isdecimal() and int(chosen) > 0):
        raise ArgumentError(
            f"TOOLKIT_NUM_THREADS: expected a number of threads; received {chosen!r}"
        )
    return int(chosen)


def logical_devices(kind: str) -> int:
    """How many devices of a kind there are, 1 unless set."""
    return int(values["logical_devices"].get(kind, 0))


place()
if environment("FLOATX"):
    set_floatx(environment("FLOATX") or "")
