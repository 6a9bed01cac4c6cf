"""Devices and the number of threads, for the current backend."""

from __future__ import annotations

from collections.abc import Callable

from toolkit.arguments import is_int
from toolkit.backends.registry import describe_backends, get_backend
from toolkit.errors import (
    ArgumentError,
    BackendUnavailable,
    DeviceError,
    unknown_choice,
)
from toolkit.settings import (
    GPU_BACKEND,
    backend,
    backend_of,
    num_threads,
    update_placement,
    values,
)

_listeners: list[Callable[[], None]] = []


def set_backend(backend: str) -> None:
    """Set the backend by name: "numpy", "reference", or a registered one.

    Args:
        backend: the name.

    Example:
        >>> import toolkit
        >>> default = toolkit.config.backend()
        >>> toolkit.config.set_backend("reference")
        >>> toolkit.config.backend()
        'reference'
        >>> toolkit.config.set_backend(default)
    """
    get_backend(backend)  # an unknown name fails before any change
    values["backend"] = backend
    update_placement()
    for callback in _listeners:
        callback()


def device() -> str:
    """Return the compute device: "cpu:0" by default.

    TOOLKIT_DEVICE and `set_device` change it.

    Returns:
        The name of a device.

    Raises:
        DeviceError: if there is no such device.

    Example:
        >>> import toolkit
        >>> toolkit.config.device() in toolkit.config.list_devices()
        True
    """
    if values["device"] is None:
        return _devices_of(backend())[0]
    return check_device(values["device"])


def set_device(name: str) -> None:
    """Set the compute device, for example "cpu:0" or "gpu:0".

    Args:
        name: the name of a device.

    Example:
        >>> import toolkit
        >>> toolkit.config.set_device("gpu:0")  # doctest: +SKIP
    """
    values["device"] = check_device(name)
    update_placement()
    for callback in _listeners:
        callback()


def check_device(name: str) -> str:
    """Return the full name of a device: "cpu" is "cpu:0".

    Args:
        name: the name of a device, such as "cpu" or "gpu:0".

    Returns:
        The full name, in lower case.

    Raises:
        DeviceError: the device does not exist.

    Example:
        >>> import toolkit
        >>> toolkit.config.check_device("CPU")
        'cpu:0'
    """
    device = name.lower() if ":" in name else f"{name.lower()}:0"
    try:
        devices = _devices_of(backend_of(device))
    except BackendUnavailable as error:
        available = ", ".join(_devices_of(backend()))
        raise BackendUnavailable(
            f"device: expected one of {available}; received {name!r}: {error}"
        ) from error
    if device not in devices:
        raise DeviceError(
            f"device: expected one of {', '.join(devices)}; received {name!r}"
        )
    return device


def _devices_of(name: str) -> tuple[str, ...]:
    return get_backend(name).devices()


def set_num_threads(count: int | None) -> None:
    """Set the number of compute threads; results do not depend on it.

    A NumPy with another BLAS than OpenBLAS can use its own threads.

    Args:
        count: at least 1; None for TOOLKIT_NUM_THREADS or, without it, every core that
            this process may use.

    Example:
        >>> import toolkit
        >>> toolkit.config.set_num_threads(1)
        >>> toolkit.config.num_threads()
        1
        >>> toolkit.config.set_num_threads(None)
    """
    is_integer = is_int(count) and not isinstance(count, bool)
    if count is not None and not (is_integer and count > 0):
        raise ArgumentError(
            f"set_num_threads: expected a number of threads or None; received {count!r}"
        )
    values["threads"] = None if count is None else int(count)
    get_backend(backend()).set_thread_count(num_threads())


def set_logical_devices(kind: str, count: int) -> None:
    """Split the CPU into logical devices, to test placement on any machine.

    They share its memory and its threads; transfers between them are copies.

    Args:
        kind: "cpu".
        count: at least 1; then "cpu:0" to "cpu:<count - 1>" exist.

    Example:
        >>> import toolkit
        >>> toolkit.config.set_logical_devices("cpu", 2)
        >>> toolkit.config.list_devices()[:2]
        ('cpu:0', 'cpu:1')
        >>> toolkit.config.set_logical_devices("cpu", 1)
    """
    if kind != "cpu":
        raise unknown_choice("set_logical_devices: kind", kind, ("cpu",))
    is_integer = is_int(count) and not isinstance(count, bool)
    if not (is_integer and count > 0):
        raise ArgumentError(
            f"set_logical_devices: expected a number of devices; received {count!r}"
        )
    values["logical_devices"][kind] = int(count)


def list_devices() -> tuple[str, ...]:
    """Return the names of the devices; `show` gives the reason for a missing GPU.

    Returns:
        A tuple of names.

    Example:
        >>> import toolkit
        >>> len(toolkit.config.list_devices()) >= 1
        True
    """
    devices = _devices_of(backend())
    if backend() == GPU_BACKEND:
        return devices
    try:
        return devices + _devices_of(GPU_BACKEND)
    except DeviceError:
        return devices


def on_backend_change(callback: Callable[[], None]) -> None:
    """Register `callback` for every change of the backend."""
    _listeners.append(callback)


def show() -> None:
    """Print the CPU, BLAS, number of threads and the available backends.

    Example:
        >>> import toolkit
        >>> toolkit.config.show()
        backend ...
    """
    for name, facts in describe_backends().items():
        active = " (active)" if name == backend() else ""
        print(f"backend {name}{active}")
        if active:
            print(f"  device: {device()}")
        for key, value in facts.items():
            print(f"  {key}: {value}")
