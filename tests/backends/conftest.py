import re
from contextlib import nullcontext

import pytest

import toolkit
from toolkit.backends import get_backend
from toolkit.errors import DeviceError

# The backends of every conformance test, unless --backend names one.
BACKENDS = ("numpy", "cupy")
_NEEDS_GPU = "needs a GPU"


def why_no_gpu():
    """Return the reason why nothing can run on a GPU, or "" if it can."""
    try:
        toolkit.config.check_device("gpu:0")
    except DeviceError as error:
        return str(error)
    return ""


def require_gpu(config):
    """Skip a test, or fail it with --require-gpu, if there is no GPU."""
    reason = why_no_gpu()
    if reason and config.getoption("require_gpu", default=False):
        pytest.fail(f"{_NEEDS_GPU}: {reason}", pytrace=False)
    if reason:
        pytest.skip(f"{_NEEDS_GPU}: {reason}")


def pytest_generate_tests(metafunc):
    """Run each conformance test on every backend; without a GPU, on no GPU backend.

    One skipped test then represents all of them. Separate skips would take a minute.
    """
    if "backend" not in metafunc.fixturenames:
        return
    config = metafunc.config
    selected = config.getoption("backend", default=None)
    names = [selected] if selected else list(BACKENDS)
    required = config.getoption("require_gpu", default=False)
    if not selected and not required and why_no_gpu():
        names.remove("cupy")
    metafunc.parametrize("backend", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def backend(request):
    if request.param == "cupy":
        require_gpu(request.config)
    return get_backend(request.param)


@pytest.fixture(autouse=True)
def _stream_of_the_backend(request):
    """Order the array operations of the test with the kernels of the backend."""
    names = request.fixturenames
    backend_name = request.getfixturevalue("backend") if "backend" in names else None
    is_gpu = backend_name is not None and backend_name.is_accelerator
    with backend_name.kernels.errstate() if is_gpu else nullcontext():
        yield


@pytest.fixture(scope="session")
def reference():
    return get_backend("reference")


def pytest_terminal_summary(terminalreporter):
    skipped = terminalreporter.stats.get("skipped", ())
    reasons = [report.longrepr[2] for report in skipped if report.longrepr]
    skip_reasons = [reason for reason in reasons if _NEEDS_GPU in reason]
    if skip_reasons:
        stand_in = [
            int(n) for r in skip_reasons for n in re.findall(r"(\d+) conformance", r)
        ]
        count = len(skip_reasons) + sum(stand_in)
        reason = next(
            r for r in skip_reasons if "conformance" not in r or len(skip_reasons) == 1
        )
        terminalreporter.write_line(f"{count} tests were skipped: {reason}")
