"""Settings of the process; only this module reads the environment.

`toolkit.config` is the public interface, together with the devices and the dtype
policy.

Variables: TOOLKIT_HOME (or KERAS_HOME) the cache folder, TOOLKIT_FLOATX,
TOOLKIT_BACKEND, TOOLKIT_DEVICE, TOOLKIT_BLAS, TOOLKIT_NUM_THREADS,
TOOLKIT_MATMUL_PRECISION ("highest", "strict" or "tf32"), TOOLKIT_PROCESSOR
("x86-64-v2", "x86-64-v3", ...: the highest level to generate code for),
TOOLKIT_CACHE_DIR (compiled kernels; "off" for none), TOOLKIT_AUTOTUNE ("on" to time the
candidates of GPU libraries), TOOLKIT_MAX_EPOCHS and TOOLKIT_MAX_STEPS_PER_EPOCH,
TOOLKIT_TRACEBACK_FILTERING ("off" for complete tracebacks). For jobs, see `toolkit
run`: TOOLKIT_CLUSTER_TOKEN (the secret of the tasks of a cluster), TOOLKIT_PROCESSES,
TOOLKIT_JOB_SECRET (the secret of a job on several machines), TOOLKIT_JOB,
TOOLKIT_JOB_ADDRESS, TOOLKIT_RANK, TOOLKIT_LOCAL_RANK, TOOLKIT_LOCAL_PROCESSES,
TOOLKIT_LAUNCHER and TOOLKIT_REPLACEMENT (of a rank of `toolkit run` and of other
launchers of toolkit),
TOOLKIT_TIMEOUT in seconds, TOOLKIT_ELASTIC ("1" to continue without lost processes),
TOOLKIT_REPLACE ("1" to start replacements), TOOLKIT_SNAPSHOTS (the folder that each
`fit` of a job saves to and resumes from), TOOLKIT_OUTCOME (the file that reports to the
launcher how a job ended), TOOLKIT_OVERLAP ("on" or "off": communicate in parallel with
computation; if not set, only over a network), TOOLKIT_LINK ("0.001,100e6": simulate a
link with this latency in seconds and this bandwidth in bytes per second).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolkit.errors import ArgumentError, unknown_choice
from toolkit.machine import available_cores

_FLOATX = ("bfloat16", "float16", "float32", "float64")
_DATA_FORMATS = ("channels_first", "channels_last")
_PRECISIONS = ("highest", "strict", "tf32")
# The backend of the devices "gpu:0", "gpu:1", ...
GPU_BACKEND = "cupy"
# The backend for constant folding, for programs of any backend.
HOST_BACKEND = "numpy"


def environment(name: str, default: str | None = None) -> str | None:
    """Return the environment variable `TOOLKIT_<name>`, or `default`.

    Args:
        name: the name after `TOOLKIT_`.
        default: the result for a variable that is not set.

    Returns:
        The value of the variable, or `default`.

    Example:
        >>> import toolkit
        >>> toolkit.config.environment("NO_SUCH_SETTING", "none")
        'none'
    """
    return os.environ.get(f"TOOLKIT_{name}", default)


def timeout(default: float) -> float:
    """Return TOOLKIT_TIMEOUT, in seconds above 0, or `default`."""
    text = environment("TIMEOUT")
    try:
        seconds = default if text is None else float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ArgumentError(
            f"TOOLKIT_TIMEOUT: expected seconds, above 0; received {text!r}"
        )
    return seconds


def home() -> Path:
    """Return the folder for downloads and caches; it may not exist yet.

    Returns:
        A path.

    Example:
        >>> import toolkit
        >>> toolkit.config.home().is_absolute()
        True
    """
    folder = environment("HOME") or os.environ.get("KERAS_HOME")
    return Path(folder).expanduser() if folder else Path.home() / ".toolkit"


def keras_home() -> Path | None:
    """Return the folder in which Keras keeps downloads, unless `home()` is the same.

    Verified files are read from it. Nothing is written there.
    """
    folder = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()
    return None if folder == home() else folder


_listeners: list[Callable[[], None]] = []


def on_change(listener: Callable[[], None]) -> None:
    """Register a function to call after each change of a setting."""
    _listeners.append(listener)


def report_change() -> None:
    """Note that a setting has changed, or code that depends on none."""
    values.version += 1
    for listener in _listeners:
        listener()


class _Values(dict[str, Any]):
    """The values of the settings, by name."""

    version = 0  # a change of a value increments it

    def __setitem__(self, name: str, value: object) -> None:
        has_changed = name not in self or self[name] != value
        super().__setitem__(name, value)
        if has_changed:
            report_change()


values: _Values = _Values(
    {
        "floatx": "float32",
        "epsilon": 1e-7,
        "image_data_format": "channels_last",
        "backend": environment("BACKEND", "numpy"),
        "device": environment("DEVICE"),
        "flash_attention": None,
        "matmul_precision": environment("MATMUL_PRECISION", "strict"),
        "autotune": environment("AUTOTUNE") == "on",
        "free_extents": environment("FREE_EXTENTS") != "off",
        "threads": None,
        "logical_devices": {"cpu": 1},
        "interactive_logging": True,
        "traceback_filtering": environment("TRACEBACK_FILTERING") != "off",
    }
)


def version() -> int:
    """Return a number that is different after each change of a setting."""
    return values.version


_placements: dict[tuple[Any, ...], int] = {}


def floatx() -> str:
    """Return the default floating dtype, "float32" unless set.

    Returns:
        The name of a dtype.

    Example:
        >>> import toolkit
        >>> toolkit.config.floatx()
        'float32'
    """
    return values["floatx"]


def set_floatx(value: str) -> None:
    """Set the default floating dtype: bfloat16, float16, float32 or float64.

    Args:
        value: "bfloat16", "float16", "float32" or "float64".

    Example:
        >>> import toolkit
        >>> toolkit.config.set_floatx("float64")
        >>> toolkit.ops.ones((2,)).dtype
        'float64'
        >>> toolkit.config.set_floatx("float32")
    """
    if value not in _FLOATX:
        raise unknown_choice("set_floatx", value, _FLOATX)
    values["floatx"] = value


def epsilon() -> float:
    """Return the number that avoids log(0) and division by zero, default 1e-7.

    Returns:
        A float.

    Example:
        >>> import toolkit
        >>> toolkit.config.epsilon()
        1e-07
    """
    return values["epsilon"]


def set_epsilon(value: float) -> None:
    """Set the small number that avoids log(0) and division by zero.

    Args:
        value: a number > 0.

    Example:
        >>> import toolkit
        >>> toolkit.config.set_epsilon(1e-5)
        >>> toolkit.config.epsilon()
        1e-05
        >>> toolkit.config.set_epsilon(1e-7)
    """
    if not value > 0:
        raise ArgumentError(f"set_epsilon: expected a value > 0; received {value!r}")
    values["epsilon"] = float(value)


def image_data_format() -> str:
    """Return the default layout of images: "channels_last" unless set.

    Returns:
        "channels_last" or "channels_first".

    Example:
        >>> import toolkit
        >>> toolkit.config.image_data_format()
        'channels_last'
    """
    return values["image_data_format"]


def set_image_data_format(data_format: str) -> None:
    """Set the default layout of images: "channels_last" or "channels_first".

    Args:
        data_format: "channels_last" or "channels_first".

    Example:
        >>> import toolkit
        >>> toolkit.config.set_image_data_format("channels_first")
        >>> toolkit.layers.Conv2D(2, 3)(toolkit.ops.ones((1, 3, 8, 8))).shape
        (1, 2, 6, 6)
        >>> toolkit.config.set_image_data_format("channels_last")
    """
    values["image_data_format"] = standardize_data_format(data_format)


def standardize_data_format(data_format: str | None) -> str:
    """Return `data_format` in lower case, checked; None is the global default.

    Args:
        data_format: "channels_last" or "channels_first" in any case, or None.

    Returns:
        "channels_last" or "channels_first".

    Example:
        >>> import toolkit
        >>> toolkit.config.standardize_data_format("Channels_First")
        'channels_first'
    """
    if data_format is None:
        return image_data_format()
    lowercase = str(data_format).lower()
    if lowercase not in _DATA_FORMATS:
        raise unknown_choice("data_format", data_format, _DATA_FORMATS)
    return lowercase


def enable_flash_attention() -> None:
    """Permit attention in blocks; this is the default.

    It is a preference: compiled functions compute attention in blocks if possible, and
    eager calls compute it as a whole.

    Example:
        >>> import toolkit
        >>> toolkit.config.enable_flash_attention()
    """
    values["flash_attention"] = None


def disable_flash_attention() -> None:
    """Compute attention as a whole; results differ in their last bits.

    Example:
        >>> import toolkit
        >>> toolkit.config.disable_flash_attention()
        >>> toolkit.config.is_flash_attention_enabled()
        False
        >>> toolkit.config.enable_flash_attention()
    """
    values["flash_attention"] = False


def is_flash_attention_enabled() -> bool | None:
    """Return None if attention in blocks is permitted, False if it is disabled.

    Returns:
        None or False.

    Example:
        >>> import toolkit
        >>> toolkit.config.is_flash_attention_enabled() is None
        True
    """
    return values["flash_attention"]


def matmul_precision() -> str:
    """Return the precision of float32 products and convolutions; default "strict".

    Returns:
        The name of a precision.

    Example:
        >>> import toolkit
        >>> toolkit.config.matmul_precision()
        'strict'
    """
    precision: str = values["matmul_precision"]
    if precision not in _PRECISIONS:
        raise unknown_choice("TOOLKIT_MATMUL_PRECISION", precision, _PRECISIONS)
    return precision


def set_matmul_precision(precision: str) -> None:
    """Set the precision of float32 products and convolutions.

    Args:
        precision: "strict" for float32 throughout; "highest" to also compute every
            convolution as the sum that defines it, not by Winograd transforms, whose
            errors are up to 3 times as large and reach 3 pixels out of a window; or
            "tf32" to let the tensor cores of a GPU round factors to 10 bits.

    Example:
        >>> import toolkit
        >>> toolkit.config.set_matmul_precision("highest")
        >>> toolkit.config.matmul_precision()
        'highest'
        >>> toolkit.config.set_matmul_precision("strict")
    """
    if precision not in _PRECISIONS:
        raise unknown_choice("set_matmul_precision", precision, _PRECISIONS)
    values["matmul_precision"] = precision
    update_placement()


def autotune() -> bool:
    """Return whether plans of GPU libraries are timed, False unless set.

    Returns:
        A boolean.

    Example:
        >>> import toolkit
        >>> toolkit.config.autotune()
        False
    """
    return values["autotune"]


def set_autotune(enabled: bool) -> None:
    """Choose whether to time the candidates of GPU libraries, and use the fastest.

    cuDNN and cuBLASLt have several algorithms for a convolution, an attention or a
    product, and list first the one that they expect to be fast. With autotuning the
    algorithms are timed before the first step. The choice is cached on disk, so that
    later processes with autotuning compute the same bits. It has no effect on a CPU.

    Args:
        enabled: False by default; TOOLKIT_AUTOTUNE=on also enables it.

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
    update_placement()


