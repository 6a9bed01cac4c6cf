"""`tf.config`: devices, threads, and the execution of functions."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace
from typing import Any

from toolkit import config
from toolkit.errors import ArgumentError, UnsupportedError

__path__: list[str] = []  # makes submodules importable

PhysicalDevice = namedtuple("PhysicalDevice", "name device_type")
LogicalDevice = namedtuple("LogicalDevice", "name device_type")
LogicalDeviceConfiguration = namedtuple(
    "LogicalDeviceConfiguration", "memory_limit", defaults=(None,)
)

_settings: dict[str, Any] = {
    "visible": None,
    "eager": False,
    "jit": "",
    "options": {},
    "soft": True,
}


# --- devices --------------------------------------------------------------------------


def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Return the devices of the active backend, all or of one type.

    Example:
        >>> import toolkit.compat.tensorflow as tf
        >>> tf.config.list_physical_devices("CPU")[0].name
        '/physical_device:CPU:0'
    """
    logical = config.logical_devices("cpu")
    devices = [
        PhysicalDevice(f"/physical_device:{name.upper()}", name.split(":")[0].upper())
        for name in config.list_devices()
        if not (name.startswith("cpu") and logical and name != "cpu:0")
    ]
    return [d for d in devices if device_type in (None, d.device_type)]


def get_visible_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Return the visible devices."""
    devices = list_physical_devices(device_type)
    hidden = _settings["visible"]
    return devices if hidden is None else [d for d in devices if d in hidden]


def set_visible_devices(devices: Any, device_type: str | None = None) -> None:
    """Select the visible devices, all or of one type.

    Raises:
        UnsupportedError: the active device would not be visible.
    """
    devices = devices if isinstance(devices, (list, tuple)) else [devices]
    unknown = [d for d in devices if not isinstance(d, PhysicalDevice)]
    if unknown:
        raise ArgumentError(
            "set_visible_devices: expected devices of list_physical_devices; received "
            f"{unknown[0]!r}"
        )
    other_devices = [
        d for d in get_visible_devices() if device_type not in (None, d[1])
    ]
    visible = [*other_devices, *devices]
    current = config.device().upper()
    if not any(d.name.endswith(current.split(":")[0] + ":0") for d in visible):
        raise UnsupportedError(
            f"set_visible_devices: {current} is the current device and cannot be "
            "hidden; choose another with toolkit.config.set_device or TOOLKIT_BACKEND"
        )
    _settings["visible"] = visible


def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """Return the devices for `tf.device`."""
    devices = [
        LogicalDevice(f"/device:{name.upper()}", name.split(":")[0].upper())
        for name in config.list_devices()
    ]
    return [d for d in devices if device_type in (None, d.device_type)]


def set_logical_device_configuration(device: Any, logical_devices: Any) -> None:
    """Divide the CPU into logical devices."""
    if any(
        logical_device.memory_limit is not None for logical_device in logical_devices
    ):
        raise UnsupportedError(
            "set_logical_device_configuration: memory_limit is not supported"
        )
    config.set_logical_devices(device.device_type.lower(), len(logical_devices))


def set_soft_device_placement(enabled: bool) -> None:
    """Set whether `tf.device` uses the CPU for a missing device."""
    _settings["soft"] = bool(enabled)


def get_soft_device_placement() -> bool:
    """Return whether `tf.device` uses the CPU for a missing device."""
    return bool(_settings["soft"])


def _set_memory_growth(device: Any, enable: bool) -> None:
    """Do nothing: memory is always allocated on demand."""
    if not enable:
        raise UnsupportedError(
            "set_memory_growth: memory always grows on demand; received False"
        )


# --- functions ------------------------------------------------------------------------


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Run functions of `tf.function` as Python code, to debug them."""
    _settings["eager"] = bool(run_eagerly)


def functions_run_eagerly() -> bool:
    """Return whether functions of `tf.function` run as Python code."""
    return bool(_settings["eager"])


def _set_jit(enabled: bool | str) -> None:
    """Store the setting for `get_jit`: toolkit always compiles graphs.

    Args:
        enabled: True, False or "autoclustering".
    """
    if enabled not in (True, False, "autoclustering"):
        raise ArgumentError(
            f'set_jit: expected True, False or "autoclustering"; received {enabled!r}'
        )
    _settings["jit"] = "autoclustering" if enabled else ""


def _set_experimental_options(options: dict[str, Any]) -> None:
    _settings["options"].update(options)


optimizer: SimpleNamespace = SimpleNamespace(
    set_jit=_set_jit,
    get_jit=lambda: _settings["jit"],
    set_experimental_options=_set_experimental_options,
    get_experimental_options=lambda: dict(_settings["options"]),
)


experimental_run_functions_eagerly = run_functions_eagerly


# --- threads and determinism ----------------------------------------------------------


def _set_threads(num_threads: int) -> None:
    config.set_num_threads(num_threads or None)


threading: SimpleNamespace = SimpleNamespace(
    set_intra_op_parallelism_threads=_set_threads,
    get_intra_op_parallelism_threads=config.num_threads,
    set_inter_op_parallelism_threads=_set_threads,
    get_inter_op_parallelism_threads=config.num_threads,
)


def _enable_op_determinism() -> None:
    """Do nothing: the same seed always gives the same bits."""


experimental: SimpleNamespace = SimpleNamespace(
    LogicalDeviceConfiguration=LogicalDeviceConfiguration,
    VirtualDeviceConfiguration=LogicalDeviceConfiguration,
    enable_op_determinism=_enable_op_determinism,
    get_memory_growth=lambda device: True,
    get_visible_devices=get_visible_devices,
    list_logical_devices=list_logical_devices,
    list_physical_devices=list_physical_devices,
    run_functions_eagerly=run_functions_eagerly,
    set_memory_growth=_set_memory_growth,
    set_visible_devices=set_visible_devices,
    set_virtual_device_configuration=set_logical_device_configuration,
)
