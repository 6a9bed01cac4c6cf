"""Tests of `tf.train.ClusterSpec`, `Server` and cluster Sessions, in one process."""

import random
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest

import toolkit.compat.tensorflow as tf2
import toolkit.compat.tensorflow.v1 as tf
from toolkit import layers
from toolkit.compat.tensorflow.v1.cluster import master, service
from toolkit.errors import (
    ArgumentError,
    CommunicationError,
    DeviceError,
    MissingKeyError,
    RankLostError,
    ShapeError,
    StalledError,
    UnsupportedError,
)


@pytest.fixture(autouse=True)
def graph_mode(monkeypatch):
    monkeypatch.setenv("TOOLKIT_TIMEOUT", "10")
    tf.reset_default_graph()
    tf.disable_eager_execution()
    yield
    tf.enable_eager_execution()
    tf.reset_default_graph()


@pytest.fixture
def start():
    """Start the servers of a cluster, with a number of tasks for each job."""
    with ExitStack() as stack:

        def start(**jobs):
            cluster = tf.train.ClusterSpec(addresses(**jobs))
            servers = {}
            for job, number in cluster:
                servers[job, number] = tf.train.Server(cluster, job, number)
                stack.callback(servers[job, number].stop)
            return servers

        yield start


def addresses(**jobs):
    """Return free ports of this machine."""
    with ExitStack() as stack:
        addresses_of_jobs = {}
        for job, count in jobs.items():
            probes = [
                stack.enter_context(socket.create_server(("127.0.0.1", 0)))
                for _ in range(count)
            ]
            addresses_of_jobs[job] = [
                f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes
            ]
        return addresses_of_jobs


def session_on(server, **options):
    return tf.Session(server.target, **options)


# --- ClusterSpec ----------------------------------------------------------------------


def test_cluster_specs():
    cluster = tf.train.ClusterSpec({"ps": ["a:1"], "worker": {0: "b:1", 3: "c:1"}})
    assert cluster.jobs == ["ps", "worker"]
    assert cluster.as_dict() == {"ps": ["a:1"], "worker": {0: "b:1", 3: "c:1"}}
    assert cluster.num_tasks("worker") == 2 and cluster.task_indices("worker") == [0, 3]
    assert cluster.job_tasks("worker") == ["b:1", None, None, "c:1"]
    assert tf.train.ClusterSpec(cluster) == cluster != tf.train.ClusterSpec({})
    assert str(next(iter(cluster))) == "/job:ps/task:0"
    with pytest.raises(MissingKeyError, match="no task 7"):
        cluster.task_address("worker", 7)
    with pytest.raises(MissingKeyError, match="no job 'chief'"):
        cluster.num_tasks("chief")


@pytest.mark.parametrize(
    "spec, message",
    [
        (["a:1"], "expected a dict"),
        ({"ps": "a:1"}, "expected a list of addresses"),
        ({"ps": []}, "has no tasks"),
        ({"p s": ["a:1"]}, "not a valid name of a job"),
        ({"ps": ["a"]}, "expected an address, host:port"),
        ({"ps": ["a:99999"]}, "port below"),
        ({"ps": {-1: "a:1"}}, "number >= 0"),
        ({"ps": ["a:1"], "worker": ["a:1"]}, "one address for each"),
    ],
)
def test_invalid_cluster_specs_are_refused(spec, message):
    with pytest.raises(ArgumentError, match=message):
        tf.train.ClusterSpec(spec)


def test_servers_have_a_task():
    cluster = {"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2", "127.0.0.1:3"]}
    server = tf.train.Server(cluster, "worker", 1, start=False)
    assert server.target == "tcp://127.0.0.1:3"
    assert server.server_def["job_name"], server.server_def["task_index"] == (
        "worker",
        1,
    )
    with pytest.raises(ArgumentError, match="expected job_name, one of ps, worker"):
        tf.train.Server(cluster, start=False)
    with pytest.raises(ArgumentError, match="expected task_index"):
        tf.train.Server(cluster, "worker", start=False)
    with pytest.raises(ArgumentError, match="protocol"):
        tf.train.Server(cluster, "ps", protocol="rdma", start=False)