def free_extents() -> bool:
    """Return whether one program may compute many lengths, True unless set.

    Returns:
        A boolean.

    Example:
        >>> import toolkit
        >>> toolkit.config.free_extents()
        True
    """
    return values["free_extents"]


def set_free_extents(enabled: bool) -> None:
    """Choose whether a function is compiled once for many lengths and batch sizes.

    A function, or the step of a model, is compiled for its first shapes, and again for
    each new length. With free extents, the second compilation has the extents that
    changed as variables, and computes the later lengths, too. Its sums can have another
    order than those of a program for one length, so the last bits of results can
    differ. Programs on GPUs and in jobs of several processes have no free extents.

    In a trace with free extents, an extent such as `x.shape[1]` is an object with the
    arithmetic of integers, and no `int`: `type(x.shape[1]) is int` is False, and code
    that stores it as an attribute must not read it after the call.

    Args:
        enabled: True by default; TOOLKIT_FREE_EXTENTS=off also disables it. It applies
            to the next compilations.

    Example:
        >>> import toolkit
        >>> toolkit.config.set_free_extents(False)
        >>> toolkit.config.free_extents()
        False
        >>> toolkit.config.set_free_extents(True)
    """
    if not isinstance(enabled, bool):
        raise ArgumentError(
            f"set_free_extents: expected True or False; received {enabled!r}"
        )
    values["free_extents"] = enabled


