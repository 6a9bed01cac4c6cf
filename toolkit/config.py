"""Global settings, as Keras names them, and those of devices and libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit.arguments import is_int
from toolkit.errors import (
    ArgumentError,
    BackendUnavailable,
    DeviceError,
    UnsupportedError,
    unknown_choice,
)
from toolkit.settings import environment as environment
from toolkit.settings import home as home
from toolkit.settings import values as _settings

_FLOATX = ("bfloat16", "float16", "float32", "float64")
_DATA_FORMATS = ("channels_first", "channels_last")
_PRECISIONS = ("highest", "strict", "tf32")
# The backend that the devices "gpu:0" and so on belong to.
GPU_BACKEND = "cupy"
# What computes constants while a program for any backend is compiled.
HOST_BACKEND = "numpy"


_backend_listeners: list[Callable[[], None]] = []
_placements: dict[tuple[Any, ...], int] = {}


def floatx() -> str:
    """The default floating dtype, "float32" unless set.

    Example:
        >>> import toolkit
        >>> toolkit.config.floatx()
        'float32'
    """
    return _settings["floatx"]  # type: ignore[no-any-return]


def set_floatx(value: str) -> None:
    """Set the default floating dtype: bfloat16, float16, float32 or float64."""
    if value not in _FLOATX:
        raise unknown_choice("set_floatx", value, _FLOATX)
    _settings["floatx"] = value


def epsilon() -> float:
    """The small number that keeps logarithms and quotients finite, 1e-7 unless set."""
    return _settings["epsilon"]  # type: ignore[no-any-return]


def set_epsilon(value: float) -> None:
    """Set the small number that keeps logarithms and quotients finite."""
    if not value > 0:
        raise ArgumentError(f"set_epsilon: expected a value > 0; received {value!r}")
    _settings["epsilon"] = float(value)


def image_data_format() -> str:
    """The default layout of images: "channels_last" unless set."""
    return _settings["image_data_format"]  # type: ignore[no-any-return]


def set_image_data_format(data_format: str) -> None:
    """Set the default layout of images: "channels_last" or "channels_first"."""
    _settings["image_data_format"] = standardize_data_format(data_format)


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
    _settings["flash_attention"] = None


def disable_flash_attention() -> None:
    """Compute attention as a whole; results differ in their last bits."""
    _settings["flash_attention"] = False


def is_flash_attention_enabled() -> bool | None:
    """None if attention may be computed block by block, False if that was disabled."""
    return _settings["flash_attention"]  # type: ignore[no-any-return]


def matmul_precision() -> str:
    """How products and convolutions of float32 are computed, "strict" unless set."""
    chosen: str = _settings["matmul_precision"]
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
    _settings["matmul_precision"] = precision
    _place()


def autotune() -> bool:
    """Whether plans of libraries on a GPU are timed, False unless set."""
    return _settings["autotune"]  # type: ignore[no-any-return]


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
    _settings["autotune"] = enabled
    _place()


def enable_interactive_logging() -> None:
    """Print messages and progress on standard output, as is done unless disabled."""
    _settings["interactive_logging"] = True


def disable_interactive_logging() -> None:
    """Send messages and progress to the logger "toolkit", lines for each epoch."""
    _settings["interactive_logging"] = False


def is_interactive_logging_enabled() -> bool:
    """Whether messages and progress go to standard output."""
    return _settings["interactive_logging"]  # type: ignore[no-any-return]


def enable_traceback_filtering() -> None:
    """Leave the package's own frames out of tracebacks, as is done unless disabled.

    What remains of an error inside of a layer or a model is the user's own code.
    """
    _settings["traceback_filtering"] = True


def disable_traceback_filtering() -> None:
    """Show tracebacks whole, with the package's own frames."""
    _settings["traceback_filtering"] = False


def is_traceback_filtering_enabled() -> bool:
    """Whether tracebacks leave out the package's own frames."""
    return _settings["traceback_filtering"]  # type: ignore[no-any-return]


def max_epochs() -> int | None:
    """The limit on the epochs of any `fit`, None unless set."""
    return _limit("max_epochs")


