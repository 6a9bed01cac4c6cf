import pytest

from toolkit.backends import get_backend


def pytest_addoption(parser):
    parser.addoption(
        "--backend",
        default="numpy",
        help="the backend whose kernels are compared with the reference",
    )


@pytest.fixture(scope="session")
def backend(request):
    return get_backend(request.config.getoption("backend", default="numpy"))


@pytest.fixture(scope="session")
def reference():
    return get_backend("reference")