def enable_interactive_logging() -> None:
    """Print messages and progress on standard output; this is the default.

    Example:
        >>> import toolkit
        >>> toolkit.config.enable_interactive_logging()
        >>> toolkit.config.is_interactive_logging_enabled()
        True
    """
    values["interactive_logging"] = True


def disable_interactive_logging() -> None:
    """Send messages and progress to the logger "toolkit", with lines for each epoch.

    Example:
        >>> import toolkit
        >>> toolkit.config.disable_interactive_logging()
        >>> toolkit.config.is_interactive_logging_enabled()
        False
        >>> toolkit.config.enable_interactive_logging()
    """
    values["interactive_logging"] = False


def is_interactive_logging_enabled() -> bool:
    """Return whether messages and progress are printed on standard output.

    Returns:
        A boolean.

    Example:
        >>> import toolkit
        >>> toolkit.config.enable_interactive_logging()
        >>> toolkit.config.is_interactive_logging_enabled()
        True
    """
    return values["interactive_logging"]


def enable_traceback_filtering() -> None:
    """Omit the frames of this package from tracebacks; this is the default.

    The remaining frames of an error inside a layer or a model are user code.

    Example:
        >>> import toolkit
        >>> toolkit.config.enable_traceback_filtering()  # doctest: +SKIP
        >>> toolkit.config.is_traceback_filtering_enabled()  # doctest: +SKIP
        True
    """
    values["traceback_filtering"] = True


