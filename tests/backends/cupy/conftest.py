import numpy as np
import pytest

import toolkit
from tests.backends.cuda.host import GXX
from tests.backends.cupy.host import HostDevice
from toolkit.backends import base


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Where kernels are built, and those that are: shared by all tests."""
    return tmp_path_factory.mktemp("kernels"), {}


@pytest.fixture
def gpu(built, request):
    """A GPU backend on host memory that answers to "gpu:0"; parameters go to it."""
    if GXX is None:
        pytest.skip("g++ is not installed")
    from toolkit.backends.cupy.backend import CupyBackend

    folder, kernels = built
    device = HostDevice(folder, kernels, **getattr(request, "param", {}))
    before = base._factories["cupy"]
    base.register_backend("cupy", lambda: CupyBackend(device, np))
    yield base.get_backend("cupy")
    base.register_backend("cupy", before)
    assert toolkit.config.list_devices()[0] == "cpu:0"