def test_servers_listen_only_at_their_address(start):
    server = start(worker=1)["worker", 0]
    assert server.target == "tcp://{}:{}".format(*server._socket.getsockname())
    assert server._socket.getsockname()[0] == "127.0.0.1"
    server.start()  # a second call has no effect
    server.stop()
    server.join()  # returns


def test_used_address_is_an_error(start):
    servers = start(worker=1)
    with pytest.raises(CommunicationError, match="/job:worker/task:0: cannot listen"):
        tf.train.Server(servers["worker", 0].cluster, "worker", 0)


def test_missing_server_is_an_error(monkeypatch):
    monkeypatch.setenv("TOOLKIT_TIMEOUT", "0.2")
    (address,) = addresses(worker=1)["worker"]
    with pytest.raises(RankLostError, match=f"no server answers at {address}"):
        tf.Session(f"tcp://{address}")
    with pytest.raises(ArgumentError, match="expected a target"):
        tf.Session("local")


# --- placement ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scopes, expected",
    [
        (["/job:ps/task:1"], "/job:ps/task:1"),
        (["/job:ps", "/task:2"], "/job:ps/task:2"),
        (["/job:ps/task:1", "/cpu:0"], "/job:ps/task:1/cpu:0"),
        (["/job:ps/task:1/device:CPU:0", "/job:worker"], "/job:worker/task:1/cpu:0"),
        (["/job:ps/task:1", None], None),
        (["/job:localhost/replica:0/task:0/device:CPU:0"], "cpu:0"),
        ([lambda op: f"/job:{op.type}"], "/job:Const"),
        ([lambda op: f"{op.device}/task:3", "/job:ps"], "/job:ps/task:3"),
    ],
)
def test_scopes_place_operations(scopes, expected):
    with ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(tf.device(scope))
        x = tf.constant(1.0)
    assert x.op.device == expected
    assert tf.constant(1.0).device is None


def test_invalid_devices_are_refused():
    with pytest.raises(DeviceError, match="received 'rack:1'"), tf.device("/rack:1"):
        pass


@pytest.mark.parametrize("name", ["/job:ps/task:0/cpu:0", lambda op: "/job:ps"])
def test_eager_mode_has_no_tasks(name):
    tf.enable_eager_execution()
    with pytest.raises(DeviceError, match="expected a device of this process"):
        tf.device(name)
    with tf2.device("/job:localhost/replica:0/task:0/device:CPU:0"):
        assert tf2.constant(1.0).device


def test_device_setter_distributes_variables():
    cluster = tf.train.ClusterSpec({"ps": ["a:1", "b:1"], "worker": ["c:1"]})
    assert tf.train.replica_device_setter() is None
    worker = "/job:worker/task:0"
    setter = tf.train.replica_device_setter(worker_device=worker, cluster=cluster)
    with tf.device(setter):
        vs = [tf.get_variable(name, (2,)) for name in "abc"]
        with tf.device("/job:ps/task:0"):
            pinned = tf.get_variable("pinned", (2,))
        loss = tf.reduce_sum(vs[0] * vs[1] * vs[2])
        train = tf.train.AdamOptimizer().minimize(loss)
    assert [v.device for v in (*vs, pinned)] == [
        *("/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:0", "/job:ps/task:0")
    ]
    assert loss.device == train.device == worker
    slots = {v.path: v.device for v in tf.global_variables()}
    assert slots["b/Adam"] == slots["b/Adam_1"] == "/job:ps/task:1"
    assert slots["beta1_power"] == "/job:ps/task:0"
    assert vs[1].initializer.device == vs[1].initial_value.device == "/job:ps/task:1"
    with pytest.raises(ArgumentError, match="use Session"), tf.Session() as session:
        session.run(loss, {v: [1.0, 1.0] for v in vs})


# --- runs -----------------------------------------------------------------------------