def disable_traceback_filtering() -> None:
    """Show complete tracebacks, with the frames of this package.

    Example:
        >>> import toolkit
        >>> toolkit.config.disable_traceback_filtering()  # doctest: +SKIP
        >>> toolkit.config.is_traceback_filtering_enabled()  # doctest: +SKIP
        False
        >>> toolkit.config.enable_traceback_filtering()  # doctest: +SKIP
    """
    values["traceback_filtering"] = False


def is_traceback_filtering_enabled() -> bool:
    """Return whether tracebacks omit the frames of this package.

    Returns:
        A boolean.

    Example:
        >>> import toolkit
        >>> toolkit.config.enable_traceback_filtering()  # doctest: +SKIP
        >>> toolkit.config.is_traceback_filtering_enabled()  # doctest: +SKIP
        True
    """
    return values["traceback_filtering"]


def max_epochs() -> int | None:
    """Return the limit on the epochs of any `fit`, None unless set.

    Returns:
        A number, or None for no limit.

    Example:
        >>> import toolkit
        >>> toolkit.config.max_epochs() is None
        True
    """
    return _read_limit("max_epochs")


def set_max_epochs(max_epochs: int | None) -> None:
    """Limit the epochs of any `fit`, for a quick test of a script; None for no limit.

    TOOLKIT_MAX_EPOCHS has the same effect.

    Args:
        max_epochs: the largest number of epochs, >= 1; None for no limit.

    Example:
        >>> import toolkit
        >>> toolkit.config.set_max_epochs(2)
        >>> toolkit.config.max_epochs()
        2
        >>> toolkit.config.set_max_epochs(None)
    """
    values["max_epochs"] = _check_limit("set_max_epochs", max_epochs)


