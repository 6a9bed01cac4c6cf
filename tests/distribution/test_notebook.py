"""Tests of launch_notebook: results, output, errors and the end of the processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from io import StringIO

import numpy as np
import pytest

from tests.cli.test_ranks import assert_end
from tests.comm import ranks
from toolkit.distribution import launch_notebook
from toolkit.errors import (
    ArgumentError,
    LaunchError,
    RankLostError,
    StalledError,
    UnsupportedError,
)

pytest.importorskip("cloudpickle")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_result_and_output_with_ranks(monkeypatch):
    # The streams of a notebook have no `buffer`, as these.
    monkeypatch.setattr(sys, "stdout", StringIO())
    monkeypatch.setattr(sys, "stderr", StringIO())

    def function(first, second):
        from toolkit import comm

        rank = comm.world().rank
        print("name", second)
        print("error line of", rank, file=sys.stderr)
        return comm.exchange(comm.world(), [rank, float(np.sum(first))])

    result = launch_notebook(function, 2, arguments=(np.ones(3), "é"))
    assert result == [[0, 3.0], [1, 3.0]]
    assert sorted(sys.stdout.getvalue().splitlines()) == ["0: name é", "1: name é"]
    lines = sorted(sys.stderr.getvalue().splitlines())
    assert lines == ["0: error line of 0", "1: error line of 1"]


def test_one_process_is_a_new_process_too():
    assert launch_notebook(os.getpid, 1) != os.getpid()


def test_model_has_the_same_bits_as_in_one_process():
    def train():
        import toolkit as tk

        tk.utils.set_random_seed(0)
        tk.distribution.set_distribution(tk.distribution.DataParallel(shards=2))
        model = tk.Sequential([tk.Input((4,)), tk.layers.Dense(3)])
        model.compile("adam", "mse")
        x = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
        model.fit(x, x[:, :3], batch_size=8, epochs=2, verbose=0)
        tk.distribution.set_distribution(None)
        return model

    model, expected_model = launch_notebook(train, 2), train()
    for array, expected in zip(
        model.get_weights(), expected_model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(array, expected)
    x = np.ones((2, 4), "float32")
    model.fit(x, x[:, :3], verbose=0)  # the trained model is usable


def test_job_of_its_own_in_a_rank(tmp_path):
    """The processes of a rank have no settings of its job."""
    source = """
import toolkit
from toolkit import comm
rank = comm.world().rank
print("sizes", comm.world().size, toolkit.launch_notebook(lambda: comm.world().size, 3))
"""
    process = ranks.start(
        ranks.toolkit_command(tmp_path, 2, source, flags=["--elastic", "--replace"])
    )
    assert process.code == 0, process.errors
    assert process.out.count("sizes 2 3") == 2


def test_thread_that_is_not_the_main_thread():
    results = []
    thread = threading.Thread(
        target=lambda: results.append(launch_notebook(lambda: "done", 2))
    )
    thread.start()
    thread.join(60)
    assert results == ["done"]


class OddError(Exception):
    """Error that pickle cannot rebuild, because its constructor has two arguments."""

    def __init__(self, first, second):
        super().__init__(first)
        self.second = second


@pytest.mark.parametrize("failing_rank", [0, 1])
def test_error_of_any_rank_is_raised_with_its_traceback(failing_rank):
    def compute(x):
        raise OddError("no number", x)

    def function():
        from toolkit import comm

        if comm.world().rank == failing_rank:
            compute(5)
        comm.world().barrier()

    with pytest.raises(OddError, match="no number") as caught:
        launch_notebook(function, 2)
    assert caught.value.second == 5
    notes = "\n".join(caught.value.__notes__)
    assert f"rank {failing_rank} of the job raised this error" in notes
    assert "in compute" in notes and "OddError: no number" in notes
    assert "launch.py" not in notes and "function_files.py" not in notes


def end_by_signal():
    os.kill(os.getpid(), signal.SIGKILL)


def stall():
    time.sleep(60)


@pytest.mark.parametrize(
    "end, error, words",
    [
        (end_by_signal, RankLostError, "SIGKILL ended rank 1 of the job"),
        (lambda: sys.exit(3), LaunchError, "the job has ended with exit code 3"),
        (lambda: sys.exit("no data"), LaunchError, "no data"),
        (stall, StalledError, "(?s)longer than the timeout.*rank 1 is missing"),
        (lambda: threading.Lock(), None, ""),
    ],
)
def test_process_that_ends_the_job(end, error, words):
    def function():
        from toolkit import comm

        if comm.world().rank == 1:
            end()
        comm.world().barrier()
        return "result"

    if error is None:
        assert launch_notebook(function, 2) == "result"
        return
    start = time.monotonic()
    with pytest.raises(error, match=words):
        launch_notebook(function, 2, timeout=2)
    assert time.monotonic() - start < 30


def test_values_that_cannot_be_sent():
    with pytest.raises(UnsupportedError, match="launch_notebook: .* cannot be sent"):
        launch_notebook(print, 2, arguments=[threading.Lock()])
    with pytest.raises(UnsupportedError, match="can be pickled.*received a lock"):
        launch_notebook(threading.Lock, 1)


def test_elastic_job_returns_the_result_of_the_first_remaining_process():
    def function():
        from toolkit import comm

        if comm.world().rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            comm.world().barrier()
        except comm.RankLostError:
            return "recovered", comm.recover().size

    assert launch_notebook(function, 2, elastic=True) == ("recovered", 1)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"processes": 0}, "processes of at least 1; received 0"),
        ({"processes": 2.5}, "processes"),
        ({"arguments": "text"}, "expected `arguments` to be a list; received 'text'"),
        ({"timeout": 0}, "timeout in seconds, above 0"),
        ({"timeout": float("nan")}, "timeout in seconds, above 0"),
    ],
)
def test_invalid_arguments(options, words):
    with pytest.raises(ArgumentError, match=words):
        launch_notebook(print, **{"processes": 2, **options})


PROGRAM = """
import os, sys, threading, time, toolkit

def function():
    from toolkit import comm
    comm.world().barrier()
    print("pid", os.getpid(), flush=True)
    if comm.world().rank:
        comm.world().barrier()
    time.sleep(60)

def launch():
    try:
        toolkit.launch_notebook(function, 2)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise

if sys.argv[1] == "thread":
    thread = threading.Thread(target=launch)
    thread.start()
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        thread.join()
else:
    launch()
"""


@pytest.mark.parametrize(
    "kind, number, is_group",
    [
        ("main", signal.SIGINT, False),  # as a notebook server does
        ("main", signal.SIGINT, True),  # as a terminal does
        ("thread", signal.SIGINT, True),
        ("main", signal.SIGKILL, False),
        ("thread", signal.SIGKILL, False),
        ("main", signal.SIGTERM, False),
    ],
)
@pytest.mark.one_in(2)
def test_no_process_remains(tmp_path, kind, number, is_group):
    """The function is in `__main__`, as in a notebook."""
    (tmp_path / "program.py").write_text(PROGRAM)
    program = subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), kind],
        env=ranks.environment_of(TMPDIR=str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with program:
        pids = [int(program.stdout.readline().split()[-1]) for _ in range(2)]
        (os.killpg if is_group else os.kill)(program.pid, number)
        output, errors = program.communicate(timeout=20)
    assert_end(pids)
    if number == signal.SIGINT:
        assert "interrupted" in output, errors
        assert not list(tmp_path.glob("toolkit-*"))  # the folder of the job