def test_a_graph_on_one_task(start):
    server = start(worker=1)["worker", 0]
    x = tf.placeholder("float32", (None, 3), name="x")
    y = tf.nn.softmax(tf.matmul(x, np.eye(3, dtype="float32") * 2) + 1.0)
    fed = np.arange(6, dtype="float32").reshape(2, 3)
    with tf.Session() as session:
        expected = session.run(y, {x: fed})
    with session_on(server) as session:
        values = session.run(
            {"y": y, "op": y.op, "x": x, "shape": tf.shape(x)}, {x: fed}
        )
        fetched = session.run("Softmax:0", {"x:0": fed[:1]})
    np.testing.assert_array_equal(values["y"], expected)
    np.testing.assert_array_equal(values["x"], fed)
    assert values["op"] is None and values["shape"].tolist() == [2, 3]
    np.testing.assert_allclose(fetched, expected[:1], rtol=1e-6)


def test_values_are_sent_between_tasks(start):
    servers = start(worker=3)
    x = tf.placeholder("float32", (4,))
    with tf.device("/job:worker/task:1"):
        a = tf.exp(x)
    with tf.device("/job:worker/task:2/cpu:0"):
        b = a * 2.0
    with tf.device("/job:worker/task:1"):
        c = b + a
    d = c - x
    with session_on(servers["worker", 0]) as session:
        values = session.run([a, b, c, d], {x: np.arange(4)})
    e = np.exp(np.arange(4, dtype="float32"))
    for value, expected in zip(
        values, [e, 2 * e, 3 * e, 3 * e - np.arange(4)], strict=True
    ):
        np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_subgraphs_are_sent_once_to_their_task(start, monkeypatch):
    servers = start(worker=3)
    registered = []
    original = service.Client._register

    def register(self, header, arrays):
        registered.append(self.service.task.number)
        return original(self, header, arrays)

    monkeypatch.setitem(service._HANDLERS, "register", register)
    x = tf.placeholder("float32", (None,))
    with tf.device("/job:worker/task:1"):
        y = x + 1.0
        with tf.device("/task:2"):
            tf.sqrt(y)  # not fetched
    with session_on(servers["worker", 0]) as session:
        for _ in range(3):
            assert session.run(y, {x: [1.0]}) == [2.0]
        assert registered == [1]
        session.run(y, {x: [1.0, 2.0]})  # another shape is another program
        assert registered == [1, 1]


def test_variables_stay_on_their_task_after_sessions(start):
    servers = start(ps=2, worker=1)
    with tf.device("/job:ps/task:1"):
        v = tf.get_variable("v", initializer=[1.0, 2.0])
    w = tf.get_variable("w", initializer=3.0)
    with session_on(servers["worker", 0]) as session:
        with pytest.raises(
            tf2.errors.FailedPreconditionError, match="/job:ps/task:1.* v"
        ):
            session.run(v)
        uninitialized = tf.report_uninitialized_variables()
        assert session.run(uninitialized).tolist() == [b"v", b"w"]
        session.run([v.initializer, w.initializer])
        assert session.run(uninitialized).tolist() == []
        assert session.run(tf.is_variable_initialized(v))
        assert session.run([v, v.assign_add(tf.stack([1.0, w]))])[1].tolist() == [2, 5]
    with session_on(servers["ps", 1]) as session:
        assert session.run(v).tolist() == [2, 5]
        v.load([7.0, 8.0], session)
        assert session.run(v * 2).tolist() == [14, 16]
    initialized = {
        k: s.service.store.are_initialized(["v", "w"]) for k, s in servers.items()
    }
    assert initialized == {
        ("ps", 0): [False, False],
        ("ps", 1): [True, False],
        ("worker", 0): [False, True],
    }


def test_fetched_variables_have_the_values_before_the_run(start):
    servers = start(ps=1, worker=1)
    with tf.device("/job:ps/task:0"):
        v = tf.get_variable("v", initializer=2.0)
    with tf.device("/job:worker/task:0"):
        new = tf.square(v) + v
    change = v.assign_add(new - v)
    with tf.control_dependencies([change]), tf.device("/job:worker/task:0"):
        late = v.read_value() + 0.5
    with session_on(servers["worker", 0]) as session:
        session.run(v.initializer)
        assert session.run([v, new, change, late]) == [2, 6, 6, 6.5]
        assert session.run(v) == 6


