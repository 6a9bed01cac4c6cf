"""Tests of clusters of real processes: training, and the loss of each process."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import toolkit.compat.tensorflow.v1 as tf
from toolkit.errors import RankLostError, StalledError

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "cluster" / "parameter_server.py"
SERVER = """
import sys, toolkit.compat.tensorflow.v1 as tf
cluster = {"ps": sys.argv[3:4], "worker": sys.argv[4:]}
tf.train.Server(cluster, sys.argv[1], int(sys.argv[2])).join()
"""


@pytest.fixture(autouse=True)
def graph_mode():
    tf.reset_default_graph()
    tf.disable_eager_execution()
    yield
    tf.enable_eager_execution()
    tf.reset_default_graph()


def free_addresses(count):
    with ExitStack() as stack:
        probes = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            for _ in range(count)
        ]
        return [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]


@pytest.fixture
def start():
    """Start Python with arguments, and kill it when the test ends."""
    with ExitStack() as stack:

        def start(*arguments, **environment):
            process = subprocess.Popen(
                [sys.executable, *map(str, arguments)],
                env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


def wait_for_step(process, minimum):
    """Read the output of a worker up to a step."""
    output = ""
    for line in process.stdout:
        output += line
        match = re.match(r"worker \d: step (\d+)", line)
        if match and int(match[1]) >= minimum:
            return
    pytest.fail(f"it ended before step {minimum}: {output}")


def accuracy_of(process, timeout=240):
    """Return the accuracy that a worker reports at a normal end."""
    out, _ = process.communicate(timeout=timeout)
    assert process.returncode == 0, out
    return float(re.search(r"test accuracy (\d\.\d+)", out)[1])


def start_example(start, workers, *options, **environment):
    addresses = free_addresses(1 + workers)
    common = [EXAMPLE, *options, "--cluster", *addresses]
    ps = start(*common, "--job", "ps", **environment)
    return ps, [
        start(*common, "--job", "worker", "--task", i, **environment)
        for i in range(workers)
    ]


# The chief initializes the Variables. Then it is an ordinary worker.
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.one_in(2)
def test_asynchronous_training_survives_a_lost_worker(start, victim):
    ps, workers = start_example(start, 2, "--steps", 1200)
    wait_for_step(workers[victim], 200)
    workers[victim].kill()
    assert accuracy_of(workers[1 - victim]) >= 0.97
    assert ps.poll() is None


@pytest.mark.slow
def test_backup_workers_replace_a_lost_worker(start):
    ps, workers = start_example(start, 3, "--steps", 700, "--aggregate", 2)
    wait_for_step(workers[1], 100)
    workers[1].kill()
    assert min(accuracy_of(workers[0]), accuracy_of(workers[2])) >= 0.97
    assert ps.poll() is None


@pytest.mark.slow
def test_lost_worker_without_a_backup_is_an_error(start):
    options = ("--steps", 4000, "--aggregate", 2)
    _, workers = start_example(start, 2, *options, TOOLKIT_TIMEOUT="3")
    wait_for_step(workers[1], 50)
    workers[1].kill()
    out, _ = workers[0].communicate(timeout=30)
    assert workers[0].returncode != 0
    assert "StalledError" in out and "waited 3 s for global_step to be above" in out


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.one_in(2)
def test_a_lost_parameter_server_is_an_error(start, how):
    ps, workers = start_example(start, 2, "--steps", 10_000, TOOLKIT_TIMEOUT="3")
    wait_for_step(workers[1], 50)
    ps.send_signal(how)
    begin = time.monotonic()
    for worker in workers:
        out, _ = worker.communicate(timeout=30)
        assert worker.returncode != 0
        assert "RankLostError" in out and "/job:ps/task:0 at" in out
        assert " is lost: " in out
    # Two checks of a server that does not answer add 2 s each.
    assert time.monotonic() - begin < 12


def cluster_of(start, workers, **environment):
    addresses = free_addresses(1 + workers)
    tasks = [("ps", 0), *(("worker", i) for i in range(workers))]

    def serve(task):
        return start("-c", SERVER, *task, *addresses, **environment)

    return addresses, serve, {task: serve(task) for task in tasks}


def test_master_continues_with_a_restarted_worker(start):
    addresses, serve, processes = cluster_of(start, 2)
    with tf.device("/job:ps/task:0"):
        v = tf.get_variable("v", initializer=1.0)
    with tf.device("/job:worker/task:1"):
        y = v * 2.0
    with tf.device("/job:worker/task:0"):
        z = y + v
    with tf.Session(f"tcp://{addresses[1]}") as session:
        session.run(v.initializer)
        assert session.run(z) == 3
        processes["worker", 1].kill()
        processes["worker", 1].wait()
        with pytest.raises(RankLostError, match="/job:worker/task:1 at .* is lost"):
            session.run(z)
        assert session.run(v + 1.0) == 2  # a run without this worker continues
        processes["worker", 1] = serve(("worker", 1))
        for _ in range(100):
            try:
                assert session.run(z) == 3
                break
            except RankLostError:
                time.sleep(0.1)
        else:
            pytest.fail("it did not come back")
        processes["ps", 0].kill()
        processes["ps", 0].wait()
        with pytest.raises(RankLostError, match="/job:ps/task:0"):
            session.run(z)


def test_killed_worker_is_an_immediate_error(start):
    addresses, _, processes = cluster_of(start, 2)
    n = tf.placeholder("int32", ())
    with tf.device("/job:worker/task:1"):
        y = tf.while_loop(lambda i: i < n, lambda i: (i * 0 + 1,), (tf.constant(0),))
    with tf.device("/job:worker/task:0"):
        z = y[0] + 1 if isinstance(y, (list, tuple)) else y + 1
    with tf.Session(f"tcp://{addresses[1]}") as session:
        assert session.run(z, {n: 1}) == 2
        killer = subprocess.Popen(
            ["sh", "-c", f"sleep 1; kill -9 {processes['worker', 1].pid}"]
        )
        begin = time.monotonic()
        with pytest.raises(RankLostError, match="/job:worker/task:1"):
            session.run(z, {n: 2})  # does not end
        killer.wait()
        assert time.monotonic() - begin < 4
        assert session.run(tf.constant(2) * n, {n: 2}) == 4


def test_a_run_has_a_deadline(start):
    addresses, _, _ = cluster_of(start, 1)
    n = tf.placeholder("int32", ())
    y = tf.while_loop(lambda i: i < n, lambda i: (i * 0,), (tf.constant(0),))
    config = tf.ConfigProto(operation_timeout_in_ms=1500)
    with tf.Session(f"tcp://{addresses[1]}", config=config) as session:
        with pytest.raises(StalledError, match="waited 1.5 s for /job:worker/task:0"):
            session.run(y, {n: 2})


def test_task_drops_state_of_killed_clients(start):
    server = tf.train.Server.create_local_server()
    code = (
        "import sys, toolkit.compat.tensorflow.v1 as tf\n"
        "tf.disable_eager_execution()\n"
        "session = tf.Session(sys.argv[1])\n"
        "print(session.run(tf.random_uniform(())), flush=True)\n"
        "input()"
    )
    client = start("-c", code, server.target)
    client.stdout.readline()
    assert len(server.service._sessions) == 1
    client.kill()
    client.wait()
    end = time.monotonic() + 5
    while server.service._sessions and time.monotonic() < end:
        time.sleep(0.02)
    assert not server.service._sessions
    assert not server.service.store._cells  # the state of its random numbers
    server.stop()