def set_max_epochs(max_epochs: int | None) -> None:
    """Limit the epochs of any `fit`, to try a script quickly; None for no limit.

    TOOLKIT_MAX_EPOCHS does the same.
    """
    _settings["max_epochs"] = _checked_limit("set_max_epochs", max_epochs)


def max_steps_per_epoch() -> int | None:
    """The limit on the steps of an epoch, None unless set."""
    return _limit("max_steps_per_epoch")


def set_max_steps_per_epoch(max_steps_per_epoch: int | None) -> None:
    """Limit the steps of an epoch, of `evaluate` and `predict` too; None for no limit.

    TOOLKIT_MAX_STEPS_PER_EPOCH does the same.
    """
    _settings["max_steps_per_epoch"] = _checked_limit(
        "set_max_steps_per_epoch", max_steps_per_epoch
    )


def _limit(name: str) -> int | None:
    if name not in _settings:
        given = environment(name.upper())
        number = int(given) if given and given.isdecimal() else given
        _settings[name] = _checked_limit(f"TOOLKIT_{name.upper()}", number)
    return _settings[name]  # type: ignore[no-any-return]


def _checked_limit(what: str, limit: Any) -> int | None:
    if limit is not None and not (type(limit) is int and limit >= 1):
        raise ArgumentError(f"{what}: expected a number >= 1; received {limit!r}")
    return limit


def is_nnx_enabled() -> bool:
    """False: Variables are never those of Flax NNX."""
    return False


def enable_unsafe_deserialization() -> None:
    """Refused: code that is in a file never runs here.

    Raises:
        UnsupportedError: always.
    """
    raise UnsupportedError(
        "enable_unsafe_deserialization: toolkit never runs code from a file; pass the "
        "functions of Lambda layers in custom_objects instead"
    )


def dtype_policy() -> Any:
    """The dtype policy of layers that are given none: floatx unless set."""
    from toolkit import dtype_policies

    return dtype_policies.dtype_policy()


def set_dtype_policy(policy: Any) -> None:
    """Set the dtype policy of layers that are given none; None is floatx again.

    Args:
        policy: a dtype, "mixed_float16", "mixed_bfloat16", or a DTypePolicy.
    """
    from toolkit import dtype_policies

    dtype_policies.set_dtype_policy(policy)


def backend() -> str:
    """The name of the backend that computes, "numpy" unless TOOLKIT_BACKEND is set."""
    return _settings["backend"]  # type: ignore[no-any-return]


def set_backend(backend: str) -> None:
    """Choose the backend by name: "numpy", "reference", or a registered one."""
    from toolkit.backends.registry import get_backend

    get_backend(backend)  # an unknown name fails here, before anything changes
    _settings["backend"] = backend
    _place()
    for callback in _backend_listeners:
        callback()


def device() -> str:
    """Where to compute: "cpu:0" unless TOOLKIT_DEVICE or `set_device` say else.

    Raises:
        DeviceError: if there is no such device.
    """
    if _settings["device"] is None:
        return _devices_of(backend())[0]
    return check_device(_settings["device"])


def set_device(name: str) -> None:
    """Choose the device on which to compute, such as "cpu:0" or "gpu:0"."""
    _settings["device"] = check_device(name)
    _place()
    for callback in _backend_listeners:
        callback()


def check_device(name: str) -> str:
    """The full name of a device ("cpu" is "cpu:0"); a DeviceError if there is none."""
    wanted = name.lower() if ":" in name else f"{name.lower()}:0"
    try:
        known = _devices_of(backend_of(wanted))
    except BackendUnavailable as error:
        others = ", ".join(_devices_of(backend()))
        raise BackendUnavailable(
            f"device: expected one of {others}; received {name!r}: {error}"
        ) from error
    if wanted not in known:
        raise DeviceError(
            f"device: expected one of {', '.join(known)}; received {name!r}"
        )
    return wanted


