"""Tests of the scope of a device: one thread at a time, and its calls of CuPy."""

import threading

import pytest

from tests.helpers import can_be_taken
from toolkit.backends.cupy.cuda_device import CudaDevice
from toolkit.errors import DeviceError


class Context:
    """Fake device or stream of CuPy that records when it is entered and left."""

    def __init__(self, name, log, fails=False):
        self.name, self.log, self.fails = name, log, fails

    def __enter__(self):
        if self.fails:
            raise RuntimeError(f"no {self.name}")
        self.log.append(f"+{self.name}")

    def __exit__(self, *exception):
        self.log.append(f"-{self.name}")


@pytest.fixture
def device():
    """Return a CUDA device that has only a scope."""
    cuda_device, log = object.__new__(CudaDevice), []
    cuda_device.device, cuda_device.stream = (
        Context("device", log),
        Context("stream", log),
    )
    vars(cuda_device).update(_entry_lock=threading.RLock(), _is_entered=False, log=log)
    return cuda_device


def test_nested_scopes_enter_cupy_once(device):
    for _ in range(2):
        with device.scope(), device.scope():
            assert device.log == ["+device", "+stream"]
            assert not can_be_taken(device._entry_lock)
        assert device.log == ["+device", "+stream", "-stream", "-device"]
        assert can_be_taken(device._entry_lock)
        device.log.clear()


def test_exception_ends_the_scope(device):
    with pytest.raises(ZeroDivisionError), device.scope(), device.scope():
        raise ZeroDivisionError
    assert device.log == ["+device", "+stream", "-stream", "-device"]
    assert can_be_taken(device._entry_lock)
    with device.scope():
        assert device.log[4:] == ["+device", "+stream"]


def test_failed_entry_does_not_change_the_device(device):
    device.stream.fails = True
    with pytest.raises(RuntimeError, match="no stream"), device.scope():
        pass
    assert device.log == ["+device", "-device"]
    assert can_be_taken(device._entry_lock)


def test_failed_device_cannot_be_entered(device):
    device.broken = DeviceError("gpu:0: a kernel failed")
    with pytest.raises(DeviceError, match="a kernel failed"), device.scope():
        pass