def test_values_read_before_a_change_are_unchanged(start):
    servers = start(ps=1, worker=1)
    x = tf.placeholder("float32", ())
    with tf.device("/job:ps/task:0"):
        v = tf.get_variable("v", initializer=1.0)
    with tf.device("/job:worker/task:0"):
        y = tf.exp(x)
    with tf.device("/job:ps/task:0"):
        z = v + y  # later than the change, on its task, because it waits for y
        with tf.control_dependencies([z]):
            change = v.assign(5.0)
    with session_on(servers["worker", 0]) as session:
        session.run(v.initializer)
        assert session.run([z, change], {x: 0.0}) == [2, 5]
        assert session.run([z, change], {x: 0.0}) == [6, 5]


def test_training_matches_one_process(start):
    servers = start(ps=2, worker=1)
    rng = np.random.default_rng(0)
    xs, ys = rng.normal(size=(32, 5)), rng.normal(size=(32, 1))

    def train(target):
        graph = tf.Graph()
        with graph.as_default(), ExitStack() as stack:
            if target:
                setter = tf.train.replica_device_setter(ps_tasks=2)
                stack.enter_context(tf.device(setter))
            tf.set_random_seed(3)
            x = tf.placeholder("float32", (None, 5))
            y = tf.placeholder("float32", (None, 1))
            hidden = tf.layers.dense(x, 7, activation=tf.nn.tanh)
            hidden = tf.nn.dropout(hidden, keep_prob=0.8)
            loss = tf.losses.mean_squared_error(y, tf.layers.dense(hidden, 1))
            step = tf.train.get_or_create_global_step()
            rate = tf.train.exponential_decay(0.1, step, 5, 0.5)
            average = tf.train.ExponentialMovingAverage(0.9)
            train = tf.train.AdamOptimizer(rate).minimize(loss, step)
            with tf.control_dependencies([train]):
                train = average.apply()
            with tf.Session(target) as session:
                session.run(tf.global_variables_initializer())
                losses = [
                    session.run([loss, train], {x: xs, y: ys})[0] for _ in "12345"
                ]
                return losses, session.run(tf.global_variables())

    expected, actual = train(""), train(servers["worker", 0].target)
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-5)
    for a, b in zip(actual[1], expected[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def random_graph(seed, names):
    """Return a feed and the fetches of some runs, for operations on random tasks."""
    r = random.Random(seed)
    x = tf.placeholder("float32", (3,))

    def at():
        return tf.device(r.choice(names))

    def any_of(*lists):
        return r.choice([x for item in lists for x in item])

    variables, values, updates = [], [x], []
    for i in range(r.randint(1, 4)):
        with at():
            variables.append(tf.get_variable(f"v{i}", initializer=[float(i), 1.0, -1]))
    for _ in range(r.randint(3, 15)):
        kind = r.random()
        before = r.sample(updates, min(len(updates), r.choice([0, 0, 1, 2])))
        a, b = any_of(values, variables), any_of(values, variables)
        with at(), tf.control_dependencies([y.op for y in before]):
            if kind < 0.45:
                values.append(r.choice([tf.add, tf.subtract, tf.maximum])(a, b))
            elif kind < 0.6:
                values.append(tf.tanh(a))
            elif kind < 0.7:
                values.append(r.choice(variables).read_value() * 0.5)
            elif kind < 0.85:
                updates.append(r.choice(variables).assign_add(tf.tanh(a)))
            else:
                new = r.choice([a * 0.5, tf.constant([1.0, 2.0, 3.0])])
                updates.append(r.choice(variables).assign(new))
    loss = tf.reduce_sum(tf.square(values[-1])) + tf.reduce_sum(variables[0])
    make = r.choice([tf.train.AdamOptimizer, tf.train.GradientDescentOptimizer])
    with at():
        step = tf.train.get_or_create_global_step()
        train = make(0.1).minimize(loss, step)
    every = [*values, *variables, *updates, train, loss]
    return x, [[r.choice(every) for _ in range(r.randint(1, 6))] for _ in range(4)]


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_match_one_process(start, seed):
    servers = start(ps=1, worker=2)
    results = []
    for target in ("", servers["worker", 0].target):
        names = [str(task) if target else None for task in servers["ps", 0].cluster]
        with tf.Graph().as_default(), tf.Session(target) as session:
            x, runs = random_graph(seed, names)
            session.run(tf.global_variables_initializer())
            runs = [*runs, *runs, tf.global_variables()]
            results.append(
                [session.run(run, {x: [0.1, i, 0.3]}) for i, run in enumerate(runs)]
            )
    for run, expected in zip(results[1], results[0], strict=True):
        for value, other in zip(run, expected, strict=True):
            assert (value is None) == (other is None)
            if value is not None:
                np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-5)


def test_operations_without_a_task_run_locally(start):
    with session_on(start(worker=1)["worker", 0]) as session:
        values = session.run([tf.no_op(), tf.constant(3.0), tf.zeros((2,))])
    assert values[:2] == [None, 3.0] and values[2].tolist() == [0, 0]


def test_tasks_drop_unused_programs(start, monkeypatch):
    monkeypatch.setattr(master, "MOST_PROGRAMS", 3)
    server = start(worker=1)["worker", 0]
    x = tf.placeholder("float32", (None,))
    y = x * 2.0
    with session_on(server) as session:
        for n in [*range(6), *range(6), 5, 4]:
            assert session.run(y, {x: np.ones(n)}).tolist() == [2] * n
        (state,) = server.service._sessions.values()
        assert len(state.programs) == 3


def test_random_numbers_continue_between_runs(start):
    server = start(worker=1)["worker", 0]
    tf.set_random_seed(1)
    x = tf.random_uniform((3,))

    def draw(target):
        with tf.Session(target) as session:
            return [session.run(x).tolist() for _ in range(3)]

    assert draw("") == draw(server.target) == draw(server.target)
    assert len({str(row) for row in draw("")}) == 3


def test_loops_and_branches(start):
    server = start(worker=1)["worker", 0]
    n = tf.placeholder("int32", ())
    total = tf.while_loop(lambda i, t: i < n, lambda i, t: (i + 1, t + i), (0, 0))[1]
    sign = tf.cond(n > 3, lambda: tf.constant(1.0), lambda: tf.constant(-1.0))
    scanned = tf.scan(lambda a, x: a + x, tf.constant([1.0, 2.0, 3.0]))
    with session_on(server) as session:
        values = session.run([total, sign, scanned], {n: 5})
    assert values[:2] == [10, 1] and values[2].tolist() == [1, 3, 6]


def test_data_prints_and_savers_stay_with_the_client(start, capsys, tmp_path):
    servers = start(ps=1, worker=1)
    with tf.device("/job:ps/task:0"):
        v = tf.get_variable("v", initializer=1.0)
    data = tf.data.make_initializable_iterator(tf.data.Dataset.range(3))
    batch = tf.cast(data.get_next(), "float32")
    add = v.assign_add(batch)
    shown = tf2.print("v is", add)
    saver = tf.train.Saver()
    with session_on(servers["worker", 0]) as session:
        session.run(v.initializer)
        for _ in range(2):
            session.run(data.initializer)
            for _ in range(3):
                session.run(shown)
        path = saver.save(session, str(tmp_path / "model"))
        session.run(v.initializer)
        saver.restore(session, path)
        assert session.run(v) == 7
    captured = capsys.readouterr()
    assert "v is 2\n" in captured.out + captured.err


def test_sessions_run_from_several_threads(start):
    servers = start(ps=1, worker=1)
    with tf.device("/job:ps/task:0"):
        count = tf.get_variable("count", initializer=0)
        add = count.assign_add(1)
    with session_on(servers["worker", 0]) as session:
        session.run(count.initializer)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: session.run(add.op), range(100)))
        assert session.run(count) == 100


