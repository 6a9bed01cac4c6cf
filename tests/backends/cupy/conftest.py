import numpy as np
import pytest

from tests.backends.conftest import require_gpu
from tests.backends.cuda.host import GXX
from tests.backends.cupy.host import HostDevice
from toolkit.backends import registry
from toolkit.backends.cupy.backend import CupyBackend


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Where kernels are built, and those that are: shared by all tests."""
    return tmp_path_factory.mktemp("kernels"), {}


@pytest.fixture
def on_host(built, request):
    """A GPU backend on host memory that answers to "gpu:0"; parameters go to it."""
    if GXX is None:
        pytest.skip("g++ is not installed")
    device = HostDevice(*built, **getattr(request, "param", {}))
    before = registry._factories["cupy"]
    registry.register_backend("cupy", lambda: CupyBackend(device, np))
    yield registry.get_backend("cupy")
    registry.register_backend("cupy", before)


@pytest.fixture(params=["host", "cuda"])
def gpu(request):
    """The GPU backend on a device of host memory, and on a real one if there is one."""
    if request.param == "host":
        return request.getfixturevalue("on_host")
    require_gpu(request.config)
    return registry.get_backend("cupy")
