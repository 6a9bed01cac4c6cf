import numpy as np
import pytest

from tests.backends.conftest import require_gpu
from tests.backends.cuda.host import GXX
from tests.backends.cupy.host import HostDevice
from toolkit.backends import registry
from toolkit.backends.cupy.backend import CupyBackend
from toolkit.backends.memory import device_memories
from toolkit.models.training import loss_watch


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Return the build folder and the built kernels. All tests share them."""
    return tmp_path_factory.mktemp("kernels"), {}


@pytest.fixture
def on_host(built, request):
    """A GPU backend on host memory that answers to "gpu:0"; parameters go to it."""
    if GXX is None:
        pytest.skip("g++ is not installed")
    options = dict(getattr(request, "param", {}))
    count = options.pop("count", 1)
    devices = [HostDevice(*built, number=i, **options) for i in range(count)]
    before = registry._factories["cupy"]

    def create(number=0):
        return CupyBackend(devices[number], np, count)

    registry.register_backend("cupy", create)
    yield registry.get_backend("cupy")
    previous = [registry._backends.pop(f"cupy:{i}", None) for i in range(1, count)]
    closed = [backend.memory for backend in previous if backend is not None]
    device_memories[:] = [m for m in device_memories if m not in closed]
    registry.register_backend("cupy", before)


@pytest.fixture
def unwatched_losses(monkeypatch):
    """Let `fit` read no loss before the end of an epoch."""
    monkeypatch.setattr(loss_watch, "_WATCH", 1e9)


@pytest.fixture(params=["host", "cuda"])
def gpu(request):
    """The GPU backend on a device of host memory, and on a real one if there is one."""
    if request.param == "host":
        return request.getfixturevalue("on_host")
    require_gpu(request.config)
    return registry.get_backend("cupy")