def in_threads(*functions):
    """Call functions at the same time and return their results."""
    with ThreadPoolExecutor(len(functions)) as pool:
        return [future.result(60) for future in [pool.submit(f) for f in functions]]


def momentum(rate):
    return tf.train.MomentumOptimizer(rate, 1.0)


@pytest.mark.parametrize("make", [tf.train.GradientDescentOptimizer, momentum])
def test_asynchronous_workers_lose_no_update(start, make):
    servers = start(ps=1, worker=2)

    def work(task):
        with tf.Graph().as_default():
            worker = f"/job:worker/task:{task}"
            with tf.device(tf.train.replica_device_setter(1, worker_device=worker)):
                v = tf.get_variable("v", (3,), initializer=tf.zeros_initializer())
                step = tf.train.get_or_create_global_step()
                train = make(1.0).minimize(tf.reduce_sum(v), step)
            assert v.device == "/job:ps/task:0" and train.device == worker
            with session_on(servers["worker", task]) as session:
                if task == 0:
                    session.run(tf.global_variables_initializer())
                while session.run(tf.report_uninitialized_variables()).size:
                    time.sleep(0.01)
                for _ in range(100):
                    session.run(train)
                return session.run([v, step])

    work(0)
    in_threads(lambda: work(1), lambda: work(1))
    expected, velocity = 0.0, 0.0
    for _ in range(300):
        velocity = 1.0 + velocity if make is momentum else 1.0
        expected -= velocity
    with session_on(servers["ps", 0]) as session:
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", (3,))
            step = tf.train.get_or_create_global_step()
        np.testing.assert_allclose(session.run(v), [expected] * 3, rtol=1e-5)
        assert session.run(step) == 300