def max_steps_per_epoch() -> int | None:
    """Return the limit on the steps of an epoch, None unless set.

    Returns:
        A number, or None for no limit.

    Example:
        >>> import toolkit
        >>> toolkit.config.max_steps_per_epoch() is None
        True
    """
    return _read_limit("max_steps_per_epoch")


def set_max_steps_per_epoch(max_steps_per_epoch: int | None) -> None:
    """Limit the steps of an epoch, also in `evaluate` and `predict`; None for no limit.

    TOOLKIT_MAX_STEPS_PER_EPOCH has the same effect.

    Args:
        max_steps_per_epoch: the largest number of steps, >= 1; None for no limit.

    Example:
        >>> import toolkit
        >>> toolkit.config.set_max_steps_per_epoch(2)
        >>> toolkit.config.max_steps_per_epoch()
        2
        >>> toolkit.config.set_max_steps_per_epoch(None)
    """
    values["max_steps_per_epoch"] = _check_limit(
        "set_max_steps_per_epoch", max_steps_per_epoch
    )


def _read_limit(name: str) -> int | None:
    if name not in values:
        text = environment(name.upper())
        number = int(text) if text and text.isdecimal() else text
        values[name] = _check_limit(f"TOOLKIT_{name.upper()}", number)
    return values[name]


def _check_limit(label: str, limit: Any) -> int | None:
    if limit is not None and not (type(limit) is int and limit >= 1):
        raise ArgumentError(f"{label}: expected a number >= 1; received {limit!r}")
    return limit


def backend() -> str:
    """Return the name of the default backend, "numpy" unless TOOLKIT_BACKEND is set.

    Returns:
        A name, such as "numpy".

    Example:
        >>> import toolkit
        >>> toolkit.config.backend() == toolkit.config.backend_of(None)
        True
    """
    return values["backend"]


def backend_of(device: str | None) -> str:
    """Return the name of the backend of a device; None: of the default device.

    Args:
        device: the name of a device, such as "gpu:0", or None.

    Returns:
        The name of a backend.

    Example:
        >>> import toolkit
        >>> toolkit.config.backend_of("cpu:0") == toolkit.config.backend()
        True
    """
    name = device or values["device"]
    if name is None or not name.lower().startswith("gpu"):
        return values["backend"]
    number = name.partition(":")[2]
    return GPU_BACKEND if number in ("", "0") else f"{GPU_BACKEND}:{number}"


def placement() -> int:
    """Return a number that identifies the settings that affect compilation.

    Returns:
        A number; equal settings have equal numbers.

    Example:
        >>> import toolkit
        >>> toolkit.config.placement() == toolkit.config.placement()
        True
    """
    return values["placement"]


def update_placement() -> None:
    """Compute the number of the settings; equal settings have the same number."""
    settings = values
    key = (
        settings["backend"],
        settings["device"],
        settings["matmul_precision"],
        settings["autotune"],
    )
    settings["placement"] = _placements.setdefault(key, len(_placements))


def num_threads() -> int:
    """Return the number of compute threads; default: all available cores.

    The binding of the process and the quota of its control groups limit the cores.

    Returns:
        A number >= 1.

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
    """Return TOOLKIT_NUM_THREADS, or the number of available cores.

    Returns:
        A number >= 1.

    Example:
        >>> import toolkit
        >>> toolkit.config.default_num_threads() >= 1
        True
    """
    text = environment("NUM_THREADS")
    if text is None:
        return available_cores()
    if not (text.isdecimal() and int(text) > 0):
        raise ArgumentError(
            f"TOOLKIT_NUM_THREADS: expected a number of threads; received {text!r}"
        )
    return int(text)


def logical_devices(kind: str) -> int:
    """Return the number of logical devices of a kind, 1 unless set.

    Args:
        kind: "cpu" or "gpu".

    Returns:
        A number >= 0.

    Example:
        >>> import toolkit
        >>> toolkit.config.logical_devices("cpu")
        1
    """
    return int(values["logical_devices"].get(kind, 0))


update_placement()
if environment("FLOATX"):
    set_floatx(environment("FLOATX") or "")