def backend_of(device: str | None) -> str:
    """The name of the backend that computes on a device; None: on the default one."""
    name = device or _settings["device"]
    if name is None or not name.lower().startswith("gpu"):
        return _settings["backend"]  # type: ignore[no-any-return]
    number = name.partition(":")[2]
    return GPU_BACKEND if number in ("", "0") else f"{GPU_BACKEND}:{number}"


def placement() -> int:
    """A number for the settings that decide what a function is compiled to."""
    return _settings["placement"]  # type: ignore[no-any-return]


def _place() -> None:
    """Find the number of the settings; equal ones have the same."""
    s = _settings
    key = s["backend"], s["device"], s["matmul_precision"], s["autotune"]
    s["placement"] = _placements.setdefault(key, len(_placements))


def _devices_of(name: str) -> tuple[str, ...]:
    from toolkit.backends.registry import get_backend

    return get_backend(name).devices()


def num_threads() -> int:
    """How many threads compute: the cores that this process may use, unless set.

    Example:
        >>> import toolkit
        >>> toolkit.config.set_num_threads(1)
        >>> toolkit.config.num_threads()
        1
        >>> toolkit.config.set_num_threads(None)
    """
    if _settings["threads"] is None:
        _settings["threads"] = default_num_threads()
    return _settings["threads"]  # type: ignore[no-any-return]


def default_num_threads() -> int:
    """What TOOLKIT_NUM_THREADS says; without it, every core that may be used."""
    from toolkit.backends.base import available_cores

    chosen = environment("NUM_THREADS")
    if chosen is None:
        return available_cores()
    if not (chosen.isdecimal() and int(chosen) > 0):
        raise ArgumentError(
            f"TOOLKIT_NUM_THREADS: expected a number of threads; received {chosen!r}"
        )
    return int(chosen)


def set_num_threads(count: int | None) -> None:
    """Set how many threads compute; results do not depend on it.

    A NumPy that was built with another BLAS than OpenBLAS may take threads of its own.

    Args:
        count: at least 1; None for TOOLKIT_NUM_THREADS or, without it, every core that
            this process may use.
    """
    from toolkit.backends.registry import get_backend

    whole = is_int(count) and not isinstance(count, bool)
    if count is not None and not (whole and count > 0):
        raise ArgumentError(
            f"set_num_threads: expected a number of threads or None; received {count!r}"
        )
    _settings["threads"] = None if count is None else int(count)
    get_backend(backend()).use_threads(num_threads())


def set_logical_devices(kind: str, count: int) -> None:
    """Divide the processor into so many devices, to try placement on any machine.

    They share its memory and its threads; what passes from one to another is copied.

    Args:
        kind: "cpu".
        count: at least 1; then "cpu:0" to "cpu:<count - 1>" exist.
    """
    if kind != "cpu":
        raise unknown_choice("set_logical_devices: kind", kind, ("cpu",))
    whole = is_int(count) and not isinstance(count, bool)
    if not (whole and count > 0):
        raise ArgumentError(
            f"set_logical_devices: expected a number of devices; received {count!r}"
        )
    _settings["logical_devices"][kind] = int(count)


def logical_devices(kind: str) -> int:
    """How many devices of a kind there are, 1 unless set."""
    return int(_settings["logical_devices"].get(kind, 0))


def list_devices() -> tuple[str, ...]:
    """The names of the devices to compute on; `show` says why a GPU is not there."""
    found = _devices_of(backend())
    if backend() == GPU_BACKEND:
        return found
    try:
        return found + _devices_of(GPU_BACKEND)
    except DeviceError:
        return found


def on_backend_change(callback: Callable[[], None]) -> None:
    """Have `callback` called whenever the backend changes."""
    _backend_listeners.append(callback)


def show() -> None:
    """Print the CPU, BLAS, number of threads and the backends that are known."""
    from toolkit.backends.registry import describe_backends

    for name, facts in describe_backends().items():
        active = " (active)" if name == backend() else ""
        print(f"backend {name}{active}")
        if active:
            print(f"  device: {device()}")
        for key, value in facts.items():
            print(f"  {key}: {value}")


_place()
if environment("FLOATX"):
    set_floatx(environment("FLOATX") or "")