def replicas(aggregate, total, opt):
    """Build the graph of a worker, whose feed is the gradient."""
    g = tf.placeholder("float32", ())
    with tf.device("/job:ps/task:0"):
        v = tf.get_variable("v", initializer=1.0)
    step = tf.train.get_or_create_global_step()
    sync = tf.train.SyncReplicasOptimizer(opt, aggregate, total)
    with tf.device("/job:ps/task:0"):
        train = sync.apply_gradients([(g, v)], step)
    return g, v, step, train


def test_steps_average_gradients_of_workers(start):
    servers = start(ps=2, worker=2)

    def work(task, rows):
        with tf.Graph().as_default():
            worker = f"/job:worker/task:{task}"
            with tf.device(tf.train.replica_device_setter(2, worker_device=worker)):
                x = tf.placeholder("float32", (None, 3))
                w = tf.get_variable("w", initializer=[1.0, 2.0, 3.0])
                b = tf.get_variable("b", initializer=0.5)
                loss = tf.reduce_mean(tf.square(tf.linalg.matvec(x, w) + b))
                step = tf.train.get_or_create_global_step()
                opt = tf.train.AdamOptimizer(0.1)
                if rows is not None:
                    opt = tf.train.SyncReplicasOptimizer(opt, 2)
                train = opt.minimize(loss, step)
            fed = np.arange(12, dtype="float32").reshape(4, 3) / 10
            target = "" if rows is None else servers["worker", task].target
            if rows is None:
                for op in tf.get_default_graph().get_operations():
                    op.device = None
            with tf.Session(target) as session:
                if task == 0:
                    session.run(tf.global_variables_initializer())
                while session.run(tf.report_uninitialized_variables()).size:
                    time.sleep(0.01)
                for _ in range(5):
                    session.run(train, {x: fed if rows is None else fed[rows]})
                return session.run([w, b, step])

    results = in_threads(lambda: work(0, [0, 1]), lambda: work(1, [2, 3]))
    alone_values = work(0, None)
    for values in results:
        for value, expected in zip(values, alone_values, strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert alone_values[2] == 5


def test_late_gradients_are_dropped(start, monkeypatch):
    monkeypatch.setenv("TOOLKIT_TIMEOUT", "0.5")
    servers = start(ps=1, worker=1)
    with tf.device("/job:worker/task:0"):
        g, v, step, train = replicas(1, 2, tf.train.GradientDescentOptimizer(1.0))
    with session_on(servers["worker", 0]) as session:
        session.run(tf.global_variables_initializer())
        session.run(train, {g: 0.25})
        assert session.run([v, step]) == [0.75, 1]
        # As if the worker had read the previous step, and other workers had finished
        # it.
        session.run(train, {g: 0.25, step: 0})
        assert session.run([v, step]) == [0.75, 1]


def test_step_without_enough_gradients_is_named(start, monkeypatch):
    monkeypatch.setenv("TOOLKIT_TIMEOUT", "0.5")
    servers = start(ps=1, worker=1)
    g, v, step, train = replicas(2, 2, tf.train.AdamOptimizer(1.0))
    with session_on(servers["worker", 0]) as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(
            StalledError, match="waited 0.5 s for global_step to be above"
        ):
            session.run(train, {g: 0.25})
        assert session.run([v, step]) == [1, 0]
        session.run(train, {g: 0.25})  # the second gradient completes the step
        assert session.run(step) == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((0,), "expected 0 < replicas_to_aggregate"),
        ((3, 2), "received 3 and 2"),
    ],
)
def test_mismatched_replicas_are_refused(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        tf.train.SyncReplicasOptimizer(tf.train.AdamOptimizer(), *arguments)


def test_replicas_need_a_step():
    v = tf.get_variable("v", initializer=1.0)
    sync = tf.train.SyncReplicasOptimizer(tf.train.AdamOptimizer(), 1)
    with pytest.raises(ArgumentError, match="global_step is required"):
        sync.minimize(v * v)


# --- refused graphs -------------------------------------------------------------------


def test_unsendable_operations_are_named(start):
    server = start(worker=1)["worker", 0]
    x = tf.placeholder("float32", (3,), name="x")
    called = tf.py_func(np.sin, [x], "float32", name="called")
    with tf.control_dependencies([tf.assert_positive(x, name="sure")]):
        checked = tf.identity(x)
    masked = tf.boolean_mask(x, x > 0, name="masked")
    layer = layers.Dense(2)(tf.reshape(x, (1, 3)))
    with session_on(server) as session:
        for fetch, message in [
            (called, r"'called' \(PyFunc\) cannot run on a task: it is Python code"),
            (checked, r"'sure' \(Assert\) cannot run on a task"),
            (masked, r"'masked' .*the shape of its result depends on values"),
            (layer, "variable .*kernel cannot be on a task: it belongs to a layer"),
        ]:
            with pytest.raises(UnsupportedError, match=message):
                session.run(fetch, {x: [1, 2, 3]})
        assert session.run(x + 1, {x: [1, 2, 3]}).tolist() == [2, 3, 4]


@pytest.mark.parametrize("device", ["/job:worker/task:5", "/job:chief"])
def test_missing_tasks_are_refused(start, device):
    server = start(worker=1)["worker", 0]
    with tf.device(device):
        x = tf.constant(1.0) + 1.0
    with (
        session_on(server) as session,
        pytest.raises(ArgumentError, match="is placed on"),
    ):
        session.run(x)


def test_missing_devices_of_a_task_are_refused(start):
    server = start(worker=1)["worker", 0]
    with tf.device("/job:worker/task:0/cpu:7"):
        x = tf.placeholder("float32", ()) + 1.0
    with session_on(server) as session, pytest.raises(DeviceError, match="cpu:7"):
        session.run(x, {x.op.inputs[0]: 1.0})


def test_variables_of_one_name_must_match(start):
    server = start(worker=1)["worker", 0]
    for shape in ((2,), (3,)):
        with tf.Graph().as_default():
            v = tf.get_variable("v", shape)
            with session_on(server) as session:
                if shape == (2,):
                    session.run(v.initializer)
                    continue
                with pytest.raises(ShapeError, match=r"v: expected float32\[2\]"):
                    session.run(v.initializer)


def test_server_of_another_task_is_refused(start):
    servers = start(worker=2)
    addresses = servers["worker", 0].cluster.as_dict()["worker"]
    swapped = tf.train.ClusterSpec({"worker": addresses[::-1]})
    servers["worker", 0].service.cluster = swapped
    with tf.device("/job:worker/task:1"):
        x = tf.placeholder("float32", ()) + 1.0
    with session_on(servers["worker", 0]) as session:
        with pytest.raises(CommunicationError, match="expected this task of"):
            session.run(x, {x.op.inputs[0]: 1.0})
