"""Settings of every test process, made before NumPy is imported."""

import gc
import os
import signal
from collections import Counter

import pytest
from hypothesis import settings

# Several test processes share the cores: BLAS threads of one would wait for those of
# another, which costs a time slice each time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
# A test that fails shows where in the package.
os.environ.setdefault("TOOLKIT_TRACEBACK_FILTERING", "off")
# A shell's background job ignores interrupts, and so would programs that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# No test is timed: another process may have the core.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# It declares operations when it is imported, which only its own test wants.
collect_ignore = ["tests/outside.py"]


def pytest_addoption(parser):
    """Options of the tests of backends, which every call may have."""
    parser.addoption(
        "--backend",
        default=None,
        help="the one backend whose kernels are compared with the reference",
    )
    parser.addoption(
        "--require-gpu",
        action="store_true",
        help="fail what would be skipped for want of a GPU",
    )


def pytest_collection_finish():
    """Tests stay until the end: Python need not look through them for garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave to `-m slow` all but one in so many cases of tests that are marked so."""
    seen = Counter()
    for item in items:
        marker = item.get_closest_marker("one_in")
        if marker is not None:
            test = item.path, item.originalname
            # Another one of each so many: parameters repeat themselves, too.
            turn, place = divmod(seen[test], marker.args[0])
            if place != turn % marker.args[0]:
                item.add_marker("slow")
            seen[test] += 1
