"""Settings of every test process; NumPy is imported after them."""

import gc
import os
import signal

import pytest
from hypothesis import settings

# Several test processes share the cores. BLAS threads of one process would wait for
# the threads of another process, which costs a time slice each time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
# A failed test shows the frames inside the package.
os.environ.setdefault("TOOLKIT_TRACEBACK_FILTERING", "off")
# A background job of a shell ignores interrupts, and its child processes inherit this.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Tests have no time limit for operations: another process may use the core.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# 23,841 tests took 620 s with `-n 2` on two cores.
MINUTES = 10

pytest_plugins = ["tests.case_groups"]
# Its import declares operations, which only its test needs.
collect_ignore = ["tests/outside.py"]


@pytest.fixture
def no_free_extents():
    """Compile each length and each batch size; restore the setting after the test."""
    import toolkit

    previous = toolkit.config.free_extents()
    toolkit.config.set_free_extents(False)
    yield
    toolkit.config.set_free_extents(previous)


def pytest_addoption(parser):
    """Add the options of the backend tests to every pytest call."""
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


def pytest_sessionstart(session):
    """Print the duration of the complete test run before it starts."""
    config = session.config
    is_complete = config.args_source is config.ArgsSource.TESTPATHS
    if is_complete and not hasattr(config, "workerinput"):
        config.get_terminal_writer().line(
            f"all tests: about {MINUTES} minutes on two cores; `scripts/test quick` "
            "runs the tests of your changes in one minute",
            yellow=True,
        )


def pytest_collection_finish():
    """Freeze the tests, so that the garbage collector does not scan them."""
    gc.collect()
    gc.freeze()
